//! The right of way: a transaction that has conflicted again and again runs once while nobody else commits; an exclusive one always does.
//!
//! ```text
//!   transact (db/transact.rs) --take--------> RightOfWay <--give_way-- every other commit (admission.rs)
//!   exclusive transaction ------take_turn--->
//! ```
//!
//! right_of_way.1. While a thread has it, commits of other threads wait, so a transaction that begins then meets only those that had
//!      entered before.
//! right_of_way.2. Nobody waits for it longer than its holder's patience allows, so it delays others and stops nobody: not even a holder that
//!      waits for another thread's commit. The patience is [`HOLD_MIN`] first and doubles with each further conflict, up to [`HOLD_MAX`]: a
//!      transaction that takes longer commits in the end.
//! right_of_way.3. Exclusive transactions have it one after the other, in the order in which they asked, before those that have conflicted; for
//!      them others wait as long as it takes. They begin once the commits that were under way have ended.
//! right_of_way.4. When the database closes nobody waits any more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::handle::Handle;

/// So long others wait at first.
const HOLD_MIN: Duration = Duration::from_millis(250);
/// So long others wait at the most.
const HOLD_MAX: Duration = Duration::from_secs(64);

#[derive(Default)]
pub(crate) struct RightOfWay {
    /// Whether there is a holder, and the commits under way. SeqCst: either a commit sees the holder and waits, or the holder sees the commit
    /// (right_of_way.3).
    is_held: AtomicBool,
    under_way: AtomicUsize,
    /// right_of_way.4
    is_over: AtomicBool,
    holder: Mutex<Option<Holder>>,
    given_back: Condvar,
    turns: Mutex<Turns>,
    turn_given_back: Condvar,
    /// No commit is under way.
    passed: Condvar,
}

/// Those who want it come one after the other.
#[derive(Default)]
struct Turns {
    is_taken: bool,
    /// The exclusive transactions that wait, by number (right_of_way.3).
    queue: VecDeque<u64>,
    next: u64,
}

#[derive(Clone, Copy)]
struct Holder {
    /// Which one it is.
    number: u64,
    /// That of an exclusive transaction is the one that began it. Its own commit does not ask.
    thread: ThreadId,
    /// So long each of the others waits (right_of_way.2); none: as long as it takes.
    patience: Option<Duration>,
}

/// A commit under way, until it drops.
pub(super) struct Passage<'a>(&'a RightOfWay);

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_held.load(Ordering::SeqCst) {
            let _turns = self.0.turns.lock();
            self.0.passed.notify_all();
        }
    }
}

/// Has the right of way until it drops. For the thread that has taken it.
pub(crate) struct Held<'a> {
    right: &'a RightOfWay,
}

/// The turn of an exclusive transaction, until it drops.
pub(crate) struct Turn(Arc<Handle>);

impl Turn {
    /// Waits for it.
    pub(crate) fn take(handle: Arc<Handle>) -> Self {
        handle.core.right_of_way.take_turn();
        Turn(handle)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.core.right_of_way.give_back();
    }
}

