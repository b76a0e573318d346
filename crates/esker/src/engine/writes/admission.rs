//! Admission: a commit waits for space in memtables, and for compaction that is behind, before it enters the
//! pipeline.
//!
//! ```text
//!   CommitRequest --space in memtables?--> compaction behind?--> Pipeline (txn/commit.rs)
//! ```
//!
//! - A writer waits while too many memtables wait for their flush, or compaction is far behind. Without
//!   threads it does that work itself. A commit that only removes does not wait for a flush that finds no
//!   space (reserve.2 of engine/disk/reserve.rs).
//! - A commit without writes, such as that of a transaction that only read, does not wait.
//! - While the last allowed memtable takes writes, the rate of writes is limited to that of flushes. So the
//!   memtable is not full before a flush has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::compaction::pacing;
use crate::engine::base::event::StallCause;
use crate::engine::base::options::{Background, SEALED_MAX};
use crate::engine::base::slow_operation::Operation;
use crate::engine::base::stats::add;
use crate::engine::disk::reserve::SEALED_FOR_REMOVALS;
use crate::engine::upkeep::backoff::is_more;
use crate::engine::upkeep::compact::{CompactionStep, Scope};
use crate::engine::upkeep::pace::time_of;
use crate::engine::writes::Writes;
use crate::txn::blobs;
use crate::txn::commit::{CommitRequest, Durability};
use crate::txn::layers::Layers;
use crate::txn::write_set::WriteSet;
use crate::types::activity::COMMITS_PER_SAMPLE;
use crate::types::interleave;
use crate::types::parts::{Part, timed};
use crate::types::{Error, Result, SeqNo};

/// Whether another memtable may follow the one that takes writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memtables {
    More,
    Last,
}

impl Writes {
    /// Moves the large values of a commit to blob files.
    pub(in crate::engine) fn divert(&self, request: &mut CommitRequest) -> Result<()> {
        if let Some((set, used)) = blobs::divert(&self.blobs, &request.set)? {
            request.set = Arc::new(set);
            request.blobs.extend(&used.leases, used.bytes);
        }
        Ok(())
    }

    /// Returns whether a commit that only removes may seal another memtable (reserve.2).
    fn may_seal_for_removals(&self) -> bool {
        self.pipeline.sealed_len() <= SEALED_MAX + SEALED_FOR_REMOVALS
    }

    /// Returns whether the disk has space for the oldest immutable memtable, and clearly more than when the
    /// last flush found none (engine_background.7). The tables of a flush may take less.
    fn has_space_to_flush(&self) -> bool {
        let waiting = self.view.get().immutables.last().map_or(0, |oldest| oldest.bytes_used() as u64);
        let is_more =
            |free| self.signal.free_at_failure().is_none_or(|before| is_more(before, free, waiting));
        self.free_bytes().is_some_and(|free| free > waiting && is_more(free))
    }

    /// Commits writes with encoded keys, without checking their keyspaces. The caller has waited for its
    /// turn, or is alone.
    pub(crate) fn commit_encoded(&self, set: WriteSet, durability: Durability) -> Result<()> {
        let plain = CommitRequest::of(Arc::new(set), Layers::default(), durability);
        let request = CommitRequest { may_pass: true, ..plain };
        interleave::without_points(|| self.submit(request)).map(drop)
    }

    /// Commits. Returns the commit's number. A commit without writes returns the number of the newest commit.
    pub(crate) fn submit(&self, request: CommitRequest) -> Result<SeqNo> {
        let Some(slow) = &self.slow else { return self.submit_now(request) };
        let writes = request.set.op_count() as u64;
        slow.watch(Operation::Commit, None, || self.submit_now(request), |_| writes)
    }

    fn submit_now(&self, mut request: CommitRequest) -> Result<SeqNo> {
        self.check_ours()?;
        self.signal.check_alive()?;
        if request.is_empty() {
            return self.pipeline.commit(request);
        }
        self.check_writable()?;
        let bytes = (request.set.byte_len() + request.layers.byte_len()) as u64 + request.blobs.bytes;
        let begun = self.begin_commit(request.durability);
        let wait = || timed(Part::Wait, || self.wait_for_exclusive());
        let _passage = if request.may_pass { None } else { Some(wait()?) };
        let removes_only = request.layers.removes_only() && request.set.removes_only();
        timed(Part::Stall, || self.wait_for_upkeep(bytes, removes_only))?;
        timed(Part::BlobWrite, || self.divert(&mut request))?;
        let done = match request.layers.is_empty() {
            true => self.pipeline.commit(request),
            false => timed(Part::TableWrite, || self.adopt(&request)),
        };
        if self.wal_pool.take_wish() {
            self.signal.wake_log();
        }
        done.inspect(|_| self.end_commit(begun, bytes)).inspect_err(|_| self.report_health())
    }

