//! An unreadable block in an open database: walks stop at it, and everything else continues.
//!
//! ```text
//!   closed database --a value in one block changed--> open --walk, write, compact--> error, or right data
//! ```
//!
//! - A successful call stands on the right key. After a failed call the cursor is not valid. There is no
//!   panic.
//! - An iterator gives the right entries, then one error, then nothing.
//! - A compaction that cannot read a table delays no other compaction, shows in the statistics, and is
//!   retried later.
//! - Writes elsewhere succeed.
//! - A walk over a range does not meet damage in a table without entries in the range.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::common::damage::{overwrite, read, table_range};
use crate::common::{dir, simulated, tiny};
use esker::{BackgroundStep, Builder, Cursor, Db, Error, Key, Result, TableCompression, Value};
use esker_env::{Clock, Env, Fs, ManualClock, MemFs};

/// Keys and values, in order.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn key(n: u32) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

/// A value that can be found in the file unchanged.
fn value(n: u32, layer: u32) -> Vec<u8> {
    format!("<{layer}:{n:03}>").repeat(6).into_bytes()
}

fn plain(fs: &MemFs) -> Builder {
    simulated(Arc::new(fs.clone())).stepped().compression(TableCompression::None)
}

/// Changes a byte of the block with this value. Returns the name of the table.
fn damage(fs: &MemFs, value: &[u8]) -> String {
    // Replaced tables may not be removed yet. Opening removes them.
    plain(fs).open(dir()).unwrap().close().unwrap();
    for name in fs.list_dir(dir()).unwrap().into_iter().filter(|name| name.ends_with(".sst")) {
        let bytes = read(fs, &name);
        if let Some(at) = bytes.windows(value.len()).position(|window| window == value) {
            overwrite(fs, &name, at, &[bytes[at] ^ 1]);
            return name;
        }
    }
    panic!("no table has the value");
}

/// Two runs of several tables with several blocks each, and a memtable. Also returns the entries.
fn layers() -> (MemFs, Entries) {
    let fs = MemFs::new();
    let db = plain(&fs).open(dir()).unwrap();
    let map = db.default_keyspace();
    let mut newest: Vec<_> = (0..120).map(|n| (key(n), value(n, 0))).collect();
    let mut put = |n: u32, layer: u32| {
        newest[n as usize].1 = value(n, layer);
        map.put(key(n), value(n, layer)).unwrap();
    };
    (0..120).for_each(|n| put(n, 0));
    db.compact().unwrap();
    (0..120).step_by(3).for_each(|n| put(n, 1));
    db.flush().unwrap();
    (0..120).step_by(17).for_each(|n| put(n, 2));
    assert_eq!(db.stats().runs, 2);
    assert!(db.stats().tables > 8, "{:?}", db.stats());
    db.close().unwrap();
    // Readers of other tests' databases may delay the removal of replaced tables. There are none for this
    // copy.
    let fs = fs.crash_keep_all();
    plain(&fs).open(dir()).unwrap().close().unwrap();
    (fs, newest)
}

/// Databases with one damaged block, in either run.
fn damaged() -> impl Iterator<Item = (Db, Entries)> {
    [(50, 0), (5, 0), (119, 0), (61, 0), (60, 1), (3, 1), (117, 1), (90, 1)].into_iter().map(|(n, layer)| {
        let (fs, newest) = layers();
        damage(&fs, &value(n, layer));
        (plain(&fs).open(dir()).unwrap(), newest)
    })
}

#[test]
fn the_usual_loop_ends_at_the_error() {
    for (db, newest) in damaged() {
        let walk = |start: fn(&mut Cursor) -> Result<bool>, go: fn(&mut Cursor) -> Result<bool>| {
            let mut cursor = db.default_keyspace().cursor().unwrap();
            let (mut seen, mut errors) = (Vec::new(), 0);
            errors += u32::from(start(&mut cursor).is_err());
            while cursor.valid() {
                seen.push((cursor.key().to_vec(), cursor.value().unwrap().to_vec()));
                errors += u32::from(go(&mut cursor).is_err_and(|e| e.is_corrupt()));
            }
            assert_eq!(errors, 1);
            seen
        };
        let forward = walk(Cursor::seek_first, Cursor::next);
        assert!(forward.len() < newest.len() && newest.starts_with(&forward));
        let mut backward = walk(Cursor::seek_last, Cursor::prev);
        backward.reverse();
        assert!(backward.len() < newest.len() && newest.ends_with(&backward));
    }
}

