//! Plans of compaction, what strategies know to make them, and what they share.
//!
//! ```text
//!   Version, PickInput --in_cache.rs, tiers.rs, manual.rs--> a Partition to compact --plan()--> Plan
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use super::partition::{Member, Partition};
use super::rules::Rules;
use crate::manifest::version::{Level, Run, RunId, Version};
use crate::sstable::TableMeta;
use crate::types::key_range::KeyRange;
use crate::types::{FileId, SeqNo};

const MIB: u64 = 1 << 20;
/// Compaction costs this many times less while the database is idle.
pub(crate) const IDLE_DISCOUNT: u64 = 4;
/// A small neighbour joins a compaction if it is at most this many times as large, so that tables grow
/// geometrically.
const NEIGHBOUR_FACTOR: u64 = 4;
/// Tombstones left in the base are worth a rewrite if at least one of this number of entries is a tombstone.
const LEFTOVER_PART: u64 = 8;

/// The shape to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// While the data fits the cache, more runs as they come from memtables are merged. Writers slow down
    /// from here on.
    pub l0_runs_max: usize,
    /// Where the data exceeds the cache, this number of runs of a tier is merged to one run of the next.
    pub tier_runs_max: usize,
    /// Where the data exceeds the cache, the base is at least this many times as large as the last tier above
    /// it.
    pub base_ratio: u64,
    /// Beyond the cache, tiers are merged early where more runs than these lie above each other.
    pub depth_max: usize,
    /// Bytes of the run that a flush writes.
    pub run_bytes: u64,
    /// Beyond the cache, no merge is larger if that can be avoided.
    pub merge_bytes_max: u64,
    /// Tables are cut at this size.
    pub table_bytes: u64,
    /// Bytes of base tables that are compacted, and fenced off, together.
    pub partition_bytes: u64,
    /// Whether the cache can hold all tables.
    pub fits_cache: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            l0_runs_max: 4,
            tier_runs_max: 3,
            base_ratio: 4,
            depth_max: 10,
            run_bytes: 64 * MIB,
            merge_bytes_max: 1024 * MIB,
            table_bytes: 64 * MIB,
            partition_bytes: 64 * MIB,
            fits_cache: true,
        }
    }
}

/// What the picker knows besides the version.
#[derive(Clone, Debug)]
pub(crate) struct PickInput {
    /// The shape to keep.
    pub limits: Limits,
    /// There were no writes for a while.
    pub idle: bool,
    /// Time that readers lost to extra runs since the last compaction.
    pub wasted_seek_ns: u64,
    /// How fast compactions run.
    pub bytes_per_second: u64,
    /// Tables to leave alone: they could not be read lately, or what would be written of them lacks room
    /// (picker.4).
    pub skip: BTreeSet<FileId>,
    /// Tables of compactions that could not be written lately (picker.5).
    pub put_off: BTreeSet<FileId>,
    /// No reader reads at an older number than this.
    pub oldest_horizon: SeqNo,
    /// What is kept for the history of keyspaces.
    pub rules: Rules,
}

/// The run that takes the output; beyond the cache, those of its tables that do not find an older one
/// (`settled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputRun {
    /// A run that is there; the range is free in it apart from the inputs.
    Existing(RunId),
    /// A new one.
    New,
}

/// How the inputs become the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanKind {
    /// By reading and writing.
    Rewrite,
    /// By a version edit alone.
    TrivialMove,
}

/// The inputs from one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanInput {
    /// The run.
    pub run: RunId,
    /// Its level.
    pub level: Level,
    /// The tables, in key order.
    pub files: Vec<FileId>,
}

/// A piece of compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What goes in, newest run first.
    pub inputs: Vec<PlanInput>,
    /// Where it comes out.
    pub output_level: Level,
    /// In which run.
    pub output_run: OutputRun,
    /// How.
    pub kind: PlanKind,
    /// No run below holds keys of the range (picker.2).
    pub bottommost: bool,
    /// What the inputs cover, gaps included.
    pub range: KeyRange,
    /// First keys that tables of the output do not reach over, ascending.
    pub fences: Vec<Vec<u8>>,
}

impl Plan {
    /// All inputs.
    pub(crate) fn files(&self) -> BTreeSet<FileId> {
        self.inputs.iter().flat_map(|input| &input.files).copied().collect()
    }

    /// Bytes of all inputs, which are tables of this version.
    pub(crate) fn input_bytes<T>(&self, version: &Version<T>) -> u64 {
        let files = self.files();
        let tables = version.runs().iter().flat_map(|run| run.overlapping(&self.range));
        tables.filter(|t| files.contains(&t.file)).map(|t| t.meta.file_bytes).sum()
    }
}

/// The plan that merges a group, closed among the runs from its newest one on, into the base.
pub(super) fn plan_into_base<T>(version: &Version<T>, group: &Partition<'_, T>) -> Plan {
    plan(version, group, Level::BASE, PlanKind::Rewrite)
}

