//! Walks over a memtable above tables that do not fit the cache: every way to walk shows what a model has.
//! With snapshots, transactions, entries that expire, merges, removals of ranges and large values.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use esker::{Blobs, Db, Keyspace, Reads};
use esker_env::{Env, ManualClock, MemFs};

use crate::common::dir;

const KEYS: u32 = 700;
const SOON: Duration = Duration::from_secs(10);

/// Values, and whether they expire soon.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, bool)>;
type Entry = (Vec<u8>, Vec<u8>);
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn key(n: u32) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

fn random_bounds(rng: &mut fastrand::Rng) -> Bounds {
    let (a, b) = (rng.u32(..KEYS), rng.u32(..KEYS));
    let mut bound = |n: u32| match rng.u8(..5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key(n)),
        _ => Bound::Excluded(key(n)),
    };
    (bound(a.min(b)), bound(a.max(b) + 1))
}

/// One random write to a keyspace and its model.
fn write(rng: &mut fastrand::Rng, map: &Keyspace, model: &mut Model, removes_ranges: bool) {
    let n = rng.u32(..KEYS);
    let (key, value) = (key(n), n.to_be_bytes().repeat(rng.usize(100..600)));
    match rng.u8(..20) {
        0..4 => (map.delete(&key).map(drop).unwrap(), _ = model.remove(&key)).0,
        4 if removes_ranges => {
            let end = self::key(n + 9);
            map.delete_range(&key[..]..&end[..]).map(drop).unwrap();
            model.retain(|other, _| *other < key || *other >= end);
        }
        5 | 6 => {
            let is_soon = rng.bool();
            map.put_with_ttl(&key, &value, if is_soon { SOON } else { 1000 * SOON }).map(drop).unwrap();
            model.insert(key, (value, is_soon));
        }
        7 | 8 if !model.get(&key).is_some_and(|found| found.1) => {
            map.merge(&key, b"+").map(drop).unwrap();
            model.entry(key).or_default().0.push(b'+');
        }
        _ => {
            map.put(&key, &value).map(drop).unwrap();
            model.insert(key, (value, false));
        }
    }
}

/// Walks in each way, within random bounds.
fn check(rng: &mut fastrand::Rng, reads: &impl Reads, model: &Model, what: &str) {
    for _ in 0..4 {
        let bounds = random_bounds(rng);
        let what = format!("{what}, {bounds:?}");
        let entries = model.range(bounds.clone()).map(|(key, value)| (key.clone(), value.0.clone()));
        let expected: Vec<_> = entries.collect();
        let owned = |entry: esker::Result<(esker::Key, esker::Value)>| {
            let (key, value) = entry.unwrap();
            (Vec::from(key), value.to_vec())
        };
        assert!(reads.range(bounds.clone()).map(owned).eq(expected.iter().cloned()), "{what}");
        assert!(reads.range(bounds.clone()).rev().map(owned).eq(expected.iter().rev().cloned()), "{what}");
        let keys = reads.range(bounds.clone()).keys().map(|key| Vec::from(key.unwrap()));
        assert!(keys.eq(expected.iter().map(|entry| entry.0.clone())), "{what}");
        let (mut walk, mut left) = (reads.range(bounds.clone()), &expected[..]);
        // Both ends of one iterator, and `visit` with breaks.
        while let [first, middle @ .., last] = left
            && rng.u8(..20) > 0
        {
            assert_eq!(walk.next().map(owned).as_ref(), Some(first), "{what}");
            assert_eq!(walk.next_back().map(owned).as_ref(), Some(last), "{what}");
            left = middle;
            left = visit_some(&mut walk, left, rng.usize(..20), &what);
        }
        while !left.is_empty() && rng.u8(..20) > 0 {
            left = visit_some(&mut walk, left, rng.usize(..=left.len()), &what);
            assert_eq!(walk.next().map(owned).as_ref(), left.first(), "{what}");
            left = left.get(1..).unwrap_or_default();
        }
        move_cursor(rng, reads, (bounds, &expected), &what);
    }
}

/// Visits some of the entries that are left, and returns those behind them.
fn visit_some<'a>(walk: &mut esker::Range, left: &'a [Entry], count: usize, what: &str) -> &'a [Entry] {
    let (mut rest, mut visited) = (left.iter(), 0);
    let break_at = |visited| if visited < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    if count > 0 {
        walk.visit(|key, value| {
            assert_eq!(rest.next(), Some(&(key.to_vec(), value.to_vec())), "{what}");
            visited += 1;
            break_at(visited)
        })
        .unwrap();
        assert_eq!(visited, count.min(left.len()), "{what}");
    }
    rest.as_slice()
}

