//! Tests of the order of commits, seals, flushes and the timed sync (poison.1, memtables.2).

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_env::{Env, FaultAction, FaultFs, FaultRule, FsRef, MemFs, OpKind};

use super::*;
use crate::Db;
use crate::blob::Blobs;
use crate::read::view::ReadView;
use crate::txn::write_set::WriteSet;

#[test]
#[expect(clippy::disallowed_methods, reason = "a real thread, and real time to see what it does")]
fn timed_sync_1_a_sync_that_waits_to_be_noted_goes_on_with_what_a_long_commit_leaves() {
    let fs = MemFs::new();
    let open = |fs: &MemFs| {
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        let db = Db::builder().background(false).durability(Durability::Buffered).env(env);
        db.open(Path::new("db")).unwrap()
    };
    let db = open(&fs);
    let (map, pipeline) = (db.default_keyspace(), &db.handle.core.pipeline);
    map.put("a", "1").unwrap();
    let outcome = pipeline.state.lock().wal().unwrap().sync_handle().unwrap().sync();
    map.put("b", "2").unwrap();
    let is_durable = || open(&fs.crash_strict()).default_keyspace().contains("b").unwrap();
    assert!(!is_durable());
    let mut state = pipeline.state.lock();
    *pipeline.unsynced.lock() = state.wal().unwrap().sync_handle();
    std::thread::scope(|scope| {
        let noting = scope.spawn(|| pipeline.note_synced(outcome));
        for _ in (0..60_000).take_while(|_| !is_durable()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let is_synced = is_durable();
        drop(state);
        noting.join().unwrap().unwrap();
        assert!(is_synced);
    });
    assert!(pipeline.state.lock().wal().unwrap().sync_handle().is_none(), "both are noted");
}

/// A database with the entry `a` refuses all writes, and shows the entry.
fn assert_only_read(db: Db) {
    let refused =
        |result: Result<()>| assert!(matches!(result, Err(Error::Poisoned(_))), "poison.1: {result:?}");
    let map = db.default_keyspace();
    refused(map.put("b", "2").map(drop));
    refused(db.flush());
    refused(db.sync());
    assert_eq!(map.get("a").unwrap().as_deref(), Some(&b"1"[..]), "reads go on");
    drop(map);
    refused(db.close());
}

#[test]
fn poison_1_nothing_is_written_behind_a_commit_that_ended_halfway() {
    let fs = MemFs::new();
    let open =
        || Db::builder().background(false).env(Env::simulated(Arc::new(fs.clone()), 1)).open(Path::new("db"));
    let db = open().unwrap();
    let map = db.default_keyspace();
    map.put("a", "1").unwrap();
    db.handle.core.pipeline.state.lock().poison.begin();
    assert_only_read(db);
    let db = open().unwrap();
    assert_eq!(db.default_keyspace().len().unwrap(), 1);
}

#[test]
fn poison_1_nothing_is_written_behind_a_seal_that_ended_halfway() {
    // Rotation syncs the log, then its end; then a table is made.
    for (op, path) in [(OpKind::Write, ".wal"), (OpKind::SyncData, ".wal")] {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let open =
            |fs: FsRef| Db::builder().background(false).env(Env::simulated(fs, 1)).open(Path::new("db"));
        let db = open(Arc::new(faults.clone())).unwrap();
        let map = db.default_keyspace();
        map.put("a", "1").unwrap();
        faults.add(FaultRule::new(&[op], FaultAction::Panic).on_path(path));
        let flushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.flush()));
        assert!(flushed.is_err(), "{op:?}");
        assert_only_read(db);
        let db = open(Arc::new(fs.kill())).unwrap();
        assert_eq!(db.default_keyspace().len().unwrap(), 1);
    }
}

/// A point where a commit may panic, and whether later commits may follow.
#[derive(Clone)]
struct PanicPoint {
    what: &'static str,
    rule: FaultRule,
    goes_on: bool,
}

