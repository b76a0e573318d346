//! Large transactions that write the same few keys again and again: their runs have one commit number, and
//! compactions take in some of them before others. All reads agree with a map after each step.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use esker::env::{Clock, Env, ManualClock, MemFs};
use esker::replay::{Replay, encode};
use esker::{
    BackgroundStep, Blobs, Builder, Change, Counting, Db, Decision, Durability, Error, History, Keyspace,
    Reads, SeqNo, Snapshot, TableCompression,
};

const SEEDS: u64 = 8;
/// Seeds of the test with threads.
const THREADED: u64 = 4;

/// Values, and when they expire by the clock.
type Map = BTreeMap<Vec<u8>, (Vec<u8>, Option<Duration>)>;
type Shown = BTreeMap<Vec<u8>, Vec<u8>>;

struct World {
    seed: u64,
    /// Whether compactions run in threads, several at a time.
    has_threads: bool,
    rng: fastrand::Rng,
    fs: MemFs,
    clock: Arc<ManualClock>,
    has_filter: bool,
    history: History,
    model: Map,
    /// Past states.
    past: Vec<(SeqNo, Map)>,
    snapshots: Vec<(Snapshot, Map)>,
}

/// `append` without `combine`.
fn concat(existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
    Ok(existing.into_iter().chain(operands.iter().copied()).flatten().copied().collect())
}

fn filter(_: &[u8], value: &[u8]) -> Decision {
    match value.first() {
        Some(b'o') => Decision::Change([b"c", &value[1..]].concat()),
        Some(b'x') => Decision::Drop,
        _ => Decision::Keep,
    }
}

