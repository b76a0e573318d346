//! Tests of locks alone, without a database.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn turn() -> ExclusiveTurn {
    ExclusiveTurn::default()
}

fn name(name: &str) -> LockName {
    LockName::of_user(name)
}

fn waiters(locks: &Locks) -> usize {
    locks.table.lock().waits.len()
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

#[test]
fn shared_holders_share_and_exclusive_ones_do_not() {
    let locks = Locks::default();
    let [a, b, c] = [1, 2, 3];
    let lock = name("x");
    let try_now = |owner, mode| locks.acquire(owner, &lock, mode, Duration::ZERO, &turn()).is_ok();
    assert!(try_now(a, LockMode::Shared) && try_now(b, LockMode::Shared));
    assert!(!try_now(c, LockMode::Exclusive) && !try_now(a, LockMode::Exclusive));
    locks.give_back(b, std::slice::from_ref(&lock));
    assert!(try_now(a, LockMode::Exclusive), "the only one that shares it");
    assert!(try_now(a, LockMode::Shared) && !try_now(c, LockMode::Shared));
    locks.give_back(a, std::slice::from_ref(&lock));
    assert!(try_now(c, LockMode::Exclusive));
    locks.give_back(c, std::slice::from_ref(&lock));
    assert_eq!((locks.len(), waiters(&locks)), (0, 0), "nothing is left behind");
}

#[test]
fn they_come_in_the_order_in_which_they_asked() {
    let locks = Locks::default();
    let (lock, order) = (name("x"), Mutex::new(Vec::new()));
    locks.acquire(100, &lock, LockMode::Exclusive, LONG, &turn()).unwrap();
    std::thread::scope(|scope| {
        for owner in 1..6 {
            let (locks, lock, order) = (&locks, &lock, &order);
            scope.spawn(move || {
                locks.acquire(owner, lock, LockMode::Exclusive, LONG, &turn()).unwrap();
                order.lock().push(owner);
                locks.give_back(owner, std::slice::from_ref(lock));
            });
            until(|| waiters(locks) == owner as usize);
        }
        locks.give_back(100, std::slice::from_ref(&lock));
    });
    assert_eq!(*order.lock(), [1, 2, 3, 4, 5]);
}

#[test]
fn locks_2_the_youngest_of_a_cycle_fails_and_the_others_go_on() {
    for first in 0..3 {
        let locks = Locks::default();
        let (names, failed) = (["x", "y", "z"].map(name), AtomicU32::new(0));
        for owner in 0..3 {
            locks.acquire(owner + 1, &names[owner as usize], LockMode::Exclusive, LONG, &turn()).unwrap();
        }
        std::thread::scope(|scope| {
            // The youngest owner fails, whichever one closes the cycle.
            for n in 0..3 {
                let (locks, names, failed) = (&locks, &names, &failed);
                let owner = (first + n) % 3;
                scope.spawn(move || {
                    let next = &names[(owner + 1) % 3];
                    match locks.acquire(owner as u64 + 1, next, LockMode::Exclusive, LONG, &turn()) {
                        Ok(_) => locks.give_back(owner as u64 + 1, std::slice::from_ref(next)),
                        Err(Error::Deadlock(cycle)) => {
                            assert_eq!(owner, 2, "locks.2: {cycle}");
                            assert_eq!(cycle.matches("waits for").count(), 3, "{cycle}");
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(other) => panic!("{other}"),
                    }
                    locks.give_back(owner as u64 + 1, &names[owner..=owner]);
                });
                until(|| n == 2 || waiters(locks) == n + 1);
            }
        });
        assert_eq!((failed.load(Ordering::Relaxed), locks.len(), waiters(&locks)), (1, 0, 0), "locks.2");
    }
}

#[test]
fn locks_2_two_that_share_a_lock_and_both_want_it_alone_are_a_cycle() {
    let locks = Locks::default();
    let lock = name("x");
    locks.acquire(1, &lock, LockMode::Shared, LONG, &turn()).unwrap();
    locks.acquire(2, &lock, LockMode::Shared, LONG, &turn()).unwrap();
    std::thread::scope(|scope| {
        let older = scope.spawn(|| locks.acquire(1, &lock, LockMode::Exclusive, LONG, &turn()));
        until(|| waiters(&locks) == 1);
        let younger = locks.acquire(2, &lock, LockMode::Exclusive, LONG, &turn());
        assert!(matches!(younger, Err(Error::Deadlock(_))), "locks.2: {younger:?}");
        locks.give_back(2, std::slice::from_ref(&lock));
        older.join().unwrap().unwrap();
    });
}

#[test]
fn a_waiter_gets_it_after_a_few_others_at_most() {
    let locks = Locks::default();
    let lock = name("x");
    let mut longest = 0;
    for round in 0..50 {
        let first = round * 1000;
        locks.acquire(first, &lock, LockMode::Exclusive, LONG, &turn()).unwrap();
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| locks.acquire(first + 999, &lock, LockMode::Exclusive, LONG, &turn()));
            until(|| waiters(&locks) == 1);
            let (mut owner, mut barged) = (first, 0);
            loop {
                locks.give_back(owner, std::slice::from_ref(&lock));
                owner += 1;
                if locks.acquire(owner, &lock, LockMode::Exclusive, Duration::ZERO, &turn()).is_err() {
                    break;
                }
                barged += 1;
            }
            waiter.join().unwrap().unwrap();
            longest = longest.max(barged);
        });
        locks.give_back(first + 999, std::slice::from_ref(&lock));
    }
    assert!(longest <= BARGES_MAX, "{longest}");
    assert_eq!(locks.len(), 0);
}

