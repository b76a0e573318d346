//! Background work as steps, and the threads that loop on them.
//!
//! ```text
//!   flush thread:      immutable memtables -> L0 runs
//!   log thread:        prepares log segments before they are needed, also during a flush
//!   compaction thread: the compaction that policy wants most; further threads: what may run beside it
//!   sweep thread:      removes expired entries
//!   sync thread:       syncs commits that did not wait for the disk
//!   no threads (simulation, tests): `Core::step` does one piece of any of these
//! ```
//!
//! - A failed step changes nothing that readers see. It is retried later, after growing pauses.
//!
//! engine_background.2. Writers that wait for background work get its error. After a panic of a thread, or of
//!     a flush or compaction in a caller's thread, all writes, flushes and compactions fail: the work would
//!     not be done, and the state that the panic left is unknown. The manifest may hold an edit that the view
//!     lacks.
//! - Every failure shows in the statistics.
//! - The timed sync waits for no flush, no compaction and no long commit (see `txn/timed_sync.rs`).
//! - An opening starts the flush thread only. The flush thread starts the others after its first wait: at the
//!   first need, or after a tick. So a program that opens the database for a single read does not wait for
//!   them. If the system refuses a thread, the failure shows in the statistics, and the flush thread tries
//!   again before its next step. Until then a writer makes its own log segments, nothing is compacted, and
//!   commits that did not wait for the disk are synced by others or by closing.
//!
//! engine_background.6. The end of each flush is recorded before the next flush can begin. So the last record
//!     is that of the last flush, and no failure remains when nothing is left to flush. Flushes at closing
//!     are not recorded: nothing waits for them.
//! engine_background.7. After a flush that found no space, a writer may see enough free space, and clearly
//!     more than then. It asks for another attempt and waits for its end. Without such space it gets the
//!     error at once: a full disk or quota is not filled to the last byte for each commit. Attempts have a
//!     minimum distance, however many writers ask.
//! - While due work waits for space, the compaction thread pauses as well, at most one second. Commits do not
//!   query the free space.
//!
//! engine_background.9. The database is idle once nothing has been committed for a while and no thread waits
//!     for a commit, neither in a long commit nor for space in a memtable. Waking the background threads
//!     makes no difference.

use std::sync::Arc;
use std::time::Duration;

use esker_env::ThreadHandle;
use parking_lot::Mutex;

use crate::engine::base::signal::TICK;
use crate::engine::core::Core;
use crate::engine::upkeep::compact::{CompactionStep, Scope};
use crate::types::{Error, Result, SeqNo};

/// How often the sweep thread looks for expired entries.
const SWEEP_EVERY: Duration = Duration::from_millis(250);
/// The sweep thread pauses for this many times the duration of its last sweep.
const REST_FACTOR: u32 = 10;
/// How often the log thread checks whether the log keeps more files than it needs.
const LOG_TICK: Duration = Duration::from_millis(250);
/// Time without commits after which the database is idle (engine_background.9).
const IDLE_AFTER: Duration = Duration::from_millis(100);
/// Delay after the opening before unread tables are loaded.
const LOAD_AFTER: Duration = Duration::from_millis(20);
/// The longest pause after repeated failures.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The longest pause while a compaction waits for space.
const PUT_OFF_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Body of a thread. It returns when the database closes.
type Loop = fn(&Core);

/// The threads of a database. The flush thread, which is the first, adds the others.
pub(super) type Threads = Arc<Mutex<Vec<ThreadHandle>>>;

/// One piece of background work, for simulators that run without threads.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundStep {
    /// Writes an immutable memtable to tables.
    Flush,
    /// Runs the compaction that policy wants most.
    Compact {
        /// Whether to act as in an idle database.
        idle: bool,
    },
    /// Prepares a file for the log ahead of need.
    PrepareLog,
    /// Syncs commits that did not wait for the disk.
    SyncLog,
    /// Removes expired entries.
    Sweep,
}

