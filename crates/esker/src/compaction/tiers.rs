//! The strategy while the data is larger than the cache: nested tiers above the base.
//!
//! ```text
//!   a slot of a tier with `tier_runs_max` runs -----------------------> one run of the next tier
//!   the same, and its slots of the next tier lack one run to be full -> one run of the tier after that
//!   a slot that is heavy compared to its part of the base ------------> base
//!   lost seeks have paid, or too many runs over one key: compacted from two runs on, or from one
//!   idle: until the data above the base is a sixth of it
//! ```
//!
//! A compaction that would exceed `compaction_bytes_max` takes a part of the slot: tables from the left end
//! of its oldest run, and the tables of newer runs that lie above only these. If a single table lies above
//! too much of the base, it is first cut into narrower ones, if possible.
//!
//! The slot that exceeds its number of runs or bytes by the largest factor goes first; on a tie, the slot of
//! the newest tier. So a backlog grows in all tiers alike, and the runs of L0 measure it (pacing.rs).

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::partition::{Member, Partition, partitions};
use super::plan::{
    IDLE_DISCOUNT, Limits, OutputRun, PickInput, Plan, PlanInput, PlanKind, groups, held_back,
    holds_tombstones, moves, plan,
};
use super::shape::Shape;
use crate::manifest::level::Level;
use crate::manifest::version::{Run, Version};
use crate::types::FileId;
use crate::types::key_range::KeyRange;

/// While idle, data above the base is compacted until it is this fraction of the base.
const IDLE_PART: u64 = 6;
/// A slot of the last tier with too many runs goes to the base if its heaviness is at least this.
const NEARLY_HEAVY: f64 = 0.6;
/// A tier joins a compaction if it is filled to this percentage.
const FULL_PERCENT: u64 = 75;

/// The tables of one level in one slot: they overlap each other.
struct Slot<'a, T> {
    level: Level,
    part: Partition<'a, T>,
    runs: usize,
    /// Bytes of the tables, plus the bytes that their tombstones will free.
    weight: u64,
    /// Bytes of the base below it.
    below: u64,
    /// Whether it is a single table that overlaps no other table and holds no tombstones.
    is_lone: bool,
}

/// Target of a slot's compaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    Base,
    NextTier,
    /// Its own level, as one run.
    Same,
}

/// Everything that decisions need.
struct Picker<'v, T> {
    version: &'v Version<T>,
    limits: &'v Limits,
    shape: Shape,
    /// Tables to leave alone.
    skip: &'v BTreeSet<FileId>,
    /// Number of newest runs to ignore.
    later: usize,
}

/// Returns the most profitable compaction that is due.
pub(super) fn pick<T>(version: &Version<T>, input: &PickInput) -> Option<Plan> {
    let limits = &input.limits;
    let picker = Picker { version, limits, shape: Shape::of(version, limits), skip: &input.skip, later: 0 };
    let slots = picker.slots();
    if slots.iter().any(|slot| slot.is_lone)
        && let Some(plan) = picker.lone()
    {
        return Some(plan);
    }
    if let Some(plan) = picker.sinking() {
        return Some(plan);
    }
    let due = picker.due(&slots).or_else(|| picker.paid(&slots, input));
    due.or_else(|| input.idle.then(|| picker.when_idle(&slots, input))?)
}

/// Returns the next step of a manual compaction if a whole partition is too large for one. Ignores the
/// `later` newest runs.
pub(super) fn pick_manual<T>(
    version: &Version<T>,
    limits: &Limits,
    later: usize,
    group: &Partition<'_, T>,
) -> Option<Plan> {
    let skip = BTreeSet::new();
    let picker = Picker { version, limits, shape: Shape::of(version, limits), skip: &skip, later };
    let newest = group.upper().min_by_key(|m| m.run.level)?;
    let members = picker.closed(newest.run.level, newest.run.level, &newest.table.meta.range);
    let part = Partition { range: hull(&members), members };
    picker.step_down(&picker.slot(newest.run.level, part))
}

/// Returns a rewrite of the base table with the most tombstones that no reader needs any more.
fn leftover_of_base<T>(version: &Version<T>, input: &PickInput) -> Option<Plan> {
    let run_index = version.runs().len().checked_sub(1)?;
    let run = version.base()?;
    let usable = |file| !input.skip.contains(&file) && !input.put_off.contains(&file);
    let tables = run.tables().iter().filter(|t| usable(t.file));
    let held = tables.filter_map(|t| Some((held_back([&t.meta].into_iter(), input)?, t)));
    let (_, table) = held.max_by_key(|(tombstones, _)| *tombstones)?;
    let members = vec![Member { run_index, run: &**run, table }];
    let part = Partition { range: table.meta.range.clone(), members };
    Some(plan(version, &part, Level::BASE, PlanKind::Rewrite))
}

