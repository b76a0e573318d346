//! History: a keyspace is read as it was at any kept commit, whatever was compacted, and refused at older
//! ones.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::env::{Clock, Env, ManualClock, MemFs};
use esker::{BackgroundStep, Blobs, Change, Counting, Db, Error, History, Keyspace, Reads, SeqNo, Version};

/// Seeds of the longest test.
const SEEDS: u64 = 40;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// `append` under another name, without `combine`.
fn concat(existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
    Ok(existing.into_iter().chain(operands.iter().copied()).flatten().copied().collect())
}

struct World {
    fs: MemFs,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        World { fs: MemFs::new(), clock: Arc::new(ManualClock::new()) }
    }

    fn open(&self) -> Db {
        let env = Env { clock: self.clock.clone(), ..Env::simulated(Arc::new(self.fs.clone()), 1) };
        let builder = Db::builder()
            .memory(1 << 20)
            .tuning(|t| t.memtable_bytes(4 << 10).block_bytes(256).table_bytes(4 << 10));
        let builder = builder.merge_operator("concat", concat);
        builder.stepped().blobs(Blobs::From(40)).env(env).open(Path::new("db")).unwrap()
    }
}

fn all(reads: &impl Reads) -> Map {
    let map: Map = reads.iter().map(|entry| entry.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert_eq!(reads.len().unwrap(), map.len() as u64);
    map
}

fn change(map: &Keyspace, model: &mut Map, rng: &mut fastrand::Rng) {
    let key = vec![rng.u8(0..40)];
    match rng.u8(0..20) {
        0..6 if map.merge_operator().is_some() => {
            let operand = vec![rng.u8(..); rng.usize(0..20)];
            map.merge(&key, &operand).unwrap();
            model.entry(key).or_default().extend(operand);
        }
        0..12 => {
            let value = vec![rng.u8(..); rng.usize(1..80)];
            map.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        12..19 => drop((map.delete(&key).unwrap(), model.remove(&key))),
        _ => {
            let end = vec![key[0] + rng.u8(0..10)];
            map.delete_range(&key[..]..&end[..]).unwrap();
            model.retain(|k, _| *k < key || *k >= end);
        }
    }
}

/// Applies the changes since a state.
fn catch_up(map: &Keyspace, since: SeqNo, state: &Map) -> Map {
    let mut state = state.clone();
    let changes = map.since(since).unwrap();
    for change in changes {
        let (seqno, change) = change.unwrap();
        assert!(seqno > since);
        match change {
            Change::DeleteRange { start, end, .. } => {
                state.retain(|k, _| **k < *start || end.as_ref().is_some_and(|end| **k >= **end));
            }
            Change::Put { key, value, .. } => drop(state.insert(key.to_vec(), value.unwrap().to_vec())),
            Change::Delete { key, .. } => drop(state.remove(&key[..])),
            other => panic!("{other:?}"),
        }
    }
    state
}

/// Reads a key at a commit with this state. Returns false if the commit is refused.
fn is_key_kept(map: &Keyspace, rng: &mut fastrand::Rng, seqno: SeqNo, state: &Map) -> bool {
    let key = [rng.u8(0..40)];
    match map.get_at(key, seqno) {
        Ok(value) => {
            assert_eq!(value.as_deref(), state.get(&key[..]).map(Vec::as_slice));
            true
        }
        Err(Error::HistoryGone { oldest, .. }) => {
            assert!(oldest > seqno && map.get_at(key, oldest).is_ok(), "{seqno}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn any_kept_commit_is_read_as_it_was_and_older_ones_are_refused() {
    for (seed, rule, operator) in [
        (1, History::Versions(1), None),
        (2, History::Versions(3), None),
        (3, History::For(Duration::from_secs(500)), None),
        (4, History::Versions(3), None),
        (5, History::For(Duration::from_secs(20)), None),
        (6, History::Versions(1), Some("append")),
        (7, History::Versions(3), Some("concat")),
        (8, History::Versions(4), Some("append")),
        (9, History::For(Duration::from_secs(500)), Some("append")),
        (10, History::For(Duration::from_secs(20)), Some("concat")),
    ] {
        let world = World::new();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut db = world.open();
        let mut map = db.keyspace("past").unwrap();
        operator.iter().for_each(|name| map.set_merge_operator(name).unwrap());
        let mut model = Map::new();
        (0..200).for_each(|_| change(&map, &mut model, &mut rng));
        assert!(matches!(map.at(SeqNo::new(50)), Err(Error::HistoryGone { .. })));
        map.set_history(rule).unwrap();
        let (mut states, mut reads, mut refusals, mut single) = (Vec::new(), 0, 0, 0);
        for round in 0..3000 {
            match rng.u8(0..20) {
                0..12 => change(&map, &mut model, &mut rng),
                12 => drop(db.keyspace("other").unwrap().put([rng.u8(..)], "x").unwrap()),
                13 => drop(db.step(BackgroundStep::Flush).unwrap()),
                14..17 => drop(db.step(BackgroundStep::Compact { idle: rng.bool() }).unwrap()),
                17 => world.clock.advance(Duration::from_secs(1)),
                18 if round % 40 == 0 => db.compact().unwrap(),
                19 if round % 60 == 0 => {
                    db.close().unwrap();
                    db = world.open();
                    map = db.open_keyspace("past").unwrap();
                    assert_eq!(map.history(), rule);
                }
                _ => {
                    let now = world.clock.monotonic();
                    states.push((db.stats().seqno, now, model.clone()));
                    let (seqno, then, state) = &states[rng.usize(0..states.len())];
                    match map.at(*seqno) {
                        Ok(past) => {
                            assert_eq!(&all(&past), state, "seed {seed} round {round} at {seqno}");
                            assert_eq!(catch_up(&map, *seqno, state), model, "seed {seed} round {round}");
                            reads += 1;
                        }
                        Err(Error::HistoryGone { oldest, .. }) => {
                            assert!(oldest > *seqno);
                            let age = now - *then;
                            let is_kept = matches!(rule, History::For(kept) if age <= kept);
                            assert!(!is_kept, "seed {seed} round {round}: {age:?}");
                            refusals += 1;
                            if matches!(rule, History::Versions(_)) {
                                // Since any commit, whatever was compacted.
                                assert_eq!(catch_up(&map, *seqno, state), model, "seed {seed} round {round}");
                            }
                        }
                        Err(error) => panic!("{error}"),
                    }
                    single += (0..5).filter(|_| is_key_kept(&map, &mut rng, *seqno, state)).count();
                }
            }
        }
        assert!(reads > 20 && single > 100, "seed {seed}: {reads} {single}");
        assert!(refusals > 20 || rule == History::For(Duration::from_secs(500)), "seed {seed}: {refusals}");
        assert_eq!(map.len().unwrap(), model.len() as u64);
        assert!(db.check().unwrap().problems.is_empty());
    }
}

#[test]
fn versions_come_newest_first_with_numbers_and_removals() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    map.put("k", "before").unwrap();
    map.set_history(History::Versions(4)).unwrap();
    let writes =
        [map.put("k", "1"), map.delete("k"), map.put("k", vec![7; 100]), map.clear(), map.put("k", "2")];
    let writes = writes.map(|seqno| seqno.unwrap());
    let shown = || -> Vec<(SeqNo, Option<Vec<u8>>)> {
        let versions = map.versions("k").unwrap().map(|version| version.unwrap());
        versions.map(|version| (version.seqno, version.value.map(|value| value.to_vec()))).collect()
    };
    let values =
        [Some(b"2".to_vec()), None, Some(vec![7; 100]), None, Some(b"1".to_vec()), Some(b"before".to_vec())];
    let numbers = writes.iter().rev().copied();
    let expected: Vec<_> = numbers.zip(values.clone()).collect();
    assert_eq!(shown()[..5], expected);
    assert_eq!(shown()[5].1, values[5]);
    for _ in 0..2 {
        db.compact().unwrap();
        assert_eq!(shown(), expected[..4]);
    }
    assert!(map.versions("absent").unwrap().count() == 1, "the keyspace was cleared");
    let kept = writes[1];
    assert_eq!(map.get_at("k", kept).unwrap(), None);
    let gone = map.get_at("k", kept.before().unwrap());
    assert!(matches!(gone, Err(Error::HistoryGone { oldest, .. }) if oldest == kept), "{gone:?}");
    map.set_history(History::None).unwrap();
    db.compact().unwrap();
    assert_eq!(shown().len(), 1);
    assert!(map.set_history(History::Versions(0)).is_err());
}

#[test]
fn merges_are_versions_and_keep_what_they_stand_on() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    map.set_merge_operator("append").unwrap();
    map.set_history(History::Versions(3)).unwrap();
    let writes =
        [map.put("k", "1"), map.merge("k", "2"), map.merge("k", "3"), map.put("k", "9"), map.merge("k", "8")];
    let [_, second, third, fourth, fifth] = writes.map(|seqno| seqno.unwrap());
    let shown = || -> Vec<(SeqNo, Vec<u8>, bool)> {
        let versions = map.versions("k").unwrap().map(|version| version.unwrap());
        versions.map(|version| (version.seqno, version.value.unwrap().to_vec(), version.is_merge)).collect()
    };
    let all =
        [(fifth, &b"98"[..], true), (fourth, b"9", false), (third, b"123", true), (second, b"12", true)];
    let all = all.map(|(seqno, value, is_merge)| (seqno, value.to_vec(), is_merge));
    assert_eq!(shown()[..4], all);
    let mut kept = all[..3].to_vec();
    kept[2].2 = false; // With all that it stands on.
    for _ in 0..2 {
        db.compact().unwrap();
        assert_eq!(shown(), kept);
    }
    let gone = map.get_at("k", second);
    assert!(matches!(gone, Err(Error::HistoryGone { oldest, .. }) if oldest == third), "{gone:?}");
    map.set_history(History::None).unwrap();
    db.compact().unwrap();
    assert_eq!(shown()[0].1, b"98");
    assert!(!shown()[0].2);
}

#[test]
fn idle_databases_with_history_come_to_rest() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    map.set_history(History::Versions(2)).unwrap();
    for n in 0..400_u32 {
        map.put(n.to_be_bytes(), [1; 30]).unwrap();
        map.delete(n.to_be_bytes()).unwrap();
    }
    map.clear().unwrap();
    db.flush().unwrap();
    let steps = (0..200).take_while(|_| db.step(BackgroundStep::Compact { idle: true }).unwrap()).count();
    assert!(steps < 100, "{steps}");
}

#[test]
fn a_duration_frees_what_is_beyond_it() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    map.set_history(History::For(Duration::from_secs(60))).unwrap();
    for round in 0..100_u8 {
        for n in 0..20_u8 {
            map.put([n], [round; 20]).unwrap();
        }
        db.flush().unwrap();
        world.clock.advance(Duration::from_secs(10));
    }
    db.compact().unwrap();
    let versions = map.versions([3]).unwrap().count();
    assert!((6..10).contains(&versions), "{versions}");
    map.clear().unwrap();
    db.flush().unwrap();
    world.clock.advance(Duration::from_secs(100));
    map.put("a", "1").unwrap();
    db.compact().unwrap();
    world.clock.advance(Duration::from_secs(100));
    db.compact().unwrap();
    assert!(db.stats().table_bytes < 2000, "{}", db.stats().table_bytes);
}

#[test]
fn gaps_2_what_was_dead_in_the_past_hides_nothing_of_now() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    map.set_history(History::Versions(10)).unwrap();
    let put = |n: u8| {
        map.put([n], [n]).unwrap();
    };
    (0..100).for_each(put);
    let removed = (0..100_u8).map(|n| map.delete([n]).unwrap()).max().unwrap();
    // A walk looks for a skip range after some steps.
    (20..100).for_each(put);
    db.close().unwrap();
    let db = world.open();
    let map = db.default_keyspace();
    assert_eq!(map.at(removed).unwrap().iter().count(), 0);
    assert_eq!((map.iter().count(), map.len().unwrap()), (80, 80));
}