    /// Makes a small commit that need not wait (txn/at_once.rs). `Err`: it has to, and nothing was changed.
    pub(in crate::engine) fn submit_at_once(
        &self,
        request: CommitRequest,
    ) -> Result<Result<SeqNo>, Box<CommitRequest>> {
        let Some(slow) = &self.slow else { return self.admit_at_once(request) };
        let writes = request.set.op_count() as u64;
        slow.watch(Operation::Commit, None, || self.admit_at_once(request), |_| writes)
    }

    fn admit_at_once(&self, request: CommitRequest) -> Result<Result<SeqNo>, Box<CommitRequest>> {
        let may_divert = self.blobs.may_take(request.set.largest_value());
        if !request.may_be_at_once() || may_divert || !self.admits_at_once() {
            return Err(Box::new(request));
        }
        let Some(_passage) = self.exclusive_turn.pass_if_free() else { return Err(Box::new(request)) };
        let (begun, bytes) = (self.begin_commit(request.durability), request.set.byte_len() as u64);
        let done = self.pipeline.commit_at_once(request)?;
        if self.wal_pool.take_wish() {
            self.signal.wake_log();
        }
        Ok(done.inspect(|_| self.end_commit(begun, bytes)).inspect_err(|_| self.report_health()))
    }

    /// Returns whether a commit would enter the pipeline without waiting or working for others.
    fn admits_at_once(&self) -> bool {
        let is_well =
            self.check_ours().is_ok() && self.signal.check_alive().is_ok() && self.check_writable().is_ok();
        let sealed = self.pipeline.sealed_len();
        if sealed > 0 {
            self.signal.wake_flush();
        }
        let has_threads = self.options.background() == Background::Threads;
        let is_limited = self.throttle.is_on() || self.options.allowances().write_rate.is_some();
        is_well && has_threads && sealed < SEALED_MAX && !is_limited
    }

    /// Commits several requests in order, as one group if possible.
    pub(crate) fn submit_group(&self, requests: Vec<CommitRequest>) -> Vec<Result<SeqNo>> {
        let Some(slow) = &self.slow else { return self.submit_group_now(requests) };
        let writes = requests.iter().map(|request| request.set.op_count() as u64).sum();
        slow.watch(Operation::Commit, None, || self.submit_group_now(requests), |_| writes)
    }

    fn submit_group_now(&self, mut requests: Vec<CommitRequest>) -> Vec<Result<SeqNo>> {
        let is_plain = |request: &CommitRequest| !request.set.is_empty() && request.layers.is_empty();
        if requests.len() < 2 || !requests.iter().all(is_plain) {
            return requests.into_iter().map(|request| self.submit(request)).collect();
        }
        let bytes = requests.iter().map(|request| request.set.byte_len() as u64 + request.blobs.bytes).sum();
        let count = requests.len();
        let passage = timed(Part::Wait, || self.wait_for_exclusive());
        let admit = || -> Result<Vec<CommitRequest>> {
            self.check_writable()?;
            passage.as_ref().map_err(Error::clone)?;
            self.signal.check_alive()?;
            let removes_only = requests.iter().all(|request| request.set.removes_only());
            timed(Part::Stall, || self.wait_for_upkeep(bytes, removes_only))?;
            requests.iter_mut().try_for_each(|request| self.divert(request))?;
            Ok(requests)
        };
        let outcomes = match admit() {
            Ok(requests) => self.pipeline.commit_group(requests),
            Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
        };
        if self.wal_pool.take_wish() {
            self.signal.wake_log();
        }
        outcomes
            .iter()
            .filter(|outcome| outcome.is_ok())
            .for_each(|_| self.end_commit(None, bytes / count as u64));
        outcomes
    }

    /// Runs the compaction that the policy wants most. Returns false if there is none, or if it has to wait
    /// for space.
    pub(crate) fn compaction_step(&self, idle: bool) -> Result<bool> {
        let scope = if idle { Scope::Idle } else { Scope::Due };
        self.try_compact(scope, self).map(|step| step == CompactionStep::Done)
    }