fn panic_points() -> Vec<PanicPoint> {
    let point = |what, op, path: &str, goes_on| {
        let rule = FaultRule::new(&[op], FaultAction::Panic).on_path(path);
        PanicPoint { what, rule, goes_on }
    };
    vec![
        point("a block is read, for the conflicts or the count", OpKind::Read, ".sst", true),
        point("a segment is made", OpKind::Create, ".tmp", true),
        point("its space is reserved", OpKind::Allocate, ".tmp", true),
        point("its zeros are written", OpKind::Write, ".tmp", true),
        point("it is synced", OpKind::SyncData, ".tmp", true),
        point("it gets the name of a prepared one", OpKind::Rename, ".wal-next", true),
        point("that is synced", OpKind::SyncDir, "", true),
        point("the manifest names it", OpKind::Write, "MANIFEST", true),
        point("the manifest is synced", OpKind::SyncData, "MANIFEST", true),
        point("it gets its own name", OpKind::Rename, ".wal", false).nth(2),
        point("that is synced", OpKind::SyncDir, "", false).nth(2),
        point("the record is written", OpKind::Write, ".wal", false),
        point("the record is synced", OpKind::SyncData, ".wal", false),
    ]
}

impl PanicPoint {
    fn nth(self, nth: u64) -> PanicPoint {
        PanicPoint { rule: self.rule.nth(nth), ..self }
    }
}

#[test]
fn poison_1_a_commit_that_panics_has_done_nothing_or_is_the_last() {
    for (point, is_transaction) in
        panic_points().into_iter().flat_map(|point| [(point.clone(), false), (point, true)])
    {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let open = |fs: FsRef| {
            let db = Db::builder().background(false).env(Env::simulated(fs, 1));
            db.open(Path::new("db")).unwrap()
        };
        let db = open(Arc::new(fs.clone()));
        (0..20u8).for_each(|n| db.default_keyspace().put([n], "1").map(drop).unwrap());
        db.compact().unwrap();
        db.close().unwrap();
        // No data of its table is in memory, and the log has no segment.
        let db = open(Arc::new(faults.clone()));
        let map = db.default_keyspace();
        let what = format!("{}, in a transaction: {is_transaction}", point.what);
        faults.add(point.rule);
        let commit = || -> Result<SeqNo> {
            if is_transaction {
                let mut transaction = db.begin();
                transaction.delete_range(&map, [0u8].as_slice()..[5u8].as_slice())?;
                transaction.put(&map, [30], "2")?;
                return Ok(transaction.commit()?);
            }
            let mut batch = db.batch();
            batch.delete_range(&map, [0u8].as_slice()..[5u8].as_slice())?;
            batch.put(&map, [30], "2")?;
            Ok(batch.commit()?)
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(commit)).is_err(), "{what}");
        assert_eq!(faults.fired(), 1, "{what}");
        assert_eq!((map.len().unwrap(), map.iter().count()), (20, 20), "poison.1: reads go on: {what}");
        let next = map.put([31], "3");
        match point.goes_on {
            true => drop(next.unwrap()),
            false => assert!(matches!(next, Err(Error::Poisoned(_))), "poison.1: {what}: {next:?}"),
        }
        let live = 20 + u64::from(point.goes_on);
        assert_eq!((map.len().unwrap(), map.iter().count() as u64), (live, live), "{what}");
        drop(map);
        let closed = db.close();
        assert_eq!(closed.is_ok(), point.goes_on, "{what}: {closed:?}");
        // The record of the panicked commit may be in the log, but then completely.
        for image in [fs.kill(), fs.crash_strict()] {
            let db = open(Arc::new(image));
            let map = db.default_keyspace();
            let len = map.len().unwrap();
            assert!(len == live || !point.goes_on && len == 16, "{what}: {len}");
            assert_eq!(map.iter().count() as u64, len, "{what}");
            let problems = db.check().unwrap().problems;
            assert!(problems.is_empty(), "{what}: {problems:?}");
        }
    }
}

