//! Simulates the policy: the real picker works on versions of tables without bytes. Only key ranges, sizes,
//! and how many keys of a zone a table holds are known.
//!
//! ```text
//!   workload --flush--> Version<()> --pick--> Plan --new sizes--> Version<()> ...
//!                                                     `--> written bytes, runs, largest compaction, space
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::picker::pick;
use super::plan::{Limits, OutputRun, PickInput, Plan, PlanKind, settled};
use super::shape::flush_cuts;
use crate::manifest::level::{Level, RunId};
use crate::manifest::version::{LiveTable, Run, Version};
use crate::sstable::{Counts, Fingerprint, TableMeta};
use crate::types::key_range::{End, KeyRange};
use crate::types::{FileId, SeqNo};

const MIB: u64 = 1 << 20;
const KEYS: u64 = 1 << 40;
const ZONES: u64 = 256;
const SAMPLES: u64 = 50;
const ZONE: u64 = KEYS / ZONES;

/// A write load.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// Overwrites of uniformly chosen keys.
    Uniform,
    /// Four of five writes go to a sixteenth of the zones.
    Skewed,
    /// Overwrites of one tenth of the keys.
    Tenth,
    /// Each key is larger than all before.
    Sequential,
}

impl Load {
    /// Returns the share of the writes that a zone gets.
    fn share(self, zone: u64) -> f64 {
        match self {
            Load::Skewed if zone % 16 == 5 => 0.8 / 16.0,
            Load::Skewed => 0.2 / 240.0,
            Load::Tenth if zone < ZONES / 10 => 10.0 / (ZONES - ZONES % 10) as f64,
            Load::Tenth => 0.0,
            Load::Uniform | Load::Sequential => 1.0 / ZONES as f64,
        }
    }
}

/// Keys from `start` up to `end`, and the bytes that the database holds of them.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
    bytes: f64,
}

struct World {
    limits: Limits,
    version: Version<()>,
    content: HashMap<FileId, Vec<Segment>>,
    rng: fastrand::Rng,
    /// Bytes of all keys.
    live: u64,
    next: u64,
    written: u64,
    largest: u64,
}

/// Results of a simulation.
#[derive(Debug)]
struct Outcome {
    /// Bytes written by flushes and compactions per byte of input.
    amplification: f64,
    /// Average number of runs with a table over a key, which a reader has to look at.
    over_a_key: f64,
    over_a_key_max: usize,
    /// Average number of runs.
    runs: f64,
    runs_max: usize,
    largest_merge: u64,
    /// Bytes of all tables per byte of the base.
    space_max: f64,
    space_at_rest: f64,
    tables_above_base: usize,
}

impl Outcome {
    fn row(&self) -> String {
        format!(
            "amplification {:.1}, over a key {:.1} (max {}), runs {:.1} (max {}), largest merge {:.1} memtables, \
             space {:.2} (at rest {:.2}), tables above the base {}",
            self.amplification,
            self.over_a_key,
            self.over_a_key_max,
            self.runs,
            self.runs_max,
            self.largest_merge as f64 / MIB as f64,
            self.space_max,
            self.space_at_rest,
            self.tables_above_base,
        )
    }
}

impl World {
    fn new(limits: Limits, live: u64, load: Load) -> Self {
        let version = Version::of_runs(Vec::new());
        let rng = fastrand::Rng::with_seed(1);
        let mut world =
            World { limits, version, content: HashMap::new(), rng, live, next: 1, written: 0, largest: 0 };
        let keys = if load == Load::Sequential { KEYS / 2 } else { KEYS };
        let tables = world.tables(vec![Segment { start: 0, end: keys, bytes: world.all(keys) }], &[], None);
        world.install(&[], Level::BASE, tables.into_iter().map(|t| (RunId(0), t)).collect());
        world
    }

    /// Returns the size in bytes of `keys` keys.
    fn all(&self, keys: u64) -> f64 {
        self.live as f64 * keys as f64 / KEYS as f64
    }

