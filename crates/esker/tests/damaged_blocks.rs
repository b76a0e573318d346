//! A block that cannot be read, in a database that is open: walks stop at it.
//!
//! ```text
//!   closed database --a value in one block changed--> open --walk--> an error, or the right data
//! ```
//!
//! K1. A call that succeeds stands on the right key; after one that failed the cursor stands on none. Nothing panics.
//! K2. An iterator gives the right entries, then one error, then nothing more.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::damage::{overwrite, read};
use common::{dir, simulated};
use esker::{Builder, Cursor, Db, Key, Result, TableCompression, Value};
use esker_env::{Fs, MemFs};

fn key(n: u32) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

/// A value that is found in the file as it is.
fn value(n: u32, layer: u32) -> Vec<u8> {
    format!("<{layer}:{n:03}>").repeat(6).into_bytes()
}

fn plain(fs: &MemFs) -> Builder {
    simulated(Arc::new(fs.clone())).stepped().compression(TableCompression::None)
}

/// Changes a byte of the block that holds this value.
fn damage(fs: &MemFs, value: &[u8]) {
    // Replaced tables may still be on their way out; opening removes what is left of them.
    plain(fs).open(dir()).unwrap().close().unwrap();
    for name in fs.list_dir(dir()).unwrap().into_iter().filter(|name| name.ends_with(".sst")) {
        let bytes = read(fs, &name);
        if let Some(at) = bytes.windows(value.len()).position(|window| window == value) {
            overwrite(fs, &name, at, &[bytes[at] ^ 1]);
            return;
        }
    }
    panic!("no table has the value");
}

/// Two runs of several tables of several blocks each, and a memtable; what is in them.
fn layers(fs: &MemFs) -> Vec<(Vec<u8>, Vec<u8>)> {
    let db = plain(fs).open(dir()).unwrap();
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
    newest
}

/// Databases with one damaged block, in either run.
fn damaged() -> impl Iterator<Item = (Db, Vec<(Vec<u8>, Vec<u8>)>)> {
    [(50, 0), (5, 0), (119, 0), (61, 0), (60, 1), (3, 1), (117, 1), (90, 1)].into_iter().map(|(n, layer)| {
        let fs = MemFs::new();
        let newest = layers(&fs);
        damage(&fs, &value(n, layer));
        (plain(&fs).open(dir()).unwrap(), newest)
    })
}

#[test]
fn k1_the_usual_loop_ends_at_the_error() {
    for (db, newest) in damaged() {
        let walk = |start: fn(&mut Cursor) -> Result<()>, go: fn(&mut Cursor) -> Result<()>| {
            let mut cursor = db.default_keyspace().cursor().unwrap();
            let (mut seen, mut errors) = (Vec::new(), 0);
            errors += u32::from(start(&mut cursor).is_err());
            while cursor.valid() {
                seen.push((cursor.key().to_vec(), cursor.value().to_vec()));
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
fn k1_any_moves_over_a_damaged_block() {
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
            let shown = cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()));
            assert_eq!(shown, at.map(|i| newest[i].clone()), "K1: step {step}: {outcome:?}");
            match outcome {
                Ok(()) => moved += 1,
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
fn k2_iterators_end_with_the_error() {
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
                    (Some(Ok(entry)), at) => assert_eq!(entry, all[at], "K2"),
                    (Some(Err(error)), _) => break error,
                    (None, _) => panic!("K2: the damage went unnoticed"),
                }
            };
            assert!(error.is_corrupt(), "{error:?}");
            for _ in 0..3 {
                assert!(range.next().is_none() && range.next_back().is_none(), "K2");
            }
        }
    }
}