#[test]
fn any_moves_over_a_damaged_block() {
    let mut rng = fastrand::Rng::with_seed(3);
    let (mut failed, mut moved) = (0, 0);
    for (db, newest) in damaged() {
        let mut cursor = db.default_keyspace().cursor().unwrap();
        let mut at: Option<usize> = None;
        for step in 0..3000 {
            let to = rng.usize(0..newest.len() + 1);
            let target = key(to as u32);
            let (outcome, to) = match rng.u8(0..12) {
                0 => (cursor.seek(&target), Some(to)),
                1 => (cursor.seek_before(&target), to.checked_sub(1)),
                2 => (cursor.seek_first(), Some(0)),
                3 => (cursor.seek_last(), Some(newest.len() - 1)),
                _ if !cursor.valid() => continue,
                4..8 => (cursor.next(), at.map(|i| i + 1)),
                _ => (cursor.prev(), at.and_then(|i| i.checked_sub(1))),
            };
            at = to.filter(|&i| i < newest.len() && outcome.is_ok());
            let shown = cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().unwrap().to_vec()));
            assert_eq!(shown, at.map(|i| newest[i].clone()), "step {step}: {outcome:?}");
            match outcome {
                Ok(_) => moved += 1,
                Err(error) => {
                    assert!(error.is_corrupt(), "{error:?}");
                    failed += 1;
                }
            }
        }
    }
    assert!(failed > 50 && moved > 1000, "{failed} {moved}");
}

#[test]
fn iterators_end_with_the_error() {
    let mut rng = fastrand::Rng::with_seed(4);
    let bare = |entry: Option<Result<(Key, Value)>>| entry.map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())));
    for (db, newest) in damaged() {
        let map = db.default_keyspace();
        let mut transaction = db.begin();
        transaction.put(&map, key(7), value(7, 9)).unwrap();
        let mut own = newest.clone();
        own[7].1 = value(7, 9);
        for round in 0..40 {
            let (mut range, all) = match round % 2 {
                0 => (map.iter(), &newest),
                _ => (transaction.iter(&map), &own),
            };
            // From the front, from the back, or from both ends.
            let back = [0, 100, 50][round / 2 % 3];
            let (mut front, mut end) = (0, all.len());
            let error = loop {
                let taken = if rng.u8(0..100) < back {
                    end -= 1;
                    (bare(range.next_back()), end)
                } else {
                    front += 1;
                    (bare(range.next()), front - 1)
                };
                match taken {
                    (Some(Ok(entry)), at) => assert_eq!(entry, all[at]),
                    (Some(Err(error)), _) => break error,
                    (None, _) => panic!("the damage went unnoticed"),
                }
            };
            assert!(error.is_corrupt(), "{error:?}");
            for _ in 0..3 {
                assert!(range.next().is_none() && range.next_back().is_none());
            }
        }
    }
}

#[test]
fn damage_beside_a_range_is_not_met() {
    let (sound, newest) = layers();
    let mut met = 0;
    for name in sound.list_dir(dir()).unwrap().into_iter().filter(|name| name.ends_with(".sst")) {
        // Encoded keys start with the number of their keyspace.
        let (first, last) = table_range(&sound, &name);
        let (first, last) = (&first[1..], &last[1..]);
        let bytes = read(&sound, &name);
        for edge in [first, last] {
            let fs = sound.crash_keep_all();
            let n = std::str::from_utf8(&edge[3..]).unwrap().parse().unwrap();
            let find = |value: Vec<u8>| bytes.windows(value.len()).position(|window| window == value);
            let place = |layer| find(value(n, layer));
            let at = place(0).or_else(|| place(1)).or_else(|| place(2)).unwrap();
            overwrite(&fs, &name, at, &[bytes[at] ^ 1]);
            let db = plain(&fs).open(dir()).unwrap();
            let map = db.default_keyspace();
            let bare = |(key, value): (Key, Value)| (key.to_vec(), value.to_vec());
            let before: Entries = map.range(..first).map(|entry| bare(entry.unwrap())).collect();
            assert_eq!(before[..], newest[..newest.partition_point(|(key, _)| key.as_slice() < first)]);
            let behind = (Bound::Excluded(last), Bound::<&[u8]>::Unbounded);
            let mut behind: Entries = map.range(behind).rev().map(|entry| bare(entry.unwrap())).collect();
            behind.reverse();
            assert_eq!(behind[..], newest[newest.partition_point(|(key, _)| key.as_slice() <= last)..]);
            met += usize::from(map.iter().any(|entry| entry.is_err()));
        }
    }
    assert!(met > 16, "{met}");
}

/// Keys around the damaged block. Writing a key of the block fails, because the commit checks whether the key
/// exists.
fn around(keys: std::ops::Range<u32>) -> impl Iterator<Item = u32> + Clone {
    keys.filter(|n| !(446..455).contains(n))
}

