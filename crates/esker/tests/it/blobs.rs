//! Values in blob files: read in every way, kept over crashes, garbage-collected, and never seen torn.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};
use esker::{BackgroundStep, Blobs, Builder, Db, Durability, Error, Reads};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Values of 64 bytes and more are large.
fn small() -> Builder {
    Db::builder()
        .tuning(|t| t.memtable_bytes(4 << 10).table_bytes(4 << 10).block_bytes(256))
        .blobs(Blobs::From(64))
}

fn open_at(env: Env) -> esker::Result<Db> {
    small().stepped().env(env).open("db")
}

fn open(fs: &MemFs) -> Db {
    open_at(Env::simulated(Arc::new(fs.clone()), 1)).unwrap()
}

fn content(state: &impl Reads) -> Map {
    state.iter().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn blob_bytes(fs: &MemFs) -> u64 {
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let names = env.fs.list_dir("db".as_ref()).unwrap();
    let blobs = names.iter().filter(|name| name.ends_with(".blob"));
    // A file may be removed meanwhile.
    blobs.filter_map(|name| env.fs.file_size(&std::path::Path::new("db").join(name)).ok()).sum()
}

fn value(n: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (n * 31 + i * 7) as u8).collect()
}

fn check_reads(db: &Db, expected: &Map) {
    let map = db.default_keyspace();
    assert!(content(&map) == *expected, "a walk");
    for (key, value) in expected {
        assert!(map.get(key).unwrap().as_deref() == Some(&value[..]), "get {key:?}");
    }
    let mut cursor = map.cursor().unwrap();
    for (key, value) in expected.iter().rev() {
        assert!(cursor.prev().unwrap());
        assert!(cursor.peek().unwrap() == Some((&key[..], &value[..])), "a cursor on {key:?}");
    }
    assert_eq!(map.len().unwrap(), expected.len() as u64);
    let report = db.check().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn blob_1_blob_2_values_in_blob_files_are_read_in_every_way_and_their_garbage_is_collected() {
    let mut rng = fastrand::Rng::with_seed(1);
    let fs = MemFs::new();
    let mut db = open(&fs);
    let mut expected = Map::new();
    let mut collected = 0;
    for round in 0..60 {
        let map = db.default_keyspace();
        let snapshot = db.snapshot();
        let before = expected.clone();
        for n in 0..20 {
            let key = format!("{:02}", rng.u8(..40)).into_bytes();
            if rng.u8(..5) == 0 {
                map.delete(&key).unwrap();
                expected.remove(&key);
            } else {
                let value = value(round * 100 + n, rng.usize(..400));
                map.with(Durability::None).put(&key, &value).unwrap();
                expected.insert(key, value);
            }
        }
        let bytes = blob_bytes(&fs);
        match rng.u8(..4) {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            2 => while db.step(BackgroundStep::Compact { idle: true }).unwrap() {},
            _ => {}
        }
        collected += u32::from(blob_bytes(&fs) < bytes);
        let seen: Map =
            snapshot.iter(&map).map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
        assert_eq!(seen, before, "collect.1: what a snapshot sees stays");
        drop(snapshot);
        check_reads(&db, &expected);
        if rng.u8(..6) == 0 {
            drop(map);
            db.close().unwrap();
            db = open(&fs);
            check_reads(&db, &expected);
        }
    }
    assert!(collected > 3, "{collected}");
    db.compact().unwrap();
    // The next opening at the latest removes unused files.
    db.close().unwrap();
    db = open(&fs);
    check_reads(&db, &expected);
    let live: usize = expected.values().map(Vec::len).filter(|len| *len >= 64).sum();
    assert!(blob_bytes(&fs) < 2 * live as u64 + 4096, "{} bytes for {live}", blob_bytes(&fs));
}

#[test]
fn recovery_9_no_commit_is_there_without_its_values_and_none_that_was_synced_is_lost_after_a_crash_at_any_call()
 {
    for n in 1.. {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let mut acknowledged = Map::new();
        let mut begun = acknowledged.clone();
        let done = (|| -> esker::Result<()> {
            let db = open_at(Env::simulated(Arc::new(faults.clone()), 1))?;
            let map = db.default_keyspace();
            let dies = FaultAction::Fail(std::io::ErrorKind::Other);
            faults.add(FaultRule::new(&OpKind::CHANGES, dies).nth(n).forever());
            for i in 0..24_u64 {
                let key = vec![b'a' + (i % 7) as u8];
                let value = value(i, 40 + 37 * (i as usize % 9));
                begun.insert(key.clone(), value.clone());
                let durability = if i % 3 == 2 { Durability::Sync } else { Durability::Buffered };
                map.with(durability).put(&key, &value)?;
                if durability == Durability::Sync {
                    acknowledged = begun.clone();
                }
                if i % 11 == 10 {
                    db.compact()?;
                    acknowledged = begun.clone();
                }
            }
            db.close()
        })();
        for left in [fs.crash_strict(), fs.crash(n), fs.crash(n + 1000), fs.kill()] {
            let db = open(&left);
            let found = content(&db.default_keyspace());
            // A prefix of the commits, with all synced ones.
            let mut states = vec![Map::new()];
            for i in 0..24_u64 {
                let mut next = states[i as usize].clone();
                next.insert(vec![b'a' + (i % 7) as u8], value(i, 40 + 37 * (i as usize % 9)));
                states.push(next);
            }
            let at = states.iter().rposition(|state| *state == found);
            let synced = states.iter().rposition(|state| *state == acknowledged);
            assert!(at.is_some() && at >= synced, "call {n}: {at:?}, synced {synced:?}");
            let report = db.check().unwrap();
            assert!(report.problems.is_empty(), "call {n}: {:?}", report.problems);
        }
        if done.is_ok() {
            return;
        }
    }
}

#[test]
fn txn_blobs_4_a_value_that_cannot_be_written_refuses_its_commit_and_no_other() {
    let fs = FaultFs::new(Arc::new(MemFs::new()));
    let db = open_at(Env::simulated(Arc::new(fs.clone()), 1)).unwrap();
    let map = db.default_keyspace();
    map.put("a", value(1, 100)).unwrap();
    let failure = FaultAction::Fail(std::io::ErrorKind::StorageFull);
    fs.add(FaultRule::new(&[OpKind::Write], failure).on_path(".blob").forever());
    assert!(matches!(map.put("b", value(2, 100)), Err(Error::NoSpace { .. })));
    fs.clear();
    map.put("c", value(3, 100)).unwrap();
    check_reads(&db, &[("a", 1), ("c", 3)].map(|(k, n)| (k.into(), value(n, 100))).into());
}

#[test]
fn repair_copies_values_out_of_blob_files_and_tells_which_are_lost() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    let mut expected = Map::new();
    for n in 0..40_u8 {
        map.put([n], value(n.into(), 100)).unwrap();
        expected.insert(vec![n], value(n.into(), 100));
        if n == 30 {
            db.compact().unwrap();
        }
    }
    drop(map);
    db.close().unwrap();
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let repair = |target: &str| Db::builder().stepped().env(env.clone()).repair("db", target).unwrap();
    assert!(repair("whole").losses.is_empty());
    let repaired = Db::builder().stepped().env(env.clone()).open("whole").unwrap();
    assert_eq!(content(&repaired.default_keyspace()), expected);
    let names = env.fs.list_dir("db".as_ref()).unwrap();
    let blob = names.iter().filter(|name| name.ends_with(".blob")).min().unwrap();
    let file = env.fs.open(&std::path::Path::new("db").join(blob), esker::env::OpenOptions::write()).unwrap();
    file.write_all_at(&[1, 2, 3], 32 + 150).unwrap();
    assert_eq!(repair("damaged").losses.len(), 1);
    let repaired = Db::builder().stepped().env(env).open("damaged").unwrap();
    assert_eq!(repaired.default_keyspace().len().unwrap(), 39);
}