#[test]
fn poison_1_nothing_is_written_behind_a_seal_whose_view_panics() {
    let fs = MemFs::new();
    let open = || {
        let db = Db::builder().background(false).env(Env::simulated(Arc::new(fs.clone()), 1));
        db.open(Path::new("db")).unwrap()
    };
    let db = open();
    let map = db.default_keyspace();
    map.put("a", "1").unwrap();
    let core = &db.handle.core;
    core.view.bursts.store(true, Ordering::Relaxed);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| core.pipeline.seal())).is_err());
    let refused =
        |result: Result<()>| assert!(matches!(result, Err(Error::Poisoned(_))), "poison.1: {result:?}");
    refused(map.put("b", "2").map(drop));
    refused(db.flush());
    refused(db.sync());
    assert_eq!(map.get("a").unwrap().as_deref(), Some(&b"1"[..]), "reads go on");
    assert_eq!((map.len().unwrap(), map.iter().count()), (1, 1), "reads go on");
    drop(map);
    refused(db.close());
    let db = open();
    assert_eq!(db.default_keyspace().len().unwrap(), 1);
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn a_commit_that_would_count_below_zero_is_refused_alone() {
    let fs = MemFs::new();
    let open = |fs: &MemFs| {
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        Db::builder().background(false).env(env).open(Path::new("db")).unwrap()
    };
    let db = open(&fs);
    let map = db.default_keyspace();
    (0..10u8).for_each(|n| map.put([n], "1").map(drop).unwrap());
    // As if a table had more keys than were written to it, with a valid checksum.
    let published = &db.handle.core.pipeline.published;
    published.publish(published.visible(), &[(KeyspaceId::DEFAULT, -6)]);
    let refused = map.delete_range([0u8].as_slice()..[9u8].as_slice()).unwrap_err();
    assert!(refused.is_corrupt() && refused.to_string().contains("esker check"), "{refused}");
    map.delete([0u8]).unwrap();
    map.put("b", "2").unwrap();
    drop(map);
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(db.default_keyspace().iter().count(), 10, "the log is sound");
}

#[test]
fn poison_1_nothing_is_acknowledged_behind_a_write_or_sync_that_panicked() {
    // The kernel reports a failed write-back once, and the panicked thread has consumed it.
    for (op, is_timed) in
        [OpKind::Write, OpKind::SyncData].into_iter().flat_map(|op| [(op, false), (op, true)])
    {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let open = |fs: FsRef| {
            let db = Db::builder().background(false).durability(Durability::None);
            db.env(Env::simulated(fs, 1)).open(Path::new("db"))
        };
        let db = open(Arc::new(faults.clone())).unwrap();
        let map = db.default_keyspace();
        map.put("a", "1").unwrap();
        db.sync().unwrap();
        map.put("b", "2").unwrap();
        faults.add(FaultRule::new(&[op], FaultAction::Panic).on_path(".wal"));
        let core = db.handle.core.clone();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if is_timed { core.pipeline.sync_unsynced() } else { db.sync() }
        }));
        assert!(panicked.is_err(), "{op:?}, {is_timed}");
        let refused =
            |result: Result<()>| assert!(matches!(result, Err(Error::Poisoned(_))), "{op:?}: {result:?}");
        let syncs = faults.count(OpKind::SyncData);
        refused(db.sync());
        refused(map.put("c", "3").map(drop));
        refused(db.flush());
        assert_eq!(faults.count(OpKind::SyncData), syncs, "sync.2");
        assert_eq!(map.get("b").unwrap().as_deref(), Some(&b"2"[..]), "reads go on");
        drop((map, core));
        refused(db.close());
        let db = open(Arc::new(fs.crash_strict())).unwrap();
        assert!(db.default_keyspace().contains("a").unwrap(), "what was acknowledged as durable");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a real thread, and real time to see that it waits")]
fn memtables_2_a_memtable_is_offered_to_the_flush_once_readers_have_it() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
    let map = db.default_keyspace();
    map.put("a", "1").unwrap();
    let core = db.handle.core.clone();
    std::thread::scope(|scope| {
        let core = &core;
        core.view.update(|old| {
            // While this runs the view cannot be replaced.
            scope.spawn(|| core.pipeline.seal().unwrap());
            for _ in 0..100 {
                std::thread::sleep(std::time::Duration::from_millis(3));
                assert_eq!(core.pipeline.sealed_len(), 0, "memtables.2");
            }
            ReadView { ..old.clone() }
        });
    });
    assert_eq!(core.pipeline.sealed_len(), 1);
    db.flush().unwrap();
    map.put("a", "2").unwrap();
    db.flush().unwrap();
    assert_eq!(map.get("a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(core.view.get().memtables().count(), 1, "no memtable stays behind");
}

#[test]
fn memtables_3_a_full_memtable_waits_for_no_other_commit() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = Db::builder()
        .stepped()
        .tuning(|t| t.memtable_bytes(64 << 10))
        .blobs(Blobs::Never)
        .env(env)
        .open("db")
        .unwrap();
    let map = db.default_keyspace();
    map.put("a", [1; 10_000]).unwrap();
    let core = &db.handle.core;
    assert!(!core.flush_step().unwrap());
    map.put("b", [1; 60_000]).unwrap();
    let going_on = core.pipeline.state.lock();
    core.pipeline.seal_if_due(false, false).unwrap();
    drop(going_on);
    assert_eq!(core.pipeline.sealed_len(), 0, "the running commit is not waited for");
    assert!(core.flush_step().unwrap());
    assert_eq!((db.stats().flushes, db.stats().memtable_bytes < 10_000), (1, true));
    core.pipeline.state.lock().poison.stop(Error::Closed);
    assert!(!core.flush_step().unwrap(), "nothing is left to seal");
}

