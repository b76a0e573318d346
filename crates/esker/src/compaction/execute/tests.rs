//! Flushes and compactions end to end on an in-memory file system. Blocks and tables are so small that every
//! kind of cut occurs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_env::MemFs;

use super::super::claim::Claim;
use super::super::manual::{self, ManualProgress};
use super::super::partition::{self, partitions};
use super::super::picker;
use super::super::plan::{Limits, PickInput, plan_into_base};
use super::*;
use crate::cache::MemoryBudget;
use crate::manifest::edit::VersionEdit;
use crate::memtable::Applier;
use crate::sstable::{TableCompression, plain_remover};
use crate::types::Error;
use crate::types::key_range::KeyRange;
use crate::types::op::Kind;
use crate::types::range_tombstone::RangeTombstone;

const KEYS: u64 = 60;
const TABLE_BYTES: u64 = 1024;

type Values = BTreeMap<Vec<u8>, Vec<u8>>;
/// All versions of each key, newest first.
type Versions = BTreeMap<Vec<u8>, Vec<(SeqNo, Kind, Vec<u8>)>>;

/// A database without log and manifest, and what readers must find in it.
struct World {
    fs: MemFs,
    env: Env,
    dir: PathBuf,
    cache: Arc<BlockCache>,
    next_id: AtomicU64,
    cancel: AtomicBool,
    version: Version,
    active: Arc<Memtable>,
    applier: Applier,
    /// Memtables to be flushed, newest first.
    sealed: Vec<Arc<Memtable>>,
    seq: u64,
    visible: u64,
    snapshots: Vec<u64>,
    /// Contents after each commit.
    history: BTreeMap<u64, Values>,
}

fn key(n: u64) -> Vec<u8> {
    format!("\x01key-{n:02}").into_bytes()
}

impl World {
    fn new(seed: u64) -> Self {
        let fs = MemFs::new();
        let env = Env::simulated(Arc::new(fs.clone()), seed);
        let dir = PathBuf::from("db");
        env.fs.create_dir_all(&dir).unwrap();
        let active = Arc::new(Memtable::new(4096));
        let applier = active.applier();
        World {
            fs,
            env,
            dir,
            cache: BlockCache::new(MemoryBudget::new(1 << 20)),
            next_id: AtomicU64::new(1),
            cancel: AtomicBool::new(false),
            version: Version::empty(),
            active,
            applier,
            sealed: Vec::new(),
            seq: 0,
            visible: 0,
            snapshots: Vec::new(),
            history: BTreeMap::from([(0, Values::new())]),
        }
    }

