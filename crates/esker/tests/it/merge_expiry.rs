//! Merges and expiry together: an operand applies to the value at the time of the call, and the key keeps its
//! expiry.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use esker::env::{Env, ManualClock, MemFs};
use esker::replay::{Replay, encode};
use esker::{Blobs, Builder, Counting, Db, Durability, Keyspace, Ttl, WriteOptions};

const MS: Duration = Duration::from_millis(1);

fn builder(fs: &Arc<MemFs>, clock: &Arc<ManualClock>) -> Builder {
    let env = Env { clock: clock.clone(), ..Env::simulated(fs.clone(), 1) };
    let small = Db::builder()
        .tuning(|t| t.memtable_bytes(8 << 10).table_bytes(2 << 10).block_bytes(128))
        .memory(1 << 20);
    small.tuning(|t| t.transaction_memory(4 << 10)).stepped().blobs(Blobs::From(60)).env(env)
}

fn open() -> (Arc<ManualClock>, Db, Keyspace) {
    let clock = Arc::new(ManualClock::new());
    let db = builder(&Arc::new(MemFs::new()), &clock).open("db").unwrap();
    let map = db.keyspace("words").unwrap();
    map.set_merge_operator("append").unwrap();
    (clock, db, map)
}

fn text(map: &Keyspace, key: &str) -> Option<String> {
    map.get(key).unwrap().map(|value| String::from_utf8_lossy(&value).into_owned())
}

fn left(map: &Keyspace, key: &str) -> Option<u64> {
    match map.ttl(key).unwrap() {
        Some(Ttl::Left(left)) => Some(left.as_millis() as u64),
        _ => None,
    }
}

/// An operand expires with its base also in a copy that replays the commits after the base has expired.
#[test]
fn a_copy_is_not_swept_while_commits_are_made_again() {
    let clock = Arc::new(ManualClock::new());
    let fs = Arc::new(MemFs::new());
    let db = builder(&fs, &clock).feed_retention(1 << 20, Duration::MAX).open("db").unwrap();
    let map = db.keyspace("words").unwrap();
    map.set_merge_operator("append").unwrap();
    let from = db.checkpoint("copy").unwrap().seqno.next();
    map.put_with_ttl("k", "a", 10 * MS).unwrap();
    clock.advance(5 * MS);
    map.merge("k", "b").unwrap();
    clock.advance(5 * MS);
    map.merge("k", "c").unwrap();
    let copy = builder(&fs, &clock).open("copy").unwrap();
    let copied = copy.keyspace("words").unwrap();
    let mut replay = Replay::new(&copy).unwrap();
    let mut feed = db.feed_after(from.prev()).unwrap();
    let mut texts = Vec::new();
    while let Some(mut commit) = feed.try_next().unwrap() {
        let mut bytes = Vec::new();
        while let Some(change) = commit.next_change().unwrap() {
            encode(&change, &mut bytes).unwrap();
        }
        replay.take(&bytes, |_, _| {}).unwrap();
        replay.commit(Durability::Buffered).unwrap();
        assert_eq!(copy.sweep().unwrap(), 0);
        copy.compact().unwrap();
        texts.push(text(&copied, "k"));
    }
    assert_eq!(texts, [None, None, Some("c".to_owned())]);
    drop(replay);
    copied.put_with_ttl("gone", "1", Duration::ZERO).unwrap();
    assert_eq!((copy.sweep().unwrap(), copied.len().unwrap()), (1, 1), "the hold ends with the replay");
}

