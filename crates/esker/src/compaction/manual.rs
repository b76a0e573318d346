//! The strategy of a manual compaction: compacts everything into one base run without garbage, step by step.

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
}

/// Returns the next step of a manual compaction; `None` when it is done. Tables whose range satisfies
/// `must_pass` are read in any case.
pub(crate) fn pick<T>(
    version: &Version<T>,
    limits: &Limits,
    must_pass: &dyn Fn(&KeyRange) -> bool,
    progress: &mut ManualProgress,
) -> Option<Plan> {
    let newest =
        *progress.newest.get_or_insert_with(|| version.runs().first().map_or(RunId(0), |run| run.id));
    let is_later = |run: &Arc<Run<T>>| run.level == Level::L0 && run.id > newest;
    let later = version.runs().iter().take_while(|run| is_later(run)).count();
    let all = partitions(&version.runs()[later..], later);
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
    progress.from = match &group.range.end {
        End::Excluded(end) => end.clone(),
        End::Included(end) => [end, &[0][..]].concat(),
    };
    match &group.members[..] {
        [only] if is_clean(only) => Some(plan(version, &group, Level::BASE, PlanKind::TrivialMove)),
        _ => Some(plan_into_base(version, &group)),
    }
}

/// Returns whether a rewrite at the bottom could not make the table smaller.
fn is_clean<T>(member: &Member<'_, T>) -> bool {
    let counts = &member.table.meta.counts;
    !holds_tombstones(member) && counts.max_seq == SeqNo::ZERO && counts.unresolved == 0
}
