//! Compaction steps that fail, find no space, or have nothing to do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, ManualClock, MemFs, OpKind};

use super::compaction_ns;
use crate::types::interleave::{self, Point};
use crate::{Blobs, Db, Durability, Error};

/// Returns a database of six runs of 100 KB that compaction turns into one.
fn six_runs(clock: Arc<ManualClock>) -> (Db, MemFs, FaultFs) {
    some_runs(6, clock)
}

fn stepped(env: Env, table_bytes: u64) -> Db {
    let builder = Db::builder().stepped().tuning(|t| t.table_bytes(table_bytes)).blobs(Blobs::Never);
    builder.env(env).open(Path::new("db")).unwrap()
}

/// Returns such a database with `runs` runs.
fn some_runs(runs: usize, clock: Arc<ManualClock>) -> (Db, MemFs, FaultFs) {
    let disk = MemFs::new();
    let faults = FaultFs::new(Arc::new(disk.clone()));
    let env = Env { clock, ..Env::simulated(Arc::new(faults.clone()), 1) };
    let db = stepped(env, 1 << 20);
    let map = db.default_keyspace();
    let mut bytes = fastrand::Rng::with_seed(1);
    for _ in 0..runs {
        for key in 0..20_u8 {
            map.put([key], std::iter::repeat_with(|| bytes.u8(..)).take(5000).collect::<Vec<_>>()).unwrap();
        }
        db.flush().unwrap();
    }
    assert_eq!(db.handle.core.version().runs().len(), runs);
    (db, disk, faults)
}

#[test]
fn engine_background_2_after_a_panic_between_the_manifest_and_the_view_nothing_is_changed_any_more() {
    // A panic in a flush, then in a compaction.
    for compacts in [false, true] {
        let (db, disk, _) = six_runs(Arc::new(ManualClock::new()));
        let map = db.default_keyspace();
        map.put([7], "last").unwrap();
        let core = &db.handle.core;
        core.pipeline.seal().unwrap();
        core.view.bursts.store(true, Ordering::Relaxed);
        let work =
            AssertUnwindSafe(|| if compacts { core.compaction_step(false) } else { core.flush_step() });
        assert!(catch_unwind(work).is_err(), "compacts: {compacts}");
        assert!(!core.view.bursts.load(Ordering::Relaxed), "it was the view that burst");
        let names = || {
            let mut names = disk.list_dir(Path::new("db")).unwrap();
            names.sort();
            names
        };
        let before = names();
        for refused in [db.flush(), db.compact(), map.put([8], "later").map(drop)] {
            assert!(
                matches!(refused, Err(Error::Poisoned(_))),
                "engine_background.2, compacts {compacts}: {refused:?}"
            );
        }
        assert!(matches!(core.compaction_step(true), Err(Error::Poisoned(_))), "engine_background.2");
        assert_eq!(names(), before, "engine_background.2");
        assert_eq!(map.get([7]).unwrap().as_deref(), Some(&b"last"[..]), "reads go on");
        assert_eq!((map.len().unwrap(), map.iter().count()), (20, 20), "reads go on");
        drop(map);
        assert!(matches!(db.close(), Err(Error::Poisoned(_))));
        let env = Env::simulated(Arc::new(disk.crash_strict()), 1);
        let db = Db::builder()
            .stepped()
            .tuning(|t| t.table_bytes(1 << 20))
            .blobs(Blobs::Never)
            .env(env)
            .open(Path::new("db"))
            .unwrap();
        let map = db.default_keyspace();
        assert_eq!((map.len().unwrap(), map.iter().count()), (20, 20));
        assert_eq!(map.get([7]).unwrap().as_deref(), Some(&b"last"[..]));
        let problems = db.check().unwrap().problems;
        assert!(problems.is_empty(), "{problems:?}");
    }
}

