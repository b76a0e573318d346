//! Cycles of waits, over locks and the exclusive turn.
//!
//! ```text
//!   owner --waits for a lock--> its holders, and those before it in the queue
//!   owner --its thread waits for the turn to end--> the owner that has the turn, while it waits for a lock
//! ```
//!
//! An owner belongs to the thread that used it last. So a named lock whose guard another thread has taken over may close a cycle that is
//! none: the transaction with the turn fails with a deadlock, and may run again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use super::{ExclusiveTurn, LockName, Locks, OwnerId, Table};
use crate::engine::writes::exclusive_turn::HeldAs;

/// Set to let a commit pass. Relaxed: it orders nothing.
pub(super) type LetPass = Arc<AtomicBool>;

/// A reason to wait, on the way around a cycle.
enum Step {
    Lock(OwnerId, LockName),
    Turn(OwnerId, ThreadId),
}

impl Step {
    fn shown(&self) -> String {
        match self {
            Step::Lock(owner, name) => format!("owner {owner} waits for {}", name.shown()),
            Step::Turn(owner, _) => format!("owner {owner} waits for an exclusive transaction"),
        }
    }
}

/// A thread's wait for the turn, until it drops.
pub(in crate::engine) struct TurnWait<'a> {
    locks: &'a Locks,
    let_pass: Option<LetPass>,
}

impl TurnWait<'_> {
    /// Whether the holder of the exclusive turn waits for a lock of this thread, so that this commit goes first.
    pub(in crate::engine) fn may_pass(&self) -> bool {
        self.let_pass.as_ref().is_some_and(|let_pass| let_pass.load(Ordering::Relaxed))
    }
}

impl Drop for TurnWait<'_> {
    fn drop(&mut self) {
        self.locks.table.lock().turn_waits.remove(&std::thread::current().id());
    }
}

impl Locks {
    /// This thread begins to wait for the turn. `is_commit`: it can do without, if the holder is not exclusive.
    pub(in crate::engine) fn wait_for_turn(&self, is_commit: bool, right: &ExclusiveTurn) -> TurnWait<'_> {
        let let_pass = is_commit.then(LetPass::default);
        let mut table = self.table.lock();
        table.turn_waits.insert(std::thread::current().id(), let_pass.clone());
        let holders = table.holders_of_turn().collect::<Vec<_>>();
        holders.into_iter().for_each(|holder| table.break_cycles(holder, right));
        TurnWait { locks: self, let_pass }
    }
}

impl Table {
    /// The owners that wait for a lock in a thread that has the turn.
    fn holders_of_turn(&self) -> impl Iterator<Item = OwnerId> {
        self.waits.iter().filter(|(_, wait)| wait.turn.is_some()).map(|(owner, _)| *owner)
    }

    /// Breaks all cycles through an owner (locks.2).
    pub(super) fn break_cycles(&mut self, owner: OwnerId, right: &ExclusiveTurn) {
        while let Some(way) = self.cycle(owner) {
            if self.let_pass(&way) {
                right.wake();
            } else {
                self.fail_youngest(&way);
            }
        }
    }

    /// The steps from an owner back to itself, if there are any.
    fn cycle(&self, start: OwnerId) -> Option<Vec<Step>> {
        let (mut seen, mut way) = (BTreeSet::new(), Vec::new());
        self.search(start, start, &mut seen, &mut way).then_some(way)
    }

    fn search(&self, at: OwnerId, start: OwnerId, seen: &mut BTreeSet<OwnerId>, way: &mut Vec<Step>) -> bool {
        if let Some(wait) = self.waits.get(&at)
            && let Some(lock) = self.locks.get(&wait.name)
            && let Some(place) = lock.queue.iter().position(|waiting| waiting.owner == at)
        {
            way.push(Step::Lock(at, wait.name.clone()));
            for blocker in lock.blockers(place) {
                if blocker == start || seen.insert(blocker) && self.search(blocker, start, seen, way) {
                    return true;
                }
            }
            way.pop();
        }
        let thread = self.threads.get(&at).filter(|thread| self.turn_waits.contains_key(thread));
        let Some(thread) = thread else { return false };
        way.push(Step::Turn(at, *thread));
        for holder in self.holders_of_turn() {
            if holder == start || seen.insert(holder) && self.search(holder, start, seen, way) {
                return true;
            }
        }
        way.pop();
        false
    }

    /// Lets a commit in the cycle go before the transaction that has the exclusive turn, unless that one is exclusive.
    fn let_pass(&mut self, way: &[Step]) -> bool {
        if self.waits.values().any(|wait| wait.turn == Some(HeldAs::Exclusive)) {
            return false;
        }
        let mut threads = way.iter().filter_map(|step| match step {
            Step::Turn(_, thread) => Some(thread),
            Step::Lock(..) => None,
        });
        let passes = |thread: &ThreadId| Some((*thread, self.turn_waits.get(thread)?.clone()?));
        let Some((thread, let_pass)) = threads.find_map(passes) else { return false };
        let_pass.store(true, Ordering::Relaxed);
        self.turn_waits.remove(&thread);
        true
    }

    /// Fails the youngest owner of the cycle that waits for a lock.
    fn fail_youngest(&mut self, way: &[Step]) {
        let waits = way.iter().filter_map(|step| match step {
            Step::Lock(owner, name) => Some((*owner, name)),
            Step::Turn(..) => None,
        });
        let (youngest, name) =
            waits.max().expect("the turn's holder in the cycle waits for a lock, or all do");
        let lock = self.locks.get_mut(name).expect("an owner waits for it");
        if let Some(waiting) = lock.queue.iter_mut().find(|waiting| waiting.owner == youngest) {
            waiting.deadlock = Some(way.iter().map(Step::shown).collect::<Vec<_>>().join(", "));
            waiting.wake.notify_one();
        }
        self.waits.remove(&youngest);
    }
}
