//! Transactions that become tables: they read their own writes, conflict, count, and commit entirely or not
//! at all.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use esker::env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind, OpenOptions};
use esker::{Blobs, Builder, Contended, Db, Durability, Error, Keyspace, Reads, Transaction};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Transactions of 2 KB are large, and keep 4 KB in memory.
fn small() -> Builder {
    Db::builder().tuning(|t| {
        t.memtable_bytes(8 << 10).transaction_memory(4 << 10).table_bytes(3 << 10).block_bytes(256)
    })
}

fn open(fs: &MemFs) -> Db {
    small().stepped().env(Env::simulated(Arc::new(fs.clone()), 1)).open("db").unwrap()
}

fn content(state: &impl Reads) -> Map {
    state.iter().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn tables_of(fs: &MemFs) -> usize {
    let names = Env::simulated(Arc::new(fs.clone()), 1).fs.list_dir("db".as_ref()).unwrap();
    names.iter().filter(|name| name.ends_with(".sst")).count()
}

fn key(n: u16) -> Vec<u8> {
    format!("key {n:03}").into_bytes()
}

/// Asserts that all reads of a transaction agree with the map.
fn check_reads(t: &Transaction, map: &Keyspace, expected: &Map, rng: &mut fastrand::Rng) {
    let (a, b) = (key(rng.u16(..300)), key(rng.u16(..300)));
    assert_eq!(t.get(map, &a).unwrap().as_deref(), expected.get(&a).map(Vec::as_slice));
    assert_eq!(t.contains(map, &b).unwrap(), expected.contains_key(&b));
    assert_eq!(t.len(map).unwrap(), expected.len() as u64, "counts.1");
    let bounds = (Bound::Included(a.clone().min(b.clone())), Bound::Excluded(a.max(b)));
    let wanted: Vec<_> = expected.range(bounds.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
    let pair =
        |entry: esker::Result<(esker::Key, esker::Value)>| entry.map(|(k, v)| (k.to_vec(), v.to_vec()));
    let forward: Vec<_> = t.range(map, bounds.clone()).map(|e| pair(e).unwrap()).collect();
    let mut backward: Vec<_> = t.range(map, bounds).rev().map(|e| pair(e).unwrap()).collect();
    backward.reverse();
    assert_eq!((&forward, &backward), (&wanted, &wanted), "layers.1");
}

#[test]
fn a_transaction_goes_back_to_its_savepoints_also_beyond_its_memory() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = MemFs::new();
        let db = open(&fs);
        let map = db.default_keyspace();
        let mut expected = Map::new();
        for n in 0..100 {
            map.put(key(n), b"before").unwrap();
            expected.insert(key(n), b"before".to_vec());
        }
        let mut t = db.begin();
        let mut points = Vec::new();
        for _ in 0..600 {
            let key = key(rng.u16(..300));
            match rng.u8(0..40) {
                0..30 => {
                    let value = vec![rng.u8(..); rng.usize(0..60)];
                    t.put(&map, &key, &value).unwrap();
                    expected.insert(key, value);
                }
                30..33 => {
                    t.delete(&map, &key).unwrap();
                    expected.remove(&key);
                }
                33 => {
                    let end = [&key[..key.len() - 1], b"~"].concat();
                    t.delete_range(&map, key.clone()..end.clone()).unwrap();
                    expected.retain(|k, _| *k < key || *k >= end);
                }
                34..37 => points.push((t.savepoint(), expected.clone())),
                37 if !points.is_empty() => {
                    points.truncate(rng.usize(0..points.len()) + 1);
                    let (point, then) = points.last().unwrap();
                    t.rollback_to(point).unwrap();
                    expected = then.clone();
                }
                38 if points.len() > 1 => {
                    let kept = rng.usize(1..points.len());
                    t.release(points[kept].0.clone()).unwrap();
                    assert!(t.rollback_to(&points[points.len() - 1].0).is_err(), "those after it go with it");
                    points.truncate(kept);
                }
                _ => check_reads(&t, &map, &expected, &mut rng),
            }
        }
        check_reads(&t, &map, &expected, &mut rng);
        t.commit().unwrap();
        assert_eq!(content(&map), expected, "seed {seed}");
        assert_eq!(map.len().unwrap(), expected.len() as u64, "seed {seed}");
        let mut other = db.begin();
        let point = other.savepoint();
        assert!(db.begin().rollback_to(&point).is_err(), "of another transaction");
        other.release(point.clone()).unwrap();
        assert!(other.rollback_to(&point).is_err(), "released");
    }
}