#[test]
fn table_4_a_table_whose_file_cannot_be_removed_without_a_panic_disturbs_no_other_work() {
    let (db, disk, faults) = six_runs(Arc::new(ManualClock::new()));
    faults.add(FaultRule::new(&[OpKind::Remove], FaultAction::Panic).on_path(".sst").forever());
    db.compact().unwrap();
    // Until no epoch pins them.
    db.handle.core.view.reclaim_all();
    assert!(faults.fired() > 0);
    let map = db.default_keyspace();
    map.put([1], "later").unwrap();
    assert_eq!(map.len().unwrap(), 20);
    drop(map);
    db.close().unwrap();
    let env = Env::simulated(Arc::new(disk.clone()), 1);
    let db = Db::builder().stepped().env(env).open(Path::new("db")).unwrap();
    assert_eq!(db.default_keyspace().len().unwrap(), 20);
    let left = disk.list_dir(Path::new("db")).unwrap().into_iter().filter(|name| name.ends_with(".sst"));
    assert_eq!(left.count() as u64, db.stats().tables, "opening removes what stayed behind");
}

#[test]
fn where_the_disk_has_no_space_for_all_memtables_the_oldest_is_flushed_alone() {
    let disk = MemFs::new();
    let open = |disk: &MemFs| {
        let env = Env::simulated(Arc::new(disk.clone()), 1);
        Db::builder()
            .stepped()
            .tuning(|t| t.memtable_bytes(64 << 10))
            .blobs(Blobs::Never)
            .env(env)
            .open(Path::new("db"))
            .unwrap()
    };
    let db = open(&disk);
    let (map, core) = (db.default_keyspace(), &db.handle.core);
    let mut bytes = fastrand::Rng::with_seed(1);
    let mut put =
        |key: u8| map.put([key], std::iter::repeat_with(|| bytes.u8(..)).take(50_000).collect::<Vec<_>>());
    for key in 0..3 {
        put(key).unwrap();
        core.pipeline.seal().unwrap();
    }
    assert_eq!(core.pipeline.sealed_len(), 3);
    // Space for one table and its manifest edit, not for three.
    disk.set_capacity(Some(disk.used_bytes() + 80_000));
    assert!(core.flush_step().unwrap());
    assert_eq!((core.pipeline.sealed_len(), db.stats().flushes), (2, 1));
    // The part of the log that it frees is the space for the next one.
    while core.flush_step().unwrap() {}
    assert_eq!((core.pipeline.sealed_len(), db.stats().flushes), (0, 3));
    assert_eq!(map.len().unwrap(), 3);
    let db = open(&disk.crash_strict());
    assert_eq!((db.default_keyspace().len().unwrap(), db.check().unwrap().tables), (3, 3));
}

#[test]
fn a_flush_does_not_work_for_those_who_write_meanwhile() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = Db::builder().stepped().env(env).open(Path::new("db")).unwrap();
    let (map, core) = (db.keyspace("map").unwrap(), &db.handle.core);
    let fill = || map.put("a", "1").and_then(|_| core.pipeline.seal());
    fill().unwrap();
    let mut steps = 0;
    let flushed = core.flush_sealed(|| {
        steps += 1;
        let done = core.flush_step()?;
        fill()?;
        if steps < 10 {
            Ok(done)
        } else {
            Err(Error::Invalid("it continues while another thread writes".into()))
        }
    });
    assert!(flushed.is_ok(), "{flushed:?}");
    assert_eq!((steps, core.pipeline.sealed_len()), (1, 1));
}

#[test]
fn flushes_and_compactions_are_counted_once_the_manifest_has_them() {
    let (db, _, faults) = some_runs(2, Arc::new(ManualClock::new()));
    let counted = || {
        let stats = db.stats();
        (stats.flushes, stats.compactions, stats.flush_bytes_written > 0, stats.compaction_bytes_written > 0)
    };
    let before = counted();
    db.default_keyspace().put("new", "").unwrap();
    faults.add(FaultRule::new(&[OpKind::Write], FaultAction::NoSpace).on_path("MANIFEST").forever());
    db.flush().unwrap_err();
    assert_eq!(counted(), before);
    faults.clear();
    db.flush().unwrap();
    assert_eq!(counted(), (before.0 + 1, 0, true, false));
    faults.add(FaultRule::new(&[OpKind::Write], FaultAction::NoSpace).on_path("MANIFEST").forever());
    db.handle.core.compaction_step(true).unwrap_err();
    assert_eq!(counted(), (before.0 + 1, 0, true, false));
    faults.clear();
    db.compact().unwrap();
    assert_eq!(counted(), (before.0 + 1, 1, true, true));
}

