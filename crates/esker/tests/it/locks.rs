//! Locks together with exclusive transactions, `transact` and closing.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use esker::{Blobs, Db, Error, Isolation, Keyspace, LockMode, Result};

/// Longer than any test takes that does not hang.
const LONG: Duration = Duration::from_secs(60);
/// After this time another thread has begun to wait. If it has not, the test passes without testing its
/// subject.
const MOMENT: Duration = Duration::from_millis(50);

fn db() -> (Db, Keyspace) {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    (db, map)
}

/// Runs `exclusive` in a thread with an open exclusive transaction, and `other` in a thread that holds lock
/// "x". `other_first` decides which of them begins to wait first.
fn deadlock(other_first: bool, other: impl FnOnce(&Db, &Keyspace) + Send) {
    let (db, map) = db();
    let begun = Instant::now();
    let mut exclusive = db.transaction().isolation(Isolation::Exclusive).begin();
    std::thread::scope(|scope| {
        let (db, map) = (&db, &map);
        let (held, is_held) = mpsc::channel();
        scope.spawn(move || {
            let _guard = db.lock_for("x", LockMode::Exclusive, LONG).unwrap();
            held.send(()).unwrap();
            if !other_first {
                std::thread::sleep(MOMENT);
            }
            other(db, map);
        });
        is_held.recv().unwrap();
        if other_first {
            std::thread::sleep(MOMENT);
        }
        let failed = exclusive.lock_name_for("x", LockMode::Shared, LONG);
        assert!(matches!(failed, Err(Error::Deadlock(_))), "locks.2: {failed:?}");
        drop(exclusive);
    });
    assert!(begun.elapsed() < LONG / 2);
}

#[test]
fn locks_2_waiting_for_an_exclusive_transaction_that_waits_for_the_own_lock_is_a_cycle() {
    for other_first in [true, false] {
        deadlock(other_first, |_, map| assert!(map.put("a", "1").is_ok()));
        deadlock(other_first, |db, _| drop(db.create_keyspace("new").unwrap()));
        deadlock(other_first, |_, map| map.set_blobs(Blobs::From(1 << 20)).unwrap());
        deadlock(other_first, |db, map| {
            let mut next = db.transaction().isolation(Isolation::Exclusive).begin();
            next.put(map, "a", "1").unwrap();
            next.commit().unwrap();
        });
    }
}

#[test]
fn locks_2_a_commit_that_waits_for_an_exclusive_transaction_holds_its_locks() {
    for commit_first in [true, false] {
        let (db, map) = db();
        let mut exclusive = db.transaction().isolation(Isolation::Exclusive).begin();
        let mut holder = db.begin();
        holder.lock(&map, "a", LockMode::Exclusive).unwrap();
        holder.put(&map, "a", "1").unwrap();
        std::thread::scope(|scope| {
            // Another thread than the one which took the lock.
            scope.spawn(move || {
                if !commit_first {
                    std::thread::sleep(MOMENT);
                }
                holder.commit().unwrap();
            });
            if commit_first {
                std::thread::sleep(MOMENT);
            }
            let failed = exclusive.lock_for(&map, "a", LockMode::Exclusive, LONG);
            assert!(matches!(failed, Err(Error::Deadlock(_))), "locks.2: {failed:?}");
            drop(exclusive);
        });
        assert!(map.contains("a").unwrap());
    }
}

#[test]
fn locks_2_a_cycle_may_go_through_a_lock_and_an_exclusive_transaction() {
    let (db, map) = db();
    let mut exclusive = db.transaction().isolation(Isolation::Exclusive).begin();
    std::thread::scope(|scope| {
        let (db, map) = (&db, &map);
        let mut committing = db.begin();
        committing.lock(map, "b", LockMode::Exclusive).unwrap();
        committing.put(map, "b", "1").unwrap();
        let mut between = db.begin();
        between.lock(map, "a", LockMode::Exclusive).unwrap();
        scope.spawn(move || committing.commit().unwrap());
        scope.spawn(move || {
            // Whether it fails depends on which began last.
            let _ = between.lock_for(map, "b", LockMode::Exclusive, LONG);
        });
        std::thread::sleep(MOMENT);
        let failed = exclusive.lock_for(map, "a", LockMode::Exclusive, LONG);
        assert!(matches!(failed, Err(Error::Deadlock(_))), "locks.2: {failed:?}");
        drop(exclusive);
    });
}

#[test]
fn a_conflict_or_deadlock_that_the_body_meets_has_it_run_again() {
    let (db, map) = db();
    map.put("b", "1").unwrap();
    let done = db.transaction().run(|t| -> Result<()> {
        t.get(&map, "a")?;
        if t.attempt() == 1 {
            map.put("b", "2")?;
        }
        t.get_for_update(&map, "b")?;
        t.put(&map, "b", "3")
    });
    assert_eq!(done.unwrap().attempts, 2);

    // Each locks one of two names, then the other.
    let both_have_one = std::sync::Barrier::new(2);
    let attempts = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for names in [["x", "y"], ["y", "x"]] {
            let (db, both_have_one, attempts) = (&db, &both_have_one, &attempts);
            scope.spawn(move || {
                let done = db.transaction().run(|t| -> std::result::Result<(), Box<dyn std::error::Error>> {
                    t.lock_name_for(names[0], LockMode::Exclusive, LONG)?;
                    if t.attempt() == 1 {
                        both_have_one.wait();
                    }
                    Ok(t.lock_name_for(names[1], LockMode::Exclusive, LONG)?)
                });
                attempts.fetch_add(done.unwrap().attempts, Ordering::Relaxed);
            });
        }
    });
    assert!(attempts.into_inner() > 2);

    // Other errors end it, even if there was a conflict before and the body continued.
    let gave_up = db.transact(|t| -> Result<()> {
        t.get(&map, "a")?;
        map.put("b", "4")?;
        assert!(t.lock(&map, "b", LockMode::Shared).is_err());
        t.put(&map, "c", "5")?;
        Err(Error::Invalid("given up".to_owned()))
    });
    assert!(matches!(gave_up, Err(Error::Invalid(_))), "{gave_up:?}");
}

