//! Ingest of sorted pairs and finished tables into keyspaces with data: all entries or none, whatever
//! happens.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker::env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};
use esker::sstable::Writer;
use esker::{Builder, Db, Error, Reads};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn small() -> Builder {
    Db::builder().stepped().tuning(|t| t.memtable_bytes(8 << 10).table_bytes(3 << 10).block_bytes(256))
}

fn env(fs: &MemFs) -> Env {
    Env::simulated(Arc::new(fs.clone()), 1)
}

fn open(fs: &MemFs) -> Db {
    small().env(env(fs)).open("db").unwrap()
}

fn content(state: &impl Reads) -> Map {
    state.iter().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn key(n: u16) -> Vec<u8> {
    format!("key {n:03}").into_bytes()
}

fn tables_of(fs: &MemFs) -> usize {
    let names = env(fs).fs.list_dir("db".as_ref()).unwrap();
    names.iter().filter(|name| name.ends_with(".sst")).count()
}

/// A table that belongs to no database, with these pairs.
fn write_table(fs: &MemFs, path: &str, pairs: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) {
    let mut writer = Writer::create_in(&env(fs), path, Default::default()).unwrap();
    pairs.into_iter().for_each(|(k, v)| writer.put(&k, &v).unwrap());
    writer.finish().unwrap();
}

#[test]
fn ingest_2_a_keyspace_holds_what_a_map_would_after_any_ingests_between_other_writes() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = MemFs::new();
        let mut db = open(&fs);
        let (mut expected, mut files) = (Map::new(), 0);
        let other = db.create_keyspace("other").unwrap();
        other.put("key 100", "other").unwrap();
        drop(other);
        for _ in 0..10 {
            let map = db.default_keyspace();
            for _ in 0..rng.usize(..30) {
                let (k, v) = (key(rng.u16(..400)), vec![b's'; rng.usize(..40)]);
                if rng.u8(..4) > 0 {
                    map.put(&k, &v).unwrap();
                    expected.insert(k, v);
                } else {
                    map.delete(&k).unwrap();
                    expected.remove(&k);
                }
            }
            let pairs: Map = (0..rng.usize(..300))
                .map(|_| (key(rng.u16(..400)), vec![rng.u8(..); rng.usize(..60)]))
                .collect();
            let cut = key(rng.u16(..400));
            let mut ingest = map.ingest();
            pairs.range(..cut.clone()).for_each(|(k, v)| ingest.put(k, v).unwrap());
            if rng.bool() {
                files += 1;
                let path = format!("{files}.sst");
                write_table(&fs, &path, pairs.range(cut..).map(|(k, v)| (k.clone(), v.clone())));
                ingest.table(&path).unwrap();
            } else {
                pairs.range(cut..).for_each(|(k, v)| ingest.put(k, v).unwrap());
            }
            assert_eq!(ingest.len(), pairs.len() as u64);
            let before = db.snapshot();
            if rng.u8(..4) > 0 {
                let number = ingest.commit().unwrap();
                assert_eq!(db.snapshot().seqno(), number);
                assert_eq!(content(&before.keyspace(&map)), expected, "a snapshot stays as it was");
                expected.extend(pairs);
            } else {
                drop(ingest);
            }
            assert_eq!(content(&map), expected, "seed {seed}");
            assert_eq!(map.len().unwrap(), expected.len() as u64, "counts.1: seed {seed}");
            match rng.u8(..5) {
                0 => db.compact().unwrap(),
                1 => db.flush().unwrap(),
                2 => {
                    drop((map, before));
                    db.close().unwrap();
                    db = open(&fs);
                }
                _ => {}
            }
            let problems = db.check().unwrap().problems;
            assert!(problems.is_empty(), "seed {seed}: {problems:?}");
        }
        assert_eq!(content(&db.keyspace("other").unwrap()).len(), 1);
    }
}

