//! Flush and merge, one piece at a time: what the background does, and what `flush` and `compact` do on demand.
//!
//! ```text
//!   flush_step: sealed memtables --compaction::flush--> L0 run --install--> memtables and log released
//!   merge_step: picker --Plan--> compaction::merge --install--> input tables removed
//! ```
//!
//! MT1. Memtables and their log are released only after the manifest names the tables that replace them.
//! MT2. A failed step leaves the version as it was.
//! MT3. A step holds its turn until it has ended, and does nothing in a closed database (CL1), nor after a panic of a thread
//!      or of another step (BG2).
//! MT4. A merge that policy wants waits for room if it has found none, for longer and longer (RO1 of compaction/room.rs, PA1), and
//!      keeps no other from being done.
//! MT5. Tables that the manifest may name or not, since its append failed, are removed as soon as a new manifest can be written, whatever
//!      merges are put off: they may be what fills the disk.
//! MT6. However little processes write before they are closed or killed, the log does not come to have ever more segments, all of which
//!      each opening reads: closing flushes if there are many, and so does, soon after opening, who finds many.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::core::Core;
use super::stats::add;
use crate::compaction::execute::{self, Built, Context};
use crate::compaction::picker::{self, PickInput};
use crate::compaction::room::Lack;
use crate::manifest::edit::VersionEdit;
use crate::manifest::file_name::table_path;
use crate::manifest::version::{Level, Version};
use crate::txn::commit::Sealed;
use crate::types::canary::{self, Canary};
use crate::types::{Error, FileId, Result};

/// Merges run at about this speed (measured: 150 to 220 ns for a record of 174 bytes).
pub(crate) const MERGE_BYTES_PER_SECOND: u64 = 800 << 20;
/// A log of more segments than these, beside the one in use, is flushed, however little is in it (MT6).
const SEGMENTS_MAX: u64 = 32;
/// What merging costs less while nobody writes.
const IDLE_DISCOUNT: u64 = 4;

/// How a step of merging ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeStep {
    /// Something was done.
    Done,
    /// There was nothing to do.
    Nothing,
    /// What policy wants waits for room (MT4).
    PutOff,
}

/// How long a merge that reads so many bytes takes, in nanoseconds.
fn merge_ns(bytes: u64) -> u128 {
    u128::from(bytes) * 1_000_000_000 / u128::from(MERGE_BYTES_PER_SECOND)
}

impl MergeStep {
    fn done(is_done: bool) -> Self {
        if is_done { MergeStep::Done } else { MergeStep::Nothing }
    }
}

impl Core {
    /// Refuses what changes tables when closed, and once a thread has panicked (MT3).
    fn check_able(&self) -> Result<()> {
        self.check_open()?;
        self.signal.check_alive()
    }

    /// Flushes all sealed memtables, and the one in use if it is full, into one run; false if there are none.
    pub(crate) fn flush_step(&self) -> Result<bool> {
        let turn = self.flush_turn.lock();
        self.check_able()?;
        self.in_this_thread(|| {
            let flushed = self.pipeline.seal_if_full().and_then(|()| self.flush_in_turn(&turn));
            self.note_flush(&turn, &flushed);
            flushed
        })
    }

    /// Flushes all sealed memtables into one run, or, where the disk has no space for that, the oldest alone: what that frees of the log may
    /// be the space for the next one.
    fn flush_in_turn(&self, _turn: &MutexGuard<'_, ()>) -> Result<bool> {
        let sealed = self.pipeline.sealed();
        match self.flush_together(&sealed) {
            Err(Error::NoSpace { .. }) if sealed.len() > 1 => self.flush_together(&sealed[..1]),
            flushed => flushed,
        }
    }

    /// Flushes the oldest sealed memtables, `sealed`, into one run.
    fn flush_together(&self, sealed: &[Sealed]) -> Result<bool> {
        let Some(newest) = sealed.last() else { return Ok(false) };
        self.heal_manifest()?;
        let version = self.version();
        let memtables: Vec<_> = sealed.iter().rev().map(|s| s.memtable.clone()).collect();
        let fences = picker::fences(&version, self.limits().partition_bytes);
        let bottommost = version.runs().is_empty();
        let never = AtomicBool::new(false);
        let new_file = || self.new_file();
        let context = self.compaction_context(&new_file, &never);
        let horizons = self.published.horizons();
        let run = self.new_run();
        let built = execute::flush(&context, &memtables, horizons, &fences, bottommost, Level::L0, run);
        let Some(built) = built? else { return Ok(false) };
        let edit = VersionEdit {
            wal_from: Some(newest.wal_from),
            flushed_seq: Some(newest.last_seq),
            counts: Some(newest.counts.clone()),
            added: built.added,
            ..VersionEdit::default()
        };
        if canary::is_set(Canary::WalReleasedEarly) {
            self.pipeline.release(sealed.len());
            self.install(edit, built.opened, &memtables)?;
        } else {
            self.install(edit, built.opened, &memtables)?;
            self.pipeline.release(sealed.len());
        }
        add(&self.counters.flushes, 1);
        add(&self.counters.flush_bytes_written, built.stats.bytes_written);
        self.signal.wake();
        Ok(true)
    }

