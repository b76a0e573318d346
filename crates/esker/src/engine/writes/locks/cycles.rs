//! Finds and breaks cycles of waits, over locks and the exclusive turn.
//!
//! ```text
//!   owner --waits for a lock--> its holders, and those before it in the queue
//!   owner --its thread waits for the turn to end--> the owner that has the turn, while it waits for a lock
//! ```
//!
//! An owner belongs to the thread that used it last. So if another thread has taken over the guard of a named
//! lock, a false cycle may be found. Then the transaction with the turn fails with a deadlock, and may run
//! again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use super::{ExclusiveTurn, LockName, Locks, OwnerId, Table, Wake};
use crate::engine::writes::exclusive_turn::HeldAs;

/// Set to let a commit pass. Relaxed: it orders no other memory.
pub(super) type LetPass = Arc<AtomicBool>;

/// One wait in a cycle.
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

fn shown(cycle: &[Step]) -> String {
    cycle.iter().map(Step::shown).collect::<Vec<_>>().join(", ")
}

/// Registers a thread's wait for the turn, until it drops.
pub(in crate::engine) struct TurnWait<'a> {
    locks: &'a Locks,
    let_pass: Option<LetPass>,
}

impl TurnWait<'_> {
    /// Returns whether this commit goes first, because the holder of the exclusive turn waits for a lock of
    /// this thread.
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
    /// Registers that this thread waits for the turn. `is_commit`: whether it can proceed without the turn if
    /// the holder is not exclusive.
    pub(in crate::engine) fn wait_for_turn(
        &self,
        is_commit: bool,
        exclusive_turn: &ExclusiveTurn,
    ) -> TurnWait<'_> {
        let let_pass = is_commit.then(LetPass::default);
        let mut table = self.table.lock();
        table.turn_waits.insert(std::thread::current().id(), let_pass.clone());
        let holders = table.holders_of_turn().collect::<Vec<_>>();
        holders.into_iter().for_each(|holder| table.break_cycles(holder, exclusive_turn));
        TurnWait { locks: self, let_pass }
    }
}

impl Table {
    /// Returns the owners that wait for a lock in a thread that holds the turn.
    fn holders_of_turn(&self) -> impl Iterator<Item = OwnerId> {
        self.waits.iter().filter(|(_, wait)| wait.turn.is_some()).map(|(owner, _)| *owner)
    }

    /// Breaks all cycles through an owner (locks.2).
    pub(super) fn break_cycles(&mut self, owner: OwnerId, exclusive_turn: &ExclusiveTurn) {
        while let Some(cycle) = self.cycle(owner) {
            if self.let_pass(&cycle) {
                exclusive_turn.wake();
            } else {
                self.fail_youngest(&cycle);
            }
        }
    }

    /// Returns the waits that lead from an owner back to itself, if there are any.
    fn cycle(&self, start: OwnerId) -> Option<Vec<Step>> {
        let (mut seen, mut cycle) = (BTreeSet::new(), Vec::new());
        self.search(start, start, &mut seen, &mut cycle).then_some(cycle)
    }

    fn search(
        &self,
        at: OwnerId,
        start: OwnerId,
        seen: &mut BTreeSet<OwnerId>,
        cycle: &mut Vec<Step>,
    ) -> bool {
        if let Some(wait) = self.waits.get(&at)
            && let Some(lock) = self.locks.get(&wait.name)
            && let Some(position) =
                lock.position_of(at).filter(|position| lock.queue[*position].deadlock.is_none())
        {
            cycle.push(Step::Lock(at, wait.name.clone()));
            for blocker in lock.blockers(position) {
                if blocker == start || seen.insert(blocker) && self.search(blocker, start, seen, cycle) {
                    return true;
                }
            }
            cycle.pop();
        }
        let thread = self.threads.get(&at).filter(|thread| self.turn_waits.contains_key(thread));
        let Some(thread) = thread else { return false };
        cycle.push(Step::Turn(at, *thread));
        for holder in self.holders_of_turn() {
            if holder == start || seen.insert(holder) && self.search(holder, start, seen, cycle) {
                return true;
            }
        }
        cycle.pop();
        false
    }

    /// Lets a commit in the cycle go before the transaction with the turn. Returns false if that transaction
    /// is exclusive.
    fn let_pass(&mut self, cycle: &[Step]) -> bool {
        if self.waits.values().any(|wait| wait.turn == Some(HeldAs::Exclusive)) {
            return false;
        }
        let mut threads = cycle.iter().filter_map(|step| match step {
            Step::Turn(_, thread) => Some(thread),
            Step::Lock(..) => None,
        });
        let passes = |thread: &ThreadId| Some((*thread, self.turn_waits.get(thread)?.clone()?));
        let Some((thread, let_pass)) = threads.find_map(passes) else { return false };
        let_pass.store(true, Ordering::Relaxed);
        self.turn_waits.remove(&thread);
        true
    }

    /// Fails the youngest owner of the cycle that waits for a lock, and wakes it.
    fn fail_youngest(&mut self, cycle: &[Step]) {
        let waits = cycle.iter().filter_map(|step| match step {
            Step::Lock(owner, name) => Some((*owner, name)),
            Step::Turn(..) => None,
        });
        let (youngest, name) =
            waits.max().expect("the turn's holder in the cycle waits for a lock, or all do");
        let lock = self.locks.get_mut(name).expect("an owner waits for it");
        if let Some(waiting) = lock.queue.iter_mut().find(|waiting| waiting.owner == youngest) {
            waiting.deadlock = Some(shown(cycle));
            waiting.wake.wake();
            // A task notices when it asks again.
            if matches!(waiting.wake, Wake::Thread(_)) {
                self.waits.remove(&youngest);
            }
        }
    }
}
