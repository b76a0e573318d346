//! The strategy while all tables fit the cache: when the database is idle, every partition becomes one run.
//!
//! ```text
//!   partitions with tables above the base --+ small neighbours--> groups --cheapest, if due--> base
//!   tables that overlap nothing --edit only--> base
//!   idle, and no group is left: a part of the base with tombstones that no snapshot needs --> rewritten
//! ```

use super::partition::{Partition, free_bytes, partitions, stuck};
use super::plan::{IDLE_DISCOUNT, PickInput, Plan, groups, held_back, moves, plan_into_base};
use crate::manifest::level::Level;
use crate::manifest::version::Version;

/// Percentage of the base's bytes that tables above it may have.
const UPPER_PERCENT_MAX: u64 = 30;

/// Returns the most profitable compaction that is due.
pub(super) fn pick<T>(version: &Version<T>, input: &PickInput) -> Option<Plan> {
    let limits = &input.limits;
    let all = partitions(version.runs(), 0);
    let readable = || all.split(|p| p.holds_one_of(&input.skip));
    let groups: Vec<_> = readable().flat_map(|neighbours| groups(neighbours, limits)).collect();
    if let Some(plan) = moves(version, &groups) {
        return Some(plan);
    }
    let is_put_off = |p: &Partition<'_, T>| p.holds_one_of(&input.put_off);
    let is_due = |best: &Partition<'_, T>| due(version, input, best, input.idle && !is_put_off(best));
    let best = cheapest(groups.clone()).filter(is_due);
    let when_idle = || {
        let others = cheapest(groups.into_iter().filter(|group| !is_put_off(group)).collect());
        let parts = readable().flatten().filter(|part| !is_put_off(part));
        others.filter(is_due).or_else(|| leftover(parts, input))
    };
    best.or_else(|| input.idle.then(when_idle)?).map(|group| plan_into_base(version, &group))
}

/// Returns the part of the base with the most tombstones that snapshots held back and no reader needs any
/// more. Its rewrite drops them and what they hide.
fn leftover<'p, 'a: 'p, T: 'a>(
    parts: impl Iterator<Item = &'p Partition<'a, T>>,
    input: &PickInput,
) -> Option<Partition<'a, T>> {
    let held = |p: &Partition<'_, T>| held_back(p.members.iter().map(|m| &m.table.meta), input);
    parts
        .filter(|p| p.upper().next().is_none())
        .filter_map(|p| Some((held(p)?, p)))
        .max_by_key(|(tombstones, _)| *tombstones)
        .map(|(_, p)| p.clone())
}

/// Returns the group with the fewest bytes written per byte of newer data absorbed. Bytes that tombstones
/// will free count as absorbed.
fn cheapest<'a, T>(groups: Vec<Partition<'a, T>>) -> Option<Partition<'a, T>> {
    let score = |group: &Partition<'_, T>| {
        let entries: u64 = group.members.iter().map(|m| m.table.meta.counts.entries).sum();
        let tombstones: u64 = group.members.iter().map(|m| m.table.meta.counts.tombstones).sum();
        let freed = tombstones as f64 * group.bytes() as f64 / entries.max(1) as f64;
        group.bytes() as f64 / (group.upper_bytes() as f64 + freed).max(1.0)
    };
    groups.into_iter().min_by(|a, b| score(a).total_cmp(&score(b)))
}

/// Returns whether a compaction is due that starts with `best`. With `idle` it is due because the database is
/// idle.
fn due<T>(version: &Version<T>, input: &PickInput, best: &Partition<'_, T>, idle: bool) -> bool {
    let limits = &input.limits;
    let cost_ns = u128::from(best.bytes()) * 1_000_000_000 / u128::from(input.bytes_per_second.max(1));
    let discount = if idle { IDLE_DISCOUNT } else { 1 };
    let paid = u128::from(input.wasted_seek_ns) * u128::from(discount) >= cost_ns;
    let base_bytes = version.base().map_or(0, |run| run.bytes());
    let stuck = stuck(version, &input.skip, true);
    let upper = version.runs().iter().filter(|run| run.level != Level::BASE);
    let upper = upper.filter_map(|run| free_bytes(run, &stuck));
    let (runs, bytes) = upper.fold((0, 0), |(runs, bytes), of_run| (runs + 1, bytes + of_run));
    let large = bytes >= limits.table_bytes && bytes * 100 > base_bytes * UPPER_PERCENT_MAX;
    paid || idle || runs > limits.l0_runs_max || large
}