    /// Does the merge that policy wants most; false if it wants none, or that one waits for room.
    pub(crate) fn merge_step(&self, idle: bool) -> Result<bool> {
        self.try_merge(idle).map(|step| step == MergeStep::Done)
    }

    /// Does the merge that policy wants most, if there is one and it need not wait.
    pub(crate) fn try_merge(&self, idle: bool) -> Result<MergeStep> {
        let _turn = self.merge_turn.lock();
        self.check_able()?;
        // MT5
        if !self.disowned.lock().is_empty() {
            self.heal_manifest().inspect_err(|error| self.count_failed_merge(error))?;
        }
        let version = self.version();
        let lost_ns = self.read_cost.lost_ns();
        if self.readers_want_one_run(&version, lost_ns, idle) {
            // One run and a memtable: readers have paid for merging the two.
            self.read_cost.reset();
            self.pipeline.seal()?;
            return self.flush_step().map(MergeStep::done);
        }
        let now = self.env.clock.monotonic();
        let mut input = PickInput {
            limits: self.limits(),
            idle,
            wasted_seek_ns: lost_ns,
            merge_bytes_per_second: MERGE_BYTES_PER_SECOND,
            unreadable: self.unreadable.lock().now(now),
            put_off: self.put_off.lock().now(now),
            oldest_horizon: self.published.oldest_horizon(),
        };
        let mut is_put_off = false;
        let plan = loop {
            let Some(plan) = picker::pick(&version, &input) else {
                return Ok(if is_put_off { MergeStep::PutOff } else { MergeStep::Nothing });
            };
            // MT4
            if !self.lacks_room(&version, &plan, &input.put_off, now) {
                break plan;
            }
            is_put_off = true;
            input.unreadable.extend(plan.files());
        };
        let done = self.merge(plan)?;
        if self.version().runs().len() <= 1 {
            self.read_cost.reset();
        }
        Ok(MergeStep::done(done))
    }

    /// Whether a merge that is put off is still without the room that it did not find. A move needs none.
    fn lacks_room(
        &self,
        version: &Version,
        plan: &picker::Plan,
        put_off: &BTreeSet<FileId>,
        now: Duration,
    ) -> bool {
        let files = plan.files();
        if plan.kind == picker::PlanKind::TrivialMove || put_off.is_disjoint(&files) {
            return false;
        }
        let read = version.tables().filter(|(_, table)| files.contains(&table.file));
        let bytes = read.map(|(_, table)| table.meta.file_bytes).sum();
        self.free_bytes().is_some_and(|free| !self.merge_room.lock().may_suffice(&files, bytes, free, now))
    }

    /// Whether the time that readers lost to the memtable has paid for flushing it and merging it with the tables. With
    /// an idle core the price is a quarter.
    fn readers_want_one_run(&self, version: &Version, lost_ns: u64, idle: bool) -> bool {
        let view = self.view.get();
        if !idle || version.runs().len() != 1 || view.active.is_empty() || !view.immutables.is_empty() {
            return false;
        }
        let bytes = version.runs()[0].bytes() + 2 * view.active.bytes_used() as u64;
        u128::from(lost_ns) >= merge_ns(bytes) / u128::from(IDLE_DISCOUNT)
    }

    /// Notes what is free after a merge that has found no space, and left nothing behind (RO1); that nothing is known after others.
    fn note_room(&self, plan: &picker::Plan, error: Option<&Error>) {
        let is_lack = matches!(error, Some(Error::NoSpace { .. }));
        let free = if is_lack { self.free_bytes() } else { None };
        let now = self.env.clock.monotonic();
        self.merge_room.lock().note(&plan.files(), free.map(|free| Lack { free, at: now }));
    }

    /// Executes a plan; false if it was cancelled because the database closes.
    fn merge(&self, plan: picker::Plan) -> Result<bool> {
        self.in_this_thread(|| self.execute(&plan)).inspect_err(|error| self.note_failed_merge(&plan, error))
    }