impl Core {
    /// Does one piece of background work. Returns false if there was none. A sync always returns true.
    pub(crate) fn step(&self, step: BackgroundStep) -> Result<bool> {
        self.check_writable()?;
        let done = match step {
            BackgroundStep::Flush => self.flush_step(),
            BackgroundStep::Compact { idle } => self.compaction_step(idle),
            BackgroundStep::PrepareLog => Ok(self.retain()? | self.wal_pool.prepare_step()?),
            BackgroundStep::Sweep => self.sweep().map(|keys| keys > 0),
            BackgroundStep::SyncLog => self.pipeline.sync_unsynced().map(|()| true),
        };
        self.report_health();
        done
    }

    /// Body of the flush thread. It calls `start_others` before each step.
    fn flush_loop(&self, mut start_others: impl FnMut()) {
        self.env.threads.give_way();
        let mut seen = 0;
        let mut pause = TICK;
        while self.signal.wait_for_flush_work(&mut seen) {
            start_others();
            let asked = self.signal.asked();
            let is_failed = self.flush_step().is_err();
            self.signal.answer(asked);
            self.account_memtables();
            self.view.reclaim();
            // The pauses grow, because each commit wakes this thread while there is
            // anything to flush.
            pause = if is_failed { (pause * 2).min(PAUSE_MAX) } else { TICK };
            if is_failed {
                self.signal.pause_flushing(pause);
            }
        }
    }

    fn log_loop(&self) {
        let mut seen = 0;
        while self.signal.wait_for_log_work(&mut seen, LOG_TICK) {
            // If no segment is ready, the writer makes one.
            self.note_error(self.wal_pool.prepare_step());
            self.note_error(self.retain());
            self.report_health();
            // Frees replaced views that readers had kept.
            self.view.free_retired();
        }
    }

    fn sync_loop(&self) {
        while self.signal.pause(self.options.sync_every()) {
            // A failed sync is not retried: it has stopped all writes.
            self.note_error(self.pipeline.sync_unsynced());
        }
    }

    pub(in crate::engine) fn compaction_loop(&self) {
        self.env.threads.give_way();
        // A program that opens the database for a single read should not wait for this.
        if self.signal.pause(LOAD_AFTER) {
            self.account_page_cache();
            self.load_tables();
        }
        let mut seen = 0;
        let mut pause = TICK;
        let (mut last_seq, mut quiet_since) = (SeqNo::ZERO, self.env.clock.monotonic());
        while self.signal.wait_for_work(&mut seen) {
            self.report_health();
            let (seq, now) = (self.published.visible(), self.env.clock.monotonic());
            if seq != last_seq || self.is_writing() {
                quiet_since = now;
            }
            last_seq = seq;
            let idle_for = now.saturating_sub(quiet_since);
            self.idle.note_idle(idle_for);
            let idle = idle_for >= IDLE_AFTER;
            let scope = || {
                // A new writer need not wait for all the work that is only due when idle.
                let is_idle = idle && self.published.visible() == last_seq && !self.is_writing();
                if is_idle { Scope::Idle } else { Scope::Due }
            };
            if !self.compact_what_is_due(scope, &mut pause) {
                return;
            }
        }
    }

    /// Loop of the threads beside the compaction thread. They look for work only while a plan runs.
    fn compaction_beside_loop(&self) {
        self.env.threads.give_way();
        let mut seen = 0;
        let mut pause = TICK;
        while self.signal.wait_for_work(&mut seen) {
            let is_alone = self.turns.compact.count() == 0;
            if !is_alone && !self.compact_what_is_due(|| Scope::Beside, &mut pause) {
                return;
            }
        }
    }

