//! The exclusive turn: its holder commits while other commits wait. Exclusive transactions take it, and so
//! does a transaction that has conflicted again and again.
//!
//! ```text
//!   transact (db/transact.rs) --take--------> ExclusiveTurn <--wait_for_exclusive-- commits (admission.rs)
//!   exclusive transaction ------take_turn--->
//! ```
//!
//! exclusive_turn.1. While a thread holds the turn, commits of other threads wait. A transaction that begins
//!     then meets only commits that had entered before.
//! - After a conflict the holder delays others at most [`HOLD_MIN`], doubled per further conflict up to
//!   [`HOLD_MAX`], so that a long transaction commits in the end. It never blocks them for good, not even
//!   when the holder waits for another thread's commit.
//! - Exclusive transactions hold the turn one after the other, in the order in which they
//!   asked, before those that have conflicted. Other commits wait for them as long as it takes. They begin
//!   once the commits under way have ended.
//! - When the database closes, all waits end. A commit that waits for an exclusive transaction fails with
//!   [`Error::Closed`]: that transaction has read, and may be about to commit.
//! - A thread does not wait for the end of its own exclusive transaction, which would never
//!   come. A transaction belongs to the thread that used it last, until it leaves that thread.
//! - A wait for the turn is an edge of the search for deadlocks (locks/cycles.rs). In a cycle, a commit
//!   passes a transaction that is not exclusive; an exclusive one fails where it waits for a lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::engine::writes::Writes;
use crate::engine::writes::locks::Locks;
use crate::types::canary::{self, Canary};
use crate::types::interleave::{self, Point};
use crate::types::{Error, Result};

/// How long other commits wait for a transaction that has conflicted, at first.
const HOLD_MIN: Duration = Duration::from_millis(250);
/// The longest such wait.
const HOLD_MAX: Duration = Duration::from_secs(64);
/// How long a thread waits for an exclusive transaction that it used last itself. Another thread may be about
/// to continue it.
const OWN_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct ExclusiveTurn {
    /// Whether there is a holder. SeqCst, like `under_way`: either a commit sees the holder and waits, or the
    /// holder sees the commit and waits.
    is_held: AtomicBool,
    under_way: AtomicUsize,
    /// Set when the database closes.
    is_over: AtomicBool,
    holder: Mutex<Option<Holder>>,
    given_back: Condvar,
    turns: Mutex<Turns>,
    turn_given_back: Condvar,
    /// Signalled when no commit is in progress.
    passed: Condvar,
}

/// The queue for the turn.
#[derive(Default)]
struct Turns {
    is_taken: bool,
    /// Numbers of the waiting exclusive transactions, in order.
    queue: VecDeque<u64>,
    next: u64,
}

#[derive(Clone, Copy)]
struct Holder {
    /// Number of the holder.
    number: u64,
    /// The thread that holds the turn; for an exclusive transaction, the one that used it last. Its own
    /// commits do not wait. `None`: the transaction has left its thread, so all commits wait.
    thread: Option<ThreadId>,
    /// How long each other commit waits. `None`: until the turn is released.
    patience: Option<Duration>,
}

impl Holder {
    fn is_this_thread(&self) -> bool {
        self.thread == Some(std::thread::current().id())
    }
}

/// How a thread holds the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldAs {
    /// For an exclusive transaction.
    Exclusive,
    /// For a transaction that has conflicted several times.
    AfterConflicts,
}

/// Marks a commit as in progress until it is dropped.
pub(in crate::engine) struct Passage<'a>(&'a ExclusiveTurn);

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_held.load(Ordering::SeqCst) {
            let _turns = self.0.turns.lock();
            self.0.passed.notify_all();
        }
    }
}

/// Holds the turn for the thread that took it, until dropped.
pub(crate) struct Held<'a> {
    right: &'a ExclusiveTurn,
}

impl Writes {
    /// Waits until no other thread holds the exclusive turn.
    ///
    /// # Errors
    /// [`Error::Closed`].
    #[inline]
    pub(in crate::engine) fn wait_for_exclusive(&self) -> Result<Passage<'_>> {
        self.exclusive_turn.wait_for_exclusive(&self.locks)
    }
}

