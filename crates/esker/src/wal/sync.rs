//! Making a segment durable, perhaps from two threads: the committer's and the one that syncs `Buffered` commits.
//!
//! ```text
//!   WalWriter::sync_handle (locked) --> SyncHandle::sync (unlocked) --> WalWriter::synced (locked)
//! ```
//!
//! sync.1. Syncs of one segment take turns. The operating system reports a failed write-back once per open file: if two
//!     ran at once, one could take the report and the other acknowledge lost records.
//! sync.2. After a failed sync every later one fails, without asking the system again (wal.6). One that a panic ended may have failed.
//! sync.3. What the records point to is durable before they are known to be: it is synced with them, and a failure of that is one of the log.

use std::path::PathBuf;
use std::sync::Arc;

use esker_env::File;
use parking_lot::Mutex;

use super::format::SegmentHeader;
use super::meter::Meter;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result};

/// Syncs something else.
pub(crate) type SyncWork = Box<dyn FnOnce() -> Result<()> + Send>;
type Begin = dyn Fn() -> Option<SyncWork> + Send + Sync;

/// What is to be synced whenever the log is, at the same time (sync.3).
#[derive(Clone, Default)]
pub(crate) struct SyncBeside {
    /// What there is to do, if there is anything.
    begin: Option<Arc<Begin>>,
    threads: bool,
}

impl SyncBeside {
    /// This; without threads it is synced first.
    pub(crate) fn new(begin: impl Fn() -> Option<SyncWork> + Send + Sync + 'static, threads: bool) -> Self {
        SyncBeside { begin: Some(Arc::new(begin)), threads }
    }

    /// Syncs both.
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

/// The file of a segment that is being written.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) number: u64,
    /// What the checksums of its records begin with.
    pub(super) stamp: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    meter: Arc<Meter>,
    beside: SyncBeside,
    /// How the last sync ended; also the lock of sync.1.
    last_sync: Mutex<LastSync>,
}

#[derive(Debug)]
enum LastSync {
    Well,
    /// It goes on, or a panic ended it: whoever has the lock knows which.
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

    /// The same, synced together with something else.
    pub(super) fn together_with(self, beside: SyncBeside) -> SegmentFile {
        SegmentFile { beside, ..self }
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.sync_by(|| self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e)))
    }

    /// The same, by a call that writes, too.
    pub(super) fn sync_by(&self, sync_log: impl FnOnce() -> Result<()>) -> Result<()> {
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

/// Why the log is written no more after a panic.
pub(super) fn panicked() -> Error {
    Error::Invalid("a thread panicked while it wrote or synced the log; open the database again".into())
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    /// Its first sync waits, and fails; a failed write-back is reported once, so later ones succeed.
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
    fn sync_1_nobody_acknowledges_what_another_sync_is_about_to_fail_over() {
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