#[test]
fn what_a_snapshot_held_is_given_back_when_it_is_released_and_the_database_is_idle() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = Db::builder().stepped().env(env).open(Path::new("db")).unwrap();
    let map = db.keyspace("map").unwrap();
    for n in 0..1000_u32 {
        map.put(n.to_be_bytes(), [0; 100]).unwrap();
    }
    db.compact().unwrap();
    let snapshot = db.snapshot();
    map.clear().unwrap();
    db.flush().unwrap();
    let settle = || while db.handle.core.compaction_step(true).unwrap() {};
    settle();
    assert!(db.stats().table_bytes > 1000, "the snapshot needs it");
    assert_eq!((snapshot.len(&map).unwrap(), map.len().unwrap()), (1000, 0));
    drop(snapshot);
    settle();
    assert!(db.stats().table_bytes < 1000, "no reader needs it");
    assert_eq!(map.first().unwrap(), None);
}

#[test]
fn compact_3_covered_3_the_log_is_durable_before_tables_go_for_a_tombstone_in_it() {
    let disk = MemFs::new();
    let open = |disk: &MemFs| {
        let env = Env::simulated(Arc::new(disk.clone()), 1);
        Db::builder().stepped().durability(Durability::None).env(env).open(Path::new("db")).unwrap()
    };
    let db = open(&disk);
    let map = db.default_keyspace();
    (0..100_u8).for_each(|key| map.put([key], "1").map(drop).unwrap());
    db.compact().unwrap();
    map.clear().unwrap();
    map.put("a", "2").unwrap();
    assert!(db.handle.core.compaction_step(false).unwrap());
    assert_eq!((db.stats().tables, db.stats().tables_dropped, db.stats().flushes), (0, 1, 1));
    let left = open(&disk.crash_strict());
    assert_eq!(left.default_keyspace().len().unwrap(), 1, "compact.3");
    assert_eq!(left.default_keyspace().get("a").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn an_idle_compaction_that_finds_no_space_is_not_retried_all_the_time() {
    let disk = MemFs::new();
    disk.set_capacity(Some(1 << 40));
    let faults = FaultFs::new(Arc::new(disk));
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(faults.clone()), 1) };
    let db = Db::builder().stepped().env(env).open(Path::new("db")).unwrap();
    let map = db.default_keyspace();
    map.put("a", "1").unwrap();
    db.compact().unwrap();
    let snapshot = db.snapshot();
    map.delete("a").unwrap();
    map.put("b", "2").unwrap();
    db.flush().unwrap();
    while db.handle.core.compaction_step(true).unwrap() {}
    drop(snapshot);
    faults.add(FaultRule::new(&[OpKind::Create], FaultAction::NoSpace).on_path(".sst").forever());
    let mut failed = 0;
    // One hour in steps of the compaction thread's longest pause.
    for _ in 0..720 {
        match db.handle.core.compaction_step(true) {
            Err(Error::NoSpace { .. }) => failed += 1,
            step => assert!(!step.unwrap()),
        }
        clock.advance(Duration::from_secs(5));
    }
    assert!((8..=12).contains(&failed), "{failed} times");
    assert_eq!(db.stats().compactions_failed, failed);
    // A compaction for the tables' shape is put off only while the disk reports no more space than before.
    clock.advance(Duration::from_secs(3600));
    let failure = FaultAction::Fail(std::io::ErrorKind::Other);
    let fail = || faults.add(FaultRule::new(&[OpKind::Create], failure).on_path(".sst").forever());
    faults.clear();
    fail();
    for _ in 0..5 {
        map.put("c", "3").unwrap();
        db.flush().unwrap_err();
        faults.clear();
        db.flush().unwrap();
        fail();
    }
    for _ in 0..3 {
        assert!(matches!(db.handle.core.compaction_step(false), Err(Error::Io { .. })));
    }
    faults.clear();
    faults.add(FaultRule::new(&[OpKind::Create], FaultAction::NoSpace).on_path(".sst").forever());
    assert!(matches!(db.handle.core.compaction_step(false), Err(Error::NoSpace { .. })));
    assert!(!db.handle.core.compaction_step(false).unwrap(), "it knows of no more space");
    clock.advance(Duration::from_secs(3600));
    faults.clear();
    assert!(db.handle.core.compaction_step(false).unwrap());
    while db.handle.core.compaction_step(true).unwrap() {}
    assert_eq!(db.check().unwrap().entries, 2, "the tombstone is gone");
}

