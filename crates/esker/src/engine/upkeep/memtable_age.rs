//! Memtable age limit: a memtable is flushed before a killed process would leave much of it to replay.
//!
//! ```text
//!   flush thread, each tick: active memtable --larger than `replay_bytes`, older than 1 s--> sealed, flushed
//!   flushes --mean size--> Limits::run_bytes (limits.rs)
//! ```
//!
//! - A memtable of more than `replay_bytes` is flushed one second after its first commit,
//!   whether or not writes go on. There is at most one such flush per second, and none if memtables fill up
//!   sooner.
//! - No memtable is sealed for its age while a sealed one waits, or while compaction is so far
//!   behind that writers wait. If flushes fail or compactions take long, writers can use all available
//!   memory.
//! - The picker knows the size of flushes. Small ones get one more tier, so that a slow writer
//!   does not cause rewrites of a large base.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::upkeep::Upkeep;
use crate::txn::flush_reason::{Moment, flush_reason};
use crate::types::SeqNo;

/// The mean size of flushes counts as at least a full memtable divided by this.
const RUN_PARTS_MAX: u64 = 16;

/// The age of the memtable, and the size of flushes.
#[derive(Debug, Default)]
pub(crate) struct MemtableAge {
    /// The first commit of the active memtable, and since when it is known.
    first: Mutex<Option<(SeqNo, Duration)>>,
    /// The last commit that a tick has seen. Relaxed: it orders nothing.
    seen: AtomicU64,
    /// A mean of the last flushes, in bytes; zero before the first. Relaxed: it orders nothing.
    flush_bytes: AtomicU64,
}

impl MemtableAge {
    /// Returns the time since a memtable with this first commit was first seen.
    fn of(&self, first: SeqNo, now: Duration) -> Duration {
        let mut known = self.first.lock();
        let (_, since) = known.filter(|(seq, _)| *seq == first).unwrap_or((first, now));
        *known = Some((first, since));
        now.saturating_sub(since)
    }

    /// Records the last commit. Returns whether there were others since the last call.
    pub(in crate::engine) fn saw_commits(&self, last: SeqNo) -> bool {
        self.seen.swap(last.get(), Ordering::Relaxed) != last.get()
    }

    /// Records a flush of memtables of `bytes` bytes.
    pub(in crate::engine) fn note_flush(&self, bytes: u64) {
        let mean = match self.flush_bytes.load(Ordering::Relaxed) {
            0 => bytes,
            mean => mean - mean / 4 + bytes / 4,
        };
        self.flush_bytes.store(mean, Ordering::Relaxed);
    }

    /// Returns the size of flushes for the picker, given the size of a full memtable.
    pub(in crate::engine) fn run_bytes(&self, full: u64) -> u64 {
        match self.flush_bytes.load(Ordering::Relaxed) {
            0 => full,
            mean => mean.clamp((full / RUN_PARTS_MAX).max(1), full.max(1)),
        }
    }
}

impl Upkeep {
    /// Returns whether the active memtable is flushed for its age. The caller holds the
    /// flush turn.
    pub(in crate::engine) fn is_memtable_old(&self) -> bool {
        let view = self.view.get();
        let Some(first) = view.active.min_seq() else { return false };
        let tick = Moment::Tick {
            age: self.memtable_age.of(first, self.env.clock.monotonic()),
            is_behind: !view.immutables.is_empty() || self.throttle.is_on(),
            replay_bytes: self.options.replay_bytes(),
        };
        flush_reason(self.memtable_facts(&view.active), tick).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use esker_env::{Env, FaultAction, FaultFs, FaultRule, ManualClock, MemFs, OpKind};

    use super::*;
    use crate::blob::Blobs;
    use crate::compaction::pacing::Backlog;
    use crate::{BackgroundStep, Db};

    #[test]
    fn what_is_old_and_long_is_flushed_unless_another_waits() {
        let (faults, clock) = (FaultFs::new(Arc::new(MemFs::new())), Arc::new(ManualClock::new()));
        let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(faults.clone()), 1) };
        let db = Db::builder()
            .stepped()
            .tuning(|t| t.replay_bytes(20_000))
            .blobs(Blobs::Never)
            .env(env)
            .open(Path::new("db"))
            .unwrap();
        let core = &db.handle.core;
        let put = |len| db.default_keyspace().put("key", vec![1; len]).map(drop).unwrap();
        let flush_after = |ms| {
            clock.advance(Duration::from_millis(ms));
            db.step(BackgroundStep::Flush)
        };
        put(20_000);
        assert_eq!([0, 999, 1, 5000].map(|ms| flush_after(ms).unwrap()), [false, false, true, false],);
        put(10_000);
        assert_eq!([0, 5000].map(|ms| flush_after(ms).unwrap()), [false, false], "it is short");
        put(10_000);
        core.throttle.set(Backlog { pressure: 0.1, ..Backlog::default() });
        assert!(!flush_after(0).unwrap(), "compactions are behind");
        core.throttle.set(Backlog::default());
        assert!(flush_after(0).unwrap(), "whatever made it long");
        assert!(core.limits().run_bytes < core.limits_when_idle().run_bytes);
        let failure = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&[OpKind::Create], failure).on_path(".sst").forever());
        for _ in 0..3 {
            put(20_000);
            // The first call sees the memtable, the second finds it old.
            let _ = (flush_after(0), flush_after(1000));
            assert_eq!(core.pipeline.sealed_len(), 1);
        }
    }

    #[test]
    fn the_age_of_a_memtable_is_that_of_its_first_commit() {
        let age = MemtableAge::default();
        for (first, now_ms, expected_ms) in
            [(1, 0, 0), (1, 999, 999), (1, 1000, 1000), (7, 1500, 0), (7, 2500, 1000)]
        {
            let found = age.of(SeqNo::new(first), Duration::from_millis(now_ms));
            assert_eq!(found.as_millis(), expected_ms, "{first}, {now_ms} ms");
        }
    }

    #[test]
    fn the_size_of_flushes_is_a_mean_between_a_full_memtable_and_a_part_of_it() {
        let age = MemtableAge::default();
        assert_eq!(age.run_bytes(64), 64);
        let mut after = |bytes| {
            age.note_flush(bytes);
            age.run_bytes(64)
        };
        assert_eq!([80, 80, 4, 4, 4, 4, 4].map(&mut after), [64, 64, 61, 47, 37, 29, 23]);
        assert_eq!((0..40).fold(0, |_, _| after(1)), 4);
        assert_eq!((0..40).fold(0, |_, _| after(64)), 64);
    }
}