#[test]
fn layers_1_large_transactions_read_their_own_writes_and_leave_what_a_map_would_hold() {
    let mut adopted = 0;
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = MemFs::new();
        let mut db = open(&fs);
        let mut committed = Map::new();
        for _ in 0..12 {
            let map = db.default_keyspace();
            for _ in 0..rng.usize(..20) {
                let (k, v) = (key(rng.u16(..300)), vec![b's'; rng.usize(..40)]);
                map.put(&k, &v).unwrap();
                committed.insert(k, v);
            }
            let mut t = db.begin();
            let mut own = committed.clone();
            for _ in 0..rng.usize(..400) {
                let k = key(rng.u16(..300));
                match rng.u8(..40) {
                    0 => {
                        let end = key(rng.u16(..300));
                        t.delete_range(&map, k.clone()..end.clone()).unwrap();
                        own.retain(|key, _| *key < k || *key >= end);
                    }
                    1 => check_reads(&t, &map, &own, &mut rng),
                    2..8 => {
                        t.delete(&map, &k).unwrap();
                        own.remove(&k);
                    }
                    _ => {
                        let v = vec![rng.u8(..); rng.usize(..60)];
                        t.put(&map, &k, &v).unwrap();
                        own.insert(k, v);
                    }
                }
            }
            check_reads(&t, &map, &own, &mut rng);
            let (before, walk) = (db.snapshot(), t.iter(&map));
            if rng.bool() {
                t.commit().unwrap();
                assert_eq!(content(&before.keyspace(&map)), committed, "a snapshot stays as it was");
                committed = own.clone();
            } else {
                drop(t);
            }
            // An iterator outlives its transaction.
            assert_eq!(walk.count(), own.len());
            assert_eq!(content(&map), committed, "seed {seed}");
            assert_eq!(map.len().unwrap(), committed.len() as u64, "counts.1: seed {seed}");
            adopted += db.stats().adoptions;
            match rng.u8(..6) {
                0 => db.compact().unwrap(),
                1 => db.flush().unwrap(),
                2 => {
                    db.close().unwrap();
                    db = open(&fs);
                }
                _ => while rng.bool() && db.step(esker::BackgroundStep::Compact { idle: false }).unwrap() {},
            }
            let problems = db.check().unwrap().problems;
            assert!(problems.is_empty(), "seed {seed}: {problems:?}");
        }
    }
    assert!(adopted > 100, "{adopted}");
}

/// A transaction of 200 puts.
fn fill(t: &mut Transaction, map: &Keyspace, byte: u8) -> esker::Result<()> {
    (0..200).try_for_each(|n| t.put(map, key(n), vec![byte; 40]))
}

#[test]
fn nothing_is_left_of_a_large_transaction_that_is_dropped_or_conflicts() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    let mut t = db.begin();
    fill(&mut t, &map, 1).unwrap();
    assert!(tables_of(&fs) > 1, "its writes are in tables");
    map.put("key 100", "other").unwrap();
    let failed = t.commit().unwrap_err();
    let Error::Conflict { contended: Contended::Key(contended), .. } = &failed.error else {
        panic!("{failed:?}")
    };
    assert_eq!(contended, b"key 100", "conflict.1");
    drop(failed);
    let mut t = db.begin();
    fill(&mut t, &map, 1).unwrap();
    t.delete_range(&map, "x".."z").unwrap();
    map.put("y", "other").unwrap();
    let failed = t.commit().unwrap_err();
    assert!(matches!(failed.error, Error::Conflict { contended: Contended::Range { .. }, .. }), "{failed:?}");
    drop(failed);
    db.flush().unwrap();
    assert_eq!((tables_of(&fs), map.len().unwrap()), (1, 2));
}