impl World {
    fn new(seed: u64, has_threads: bool) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let history = match rng.u8(0..4) {
            0 => History::Versions(rng.u32(1..4)),
            1 => History::For(Duration::from_secs(1 << 20)),
            _ => History::None,
        };
        World {
            seed,
            has_threads,
            fs: MemFs::new(),
            clock: Arc::new(ManualClock::new()),
            has_filter: rng.u8(0..3) == 0,
            history,
            rng,
            model: Map::new(),
            past: Vec::new(),
            snapshots: Vec::new(),
        }
    }

    fn env(&self, fs: &MemFs) -> Env {
        Env { clock: self.clock.clone(), ..Env::simulated(Arc::new(fs.clone()), 1) }
    }

    fn open(&self, fs: &MemFs) -> Db {
        let db = self.builder(true).env(self.env(fs)).open("db").unwrap();
        let map = db.keyspace("f").unwrap();
        if map.merge_operator().is_none() {
            map.set_merge_operator("concat").unwrap();
            map.set_history(self.history).unwrap();
            map.set_counting([Counting::Exact, Counting::Lazy][self.seed as usize / 2 % 2]).unwrap();
        }
        db
    }

    fn builder(&self, has_operator: bool) -> Builder {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let small = Db::builder().memory(1 << 20);
        let small = if has_operator { small.merge_operator("concat", concat) } else { small };
        let small = if self.has_threads { small } else { small.stepped() };
        let small = small.tuning(|t| t.memtable_bytes(700).transaction_memory(80 + rng.u64(0..400)));
        let small = small.tuning(|t| t.block_bytes(64).table_bytes(512 + rng.u64(0..1000)));
        let blobs = if rng.bool() { Blobs::Never } else { Blobs::From(150) };
        let small = small.tuning(|t| t.compactions(rng.usize(1..4))).blobs(blobs);
        let small = small.adoption_bytes(400).feed_retention(1 << 30, Duration::MAX);
        let small = if self.has_filter { small.compaction_filter("f", filter) } else { small };
        small.compression(TableCompression::None).allow_missing_merge_operators(true)
    }

    fn now(&self) -> Duration {
        self.clock.unix_time()
    }

    /// What readers see of a state.
    fn shown(&self, state: &Map) -> Shown {
        let live = state.iter().filter(|(_, (_, expiry))| expiry.is_none_or(|expiry| expiry > self.now()));
        live.map(|(key, (value, _))| (key.clone(), value.clone())).collect()
    }

    fn is_large(&mut self) -> bool {
        self.rng.u16(0..150) == 0
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.u8(0..10) {
            0 => self.rng.usize(100..300),
            _ if self.is_large() => 90_000,
            _ => self.rng.usize(1..60),
        };
        let mut value = vec![self.rng.u8(b'a'..b'f'); len];
        value[0] = [b'k', b'o', b'x', b'n'][self.rng.usize(0..4)];
        value
    }

    fn key(&mut self) -> Vec<u8> {
        vec![b'a' + self.rng.u8(0..8)]
    }

    /// One transaction.
    fn commit(&mut self, db: &Db, map: &Keyspace) {
        let mut batch = db.batch();
        let before = self.model.clone();
        let ops = if self.rng.u8(0..4) == 0 { 2 } else { self.rng.usize(10..90) };
        // Operands above other ops, and range removals above anything, merge the runs before the commit.
        let (merges, ranges) = (self.rng.u8(0..4), self.rng.u8(0..4));
        for n in 0..ops {
            let (key, now) = (self.key(), self.now());
            let op = match self.rng.u8(0..40) {
                22..32 if merges > 1 || self.has_threads && self.has_filter => 0,
                _ if merges == 1 && !(self.has_threads && self.has_filter) => 30,
                38.. if ranges > 1 || ranges == 1 && n > 4 => 0,
                op => op,
            };
            match op {
                0..18 => {
                    let value = self.value();
                    batch.put(map, &key, &value).unwrap();
                    self.model.insert(key, (value, None));
                }
                18..22 => {
                    let (value, ttl) = (self.value(), Duration::from_secs(self.rng.u64(1..30)));
                    batch.put_with_ttl(map, &key, &value, ttl).unwrap();
                    self.model.insert(key, (value, Some(now + ttl)));
                }
                22..32 => {
                    let operand = vec![self.rng.u8(b'A'..b'F'); self.rng.usize(1..20)];
                    batch.merge(map, &key, &operand).unwrap();
                    let live = self.model.remove(&key).filter(|of| of.1.is_none_or(|expiry| expiry > now));
                    let (value, expiry) = live.unwrap_or_default();
                    self.model.insert(key, ([value, operand].concat(), expiry));
                }
                32..38 => {
                    batch.delete(map, &key).unwrap();
                    self.model.remove(&key);
                }
                _ => {
                    let end = vec![key[0] + self.rng.u8(1..4)];
                    batch.delete_range(map, &key[..]..&end[..]).unwrap();
                    self.model.retain(|k, _| *k < key || *k >= end);
                }
            }
        }
        if self.rng.u8(0..12) == 0 {
            self.model = before;
            return;
        }
        let seqno = batch.commit().unwrap();
        self.past.push((seqno, self.model.clone()));
        if self.rng.u8(0..5) == 0 {
            self.snapshots.push((db.snapshot(), self.model.clone()));
        }
        if self.snapshots.len() > 2 {
            self.snapshots.remove(self.rng.usize(0..2));
        }
    }

    /// Takes over what filters have decided.
    fn follow_filters(&mut self, map: &Keyspace) {
        if !self.has_filter {
            return;
        }
        let shown = self.shown(&self.model);
        for (key, value) in shown {
            let found = map.get(&key).unwrap().map(|value| value.to_vec());
            if found.as_ref() == Some(&value) {
                continue;
            }
            match filter(&key, &value) {
                Decision::Drop => assert_eq!(found, None, "seed {}: {key:?}", self.seed),
                Decision::Change(to) => assert_eq!(found, Some(to), "seed {}: {key:?}", self.seed),
                _ => panic!("seed {}: {key:?} is {found:?}, not {value:?}", self.seed),
            }
            match found {
                Some(value) => self.model.get_mut(&key).unwrap().0 = value,
                None => drop(self.model.remove(&key)),
            }
        }
    }

    fn check(&mut self, db: &Db, map: &Keyspace, what: &str) {
        self.follow_filters(map);
        let context = format!("seed {}: {what}", self.seed);
        let expected = self.shown(&self.model);
        check_reads(map, &expected, &context);
        let has_expired = self.model.len() > expected.len();
        if !has_expired {
            assert_eq!(map.len().unwrap(), expected.len() as u64, "{context}");
        }
        for (snapshot, state) in &self.snapshots {
            let (state, at) = (self.shown(state), snapshot.seqno());
            let found: Shown = snapshot.iter(map).map(pair).collect();
            assert_eq!(found, state, "{context}: snapshot {at}");
            for key in b'a'..=b'h' {
                let found = snapshot.get(map, [key]).unwrap().map(|value| value.to_vec());
                assert_eq!(found.as_ref(), state.get(&[key][..]), "{context}: snapshot {at}");
            }
        }
        if self.history != History::None {
            self.check_past(map, &context);
        }
        let report = db.check().unwrap();
        assert!(report.problems.is_empty(), "{context}: {:?}", report.problems);
    }

    /// Checks what a killed process leaves: opened to read, by a follower, and repaired.
    fn check_image(&self, db: &Db, what: &str) {
        // Filters commit without a sync.
        db.sync().unwrap();
        let context = format!("seed {}: {what}, image", self.seed);
        let (image, expected) = (self.fs.kill(), self.shown(&self.model));
        let builder = Db::builder().stepped().merge_operator("concat", concat).env(self.env(&image));
        let reader = builder.clone().open_read_only("db").unwrap();
        check_reads(&reader.open_keyspace("f").unwrap(), &expected, &context);
        let follower = builder.clone().open_follower("db").unwrap();
        check_reads(&follower.db().open_keyspace("f").unwrap(), &expected, &context);
        drop((reader, follower));
        let report = builder.clone().repair("db", "repaired").unwrap();
        assert!(report.losses.is_empty(), "{context}: {:?}", report.losses);
        let repaired = builder.open("repaired").unwrap();
        check_reads(&repaired.open_keyspace("f").unwrap(), &expected, &context);
    }

    fn check_copy(&self, db: &Db, name: &str) {
        let (context, expected) = (format!("seed {}: {name}", self.seed), self.shown(&self.model));
        db.checkpoint(name).unwrap();
        let builder = Db::builder().stepped().merge_operator("concat", concat);
        let copy = builder.env(self.env(&self.fs)).open(name).unwrap();
        let map = copy.keyspace("f").unwrap();
        check_reads(&map, &expected, &context);
        copy.compact().unwrap();
        check_reads(&map, &expected, &context);
    }

    /// Kills the process, and sometimes compacts without the operator before the next opening.
    fn reopen(&mut self, db: Db) -> (Db, Keyspace) {
        // Filters commit without a sync.
        db.sync().unwrap();
        self.fs = self.fs.kill();
        self.snapshots.clear();
        drop(db);
        if self.rng.bool() {
            let db = self.builder(false).env(self.env(&self.fs)).open("db").unwrap();
            while self.rng.bool() {
                db.step(BackgroundStep::Compact { idle: true }).unwrap();
            }
        }
        let db = self.open(&self.fs);
        let map = db.keyspace("f").unwrap();
        (db, map)
    }

    fn check_past(&self, map: &Keyspace, context: &str) {
        for (seqno, state) in self.past.iter().rev().take(6) {
            let state = self.shown(state);
            match map.at(*seqno) {
                Ok(past) => check_reads(&past, &state, &format!("{context}: at {seqno}")),
                Err(Error::HistoryGone { .. }) => {}
                Err(error) => panic!("{context}: {error}"),
            }
            for key in b'a'..=b'h' {
                match map.get_at([key], *seqno) {
                    Ok(found) => {
                        let found = found.map(|value| value.to_vec());
                        assert_eq!(found.as_ref(), state.get(&[key][..]), "{context}: {key} at {seqno}");
                    }
                    Err(Error::HistoryGone { .. }) => {}
                    Err(error) => panic!("{context}: {error}"),
                }
            }
            let Ok(changes) = map.since(*seqno) else { continue };
            let mut state = state;
            for change in changes {
                match change.unwrap().1 {
                    Change::DeleteRange { start, end, .. } => {
                        state.retain(|k, _| **k < *start || end.as_ref().is_some_and(|end| **k >= **end));
                    }
                    Change::Put { key, value, .. } => {
                        drop(state.insert(key.to_vec(), value.unwrap().to_vec()));
                    }
                    Change::Delete { key, .. } => drop(state.remove(&key[..])),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(state, self.shown(&self.model), "{context}: since {seqno}");
        }
        for key in b'a'..=b'h' {
            let mut before = SeqNo::MAX;
            for version in map.versions([key]).unwrap() {
                let version = version.unwrap();
                assert!(version.seqno < before, "{context}");
                before = version.seqno;
                let Some((_, state)) = self.past.iter().find(|(seqno, _)| *seqno == version.seqno) else {
                    continue;
                };
                let value = state.get(&[key][..]).map(|(value, _)| value.clone());
                let found = version.value.map(|value| value.to_vec());
                assert_eq!(found, value, "{context}: {key} version {}", version.seqno);
            }
        }
    }
}

fn pair(entry: esker::Result<(esker::Key, esker::Value)>) -> (Vec<u8>, Vec<u8>) {
    entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
}

fn check_reads(reads: &impl Reads, expected: &Shown, context: &str) {
    let forward: Vec<_> = reads.iter().map(pair).collect();
    let mut backward: Vec<_> = reads.iter().rev().map(pair).collect();
    backward.reverse();
    let wanted: Vec<_> = expected.clone().into_iter().collect();
    assert_eq!((&forward, &backward), (&wanted, &wanted), "{context}");
    let keys: Vec<_> = (b'a'..=b'h').map(|key| vec![key]).collect();
    let all = reads.multi_get(&keys).unwrap();
    for (key, found) in keys.iter().zip(all) {
        let single = reads.get(key).unwrap().map(|value| value.to_vec());
        assert_eq!(single.as_ref(), expected.get(key), "{context}: {key:?}");
        assert_eq!(found.map(|value| value.to_vec()), single, "{context}");
        assert_eq!(reads.contains(key).unwrap(), single.is_some(), "{context}");
    }
    let part = (Bound::Included(&b"c"[..]), Bound::Excluded(&b"f"[..]));
    let found: Shown = reads.range(part).map(pair).collect();
    assert!(found.iter().eq(expected.range(vec![b'c']..vec![b'f'])), "{context}");
}

/// Repeats all commits of a feed in another database.
fn check_feed(world: &World, db: &Db, made: SeqNo) {
    let fs = MemFs::new();
    db.sync().unwrap();
    let copy =
        Db::builder().stepped().merge_operator("concat", concat).env(world.env(&fs)).open("copy").unwrap();
    let mut replay = Replay::new(&copy).unwrap();
    let mut feed = db.feed_after(made).unwrap();
    while let Some(mut commit) = feed.try_next().unwrap() {
        let mut changes = Vec::new();
        while let Some(change) = commit.next_change().unwrap() {
            encode(&change, &mut changes).unwrap();
        }
        replay.take(&changes, |_, _| {}).unwrap();
        replay.commit(Durability::Buffered).unwrap();
        let seqno = commit.seqno();
        let Some((_, state)) = world.past.iter().find(|(of, _)| *of == seqno) else { continue };
        let map = copy.keyspace("f").unwrap();
        check_reads(&map, &world.shown(state), &format!("seed {}: feed at {seqno}", world.seed));
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed, false);
    let mut db = world.open(&world.fs);
    let mut map = db.keyspace("f").unwrap();
    for round in 0..25 {
        for _ in 0..world.rng.usize(1..4) {
            world.commit(&db, &map);
            world.check(&db, &map, &format!("round {round}, commit"));
        }
        for step in 0..world.rng.usize(0..12) {
            let what = format!("round {round}, step {step}");
            match world.rng.u16(0..100) {
                0..60 => {
                    let idle = world.rng.u8(0..3) == 0;
                    let done = db.step(BackgroundStep::Compact { idle }).unwrap();
                    world.check(&db, &map, &format!("{what}, compaction {idle}"));
                    if !done {
                        break;
                    }
                }
                60..70 => {
                    db.step(BackgroundStep::Flush).unwrap();
                    world.check(&db, &map, &format!("{what}, flush"));
                }
                70..76 => {
                    let (start, end) = (world.key(), world.key());
                    map.compact_range(start..end).unwrap();
                    world.check(&db, &map, &format!("{what}, compact_range"));
                }
                76..78 => {
                    db.compact().unwrap();
                    world.check(&db, &map, &format!("{what}, compact"));
                }
                78..84 => {
                    world.clock.advance(Duration::from_secs(world.rng.u64(1..12)));
                    if world.rng.bool() {
                        db.sweep().unwrap();
                        let now = world.now();
                        world.model.retain(|_, of| of.1.is_none_or(|expiry| expiry > now));
                    }
                    world.check(&db, &map, &format!("{what}, time"));
                }
                84..88 => world.check_copy(&db, &format!("copy-{round}-{step}")),
                88..94 => {
                    (db, map) = world.reopen(db);
                    world.check(&db, &map, &format!("{what}, kill"));
                }
                94..97 => world.check_image(&db, &what),
                _ => drop(world.snapshots.pop()),
            }
        }
    }
    check_feed(&world, &db, SeqNo::ZERO);
}

#[test]
fn all_reads_agree_with_a_map_whatever_runs_of_one_commit_are_compacted() {
    for seed in 0..SEEDS {
        run(seed);
    }
}

/// Filters decide at any time, so with them only the values of single keys are known.
fn run_with_threads(seed: u64) {
    let mut world = World::new(seed, true);
    let db = world.open(&world.fs);
    let map = db.keyspace("f").unwrap();
    for round in 0..60 {
        world.commit(&db, &map);
        if world.has_filter {
            world.follow_filters(&map);
        } else {
            world.check(&db, &map, &format!("round {round}"));
        }
        if world.rng.u8(0..10) == 0 {
            map.compact_range(world.key()..world.key()).unwrap();
        }
    }
    db.compact().unwrap();
    world.past.clear();
    world.snapshots.clear();
    world.check(&db, &map, "at the end");
}

#[test]
fn all_reads_agree_with_a_map_while_runs_of_one_commit_are_compacted_in_threads() {
    for seed in 0..THREADED {
        run_with_threads(seed);
    }
}