#[test]
fn a_wait_that_times_out_leaves_the_queue() {
    let locks = Locks::default();
    let lock = name("x");
    locks.acquire(1, &lock, LockMode::Exclusive, LONG, &turn()).unwrap();
    let short = Duration::from_millis(5);
    let failed = locks.acquire(2, &lock, LockMode::Shared, short, &turn());
    assert!(matches!(failed, Err(Error::LockTimeout { waited, .. }) if waited == short));
    locks.give_back(1, &[lock]);
    assert_eq!((locks.len(), waiters(&locks)), (0, 0));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "real threads, and real time to see that none waits")]
fn a_commit_passes_a_transaction_that_holds_the_turn_and_waits_for_its_lock() {
    for commit_first in [true, false] {
        let (locks, exclusive_turn, lock) = (Locks::default(), turn(), name("x"));
        let begun = std::time::Instant::now();
        std::thread::scope(|scope| {
            let held = exclusive_turn.take().unwrap();
            (0..20).for_each(|_| held.be_patient());
            let commit = || {
                locks.acquire(1, &lock, LockMode::Exclusive, LONG, &exclusive_turn).unwrap();
                until(|| commit_first || waiters(&locks) == 1);
                drop(exclusive_turn.wait_for_exclusive(&locks).unwrap());
                locks.give_back(1, std::slice::from_ref(&lock));
            };
            let commit = scope.spawn(commit);
            until(|| locks.len() == 1 && (!commit_first || locks.table.lock().turn_waits.len() == 1));
            locks.acquire(2, &lock, LockMode::Exclusive, LONG, &exclusive_turn).unwrap();
            commit.join().unwrap();
            drop(held);
        });
        assert!(begun.elapsed() < LONG / 2);
    }
}

/// Counts how often a task was woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tasks that ask for locks.
#[derive(Default)]
struct Tasks {
    locks: Locks,
    woken: [Arc<Woken>; 6],
}

impl Tasks {
    fn ask(&self, owner: OwnerId, lock: &str, mode: LockMode) -> Result<Asked> {
        let waker = Waker::from(self.woken[owner as usize].clone());
        self.locks.ask(owner, &name(lock), mode, Some(&waker), &turn())
    }

    fn asks(&self, owner: OwnerId, lock: &str, mode: LockMode) -> Asked {
        self.ask(owner, lock, mode).unwrap()
    }

    /// The tasks that were woken since the last time.
    fn woken(&self) -> Vec<usize> {
        (0..6).filter(|owner| self.woken[*owner].0.swap(0, Ordering::Relaxed) > 0).collect()
    }

    fn give_back(&self, owner: OwnerId, lock: &str) -> Vec<usize> {
        self.locks.give_back(owner, &[name(lock)]);
        self.woken()
    }
}