    /// Compacts until nothing is due. After a failure it pauses, for longer each time. Returns false when the
    /// loop has to end.
    fn compact_what_is_due(&self, scope: impl Fn() -> Scope, pause: &mut Duration) -> bool {
        let ended = loop {
            match self.try_compact(scope(), &**self) {
                Ok(CompactionStep::Done) if !self.signal.stopping() => *pause = TICK,
                ended => break ended,
            }
        };
        let pause_max = match ended {
            Ok(CompactionStep::Done | CompactionStep::Nothing) => {
                *pause = TICK;
                return true;
            }
            Ok(CompactionStep::PutOff) => PUT_OFF_PAUSE_MAX,
            Err(_) => PAUSE_MAX,
        };
        *pause = (*pause * 2).min(PAUSE_MAX);
        self.signal.pause((*pause).min(pause_max))
    }

    fn sweep_loop(&self) {
        let mut rest = SWEEP_EVERY;
        while self.signal.pause(rest) {
            let start = self.env.clock.monotonic();
            if let Err(error) = self.sweep() {
                self.counters.note_error(&error);
            }
            let took = self.env.clock.monotonic().saturating_sub(start);
            rest = SWEEP_EVERY.max(took * REST_FACTOR);
        }
    }

    /// Starts the flush thread, which starts the others.
    pub(super) fn start_threads(self: &Arc<Self>) -> Result<Threads> {
        if !self.pipeline.sealed().is_empty() {
            // Like earlier processes, this one may end within a tick.
            self.signal.wake();
        }
        let threads = Threads::default();
        let (core, all) = (self.clone(), threads.clone());
        let work = move || core.run("esker-flush", |core| core.flush_loop(core.starts_others(&all)));
        let flush = self.env.threads.spawn("esker-flush", Box::new(work));
        let flush = flush.map_err(|e| Error::io("start a thread for", &self.dir, e))?;
        // The flush thread may already have added others. The order does not matter.
        threads.lock().push(flush);
        Ok(threads)
    }

    /// Returns a function that starts those of the other threads that do not run yet.
    fn starts_others(self: &Arc<Self>, threads: &Threads) -> impl FnMut() + use<> {
        let loops: [(_, Loop); 4] = [
            // The first, because no other thread does its work.
            ("esker-sync", Core::sync_loop),
            ("esker-log", Core::log_loop),
            ("esker-compact", Core::compaction_loop),
            ("esker-sweep", Core::sweep_loop),
        ];
        let beside: (_, Loop) = ("esker-compact", Core::compaction_beside_loop);
        let beside = std::iter::repeat_n(beside, self.options.compactions() - 1);
        let (core, threads) = (self.clone(), threads.clone());
        let mut missing = loops.into_iter().chain(beside).peekable();
        move || {
            while let Some(&(name, body)) = missing.peek() {
                let of_thread = core.clone();
                let work = move || of_thread.run(name, |core| body(core));
                match core.env.threads.spawn(name, Box::new(work)) {
                    Ok(thread) => threads.lock().push(thread),
                    Err(e) => {
                        core.counters.note_error(&Error::io("start a thread for", &core.dir, e));
                        return;
                    }
                }
                missing.next();
            }
        }
    }

    /// Runs a loop. A panic is reported to waiting threads (engine_background.2), then continues to the
    /// thread that joins.
    fn run(self: &Arc<Self>, name: &str, body: impl FnOnce(&Arc<Core>)) {
        self.ending_with_panic(name, || body(self));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind};

    use super::*;
    use crate::Db;
    use crate::engine::base::signal::ASKED_PAUSE;
    use std::sync::atomic::Ordering;

    /// A database without threads that has something to flush, and whose flushes fail.
    fn failing() -> (Db, FaultFs) {
        let faults = FaultFs::new(Arc::new(MemFs::new()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
        db.default_keyspace().put("a", "1").unwrap();
        db.handle.core.pipeline.seal().unwrap();
        let failure = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&[OpKind::Create], failure).on_path(".sst").forever());
        (db, faults)
    }

    /// How many ends of flushes were noted, and whether the last was a failure.
    fn noted(core: &Core) -> (u64, bool) {
        let state = core.signal.state.lock();
        (state.steps, state.failure.is_some())
    }

