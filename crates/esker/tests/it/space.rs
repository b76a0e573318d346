//! Space: removals return space without further calls, even on a full disk.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{dir, simulated};
use esker::{BackgroundStep, Db, Durability, Error, Keyspace};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions};

/// Time without writes after which the space is free.
const PATIENCE: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;

/// A database with little memory in an in-memory file system, with threads.
fn open(fs: &MemFs) -> Db {
    Db::builder().env(Env::with_fs(Arc::new(fs.clone()))).memory(16 << 20).open(dir()).unwrap()
}

/// Bytes of the log's spare files. Removals use them before free space.
fn spare_log_bytes(fs: &MemFs) -> u64 {
    let names = fs.list_dir(dir()).unwrap();
    let spares = names.iter().filter(|name| name.starts_with("wal-spare-") || name.ends_with(".wal-next"));
    spares.map(|name| fs.open(&dir().join(name), OpenOptions::read()).unwrap().len().unwrap()).sum()
}

/// Puts incompressible values of this size.
fn fill(map: &Keyspace, keys: std::ops::Range<u32>, value_bytes: usize) {
    let mut rng = fastrand::Rng::with_seed(u64::from(keys.start));
    for key in keys {
        let value: Vec<u8> = (0..value_bytes).map(|_| rng.u8(..)).collect();
        map.put(key.to_be_bytes(), value).unwrap();
    }
}

#[test]
fn the_log_of_a_small_database_is_small_once_it_rests() {
    let fs = MemFs::new();
    let env = Env::with_fs(Arc::new(fs.clone()));
    let db = Db::builder().env(env).memory(512 << 20).open(dir()).unwrap();
    let (map, snapshot) = (db.default_keyspace(), db.snapshot());
    for round in 0..2_u8 {
        for first in (0..20_000_u32).step_by(1000) {
            let mut batch = db.batch();
            for key in first..first + 1000 {
                batch.put(&map, key.to_be_bytes(), vec![round; 512]).unwrap();
            }
            batch.commit_with(esker::Durability::Buffered).unwrap();
        }
        db.flush().unwrap();
    }
    let log_bytes = || -> u64 {
        let names = fs.list_dir(dir()).unwrap();
        let of_log = names.iter().filter(|name| name.contains("wal"));
        of_log.map(|name| fs.file_size(&dir().join(name)).unwrap_or(0)).sum()
    };
    let started = Instant::now();
    // The active and the prepared file have 8 MiB each, and spares at most the bytes of the data.
    while log_bytes() > 26 * MIB && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(log_bytes() <= 26 * MIB, "{:?}", fs.list_dir(dir()));
    drop((map, snapshot));
    db.close().unwrap();
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
            Removal::Clear => map.clear().map(drop),
            Removal::Range => map.delete_range(..end.to_be_bytes()).map(drop),
            Removal::Each => (0..end).try_for_each(|key| map.delete(key.to_be_bytes()).map(drop)),
        }
    }
}

/// Waits until the tables hold at most this many bytes. Returns their size.
fn wait_for_tables(db: &Db, bytes: u64) -> u64 {
    let started = Instant::now();
    while db.stats().table_bytes > bytes && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    db.stats().table_bytes
}

#[test]
fn what_is_removed_gives_back_its_space_by_itself() {
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
            assert!(left <= MIB, "{removal:?}, reopened: {reopens}: {left} bytes, {:?}", db.stats());
            // The log shrinks without further calls.
            let started = Instant::now();
            while fs.used_bytes() >= 4 * MIB && started.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(fs.used_bytes() < 4 * MIB, "{removal:?}: {}", fs.used_bytes());
            assert_eq!(db.default_keyspace().len().unwrap(), 1000);
            assert!(db.check().unwrap().problems.is_empty());
            let before = db.stats();
            std::thread::sleep(Duration::from_millis(500));
            let after = db.stats();
            let work = |s: &esker::Stats| (s.flushes, s.compactions, s.tables_dropped);
            assert_eq!(work(&after), work(&before), "{removal:?}");
            db.close().unwrap();
        }
    }
}