#[test]
fn memtables_3_an_empty_memtable_is_not_full_however_small_it_may_be() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = Db::builder().stepped().tuning(|t| t.memtable_bytes(1)).env(env).open("db").unwrap();
    let core = &db.handle.core;
    assert!(!core.flush_step().unwrap());
    db.default_keyspace().put("a", "1").unwrap();
    assert!(core.flush_step().unwrap());
    assert!(!core.flush_step().unwrap());
}

#[test]
fn memtables_3_a_log_much_longer_than_its_memtable_is_not_kept() {
    let fs = MemFs::new();
    let sealed = |commits: u32, writes: u32, keys: u32| {
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        let path = format!("{commits} {writes} {keys}");
        let db = Db::builder()
            .background(false)
            .tuning(|t| t.memtable_bytes(64 << 10))
            .env(env)
            .open(&path)
            .unwrap();
        let map = db.default_keyspace();
        for commit in 0..commits {
            let mut batch = db.batch();
            for write in 0..writes {
                let key = (commit * writes + write) % keys;
                batch.put(&map, key.to_be_bytes(), [write as u8; 1_000]).unwrap();
            }
            batch.commit().unwrap();
        }
        let stats = db.stats();
        stats.flushes + stats.memtables_sealed
    };
    assert_eq!(sealed(100, 10, 1), 3, "after 300 kB each, in memtables of 3 kB");
    assert_eq!(sealed(20, 10, 1), 0);
    assert_eq!(sealed(50, 1, 50), 0, "a log as long as its memtable");
}

#[test]
fn a_commit_that_no_opening_would_accept_is_not_written() {
    let fs = MemFs::new();
    let open = || {
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        Db::builder().background(false).env(env).open(Path::new("db")).unwrap()
    };
    let db = open();
    let long = [&[1][..], &[b'k'; crate::KEY_BYTES_MAX + 1]].concat();
    let ops: [fn(&mut WriteSet, &[u8]); 4] = [
        |set, key| set.put(key, b""),
        |set, key| set.remove(key),
        |set, key| set.delete_range(&[key, b"k"].concat(), &[2]),
        |set, key| set.delete_range(&[1], &[key, &[b'k'; 10]].concat()),
    ];
    for (n, op) in ops.into_iter().enumerate() {
        let mut set = WriteSet::new();
        op(&mut set, &long);
        let refused = db.handle.core.commit_encoded(set, Durability::Sync);
        assert!(matches!(refused, Err(Error::Invalid(_))), "write_set.5, {n}: {refused:?}");
    }
    db.default_keyspace().put("a", "1").unwrap();
    drop(db);
    assert_eq!(open().default_keyspace().len().unwrap(), 1);
}

#[test]
fn the_first_commit_after_a_seal_in_the_background_waits_for_no_file_if_writes_go_on() {
    for writes_go_on in [false, true] {
        let faults = FaultFs::new(Arc::new(MemFs::new()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let db = Db::builder().background(false).durability(Durability::None).env(env);
        let db = db.open(Path::new("db")).unwrap();
        let map = db.default_keyspace();
        let slow = || {
            let kinds = [OpKind::Create, OpKind::SetLen, OpKind::Allocate, OpKind::SyncData];
            kinds.map(|kind| faults.count(kind))
        };
        let mut waited = 0;
        for round in 0..4_u8 {
            map.put("a", [round; 2000]).unwrap();
            db.handle.core.pipeline.seal_if_due(true, writes_go_on).unwrap();
            db.flush().unwrap();
            let before = slow();
            map.put("b", [round]).unwrap();
            waited += u32::from(slow() != before);
        }
        assert_eq!(waited == 0, writes_go_on, "{waited}");
    }
}