/// Puts keys that a range removal of the same commit removes.
fn change_at_once(db: &Db, map: &Keyspace, model: &mut Map, rng: &mut fastrand::Rng) {
    let mut batch = db.batch();
    for _ in 0..rng.usize(1..5) {
        let key = vec![rng.u8(0..40)];
        if rng.u8(0..4) == 0 {
            let end = vec![key[0] + 3];
            batch.delete_range(map, &key[..]..&end[..]).unwrap();
            model.retain(|k, _| *k < key || *k >= end);
        }
        let value = vec![rng.u8(..); rng.usize(1..200)];
        batch.put(map, &key, &value).unwrap();
        model.insert(key, value);
    }
    batch.commit().unwrap();
}

/// Compares the versions of a key with the states after the commits that made them. Returns those since the
/// first state.
fn check_versions(map: &Keyspace, key: &[u8], states: &[(SeqNo, Map)], context: &str) -> Vec<Version> {
    let shown = map.versions(key).unwrap().map(Result::unwrap);
    let shown: Vec<_> = shown.filter(|version| version.seqno > states[0].0).collect();
    for (n, version) in shown.iter().enumerate() {
        let place = states.partition_point(|(made, _)| *made <= version.seqno);
        let was = states[place - 1].1.get(key).map(Vec::as_slice);
        assert_eq!(version.value.as_deref(), was, "{context}: {n} at {}", version.seqno);
    }
    shown
}