/// Three groups of keys, each with its own base tables. A block of the middle one is damaged.
fn areas(fs: &MemFs) -> String {
    let db = plain(fs).open(dir()).unwrap();
    let map = db.default_keyspace();
    for area in [0, 400, 800] {
        (area..area + 100).for_each(|n| map.put(key(n), value(n, 0)).map(drop).unwrap());
    }
    db.compact().unwrap();
    db.close().unwrap();
    damage(fs, &value(450, 0))
}

/// Compacts until nothing is due. Returns the errors.
fn merge_all(db: &Db) -> Vec<Error> {
    let mut failed = Vec::new();
    for _ in 0..100 {
        match db.step(BackgroundStep::Compact { idle: true }) {
            Ok(true) => {}
            Ok(false) => return failed,
            Err(error) => failed.push(error),
        }
    }
    panic!("merging comes to no end: {failed:?}");
}

#[test]
fn other_merges_go_on_and_the_error_is_seen() {
    let fs = MemFs::new();
    let table = areas(&fs);
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(fs.clone()), 1) };
    let db = tiny(env).stepped().compression(TableCompression::None).open(dir()).unwrap();
    let map = db.default_keyspace();
    for keys in [440..460, 840..844, 40..44] {
        around(keys).for_each(|n| map.put(key(n), value(n, 1)).map(drop).unwrap());
        db.flush().unwrap();
    }
    assert_eq!((db.stats().runs, db.stats().background_error), (4, None));
    let merge = || db.step(BackgroundStep::Compact { idle: true });
    let [error] = &merge_all(&db)[..] else { panic!("one table is damaged") };
    assert!(error.is_corrupt() && error.to_string().contains(&table), "{error}");
    let stats = db.stats();
    assert_eq!((stats.compactions_failed, stats.tables_unreadable, stats.runs), (1, 1, 2), "{stats:?}");
    assert!(stats.compactions >= 2, "{stats:?}");
    assert_eq!(stats.background_error, Some(error.to_string()));
    // It is retried after growing pauses, and not in between.
    for (n, pause) in [1, 2, 4].into_iter().enumerate() {
        clock.sleep(Duration::from_secs(pause) - Duration::from_nanos(1));
        assert!(!merge().unwrap());
        clock.sleep(Duration::from_nanos(1));
        assert!(merge().unwrap_err().is_corrupt());
        assert_eq!(db.stats().compactions_failed, n as u64 + 2);
    }
    // Newer tables above the damaged one wait for it as well.
    around(444..457).for_each(|n| map.put(key(n), value(n, 2)).map(drop).unwrap());
    db.flush().unwrap();
    assert_eq!((merge_all(&db).len(), db.stats().runs), (0, 3));
    for (n, layer) in [(41, 1), (99, 0), (456, 2), (441, 1), (841, 1)] {
        assert_eq!(map.get(key(n)).unwrap().as_deref(), Some(&value(n, layer)[..]));
    }
}

#[test]
fn a_table_that_can_be_read_again_is_merged_and_forgotten() {
    let fs = MemFs::new();
    let table = areas(&fs);
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(fs.clone()), 1) };
    let db = tiny(env).stepped().compression(TableCompression::None).open(dir()).unwrap();
    around(440..460).for_each(|n| db.default_keyspace().put(key(n), value(n, 1)).map(drop).unwrap());
    db.flush().unwrap();
    assert_eq!((merge_all(&db).len(), db.stats().tables_unreadable, db.stats().runs), (1, 1, 2));
    let at = read(&fs, &table).windows(6).position(|w| w[1..] == value(450, 0)[1..6]).unwrap();
    overwrite(&fs, &table, at, b"<");
    assert_eq!((merge_all(&db).len(), db.stats().runs), (0, 2), "it has to wait");
    clock.sleep(Duration::from_secs(1));
    assert!(merge_all(&db).is_empty());
    let stats = db.stats();
    assert_eq!((stats.compactions_failed, stats.tables_unreadable, stats.runs), (1, 0, 1));
    assert!(stats.background_error.is_some(), "it stays");
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn writes_elsewhere_succeed_without_threads() {
    let fs = MemFs::new();
    areas(&fs);
    let db = simulated(Arc::new(fs.clone())).compression(TableCompression::None).open(dir()).unwrap();
    let map = db.default_keyspace();
    // Enough that writers find compaction far behind: first over the damaged block, then elsewhere.
    for keys in [400..500, 0..100] {
        for layer in 1..30 {
            around(keys.clone()).for_each(|n| map.put(key(n), value(n, layer)).map(drop).unwrap());
        }
    }
    let stats = db.stats();
    assert!(stats.compactions_failed > 0 && stats.compactions > 0, "{stats:?}");
    for (n, layer) in [(0, 29), (440, 29), (850, 0)] {
        assert_eq!(map.get(key(n)).unwrap().as_deref(), Some(&value(n, layer)[..]));
    }
}