#[test]
fn a_due_compaction_is_retried_ever_less_often_on_a_full_disk_and_soon_with_more_space() {
    let clock = Arc::new(ManualClock::new());
    let (db, disk, _) = six_runs(clock.clone());
    let core = &db.handle.core;
    let compact = || core.compaction_step(false);
    disk.set_capacity(Some(disk.used_bytes() + 1000));
    let mut failed = 0;
    // One hour in steps of the compaction thread's longest pause.
    for _ in 0..720 {
        match compact() {
            Err(Error::NoSpace { .. }) => failed += 1,
            step => assert!(!step.unwrap()),
        }
        clock.advance(Duration::from_secs(5));
    }
    assert!((8..=13).contains(&failed), "{failed} times");
    // A little more space does not cause a retry; more does, although it may not be enough.
    disk.set_capacity(Some(disk.used_bytes() + 10_000));
    assert!(!compact().unwrap());
    disk.set_capacity(Some(disk.used_bytes() + 80_000));
    assert!(matches!(compact(), Err(Error::NoSpace { .. })));
    assert!(!compact().unwrap());
    disk.set_capacity(Some(disk.used_bytes() + 200_000));
    assert!(compact().unwrap(), "at once");
    assert_eq!(core.version().runs().len(), 1);
}

#[test]
fn other_compactions_are_no_reason_to_fill_a_full_disk_again() {
    let (db, disk, _) = six_runs(Arc::new(ManualClock::new()));
    let core = &db.handle.core;
    let compact = || core.compaction_step(false);
    let fill = || disk.set_capacity(Some(disk.used_bytes() + 20_000));
    fill();
    assert!(matches!(compact(), Err(Error::NoSpace { .. })));
    assert!(!compact().unwrap());
    // Tables that overlap nothing are moved regardless of those that are put off.
    disk.set_capacity(None);
    db.default_keyspace().put([200], [1; 5000]).unwrap();
    db.flush().unwrap();
    fill();
    let moves = db.stats().moves;
    assert!(compact().unwrap());
    assert_eq!(db.stats().moves, moves + 1);
    assert!(!compact().unwrap());
    assert_eq!(db.stats().compactions_failed, 1);
}

#[test]
fn a_compaction_that_waits_for_space_does_not_delay_others_that_fit() {
    let disk = MemFs::new();
    let env = Env::simulated(Arc::new(disk.clone()), 1);
    let db = stepped(env, 512 << 10);
    let map = db.default_keyspace();
    let mut bytes = fastrand::Rng::with_seed(1);
    let mut put = |key: u8, len| {
        map.put([key], std::iter::repeat_with(|| bytes.u8(..)).take(len).collect::<Vec<_>>()).unwrap();
    };
    for _ in 0..5 {
        (0..20).for_each(|key| put(key, 5000));
        db.flush().unwrap();
        (100..105).for_each(|key| put(key, 1000));
        db.flush().unwrap();
    }
    let compact = || db.handle.core.compaction_step(false);
    disk.set_capacity(Some(disk.used_bytes() + 50_000));
    assert!(matches!(compact(), Err(Error::NoSpace { .. })), "the large one");
    assert!(compact().unwrap(), "the small one");
    assert!(!compact().unwrap());
    assert_eq!((db.stats().compactions, db.stats().compactions_failed), (1, 1));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a real thread, and real time to see that it waits")]
fn the_compaction_thread_does_not_query_free_space_with_each_commit() {
    // The clock stands still, so the compaction stays put off.
    let (db, disk, faults) = six_runs(Arc::new(ManualClock::new()));
    let core = &db.handle.core;
    disk.set_capacity(Some(disk.used_bytes() + 1000));
    assert!(matches!(core.compaction_step(false), Err(Error::NoSpace { .. })));
    let asked = faults.count(OpKind::Stat);
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| core.compaction_loop());
        // If the machine stalls, until the thread has begun.
        let has_begun = || faults.count(OpKind::Stat) > asked;
        for _ in (0..60_000).take_while(|n| *n < 300 || !has_begun()) {
            core.signal.wake();
            std::thread::sleep(Duration::from_millis(5));
        }
        core.signal.stop();
    });
    let asked = faults.count(OpKind::Stat) - asked;
    // Nor more than a few times per second if it took longer.
    let most = 40 + 4 * (started.elapsed().as_secs() / 2);
    assert!((1..=most).contains(&asked), "{asked} times, {most} at the most");
    assert_eq!(db.stats().compactions_failed, 1);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a real thread, and real time in which it is woken")]
