//! Compaction plans, the input of strategies, and helpers that strategies share.
//!
//! ```text
//!   Version, PickInput --in_cache.rs, tiers.rs, manual.rs--> a Partition to compact --plan()--> Plan
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use super::claim::Claim;
use super::partition::{Member, Partition};
use super::rules::Rules;
use crate::manifest::level::{Level, RunId};
use crate::manifest::version::{Run, Version};
use crate::sstable::TableMeta;
use crate::types::key_range::KeyRange;
use crate::types::{FileId, SeqNo};

const MIB: u64 = 1 << 20;
/// Factor by which compaction is cheaper while the database is idle.
pub(crate) const IDLE_DISCOUNT: u64 = 4;
/// A small neighbour joins a compaction if it is at most this many times as large, so that tables grow
/// geometrically.
const NEIGHBOUR_FACTOR: u64 = 4;
/// Tombstones left in the base are worth a rewrite if at least one entry of this many is a tombstone.
const LEFTOVER_PART: u64 = 8;

/// Limits that define the desired shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// While the data fits the cache: number of L0 runs above which they are compacted. Writers are slowed
    /// down from here on.
    pub l0_runs_max: usize,
    /// If the data exceeds the cache: number of runs of a tier that are compacted into one run of the next
    /// tier.
    pub tier_runs_max: usize,
    /// If the data exceeds the cache: minimum size of the base as a multiple of the last tier.
    pub base_ratio: u64,
    /// If the data exceeds the cache: number of runs over one key at which tiers are compacted early.
    pub depth_max: usize,
    /// Size of the run that a flush writes.
    pub run_bytes: u64,
    /// If the data exceeds the cache: maximum size of a compaction, where possible.
    pub compaction_bytes_max: u64,
    /// Size at which tables are cut.
    pub table_bytes: u64,
    /// Size of the groups of base tables that are compacted, and fenced off, together.
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
            compaction_bytes_max: 1024 * MIB,
            table_bytes: 64 * MIB,
            partition_bytes: 64 * MIB,
            fits_cache: true,
        }
    }
}

/// What the picker knows besides the version.
#[derive(Clone, Debug)]
pub(crate) struct PickInput {
    /// Limits that define the desired shape.
    pub limits: Limits,
    /// Whether there were no writes for a while.
    pub idle: bool,
    /// Time that readers lost to extra runs since the last compaction.
    pub wasted_seek_ns: u64,
    /// Speed of compactions.
    pub bytes_per_second: u64,
    /// Tables to leave alone: they could not be read recently, or there is no space for their output.
    pub skip: BTreeSet<FileId>,
    /// Tables of compactions whose output could not be written recently.
    pub put_off: BTreeSet<FileId>,
    /// Claims of running plans (picker.6).
    pub running: Vec<Claim>,
    /// No reader reads below this sequence number.
    pub oldest_horizon: SeqNo,
    /// History rules of keyspaces.
    pub rules: Rules,
}

/// The run that takes the output. Beyond the cache, only for tables that `settled` assigns to no older run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputRun {
    /// An existing run, in which the range is free apart from the inputs.
    Existing(RunId),
    /// A new run.
    New,
}

/// How the inputs become the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanKind {
    /// Reads the inputs and writes new tables.
    Rewrite,
    /// Only edits the version.
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

/// One compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The inputs, newest run first.
    pub inputs: Vec<PlanInput>,
    /// Level of the output.
    pub output_level: Level,
    /// Run of the output.
    pub output_run: OutputRun,
    /// Whether tables are rewritten or moved.
    pub kind: PlanKind,
    /// Whether no run below holds keys of the range (picker.2).
    pub bottommost: bool,
    /// The range from the first to the last key of the inputs.
    pub range: KeyRange,
    /// Keys at which output tables are cut, ascending.
    pub fences: Vec<Vec<u8>>,
}

impl Plan {
    /// Returns all input files.
    pub(crate) fn files(&self) -> BTreeSet<FileId> {
        self.inputs.iter().flat_map(|input| &input.files).copied().collect()
    }

    /// Returns the size of all inputs, which are tables of `version`.
    pub(crate) fn input_bytes<T>(&self, version: &Version<T>) -> u64 {
        let files = self.files();
        let tables = version.runs().iter().flat_map(|run| run.overlapping(&self.range));
        tables.filter(|t| files.contains(&t.file)).map(|t| t.meta.file_bytes).sum()
    }
}

/// Returns the plan that compacts a group into the base. The group is closed among the runs from its newest
/// one on.
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
    // A rewrite may fill the whole range.
    let fits = |run: &Run<T>| match kind {
        PlanKind::Rewrite => is_free(&group.range, run),
        PlanKind::TrivialMove => group.members.iter().all(|m| is_free(&m.table.meta.range, run)),
    };
    // The output goes to the oldest run of its level such that no table outside the inputs overlaps it in
    // that run or a newer one. So there are no more runs than overlapping tables.
    let mut of_level = version.runs().iter().filter(|run| run.level == level);
    let own = inputs.iter().filter(|input| input.level == level).map(|input| input.run).min();
    let target = match level {
        Level::BASE => of_level.next().inspect(|base| assert!(fits(base), "picker.1: a table of the base")),
        // Data of this level stays below the data of newer runs.
        _ => {
            of_level.skip_while(|run| own.is_some_and(|own| run.id > own)).take_while(|run| fits(run)).last()
        }
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

/// Returns the run for one output table in `version`, which may be newer than the plan: the oldest of the
/// plan's level in which, and in all newer ones, its range is free. So there are no more runs than
/// overlapping tables. `None` if there is no such run.
pub(crate) fn settled<T>(version: &Version<T>, plan: &Plan, range: &KeyRange) -> Option<RunId> {
    let files = plan.files();
    let mut of_level = version.runs().iter().filter(|run| run.level == plan.output_level);
    if plan.output_level == Level::BASE {
        return of_level.next().map(|run| run.id);
    }
    // Within its level a table must stay below newer ones.
    let own =
        plan.inputs.iter().filter(|input| input.level == plan.output_level).map(|input| input.run).min();
    let of_level = of_level.skip_while(|run| own.is_some_and(|own| run.id > own));
    let fits = |run: &&Arc<Run<T>>| run.overlapping(range).iter().all(|t| files.contains(&t.file));
    of_level.take_while(fits).last().map(|run| run.id)
}

/// Returns every partition with tables above the base, joined with small neighbours: candidates for a
/// compaction into the base.
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

/// Returns a trivial move to the base of the tables above it that overlap no other table. Tables with
/// tombstones wait for a rewrite, which drops them; small ones wait to be joined.
pub(super) fn moves<T>(version: &Version<T>, groups: &[Partition<'_, T>]) -> Option<Plan> {
    let lone = groups.iter().filter(|g| matches!(&g.members[..], [only] if !holds_tombstones(only)));
    let lone: Vec<_> = lone.cloned().collect();
    if lone.is_empty() {
        return None;
    }
    Some(plan(version, &Partition::join(&lone), Level::BASE, PlanKind::TrivialMove))
}

/// Returns the number of tombstones in these tables that no reader needs any more; `None` if they are not
/// worth a rewrite.
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