    fn limits() -> Limits {
        Limits { table_bytes: TABLE_BYTES, partition_bytes: TABLE_BYTES, ..Limits::default() }
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn with_context<R>(&self, work: impl FnOnce(&Context<'_>) -> R) -> R {
        let (next_id, cancel) = (&self.next_id, &self.cancel);
        let new_file = || FileId::new(next_id.fetch_add(1, Ordering::Relaxed));
        work(&Context {
            blobs: Default::default(),
            operators: Default::default(),
            version: Arc::new(Version::empty()),
            env: &self.env,
            dir: &self.dir,
            cache: &self.cache,
            options: TableOptions {
                block_bytes: 128,
                compression: TableCompression::None,
                ..TableOptions::default()
            },
            table_bytes: TABLE_BYTES,
            new_file: &new_file,
            rules: Rules::default(),
            go_on: &|_| !cancel.load(Ordering::Relaxed),
        })
    }

    /// Commits range removals, then puts and removals that survive them (range_tombstone.2).
    fn commit(&mut self, ranges: &[(u64, u64)], writes: &[(u64, Option<Vec<u8>>)]) {
        self.seq += 1;
        let seq = SeqNo::new(self.seq);
        let mut now = self.history[&(self.seq - 1)].clone();
        for &(start, end) in ranges {
            let (start, end) = (key(start), key(end));
            now.retain(|k, _| k < &start || k >= &end);
            self.active.add_range_tombstone(&mut self.applier, RangeTombstone { start, end, seq });
        }
        for (n, value) in writes {
            let kind = if value.is_some() { Kind::PUT } else { Kind::REMOVE };
            let key = key(*n);
            let bytes = value.as_deref().unwrap_or_default();
            self.active.insert(&mut self.applier, EntryRef { key: &key, seq, kind, value: bytes });
            match value {
                Some(value) => now.insert(key, value.clone()),
                None => now.remove(&key),
            };
        }
        self.history.insert(self.seq, now);
    }

    fn seal(&mut self) {
        let fresh = Arc::new(Memtable::new(4096));
        self.applier = fresh.applier();
        self.sealed.insert(0, std::mem::replace(&mut self.active, fresh));
    }

    fn horizons(&self) -> Vec<SeqNo> {
        self.snapshots.iter().chain([&self.visible]).map(|&s| SeqNo::new(s)).collect()
    }

    fn try_flush(&self) -> Result<Option<Built>> {
        let fences = partition::fences(&self.version, Self::limits().partition_bytes);
        let bottommost = self.version.runs().is_empty();
        let run = RunId(self.next_id());
        self.with_context(|c| flush(c, &self.sealed, self.horizons(), &fences, bottommost, run))
    }

    fn flush(&mut self) {
        let built = self.try_flush().unwrap().unwrap();
        self.sealed.clear();
        self.install(built);
    }

    /// Makes a commit visible in a run of its own.
    fn flush_of(&mut self, ranges: &[(u64, u64)], writes: &[(u64, Option<Vec<u8>>)]) {
        self.commit(ranges, writes);
        self.visible = self.seq;
        self.seal();
        self.flush();
    }

    fn merge(&mut self, plan: &Plan) {
        let built = self.build(plan);
        self.install_plan(built, plan);
    }

    fn build(&self, plan: &Plan) -> Built {
        let new_run = || RunId(self.next_id());
        let built = self.with_context(|c| compact(c, plan, &self.version, self.horizons(), None, new_run));
        built.unwrap().unwrap()
    }

    fn install_plan(&mut self, mut built: Built, plan: &Plan) {
        place(&mut built.added, plan, &self.version);
        self.install(built);
    }

    fn install(&mut self, built: Built) {
        let Built { added, removed, opened, .. } = built;
        for table in &added {
            let Some(open) = opened.get(&table.file) else { continue };
            let check = open.verify().unwrap();
            assert_eq!(check.entries, table.meta.counts.entries);
            assert_eq!(open.properties().range, table.meta.range);
        }
        let edit = VersionEdit { added, removed, ..VersionEdit::default() };
        let stays = |file| edit.added.iter().any(|a| a.file == file);
        let gone = self.version.tables().filter(|(_, t)| edit.removed.contains(&t.file) && !stays(t.file));
        gone.for_each(|(_, t)| t.table.mark_obsolete(plain_remover(&self.env)));
        self.version = self.version.apply(&edit, opened);
    }

    fn compact(&mut self) {
        let mut progress = ManualProgress::default();
        while let Some(plan) = manual::pick(&self.version, &Self::limits(), &|_| false, &mut progress) {
            self.merge(&plan);
        }
    }

    /// Returns the names of the tables in the directory.
    fn files(&self) -> BTreeSet<String> {
        self.env.fs.list_dir(&self.dir).unwrap().into_iter().collect()
    }

    /// Checks every read that readers may make, and the invariants of versions.
    fn check(&self) {
        let live = self.version.tables().map(|(_, t)| format!("{:06}.sst", t.file.get())).collect();
        assert_eq!(self.files(), live, "no file is lost or left");
        let mut entries = Versions::new();
        let mut tombstones = Vec::new();
        for memtable in std::iter::once(&self.active).chain(&self.sealed) {
            tombstones.extend(memtable.range_tombstones().iter());
            let mut scan = memtable.scan();
            while let Some(e) = scan.next() {
                entries.entry(e.key.to_vec()).or_default().push((e.seq, e.kind, e.value.to_vec()));
            }
        }
        for (_, live) in self.version.tables() {
            tombstones.extend(live.table.range_tombstones().iter());
            let mut scan = live.table.scan();
            while let Some(e) = scan.next().unwrap() {
                assert!(live.meta.range.contains(e.key), "version.2");
                entries.entry(e.key.to_vec()).or_default().push((e.seq, e.kind, e.value.to_vec()));
            }
            for t in live.table.range_tombstones().iter() {
                assert!(live.meta.range.contains(&t.start), "version.2");
                assert!(t.end.as_slice() <= live.meta.range.end.key(), "version.2");
            }
        }
        for versions in entries.values() {
            assert!(
                versions.is_sorted_by(|a, b| a.0 > b.0),
                "version.1: newer runs hold newer versions: {versions:?}"
            );
        }
        let tombstones = RangeTombstones::new(tombstones);
        for at in self.snapshots.iter().copied().chain(self.visible..=self.seq) {
            let reader = SeqNo::new(at);
            let mut found = Values::new();
            for (key, versions) in &entries {
                let Some((seq, kind, value)) = versions.iter().find(|v| v.0 <= reader) else { continue };
                if *kind == Kind::PUT && tombstones.cover(key, reader) <= *seq {
                    found.insert(key.clone(), value.clone());
                }
            }
            assert_eq!(found, self.history[&at], "at {at}, {:?}", self.version);
        }
    }

    fn random_commit(&mut self, rng: &mut fastrand::Rng) {
        let range = (0..KEYS, 0..KEYS + 2);
        let ranges: Vec<_> = (0..usize::from(rng.u8(0..4) == 0))
            .map(|_| (rng.u64(range.0.clone()), rng.u64(range.1.clone())))
            .collect();
        let keys: BTreeSet<_> = (0..rng.usize(1..10)).map(|_| rng.u64(0..KEYS)).collect();
        let value = |rng: &mut fastrand::Rng, n: u64| {
            let size = if rng.u8(0..20) == 0 { 300 } else { rng.usize(0..30) };
            (rng.u8(0..4) > 0).then(|| vec![n as u8; size])
        };
        let writes: Vec<_> = keys.into_iter().map(|n| (n, value(rng, n))).collect();
        self.commit(&ranges, &writes);
        if rng.bool() {
            self.visible = rng.u64(self.visible..=self.seq);
        }
    }

    fn random_input(&self, rng: &mut fastrand::Rng) -> PickInput {
        let limits = Limits { fits_cache: rng.bool(), l0_runs_max: 2, ..Self::limits() };
        // Many tiers and slots, for so little data.
        let small = Limits {
            tier_runs_max: 2,
            base_ratio: 1,
            run_bytes: TABLE_BYTES / 8,
            compaction_bytes_max: 2 * TABLE_BYTES,
            ..limits.clone()
        };
        PickInput {
            limits: if rng.bool() { small } else { limits },
            idle: rng.bool(),
            wasted_seek_ns: rng.u64(0..1000),
            bytes_per_second: 1 << 30,
            rules: Rules::default(),
            oldest_horizon: self.horizons().into_iter().min().unwrap_or_default(),
            skip: self.version.tables().map(|(_, t)| t.file).filter(|_| rng.u8(0..20) == 0).collect(),
            put_off: BTreeSet::new(),
            running: Vec::new(),
        }
    }

    /// Runs up to four plans at the same time, with flushes and commits meanwhile. Returns how many.
    fn random_merges_together(&mut self, rng: &mut fastrand::Rng) -> usize {
        let mut running: Vec<(Plan, Option<Built>)> = Vec::new();
        let mut claims: Vec<(FileId, Claim)> = Vec::new();
        let mut most = 0;
        for _ in 0..rng.usize(2..12) {
            match rng.u8(0..6) {
                0 => self.random_commit(rng),
                1 => {
                    self.seal();
                    self.flush();
                }
                2..4 if running.len() < 4 => {
                    let input = self.random_input(rng);
                    let input = PickInput { running: claims.iter().map(|c| c.1.clone()).collect(), ..input };
                    let Some(plan) = picker::pick(&self.version, &input) else { continue };
                    claims.push((plan.inputs[0].files[0], Claim::of(&plan, &self.version)));
                    running.push((plan, None));
                }
                _ if !running.is_empty() => {
                    let at = rng.usize(0..running.len());
                    let (plan, built) = running.swap_remove(at);
                    match built {
                        None => running.push((plan.clone(), Some(self.build(&plan)))),
                        Some(built) => {
                            claims.retain(|claim| claim.0 != plan.inputs[0].files[0]);
                            self.install_plan(built, &plan);
                        }
                    }
                }
                _ => {}
            }
            most = most.max(running.len());
        }
        for (plan, built) in running {
            let built = built.unwrap_or_else(|| self.build(&plan));
            self.install_plan(built, &plan);
        }
        most
    }

    fn random_merge(&mut self, rng: &mut fastrand::Rng) {
        let input = self.random_input(rng);
        let plan = match rng.u8(0..3) {
            0 => picker::pick(&self.version, &input),
            1 => manual::pick(&self.version, &input.limits, &|_| false, &mut ManualProgress::default()),
            _ if self.version.runs().is_empty() => None,
            _ => {
                let from = rng.usize(0..self.version.runs().len());
                let parts = partitions(&self.version.runs()[from..], from);
                Some(plan_into_base(&self.version, &parts[rng.usize(0..parts.len())]))
            }
        };
        if let Some(plan) = plan {
            self.merge(&plan);
        }
    }
}

#[test]
fn picker_6_plans_that_run_at_the_same_time_read_and_order_everything_as_one_after_the_other() {
    let mut together = 0;
    for seed in 0..150 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::new(seed);
        for _ in 0..60 {
            match rng.u8(0..10) {
                0..4 => world.random_commit(&mut rng),
                4 => world.snapshots.push(world.visible),
                5 => world.snapshots.truncate(rng.usize(0..3)),
                6 => {
                    world.seal();
                    world.flush();
                }
                _ => {
                    together += usize::from(world.random_merges_together(&mut rng) > 1);
                    world.check();
                }
            }
        }
    }
    assert!(together > 100, "{together}");
}

#[test]
fn random_histories_read_the_same_before_and_after() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::new(seed);
        for _ in 0..150 {
            match rng.u8(0..20) {
                0..10 => world.random_commit(&mut rng),
                10 => world.snapshots.push(world.visible),
                11 if !world.snapshots.is_empty() => {
                    world.snapshots.swap_remove(rng.usize(0..world.snapshots.len()));
                }
                12..15 => {
                    world.seal();
                    if rng.bool() {
                        world.flush();
                        world.check();
                    }
                }
                _ => {
                    world.random_merge(&mut rng);
                    world.check();
                }
            }
        }
        world.snapshots.clear();
        world.visible = world.seq;
        world.seal();
        world.flush();
        world.compact();
        world.check();
        assert!(world.version.runs().len() <= 1, "seed {seed}");
        for (_, live) in world.version.tables() {
            let meta = &live.meta;
            assert_eq!(
                (meta.counts.tombstones, meta.counts.range_tombstones, meta.counts.max_seq),
                (0, 0, SeqNo::ZERO),
                "seed {seed}"
            );
        }
    }
}

