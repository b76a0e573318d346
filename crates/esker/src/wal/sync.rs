//! Syncs a segment, possibly from two threads: the committing thread and the thread that syncs `Buffered`
//! commits.
//!
//! ```text
//!   WalWriter::sync_handle (locked) --> SyncHandle::sync (unlocked) --> WalWriter::synced (locked)
//! ```
//!
//! sync.1. Only one sync of a segment runs at a time. The operating system reports a failed writeback once
//!     per open file. With two concurrent syncs, one could take the report and the other acknowledge lost
//!     records.
//! sync.2. After a failed sync all later ones fail without calling the operating system (wal.6). A sync that
//!     panicked counts as failed.
//! sync.3. Data that records point to is synced together with them, before they are acknowledged. A failure
//!     of that sync is a failure of the log.

use std::path::PathBuf;
use std::sync::Arc;

use esker_env::File;
use parking_lot::Mutex;

use super::format::SegmentHeader;
use super::meter::Meter;
use crate::types::canary::{self, Canary};
use crate::types::parts::{Part, timed};
use crate::types::{Error, Result};

/// A sync of something other than the log.
pub(crate) type SyncWork = Box<dyn FnOnce() -> Result<()> + Send>;
type Begin = dyn Fn() -> Option<SyncWork> + Send + Sync;

/// What is synced together with the log (sync.3).
#[derive(Clone, Default)]
pub(crate) struct SyncBeside {
    /// Returns the work of one sync, if there is any.
    begin: Option<Arc<Begin>>,
    threads: bool,
}

impl SyncBeside {
    /// Returns a hook that calls `begin` for each sync. Without `threads` its work runs before the log's
    /// sync.
    pub(crate) fn new(begin: impl Fn() -> Option<SyncWork> + Send + Sync + 'static, threads: bool) -> Self {
        SyncBeside { begin: Some(Arc::new(begin)), threads }
    }

    /// Syncs the log and the other data.
    fn sync(&self, sync_log: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(work) = self.begin.as_ref().and_then(|begin| begin()) else { return sync_log() };
        if !self.threads {
            return work().and_then(|()| sync_log());
        }
        std::thread::scope(|scope| {
            let beside = scope.spawn(work);
            let synced = sync_log();
            match beside.join() {
                Ok(done) => done.and(synced),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl std::fmt::Debug for SyncBeside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SyncBeside({})", self.begin.is_some())
    }
}

/// The file of the active segment.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) number: u64,
    /// Initial input of its records' checksums.
    pub(super) stamp: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    meter: Arc<Meter>,
    beside: SyncBeside,
    /// Outcome of the last sync; also the lock of sync.1.
    last_sync: Mutex<LastSync>,
}

#[derive(Debug)]
enum LastSync {
    Well,
    /// Running, or ended by a panic. A thread that holds the lock sees only the latter.
    Begun,
    Failed(Arc<Error>),
}

impl SegmentFile {
    pub(super) fn new(
        header: SegmentHeader,
        path: PathBuf,
        file: Arc<dyn File>,
        meter: Arc<Meter>,
    ) -> SegmentFile {
        SegmentFile {
            number: header.number,
            stamp: header.stamp(),
            path,
            file,
            meter,
            beside: SyncBeside::default(),
            last_sync: Mutex::new(LastSync::Well),
        }
    }

    /// Adds data that is synced together with the segment.
    pub(super) fn together_with(self, beside: SyncBeside) -> SegmentFile {
        SegmentFile { beside, ..self }
    }

    pub(super) fn sync(&self) -> Result<()> {
        timed(Part::LogSync, || self.sync_once())
    }

    fn sync_once(&self) -> Result<()> {
        let mut last_sync = self.last_sync.lock();
        let failed = match &*last_sync {
            LastSync::Well => None,
            LastSync::Begun => Some(Arc::new(panicked())),
            LastSync::Failed(cause) => Some(cause.clone()),
        };
        if let Some(cause) = failed.filter(|_| !canary::is_set(Canary::PoisonForgotten)) {
            return Err(Error::Poisoned(cause));
        }
        *last_sync = LastSync::Begun;
        let sync_log = || self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e));
        // sync.3
        let synced = self.beside.sync(|| self.meter.sync(sync_log)).map_err(|error| match error {
            Error::Poisoned(cause) => cause,
            error => Arc::new(error),
        });
        *last_sync =
            synced.as_ref().map_or_else(|cause| LastSync::Failed(cause.clone()), |()| LastSync::Well);
        synced.map_err(Error::Poisoned)
    }
}

/// Returns the error with which the log refuses writes after a panic.
pub(super) fn panicked() -> Error {
    Error::Panicked("a thread panicked while it wrote or synced the log; open the database again".into())
}

/// Written bytes of one segment, to be synced without the writer's lock.
#[derive(Debug)]
pub(crate) struct SyncHandle {
    pub(super) segment: Arc<SegmentFile>,
    /// The operating system has the bytes before this offset.
    pub(super) written: u64,
}

/// Outcome of a [`SyncHandle`], to be passed to the writer.
#[derive(Debug)]
#[must_use = "the writer must learn of the outcome: WalWriter::synced"]
pub(crate) struct SyncOutcome {
    pub(super) segment: u64,
    pub(super) written: u64,
    pub(super) result: Result<()>,
}

impl SyncOutcome {
    /// Returns whether the sync succeeded.
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    /// Its first sync waits and fails; a failed writeback is reported once, so later syncs succeed.
    #[derive(Debug)]
    struct ReportsOnce {
        syncs: AtomicU32,
        goes_on: Arc<AtomicBool>,
    }

    impl File for ReportsOnce {
        #[expect(clippy::disallowed_methods, reason = "waits for another thread of the test")]
        fn sync_data(&self) -> io::Result<()> {
            if self.syncs.fetch_add(1, Ordering::SeqCst) > 0 {
                return Ok(());
            }
            while !self.goes_on.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(io::ErrorKind::Other.into())
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn start_writeback(&self, _: u64, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn len(&self) -> io::Result<u64> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn set_len(&self, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn drop_cache(&self, _: u64, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn is_direct(&self) -> bool {
            false
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "real threads, and real time to see that one waits")]
    fn sync_1_no_sync_acknowledges_what_a_failing_one_covers() {
        let goes_on = Arc::new(AtomicBool::new(false));
        let file = Arc::new(ReportsOnce { syncs: AtomicU32::new(0), goes_on: goes_on.clone() });
        let header = SegmentHeader { number: 1, ..SegmentHeader::default() };
        let meter = Meter::new(Arc::new(esker_env::ManualClock::new()));
        let segment = SegmentFile::new(header, PathBuf::from("1.wal"), file.clone(), meter);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| segment.sync());
            while file.syncs.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let second = scope.spawn(|| segment.sync());
            for _ in (0..100).take_while(|_| !second.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            goes_on.store(true, Ordering::SeqCst);
            for outcome in [first.join().unwrap(), second.join().unwrap()] {
                assert!(matches!(outcome, Err(Error::Poisoned(_))), "sync.1: {outcome:?}");
            }
        });
        assert_eq!(file.syncs.load(Ordering::SeqCst), 1, "sync.2");
    }
}