#[test]
fn versions_are_what_happened() {
    let mut listed = 0;
    for seed in 0..SEEDS {
        let (world, mut rng) = (World::new(), fastrand::Rng::with_seed(seed));
        let mut db = world.open();
        let mut map = db.keyspace("past").unwrap();
        let kept = rng.usize(1..5);
        if rng.bool() {
            map.set_counting(Counting::Lazy).unwrap();
        }
        if rng.bool() {
            map.set_merge_operator("concat").unwrap();
        }
        map.set_history(History::Versions(kept as u32)).unwrap();
        let since = db.stats().seqno;
        let mut states: Vec<(SeqNo, Map)> = vec![(since, Map::new())];
        let (mut model, mut snapshots) = (Map::new(), Vec::new());
        let mut ends: BTreeMap<Vec<u8>, Duration> = BTreeMap::new();
        for round in 0..1500 {
            let (before, op) = (db.stats().seqno, rng.u8(0..27));
            match op {
                24 if map.merge_operator().is_none() => {
                    let (key, value) = (vec![rng.u8(0..40)], vec![rng.u8(..); rng.usize(1..100)]);
                    let ttl = Duration::from_secs(rng.u64(1..20));
                    map.put_with_ttl(&key, &value, ttl).unwrap();
                    ends.insert(key.clone(), world.clock.monotonic() + ttl);
                    model.insert(key, value);
                }
                25 => world.clock.advance(Duration::from_secs(rng.u64(0..4))),
                26 => {
                    let now = world.clock.monotonic();
                    let swept = db.sweep().unwrap();
                    let expired: Vec<_> =
                        ends.iter().filter(|end| *end.1 <= now).map(|end| end.0.clone()).collect();
                    assert_eq!(swept, expired.len() as u64, "seed {seed} round {round}");
                    expired.iter().for_each(|key| drop((ends.remove(key), model.remove(key))));
                }
                0..12 => change(&map, &mut model, &mut rng),
                12..15 => change_at_once(&db, &map, &mut model, &mut rng),
                15 => snapshots.push(db.snapshot()),
                16 if !snapshots.is_empty() => drop(snapshots.swap_remove(rng.usize(0..snapshots.len()))),
                17..19 => drop(db.step(BackgroundStep::Flush).unwrap()),
                19..22 => drop(db.step(BackgroundStep::Compact { idle: rng.bool() }).unwrap()),
                22 if round % 40 == 0 => db.compact().unwrap(),
                23 if round % 60 == 0 => {
                    snapshots.clear();
                    db.close().unwrap();
                    db = world.open();
                    map = db.open_keyspace("past").unwrap();
                }
                _ => {
                    let key = vec![rng.u8(0..40)];
                    let shown = check_versions(&map, &key, &states, &format!("seed {seed} round {round}"));
                    let newest = shown.first().map(|version| version.value.as_deref());
                    assert!(newest.is_none_or(|value| value == model.get(&key).map(Vec::as_slice)));
                    listed += shown.len();
                }
            }
            // Another write of the key removes its expiry.
            let newest = |key: &[u8]| map.versions(key).unwrap().next().unwrap().unwrap().seqno;
            ends.retain(|key, _| op == 24 || newest(key) <= before);
            states.push((db.stats().seqno, model.clone()));
        }
    }
    assert!(listed > 1000, "{listed}");
}

