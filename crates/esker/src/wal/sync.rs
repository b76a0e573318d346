//! Making a segment durable, perhaps from two threads: the committer's and the one that syncs `Buffered` commits.
//!
//! ```text
//!   WalWriter::sync_handle (locked) --> SyncHandle::sync (unlocked) --> WalWriter::synced (locked)
//! ```
//!
//! Y1. Syncs of one segment take turns. The operating system reports a failed write-back once per open file: if two
//!     ran at once, one could take the report and the other acknowledge lost records.
//! Y2. After a failed sync every later one fails, without asking the system again (W6).

use std::path::PathBuf;
use std::sync::Arc;

use esker_env::File;
use parking_lot::Mutex;

use super::format::SegmentHeader;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result};

/// The file of a segment that is being written.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) number: u64,
    /// What the checksums of its records begin with.
    pub(super) stamp: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    /// The first failed sync; also the lock of Y1.
    failed: Mutex<Option<Arc<Error>>>,
}

impl SegmentFile {
    pub(super) fn new(header: SegmentHeader, path: PathBuf, file: Arc<dyn File>) -> SegmentFile {
        SegmentFile { number: header.number, stamp: header.stamp(), path, file, failed: Mutex::new(None) }
    }

    pub(super) fn sync(&self) -> Result<()> {
        let mut failed = self.failed.lock();
        if let Some(cause) = &*failed
            && !canary::is_set(Canary::PoisonForgotten)
        {
            return Err(Error::Poisoned(cause.clone()));
        }
        self.file.sync_data().map_err(|e| {
            let cause = Arc::new(Error::io("sync", &self.path, e));
            *failed = Some(cause.clone());
            Error::Poisoned(cause)
        })
    }
}

/// Written bytes of one segment, to be synced without the writer's lock.
#[derive(Debug)]
pub(crate) struct SyncHandle {
    pub(super) segment: Arc<SegmentFile>,
    /// The bytes before this offset are with the operating system.
    pub(super) written: u64,
}

/// What became of a [`SyncHandle`]; tell the writer.
#[derive(Debug)]
#[must_use = "the writer must learn of the outcome: WalWriter::synced"]
pub(crate) struct SyncOutcome {
    pub(super) segment: u64,
    pub(super) written: u64,
    pub(super) result: Result<()>,
}

impl SyncOutcome {
    /// Whether it was synced.
    pub(crate) fn is_ok(&self) -> bool {
        self.result.is_ok()
    }
}

impl SyncHandle {
    /// Syncs; takes as long as the disk does.
    pub(crate) fn sync(self) -> SyncOutcome {
        let result = self.segment.sync();
        SyncOutcome { segment: self.segment.number, written: self.written, result }
    }
}
