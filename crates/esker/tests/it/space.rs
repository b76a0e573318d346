//! Space: what is removed gives back its space by itself, also on a disk that is full.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::dir;
use esker::{Db, Keyspace};
use esker_env::{Env, MemFs};

/// Within so long of rest space is back.
const PATIENCE: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;

/// A database of small memory on files in memory, with threads.
fn open(fs: &MemFs) -> Db {
    Db::builder().env(Env::with_fs(Arc::new(fs.clone()))).memory(16 << 20).open(dir()).unwrap()
}

/// Puts values that cannot be compressed, of so many bytes.
fn fill(map: &Keyspace, keys: std::ops::Range<u32>, value_bytes: usize) {
    let mut rng = fastrand::Rng::with_seed(u64::from(keys.start));
    for key in keys {
        let value: Vec<u8> = (0..value_bytes).map(|_| rng.u8(..)).collect();
        map.put(key.to_be_bytes(), value).unwrap();
    }
}

/// The ways to remove keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    Drop,
    Clear,
    Range,
    Each,
}

impl Removal {
    const ALL: [Removal; 4] = [Removal::Drop, Removal::Clear, Removal::Range, Removal::Each];

    /// Removes the keys below `end`, or all of the keyspace.
    fn remove(self, db: &Db, name: &str, end: u32) -> esker::Result<()> {
        let map = db.keyspace(name)?;
        match self {
            Removal::Drop => db.drop_keyspace(name),
            Removal::Clear => map.clear(),
            Removal::Range => map.remove_range(..end.to_be_bytes()),
            Removal::Each => (0..end).try_for_each(|key| map.remove(key.to_be_bytes())),
        }
    }
}

/// Waits until the tables hold at most so many bytes; how many they hold then.
fn wait_for_tables(db: &Db, bytes: u64) -> u64 {
    let started = Instant::now();
    while db.stats().table_bytes > bytes && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    db.stats().table_bytes
}

#[test]
fn rest_1_what_is_removed_gives_back_its_space_by_itself() {
    for removal in Removal::ALL {
        for reopens in [false, true] {
            let fs = MemFs::new();
            let db = open(&fs);
            fill(&db.default_keyspace(), 0..1000, 100);
            let map = db.create_keyspace("large").unwrap();
            fill(&map, 0..4000, 2000);
            drop(map);
            db.compact().unwrap();
            assert!(db.stats().table_bytes > 7 * MIB);
            removal.remove(&db, "large", 4000).unwrap();
            let db = if reopens {
                db.close().unwrap();
                open(&fs)
            } else {
                db
            };
            let left = wait_for_tables(&db, MIB);
            assert!(left <= MIB, "rest.1: {removal:?}, reopened: {reopens}: {left} bytes, {:?}", db.stats());
            assert!(fs.used_bytes() < 4 * MIB, "rest.1: {removal:?}: {}", fs.used_bytes());
            assert_eq!(db.default_keyspace().len().unwrap(), 1000);
            assert!(db.check().unwrap().problems.is_empty());
            // rest.2
            let before = db.stats();
            std::thread::sleep(Duration::from_millis(500));
            let after = db.stats();
            let work = |s: &esker::Stats| (s.flushes, s.compactions, s.tables_dropped);
            assert_eq!(work(&after), work(&before), "rest.2: {removal:?}");
            db.close().unwrap();
        }
    }
}

#[test]
fn covered_1_a_snapshot_keeps_what_is_removed_and_its_end_gives_back_the_space() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    fill(&map, 0..4000, 2000);
    db.compact().unwrap();
    let before = db.stats();
    let snapshot = db.snapshot();
    map.clear().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(db.stats().table_bytes, before.table_bytes, "covered.1");
    let seen = snapshot.iter(&map).map(|entry| entry.unwrap().1.len()).sum::<usize>();
    assert_eq!(seen, 4000 * 2000);
    drop(snapshot);
    assert_eq!(wait_for_tables(&db, 0), 0);
    let after = db.stats();
    assert!(after.tables_dropped > 0 && after.compaction_bytes_read == before.compaction_bytes_read);
    assert_eq!(after.flushes, before.flushes, "covered.3: the log has the tombstone");
    drop(map);
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(db.default_keyspace().len().unwrap(), 0);
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn rest_2_rest_3_small_databases_and_those_that_remove_what_is_new_do_not_flush_for_it() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    fill(&map, 0..100, 1000);
    db.compact().unwrap();
    let before = db.stats().flushes;
    for round in 0..5 {
        map.remove_range(..(round * 10_u32).to_be_bytes()).unwrap();
        map.put([round as u8; 9], vec![7; 300_000]).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        map.remove([round as u8; 9]).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(db.stats().flushes, before, "rest.3");
}