/// Returns the range from the first to the last key of these tables.
fn hull<T>(members: &[Member<'_, T>]) -> KeyRange {
    let mut range = members[0].table.meta.range.clone();
    members[1..].iter().for_each(|m| range.extend(&m.table.meta.range));
    range
}

fn bytes<T>(members: &[Member<'_, T>]) -> u64 {
    members.iter().map(|m| m.table.meta.file_bytes).sum()
}

fn runs_of<T>(members: &[Member<'_, T>]) -> usize {
    let mut runs: Vec<_> = members.iter().map(|m| m.run_index).collect();
    runs.dedup();
    runs.len()
}

impl<'v, T> Picker<'v, T> {
    /// Returns the slots of all levels above the base, except those with a table to leave alone.
    fn slots(&self) -> Vec<Slot<'v, T>> {
        let mut slots = Vec::new();
        let runs = self.version.runs();
        for of_level in runs[self.later..].chunk_by(|a, b| a.level == b.level) {
            let level = of_level[0].level;
            if level == Level::BASE {
                break;
            }
            let first = runs.partition_point(|run| run.level < level);
            let parts = partitions(of_level, first).into_iter();
            let readable = parts.filter(|part| !part.holds_one_of(self.skip));
            slots.extend(readable.map(|part| self.slot(level, part)));
        }
        slots
    }

    fn slot(&self, level: Level, part: Partition<'v, T>) -> Slot<'v, T> {
        let tombstones: u64 = part.members.iter().map(|m| m.table.meta.counts.tombstones).sum();
        let below = self.base_bytes(&part.range);
        let is_alone = |m: &Member<'_, T>| {
            let mut others = self.version.runs().iter().enumerate().filter(|(at, _)| *at != m.run_index);
            below == 0
                && !holds_tombstones(m)
                && others.all(|(_, run)| run.overlapping(&part.range).is_empty())
        };
        Slot {
            level,
            runs: runs_of(&part.members),
            weight: part.bytes().saturating_add(tombstones.saturating_mul(self.shape.entry_bytes)),
            below,
            is_lone: matches!(&part.members[..], [only] if is_alone(only)),
            part,
        }
    }

    fn base_bytes(&self, range: &KeyRange) -> u64 {
        let tables = self.version.base().map_or(&[][..], |run| run.overlapping(range));
        tables.iter().map(|t| t.meta.file_bytes).sum()
    }

    /// Returns how heavy a slot is compared to its part of the base. From 1 on it is compacted into the base.
    fn heaviness(&self, slot: &Slot<'_, T>) -> f64 {
        if slot.below > 0 {
            return slot.weight as f64 * self.limits.base_ratio as f64 / slot.below as f64;
        }
        // Without a base, two runs are worth being compacted into one.
        if slot.runs > 1 || slot.part.members.iter().any(holds_tombstones) { 1.0 } else { 0.0 }
    }

    /// Returns a plan for the slot that exceeds its limits most.
    fn due(&self, slots: &[Slot<'v, T>]) -> Option<Plan> {
        let runs_max = self.limits.tier_runs_max as f64;
        let crowded = self.crowded_key();
        let l0_runs = self.version.runs().iter().filter(|run| run.level == Level::L0).count() as f64;
        let mut due: Vec<(f64, Goal, &Slot<'v, T>)> = Vec::new();
        for slot in slots.iter().filter(|slot| !slot.is_lone) {
            let runs = slot.runs as f64;
            let heavy = self.heaviness(slot);
            let (mut full, goal) = match slot.level == self.shape.last {
                true if slot.level == Level::L0 => (runs / runs_max, Goal::Base),
                true => (runs / (runs_max + 1.0), if heavy < NEARLY_HEAVY { Goal::Same } else { Goal::Base }),
                false => (runs / runs_max, Goal::NextTier),
            };
            let is_crowded = crowded.is_some_and(|key| slot.part.range.contains(key));
            if is_crowded && slot.runs > 1 {
                full = full.max(1.0);
            }
            if slot.level == Level::L0 && slot.level != self.shape.last {
                // Readers look at every run of L0, even if the runs do not overlap.
                full = full.max(l0_runs / (2.0 * runs_max + 1.0) * runs / runs_max.max(runs));
            }
            if heavy >= 1.0 {
                due.push((heavy, Goal::Base, slot));
            }
            if full >= 1.0 {
                due.push((full, goal, slot));
            }
        }
        due.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.level.cmp(&b.2.level)));
        due.into_iter().find_map(|(_, goal, slot)| self.step(slot, goal))
    }

    /// Returns a trivial move of tables whose range is free in the next older run of the level, if the level
    /// has more runs than overlapping tables.
    fn sinking(&self) -> Option<Plan> {
        let mut of_levels = self.version.runs().chunk_by(|a, b| a.level == b.level);
        of_levels.find_map(|runs| {
            if runs.len() <= self.limits.tier_runs_max + 1 || runs[0].level == Level::L0 {
                return None;
            }
            runs.windows(2).rev().find_map(|pair| {
                let is_free = |range: &KeyRange| pair[1].overlapping(range).is_empty();
                let tables = pair[0].tables().iter().filter(|t| !self.skip.contains(&t.file));
                let tables = tables.filter(|t| is_free(&t.meta.range));
                let files: Vec<_> = tables.map(|t| t.file).collect();
                let whole = pair[0].tables();
                let mut range = whole[0].meta.range.clone();
                range.extend(&whole[whole.len() - 1].meta.range);
                let (run, level) = (pair[0].id, pair[0].level);
                (!files.is_empty()).then(|| Plan {
                    inputs: vec![PlanInput { run, level, files }],
                    output_level: level,
                    output_run: OutputRun::Existing(run),
                    kind: PlanKind::TrivialMove,
                    bottommost: false,
                    range,
                    fences: Vec::new(),
                })
            })
        })
    }

    /// Returns the key over which the most runs lie, if they are too many.
    fn crowded_key(&self) -> Option<&'v [u8]> {
        let upper = || self.version.runs().iter().filter(|run| run.level != Level::BASE);
        if upper().count() < self.limits.depth_max {
            return None;
        }
        let ranges = || upper().flat_map(|run| run.tables()).map(|t| &t.meta.range);
        let mut starts: Vec<_> = ranges().map(|range| range.start.as_slice()).collect();
        let mut ends: Vec<_> = ranges().map(|range| &range.end).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        let (mut ended, mut deepest, mut crowded) = (0, self.limits.depth_max - 1, None);
        for (started, start) in starts.into_iter().enumerate() {
            while !ends[ended].admits(start) {
                ended += 1;
            }
            if started + 1 - ended > deepest {
                (deepest, crowded) = (started + 1 - ended, Some(start));
            }
        }
        crowded
    }

    /// Returns a plan for tables that overlap no other: a trivial move to the base, or a compaction with
    /// small neighbours there once they are as large.
    fn lone(&self) -> Option<Plan> {
        let all = partitions(self.version.runs(), 0);
        let readable = all.split(|p| p.holds_one_of(self.skip));
        let groups: Vec<_> = readable.flat_map(|neighbours| groups(neighbours, self.limits)).collect();
        if let Some(plan) = moves(self.version, &groups) {
            return Some(plan);
        }
        let is_gathered = |group: &&Partition<'v, T>| {
            let mut parts = all.iter().filter(|part| part.range.overlaps(&group.range));
            let is_apart = parts.all(|part| part.members.len() == 1);
            is_apart && group.members.len() > 1 && group.upper_bytes() * 2 >= group.bytes()
        };
        let group = groups.iter().find(is_gathered)?;
        Some(plan(self.version, group, Level::BASE, PlanKind::Rewrite))
    }

    /// Returns a plan that reduces the number of runs, if the seeks that readers lost have paid for it.
    fn paid(&self, slots: &[Slot<'v, T>], input: &PickInput) -> Option<Plan> {
        let discount = if input.idle { IDLE_DISCOUNT } else { 1 };
        let paid_ns = u128::from(input.wasted_seek_ns) * u128::from(discount);
        if paid_ns == 0 {
            return None;
        }
        let mut slots: Vec<_> = slots.iter().filter(|slot| !slot.is_lone).collect();
        slots.sort_by_key(|slot| (slot.runs == 1, slot.level, slot.part.bytes()));
        let plan = slots.into_iter().find_map(|slot| self.step_down(slot))?;
        let cost_ns = u128::from(plan.input_bytes(self.version)) * 1_000_000_000;
        (paid_ns >= cost_ns / u128::from(input.bytes_per_second.max(1))).then_some(plan)
    }

    /// Returns a plan for an idle database: reduces the data above the base, and drops tombstones that no
    /// reader needs any more.
    fn when_idle(&self, slots: &[Slot<'v, T>], input: &PickInput) -> Option<Plan> {
        let may = |plan: &Plan| input.put_off.is_disjoint(&plan.files());
        let weight: u64 = slots.iter().map(|slot| slot.weight).sum();
        let mut slots: Vec<_> = slots.iter().filter(|slot| !slot.is_lone).collect();
        if weight.saturating_mul(IDLE_PART) > self.shape.base_bytes {
            let part = |slot: &Slot<'_, T>| slot.weight as f64 / slot.below.max(1) as f64;
            let order = |a: &&Slot<'_, T>, b: &&Slot<'_, T>| -> Ordering {
                b.level.cmp(&a.level).then(part(b).total_cmp(&part(a)))
            };
            slots.sort_by(order);
            let plan = slots.iter().filter_map(|slot| self.step_down(slot)).find(may);
            if plan.is_some() {
                return plan;
            }
        }
        let held = |slot: &&&Slot<'_, T>| {
            let metas = slot.part.members.iter().map(|m| &m.table.meta);
            held_back(metas, input).is_some()
        };
        let base = leftover_of_base(self.version, input);
        base.or_else(|| slots.iter().filter(held).filter_map(|slot| self.step_down(slot)).find(may))
    }

    /// Returns a plan that moves a slot's data one level closer to the base.
    fn step_down(&self, slot: &Slot<'v, T>) -> Option<Plan> {
        let goal = if slot.level == self.shape.last { Goal::Base } else { Goal::NextTier };
        self.step(slot, goal)
    }

    /// Returns the plan for a slot; `None` if it would read a table to leave alone.
    fn step(&self, slot: &Slot<'v, T>, goal: Goal) -> Option<Plan> {
        let members = || slot.part.members.clone();
        let may = |plan: &Plan| self.skip.is_disjoint(&plan.files());
        let to_base = || {
            let all = self.closed(slot.level, self.shape.last, &slot.part.range);
            let is_small =
                |all: &Vec<_>| bytes(all) + self.base_bytes(&hull(all)) <= self.limits.compaction_bytes_max;
            Some(all).filter(is_small).map(|all| self.base_plan(all)).filter(may)
        };
        if (goal == Goal::Base || slot.level == self.shape.last && goal != Goal::Same)
            && let Some(plan) = to_base()
        {
            return Some(plan);
        }
        if slot.level == self.shape.last && goal != Goal::Same {
            let part = self.part(members(), true);
            let is_wide = bytes(&part) + self.base_bytes(&hull(&part)) > self.limits.compaction_bytes_max;
            let narrower = is_wide.then(|| self.tier_plan(part.clone(), slot.level));
            let narrower = narrower.filter(|plan| !plan.fences.is_empty());
            return Some(narrower.unwrap_or_else(|| self.base_plan(part))).filter(may);
        }
        let (level, inputs) = match goal {
            Goal::Same => {
                let part = self.part(members(), false);
                if runs_of(&part) == 1 {
                    // If the compaction cannot include a second run, rewriting this one in place would repeat
                    // for ever (picker.3).
                    return self.step(slot, Goal::Base);
                }
                (slot.level, part)
            }
            _ => self.with_next_tiers(slot),
        };
        let plan = self.tier_plan(inputs, level);
        if may(&plan) {
            return Some(plan);
        }
        let plan = self.tier_plan(self.part(members(), false), slot.level.below());
        (goal != Goal::Same && may(&plan)).then_some(plan)
    }

    /// Returns a slot together with the tables of the tiers below that become full with it, and the level
    /// they go to.
    fn with_next_tiers(&self, slot: &Slot<'v, T>) -> (Level, Vec<Member<'v, T>>) {
        let runs_max = self.limits.tier_runs_max;
        let mut level = slot.level.below();
        let mut inputs = slot.part.members.clone();
        let mut range = slot.part.range.clone();
        let mut of_tier = bytes(&inputs);
        if of_tier > self.limits.compaction_bytes_max {
            return (level, self.part(inputs, false));
        }
        while level < self.shape.last {
            let more = self.closed(slot.level, level, &range);
            let next: Vec<_> = more.iter().filter(|m| m.run.level == level).copied().collect();
            let full = of_tier * (runs_max as u64 - 1) * FULL_PERCENT / 100;
            let (all_bytes, next_bytes) = (bytes(&more), bytes(&next));
            if all_bytes > self.limits.compaction_bytes_max
                || next_bytes < full.max(1)
                || runs_of(&next) + 1 < runs_max
            {
                break;
            }
            range = hull(&more);
            (inputs, of_tier) = (more, next_bytes);
            level = level.below();
        }
        (level, inputs)
    }

    /// Returns the tables of levels `from` to `to` that share keys with the range, directly or through each
    /// other.
    fn closed(&self, from: Level, to: Level, range: &KeyRange) -> Vec<Member<'v, T>> {
        let mut range = range.clone();
        let runs = || self.version.runs().iter().enumerate().skip(self.later);
        let of_levels =
            || runs().filter(|(_, run)| (from..=to).contains(&run.level) && run.level < Level::BASE);
        loop {
            let of_run = |(run_index, run): (usize, &'v std::sync::Arc<Run<T>>)| {
                let tables = run.overlapping(&range).iter();
                tables.map(move |table| Member { run_index, run: &**run, table: &**table })
            };
            let members: Vec<_> = of_levels().flat_map(of_run).collect();
            let mut wider = range.clone();
            members.iter().for_each(|m| wider.extend(&m.table.meta.range));
            if wider == range {
                return members;
            }
            range = wider;
        }
    }

    /// Returns as much of a slot as one compaction may take.
    fn part(&self, members: Vec<Member<'v, T>>, into_base: bool) -> Vec<Member<'v, T>> {
        let cost = |members: &[Member<'v, T>]| {
            bytes(members) + if into_base { self.base_bytes(&hull(members)) } else { 0 }
        };
        let bytes_max = self.limits.compaction_bytes_max;
        if cost(&members) <= bytes_max {
            return members;
        }
        let of_runs: Vec<&[Member<'v, T>]> = members.chunk_by(|a, b| a.run_index == b.run_index).collect();
        let share = if into_base { bytes_max / 4 * 3 } else { bytes_max / of_runs.len() as u64 };
        let mut chosen: Vec<Member<'v, T>> = Vec::new();
        // No table may reach this key.
        let mut limit: Option<&'v [u8]> = None;
        for tables in of_runs.iter().rev() {
            let (is_oldest, bytes_max) = match chosen.is_empty() {
                true => (true, share),
                false => (false, bytes_max),
            };
            for member in *tables {
                let range = &member.table.meta.range;
                let is_inside = limit.is_none_or(|limit| !range.end.admits(limit));
                chosen.push(*member);
                let is_first = is_oldest && chosen.len() == 1;
                if !is_first && (!is_inside || cost(&chosen) > bytes_max) {
                    chosen.pop();
                    limit = Some(limit.map_or(&range.start[..], |limit| limit.min(&range.start)));
                    break;
                }
            }
        }
        chosen.sort_by_key(|m| m.run_index);
        chosen
    }

    fn base_plan(&self, mut members: Vec<Member<'v, T>>) -> Plan {
        members.retain(|m| m.run.level != Level::BASE);
        let mut range = hull(&members);
        if let Some(base) = self.version.base() {
            let run_index = self.version.runs().len() - 1;
            for table in base.overlapping(&range.clone()) {
                range.extend(&table.meta.range);
                members.push(Member { run_index, run: &**base, table });
            }
        }
        plan(self.version, &Partition { range, members }, Level::BASE, PlanKind::Rewrite)
    }

    fn tier_plan(&self, members: Vec<Member<'v, T>>, level: Level) -> Plan {
        let range = hull(&members);
        let inputs: BTreeSet<FileId> = members.iter().map(|m| m.table.file).collect();
        let bytes = bytes(&members);
        let fences = self.shape.cuts(self.version, self.limits, level, &range, bytes, &inputs);
        let is_cut = |m: &Member<'_, T>| {
            let range = &m.table.meta.range;
            fences.iter().any(|fence| range.start < *fence && range.end.admits(fence))
        };
        let is_whole = runs_of(&members) == 1 && !members.iter().any(is_cut);
        let kind = if is_whole { PlanKind::TrivialMove } else { PlanKind::Rewrite };
        let plan = plan(self.version, &Partition { range, members }, level, kind);
        Plan { fences, ..plan }
    }
}