fn loaded(commits: u64) -> World {
    let mut world = World::new(1);
    for i in 0..commits {
        world.commit(&[], &(0..KEYS).map(|n| (n, Some(vec![i as u8; 20]))).collect::<Vec<_>>());
    }
    world.visible = world.seq;
    world
}

#[test]
fn a_first_flush_is_clean_and_cut_evenly() {
    let mut world = loaded(3);
    world.seal();
    world.flush();
    world.check();
    let metas: Vec<_> = world.version.tables().map(|(_, t)| t.meta.clone()).collect();
    assert_eq!(metas.iter().map(|m| m.counts.entries).sum::<u64>(), KEYS);
    assert!(metas.len() > 2 && metas.iter().all(|m| m.counts.max_seq == SeqNo::ZERO));
    let mut progress = ManualProgress::default();
    let plan = manual::pick(&world.version, &World::limits(), &|_| false, &mut progress).unwrap();
    let moved = world.with_context(|c| compact(c, &plan, &world.version, vec![], None, || RunId(99)));
    let Built { added, removed, opened, stats, .. } = moved.unwrap().unwrap();
    assert_eq!(added.iter().map(|a| a.file).collect::<Vec<_>>(), removed);
    assert!(opened.is_empty() && stats == CompactionStats::default(), "a move neither reads nor writes");
}

