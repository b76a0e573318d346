//! Other work between two steps of an operation, as another thread could do it.
//!
//! ```text
//!   Between(work) --kept--> the next operation --reaches a point of the engine's (interleave.rs)--> work, in the same thread
//!                              `--returns--> the model does the work first, then the operation
//! ```
//!
//! between.1. What is done at a point comes before the operation that has reached it: in the order of commits, and in the model.
//!
//! The engine has the points with the feature `canaries` alone. Without it the work is not done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use esker::{BackgroundStep, Db, Keyspace, Result};

use super::World;
use crate::model::state::Id;
use crate::op::Op;

/// Work that was done at a point.
struct Done {
    op: Op,
    outcome: Result<()>,
    /// The number of the newest commit after it.
    seqno: u64,
}

impl World {
    /// Calls the database. Work that waits for a point is done at the first that the call reaches, and noted in the model when
    /// the call returns. `note` is shown the number of the newest commit after each piece of it.
    pub(super) fn interleaved_noting<T>(
        &mut self,
        call: impl FnOnce(&Self) -> T,
        mut note: impl FnMut(&mut Self, u64),
    ) -> T {
        let Some(work) = self.between.take() else { return call(self) };
        let done = Arc::new(Mutex::new(Vec::new()));
        let place = Place { db: self.db().clone(), keyspaces: self.keyspaces.clone(), done: done.clone() };
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

    /// The same for callers that need no commit numbers.
    pub(super) fn interleaved<T>(&mut self, call: impl FnOnce(&Self) -> T) -> T {
        self.interleaved_noting(call, |_, _| ())
    }

    fn note_between(&mut self, op: Op, outcome: Result<()>) {
        match &op {
            Op::Write(..) | Op::Batch(..) => self.changed(&op, outcome),
            Op::Flush => self.maintain(outcome),
            Op::Compact => {
                if self.excused_tidying(outcome).is_some() {
                    self.history.all_durable();
                }
            }
            Op::Step(BackgroundStep::SyncLog) if !self.poisoned && !self.panicked => self.maintain(outcome),
            Op::Step(BackgroundStep::PrepareLog) => drop(self.excused_tidying(outcome)),
            Op::Step(_) => drop(self.excused(outcome)),
            other => panic!("{other:?} is not done between steps"),
        }
    }
}

/// Where work is done in the middle of a call.
#[cfg_attr(not(feature = "canaries"), expect(dead_code, reason = "there are no points"))]
struct Place {
    db: Db,
    keyspaces: BTreeMap<Id, Keyspace>,
    done: Arc<Mutex<Vec<Done>>>,
}

#[cfg(feature = "canaries")]
impl Place {
    fn run(&self, op: Op) {
        let pick = |no: crate::op::KeyspaceNo| {
            let at = usize::from(no.0) % self.keyspaces.len();
            Ok(self.keyspaces.values().nth(at).expect("there is the default keyspace").clone())
        };
        let outcome = super::trouble::attempt(|| crate::perform::perform(&self.db, &op, pick, ""));
        let done = Done { op, outcome, seqno: self.db.stats().seqno };
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(done);
    }
}

/// Has work done at the next point that this thread reaches; none: nothing.
#[cfg(feature = "canaries")]
fn put(work: Option<(Place, Vec<Op>)>) {
    let hook = |(place, ops): (Place, Vec<Op>)| -> esker::interleave::Hook {
        let mut ops = ops.into_iter();
        Box::new(move |_| ops.by_ref().for_each(|op| place.run(op)))
    };
    esker::interleave::set(work.map(hook));
}

#[cfg(not(feature = "canaries"))]
fn put(_: Option<(Place, Vec<Op>)>) {}
