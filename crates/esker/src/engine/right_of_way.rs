//! The right of way: a transaction that has conflicted again and again runs once while nobody else commits.
//!
//! ```text
//!   transact (db/transact.rs) --take--> RightOfWay <--give_way-- every other commit (admission.rs)
//! ```
//!
//! right_of_way.1. While a thread has it, commits of other threads wait, so a transaction that begins then meets only those that had
//!      entered before.
//! right_of_way.2. Nobody waits for it longer than its holder's patience allows, so it delays others and stops nobody: not even a holder that
//!      waits for another thread's commit. The patience is [`HOLD_MIN`] first and doubles with each further conflict, up to [`HOLD_MAX`]: a
//!      transaction that takes longer commits in the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// So long others wait at first.
const HOLD_MIN: Duration = Duration::from_millis(250);
/// So long others wait at the most.
const HOLD_MAX: Duration = Duration::from_secs(64);

#[derive(Default)]
pub(crate) struct RightOfWay {
    /// Whether there is a holder. Relaxed: a hint that spares commits the lock; one that misses it commits as if it had come before.
    is_held: AtomicBool,
    holder: Mutex<Option<Holder>>,
    given_back: Condvar,
    /// Those who want it come one after the other.
    turn: Mutex<()>,
}

#[derive(Clone, Copy)]
struct Holder {
    thread: ThreadId,
    /// So long each of the others waits (right_of_way.2).
    patience: Duration,
}

/// Has the right of way until it drops. For the thread that has taken it.
pub(crate) struct Held<'a> {
    right: &'a RightOfWay,
    _turn: MutexGuard<'a, ()>,
}

impl RightOfWay {
    /// Takes it for this thread. None: others had it for too long, or this thread has it already.
    pub(crate) fn take(&self) -> Option<Held<'_>> {
        let this = std::thread::current().id();
        if self.holder.lock().is_some_and(|holder| holder.thread == this) {
            return None;
        }
        let turn = self.turn.try_lock_for(HOLD_MIN)?;
        *self.holder.lock() = Some(Holder { thread: this, patience: HOLD_MIN });
        self.is_held.store(true, Ordering::Relaxed);
        Some(Held { right: self, _turn: turn })
    }

    /// Lets the thread go first that has it (right_of_way.1).
    #[inline]
    pub(super) fn give_way(&self) {
        if self.is_held.load(Ordering::Relaxed) {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        let this = std::thread::current().id();
        let mut holder = self.holder.lock();
        let Some(first) = holder.filter(|first| first.thread != this) else { return };
        // right_of_way.2
        let is_in_the_way =
            |holder: &mut Option<Holder>| holder.is_some_and(|holder| holder.thread == first.thread);
        self.given_back.wait_while_for(&mut holder, is_in_the_way, first.patience);
    }
}

impl Held<'_> {
    /// The holder has conflicted nevertheless: from now on others wait twice as long.
    pub(crate) fn be_patient(&self) {
        if let Some(holder) = &mut *self.right.holder.lock() {
            holder.patience = (holder.patience * 2).min(HOLD_MAX);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.right.is_held.store(false, Ordering::Relaxed);
        *self.right.holder.lock() = None;
        self.right.given_back.notify_all();
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
            right.give_way();
            let other = scope.spawn(|| {
                right.give_way();
                passed.fetch_add(1, Ordering::SeqCst)
            });
            assert_eq!(passed.load(Ordering::SeqCst), 0, "right_of_way.1");
            drop(held);
            assert_eq!(other.join().unwrap(), 0);
        });
        right.give_way();
    }

    #[test]
    fn right_of_way_2_nobody_waits_for_ever() {
        let right = RightOfWay::default();
        std::thread::scope(|scope| {
            let held = right.take().unwrap();
            scope.spawn(|| right.give_way()).join().unwrap();
            (0..20).for_each(|_| held.be_patient());
            assert_eq!(right.holder.lock().unwrap().patience, HOLD_MAX, "right_of_way.2");
            assert!(scope.spawn(|| right.take().is_none()).join().unwrap(), "right_of_way.2");
        });
    }
}
