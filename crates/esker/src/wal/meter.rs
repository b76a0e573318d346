//! What the log costs: bytes, and how long its syncs take. And whether it gets the files that it needs.
//!
//! ```text
//!   WalWriter --bytes--> Meter <--times-- syncs of any thread
//!   WalPool   --files made, or not--^
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_env::Clock;

use crate::types::Result;
use crate::types::latency::Recorder;
use crate::types::outcomes::Outcomes;

/// The figures of one log.
#[derive(Debug)]
pub(crate) struct Meter {
    clock: Arc<dyn Clock>,
    /// Each sync.
    pub(crate) syncs: Recorder,
    /// How making files for segments has ended.
    pub(crate) files: Outcomes,
    /// Relaxed, as the next one: they order nothing.
    written: AtomicU64,
    live: AtomicU64,
}

impl Meter {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Meter> {
        Arc::new(Meter {
            clock,
            syncs: Recorder::default(),
            files: Outcomes::default(),
            written: AtomicU64::new(0),
            live: AtomicU64::new(0),
        })
    }

    /// Measures a sync.
    pub(super) fn sync<T>(&self, sync: impl FnOnce() -> T) -> T {
        let start = self.clock.monotonic();
        let synced = sync();
        self.syncs.record(self.clock.monotonic().saturating_sub(start), 1);
        synced
    }

    /// Files for segments were made, or could not be.
    pub(super) fn note_files<T>(&self, made: &Result<T>) {
        self.files.note(made, self.clock.monotonic());
    }

    /// So many bytes more were written.
    pub(super) fn add_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes are needed now.
    pub(super) fn set_live(&self, bytes: u64) {
        self.live.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of records and headers written since the log was opened.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Bytes of the segments that the next opening would read; of earlier processes' segments the lengths of their files.
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }
}