#[test]
fn fold_3_operands_expire_with_the_value_they_applied_to_and_later_ones_start_a_new_value() {
    let (clock, db, map) = open();
    for compacts in [false, true] {
        map.set_default_ttl(None).unwrap();
        map.put_with_ttl("k", "a", 10 * MS).unwrap();
        map.merge("k", "b").unwrap();
        if compacts {
            db.flush().unwrap();
            db.compact().unwrap();
        }
        assert_eq!((text(&map, "k").unwrap().as_str(), left(&map, "k")), ("ab", Some(10)));
        clock.advance(10 * MS);
        assert_eq!((text(&map, "k"), map.contains("k").unwrap(), map.iter().count()), (None, false, 0));
        map.set_default_ttl(Some(5 * MS)).unwrap();
        map.merge("k", "c").unwrap();
        assert_eq!((text(&map, "k").unwrap().as_str(), left(&map, "k")), ("c", Some(5)));
        clock.advance(5 * MS);
        assert_eq!((text(&map, "k"), map.len().unwrap()), (None, 1));
        assert_eq!((db.sweep().unwrap(), map.len().unwrap()), (1, 0), "engine_sweep.1");
    }
}

#[test]
fn what_is_replaced_keeps_its_expiry_and_a_sequence_has_none() {
    let (clock, db, map) = open();
    map.set_default_ttl(Some(100 * MS)).unwrap();
    map.fetch_add("n", 1).unwrap();
    assert_eq!(left(&map, "n"), Some(100), "a new key has the default");
    clock.advance(40 * MS);
    map.fetch_add("n", 1).unwrap();
    map.update("n", |old| old.map(<[u8]>::to_vec)).unwrap();
    assert!(
        map.compare_and_swap("n", Some(&2_i64.to_le_bytes()), Some(&3_i64.to_le_bytes())).unwrap().swapped
    );
    assert_eq!(left(&map, "n"), Some(60));
    map.persist("n").unwrap();
    map.fetch_add("n", 1).unwrap();
    assert_eq!(map.ttl("n").unwrap(), Some(Ttl::Unlimited));
    let ids = map.sequence("ids", 2).unwrap();
    let numbers = (0..6).map(|_| {
        clock.advance(70 * MS);
        db.sweep().unwrap();
        ids.next().unwrap()
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(map.set_default_ttl(Some(Duration::ZERO)).unwrap_err().to_string().contains("zero"));
    map.put_with_ttl("gone", "1", Duration::ZERO).unwrap();
    assert_eq!(map.get("gone").unwrap(), None);
    map.put_with_ttl("far", "1", Duration::MAX).unwrap();
    map.merge("far", "2").unwrap();
    assert_eq!(text(&map, "far").unwrap(), "12");
}

#[test]
fn a_value_that_begins_with_a_lifetime_of_zero_is_not_found() {
    let (clock, db, map) = open();
    let brief = map.with(WriteOptions::new().ttl(Duration::ZERO));
    brief.put("put", "1").unwrap();
    brief.merge("merge", "1").unwrap();
    brief.update("update", |_| Some("1")).unwrap();
    assert_eq!(map.iter().count(), 0);
    db.transact(|t| {
        t.merge(&brief, "in a transaction", "1")?;
        assert_eq!(t.get(&map, "in a transaction")?, None);
        t.put_with_ttl(&map, "k", "1", 5 * MS)?;
        t.merge(&brief, "k", "2")
    })
    .unwrap();
    assert_eq!((text(&map, "k").unwrap().as_str(), left(&map, "k")), ("12", Some(5)), "it keeps its expiry");
    clock.advance(5 * MS);
    brief.merge("k", "3").unwrap();
    assert_eq!(map.iter().count(), 0, "it has expired");
    map.merge("k", "4").unwrap();
    assert_eq!(text(&map, "k").unwrap(), "4", "it begins a new value");
}

/// A write. The time is that of the call.
#[derive(Clone, Debug)]
enum Op {
    Put(u8, Vec<u8>, Option<u64>),
    Merge(u8, Vec<u8>, u64, u64),
    Remove(u8),
    RemoveRange(u8, u8),
}

macro_rules! write_op {
    ($batch:expr, $map:expr, $op:expr, $end:expr) => {
        match $op {
            Op::Put(key, value, expiry) => $batch.put_until($map, [*key], value, expiry.map($end)).unwrap(),
            Op::Merge(key, operand, ..) => $batch.merge($map, [*key], operand).unwrap(),
            Op::Remove(key) => $batch.delete($map, [*key]).unwrap(),
            Op::RemoveRange(from, to) => $batch.delete_range($map, [*from]..[*to]).unwrap(),
        }
    };
}

/// Values and their expiry.
type Model = BTreeMap<u8, (Vec<u8>, Option<u64>)>;

fn apply(model: &mut Model, op: &Op) {
    match op {
        Op::Put(key, value, expiry) => drop(model.insert(*key, (value.clone(), *expiry))),
        Op::Merge(key, operand, at, lifetime) => {
            let old = model.remove(key).filter(|(_, expiry)| expiry.is_none_or(|expiry| expiry > *at));
            let begun = (Vec::new(), (*lifetime > 0).then(|| at + lifetime));
            let (mut value, expiry) = old.unwrap_or(begun);
            value.extend(operand);
            model.insert(*key, (value, expiry));
        }
        Op::Remove(key) => drop(model.remove(key)),
        Op::RemoveRange(from, to) => model.retain(|key, _| !(*from..*to).contains(key)),
    }
}

struct World {
    clock: Arc<ManualClock>,
    fs: Arc<MemFs>,
    db: Db,
    map: Keyspace,
    copy: Db,
    replay: Replay,
    fed: esker::SeqNo,
    default_ms: u64,
    model: Model,
}

impl World {
    fn now(&self) -> u64 {
        esker::env::Clock::unix_time(&*self.clock).as_millis() as u64
    }

    fn op(&self, rng: &mut fastrand::Rng) -> Op {
        let (key, now) = (rng.u8(..12), self.now());
        let default = (self.default_ms > 0).then(|| now + self.default_ms);
        let longest = if rng.u8(..9) == 0 { 90 } else { 6 };
        let bytes = vec![rng.u8(b'a'..=b'z'); rng.usize(1..longest)];
        match rng.u8(..20) {
            0..3 => Op::Put(key, bytes, default),
            3..6 => Op::Put(key, bytes, Some(now + rng.u64(1..40))),
            6 => Op::Remove(key),
            7 if rng.bool() => Op::RemoveRange(key, key + 4),
            _ => Op::Merge(key, bytes, now, self.default_ms),
        }
    }

    fn check(&self, what: &str) {
        let now = self.now();
        let live: Model =
            self.model.clone().into_iter().filter(|(_, (_, e))| e.is_none_or(|e| e > now)).collect();
        let shown = |map: &Keyspace| -> Model {
            let entries: Vec<_> = map.iter().map(|entry| entry.unwrap()).collect();
            let mut back: Vec<_> = map.iter().rev().map(|entry| entry.unwrap()).collect();
            back.reverse();
            assert_eq!(entries, back, "{what}");
            let with_expiry = |(key, value): (esker::Key, esker::Value)| {
                let expiry = match map.ttl(&key).unwrap().unwrap() {
                    Ttl::Left(left) => Some(now + left.as_millis() as u64),
                    Ttl::Unlimited => None,
                };
                (key[0], (value.to_vec(), expiry))
            };
            entries.into_iter().map(with_expiry).collect()
        };
        assert_eq!(shown(&self.map), live, "{what}");
        for key in 0..12 {
            let value = live.get(&key).map(|(value, _)| value.as_slice());
            assert_eq!(self.map.get([key]).unwrap().as_deref(), value, "{what}: {key}");
            assert_eq!(self.map.contains([key]).unwrap(), value.is_some(), "{what}: {key}");
        }
        assert_eq!(self.map.len().unwrap(), self.model.len() as u64, "{what}");
        assert_eq!(shown(&self.copy.open_keyspace("words").unwrap()), live, "{what}: by the feed");
    }

    /// Expired keys are counted until they are swept.
    fn sweep(&mut self) {
        self.db.sweep().unwrap();
        let now = self.now();
        self.model.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > now));
        assert_eq!(self.map.len().unwrap(), self.model.len() as u64, "swept");
    }

    fn follow(&mut self) {
        self.db.sync().unwrap();
        let mut feed = self.db.feed_after(self.fed.prev()).unwrap();
        while let Some(mut commit) = feed.try_next().unwrap() {
            let mut bytes = Vec::new();
            while let Some(change) = commit.next_change().unwrap() {
                encode(&change, &mut bytes).unwrap();
            }
            self.replay.take(&bytes, |_, _| {}).unwrap();
            self.replay.commit(Durability::Buffered).unwrap();
        }
        self.fed = feed.position();
    }

    /// Several writes in a batch or a transaction with savepoints, some of them large.
    fn together(&mut self, rng: &mut fastrand::Rng) {
        let map = self.map.clone();
        let is_batch = rng.u8(..3) == 0;
        let (mut batch, mut t) = (self.db.batch(), self.db.begin());
        let mut done = Vec::new();
        for _ in 0..rng.usize(1..20) {
            let op = self.op(rng);
            if is_batch {
                write_op!(batch, &map, &op, |ms| std::time::UNIX_EPOCH + Duration::from_millis(ms));
                done.push(op);
                continue;
            }
            let point = (rng.u8(..5) == 0).then(|| t.savepoint());
            transact(&mut t, &map, &op, self.now());
            done.push(op);
            if let Some(point) = point.filter(|_| rng.bool()) {
                t.rollback_to(&point).unwrap();
                done.pop();
            }
            if rng.u8(..12) == 0 {
                for n in 0..100_u8 {
                    t.put(&self.db.default_keyspace(), [n], [7; 40]).unwrap();
                }
            }
            if rng.u8(..8) == 0 {
                self.clock.advance(MS * rng.u32(1..9));
            }
            if rng.u8(..6) == 0 {
                let mut model = self.model.clone();
                done.iter().for_each(|op| apply(&mut model, op));
                let now = self.now();
                for key in 0..12 {
                    let value = model.get(&key).filter(|(_, e)| e.is_none_or(|e| e > now)).map(|of| &*of.0);
                    assert_eq!(t.get(&map, [key]).unwrap().as_deref(), value, "own writes: {done:?}");
                }
                let live = model.values().filter(|(_, e)| e.is_none_or(|e| e > now)).count();
                assert_eq!(t.iter(&map).count(), live, "own writes: {done:?}");
                assert_eq!(t.len(&map).unwrap(), model.len() as u64, "own writes: {done:?}");
            }
        }
        if is_batch {
            batch.commit().unwrap();
        } else {
            t.commit().unwrap();
        }
        done.iter().for_each(|op| apply(&mut self.model, op));
    }
}