#[test]
fn covered_1_covered_3_a_snapshot_keeps_what_is_removed_and_its_end_gives_back_the_space() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    fill(&map, 0..4000, 2000);
    db.compact().unwrap();
    let snapshot = db.snapshot();
    let before = db.stats();
    map.clear().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(db.stats().table_bytes, before.table_bytes, "covered.1");
    let seen = snapshot.iter(&map).map(|entry| entry.unwrap().1.len()).sum::<usize>();
    assert_eq!(seen, 4000 * 2000);
    drop(snapshot);
    assert_eq!(wait_for_tables(&db, 0), 0);
    // Removals are counted shortly after they happen.
    let is_counted = |_| {
        std::thread::sleep(Duration::from_millis(10));
        db.stats().tables_dropped > before.tables_dropped
    };
    assert!((0..500).any(is_counted), "covered.3");
    let after = db.stats();
    assert!(
        after.tables_dropped > 0 && after.compaction_bytes_read == before.compaction_bytes_read,
        "covered.3: {before:?}, {after:?}"
    );
    assert_eq!(after.flushes, before.flushes, "covered.3: the log has the tombstone");
    drop(map);
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(db.default_keyspace().len().unwrap(), 0);
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn small_databases_and_those_that_remove_what_is_new_do_not_flush_for_it() {
    let fs = MemFs::new();
    let db = open(&fs);
    let map = db.default_keyspace();
    fill(&map, 0..100, 1000);
    db.compact().unwrap();
    let before = db.stats().flushes;
    for round in 0..5 {
        map.delete_range(..(round * 10_u32).to_be_bytes()).unwrap();
        map.put([round as u8; 9], vec![7; 300_000]).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        map.delete([round as u8; 9]).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(db.stats().flushes, before);
}

/// Puts from key `from` on until the disk is full. Returns the first refused key.
fn fill_up(map: &Keyspace, from: u32, value_bytes: usize) -> u32 {
    let mut rng = fastrand::Rng::with_seed(u64::from(from));
    for key in from.. {
        let value: Vec<u8> = (0..value_bytes).map(|_| rng.u8(..)).collect();
        match map.put(key.to_be_bytes(), value) {
            Ok(_) => {}
            Err(Error::NoSpace { .. }) => return key,
            Err(other) => panic!("{other:?}"),
        }
    }
    unreachable!("a disk of this size is full before")
}

#[test]
fn reserve_1_reserve_2_on_a_full_disk_removals_succeed_and_give_space() {
    for (removal, value_bytes) in Removal::ALL.into_iter().flat_map(|r| [(r, 1000), (r, 20_000)]) {
        let fs = MemFs::new();
        fs.set_capacity(Some(24 * MIB));
        let db = open(&fs);
        let map = db.create_keyspace("large").unwrap();
        let count = fill_up(&map, 0, value_bytes);
        drop(map);
        let free = 24 * MIB - fs.used_bytes();
        assert!((MIB..6 * MIB).contains(&free), "reserve.1: {free} bytes are free");
        removal
            .remove(&db, "large", count / 10 * 9)
            .unwrap_or_else(|e| panic!("reserve.2: {removal:?}: {e}"));
        // More than was free.
        let mut left = 8 * MIB as usize / value_bytes;
        let mut rng = fastrand::Rng::with_seed(9);
        let started = Instant::now();
        while left > 0 {
            let (key, mut value) = ((count + left as u32).to_be_bytes(), vec![0; value_bytes]);
            rng.fill(&mut value);
            // A dropped keyspace has to be created again.
            match db.keyspace("large").and_then(|map| map.put(key, value)) {
                Ok(_) => left -= 1,
                Err(error) => {
                    let is_over = started.elapsed() > PATIENCE;
                    assert!(!is_over, "reserve.2: {removal:?}, {value_bytes}: {error}, {:?}", db.stats());
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        db.compact().unwrap();
        assert!(db.check().unwrap().problems.is_empty());
    }
}

#[test]
fn reserve_1_large_transactions_and_ingests_leave_space_for_removals() {
    for ingests in [false, true] {
        let fs = MemFs::new();
        fs.set_capacity(Some(24 * MIB));
        // A transaction is large beyond a quarter of the memory.
        let builder = Db::builder().env(Env::with_fs(Arc::new(fs.clone()))).memory(4 << 20);
        let db = builder.open(dir()).unwrap();
        let map = db.create_keyspace("large").unwrap();
        let mut rng = fastrand::Rng::with_seed(3);
        let mut put = |from: u32| -> Result<_, Error> {
            let entries = (from..from + 1200).map(|key| {
                let value: Vec<u8> = (0..1000).map(|_| rng.u8(..)).collect();
                (key.to_be_bytes(), value)
            });
            if ingests {
                let mut ingest = map.ingest();
                for (key, value) in entries {
                    ingest.put(key, value)?;
                }
                return ingest.commit().map_err(|failed| failed.error);
            }
            let mut batch = db.batch();
            for (key, value) in entries {
                batch.put(&map, key, value)?;
            }
            batch.commit().map_err(|failed| failed.error)
        };
        let full = (0..).step_by(1200).find_map(|from| put(from).err());
        assert!(matches!(full, Some(Error::NoSpace { .. })), "{full:?}");
        assert!(db.stats().adoptions > 5, "{:?}", db.stats());
        let free = 24 * MIB - fs.used_bytes();
        assert!(free > 2 * MIB, "reserve.1: {free} bytes are free, ingests: {ingests}");
        map.clear().unwrap();
        assert!(map.is_empty().unwrap());
        assert!(db.check().unwrap().problems.is_empty());
    }
}

#[test]
fn reserve_1_a_large_transaction_or_an_ingest_in_progress_leaves_space_for_removals() {
    for ingests in [false, true] {
        let fs = MemFs::new();
        fs.set_capacity(Some(24 * MIB));
        let builder = Db::builder().env(Env::with_fs(Arc::new(fs.clone()))).memory(4 << 20);
        let db = builder.open(dir()).unwrap();
        let (map, other) = (db.create_keyspace("large").unwrap(), db.default_keyspace());
        for key in 0..2000_u32 {
            other.with(Durability::None).put(key.to_be_bytes(), [1; 100]).unwrap();
        }
        db.flush().unwrap();
        let (mut ingest, mut txn) = (map.ingest(), db.begin());
        let mut rng = fastrand::Rng::with_seed(3);
        let mut put = |key: u32| {
            let (key, value) = (key.to_be_bytes(), (0..1000).map(|_| rng.u8(..)).collect::<Vec<u8>>());
            if ingests { ingest.put(key, value) } else { txn.put(&map, key, value) }
        };
        let full = (0..).find_map(|key| put(key).err());
        assert!(matches!(full, Some(Error::NoSpace { .. })), "{full:?}");
        let free = fs.free_bytes(dir()).unwrap() + spare_log_bytes(&fs);
        assert!(free > 2 * MIB, "reserve.1: {free} bytes are free, ingests: {ingests}");
        for key in 0..2000_u32 {
            other.delete(key.to_be_bytes()).unwrap();
        }
        assert!(other.is_empty().unwrap() && map.is_empty().unwrap());
    }
}

#[test]
fn reserve_1_values_in_blob_files_leave_the_reserve_of_a_disk_that_others_have_filled() {
    let fs = MemFs::new();
    fs.set_capacity(Some(64 * MIB));
    let db =
        simulated(Arc::new(fs.clone())).memory(4 << 20).blobs(esker::Blobs::From(1000)).open(dir()).unwrap();
    let map = db.default_keyspace();
    let mut rng = fastrand::Rng::with_seed(5);
    let mut put = |key: u32| map.put(key.to_be_bytes(), (0..20_000).map(|_| rng.u8(..)).collect::<Vec<u8>>());
    put(0).unwrap();
    // The reserve is known from the first version on. Then the next value gets a credit of 1 MiB.
    db.flush().unwrap();
    put(1).unwrap();
    fs.set_capacity(Some(fs.used_bytes() + (640 << 10)));
    // The new version shares the disk again.
    db.flush().unwrap();
    let full = (2..).find_map(|key| put(key).err());
    assert!(matches!(full, Some(Error::NoSpace { .. })), "{full:?}");
    let free = fs.free_bytes(dir()).unwrap();
    // An eighth of the 660 KB of the disk.
    assert!(free > 80 << 10, "reserve.1: {free} bytes are free");
    map.clear().unwrap();
    assert!(map.is_empty().unwrap() && db.check().unwrap().problems.is_empty());
}

#[test]
fn reserve_2_large_transactions_that_remove_are_taken_while_flushes_find_no_space() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let db = simulated(Arc::new(faults.clone())).tuning(|t| t.transaction_memory(1000)).open(dir()).unwrap();
    let no_table = || FaultRule::new(&[OpKind::Create], FaultAction::NoSpace).on_path(".sst");
    faults.add(no_table().forever());
    let map = db.default_keyspace();
    let count = fill_up(&map, 0, 100);
    faults.clear();
    for puts in [true, false] {
        let mut batch = db.batch();
        (0..count).for_each(|key| batch.delete(&map, key.to_be_bytes()).unwrap());
        if puts {
            batch.put(&map, "a", "1").unwrap();
        }
        // The flush that the commit waits for.
        faults.add(no_table());
        let committed = batch.commit();
        assert_eq!(committed.is_ok(), !puts, "{:?}", committed.map_err(|failed| failed.error));
        faults.clear();
    }
    assert!(map.is_empty().unwrap() && db.stats().adoptions == 1, "{:?}", db.stats());
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn reserve_2_removals_are_taken_while_flushes_find_no_space_but_not_without_end() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let db = simulated(Arc::new(faults.clone())).open(dir()).unwrap();
    faults.add(FaultRule::new(&[OpKind::Create], FaultAction::NoSpace).on_path(".sst").forever());
    let map = db.default_keyspace();
    let count = fill_up(&map, 0, 100);
    assert!(matches!(map.put("a", "1"), Err(Error::NoSpace { .. })));
    let sealed = db.stats().memtables_sealed;
    let removed = (0..10_000).take_while(|n: &u32| map.delete(n.to_be_bytes()).is_ok()).count() as u32;
    assert!(
        removed > count && db.stats().memtables_sealed <= sealed + 5,
        "reserve.2: {removed}, {:?}",
        db.stats()
    );
    faults.clear();
    assert!(map.is_empty().unwrap());
    map.put("a", "1").unwrap();
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn tables_go_unread_from_a_disk_that_others_have_filled() {
    let fs = MemFs::new();
    let db = simulated(Arc::new(fs.clone())).open(dir()).unwrap();
    let map = db.default_keyspace();
    fill(&map, 0..300, 100);
    db.flush().unwrap();
    // The log has a segment.
    map.put("a", "1").unwrap();
    let spares = || fs.list_dir(dir()).unwrap().iter().filter(|name| name.starts_with("wal-spare-")).count();
    let before = spares();
    assert!(before > 0, "{:?}", fs.list_dir(dir()));
    fs.set_capacity(Some(fs.used_bytes()));
    map.clear().unwrap();
    assert!(db.step(BackgroundStep::Compact { idle: false }).unwrap());
    assert_eq!((db.stats().table_bytes, spares()), (0, 0));
    fs.set_capacity(None);
    drop(map);
    db.close().unwrap();
    let db = simulated(Arc::new(fs)).open(dir()).unwrap();
    assert!(db.default_keyspace().is_empty().unwrap() && db.check().unwrap().problems.is_empty());
}

#[test]
fn with_little_room_a_flush_is_cut_so_that_its_pieces_are_merged_one_by_one() {
    let tables_of_a_flush = |is_full: bool| {
        let fs = MemFs::new();
        fs.set_capacity(Some(24 * MIB));
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        let db = Db::builder().stepped().env(env).memory(16 << 20).open(dir()).unwrap();
        let map = db.default_keyspace();
        fill(&map, 0..8000, 1000);
        db.compact().unwrap();
        let before = db.stats().tables;
        if is_full {
            fs.set_capacity(Some(fs.used_bytes() + MIB));
        }
        (0..8000).step_by(100).for_each(|n: u32| map.delete(n.to_be_bytes()).map(drop).unwrap());
        db.flush().unwrap();
        (before, db.stats().tables - before)
    };
    let (of_base, of_flush) = tables_of_a_flush(true);
    assert!(of_base > 4 && of_flush == of_base, "{of_flush} tables over {of_base}");
    assert!(tables_of_a_flush(false).1 < of_base);
}
