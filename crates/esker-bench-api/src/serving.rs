//! Engines that have a server of the Redis protocol.

use std::path::Path;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncing {
    /// When it is on the device.
    Always,
    /// At once. It is on the device within a second.
    EverySecond,
    /// At once. The operating system decides when it is on the device.
    Never,
}

impl Syncing {
    /// Returns the name in the options of servers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::EverySecond => "everysec",
            Self::Never => "never",
        }
    }
}

/// How to start a server.
#[derive(Clone, Copy, Debug)]
pub struct Serving<'a> {
    /// Directory of its files.
    pub dir: &'a Path,
    /// Port of the local machine to listen on.
    pub port: u16,
    /// When writes are acknowledged.
    pub syncing: Syncing,
    /// Memory for its cache and buffers, if it keeps data on disk.
    pub memory_bytes: u64,
}
