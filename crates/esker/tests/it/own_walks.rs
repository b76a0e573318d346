//! Walks of a transaction over its own writes, which follow each other closely, against maps.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use esker::env::{Env, MemFs};
use esker::{Db, Keyspace, Transaction};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Pair = (Vec<u8>, Vec<u8>);

/// Keys and values are in no order, so that insertions are everywhere.
fn key(n: u32) -> Vec<u8> {
    n.wrapping_mul(0x9E37_79B9).to_be_bytes().to_vec()
}

fn pair(entry: esker::Result<(esker::Key, esker::Value)>) -> Pair {
    entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()
}

/// Asserts what short walks from a key see, both ways.
fn check_from(t: &Transaction, map: &Keyspace, model: &Map, from: &[u8], what: &str) {
    let up: Vec<_> = t.range(map, from.to_vec()..).take(3).map(pair).collect();
    let expected = model.range(from.to_vec()..).take(3).map(|(k, v)| (k.clone(), v.clone()));
    assert!(up.iter().cloned().eq(expected), "{what}: {up:?}");
    let down: Vec<_> = t.range(map, ..from.to_vec()).rev().take(3).map(pair).collect();
    let bounds = (Bound::Unbounded, Bound::Excluded(from.to_vec()));
    let expected = model.range(bounds).rev().take(3).map(|(k, v)| (k.clone(), v.clone()));
    assert!(down.iter().cloned().eq(expected), "{what}: {down:?}");
}

/// A walk that is open while writes follow, and what it has to see.
type Open = (esker::Range, Vec<Pair>);

struct Run {
    rng: fastrand::Rng,
    maps: [Keyspace; 2],
    models: [Map; 2],
    keys: u32,
}

impl Run {
    fn write(&mut self, t: &mut Transaction) {
        let which = self.rng.usize(..2);
        let (map, model) = (&self.maps[which], &mut self.models[which]);
        let key = key(self.rng.u32(..self.keys));
        let value = vec![self.rng.u8(..); self.rng.usize(..9)];
        match self.rng.u32(..60) {
            0..36 => {
                t.put(map, &key, &value).unwrap();
                model.insert(key, value);
            }
            36..46 => {
                t.delete(map, &key).unwrap();
                model.remove(&key);
            }
            46..50 => {
                t.put_with_ttl(map, &key, &value, Duration::from_secs(3600)).unwrap();
                model.insert(key, value);
            }
            50..55 => {
                t.merge(map, &key, &value).unwrap();
                model.entry(key).or_default().extend(value);
            }
            55..57 => {
                let first = t.pop_first(map).unwrap().map(|(k, v)| (k.to_vec(), v.to_vec()));
                assert_eq!(first, model.pop_first());
            }
            57..59 => {
                let last = t.pop_last(map).unwrap().map(|(k, v)| (k.to_vec(), v.to_vec()));
                assert_eq!(last, model.pop_last());
            }
            _ => {
                let mut end = key.clone();
                end[0] = end[0].saturating_add(1);
                t.delete_range(map, key.clone()..end.clone()).unwrap();
                model.retain(|k, _| *k < key || *k >= end);
            }
        }
    }

    /// Opens a walk and takes its first entry.
    fn open(&mut self, t: &Transaction) -> Open {
        let which = self.rng.usize(..2);
        let from = key(self.rng.u32(..self.keys));
        let is_down = self.rng.bool();
        let mut walk = t.range(&self.maps[which], from.clone()..);
        let mut expected: Vec<_> =
            self.models[which].range(from..).map(|(k, v)| (k.clone(), v.clone())).collect();
        if is_down {
            assert_eq!(walk.next_back().map(pair), expected.pop());
        }
        expected.reverse();
        assert_eq!(walk.next().map(pair), expected.pop());
        expected.reverse();
        (walk, expected)
    }
}

/// Runs random writes with walks among them. With `spills`, writes go to tables meanwhile.
fn run(seed: u64, keys: u32, writes: usize, spills: bool) {
    let env = Env::simulated(Arc::new(MemFs::new()), seed);
    let builder = match spills {
        true => Db::builder().tuning(|t| {
            t.memtable_bytes(64 << 10).transaction_memory(32 << 10).table_bytes(16 << 10).block_bytes(512)
        }),
        false => Db::builder(),
    };
    let db = builder.stepped().env(env).open("db").unwrap();
    let maps = ["a", "b"].map(|name| db.create_keyspace(name).unwrap());
    maps.iter().for_each(|map| map.set_merge_operator("append").unwrap());
    let mut run = Run { rng: fastrand::Rng::with_seed(seed), maps, models: [Map::new(), Map::new()], keys };
    let what = format!("seed {seed}, {keys} keys");
    for n in (0..keys).step_by(7) {
        for (map, model) in run.maps.iter().zip(&mut run.models) {
            map.put(key(n), b"before").unwrap();
            model.insert(key(n), b"before".to_vec());
        }
    }
    let mut t = db.begin();
    let (mut points, mut walks): (Vec<_>, Vec<Open>) = (Vec::new(), Vec::new());
    for _ in 0..writes {
        run.write(&mut t);
        let from = key(run.rng.u32(..keys));
        match run.rng.u32(..800) {
            0..400 => check_from(&t, &run.maps[0], &run.models[0], &from, &what),
            400..600 => check_from(&t, &run.maps[1], &run.models[1], &from, &what),
            600..610 => points.push((t.savepoint(), run.models.clone())),
            610..618 if !points.is_empty() => {
                points.truncate(run.rng.usize(..points.len()) + 1);
                let (point, then) = points.last().unwrap();
                t.rollback_to(point).unwrap();
                run.models = then.clone();
            }
            618..622 => walks.push(run.open(&t)),
            622..625 if !walks.is_empty() => {
                let (walk, expected) = walks.swap_remove(run.rng.usize(..walks.len()));
                assert!(walk.map(pair).eq(expected), "{what}: an open walk");
            }
            _ => {}
        }
    }
    walks.into_iter().for_each(|(walk, expected)| assert!(walk.map(pair).eq(expected), "{what}"));
    for (map, model) in run.maps.iter().zip(&run.models) {
        assert!(t.iter(map).map(pair).eq(model.clone()), "{what}");
        assert_eq!(t.len(map).unwrap(), model.len() as u64, "{what}");
    }
    t.commit().unwrap();
    for (map, model) in run.maps.iter().zip(run.models) {
        assert_eq!(map.len().unwrap(), model.len() as u64, "{what}");
        assert!(map.iter().map(pair).eq(model), "{what}: committed");
    }
    assert!(db.check().unwrap().is_sound());
}

#[test]
fn walks_between_writes_see_what_a_map_would_hold() {
    for seed in 0..24 {
        run(seed, [40, 1_000][seed as usize % 2], 1_500, false);
        run(seed, [400, 3_000][seed as usize % 2], 3_000, true);
    }
}

/// More writes, of which none go to tables.
#[test]
fn walks_between_many_writes_see_what_a_map_would_hold() {
    for seed in 0..3 {
        run(seed, 40_000, 12_000, false);
    }
}