#[test]
fn keys_ascend_and_a_key_that_does_not_changes_nothing() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    write_table(&fs, "low.sst", [(b"a".to_vec(), b"1".to_vec())]);
    let mut ingest = map.ingest();
    ingest.put("", "first").unwrap();
    ingest.put("m", "1").unwrap();
    for low in ["m", "b", ""] {
        let refused = ingest.put(low, "x").unwrap_err();
        let text = format!("\"{low}\" does not come after \"m\"");
        assert!(matches!(&refused, Error::OutOfOrder(why) if why.contains(&text)), "{refused}");
    }
    assert!(matches!(ingest.table("low.sst"), Err(Error::OutOfOrder(_))));
    assert!(matches!(ingest.put(vec![b'z'; 70_000], ""), Err(Error::KeyTooLong { .. })));
    ingest.put("n", "2").unwrap();
    ingest.commit().unwrap();
    assert_eq!(map.get("m").unwrap().unwrap(), "1");
    assert_eq!(map.len().unwrap(), 3);
    // A table of a database has encoded keys.
    map.put("x", "1").unwrap();
    db.flush().unwrap();
    let name = env(&fs).fs.list_dir("db".as_ref()).unwrap().into_iter().rfind(|name| name.ends_with(".sst"));
    let refused = map.ingest().table(Path::new("db").join(name.unwrap()));
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let number = map.ingest().commit().unwrap();
    assert_eq!(db.snapshot().seqno(), number, "nothing to commit");
}

#[test]
fn nothing_is_left_of_a_dropped_ingest_or_of_a_dropped_keyspace() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.create_keyspace("map").unwrap();
    let mut ingest = map.ingest();
    (0..300).for_each(|n| ingest.put(key(n), [1; 40]).unwrap());
    assert!(tables_of(&fs) > 2, "several tables");
    drop(ingest);
    assert_eq!((tables_of(&fs), map.len().unwrap()), (0, 0));
    let mut ingest = map.ingest();
    (0..300).for_each(|n| ingest.put(key(n), [1; 40]).unwrap());
    db.drop_keyspace("map").unwrap();
    assert!(matches!(ingest.put("z", ""), Err(Error::KeyspaceNotFound(_))));
    let failed = ingest.commit().unwrap_err();
    assert!(matches!(failed.error, Error::KeyspaceNotFound(_)), "catalog.3: {failed:?}");
    drop(failed);
    assert_eq!(tables_of(&fs), 0);
    let mut ingest = db.default_keyspace().ingest();
    (0..300).for_each(|n| ingest.put(key(n), [1; 40]).unwrap());
    db.close().unwrap();
    assert!(matches!(ingest.put("z", ""), Err(Error::Closed)));
    drop(ingest);
    let db = open(&fs);
    assert_eq!(
        (tables_of(&fs), db.default_keyspace().len().unwrap()),
        (0, 0),
        "the next opening removes them"
    );
}

#[test]
fn ingest_2_it_is_there_as_a_whole_or_not_at_all_after_a_failure_at_any_call() {
    let (mut whole, mut nothing, mut again) = (0, 0, 0);
    for n in 1.. {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db = small().env(Env::simulated(Arc::new(faults.clone()), 1)).open("db").unwrap();
        let map = db.default_keyspace();
        map.put("key 050", "old").unwrap();
        let fails = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&OpKind::CHANGES, fails).nth(n));
        let mut ingest = map.ingest();
        let filled = (0..200).try_for_each(|n| ingest.put(key(n), [3; 40]));
        let committed = match (filled.is_ok(), ingest.commit()) {
            (true, Ok(_)) => true,
            (true, Err(failed)) => {
                // The disk works again.
                let done = failed.given_back.commit();
                again += u32::from(done.is_ok());
                done.is_ok()
            }
            (false, done) => {
                assert!(done.is_err(), "ingest.2: a part is not committed");
                false
            }
        };
        let fired = faults.fired() > 0;
        let count = map.len().unwrap();
        assert_eq!(count, if committed { 200 } else { 1 }, "ingest.2: call {n}");
        drop((map, db));
        for left in [fs.crash_strict(), fs.kill()] {
            let map = open(&left).default_keyspace();
            let found = map.len().unwrap();
            assert!(found == 200 || found == 1, "ingest.2: {found} after call {n}");
            assert!(found == 200 || !committed, "ingest.2: lost after call {n}");
            assert_eq!(content(&map).len() as u64, found, "counts.1");
            if found == 200 { whole += 1 } else { nothing += 1 }
        }
        if !fired {
            break;
        }
    }
    assert!(whole > 3 && nothing > 10 && again > 1, "{whole} {nothing} {again}");
}