    /// Returns tables with this content.
    fn tables(
        &mut self,
        segments: Vec<Segment>,
        fences: &[u64],
        within: Option<&KeyRange>,
    ) -> Vec<Arc<LiveTable<()>>> {
        let bytes: f64 = segments.iter().map(|s| s.bytes).sum();
        let count = (bytes / self.limits.table_bytes as f64).ceil().max(1.0);
        let share = bytes / count * 1.05;
        let (mut tables, mut open, mut room) = (Vec::new(), Vec::<Segment>::new(), share);
        let mut close = |open: &mut Vec<Segment>| {
            if !open.is_empty() {
                tables.push(std::mem::take(open));
            }
        };
        let mut fences = fences.iter().peekable();
        for mut rest in segments {
            while rest.end > rest.start {
                while fences.next_if(|fence| **fence <= rest.start).is_some() {
                    close(&mut open);
                    room = share;
                }
                let mut end = rest.end.min((rest.start / ZONE + 1) * ZONE);
                if let Some(fence) = fences.peek() {
                    end = end.min(**fence);
                }
                let per_key = rest.bytes / (rest.end - rest.start) as f64;
                if per_key * (end - rest.start) as f64 > room {
                    end = rest.start + ((room / per_key) as u64).clamp(1, end - rest.start);
                }
                let bytes = per_key * (end - rest.start) as f64;
                room -= bytes;
                match open.last_mut() {
                    Some(last) if last.end == rest.start && last.start / ZONE == rest.start / ZONE => {
                        last.end = end;
                        last.bytes += bytes;
                    }
                    _ => open.push(Segment { start: rest.start, end, bytes }),
                }
                rest = Segment { start: end, end: rest.end, bytes: rest.bytes - bytes };
                if room < share * 0.001 {
                    close(&mut open);
                    room = share;
                }
            }
        }
        close(&mut open);
        tables.into_iter().map(|segments| self.table(segments, within)).collect()
    }

    fn table(&mut self, segments: Vec<Segment>, within: Option<&KeyRange>) -> Arc<LiveTable<()>> {
        let file = FileId::new(self.next);
        self.next += 1;
        let (first, last) = (segments[0], segments[segments.len() - 1]);
        // Keys missing at the ends of the range, if only some of the keys exist.
        let gap = |of: &Segment, rng: &mut fastrand::Rng| {
            let keys = (of.end - of.start) as f64;
            let missing = (self.live as f64 / KEYS as f64 * keys / of.bytes.max(1e-9)).max(1.0) - 1.0;
            (rng.f64() * missing * KEYS as f64 / (self.live as f64 / 174.0)).min(keys / 4.0) as u64
        };
        let start = first.start + gap(&first, &mut self.rng);
        let end = last.end - 1 - gap(&last, &mut self.rng);
        let mut range = KeyRange { start: key(start), end: End::Included(key(end.max(start))) };
        if let Some(within) = within {
            range.start = range.start.max(within.start.clone());
            range.end = range.end.min(within.end.clone());
        }
        let file_bytes = segments.iter().map(|s| s.bytes).sum::<f64>().ceil() as u64;
        let counts = Counts { entries: file_bytes / 174, max_seq: SeqNo::new(1), ..Counts::default() };
        let fingerprint = Fingerprint::default();
        let meta = TableMeta {
            blobs: Default::default(),
            file_bytes,
            fingerprint,
            base_seq: SeqNo::ZERO,
            range,
            counts,
        };
        self.content.insert(file, segments);
        Arc::new(LiveTable { file, meta, table: () })
    }

    /// Removes tables from the version and adds others to runs of a level.
    fn install(&mut self, removed: &[FileId], level: Level, added: Vec<(RunId, Arc<LiveTable<()>>)>) {
        let mut changed: BTreeMap<(Level, RunId), Vec<Arc<LiveTable<()>>>> = BTreeMap::new();
        added.into_iter().for_each(|(run, table)| changed.entry((level, run)).or_default().push(table));
        let mut runs = Vec::new();
        for old in self.version.runs() {
            let is_removed = |t: &Arc<LiveTable<()>>| removed.contains(&t.file);
            match changed.get_mut(&(old.level, old.id)) {
                None if !old.tables().iter().any(is_removed) => runs.push(old.clone()),
                None => {
                    changed.insert(
                        (old.level, old.id),
                        old.tables().iter().filter(|t| !is_removed(t)).cloned().collect(),
                    );
                }
                Some(tables) => tables.extend(old.tables().iter().filter(|t| !is_removed(t)).cloned()),
            }
        }
        changed.retain(|_, tables| !tables.is_empty());
        runs.extend(changed.into_iter().map(|((level, id), tables)| Arc::new(Run::new(level, id, tables))));
        self.version = Version::of_runs(runs);
    }