fn transact(t: &mut esker::Transaction, map: &Keyspace, op: &Op, now: u64) {
    match op {
        Op::Put(key, value, Some(expiry)) => {
            t.put_with_ttl(map, [*key], value, Duration::from_millis(expiry - now)).unwrap();
        }
        Op::Put(key, value, None) => t.put(map, [*key], value).unwrap(),
        Op::Merge(key, operand, ..) => t.merge(map, [*key], operand).unwrap(),
        Op::Remove(key) => t.delete(map, [*key]).unwrap(),
        Op::RemoveRange(from, to) => t.delete_range(map, [*from]..[*to]).unwrap(),
    }
}

#[test]
fn fold_3_every_path_has_what_a_map_has_whose_values_are_merged_at_once() {
    let rounds = std::env::var("MERGE_EXPIRY_ROUNDS").map_or(25, |rounds| rounds.parse().unwrap());
    for seed in 0..rounds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (fs, clock) = (Arc::new(MemFs::new()), Arc::new(ManualClock::new()));
        let feeding = |b: Builder| b.feed_retention(1 << 30, Duration::MAX);
        let db = feeding(builder(&fs, &clock)).open("db").unwrap();
        let map = db.keyspace("words").unwrap();
        map.set_merge_operator("append").unwrap();
        map.set_counting(if rng.bool() { Counting::Lazy } else { Counting::Exact }).unwrap();
        let made = db.checkpoint("copy").unwrap();
        let copy = builder(&fs, &clock).open("copy").unwrap();
        let replay = Replay::new(&copy).unwrap();
        let (fed, model) = (made.seqno.next(), Model::new());
        let mut world = World { clock, fs, db, map, copy, replay, fed, default_ms: 0, model };
        for step in 0..120 {
            match rng.u8(..24) {
                0..8 => {
                    let op = world.op(&mut rng);
                    let mut batch = world.db.batch();
                    let end = |ms| std::time::UNIX_EPOCH + Duration::from_millis(ms);
                    match &op {
                        Op::Merge(key, operand, ..) => drop(world.map.merge([*key], operand).unwrap()),
                        op => write_op!(batch, &world.map, op, end),
                    }
                    batch.commit().unwrap();
                    apply(&mut world.model, &op);
                }
                8..12 => world.together(&mut rng),
                12..15 => world.clock.advance(MS * rng.u32(1..25)),
                15 => world.sweep(),
                16 => {
                    world.default_ms = if rng.bool() { 0 } else { rng.u64(1..50) };
                    let ttl = (world.default_ms > 0).then(|| Duration::from_millis(world.default_ms));
                    world.map.set_default_ttl(ttl).unwrap();
                }
                17..19 => world.db.flush().unwrap(),
                19 => {
                    // It sweeps first.
                    world.db.compact().unwrap();
                    world.sweep();
                }
                20 if rng.u8(..4) == 0 => {
                    world.follow();
                    let World { db, map, fs, clock, .. } = world;
                    drop((db, map));
                    let db = feeding(builder(&fs, &clock)).open("db").unwrap();
                    let map = db.open_keyspace("words").unwrap();
                    world = World { db, map, fs, clock, ..world };
                }
                _ => drop(world.db.snapshot()),
            }
            world.follow();
            world.check(&format!("seed {seed}, step {step}"));
        }
        let problems = world.db.check().unwrap().problems;
        assert!(problems.is_empty(), "seed {seed}: {problems:?}");
    }
}