pub(super) fn plan<T>(version: &Version<T>, group: &Partition<'_, T>, level: Level, kind: PlanKind) -> Plan {
    let mut inputs: Vec<PlanInput> = Vec::new();
    for Member { run, table, .. } in &group.members {
        match inputs.last_mut() {
            Some(input) if input.run == run.id && input.level == run.level => input.files.push(table.file),
            _ => inputs.push(PlanInput { run: run.id, level: run.level, files: vec![table.file] }),
        }
    }
    let files: BTreeSet<FileId> = group.members.iter().map(|m| m.table.file).collect();
    let is_free =
        |range: &KeyRange, run: &Run<T>| run.overlapping(range).iter().all(|t| files.contains(&t.file));
    // A rewritten output fills its range.
    let has_room = |run: &Run<T>| match kind {
        PlanKind::Rewrite => is_free(&group.range, run),
        PlanKind::TrivialMove => group.members.iter().all(|m| is_free(&m.table.meta.range, run)),
    };
    // The oldest run of the output's level takes the output of which no table that is no input is in the way,
    // nor of a newer one. So there are no more runs than tables that overlap.
    let mut of_level = version.runs().iter().filter(|run| run.level == level);
    let own = inputs.iter().filter(|input| input.level == level).map(|input| input.run).min();
    let target = match level {
        Level::BASE => {
            of_level.next().inspect(|base| assert!(has_room(base), "picker.1: a table of the base"))
        }
        // Data of this level stays below what newer runs of it hold.
        _ => of_level
            .skip_while(|run| own.is_some_and(|own| run.id > own))
            .take_while(|run| has_room(run))
            .last(),
    };
    let output_run = target.map_or(OutputRun::New, |run| OutputRun::Existing(run.id));

    let below =
        |run: &Arc<Run<T>>| run.level > level || run.level == level && target.is_none_or(|t| run.id < t.id);
    for member in &group.members {
        let behind = version.runs()[member.run_index..].iter().take_while(|run| !below(run));
        for run in behind {
            let closed = is_free(&member.table.meta.range, run);
            assert!(closed, "picker.1: run {} has tables that the plan leaves out", run.id.0);
        }
    }
    let mut deeper = version.runs().iter().filter(|run| below(run));
    let bottommost = deeper.all(|run| run.overlapping(&group.range).is_empty());
    let range = group.range.clone();
    Plan { inputs, output_level: level, output_run, kind, bottommost, range, fences: Vec::new() }
}

/// The run for a table of a plan's output: the oldest of the plan's level that has room for it, as all newer
/// ones have. So there are no more runs than tables that overlap. None if no run has.
pub(crate) fn settled<T>(version: &Version<T>, plan: &Plan, range: &KeyRange) -> Option<RunId> {
    let files = plan.files();
    let mut of_level = version.runs().iter().filter(|run| run.level == plan.output_level);
    if plan.output_level == Level::BASE {
        return of_level.next().map(|run| run.id);
    }
    // Within its level a table sinks below those that are newer.
    let own =
        plan.inputs.iter().filter(|input| input.level == plan.output_level).map(|input| input.run).min();
    let of_level = of_level.skip_while(|run| own.is_some_and(|own| run.id > own));
    let has_room = |run: &&Arc<Run<T>>| run.overlapping(range).iter().all(|t| files.contains(&t.file));
    of_level.take_while(has_room).last().map(|run| run.id)
}

/// Every partition with tables above the base, together with small neighbours: candidates for a compaction
/// into the base.
pub(super) fn groups<'a, T>(all: &[Partition<'a, T>], limits: &Limits) -> Vec<Partition<'a, T>> {
    let sizes: Vec<u64> = all.iter().map(Partition::bytes).collect();
    let mut groups = Vec::new();
    let mut next = 0;
    while let Some(seed) = (next..all.len()).find(|&i| all[i].upper().next().is_some()) {
        let (mut start, mut end, mut bytes) = (seed, seed + 1, sizes[seed]);
        loop {
            let fits = |n: u64| n <= NEIGHBOUR_FACTOR * bytes && (bytes + n) * 2 <= limits.partition_bytes;
            if start > 0 && fits(sizes[start - 1]) {
                start -= 1;
                bytes += sizes[start];
            } else if end < all.len() && fits(sizes[end]) {
                bytes += sizes[end];
                end += 1;
            } else {
                break;
            }
        }
        groups.push(Partition::join(&all[start..end]));
        next = end;
    }
    groups
}

/// The tables above the base that overlap nothing go to the base as they are. Those with tombstones wait for
/// a rewrite, which drops them; small ones wait for company.
pub(super) fn moves<T>(version: &Version<T>, groups: &[Partition<'_, T>]) -> Option<Plan> {
    let lone = groups.iter().filter(|g| matches!(&g.members[..], [only] if !holds_tombstones(only)));
    let lone: Vec<_> = lone.cloned().collect();
    if lone.is_empty() {
        return None;
    }
    Some(plan(version, &Partition::join(&lone), Level::BASE, PlanKind::TrivialMove))
}

/// Returns the number of tombstones in these tables that no reader needs, if they are worth a rewrite.
pub(super) fn held_back<'m>(
    metas: impl Iterator<Item = &'m TableMeta> + Clone,
    input: &PickInput,
) -> Option<u64> {
    let settled_to = |meta: &TableMeta| input.rules.settled_to(&meta.range, input.oldest_horizon);
    let is_settled = metas.clone().all(|meta| meta.counts.max_seq <= settled_to(meta));
    let sum = |[points, ranges, entries]: [u64; 3], meta: &TableMeta| {
        let counts = &meta.counts;
        [points + counts.tombstones, ranges + counts.range_tombstones, entries + counts.entries]
    };
    let [points, ranges, entries] = metas.fold([0; 3], sum);
    let pays = ranges > 0 || points > 0 && points * LEFTOVER_PART >= entries;
    (is_settled && pays).then_some(points + ranges)
}

pub(super) fn holds_tombstones<T>(member: &Member<'_, T>) -> bool {
    member.table.meta.counts.tombstones + member.table.meta.counts.range_tombstones > 0
}
