//! The strategy of a manual compaction: compacts everything, or a key range, into one base run without
//! garbage, step by step.
//!
//! ```text
//!   range                 [--------)
//!   L0    [a------------------------------------p]   cut at both ends first, into its own level
//!   base  [a--c]  [d---f]  [g---k]  [l---------p]
//!   zone          [-----------------)                the range, and all of each base table in it
//! ```
//!
//! Tables above the base that cross an end of the zone are cut there. Then every table with a key of the zone
//! lies in it, so the base outside is not rewritten.

use std::sync::Arc;

use super::partition::{Member, Partition, partitions};
use super::plan::{Limits, Plan, PlanKind, holds_tombstones, plan, plan_into_base};
use super::tiers;
use crate::manifest::level::{Level, RunId};
use crate::manifest::version::{Run, Version};
use crate::types::SeqNo;
use crate::types::key_range::{End, KeyRange};

/// Progress of a manual compaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManualProgress {
    /// Keys below this one are done.
    from: Vec<u8>,
    /// The newest run when it began. It ignores later runs.
    newest: Option<RunId>,
    /// Keys to compact. From the first step on, the zone. `None`: all keys.
    range: Option<KeyRange>,
}

impl ManualProgress {
    /// Returns the start of a compaction of a range; `None`: of everything.
    pub(crate) fn within(range: Option<KeyRange>) -> Self {
        ManualProgress { range, ..ManualProgress::default() }
    }
}

/// Returns the next step of a manual compaction; `None` when it is done. Tables whose range satisfies
/// `must_pass` are read in any case.
pub(crate) fn pick<T>(
    version: &Version<T>,
    limits: &Limits,
    must_pass: &dyn Fn(&KeyRange) -> bool,
    progress: &mut ManualProgress,
) -> Option<Plan> {
    if progress.newest.is_none() {
        progress.range = progress.range.take().map(|range| zone(version, range));
    }
    let newest =
        *progress.newest.get_or_insert_with(|| version.runs().first().map_or(RunId(0), |run| run.id));
    let is_later = |run: &Arc<Run<T>>| run.level == Level::L0 && run.id > newest;
    let later = version.runs().iter().take_while(|run| is_later(run)).count();
    if let Some(zone) = &progress.range
        && let Some(plan) = cut(version, later, zone)
    {
        return Some(plan);
    }
    let mut all = partitions(&version.runs()[later..], later);
    all.retain(|p| progress.range.as_ref().is_none_or(|zone| p.range.overlaps(zone)));
    let is_clean = |m: &Member<'_, T>| is_clean(m) && !must_pass(&m.table.meta.range);
    let unclean = |p: &Partition<'_, T>| p.upper().next().is_some() || p.members.iter().any(|m| !is_clean(m));
    let first = all.iter().position(|p| p.range.end.admits(&progress.from) && unclean(p))?;
    let mut bytes = all[first].bytes();
    if !limits.fits_cache && bytes > limits.compaction_bytes_max && all[first].upper().next().is_some() {
        return tiers::pick_manual(version, limits, later, &all[first]);
    }
    let joins = |p: &&Partition<'_, T>| {
        bytes += p.bytes();
        bytes <= limits.partition_bytes && unclean(p)
    };
    let count = 1 + all[first + 1..].iter().take_while(joins).count();
    let group = Partition::join(&all[first..first + count]);
    progress.from = group.range.end.following();
    match &group.members[..] {
        [only] if is_clean(only) => Some(plan(version, &group, Level::BASE, PlanKind::TrivialMove)),
        _ => Some(plan_into_base(version, &group)),
    }
}

/// Returns a range extended over the base tables in it, with an excluded end.
fn zone<T>(version: &Version<T>, mut range: KeyRange) -> KeyRange {
    let tables = version.base().map_or(&[][..], |run| run.overlapping(&range)).to_vec();
    tables.iter().for_each(|table| range.extend(&table.meta.range));
    KeyRange { end: End::Excluded(range.end.following()), ..range }
}

/// Returns a plan that cuts a table above the base at the ends of a zone, if one crosses them.
fn cut<T>(version: &Version<T>, later: usize, zone: &KeyRange) -> Option<Plan> {
    let upper = version.runs().iter().enumerate().skip(later).filter(|(_, run)| run.level != Level::BASE);
    let mut members = upper.flat_map(|(run_index, run)| {
        let tables = run.overlapping(zone).iter();
        tables.map(move |table| Member { run_index, run: &**run, table: &**table })
    });
    let crossing = members.find(|m| !zone.includes(&m.table.meta.range))?;
    let part = Partition { range: crossing.table.meta.range.clone(), members: vec![crossing] };
    let fences = vec![zone.start.clone(), zone.end.key().to_vec()];
    Some(Plan { fences, ..plan(version, &part, crossing.run.level, PlanKind::Rewrite) })
}

/// Returns whether a rewrite at the bottom could not make the table smaller.
fn is_clean<T>(member: &Member<'_, T>) -> bool {
    let counts = &member.table.meta.counts;
    !holds_tombstones(member) && counts.max_seq == SeqNo::ZERO && counts.unresolved == 0
}