impl ExclusiveTurn {
    /// Takes the turn for this thread. Returns `None` if others held it too long, or if this thread holds it
    /// already.
    pub(crate) fn take(&self) -> Option<Held<'_>> {
        if self.holder.lock().is_some_and(|holder| holder.is_this_thread()) {
            return None;
        }
        let mut turns = self.turns.lock();
        let is_busy = |turns: &Turns| turns.is_taken || !turns.queue.is_empty();
        let waits = |turns: &mut Turns| is_busy(turns) && !self.is_over();
        self.turn_given_back.wait_while_for(&mut turns, waits, HOLD_MIN);
        if is_busy(&turns) {
            return None;
        }
        self.hold(&mut turns, Some(HOLD_MIN));
        Some(Held { right: self })
    }

    /// Takes the turn for an exclusive transaction, in order. Waits for other transactions
    /// up to `patience`. Returns the number of the holder.
    pub(in crate::engine) fn take_turn(&self, locks: &Locks, patience: Duration) -> Result<u64> {
        let mut turns = self.turns.lock();
        let this = turns.next;
        turns.next += 1;
        turns.queue.push_back(this);
        let is_before = |turns: &mut Turns| turns.is_taken || turns.queue.front() != Some(&this);
        if is_before(&mut turns) {
            let _waits = locks.wait_for_turn(false, self);
            let waits = |turns: &mut Turns| is_before(turns) && !self.is_over();
            if self.held_by_this_thread().is_some() {
                self.turn_given_back.wait_while_for(&mut turns, waits, patience.min(OWN_PATIENCE));
            }
            if waits(&mut turns) && self.held_by_this_thread().is_some() {
                return self.leave_queue(&mut turns, this, own_turn());
            }
            self.turn_given_back.wait_while_for(&mut turns, waits, patience);
            if waits(&mut turns) {
                return self.leave_queue(
                    &mut turns,
                    this,
                    Error::LockTimeout { lock: "the exclusive turn".to_owned(), waited: patience },
                );
            }
        }
        if self.is_over() {
            return self.leave_queue(&mut turns, this, Error::Closed);
        }
        turns.queue.pop_front();
        let number = self.hold(&mut turns, None);
        let are_under_way = |_: &mut Turns| self.under_way.load(Ordering::SeqCst) > 0;
        self.passed.wait_while(&mut turns, are_under_way);
        Ok(number)
    }

    /// Records that this thread continues the transaction of a holder.
    pub(in crate::engine) fn note_thread(&self, number: u64) {
        self.set_thread(number, Some(std::thread::current().id()));
    }

    /// Records that the transaction of a holder belongs to no thread.
    pub(in crate::engine) fn leave_thread(&self, number: u64) {
        self.set_thread(number, None);
    }

    fn set_thread(&self, number: u64, thread: Option<ThreadId>) {
        let mut holder = self.holder.lock();
        if let Some(holder) = holder.as_mut().filter(|holder| holder.number == number) {
            holder.thread = thread;
        }
    }

    fn leave_queue(&self, turns: &mut Turns, number: u64, why: Error) -> Result<u64> {
        turns.queue.retain(|waiting| *waiting != number);
        self.turn_given_back.notify_all();
        Err(why)
    }

    /// Returns how this thread holds the turn, if it does.
    pub(in crate::engine) fn held_by_this_thread(&self) -> Option<HeldAs> {
        if !self.is_held.load(Ordering::SeqCst) {
            return None;
        }
        let holder = (*self.holder.lock())?;
        holder.is_this_thread().then(|| holder.patience.map_or(HeldAs::Exclusive, |_| HeldAs::AfterConflicts))
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Makes waiting commits check again whether they have to wait.
    pub(in crate::engine) fn wake(&self) {
        let _holder = self.holder.lock();
        self.given_back.notify_all();
    }

    /// Makes this thread the holder. Returns its number.
    fn hold(&self, turns: &mut Turns, patience: Option<Duration>) -> u64 {
        turns.is_taken = true;
        turns.next += 1;
        let number = turns.next;
        *self.holder.lock() = Some(Holder { number, thread: Some(std::thread::current().id()), patience });
        self.is_held.store(true, Ordering::SeqCst);
        number
    }

    /// Ends all waits.
    pub(in crate::engine) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake();
        let _turns = self.turns.lock();
        self.turn_given_back.notify_all();
    }

    pub(in crate::engine) fn give_back(&self) {
        self.is_held.store(false, Ordering::SeqCst);
        *self.holder.lock() = None;
        self.given_back.notify_all();
        self.turns.lock().is_taken = false;
        self.turn_given_back.notify_all();
    }

    /// Waits until no other thread holds the turn (exclusive_turn.1).
    #[inline]
    pub(in crate::engine) fn wait_for_exclusive(&self, locks: &Locks) -> Result<Passage<'_>> {
        loop {
            if let Some(passage) = self.pass_if_free() {
                return Ok(passage);
            }
            if self.wait(locks)? {
                interleave::reached(Point::TurnPassed);
                if let Some(passage) = self.pass_unless_exclusive() {
                    return Ok(passage);
                }
            }
        }
    }

    /// Marks a commit as in progress if no thread holds the turn.
    #[inline]
    pub(in crate::engine) fn pass_if_free(&self) -> Option<Passage<'_>> {
        let passage = self.enter();
        (!self.is_held.load(Ordering::SeqCst)).then_some(passage)
    }

    /// Marks a commit as in progress if no other thread holds the turn for an exclusive transaction. While
    /// the commit waited, the turn may have gone to one.
    fn pass_unless_exclusive(&self) -> Option<Passage<'_>> {
        // Enters first: an exclusive transaction that takes the turn from here on waits for this commit.
        let passage = self.enter();
        let is_shut =
            self.holder.lock().is_some_and(|holder| holder.patience.is_none() && !holder.is_this_thread());
        (!is_shut || canary::is_set(Canary::WaiterPassesExclusive)).then_some(passage)
    }

    #[inline]
    fn enter(&self) -> Passage<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        Passage(self)
    }

    /// Waits for the holder. Returns whether this commit proceeds although a transaction that has conflicted
    /// holds the turn.
    #[cold]
    fn wait(&self, locks: &Locks) -> Result<bool> {
        let Some(first) = *self.holder.lock() else { return Ok(false) };
        if first.is_this_thread() {
            return Ok(true);
        }
        interleave::reached(Point::TurnAwaited);
        // Taken before the holder's lock, which the search for cycles takes.
        let turn_wait = locks.wait_for_turn(true, self);
        let is_in_the_way = |holder: &mut Option<Holder>| {
            let is_same = holder.is_some_and(|holder| holder.number == first.number);
            is_same && !turn_wait.may_pass() && !self.is_over()
        };
        let mut holder = self.holder.lock();
        match first.patience {
            Some(patience) => {
                let _ = self.given_back.wait_while_for(&mut holder, is_in_the_way, patience);
            }
            None => self.given_back.wait_while(&mut holder, is_in_the_way),
        }
        let is_held = holder.is_some_and(|holder| holder.number == first.number);
        drop(holder);
        match first.patience {
            Some(_) => Ok(true),
            None if is_held && self.is_over() => Err(Error::Closed),
            None => Ok(false),
        }
    }
}