    fn flush(&mut self, load: Load, step: u64) {
        let bytes = self.limits.run_bytes as f64;
        let in_zone = |zone: u64| {
            let all = self.all(ZONE);
            let bytes = all * (1.0 - (-bytes * load.share(zone) / all).exp());
            Segment { start: zone * ZONE, end: (zone + 1) * ZONE, bytes }
        };
        let segments: Vec<_> = match load {
            Load::Sequential => {
                let keys = (bytes / self.live as f64 * KEYS as f64) as u64;
                let start = KEYS / 2 + step * keys;
                vec![Segment { start, end: start + keys, bytes }]
            }
            _ => (0..ZONES).map(in_zone).filter(|s| s.bytes > 0.0).collect(),
        };
        let fences: Vec<_> =
            flush_cuts(&self.version, &self.limits, bytes as u64, false).iter().map(position).collect();
        let tables = self.tables(segments, &fences, None);
        self.written += tables.iter().map(|t| t.meta.file_bytes).sum::<u64>();
        let run = RunId(self.next);
        self.install(&[], Level::L0, tables.into_iter().map(|t| (run, t)).collect());
    }

    fn pick(&self, idle: bool) -> Option<Plan> {
        let input = PickInput {
            limits: self.limits.clone(),
            idle,
            wasted_seek_ns: 0,
            bytes_per_second: 1 << 30,
            skip: Default::default(),
            running: Vec::new(),
            put_off: Default::default(),
            oldest_horizon: SeqNo::ZERO,
            rules: Default::default(),
        };
        pick(&self.version, &input)
    }

    fn execute(&mut self, plan: &Plan) {
        let files: Vec<_> = plan.files().into_iter().collect();
        let run = match plan.output_run {
            OutputRun::Existing(run) => run,
            OutputRun::New => RunId(self.next),
        };
        self.next += 1;
        let runs = self.version.runs().iter();
        let inputs = runs.flat_map(|run| run.overlapping(&plan.range)).filter(|t| files.contains(&t.file));
        let inputs: Vec<_> = inputs.cloned().collect();
        assert_eq!(inputs.len(), files.len());
        let outputs = match plan.kind {
            PlanKind::TrivialMove => inputs,
            PlanKind::Rewrite => {
                let merged = self.merged(inputs.iter().map(|t| &self.content[&t.file][..]).collect());
                let fences: Vec<_> = plan.fences.iter().map(position).collect();
                let outputs = self.tables(merged, &fences, Some(&plan.range));
                let written: u64 = outputs.iter().map(|t| t.meta.file_bytes).sum();
                self.written += written;
                self.largest = self.largest.max(plan.input_bytes(&self.version));
                files.iter().for_each(|file| drop(self.content.remove(file)));
                outputs
            }
        };
        let settle = |t: Arc<LiveTable<()>>| (settled(&self.version, plan, &t.meta.range).unwrap_or(run), t);
        let outputs = outputs.into_iter().map(settle).collect();
        self.install(&files, plan.output_level, outputs);
    }

    /// Returns the combined content of several tables. Each holds an independent part of the keys of a zone.
    fn merged(&self, tables: Vec<&[Segment]>) -> Vec<Segment> {
        let mut edges: Vec<u64> = tables.iter().copied().flatten().flat_map(|s| [s.start, s.end]).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut missing = vec![1.0; edges.len()];
        for segment in tables.into_iter().flatten() {
            let per_key = segment.bytes / (segment.end - segment.start) as f64 / self.all(1);
            let first = edges.partition_point(|edge| *edge < segment.start);
            for at in (first..).take_while(|at| edges[*at] < segment.end) {
                missing[at] *= 1.0 - per_key.min(1.0);
            }
        }
        let stretch = |(at, pair): (usize, &[u64])| {
            let keys = pair[1] - pair[0];
            Segment { start: pair[0], end: pair[1], bytes: self.all(keys) * (1.0 - missing[at]) }
        };
        edges.windows(2).enumerate().map(stretch).filter(|s| s.bytes > 0.0).collect()
    }

    fn bytes(&self) -> u64 {
        self.version.runs().iter().map(|run| run.bytes()).sum()
    }
}