impl RightOfWay {
    /// Takes it for this thread. None: others had it for too long, or this thread has it already.
    pub(crate) fn take(&self) -> Option<Held<'_>> {
        let this = std::thread::current().id();
        if self.holder.lock().is_some_and(|holder| holder.thread == this) {
            return None;
        }
        let mut turns = self.turns.lock();
        let is_busy = |turns: &mut Turns| turns.is_taken || !turns.queue.is_empty();
        self.turn_given_back.wait_while_for(&mut turns, is_busy, HOLD_MIN);
        if is_busy(&mut turns) {
            return None;
        }
        self.hold(&mut turns, Some(HOLD_MIN));
        Some(Held { right: self })
    }

    /// right_of_way.3
    fn take_turn(&self) {
        let mut turns = self.turns.lock();
        let this = turns.next;
        turns.next += 1;
        turns.queue.push_back(this);
        let is_before = |turns: &mut Turns| turns.is_taken || turns.queue.front() != Some(&this);
        self.turn_given_back.wait_while(&mut turns, is_before);
        turns.queue.pop_front();
        self.hold(&mut turns, None);
        let are_under_way = |_: &mut Turns| self.under_way.load(Ordering::SeqCst) > 0;
        self.passed.wait_while(&mut turns, are_under_way);
    }

    fn hold(&self, turns: &mut Turns, patience: Option<Duration>) {
        turns.is_taken = true;
        turns.next += 1;
        *self.holder.lock() =
            Some(Holder { number: turns.next, thread: std::thread::current().id(), patience });
        self.is_held.store(true, Ordering::SeqCst);
    }

    /// right_of_way.4
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _holder = self.holder.lock();
        self.given_back.notify_all();
    }

    fn give_back(&self) {
        self.is_held.store(false, Ordering::SeqCst);
        *self.holder.lock() = None;
        self.given_back.notify_all();
        self.turns.lock().is_taken = false;
        self.turn_given_back.notify_all();
    }

    /// Lets the thread go first that has it (right_of_way.1).
    #[inline]
    pub(super) fn give_way(&self) -> Passage<'_> {
        loop {
            self.under_way.fetch_add(1, Ordering::SeqCst);
            let passage = Passage(self);
            if !self.is_held.load(Ordering::SeqCst) {
                return passage;
            }
            drop(passage);
            if self.wait() {
                self.under_way.fetch_add(1, Ordering::SeqCst);
                return Passage(self);
            }
        }
    }

    /// Passes if nobody has it.
    pub(super) fn pass_if_free(&self) -> Option<Passage<'_>> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let passage = Passage(self);
        (!self.is_held.load(Ordering::SeqCst)).then_some(passage)
    }

    /// Waits for who has it; whether this thread goes on whoever has it then.
    #[cold]
    fn wait(&self) -> bool {
        let this = std::thread::current().id();
        let mut holder = self.holder.lock();
        let Some(first) = *holder else { return false };
        if first.thread == this || self.is_over.load(Ordering::SeqCst) {
            return true;
        }
        // right_of_way.2
        let is_in_the_way = |holder: &mut Option<Holder>| {
            holder.is_some_and(|holder| holder.number == first.number) && !self.is_over.load(Ordering::SeqCst)
        };
        match first.patience {
            Some(patience) => {
                let _ = self.given_back.wait_while_for(&mut holder, is_in_the_way, patience);
                true
            }
            None => {
                self.given_back.wait_while(&mut holder, is_in_the_way);
                self.is_over.load(Ordering::SeqCst)
            }
        }
    }
}

impl Held<'_> {
    /// The holder has conflicted nevertheless: from now on others wait twice as long.
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

    #[test]
    fn right_of_way_1_others_wait_and_its_holder_does_not() {
        let right = RightOfWay::default();
        let passed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let held = right.take().unwrap();
            assert!(right.take().is_none(), "this thread has it");
            drop(right.give_way());
            let other = scope.spawn(|| {
                drop(right.give_way());
                passed.fetch_add(1, Ordering::SeqCst)
            });
            assert_eq!(passed.load(Ordering::SeqCst), 0, "right_of_way.1");
            drop(held);
            assert_eq!(other.join().unwrap(), 0);
        });
        drop(right.give_way());
    }

    #[test]
    fn right_of_way_3_an_exclusive_turn_begins_when_the_commits_under_way_have_ended() {
        let right = RightOfWay::default();
        let passage = right.give_way();
        std::thread::scope(|scope| {
            let exclusive = scope.spawn(|| right.take_turn());
            while !right.is_held.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(!exclusive.is_finished(), "right_of_way.3");
            drop(passage);
            exclusive.join().unwrap();
            let other = scope.spawn(|| drop(right.give_way()));
            right.end();
            other.join().unwrap();
        });
    }

    #[test]
    fn right_of_way_3_exclusive_turns_come_in_the_order_in_which_they_were_asked_for() {
        let right = RightOfWay::default();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            right.take_turn();
            for n in 0..5 {
                let (right, order) = (&right, &order);
                scope.spawn(move || {
                    right.take_turn();
                    order.lock().push(n);
                    right.give_back();
                });
                while right.turns.lock().queue.len() <= n {
                    std::thread::yield_now();
                }
            }
            let other = scope.spawn(|| drop(right.give_way()));
            assert!(scope.spawn(|| right.take().is_none()).join().unwrap());
            assert!(!other.is_finished(), "right_of_way.1");
            right.give_back();
        });
        assert_eq!(*order.lock(), [0, 1, 2, 3, 4], "right_of_way.3");
    }

    #[test]
    fn right_of_way_2_nobody_waits_for_ever() {
        let right = RightOfWay::default();
        std::thread::scope(|scope| {
            let held = right.take().unwrap();
            scope.spawn(|| drop(right.give_way())).join().unwrap();
            (0..20).for_each(|_| held.be_patient());
            assert_eq!(right.holder.lock().unwrap().patience, Some(HOLD_MAX), "right_of_way.2");
            assert!(scope.spawn(|| right.take().is_none()).join().unwrap(), "right_of_way.2");
        });
    }
}