#[test]
fn conflict_3_a_merge_conflicts_with_a_sweep_that_has_removed_what_it_applied_to() {
    // A few keys are swept one by one; an expired table is swept by a range. Small and large transactions.
    for (keys, flushes, padding) in [(3, false, 0), (40, true, 0), (3, false, 9000), (40, true, 9000)] {
        let (clock, db, map) = open();
        let key = |n: u32| format!("key{n:03}");
        let begin = || {
            let mut transaction = db.begin();
            (0..keys).for_each(|n| transaction.merge(&map, key(n), "+").unwrap());
            transaction.put(&map, "padding", vec![0; padding]).unwrap();
            transaction
        };
        for n in 0..keys {
            map.put_with_ttl(key(n), "base", 10 * MS).unwrap();
        }
        if flushes {
            db.flush().unwrap();
        }
        let (overtaken, mut reads) = (begin(), db.begin());
        assert!(reads.get(&map, key(1)).unwrap().is_some());
        reads.put(&map, "other", "1").unwrap();
        clock.advance(20 * MS);
        assert_eq!(db.sweep().unwrap(), u64::from(keys));
        let failed = overtaken.commit().map_err(|failed| failed.error);
        assert!(matches!(failed, Err(esker::Error::Conflict { .. })), "{keys} {padding}: {failed:?}");
        reads.commit().expect("what has expired and was read is no conflict");
        begin().commit().unwrap();
        assert_eq!(text(&map, "key001").as_deref(), Some("+"), "it begins a value");
    }
}