#[test]
fn poison_1_what_a_failed_commit_has_left_is_no_conflict_of_a_large_transaction() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs));
    let db = small().stepped().env(Env::simulated(Arc::new(faults.clone()), 1)).open("db").unwrap();
    let map = db.default_keyspace();
    map.put(key(1), "made the log's first segment").unwrap();
    faults.add(FaultRule::new(&[OpKind::SyncData], FaultAction::Fail(std::io::ErrorKind::Other)));
    let failed = map.with(Durability::Sync).put(key(100), "never there");
    assert!(matches!(failed, Err(Error::Poisoned(_))), "{failed:?}");
    faults.clear();
    let mut t = db.begin();
    fill(&mut t, &map, 1).unwrap();
    let failed = t.commit().unwrap_err();
    assert!(matches!(failed.error, Error::Poisoned(_)), "{failed:?}");
}

#[test]
fn poison_1_nothing_is_written_once_a_large_transaction_could_not_sync_its_values() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let db = small().blobs(Blobs::From(64)).stepped().env(env).open("db").unwrap();
    let map = db.default_keyspace();
    map.put(key(1), [1; 100]).unwrap();
    let mut t = db.begin();
    fill(&mut t, &map, 1).unwrap();
    t.put(&map, key(1), [2; 100]).unwrap();
    let fails = FaultAction::Fail(std::io::ErrorKind::Other);
    faults.add(FaultRule::new(&[OpKind::SyncData], fails).on_path(".blob"));
    let failed = t.commit().unwrap_err();
    assert!(matches!(failed.error, Error::Poisoned(_)), "{failed:?}");
    faults.clear();
    assert!(map.with(Durability::Buffered).put(key(2), "never there").is_err());
    drop((failed, map, db));
    assert_eq!(open(&fs.kill()).default_keyspace().get(key(2)).unwrap(), None);
}

#[test]
fn adoption_1_a_large_batch_is_newer_than_what_memtables_hold_and_older_than_what_follows() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    map.put("key 007", "old").unwrap();
    map.put("other", "old").unwrap();
    let mut batch = db.batch();
    (0..200).for_each(|n| batch.put(&map, key(n), vec![2; 40]).unwrap());
    batch.delete(&map, "other").unwrap();
    let number = batch.commit().unwrap();
    assert_eq!(db.snapshot().seqno(), number, "one number");
    map.put("key 008", "new").unwrap();
    let check = |map: &Keyspace| {
        assert_eq!(map.get("key 007").unwrap().unwrap(), vec![2; 40]);
        assert_eq!(map.get("key 008").unwrap().unwrap(), "new");
        assert_eq!((map.get("other").unwrap(), map.len().unwrap()), (None, 200));
    };
    check(&map);
    let db = {
        drop((map, db));
        open(&fs.kill())
    };
    check(&db.default_keyspace());
}

