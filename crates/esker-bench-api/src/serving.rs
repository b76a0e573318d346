//! Engines that also come as a server of the Redis protocol.

use std::path::Path;

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncing {
    /// Once it is on the device.
    Always,
    /// At once; on the device within a second.
    EverySecond,
    /// At once; on the device when the operating system likes.
    Never,
}

impl Syncing {
    /// As servers' options have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::EverySecond => "everysec",
            Self::Never => "never",
        }
    }
}

/// How a server is to be started.
#[derive(Clone, Copy, Debug)]
pub struct Serving<'a> {
    /// Where its files are.
    pub dir: &'a Path,
    /// The port of the local machine that it listens on.
    pub port: u16,
    /// When writes count as done.
    pub syncing: Syncing,
    /// Memory for its cache and buffers, if it keeps data elsewhere.
    pub memory_bytes: u64,
}