#[test]
fn waiting_for_a_lock_or_a_turn_ends_when_the_database_is_closed() {
    let (db, map) = db();
    let begun = Instant::now();
    let exclusive = db.transaction().isolation(Isolation::Exclusive).begin();
    let guard = db.lock_for("x", LockMode::Exclusive, LONG).unwrap();
    std::thread::scope(|scope| {
        let (db, map) = (&db, &map);
        let is_closed = |outcome: Result<()>| assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
        scope.spawn(move || is_closed(db.lock_for("x", LockMode::Shared, LONG).map(drop)));
        scope.spawn(move || is_closed(map.put("a", "1").map(drop)));
        for _ in 0..2 {
            scope.spawn(move || {
                let mut next = db.transaction().isolation(Isolation::Exclusive).begin();
                is_closed(next.put(map, "a", "1"));
                is_closed(next.commit().map(drop).map_err(Error::from));
            });
        }
        std::thread::sleep(MOMENT);
        db.clone().close().unwrap();
    });
    assert!(begun.elapsed() < LONG / 2);
    drop((exclusive, guard));
}

#[test]
fn a_thread_does_not_wait_for_its_own_exclusive_transaction() {
    let (db, map) = db();
    let mut first = db.transaction().isolation(Isolation::Exclusive).begin();
    first.put(&map, "a", "1").unwrap();
    let mut second = db.transaction().isolation(Isolation::Exclusive).begin();
    assert!(matches!(second.get(&map, "a"), Err(Error::Invalid(_))));
    assert!(matches!(second.put(&map, "a", "2"), Err(Error::Invalid(_))));
    assert!(second.commit().is_err());
    let nested = db.transaction().run(|t| t.put(&map, "b", "1"));
    assert!(nested.is_ok(), "others do not wait in this thread");
    // An exclusive transaction that another thread continues is waited for.
    std::thread::scope(|scope| {
        let (moved, is_moved) = mpsc::channel();
        let map = &map;
        scope.spawn(move || {
            first.put(map, "c", "1").unwrap();
            moved.send(()).unwrap();
            std::thread::sleep(MOMENT);
            first.commit().unwrap();
        });
        is_moved.recv().unwrap();
        let second = db.transaction().isolation(Isolation::Exclusive).begin();
        assert!(second.get(map, "c").unwrap().is_some());
    });
}

#[test]
fn an_exclusive_transaction_that_has_left_its_thread_is_waited_for_there() {
    let db = Db::builder().lock_patience(MOMENT).open_in_memory().unwrap();
    let map = &db.default_keyspace();
    let mut first = db.transaction().isolation(Isolation::Exclusive).begin();
    let second = || db.transaction().isolation(Isolation::Exclusive).begin().get(map, "a").map(drop);
    for _ in 0..2 {
        first.put(map, "a", "1").unwrap();
        assert!(matches!(second(), Err(Error::Invalid(_))));
        first.leave_thread();
        assert!(matches!(second(), Err(Error::LockTimeout { .. })));
    }
    // A write of this thread waits until the transaction ends.
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(MOMENT);
            first.leave_thread();
            first.rollback();
        });
        map.put("a", "2").unwrap();
    });
    assert!(begun.elapsed() >= MOMENT);
}

#[test]
fn waits_for_locks_and_turns_end_after_the_patience_of_the_builder() {
    let db = Db::builder().lock_patience(MOMENT).open_in_memory().unwrap();
    let map = &db.default_keyspace();
    let is_late =
        |done: Result<(), Error>| matches!(done, Err(Error::LockTimeout { waited, .. }) if waited == MOMENT);
    let _guard = db.lock("x", LockMode::Exclusive).unwrap();
    assert!(is_late(db.lock("x", LockMode::Shared).map(drop)));
    let mut holder = db.begin();
    holder.lock(map, "a", LockMode::Exclusive).unwrap();
    let mut other = db.begin();
    assert!(is_late(other.lock(map, "a", LockMode::Shared)));
    assert!(is_late(other.lock_name("x", LockMode::Shared)));
    assert!(is_late(other.get_for_update(map, "a").map(drop)));
    drop((holder, other));
    let mut first = db.transaction().isolation(Isolation::Exclusive).begin();
    first.put(map, "a", "1").unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut second = db.transaction().isolation(Isolation::Exclusive).begin();
            assert!(is_late(second.get(map, "a").map(drop)));
            assert!(is_late(second.put(map, "a", "2").map(drop)));
            assert!(is_late(second.commit().map(drop).map_err(|failed| failed.error)));
        });
        other.join().unwrap();
    });
    first.put(map, "b", "1").unwrap();
    first.commit().unwrap();
    let mut third = db.transaction().isolation(Isolation::Exclusive).begin();
    third.put(map, "a", "3").unwrap();
    third.commit().unwrap();
}