#[test]
fn tasks_are_woken_in_order_and_none_passes_another() {
    use LockMode::{Exclusive, Shared};
    let tasks = Tasks::default();
    assert_eq!([1, 2].map(|owner| tasks.asks(owner, "a", Shared)), [Asked::Granted; 2]);
    assert_eq!((tasks.asks(3, "a", Exclusive), tasks.asks(4, "a", Shared)), (Asked::Waits, Asked::Waits));
    assert_eq!((tasks.asks(1, "a", Shared), tasks.asks(3, "a", Exclusive)), (Asked::Held, Asked::Waits));
    assert_eq!((tasks.give_back(1, "a"), tasks.give_back(2, "a")), (vec![], vec![3]));
    assert_eq!((tasks.asks(5, "a", Shared), tasks.asks(4, "a", Shared)), (Asked::Waits, Asked::Waits));
    assert_eq!((tasks.asks(3, "a", Exclusive), tasks.give_back(3, "a")), (Asked::Granted, vec![4]));
    assert_eq!((tasks.asks(4, "a", Shared), tasks.woken()), (Asked::Granted, vec![5]), "both share it");
    tasks.locks.stop_asking(5);
    assert_eq!((tasks.asks(4, "a", Exclusive), tasks.asks(1, "a", Shared)), (Asked::Held, Asked::Waits));
    assert_eq!((tasks.give_back(4, "a"), tasks.asks(1, "a", Shared)), (vec![1], Asked::Granted));
    assert_eq!((tasks.give_back(1, "a"), tasks.locks.len(), waiters(&tasks.locks)), (vec![], 0, 0));
}

#[test]
fn a_task_that_asks_in_another_mode_begins_again() {
    use LockMode::{Exclusive, Shared};
    let tasks = Tasks::default();
    assert_eq!(tasks.asks(1, "x", Exclusive), Asked::Granted);
    assert_eq!([2, 3].map(|task| tasks.asks(task, "x", Shared)), [Asked::Waits, Asked::Waits]);
    tasks.give_back(1, "x");
    assert_eq!(tasks.asks(2, "x", Shared), Asked::Granted);
    assert_eq!(tasks.asks(3, "x", Exclusive), Asked::Waits, "another one shares it");
    assert_eq!(tasks.asks(3, "x", Shared), Asked::Granted, "it waits for nothing anymore");
}

#[test]
fn locks_2_the_youngest_task_of_a_cycle_fails() {
    use LockMode::{Exclusive, Shared};
    let tasks = Tasks::default();
    for (owner, lock) in [(1, "a"), (2, "b"), (3, "c")] {
        assert_eq!(tasks.asks(owner, lock, Exclusive), Asked::Granted);
    }
    assert_eq!((tasks.asks(2, "c", Exclusive), tasks.asks(3, "a", Shared)), (Asked::Waits, Asked::Waits));
    assert_eq!((tasks.asks(1, "b", Shared), tasks.woken()), (Asked::Waits, vec![3]), "locks.2");
    assert!(matches!(tasks.ask(3, "a", Shared), Err(Error::Deadlock(_))), "locks.2");
    assert_eq!((tasks.give_back(3, "c"), tasks.asks(2, "c", Exclusive)), (vec![2], Asked::Granted));
    tasks.locks.give_back(2, &[name("b"), name("c")]);
    assert_eq!((tasks.woken(), tasks.asks(1, "b", Shared)), (vec![1], Asked::Granted));
    tasks.locks.give_back(1, &[name("a"), name("b")]);
    // Two share a lock, and each wants it alone.
    assert_eq!([4, 5].map(|owner| tasks.asks(owner, "s", Shared)), [Asked::Granted; 2]);
    assert_eq!(tasks.asks(4, "s", Exclusive), Asked::Waits);
    assert!(matches!(tasks.ask(5, "s", Exclusive), Err(Error::Deadlock(_))), "locks.2");
    assert_eq!(tasks.woken(), [5]);
    assert_eq!((tasks.give_back(5, "s"), tasks.asks(4, "s", Exclusive)), (vec![4], Asked::Held));
    assert_eq!((tasks.give_back(4, "s"), tasks.locks.len(), waiters(&tasks.locks)), (vec![], 0, 0));
}

#[test]
fn locks_2_a_thread_that_closes_a_cycle_with_a_younger_task_has_the_task_fail() {
    let tasks = Tasks::default();
    let (locks, mode) = (&tasks.locks, LockMode::Exclusive);
    assert_eq!(tasks.asks(5, "a", mode), Asked::Granted);
    locks.acquire(1, &name("b"), mode, LONG, &turn()).unwrap();
    assert_eq!(tasks.asks(5, "b", mode), Asked::Waits);
    std::thread::scope(|scope| {
        let older = scope.spawn(|| locks.acquire(1, &name("a"), mode, LONG, &turn()));
        until(|| tasks.woken() == [5]);
        assert!(matches!(tasks.ask(5, "b", mode), Err(Error::Deadlock(_))), "locks.2");
        locks.give_back(5, &[name("a")]);
        older.join().unwrap().unwrap();
    });
}
