//! How the log lays out its files, and what it tells others.

use std::sync::Arc;

use super::shelf::Shelf;
use super::sync::SyncBeside;
use crate::types::Result;

/// How the log lays out its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalOptions {
    /// The size that segments grow to, in bytes: a multiple of 512, at most 1 GiB.
    pub segment_bytes_max: u64,
    /// The first segment is small, so that a small database is; each next one is twice as large, up to the
    /// limit.
    pub first_segment_bytes: u64,
    /// Segments for records larger than a segment are this large at the most, in payload bytes.
    pub bulk_segment_bytes: u64,
    /// What segments say of whose they are; 0: nothing.
    pub database_id: u32,
    /// Whether small commits may be stored in memory of the segment's file (window.rs).
    pub maps: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions {
            segment_bytes_max: 16 << 20,
            first_segment_bytes: 256 << 10,
            bulk_segment_bytes: 256 << 20,
            database_id: 0,
            maps: true,
        }
    }
}

/// What the log tells others, and what they add to it.
pub(crate) struct Register {
    /// Says durably, in the manifest, which segment is the newest that may be in use (pool.4). A smaller
    /// number than before takes back what was said of prepared files (pool.5).
    pub(super) name: Box<dyn Fn(u64) -> Result<()> + Send + Sync>,
    /// What each sync of the log syncs too (sync.3).
    pub(super) sync_beside: SyncBeside,
    /// Where the log is kept for readers, if it is.
    pub(super) shelf: Option<Arc<Shelf>>,
}

impl Register {
    /// Calls `name`, perhaps while the commit lock is held. If it fails, it is not known what the manifest
    /// says.
    pub(crate) fn new(name: impl Fn(u64) -> Result<()> + Send + Sync + 'static) -> Register {
        Register { name: Box::new(name), sync_beside: SyncBeside::default(), shelf: None }
    }

    /// The same; each sync of the log syncs something else too (sync.3).
    pub(crate) fn syncing_beside(self, sync_beside: SyncBeside) -> Register {
        Register { sync_beside, ..self }
    }

    /// The same; the log is kept for others on this shelf.
    pub(crate) fn kept_on(self, shelf: Option<Arc<Shelf>>) -> Register {
        Register { shelf, ..self }
    }
}

impl std::fmt::Debug for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Register")
    }
}