    #[test]
    fn engine_background_6_each_flush_of_any_thread_is_noted_once() {
        let (db, faults) = failing();
        let core = &db.handle.core;
        core.flush_step().unwrap_err();
        assert_eq!(noted(core), (1, true));
        assert!(core.signal.wait_until(|| false).is_err(), "engine_background.2");
        faults.clear();
        assert!(core.flush_step().unwrap());
        assert_eq!(noted(core), (2, false));
        core.signal.note(Err(Arc::new(Error::Closed)), None);
        assert!(!core.flush_step().unwrap(), "there is nothing to flush");
        assert_eq!(noted(core), (4, false));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a real thread, and real time to see that it waits")]
    fn a_successful_flush_of_any_thread_ends_the_pause() {
        let (db, faults) = failing();
        let core = &db.handle.core;
        core.flush_step().unwrap_err();
        let (is_pausing, is_over) = std::thread::scope(|scope| {
            let pause = scope.spawn(|| core.signal.pause_flushing(Duration::from_secs(3600)));
            // Longer than the pause that holds even if another try is asked for.
            std::thread::sleep(ASKED_PAUSE * 3);
            let is_pausing = !pause.is_finished();
            faults.clear();
            let is_flushed = core.flush_step().is_ok_and(|flushed| flushed);
            for _ in (0..60_000).take_while(|_| is_flushed && !pause.is_finished()) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let is_over = pause.is_finished();
            core.signal.stop();
            (is_pausing, is_over)
        });
        assert!(is_pausing && is_over, "{is_pausing}, {is_over}");
    }

    #[test]
    fn engine_background_2_after_a_panic_of_a_thread_no_thread_flushes_or_compacts() {
        let (fs, dir) = (Arc::new(MemFs::new()), Path::new("db"));
        let builder = Db::builder().background(false).tuning(|t| t.replay_bytes(0));
        let db = builder.env(Env::simulated(fs.clone(), 1)).open(dir).unwrap();
        db.default_keyspace().put("a", "1").unwrap();
        let core = &db.handle.core;
        core.pipeline.seal().unwrap();
        let files = || -> Vec<_> {
            let names = fs.list_dir(dir).unwrap();
            names.into_iter().map(|name| (fs.file_size(&dir.join(&name)).unwrap(), name)).collect()
        };
        let before = files();
        core.signal.die(Arc::new(Error::Closed));
        for refused in [
            db.flush(),
            db.compact(),
            core.flush_step().map(drop),
            core.try_compact(Scope::Idle, &***core).map(drop),
        ] {
            assert!(matches!(refused, Err(Error::Poisoned(_))), "engine_background.2: {refused:?}");
        }
        assert_eq!(files(), before, "engine_background.2");
        assert!(matches!(db.close(), Err(Error::Poisoned(_))));
        assert!(
            files().iter().all(|(_, name)| !name.ends_with(".sst")),
            "engine_background.2: closing flushes nothing"
        );
    }

    #[test]
    fn engine_background_6_the_flush_thread_notes_nothing_twice() {
        let (db, _faults) = failing();
        let core = &db.handle.core;
        std::thread::scope(|scope| {
            scope.spawn(|| core.flush_loop(|| ()));
            while core.counters.flush.failed.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            core.signal.stop();
        });
        assert_eq!(noted(core), (core.counters.flush.failed.load(Ordering::Relaxed), true));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a real thread, and real time to see that it waits")]
    fn engine_background_6_no_flush_begins_before_the_end_of_the_last_is_noted() {
        let (db, _faults) = failing();
        let core = &db.handle.core;
        std::thread::scope(|scope| {
            let unable_to_note = core.signal.state.lock();
            let flush = scope.spawn(|| core.flush_step());
            while core.counters.flush.failed.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            for _ in 0..20 {
                assert!(core.turns.flush.is_locked(), "engine_background.6");
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(unable_to_note);
            flush.join().unwrap().unwrap_err();
        });
        assert_eq!(noted(core), (1, true));
    }
}