#[cold]
fn own_turn() -> Error {
    let text = "this thread has another exclusive transaction open and would wait for it for ever: commit it or roll it \
                back first";
    Error::Invalid(text.to_owned())
}

impl Held<'_> {
    /// Doubles the time that others wait, because the holder has conflicted again.
    pub(crate) fn be_patient(&self) {
        if let Some(holder) = &mut *self.right.holder.lock() {
            holder.patience = holder.patience.map(|patience| (patience * 2).min(HOLD_MAX));
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.right.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn exclusive_turn_1_others_wait_and_its_holder_does_not() {
        let (right, locks) = (ExclusiveTurn::default(), Locks::default());
        let passed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let held = right.take().unwrap();
            assert!(right.take().is_none(), "this thread has it");
            drop(right.wait_for_exclusive(&locks).unwrap());
            let other = scope.spawn(|| {
                drop(right.wait_for_exclusive(&locks).unwrap());
                passed.fetch_add(1, Ordering::SeqCst)
            });
            assert_eq!(passed.load(Ordering::SeqCst), 0, "exclusive_turn.1");
            drop(held);
            assert_eq!(other.join().unwrap(), 0);
        });
        drop(right.wait_for_exclusive(&locks).unwrap());
    }

    #[test]
    fn an_exclusive_turn_begins_when_the_commits_under_way_have_ended() {
        let (right, locks) = (ExclusiveTurn::default(), Locks::default());
        let passage = right.wait_for_exclusive(&locks).unwrap();
        std::thread::scope(|scope| {
            let exclusive = scope.spawn(|| assert!(right.take_turn(&locks, LONG).is_ok()));
            while !right.is_held.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(!exclusive.is_finished());
            drop(passage);
            exclusive.join().unwrap();
            let other = scope.spawn(|| matches!(right.wait_for_exclusive(&locks), Err(Error::Closed)));
            let next = scope.spawn(|| matches!(right.take_turn(&locks, LONG), Err(Error::Closed)));
            right.end();
            assert!(other.join().unwrap() && next.join().unwrap());
        });
    }

    #[test]
    fn exclusive_turns_come_in_the_order_in_which_they_were_asked_for() {
        let (right, locks) = (ExclusiveTurn::default(), Locks::default());
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            right.take_turn(&locks, LONG).unwrap();
            for n in 0..5 {
                let (right, locks, order) = (&right, &locks, &order);
                scope.spawn(move || {
                    right.take_turn(locks, LONG).unwrap();
                    order.lock().push(n);
                    right.give_back();
                });
                while right.turns.lock().queue.len() <= n {
                    std::thread::yield_now();
                }
            }
            let other = scope.spawn(|| drop(right.wait_for_exclusive(&locks).unwrap()));
            assert!(scope.spawn(|| right.take().is_none()).join().unwrap());
            assert!(!other.is_finished(), "exclusive_turn.1");
            let gives_up = || matches!(right.take_turn(&locks, HOLD_MIN), Err(Error::LockTimeout { .. }));
            assert!(scope.spawn(gives_up).join().unwrap());
            right.give_back();
        });
        assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_commit_that_has_waited_for_another_holder_waits_for_an_exclusive_one() {
        let (right, locks) = (ExclusiveTurn::default(), Locks::default());
        let held = right.take().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| right.wait(&locks).unwrap());
            assert!(scope.spawn(|| right.pass_unless_exclusive().is_some()).join().unwrap());
            drop(held);
            // A thread that begins to wait only now would wait for the exclusive turn.
            waits.join().unwrap();
            right.take_turn(&locks, LONG).unwrap();
            let has_own = right.pass_unless_exclusive().is_some();
            let is_shut = scope.spawn(|| right.pass_unless_exclusive().is_none()).join().unwrap();
            let passes = scope.spawn(|| drop(right.wait_for_exclusive(&locks).unwrap()));
            Condvar::new().wait_for(&mut Mutex::new(()).lock(), 2 * HOLD_MIN);
            let waited = !passes.is_finished();
            // Before anything fails: the other thread waits for it.
            right.give_back();
            passes.join().unwrap();
            assert_eq!((has_own, is_shut, waited), (true, true, true));
        });
        assert_eq!(right.under_way.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn every_wait_ends() {
        let (right, locks) = (ExclusiveTurn::default(), Locks::default());
        std::thread::scope(|scope| {
            let held = right.take().unwrap();
            scope.spawn(|| drop(right.wait_for_exclusive(&locks).unwrap())).join().unwrap();
            (0..20).for_each(|_| held.be_patient());
            assert_eq!(right.holder.lock().unwrap().patience, Some(HOLD_MAX));
            assert!(scope.spawn(|| right.take().is_none()).join().unwrap());
        });
    }
}
