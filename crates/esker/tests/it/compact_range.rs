//! Compactions of a key range: what space returns, and what readers, copies and other ranges keep.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::dir;
use esker::{BackgroundStep, Blobs, Builder, Db, Error, Event, History, Keyspace};
use esker_env::{Env, MemFs};

fn open(env: &Env, builder: Builder) -> Db {
    let builder = builder.background(false).tuning(|t| t.table_bytes(64 << 10));
    builder.env(env.clone()).open(dir()).unwrap()
}

fn env() -> Env {
    Env::simulated(Arc::new(MemFs::new()), 1)
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// Puts incompressible values of 200 bytes.
fn fill(map: &Keyspace, keys: std::ops::Range<u32>) {
    let mut rng = fastrand::Rng::with_seed(7);
    for n in keys {
        let value: Vec<u8> = (0..200).map(|_| rng.u8(..)).collect();
        map.put(key(n), value).unwrap();
    }
}

#[test]
fn space_returns_in_the_range_and_other_tables_are_not_rewritten() {
    let read = Arc::new(std::sync::Mutex::new(0));
    let counted = read.clone();
    let events = move |event: &Event| {
        if let Event::CompactionEnded { bytes_read, .. } = event {
            *counted.lock().unwrap() += bytes_read;
        }
    };
    let db = open(&env(), Db::builder().on_event(events));
    let map = db.keyspace("logs").unwrap();
    fill(&map, 0..4000);
    db.compact().unwrap();
    let whole = db.stats().table_bytes;
    // Removals of all kinds in the range, and writes over all of the base.
    (0..400).for_each(|n| assert!(map.delete(key(n)).is_ok()));
    map.delete_range(key(400)..key(800)).unwrap();
    map.put_with_ttl(key(800), [1; 200], Duration::ZERO).unwrap();
    (0..40).for_each(|n| assert!(map.put(key(n * 100 + 1), "new").is_ok()));
    let size = || map.approximate_size(..key(1000)).unwrap();
    db.flush().unwrap();
    let before = size();
    *read.lock().unwrap() = 0;
    map.compact_range(..key(801)).unwrap();
    let (after, read) = (size(), *read.lock().unwrap());
    assert!(after < before / 3, "{before} before, {after} after");
    assert!(read < whole / 2, "{read} of {whole} bytes read");
    assert_eq!(map.len().unwrap(), 8 + 3199);
    assert_eq!(map.get(key(3901)).unwrap().as_deref(), Some(&b"new"[..]));
    assert!(db.check().unwrap().problems.is_empty());
    map.compact_range(key(9)..key(3)).unwrap();
    db.drop_keyspace("logs").unwrap();
    assert!(matches!(map.compact_range(..), Err(Error::KeyspaceNotFound(_))));
}

#[test]
fn snapshots_history_merges_and_large_values_keep_their_answers() {
    let env = env();
    let db = open(&env, Db::builder().blobs(Blobs::From(1000)));
    let map = db.keyspace("a").unwrap();
    map.set_merge_operator("add-i64").unwrap();
    map.set_history(History::Versions(2)).unwrap();
    fill(&map, 0..1000);
    db.compact().unwrap();
    (0..1000).step_by(10).for_each(|n| assert!(map.put(key(n), vec![3; 5000]).is_ok()));
    map.put(b"sum", 5_i64.to_le_bytes()).unwrap();
    map.merge(b"sum", 7_i64.to_le_bytes()).unwrap();
    let (snapshot, at) = (db.snapshot(), db.snapshot().seqno());
    map.delete_range(key(100)..key(500)).unwrap();
    map.merge(b"sum", 1_i64.to_le_bytes()).unwrap();
    let other = db.keyspace("b").unwrap();
    fill(&other, 0..100);
    let answers = || {
        let newest: Vec<_> =
            map.range(..).map(Result::unwrap).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        let old: Vec<_> =
            snapshot.range(&map, ..).map(Result::unwrap).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        let past = map.at(at).unwrap().get(key(100)).unwrap().map(|v| v.to_vec());
        (newest, old, past, map.len().unwrap(), other.len().unwrap())
    };
    let before = answers();
    assert_eq!((before.3, before.2.as_ref().unwrap().len()), (601, 5000));
    for range in [key(50)..key(300), key(300)..key(301), key(0)..key(2000)] {
        map.compact_range(range).unwrap();
        assert!(answers() == before);
    }
    map.compact_range(b"sum".as_slice()..=b"sum").unwrap();
    assert!(answers() == before);
    assert_eq!(map.get(b"sum").unwrap().as_deref(), Some(&13_i64.to_le_bytes()[..]));
    db.checkpoint("copy").unwrap();
    drop(snapshot);
    let copy = Db::builder().background(false).env(env).open("copy").unwrap();
    assert_eq!(copy.keyspace("a").unwrap().len().unwrap(), 601);
    while db.step(BackgroundStep::Compact { idle: true }).unwrap() {}
    assert!(db.check().unwrap().problems.is_empty());
}

/// Everything that readers can see of a keyspace.
#[derive(Debug, PartialEq)]
struct Answers {
    newest: Vec<(Vec<u8>, Vec<u8>)>,
    old: Vec<(Vec<u8>, Vec<u8>)>,
    past: Vec<Option<Vec<u8>>>,
    len: u64,
}

fn answers(map: &Keyspace, snapshot: &esker::Snapshot, at: esker::SeqNo) -> Answers {
    let all =
        |range: esker::Range| range.map(Result::unwrap).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    let past = map.at(at);
    let past = |n| past.as_ref().ok().and_then(|past| past.get(key(n)).unwrap().map(|value| value.to_vec()));
    Answers {
        newest: all(map.range(..)),
        old: all(snapshot.range(map, ..)),
        past: (0..300).map(past).collect(),
        len: map.len().unwrap(),
    }
}

#[test]
fn random_ranges_after_random_writes_change_no_answer() {
    for seed in 0..6 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let env = env();
        let db = open(&env, Db::builder().blobs(Blobs::From(300)));
        let map = db.keyspace("a").unwrap();
        map.set_merge_operator("add-i64").unwrap();
        // Every other keyspace keeps all versions, so that its past stays, too.
        if seed % 2 == 0 {
            map.set_history(History::Versions(10_000)).unwrap();
        }
        let mut held = (db.snapshot(), db.snapshot().seqno());
        for round in 0..40 {
            for _ in 0..30 {
                let key = key(rng.u32(..300));
                match rng.u8(..10) {
                    0..4 => drop(map.put(key, vec![round; rng.usize(..600)]).unwrap()),
                    4 => drop(map.delete(key).unwrap()),
                    5 => drop(map.put_with_ttl(key, "short", Duration::from_secs(3600)).unwrap()),
                    6 => drop(map.put_with_ttl(key, "expired", Duration::ZERO).unwrap()),
                    7 => drop(
                        map.put(key, 1_i64.to_le_bytes()).and_then(|_| map.merge(key, 2_i64.to_le_bytes())),
                    ),
                    8 => drop(map.delete_range(key..self::key(rng.u32(..300)))),
                    _ => assert!(db.flush().is_ok()),
                }
            }
            db.sweep().unwrap();
            if rng.u8(..4) == 0 {
                held = (db.snapshot(), db.snapshot().seqno());
            }
            let before = answers(&map, &held.0, held.1);
            let (start, end) = (key(rng.u32(..300)), key(rng.u32(..300)));
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| answers(&map, &held.0, held.1));
                let other = scope.spawn(|| db.step(BackgroundStep::Compact { idle: true }).unwrap());
                // Some of the ranges are empty or reversed.
                map.compact_range(start..end).unwrap();
                assert_eq!(reader.join().unwrap(), before, "seed {seed}, round {round}");
                other.join().unwrap();
            });
            assert_eq!(answers(&map, &held.0, held.1), before, "seed {seed}, round {round}");
        }
        map.compact_range(key(7)..key(7)).unwrap();
        assert!(db.check().unwrap().problems.is_empty());
    }
}

#[test]
fn databases_that_only_read_refuse() {
    let env = env();
    let db = open(&env, Db::builder());
    fill(&db.keyspace("a").unwrap(), 0..10);
    db.close().unwrap();
    let db = Db::builder().background(false).env(env).open_read_only(dir()).unwrap();
    assert!(matches!(db.open_keyspace("a").unwrap().compact_range(..), Err(Error::ReadOnly(_))));
}