/// Returns the newest commit that the tables record, and the newest number in them.
fn newest(world: &World) -> (u64, u64) {
    let recorded = world.version.tables().map(|(_, t)| t.table.newest_commit().unwrap().get());
    let held = world.version.tables().map(|(_, t)| t.meta.counts.max_seq.get());
    (recorded.max().unwrap(), held.max().unwrap())
}

#[test]
fn compaction_output_4_tables_tell_of_commits_whose_numbers_and_versions_are_gone() {
    let mut world = loaded(3);
    world.seal();
    world.flush();
    assert!(world.version.tables().all(|(_, t)| t.table.newest_commit().unwrap() == SeqNo::new(3)));
    assert_eq!(newest(&world), (3, 0));
    // At the bottom nothing is left of a tombstone.
    world.flush_of(&[], &[(4, None)]);
    assert_eq!(newest(&world), (4, 4));
    world.compact();
    world.check();
    assert_eq!(newest(&world), (4, 0));
    world.flush_of(&[(10, 14)], &[]);
    assert_eq!(newest(&world), (5, 5));
    world.compact();
    world.check();
    assert_eq!(newest(&world), (5, 0));
    // Tables without numbers pass on the commit that they record.
    let mut n = 0;
    while n < partitions(world.version.runs(), 0).len() {
        let plan = plan_into_base(&world.version, &partitions(world.version.runs(), 0)[n]);
        world.merge(&plan);
        n += 1;
    }
    world.check();
    assert_eq!(newest(&world), (5, 0));
}