    /// Waits until flushes and compactions admit a commit of `bytes` bytes.
    fn wait_for_upkeep(&self, bytes: u64, removes_only: bool) -> Result<()> {
        let memtables = self.make_room(removes_only)?;
        self.slow_down(bytes, memtables);
        Ok(())
    }

    /// Waits or works until writes are admitted.
    fn make_room(&self, removes_only: bool) -> Result<Memtables> {
        let sealed = self.pipeline.sealed_len();
        if sealed == 0 {
            return Ok(Memtables::More);
        }
        let patience = match self.options.background() {
            Background::Threads => None,
            Background::Writers => Some(0),
            Background::Steps => Some(SEALED_MAX),
        };
        if let Some(patience) = patience {
            let mut flushed = Ok(true);
            while self.pipeline.sealed_len() > patience && matches!(flushed, Ok(true)) {
                flushed = self.flush_step();
            }
            match flushed {
                Err(Error::NoSpace { .. }) if removes_only && self.may_seal_for_removals() => {}
                flushed => drop(flushed?),
            }
            // A failed compaction, for example over damage elsewhere, is no reason to refuse a write.
            while self.account_backlog().is_hard() && self.compaction_step(false).is_ok_and(|done| done) {}
            return Ok(Memtables::More);
        }
        self.signal.wake_flush();
        if sealed > SEALED_MAX {
            add(&self.counters.stalls, 1);
            let has_room = || self.pipeline.sealed_len() <= SEALED_MAX;
            let start = self.env.clock.monotonic();
            self.events.stall_begins(StallCause::Memtables, start);
            let waited = match self.signal.wait_until(has_room) {
                Err(Error::NoSpace { .. }) if removes_only && self.may_seal_for_removals() => Ok(()),
                // engine_background.7
                Err(Error::NoSpace { .. }) if self.has_space_to_flush() => {
                    self.signal.wait_for_another_try(has_room)
                }
                waited => waited,
            };
            let end = self.env.clock.monotonic();
            self.events.stall_ends(StallCause::Memtables, end);
            self.add_stall_time(end.saturating_sub(start));
            // If writes have stopped for good, the writer gets that cause: a successful flush would not help
            // it.
            let cause = |error| self.pipeline.stopped_by().map_or(error, Error::Poisoned);
            return waited.map(|()| Memtables::Last).map_err(cause);
        }
        Ok(if sealed == SEALED_MAX { Memtables::Last } else { Memtables::More })
    }

    /// Delays writers gradually while compaction or flushing is behind.
    fn slow_down(&self, bytes: u64, memtables: Memtables) {
        self.keep_write_rate(bytes);
        let is_last = memtables == Memtables::Last;
        if !(self.throttle.is_on() || is_last) || self.options.background() != Background::Threads {
            return;
        }
        let written = self.counters.compaction.bytes_written.load(Ordering::Relaxed) as f64;
        let flushed = self.counters.flush.bytes_written.load(Ordering::Relaxed).max(1) as f64;
        let amplification = (written / flushed).clamp(1.0, 10.0);
        let mut delay =
            pacing::write_delay(&self.throttle.backlog(), bytes, self.pace.compactions.now(), amplification);
        if is_last {
            delay = delay.max(time_of(bytes, self.pace.flushes.now()));
        }
        if let Some(delay) = self.throttle.take(delay) {
            add(&self.counters.stalls, 1);
            let start = self.env.clock.monotonic();
            self.env.clock.sleep(delay);
            self.add_stall_time(self.env.clock.monotonic().saturating_sub(start));
        }
    }

    fn add_stall_time(&self, time: Duration) {
        add(&self.counters.stall_ns, time.as_nanos() as u64);
    }

    /// The start of a commit that is to be measured, and the number of commits that it stands for.
    fn begin_commit(&self, durability: Durability) -> Option<(Duration, u64)> {
        let weight = match durability {
            Durability::Sync => 1,
            Durability::Buffered | Durability::None if self.cache.activity().commit_begins() => {
                COMMITS_PER_SAMPLE
            }
            Durability::Buffered | Durability::None => return None,
        };
        Some((self.env.clock.monotonic(), weight))
    }

    /// Records a successful commit of `bytes` bytes.
    fn end_commit(&self, begun: Option<(Duration, u64)>, bytes: u64) {
        self.cache.activity().committed(bytes);
        if let Some((start, weight)) = begun {
            let time = self.env.clock.monotonic().saturating_sub(start);
            self.counters.commit_latency.record(time, weight);
        }
    }
}
