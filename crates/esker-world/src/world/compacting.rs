//! Compaction steps beside other operations, as other threads could run them.
//!
//! ```text
//!   Step(Compact) --a thread--> reads, writes its tables, stops (`Point::CompactionBuilt`)
//!   other operations, other compactions
//!   some operations later ------> installs its tables, in any order among those that have stopped
//! ```
//!
//! One thread runs at a time, so that runs are repeatable. The engine has the point with the feature
//! `canaries` only; otherwise a step ends at once.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use esker::{BackgroundStep, Result};

use super::World;
use super::faults::attempt;
use crate::op::Op;
use crate::setting;

/// Number of operations for which a compaction stops, at most.
const STOPPED_MAX: u64 = 24;

/// A compaction that has stopped.
pub(super) struct Stopped {
    go_on: Sender<()>,
    thread: JoinHandle<Result<()>>,
    /// Number of the last operation beside it.
    until: u64,
}

/// Starts a step in a thread. Returns when it has stopped or ended; with `false`, it has ended.
#[expect(clippy::disallowed_methods, reason = "the thread is the simulator's")]
fn start(db: esker::Db, step: BackgroundStep) -> (Stopped, bool) {
    let (says, hears) = channel();
    let (go_on, waits) = channel();
    let thread = std::thread::spawn(move || {
        set_hook(Some((says, waits)));
        let done = attempt(|| db.step(step).map(drop));
        set_hook(None);
        done
    });
    let has_stopped = hears.recv().is_ok();
    (Stopped { go_on, thread, until: 0 }, has_stopped)
}

impl Stopped {
    /// Lets it go on, and waits for its end.
    fn finish(self) -> Result<()> {
        // It has ended if it does not listen.
        let _ = self.go_on.send(());
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl World {
    /// Runs a step of background work. In some seeds a compaction stops before it installs its tables.
    pub(super) fn step(&mut self, op: &Op, step: BackgroundStep) {
        if matches!(step, BackgroundStep::Compact { .. }) && self.may_compact_beside() {
            return self.start_compaction(step);
        }
        let done = self.filtering(|world| world.interleaved(|world| world.done(op)));
        match step {
            // A failed log cannot be synced.
            BackgroundStep::SyncLog if !self.process.poisoned && !self.process.panicked => {
                self.maintain(done)
            }
            // This step reports files that it cannot remove.
            BackgroundStep::PrepareLog => drop(self.excused_tidying(done)),
            _ => drop(self.excused(done)),
        }
        self.note_filtered();
        self.note_oldest();
    }

    /// Returns whether compactions stop. Work between the steps of operations may wait for their end.
    fn may_compact_beside(&self) -> bool {
        // The model does not learn when a decision about an expired entry takes effect.
        let is_uncertain = setting::has_filters(self.seed) && setting::has_expiry(self.seed);
        setting::compacts_beside(self.seed) && !is_uncertain && self.between.is_none()
    }

    /// In some seeds, starts a compaction after each operation, as idle threads do.
    pub(super) fn compact_beside(&mut self) {
        if self.db.is_some() && self.may_compact_beside() {
            self.begin_operation();
            self.start_another_compaction(false);
        }
    }

    /// In some seeds, starts a compaction beside each copy, in place of work between its steps.
    pub(super) fn compact_beside_copy(&mut self) {
        if setting::compacts_beside(self.seed) && self.db.is_some() {
            self.between = None;
            self.start_another_compaction(true);
        }
    }

    fn start_another_compaction(&mut self, idle: bool) {
        if self.may_compact_beside() && self.held.compactions.len() < setting::COMPACTIONS {
            self.start_compaction(BackgroundStep::Compact { idle });
        }
    }

    fn start_compaction(&mut self, step: BackgroundStep) {
        let (stopped, has_stopped) = self.filtering(|world| start(world.db().clone(), step));
        if has_stopped {
            self.tally.compacted_beside += u64::from(!self.held.compactions.is_empty());
            let beside = 1 + self.tally.ops.wrapping_mul(self.seed + 7) % STOPPED_MAX;
            self.held.compactions.push(Stopped { until: self.tally.ops + beside, ..stopped });
            self.note_filtered();
        } else {
            self.finish(stopped);
        }
    }

    fn finish(&mut self, stopped: Stopped) {
        let done = self.filtering(|_| stopped.finish());
        self.excused(done);
        self.note_filtered();
    }

    /// Finishes the compactions that do not run beside this operation.
    pub(super) fn finish_compactions_before(&mut self, op: &Op) {
        use Op::{
            Between, Compact, CompactRange, Crowd, DiskFull, Fault, Mend, Restart, RestartIn, TakeTurns,
        };
        // The outcome of decisions must be known before calls fail.
        let may_fail = matches!(op, Fault(_) | DiskFull(_) | RestartIn { .. });
        let runs_alone = matches!(
            op,
            Compact | CompactRange(..) | Between(_) | Restart(_) | Mend(_) | Crowd(_) | TakeTurns(..)
        );
        let ends_all = runs_alone || may_fail && setting::has_filters(self.seed);
        let now = self.tally.ops;
        while let Some(at) = self.held.compactions.iter().position(|of| ends_all || of.until <= now) {
            let stopped = self.held.compactions.swap_remove(at);
            self.finish(stopped);
        }
    }

    /// Finishes all compactions.
    pub(super) fn finish_compactions(&mut self) {
        while let Some(stopped) = self.held.compactions.pop() {
            self.finish(stopped);
        }
    }

    /// Returns the number of compactions that have stopped.
    pub(super) fn compactions(&self) -> u64 {
        self.held.compactions.len() as u64
    }

    /// Finishes all compactions, whatever their outcome.
    pub(super) fn abandon_compactions(&mut self) {
        for stopped in self.held.compactions.drain(..) {
            let _ = stopped.finish();
        }
    }
}

/// Sets what the compaction of this thread does when it has written its tables: it says so, and waits.
#[cfg(feature = "canaries")]
fn set_hook(channels: Option<(Sender<()>, Receiver<()>)>) {
    let hook = |(says, waits): (Sender<()>, Receiver<()>)| -> esker::interleave::Hook {
        Box::new(move |point| {
            if point == esker::interleave::Point::CompactionBuilt && says.send(()).is_ok() {
                let _ = waits.recv();
            }
        })
    };
    esker::interleave::set(channels.map(hook));
}

#[cfg(not(feature = "canaries"))]
fn set_hook(_: Option<(Sender<()>, Receiver<()>)>) {}