#[test]
fn versions_show_what_has_expired_as_the_put_that_it_was() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    map.set_history(History::Versions(5)).unwrap();
    let put = map.put_with_ttl("k", "1", Duration::from_secs(1)).unwrap();
    let shown = || -> Vec<(SeqNo, Option<Vec<u8>>)> {
        let versions = map.versions("k").unwrap().map(Result::unwrap);
        versions.map(|version| (version.seqno, version.value.map(|value| value.to_vec()))).collect()
    };
    world.clock.advance(Duration::from_secs(2));
    for _ in 0..2 {
        assert_eq!((map.get("k").unwrap(), map.get_at("k", put).unwrap()), (None, None));
        assert_eq!(shown(), [(put, Some(b"1".to_vec()))], "not removed yet");
        db.flush().unwrap();
    }
    assert_eq!(db.sweep().unwrap(), 1);
    let swept = db.stats().seqno;
    assert_eq!(shown(), [(swept, None), (put, Some(b"1".to_vec()))]);
}

#[test]
fn a_clock_that_was_ahead_keeps_history_until_it_is_reset() {
    let world = World::new();
    let mut db = world.open();
    let mut map = db.keyspace("past").unwrap();
    map.set_history(History::For(Duration::from_secs(100))).unwrap();
    let mut first = SeqNo::ZERO;
    let year = 365 * 24 * 3_600_000;
    for round in 0..30 {
        let seqno = map.put("k", vec![7; 3000]).unwrap();
        if round == 0 {
            (first, _) = (seqno, world.clock.set_wall(year));
        } else if round == 1 {
            db.flush().unwrap();
            world.clock.set_wall(-year);
        }
        world.clock.advance(Duration::from_secs(20));
        db.compact().unwrap();
    }
    assert!(map.get_at("k", first).is_ok());
    db.reset_time().unwrap();
    for _ in 0..2 {
        db.close().unwrap();
        db = world.open();
        map = db.open_keyspace("past").unwrap();
        assert!(map.get_at("k", first).is_ok(), "as long again");
    }
    for _ in 0..8 {
        map.put("k", vec![7; 3000]).unwrap();
        world.clock.advance(Duration::from_secs(20));
        db.compact().unwrap();
    }
    assert!(matches!(map.get_at("k", first), Err(Error::HistoryGone { .. })));
}