fn engine_background_9_the_database_is_idle_after_a_while_without_commits_and_without_waiting_threads() {
    let clock = Arc::new(ManualClock::new());
    let (db, ..) = some_runs(2, clock.clone());
    let core = &db.handle.core;
    assert!(!core.compaction_step(false).unwrap(), "two runs are compacted only when idle");
    let compactions = || db.stats().compactions;
    // Wakes the thread so often that it has looked several times.
    let wake = |advance: Duration| {
        for _ in 0..50 {
            clock.advance(advance);
            core.signal.wake();
            std::thread::sleep(Duration::from_millis(2));
        }
        compactions()
    };
    let a_while = Duration::from_millis(150);
    let has_room = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| core.compaction_loop());
        let without_time = wake(Duration::ZERO);
        // A commit or a waiter is present at all times.
        let (beside_a_commit, waiter) = core.pipeline.while_committing(|| {
            let compacted = wake(a_while);
            let waiter = scope.spawn(|| core.signal.wait_until(|| has_room.load(Ordering::Relaxed)));
            for _ in (0..60_000).take_while(|_| core.signal.waiting() == 0) {
                std::thread::sleep(Duration::from_millis(5));
            }
            (compacted, waiter)
        });
        let beside_a_waiter = wake(a_while);
        has_room.store(true, Ordering::Relaxed);
        waiter.join().unwrap().unwrap();
        for _ in (0..6_000).take_while(|_| compactions() == 0) {
            wake(a_while);
        }
        core.signal.stop();
        assert_eq!(
            (without_time, beside_a_commit, beside_a_waiter, compactions()),
            (0, 0, 0, 1),
            "engine_background.9"
        );
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "real time for threads of other tests to go on")]
fn the_table_of_a_compaction_that_could_not_be_named_does_not_keep_the_disk_full() {
    let (db, disk, faults) = six_runs(Arc::new(ManualClock::new()));
    let core = &db.handle.core;
    let no_space = || FaultRule::new(&[OpKind::Write], FaultAction::NoSpace).on_path("MANIFEST").forever();
    let names = || disk.list_dir(Path::new("db")).unwrap();
    let tables = || names().into_iter().filter(|name| name.ends_with(".sst")).count();
    disk.set_capacity(Some(disk.used_bytes() + 150_000));
    faults.add(no_space());
    assert!(matches!(core.compaction_step(false), Err(Error::NoSpace { .. })));
    assert_eq!(tables(), 7, "it was written, and may be named");
    assert!(matches!(core.compaction_step(false), Err(Error::NoSpace { .. })), "the manifest is tried");
    faults.clear();
    assert!(core.compaction_step(false).unwrap(), "its table filled the disk");
    // Replaced tables are removed once no thread of another test pins their epoch.
    for _ in (0..60_000).take_while(|_| tables() > 1) {
        core.view.reclaim();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(tables(), 1);
    // The same if idleness is the only reason to compact, and that is put off.
    disk.set_capacity(None);
    db.default_keyspace().put([0], "").unwrap();
    db.flush().unwrap();
    faults.add(no_space());
    let failed = db.stats().compactions_failed;
    for tries in 1..4 {
        assert!(matches!(core.compaction_step(true), Err(Error::NoSpace { .. })));
        assert_eq!((tables(), db.stats().compactions_failed), (3, failed + tries));
    }
    faults.clear();
    assert!(!core.compaction_step(true).unwrap());
    assert_eq!(tables(), 2);
}

#[test]
fn a_compaction_of_a_terabyte_has_its_price() {
    assert_eq!([800 << 20, 1 << 40].map(|bytes| compaction_ns(bytes) / 1_000_000_000), [1, 1310]);
}

/// A database of six runs in each of two key ranges, in which two compactions may run at the same time.
fn two_groups() -> (Db, FaultFs) {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let small = |t: crate::Tuning| t.table_bytes(1 << 20).compactions(2);
    let db = Db::builder().stepped().tuning(small).blobs(Blobs::Never);
    let db = db.env(Env::simulated(Arc::new(faults.clone()), 1)).open(Path::new("db")).unwrap();
    let map = db.default_keyspace();
    let mut bytes = fastrand::Rng::with_seed(1);
    for run in 0..12_u8 {
        for key in 0..20 {
            let value: Vec<_> = std::iter::repeat_with(|| bytes.u8(..)).take(5000).collect();
            map.put([100 * (run % 2) + key, 0], value).unwrap();
        }
        db.flush().unwrap();
    }
    (db, faults)
}

#[test]
fn compaction_turns_1_a_second_compaction_runs_and_fails_beside_the_first() {
    for fails in [false, true] {
        let (db, faults) = two_groups();
        let core = db.handle.core.clone();
        let inner = Arc::new(AtomicUsize::new(0));
        let (seen, beside) = (inner.clone(), core.clone());
        let hook = move |point| {
            if point != Point::CompactionBuilt {
                return;
            }
            assert!(beside.turns.compact.try_lock().is_none(), "a plan runs");
            let failure = FaultAction::Fail(std::io::ErrorKind::Other);
            let rule = FaultRule::new(&[OpKind::Create], failure).on_path(".sst").forever();
            fails.then(|| faults.add(rule));
            let done = beside.compaction_step(false);
            faults.clear();
            assert_eq!(done.is_err(), fails, "{done:?}");
            assert!(fails || done.unwrap(), "the other group is compacted");
            assert_eq!(beside.compaction_step(false).unwrap(), fails, "what failed is tried again");
            seen.fetch_add(1, Ordering::Relaxed);
        };
        let before = interleave::set(Some(Box::new(hook)));
        assert!(core.compaction_step(true).unwrap());
        interleave::set(before);
        assert_eq!(inner.load(Ordering::Relaxed), 1);
        // The first base is made by the second compaction, and joined by the first.
        assert_eq!(core.version().runs().len(), 1, "version.3");
        assert_eq!(core.turns.compact.count(), 0);
        while core.compaction_step(true).unwrap() {}
        assert_eq!(db.default_keyspace().len().unwrap(), 40);
        assert!(db.check().unwrap().problems.is_empty());
    }
}

#[test]
fn compaction_turns_2_covered_tables_of_a_running_compaction_stay_until_it_has_ended() {
    let (db, _) = two_groups();
    let (core, beside) = (db.handle.core.clone(), db.clone());
    let hook = move |point| {
        if point == Point::CompactionBuilt {
            beside.default_keyspace().delete_range([0]..[255]).unwrap();
            assert!(beside.handle.core.compaction_step(false).unwrap());
            assert_eq!(beside.stats().tables_dropped, 6, "those of the other group");
        }
    };
    let before = interleave::set(Some(Box::new(hook)));
    assert!(core.compaction_step(true).unwrap());
    interleave::set(before);
    while core.compaction_step(true).unwrap() {}
    assert_eq!(core.version().runs().len(), 0);
    assert_eq!(db.default_keyspace().len().unwrap(), 0);
    assert!(db.check().unwrap().problems.is_empty());
}