/// Bytes that compress, or do not.
fn long(seed: u64, len: usize) -> Vec<u8> {
    if seed.is_multiple_of(3) {
        return value(seed, len);
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
}

#[test]
fn blob_writer_1_transactions_of_long_values_read_what_they_wrote_and_leave_nothing_when_dropped() {
    let mut fs = MemFs::new();
    let open = |fs: &MemFs| {
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        Db::builder().stepped().memory(8 << 20).env(env).open("db").unwrap()
    };
    let mut db = open(&fs);
    let lens = [0, 1, 4095, 4096, 70_000, 256 << 10, (256 << 10) + 1, 600_000, 3_000_000];
    let mut expected = Map::new();
    for round in 0..4_u64 {
        let map = db.default_keyspace();
        let mut t = db.begin();
        for (n, len) in (0_u64..).zip(lens) {
            let (key, value) = (vec![n as u8], long(round * 100 + n, len));
            match (n + round) % 2 {
                0 => t.put(&map, &key, &value).unwrap(),
                _ => t.put_from(&map, &key, &mut &*value, len as u64).unwrap(),
            }
            assert!(t.get(&map, &key).unwrap().as_deref() == Some(&*value), "its own write");
            if round % 2 == 1 {
                expected.insert(key, value);
            }
        }
        // A reader that ends early changes nothing.
        let short = t.put_from(&map, [0], &mut &*long(1, 500_000), 500_001);
        assert!(
            matches!(&short, Err(error @ Error::Io { .. }) if error.to_string().contains("from its reader: ")),
            "{short:?}"
        );
        if round % 2 == 1 {
            assert!(content(&t.keyspace(&map)) == expected, "a walk over its own writes");
            t.commit().unwrap();
        } else {
            drop(t);
        }
        check_reads(&db, &expected);
        if round == 2 {
            drop(map);
            fs = fs.crash_strict();
            db = open(&fs);
            check_reads(&db, &expected);
        }
    }
    db.compact().unwrap();
    // The next opening at the latest removes unused files.
    db.close().unwrap();
    db = open(&fs);
    check_reads(&db, &expected);
    let stored: usize = expected.values().map(Vec::len).sum();
    assert!(blob_bytes(&fs) < stored as u64 * 3 / 2, "{} of {stored}", blob_bytes(&fs));
    for (key, value) in &expected {
        let mut reader = db.default_keyspace().reader(key).unwrap().unwrap();
        assert_eq!(reader.len(), value.len() as u64);
        for start in (0..value.len()).step_by(100_001) {
            let end = (start + 300_000).min(value.len());
            let read = reader.read_range(start as u64..start as u64 + 300_000).unwrap();
            assert!(read == value[start..end], "{key:?} from {start}");
        }
    }
}

#[test]
fn collect_1_collections_of_small_files_come_to_an_end() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    for round in 0..3 {
        for n in 0..8_u8 {
            map.put([n], value(round * 10 + u64::from(n), 70)).unwrap();
        }
        db.flush().unwrap();
    }
    let steps = (0..100).take_while(|_| db.step(BackgroundStep::Compact { idle: true }).unwrap()).count();
    assert!(steps < 100, "it goes on and on");
    check_reads(&db, &(0..8_u8).map(|n| (vec![n], value(20 + u64::from(n), 70))).collect());
}