#[test]
fn range_tombstones_are_split_where_tables_are() {
    let mut world = loaded(1);
    world.seal();
    world.flush();
    world.compact();
    world.snapshots.push(world.visible);
    world.commit(&[(3, 55)], &[(4, Some(vec![7; 20])), (40, None)]);
    world.visible = world.seq;
    world.seal();
    world.flush();
    world.check();
    let l0 = &world.version.runs()[0];
    assert!(l0.tables().len() > 1, "cut at fences: {:?}", world.version);
    assert!(l0.tables().iter().any(|t| t.meta.counts.entries == 0 && t.meta.counts.range_tombstones == 1));
    let covered: Vec<KeyRange> = l0.tables().iter().map(|t| t.meta.range.clone()).collect();
    assert!(covered.windows(2).all(|w| w[0].end.key() == w[1].start.as_slice()), "no gap in the tombstone");
}

#[test]
fn execute_1_what_was_built_survives_a_crash() {
    let mut world = loaded(2);
    world.seal();
    world.flush();
    let after = Env::simulated(Arc::new(world.fs.crash_strict()), 0);
    for (_, live) in world.version.tables() {
        let path = crate::manifest::file_name::table_path(&world.dir, live.file);
        let table = Table::open(&after, &path, &world.cache).unwrap();
        assert_eq!(table.verify().unwrap().entries, live.meta.counts.entries);
    }
}

#[test]
fn execute_2_a_failed_or_cancelled_flush_leaves_no_file() {
    let mut world = loaded(20);
    world.seal();
    for room in [0, 500, 1500, 2000] {
        world.fs.set_capacity(Some(world.fs.used_bytes() + room));
        assert!(matches!(world.try_flush(), Err(Error::NoSpace { .. })), "{room}");
        assert_eq!(world.files(), BTreeSet::new());
    }
    world.fs.set_capacity(None);
    world.cancel.store(true, Ordering::Relaxed);
    assert!(world.try_flush().unwrap().is_none());
    assert_eq!(world.files(), BTreeSet::new());
    world.cancel.store(false, Ordering::Relaxed);
    world.flush();
    world.check();
}

#[test]
fn tables_get_equal_shares() {
    assert_eq!([even_share(0, 64), even_share(30, 64), even_share(64, 64)], [1, 31, 64]);
    assert_eq!([even_share(65, 64), even_share(640, 64), even_share(700, 64)], [34, 64, 64]);
}
