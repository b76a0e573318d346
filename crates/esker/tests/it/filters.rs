//! Compaction filters: what they drop or change is dropped or changed for readers, counts and files, and for
//! no snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::env::{Env, ManualClock, MemFs};
use esker::{BackgroundStep, Blobs, Builder, Db, Decision, Isolation, TableCompression};

fn in_memory(filter: impl Fn(&[u8], &[u8]) -> Decision + Send + Sync + 'static) -> Builder {
    Db::builder().background(false).compaction_filter("f", filter)
}

fn drop_odd(_: &[u8], value: &[u8]) -> Decision {
    if value.last().is_some_and(|byte| byte % 2 == 1) { Decision::Drop } else { Decision::Keep }
}

#[test]
fn a_merge_by_hand_shows_all_entries_and_frees_what_goes() {
    let change = |key: &[u8], value: &[u8]| match value {
        b"gone" => Decision::Drop,
        b"old" => Decision::Change(key.repeat(2)),
        _ => Decision::Keep,
    };
    let db = in_memory(change).blobs(Blobs::Never).open_in_memory().unwrap();
    let (map, other) = (db.keyspace("f").unwrap(), db.keyspace("other").unwrap());
    for n in 0..1000_u32 {
        let value: &[u8] = [b"gone".as_slice(), b"old", b"kept"][n as usize % 3];
        map.put(n.to_be_bytes(), value).unwrap();
        other.put(n.to_be_bytes(), value).unwrap();
    }
    // Once they are in the base run, and no compaction can make them smaller.
    db.compact().unwrap();
    assert_eq!((map.len().unwrap(), other.len().unwrap()), (666, 1000));
    map.put("late", "gone").unwrap();
    db.compact().unwrap();
    for n in 0..1000_u32 {
        let expected =
            [None, Some(n.to_be_bytes().repeat(2)), Some(b"kept".to_vec())][n as usize % 3].clone();
        assert_eq!(map.get(n.to_be_bytes()).unwrap().as_deref(), expected.as_deref());
    }
    assert_eq!((map.get("late").unwrap(), map.len().unwrap(), map.iter().count()), (None, 666, 666));
    assert_eq!(other.iter().count(), 1000);
    assert_eq!(db.stats().runs, 1);
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn an_entry_that_a_snapshot_reads_is_not_shown() {
    let shown = Arc::new(AtomicU64::new(0));
    let count = shown.clone();
    let filter = move |_: &[u8], _: &[u8]| {
        count.fetch_add(1, Ordering::Relaxed);
        Decision::Drop
    };
    let db = in_memory(filter).open_in_memory().unwrap();
    let map = db.keyspace("f").unwrap();
    map.put("a", "1").unwrap();
    let snapshot = db.snapshot();
    map.put("b", "1").unwrap();
    db.compact().unwrap();
    assert_eq!((shown.load(Ordering::Relaxed), map.len().unwrap()), (1, 1), "b alone was shown");
    assert_eq!(snapshot.get(&map, "a").unwrap().as_deref(), Some(&b"1"[..]));
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!((shown.load(Ordering::Relaxed), map.len().unwrap()), (2, 0));
}

#[test]
fn a_newer_write_wins_and_lengths_stay_exact() {
    // A compaction sees the version in the table while a newer one is in the memtable, or arrives as the
    // filter decides.
    let slot: Arc<std::sync::Mutex<Option<esker::Keyspace>>> = Arc::default();
    let writer = slot.clone();
    let filter = move |key: &[u8], value: &[u8]| {
        if value != b"1" {
            return Decision::Keep;
        }
        if let Some(map) = writer.lock().unwrap().as_ref() {
            match key {
                b"put" => drop(map.put(key, "2").unwrap()),
                b"removed" => drop(map.delete(key).unwrap()),
                _ => {}
            }
        }
        Decision::Drop
    };
    let db = in_memory(filter).open_in_memory().unwrap();
    let map = db.keyspace("f").unwrap();
    for key in ["put", "removed", "alone", "covered"] {
        map.put(key, "1").unwrap();
    }
    db.flush().unwrap();
    *slot.lock().unwrap() = Some(map.clone());
    map.delete_range("cov".."cow").unwrap();
    let transaction = {
        // It reads what the filter drops. That counts as a read of another commit's write.
        let mut transaction = db.transaction().isolation(Isolation::Serializable).begin();
        transaction.get(&map, "alone").unwrap();
        transaction.put(&map, "of the transaction", "3").unwrap();
        transaction
    };
    drop(transaction);
    db.compact().unwrap();
    *slot.lock().unwrap() = None;
    assert_eq!(map.get("put").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!((map.len().unwrap(), map.iter().count()), (1, 1));
}

#[test]
fn merges_in_the_background_decide_too_while_others_write_and_read() {
    let fs = Arc::new(MemFs::new());
    let mut rng = fastrand::Rng::with_seed(7);
    let env = Env { fs: fs.clone(), clock: Arc::new(ManualClock::new()), ..Env::simulated(fs, 1) };
    let builder = Db::builder().compaction_filter("f", drop_odd).tuning(|t| t.memtable_bytes(4 << 10));
    let builder = builder.tuning(|t| t.block_bytes(256).table_bytes(4 << 10));
    let db = builder.stepped().blobs(Blobs::From(64)).env(env).open("db").unwrap();
    let map = db.keyspace("f").unwrap();
    let mut model = std::collections::BTreeMap::new();
    let (mut snapshot, mut dropped) = (None, 0);
    for round in 0..6000 {
        let key = [rng.u8(0..200)];
        match rng.u8(0..12) {
            0..5 => {
                let value = vec![rng.u8(..); rng.usize(1..90)];
                map.put(key, &value).unwrap();
                model.insert(key, value);
            }
            5 => drop((map.delete(key).unwrap(), model.remove(&key))),
            6 if round % 50 == 0 => snapshot = Some((db.snapshot(), model.clone())),
            6 if round % 50 == 1 => snapshot = None,
            7 => drop(db.step(BackgroundStep::Flush).unwrap()),
            8..11 => {
                db.step(BackgroundStep::Compact { idle: rng.bool() }).unwrap();
                let before = model.len();
                model.retain(|key, value| {
                    let is_there = map.contains(key).unwrap();
                    assert!(is_there || value.last().unwrap() % 2 == 1, "only what the filter drops goes");
                    is_there
                });
                dropped += before - model.len();
            }
            _ => assert_eq!(map.get(key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice)),
        }
        assert_eq!(map.len().unwrap(), model.len() as u64, "round {round}");
        if round % 100 == 0 {
            let all: Vec<_> = map.iter().map(|e| e.unwrap()).map(|(k, v)| ([k[0]], v.to_vec())).collect();
            assert!(all.iter().map(|(k, v)| (k, v)).eq(&model), "round {round}");
            if let Some((snapshot, then)) = &snapshot {
                let all: Vec<_> = snapshot.iter(&map).map(|e| e.unwrap()).collect();
                assert!(all.iter().map(|(k, v)| ([k[0]], v.to_vec())).eq(then.clone()), "round {round}");
                assert_eq!(snapshot.len(&map).unwrap(), then.len() as u64);
            }
        }
    }
    assert!(dropped > 200, "{dropped}");
    drop(snapshot);
    db.compact().unwrap();
    assert!(map.iter().all(|entry| entry.unwrap().1.last().unwrap() % 2 == 0));
    assert!(db.check().unwrap().problems.is_empty());
}

/// The runs of a large transaction have one commit number. A compaction of some of them must not take an
/// overwritten version for the newest one.
#[test]
fn what_a_large_transaction_overwrites_itself_is_not_decided_about() {
    let change = |_: &[u8], value: &[u8]| match value[0] {
        b'o' => Decision::Change(vec![b'c'; value.len()]),
        _ => Decision::Keep,
    };
    for is_removed in [false, true] {
        let small = in_memory(change).tuning(|t| t.memtable_bytes(700).transaction_memory(87));
        let small = small.tuning(|t| t.block_bytes(64).table_bytes(512)).memory(1 << 20);
        let db = small.blobs(Blobs::Never).compression(TableCompression::None).stepped();
        let db = db.open_in_memory().unwrap();
        let map = db.keyspace("f").unwrap();
        let mut batch = db.batch();
        for n in 0..5_u8 {
            batch.put(&map, [n], vec![b'k'; 40]).unwrap();
        }
        batch.put(&map, "key", vec![b'o'; 200]).unwrap();
        batch.put(&map, "other", vec![b'k'; 257]).unwrap();
        // This table is too large to be merged with the others.
        if is_removed {
            batch.delete_range(&map, "k".."l").unwrap();
            batch.put(&map, "large", vec![b'n'; 90_000]).unwrap();
        } else {
            batch.put(&map, "key", vec![b'n'; 90_000]).unwrap();
        }
        batch.commit().unwrap();
        let mut steps = 0;
        while db.step(BackgroundStep::Compact { idle: false }).unwrap() {
            steps += 1;
            let found = map.get("key").unwrap();
            assert_eq!(found.map(|value| value[0]), (!is_removed).then_some(b'n'), "step {steps}");
        }
        assert!(is_removed || steps > 1, "some of the tables are compacted before the others");
        assert_eq!(map.len().unwrap(), 7);
    }
}

#[test]
fn a_filter_sees_what_merges_have_made() {
    let seen: Arc<std::sync::Mutex<Vec<Vec<u8>>>> = Arc::default();
    let log = seen.clone();
    let filter = move |_: &[u8], value: &[u8]| {
        log.lock().unwrap().push(value.to_vec());
        if value == b"abc" { Decision::Drop } else { Decision::Keep }
    };
    let db = in_memory(filter).open_in_memory().unwrap();
    let map = db.keyspace("f").unwrap();
    map.set_merge_operator("append").unwrap();
    map.put("base", "a").unwrap();
    db.flush().unwrap();
    for operand in ["b", "c"] {
        map.merge("base", operand).unwrap();
        map.merge("none", operand).unwrap();
        db.flush().unwrap();
    }
    let snapshot = db.snapshot();
    map.merge("none", "d").unwrap();
    db.compact().unwrap();
    assert!(
        seen.lock().unwrap().is_empty(),
        "a snapshot reads the one, the other one stays an operand for it"
    );
    drop(snapshot);
    db.compact().unwrap();
    assert!(seen.lock().unwrap().iter().all(|value| [&b"abc"[..], b"bcd"].contains(&value.as_slice())));
    assert_eq!((map.get("base").unwrap(), map.get("none").unwrap().as_deref()), (None, Some(&b"bcd"[..])));
    assert_eq!(map.len().unwrap(), 1);
}

#[test]
fn an_exclusive_transaction_puts_decisions_off_and_no_merge_waits_for_it() {
    let db = in_memory(drop_odd).stepped().open_in_memory().unwrap();
    let map = db.keyspace("f").unwrap();
    for n in 0..3_u8 {
        map.put([n], [n]).unwrap();
        db.flush().unwrap();
    }
    let mut exclusive = db.transaction().isolation(Isolation::Exclusive).begin();
    exclusive.put(&map, "x", "0").unwrap();
    assert!(db.step(BackgroundStep::Compact { idle: true }).unwrap());
    assert_eq!(map.len().unwrap(), 3);
    exclusive.commit().unwrap();
    db.compact().unwrap();
    assert_eq!((map.len().unwrap(), map.get([1]).unwrap()), (3, None));
}

#[test]
fn a_decision_that_was_put_off_brings_no_removed_key_back_and_changes_no_newer_value() {
    let change = |_: &[u8], value: &[u8]| match value {
        b"old" => Decision::Change(b"changed".to_vec()),
        _ => Decision::Keep,
    };
    for puts_again in [false, true] {
        let db = in_memory(change).stepped().open_in_memory().unwrap();
        let map = db.keyspace("f").unwrap();
        // Tables with overlapping ranges, so that a compaction takes in all of them.
        let flush = || {
            for n in 0..4_u8 {
                map.put("0", [n]).unwrap();
                map.put("9", [n]).unwrap();
                db.flush().unwrap();
            }
        };
        let compact = || while db.step(BackgroundStep::Compact { idle: true }).unwrap() {};
        // The filter decides about "1", but others must not commit now. A version that the transaction could
        // read is not shown; its thread may write beside it.
        let exclusive = db.transaction().isolation(Isolation::Exclusive).begin();
        map.put("1", "old").unwrap();
        flush();
        compact();
        exclusive.rollback();
        assert_eq!(map.get("1").unwrap().as_deref(), Some(&b"old"[..]));
        // Other compactions drop all traces of the removal, or the number of the newer value.
        map.delete("1").unwrap();
        if puts_again {
            map.put("1", "new").unwrap();
        }
        flush();
        compact();
        // The next decision is committed with those that are kept.
        map.put("2", "old").unwrap();
        flush();
        compact();
        assert_eq!(map.get("2").unwrap().as_deref(), Some(&b"changed"[..]));
        let expected = if puts_again { Some(&b"new"[..]) } else { None };
        assert_eq!(map.get("1").unwrap().as_deref(), expected);
        assert_eq!(map.len().unwrap(), 3 + u64::from(puts_again));
    }
}

#[test]
fn a_panic_is_an_error_of_the_compaction_and_nothing_else() {
    let filter = |key: &[u8], _: &[u8]| match key[0] % 3 {
        0 => panic!("on purpose"),
        1 => Decision::Drop,
        _ => Decision::Keep,
    };
    let db = in_memory(filter).open_in_memory().unwrap();
    let map = db.keyspace("f").unwrap();
    (0..30_u8).for_each(|n| assert!(map.put([n], "1").is_ok()));
    let failed = db.compact();
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("filter") && text.contains("on purpose"), "{text}");
    assert_eq!((map.len().unwrap(), map.iter().count()), (20, 20));
    map.put("a", "1").unwrap();
    assert!(db.check().unwrap().problems.is_empty());
}