#[test]
fn adopt_1_adopt_2_a_large_transaction_is_there_as_a_whole_or_not_at_all_after_a_crash_at_any_call() {
    let (mut whole, mut nothing) = (0, 0);
    for n in 1.. {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let db = small().stepped().env(env).open("db").unwrap();
        let map = db.default_keyspace();
        map.put("before", "1").unwrap();
        map.with(esker::Durability::None).put("key 050", "unsynced").unwrap();
        let mut t = db.begin();
        let dies = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&OpKind::CHANGES, dies).nth(n).forever());
        let done = fill(&mut t, &map, 3).and_then(|()| t.commit().map_err(|failed| failed.error));
        let after = done.is_ok().then(|| map.put("after", "2").is_ok());
        std::mem::forget(db);
        for left in [fs.crash_strict(), fs.crash(n), fs.kill()] {
            let db = open(&left);
            let map = db.default_keyspace();
            let found =
                (0..200).filter(|n| map.get(key(*n)).unwrap().is_some_and(|v| v == vec![3; 40])).count();
            assert!(found == 0 || found == 200, "adopt.1: {found} of 200 after call {n}");
            assert!(found == 200 || done.is_err(), "adopt.1: committed, and lost after call {n}");
            assert_eq!(map.get("before").unwrap().unwrap(), "1");
            if found == 0 {
                nothing += 1;
            } else {
                whole += 1;
                assert!(after != Some(true) || map.contains("after").unwrap(), "call {n}");
            }
            let keys = content(&map).len() as u64;
            assert_eq!(map.len().unwrap(), keys, "counts.1: call {n}");
            // Later commits get higher numbers.
            map.put("later", "1").unwrap();
            let map = {
                drop((map, db));
                open(&left.kill()).default_keyspace()
            };
            assert_eq!(map.len().unwrap(), keys + 1, "call {n}");
        }
        if done.is_ok() && after == Some(true) {
            break;
        }
    }
    assert!(whole > 5 && nothing > 20, "{whole} {nothing}");
}

#[test]
fn adopt_1_a_commit_whose_edit_fails_can_be_tried_again() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let db = small().stepped().env(Env::simulated(Arc::new(faults.clone()), 1)).open("db").unwrap();
    let map = db.default_keyspace();
    let mut t = db.begin();
    fill(&mut t, &map, 4).unwrap();
    t.delete_range(&map, "a".."b").unwrap();
    let fails = FaultAction::Fail(std::io::ErrorKind::Other);
    faults.add(FaultRule::new(&[OpKind::SyncData], fails).on_path("MANIFEST"));
    let failed = t.commit().unwrap_err();
    assert_eq!(map.len().unwrap(), 0);
    map.put("abc", "between").unwrap();
    map.delete("abc").unwrap();
    assert_eq!(faults.fired(), 1);
    let failed = failed.given_back.commit().unwrap_err();
    assert!(matches!(failed.error, Error::Conflict { .. }), "{failed:?}");
    drop(failed);
    let mut batch = db.batch();
    (0..200).for_each(|n| batch.put(&map, key(n), vec![2; 40]).unwrap());
    faults.clear();
    faults.add(FaultRule::new(&[OpKind::SyncData], fails).on_path("MANIFEST"));
    let failed = batch.commit().unwrap_err();
    failed.given_back.commit().unwrap();
    assert_eq!(map.len().unwrap(), 200);
    drop((map, db));
    let db = open(&fs.kill());
    assert_eq!(db.default_keyspace().len().unwrap(), 200);
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn ranges_that_a_later_layer_removes_stay_removed() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    for n in 0..50 {
        map.put(key(n), "committed").unwrap();
    }
    let mut t = db.begin();
    fill(&mut t, &map, 5).unwrap();
    t.delete_range(&map, key(10)..key(150)).unwrap();
    t.put(&map, key(20), "again").unwrap();
    fill_with(&mut t, &map, 300..500);
    assert_eq!(t.len(&map).unwrap(), 10 + 1 + 50 + 200);
    t.commit().unwrap();
    assert_eq!(map.len().unwrap(), 261);
    assert_eq!(map.get(key(20)).unwrap().unwrap(), "again");
    assert_eq!((map.get(key(30)).unwrap(), map.iter().count()), (None, 261));
}

fn fill_with(t: &mut Transaction, map: &Keyspace, keys: std::ops::Range<u16>) {
    keys.for_each(|n| t.put(map, key(n), vec![6; 40]).unwrap());
}

