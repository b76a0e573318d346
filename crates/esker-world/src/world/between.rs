//! Interleaves operations with the steps of another one, as a second thread could.
//!
//! ```text
//!   Between(work) --kept--> the next operation --reaches a point in the engine--> work, same thread
//!                              `--returns--> the model performs the work first, then the operation
//! ```
//!
//! Work at a point precedes the operation that reached it, in the order of commits and in the model. The
//! engine has such points only with the feature `canaries`; otherwise the work is skipped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use esker::{BackgroundStep, Db, Keyspace, Result};

use super::World;
use crate::model::state::Id;
use crate::op::Op;

/// Work that was performed at a point.
struct Done {
    op: Op,
    outcome: Result<()>,
    /// Number of the newest commit after it.
    seqno: u64,
}

impl World {
    /// Calls the database. Pending work runs at the first point that the call reaches, and enters the model
    /// when the call returns. `note` receives the number of the newest commit after each piece of work.
    pub(super) fn interleaved_noting<T>(
        &mut self,
        call: impl FnOnce(&Self) -> T,
        mut note: impl FnMut(&mut Self, u64),
    ) -> T {
        let Some(work) = self.between.take() else { return call(self) };
        let done = Arc::new(Mutex::new(Vec::new()));
        let place =
            PendingWork { db: self.db().clone(), keyspaces: self.keyspaces.clone(), done: done.clone() };
        put(Some((place, work)));
        let result = call(self);
        put(None);
        for done in std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.tally.between += 1;
            self.note_between(done.op, done.outcome);
            self.note_moment_at(done.seqno);
            note(self, done.seqno);
        }
        result
    }

    /// Does the same without commit numbers.
    pub(super) fn interleaved<T>(&mut self, call: impl FnOnce(&Self) -> T) -> T {
        self.interleaved_noting(call, |_, _| ())
    }

    fn note_between(&mut self, op: Op, outcome: Result<()>) {
        match &op {
            Op::Write(..) | Op::Batch(..) => self.changed(&op, outcome, op.durability(self.durability())),
            Op::Flush => self.maintain(outcome),
            Op::Compact => {
                if self.excused_tidying(outcome).is_some() {
                    self.history.all_durable();
                }
            }
            Op::Step(BackgroundStep::SyncLog) if !self.process.poisoned && !self.process.panicked => {
                self.maintain(outcome)
            }
            Op::CompactRange(..) => drop(self.excused_tidying(outcome)),
            Op::Step(BackgroundStep::PrepareLog) => drop(self.excused_tidying(outcome)),
            Op::Step(_) => drop(self.excused(outcome)),
            other => panic!("{other:?} is not done between steps"),
        }
    }
}

/// What work at a point needs.
#[cfg_attr(not(feature = "canaries"), expect(dead_code, reason = "there are no points"))]
struct PendingWork {
    db: Db,
    keyspaces: BTreeMap<Id, Keyspace>,
    done: Arc<Mutex<Vec<Done>>>,
}

#[cfg(feature = "canaries")]
impl PendingWork {
    fn run(&self, op: Op) {
        let pick = |no: crate::op::KeyspaceNo| {
            let at = usize::from(no.0) % self.keyspaces.len();
            Ok(self.keyspaces.values().nth(at).expect("there is the default keyspace").clone())
        };
        let outcome = super::faults::attempt(|| crate::perform::perform(&self.db, &op, pick, ""));
        let done = Done { op, outcome, seqno: self.db.stats().seqno.get() };
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(done);
    }
}

/// Sets the work for the next point that this thread reaches, except inside a compaction: there it might wait
/// for the compaction's end.
#[cfg(feature = "canaries")]
fn put(work: Option<(PendingWork, Vec<Op>)>) {
    let hook = |(pending, ops): (PendingWork, Vec<Op>)| -> esker::interleave::Hook {
        let mut ops = ops.into_iter();
        Box::new(move |point| {
            use esker::interleave::Point::{CompactionBuilt, TurnAwaited, TurnPassed};
            // At these it might wait for itself.
            if !matches!(point, CompactionBuilt | TurnAwaited | TurnPassed) {
                ops.by_ref().for_each(|op| pending.run(op));
            }
        })
    };
    esker::interleave::set(work.map(hook));
}

#[cfg(not(feature = "canaries"))]
fn put(_: Option<(PendingWork, Vec<Op>)>) {}