fn key(position: u64) -> Vec<u8> {
    position.to_be_bytes().to_vec()
}

fn position(key: impl AsRef<[u8]>) -> u64 {
    u64::from_be_bytes(key.as_ref().try_into().unwrap())
}

/// Writes `steps` memtables to a database of `live` bytes.
fn simulate(limits: &Limits, live: u64, load: Load, steps: u64) -> Outcome {
    let mut world = World::new(limits.clone(), live, load);
    let (mut runs, mut runs_max, mut space_max, mut tables_above) = (0, 0, 0.0_f64, 0);
    let (mut depth, mut depth_max) = (0, 0);
    let measured = steps - steps / 2;
    for step in 0..steps {
        if step == steps / 2 {
            (world.written, world.largest) = (0, 0);
        }
        world.flush(load, step);
        for plans in 0.. {
            let Some(plan) = world.pick(false) else { break };
            assert!(plans < 5000, "picker.3: step {step}: {plan:?} of {:?}", world.version);
            world.execute(&plan);
        }
        if step >= steps / 2 {
            let count = world.version.runs().len();
            runs += count;
            runs_max = runs_max.max(count);
            let over = |n: u64| {
                let key = key(n * KEYS / SAMPLES + KEYS / SAMPLES / 2 + step % ZONE);
                world.version.runs().iter().filter(|run| run.find(&key).is_some()).count()
            };
            let of_keys = (0..SAMPLES).map(over);
            depth += of_keys.clone().sum::<usize>();
            depth_max = depth_max.max(of_keys.max().unwrap_or(0));
            let base = world.version.base().map_or(0, |run| run.bytes());
            space_max = space_max.max(world.bytes() as f64 / base as f64);
            let above = world.version.tables().filter(|(run, _)| run.level < Level::BASE).count();
            tables_above = tables_above.max(above);
        }
    }
    let (written, largest) = (world.written, world.largest);
    while let Some(plan) = world.pick(true) {
        world.execute(&plan);
    }
    Outcome {
        amplification: written as f64 / (measured * limits.run_bytes) as f64,
        runs: runs as f64 / measured as f64,
        runs_max,
        over_a_key: depth as f64 / (measured * SAMPLES) as f64,
        over_a_key_max: depth_max,
        largest_merge: largest,
        space_max,
        space_at_rest: world.bytes() as f64 / world.version.base().map_or(1, |run| run.bytes()) as f64,
        tables_above_base: tables_above,
    }
}

/// Returns the sizes of a typical database, divided by 64.
fn limits() -> Limits {
    Limits {
        fits_cache: false,
        run_bytes: MIB,
        table_bytes: MIB,
        partition_bytes: MIB,
        compaction_bytes_max: 16 * MIB,
        ..Limits::default()
    }
}

/// The rows of the table in docs/design-decisions.md. `SIMULATED_GIB=1000 cargo test -p esker --lib
/// simulation -- --nocapture` prints others.
#[test]
fn the_cost_of_compaction_grows_with_the_logarithm_of_the_data() {
    let wanted = std::env::var("SIMULATED_GIB").ok().and_then(|gib| gib.parse().ok());
    for gib in wanted.map_or(vec![4, 16, 50, 100], |gib| vec![gib]) {
        for load in [Load::Uniform, Load::Skewed, Load::Tenth, Load::Sequential] {
            if gib >= 100 && load != Load::Uniform && wanted.is_none() {
                continue;
            }
            let live = (gib << 30) / 64;
            let memtables = live / MIB;
            let steps = if load == Load::Sequential { memtables / 4 } else { (memtables * 3 / 2).max(1000) };
            let outcome = simulate(&limits(), live, load, steps);
            println!("{gib:5} GiB {load:?}: {}", outcome.row());
            let amplification_max = if gib <= 100 { 10.0 } else { 13.0 };
            assert!(outcome.amplification <= amplification_max, "{gib} GiB {load:?}: {outcome:?}");
            assert!(outcome.over_a_key_max <= 10 && outcome.runs <= 12.0, "{gib} GiB {load:?}: {outcome:?}");
            assert!(outcome.largest_merge <= 17 * MIB, "{gib} GiB {load:?}: {outcome:?}");
            assert!(outcome.space_at_rest <= 1.2, "{gib} GiB {load:?}: {outcome:?}");
        }
    }
}
