//! Options of the log, and the hooks through which it works with the manifest, blob files and readers.

use std::sync::Arc;

use esker_env::Env;

use super::format::SegmentHeader;
use super::shelf::Shelf;
use super::spare::SEGMENT_BYTES_UNIT;
use super::sync::SyncBeside;
use crate::encryption;
use crate::types::Result;

/// File layout of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalOptions {
    /// Maximum segment size in bytes: a multiple of 512, at most 1 GiB.
    pub segment_bytes_max: u64,
    /// Size of the first segment, so that a small database stays small. Each next segment is twice as large,
    /// up to the maximum.
    pub first_segment_bytes: u64,
    /// Maximum payload bytes of a segment that holds part of a record larger than a segment.
    pub bulk_segment_bytes: u64,
    /// The database id in segment headers; 0 for none.
    pub database_id: u32,
    /// Whether small commits may be stored into a memory mapping of the segment (window.rs).
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

impl WalOptions {
    /// Returns the header of a segment in a file of `bytes`.
    pub(super) fn header_of(&self, env: &Env, number: u64, bytes: u64) -> SegmentHeader {
        let made_bytes = u32::try_from(bytes).expect("segments are at most 1 GiB long");
        SegmentHeader { number, made_bytes, database_id: self.database_id, is_sealed: encryption::is_on(env) }
    }

    /// Returns whether a closed database may keep an unused file of `bytes` for its next process: one as
    /// small as the first file of a new database, so a closed database takes little more than its data.
    pub(super) fn may_leave(&self, bytes: u64) -> bool {
        bytes >= SEGMENT_BYTES_UNIT && bytes <= self.first_segment_bytes.min(self.segment_bytes_max)
    }
}

/// Hooks through which the log works with other parts of the engine.
pub(crate) struct Register {
    /// Durably records in the manifest the newest segment that may be in use (pool.4). A smaller number than
    /// before withdraws prepared files (pool.5).
    pub(super) name: Box<dyn Fn(u64) -> Result<()> + Send + Sync>,
    /// What each sync of the log also syncs (sync.3).
    pub(super) sync_beside: SyncBeside,
    /// Keeps segments for readers of the log, if there are any.
    pub(super) shelf: Option<Arc<Shelf>>,
}

impl Register {
    /// Returns hooks that call `name`, possibly while the commit lock is held. If `name` fails, the manifest
    /// may contain either number.
    pub(crate) fn new(name: impl Fn(u64) -> Result<()> + Send + Sync + 'static) -> Register {
        Register { name: Box::new(name), sync_beside: SyncBeside::default(), shelf: None }
    }

    /// Adds work that each sync of the log also does (sync.3).
    pub(crate) fn syncing_beside(self, sync_beside: SyncBeside) -> Register {
        Register { sync_beside, ..self }
    }

    /// Keeps segments on `shelf` for readers of the log.
    pub(crate) fn kept_on(self, shelf: Option<Arc<Shelf>>) -> Register {
        Register { shelf, ..self }
    }
}

impl std::fmt::Debug for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Register")
    }
}