fn move_cursor(
    rng: &mut fastrand::Rng,
    reads: &impl Reads,
    (bounds, expected): (Bounds, &[Entry]),
    what: &str,
) {
    let mut cursor = reads.cursor_in(bounds).unwrap();
    let mut at = None;
    for _ in 0..60 {
        // Long moves in one direction, then perhaps back.
        let (is_forward, count) = (rng.bool(), rng.usize(1..60));
        if rng.u8(..4) == 0 || at.is_none() {
            let wanted = key(rng.u32(..KEYS));
            cursor.seek(&wanted).unwrap();
            at = Some(expected.partition_point(|entry| entry.0 < wanted)).filter(|at| *at < expected.len());
        }
        for _ in 0..count {
            let Some(here) = at else { break };
            at = match is_forward {
                true => (cursor.next().unwrap(), Some(here + 1).filter(|at| *at < expected.len())).1,
                false => (cursor.prev().unwrap(), here.checked_sub(1)).1,
            };
            let shown = cursor.peek().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(shown.as_ref(), at.map(|at| &expected[at]), "{what}");
        }
    }
}

fn expire(model: &mut Model) {
    model.retain(|_, (_, is_soon)| !*is_soon);
}

#[test]
fn every_walk_over_a_memtable_and_tables_shows_what_the_model_has() {
    let mut rng = fastrand::Rng::with_seed(51);
    for round in 0..16 {
        let clock = Arc::new(ManualClock::new());
        let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(MemFs::new()), round) };
        #[cfg(feature = "encryption")]
        let env = match round % 4 {
            3 => {
                let keys = esker::encryption::MasterKeys::new("key", &[7; 32]).unwrap();
                esker::encryption::with_keys(&env, Arc::new(keys))
            }
            _ => env,
        };
        let block_bytes = rng.usize(200..30_000);
        let builder = Db::builder().background(false).memory(1 << 20).env(env);
        let builder = if round % 4 == 1 { builder.blobs(Blobs::From(2000)) } else { builder };
        let tuned = builder.tuning(|t| t.block_bytes(block_bytes).table_bytes(300 << 10));
        let db = tuned.open(dir()).unwrap();
        let map = db.keyspace("map").unwrap();
        map.set_merge_operator("append").unwrap();
        let mut model = Model::new();
        for n in 0..KEYS {
            let value = n.to_be_bytes().repeat(rng.usize(100..600));
            map.put(key(n), &value).map(drop).unwrap();
            model.insert(key(n), (value, false));
        }
        db.compact().unwrap();
        let what = format!("round {round}, blocks of {block_bytes} bytes");
        check(&mut rng, &map, &model, &format!("{what}, tables alone"));
        // None, few or many writes above the table.
        let writes = [0, 3, 20, 200][round as usize / 4];
        for _ in 0..writes {
            write(&mut rng, &map, &mut model, round % 2 == 0);
        }
        if rng.bool() {
            db.flush().unwrap();
        }
        let (snapshot, mut then) = (db.snapshot(), model.clone());
        for _ in 0..writes {
            write(&mut rng, &map, &mut model, round % 8 == 0);
        }
        check(&mut rng, &map, &model, &format!("{what}, now"));
        check(&mut rng, &snapshot.keyspace(&map), &then, &format!("{what}, a snapshot"));
        let mut transaction = db.begin();
        let mut own = model.clone();
        for n in [rng.u32(..KEYS), rng.u32(..KEYS)] {
            transaction.put(&map, key(n), b"own").unwrap();
            own.insert(key(n), (b"own".to_vec(), false));
        }
        check(&mut rng, &transaction.keyspace(&map), &own, &format!("{what}, a transaction"));
        drop(transaction);
        clock.advance(2 * SOON);
        expire(&mut model);
        expire(&mut then);
        check(&mut rng, &map, &model, &format!("{what}, later"));
        check(&mut rng, &snapshot.keyspace(&map), &then, &format!("{what}, a snapshot later"));
        let problems = db.check().unwrap().problems;
        assert!(problems.is_empty(), "{problems:?}");
    }
}