    fn execute(&self, plan: &picker::Plan) -> Result<bool> {
        self.heal_manifest()?;
        let version = self.version();
        let new_file = || self.new_file();
        let context = self.compaction_context(&new_file, self.signal.stop_flag());
        let built = execute::merge(&context, plan, &version, self.published.horizons(), || self.new_run());
        // Now, since of what fails later the output is still there, until the manifest has been healed.
        if plan.kind == picker::PlanKind::Merge {
            self.note_room(plan, built.as_ref().err());
        }
        let Some(Built { added, removed, opened, stats }) = built? else { return Ok(false) };
        if canary::is_set(Canary::TableRemovedEarly) {
            for file in removed.iter().filter(|file| added.iter().all(|a| a.file != **file)) {
                let _ = self.env.fs.remove_file(&table_path(&self.dir, *file));
            }
        }
        self.install(VersionEdit { added, removed, ..VersionEdit::default() }, opened, &[])?;
        add(&self.counters.merges, 1);
        add(&self.counters.moves, u64::from(plan.kind == picker::PlanKind::TrivialMove));
        add(&self.counters.merge_bytes_read, stats.bytes_read);
        add(&self.counters.merge_bytes_written, stats.bytes_written);
        Ok(true)
    }

    /// Flushes all memtables that there are, not what others write meanwhile. If the flush thread is at it, this waits.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.check_able()?;
        self.pipeline.seal()?;
        self.flush_sealed(|| self.flush_step())
    }

    /// Takes steps until what is sealed now has been flushed: what others seal meanwhile may be without end.
    fn flush_sealed(&self, mut step: impl FnMut() -> Result<bool>) -> Result<()> {
        let Some(newest) = self.pipeline.newest_sealed() else { return Ok(()) };
        while self.pipeline.has_sealed(newest) && step()? {}
        Ok(())
    }

    /// Flushes all memtables if the next opening would have to replay too much, or too many segments. For closing, which holds the
    /// turn.
    pub(crate) fn shorten_replay(&self, turn: &MutexGuard<'_, ()>) -> Result<()> {
        self.signal.check_alive()?;
        let bytes: usize = self.view.get().memtables().map(|m| m.bytes_used()).sum();
        if bytes as u64 > self.options.replay_bytes() || self.has_many_segments()? {
            self.pipeline.seal()?;
            while self.flush_in_turn(turn)? {}
        }
        Ok(())
    }

    /// Has what was replayed flushed soon if it came from many segments. For opening, before anything is written (MT6).
    pub(crate) fn seal_long_log(&self) -> Result<()> {
        if self.has_many_segments()? { self.pipeline.seal() } else { Ok(()) }
    }

    /// Whether the log has many segments that the next opening would read. Those that are obsolete and cannot be removed do not count.
    fn has_many_segments(&self) -> Result<bool> {
        let current = self.pipeline.current_segment()?;
        let first = self.manifest.lock().state().log_extent().from;
        Ok(current.saturating_sub(first) > SEGMENTS_MAX)
    }

    /// Merges everything into one run without garbage, and trims the log.
    pub(crate) fn compact_all(&self) -> Result<()> {
        self.flush_all()?;
        let _turn = self.merge_turn.lock();
        let mut progress = picker::ManualProgress::default();
        loop {
            self.check_able()?;
            let version = self.version();
            let Some(plan) = picker::pick_manual(&version, &self.limits(), &mut progress) else { break };
            if !self.merge(plan)? {
                return Err(Error::Closed);
            }
        }
        self.read_cost.reset();
        self.check_open()?;
        self.wal_pool.trim()
    }

    fn compaction_context<'a>(
        &'a self,
        new_file: &'a dyn Fn() -> FileId,
        cancel: &'a AtomicBool,
    ) -> Context<'a> {
        Context {
            env: &self.env,
            dir: &self.dir,
            cache: &self.cache,
            options: self.options.table_options(),
            table_bytes: self.limits().table_bytes,
            new_file,
            cancel,
        }
    }

    /// After a failed append to the manifest: starts a new one, unless that has happened, and removes the tables that only
    /// the old one may have named.
    fn heal_manifest(&self) -> Result<()> {
        let mut manifest = self.manifest.lock();
        manifest.heal(|| self.new_file())?;
        for file in self.disowned.lock().drain(..) {
            // Garbage: if it cannot be removed now, the next open does it.
            let _ = self.env.fs.remove_file(&table_path(&self.dir, file));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