#[test]
fn transactions_that_several_threads_sort_and_write_hold_what_one_would_write() {
    for seed in 0..6 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let env = Env::simulated(Arc::new(MemFs::new()), seed);
        let db = small()
            .tuning(|t| t.memtable_bytes(64 << 10).transaction_memory(40 << 10))
            .env(env)
            .open("db")
            .unwrap();
        let map = db.default_keyspace();
        let mut t = db.begin();
        let mut expected = Map::new();
        for n in 0..3000_u32 {
            let key = rng.u16(..2000).to_be_bytes().to_vec();
            match rng.u16(..400) {
                0 => {
                    let end = rng.u16(..2000).to_be_bytes().to_vec();
                    t.delete_range(&map, key.clone()..end.clone()).unwrap();
                    expected.retain(|k, _| *k < key || *k >= end);
                }
                1..100 => {
                    t.delete(&map, &key).unwrap();
                    expected.remove(&key);
                }
                _ => {
                    let value = n.to_be_bytes().repeat(12);
                    t.put(&map, &key, &value).unwrap();
                    expected.insert(key, value);
                }
            }
        }
        assert_eq!(t.len(&map).unwrap(), expected.len() as u64, "counts.1: seed {seed}");
        t.commit().unwrap();
        assert_eq!(
            (content(&map), map.len().unwrap()),
            (expected.clone(), expected.len() as u64),
            "seed {seed}"
        );
        assert_eq!(db.stats().adoptions, 1);
        db.compact().unwrap();
        assert_eq!(content(&map), expected, "seed {seed}");
        assert!(db.check().unwrap().problems.is_empty());
    }
}

#[test]
fn adoption_1_others_commit_meanwhile_and_nothing_is_lost() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = small().env(env).open("db").unwrap();
    let map = db.default_keyspace();
    let writers: u64 = 2;
    let each = 3000;
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (db, map) = (&db, &map);
            scope.spawn(move || {
                for n in 0..each {
                    let key = [b"other ".as_slice(), &[writer as u8], &(n as u32).to_be_bytes()].concat();
                    map.with(esker::Durability::None).put(key, "x").unwrap();
                    // A key that the batches write as well.
                    map.with(esker::Durability::None).put("key 005", "theirs").unwrap();
                    drop(db.snapshot());
                }
            });
        }
        scope.spawn(|| {
            for round in 0..30_u8 {
                let mut batch = db.batch();
                (0..100).for_each(|n| batch.put(&map, key(n), [round; 40]).unwrap());
                batch.commit().unwrap();
                assert_eq!(map.get(key(6)).unwrap().unwrap(), [round; 40]);
            }
        });
    });
    assert_eq!(map.len().unwrap(), writers * each + 100);
    assert_eq!(map.iter().count() as u64, writers * each + 100, "counts.1");
    assert!(db.stats().adoptions >= 30);
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn adopt_4_a_manifest_that_does_not_know_a_large_commit_of_the_log_is_refused() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    map.put("a", "1").unwrap();
    let earlier = fs.kill();
    let mut batch = db.batch();
    (0..100).for_each(|n| batch.put(&map, key(n), [b'v'; 40]).unwrap());
    batch.commit().unwrap();
    map.put("b", "durable, and so is the log before it").unwrap();
    assert_eq!(db.stats().adoptions, 1);
    let later = fs.kill();
    open(&later.kill());
    // The manifest as it was before.
    let [old, new] = [&earlier, &later].map(|fs| Env::simulated(Arc::new(fs.clone()), 1).fs);
    for name in old.list_dir("db".as_ref()).unwrap() {
        if name == "CURRENT" || name.starts_with("MANIFEST") {
            let path = Path::new("db").join(&name);
            let file = old.open(&path, OpenOptions::read()).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            let file = new.open(&path, OpenOptions::create()).unwrap();
            file.set_len(0).and_then(|()| file.write_all_at(&bytes, 0)).unwrap();
        }
    }
    let env = Env::simulated(Arc::new(later), 1);
    let refused = small().stepped().env(env).open("db").map(drop).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt { .. }), "adopt.4: {refused}");
}