#[test]
fn stored_1_a_damaged_chunk_fails_alone() {
    let fs = MemFs::new();
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let db = Db::builder().stepped().env(env.clone()).open("db").unwrap();
    let map = db.default_keyspace();
    let value = long(1, 1_000_000);
    map.put("a", &value).unwrap();
    let names = env.fs.list_dir("db".as_ref()).unwrap();
    let name = names.iter().find(|name| name.ends_with(".blob")).unwrap();
    let file = env.fs.open(&std::path::Path::new("db").join(name), esker::env::OpenOptions::write()).unwrap();
    // The value starts on the second block.
    file.write_all_at(&[!value[600_000]], 4096 + 600_000).unwrap();
    let mut reader = map.reader("a").unwrap().unwrap();
    assert!(reader.read_range(0..500_000).unwrap() == value[..500_000]);
    assert!(reader.read_range(800_000..1_000_000).unwrap() == value[800_000..]);
    let damaged =
        |offset: u64| move |e: Error| matches!(e, Error::Corrupt { offset: at, .. } if at == offset);
    assert!(reader.read_range(600_000..600_001).is_err_and(damaged(4096 + 2 * (256 << 10))));
    assert!(map.get("a").is_err_and(damaged(4096 + 2 * (256 << 10))));
}

#[test]
fn a_keyspace_has_a_limit_of_its_own_until_it_is_dropped_and_ingests_keep_to_it() {
    let fs = MemFs::new();
    let large = long(1, 3000);
    let db = open(&fs);
    let (low, off) = (db.create_keyspace("low").unwrap(), db.create_keyspace("off").unwrap());
    off.set_blobs(Blobs::Never).unwrap();
    low.set_blobs(Blobs::From(2000)).unwrap();
    drop((low, off));
    db.close().unwrap();
    let db = open(&fs);
    let written = |work: &dyn Fn()| {
        let before = db.stats().blob_bytes_written;
        work();
        db.stats().blob_bytes_written - before
    };
    let (low, off) = (db.open_keyspace("low").unwrap(), db.open_keyspace("off").unwrap());
    assert_eq!(written(&|| assert!(off.put("a", &large).is_ok())), 0);
    assert_eq!(written(&|| assert!(low.put("a", &large[..1999]).is_ok())), 0);
    assert_eq!(written(&|| assert!(low.put("b", &large).is_ok())), 3000);
    let ingest = |name: &str| {
        let mut ingest = db.open_keyspace(name).unwrap().ingest();
        (0..5_u8).for_each(|n| ingest.put([n], &large).unwrap());
        ingest.commit().unwrap();
    };
    assert_eq!((written(&|| ingest("low")), written(&|| ingest("off"))), (15_000, 0));
    assert!((0..5_u8).all(|n| low.get([n]).unwrap().as_deref() == Some(&large[..])));
    assert!(db.check().unwrap().problems.is_empty());
    db.drop_keyspace("off").unwrap();
    let off = db.create_keyspace("off").unwrap();
    assert_eq!(written(&|| assert!(off.put("a", &large).is_ok())), 3000, "it is another one");
}
