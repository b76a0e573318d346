//! The shape of a database larger than the cache: how many tiers lie above the base, and where to cut their
//! runs.
//!
//! ```text
//!   L0    [-------------------------]     one slot, or a few     each slot holds up to `tier_runs_max` runs;
//!   tier  [-------][-------][-------]     some more              a compaction turns them into one run of the
//!   tier  [--][--][-][--][--][-][--]      ...                    next tier, cut into its slots
//!   base  [ ][ ][ ][ ][ ][ ][ ][ ][ ]     a slot of the last tier covers what fits one compaction
//! ```
//!
//! There are as many tiers as the last one needs to hold `1 / base_ratio` of the base, so their number grows
//! with the logarithm of the base's size. Slots are equal parts of the base in bytes. Their number grows by
//! the same factor from tier to tier.
//!
//! A run is cut only at keys inside no table of its own or a deeper tier. So each slot of a tier lies inside
//! one slot of the tier above, whenever their runs were cut. A cut may lie inside a table of the base, which
//! costs a compaction one more table.
//!
//! The shape is not stored: it follows from the tables of the version.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::partition::{fences, fences_for, partitions};
use super::plan::Limits;
use crate::manifest::level::Level;
use crate::manifest::version::{LiveTable, Run, Version};
use crate::types::FileId;
use crate::types::key_range::KeyRange;

/// Tiers of 3/4 of the wanted size are large enough: another tier would cost more than it saves.
const SHORT_BY: [u64; 2] = [4, 3];
/// An output is not cut into pieces smaller than this fraction of a table.
const PIECE_PART: u64 = 64;

/// The number of tiers, and the size of their slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The tier above the base; [`Level::L0`] if there is no other.
    pub last: Level,
    /// Bytes of the base.
    pub base_bytes: u64,
    /// Average bytes of an entry in the base.
    pub entry_bytes: u64,
    slots_of_l0: f64,
    slots_of_last: f64,
}

impl Shape {
    /// Returns the shape for a version.
    pub(crate) fn of<T>(version: &Version<T>, limits: &Limits) -> Self {
        let base = version.base().map_or(&[][..], |run| run.tables());
        let sum = |(bytes, entries), meta: &crate::sstable::TableMeta| {
            (bytes + meta.file_bytes, entries + meta.counts.entries)
        };
        let (base_bytes, entries) = base.iter().map(|t| &t.meta).fold((0, 0), sum);
        let runs_max = limits.tier_runs_max as u64;
        // Capacity of the last tier, for the tiers counted so far.
        let mut capacity = runs_max.saturating_mul(limits.run_bytes);
        let mut last = Level::L0;
        let is_short = |capacity: u64| {
            capacity.saturating_mul(limits.base_ratio).saturating_mul(SHORT_BY[0]) / SHORT_BY[1] < base_bytes
        };
        while last < Level::LAST_TIER && is_short(capacity) {
            capacity = capacity.saturating_mul(runs_max);
            last = last.below();
        }
        let deepest = version.runs().iter().rev().map(|run| run.level).find(|level| *level < Level::BASE);
        let slots = |bytes: u64, of: u64| (bytes as f64 / of.max(1) as f64).ceil().max(1.0);
        // A compaction of L0 may include the runs of the next tier.
        let of_l0 = limits.run_bytes.saturating_mul(runs_max * runs_max);
        let slots_of_l0 = slots(of_l0, limits.compaction_bytes_max);
        Shape {
            last: last.max(deepest.unwrap_or(Level::L0)),
            base_bytes,
            entry_bytes: base_bytes / entries.max(1),
            slots_of_l0,
            slots_of_last: slots(base_bytes, limits.compaction_bytes_max / 2).max(slots_of_l0),
        }
    }

    /// Returns how many bytes of the base a slot of this level covers.
    fn slot_bytes(&self, level: Level) -> u64 {
        let depth = f64::from(level.get()) / f64::from(self.last.get().max(1));
        let slots = self.slots_of_l0 * (self.slots_of_last / self.slots_of_l0).powf(depth.min(1.0));
        (self.base_bytes as f64 / slots) as u64
    }

    /// Returns the keys at which to cut the output of a compaction that replaces `inputs`.
    pub(crate) fn cuts<T>(
        &self,
        version: &Version<T>,
        limits: &Limits,
        level: Level,
        range: &KeyRange,
        bytes: u64,
        inputs: &BTreeSet<FileId>,
    ) -> Vec<Vec<u8>> {
        let Some(base) = version.base().filter(|_| level != Level::BASE) else { return Vec::new() };
        let tables = base.overlapping(range);
        let mut total = 0;
        let mut of_base: Vec<(u64, &[u8])> = Vec::new();
        for table in tables {
            of_base.push((total, &table.meta.range.start));
            total += table.meta.file_bytes;
        }
        let deeper = || version.runs().iter().filter(|run| run.level >= level && run.level < Level::BASE);
        let place = |key: &[u8]| {
            let at = of_base.partition_point(|(_, start)| *start < key);
            of_base.get(at).map_or(total, |(place, _)| *place)
        };
        let stays = |table: &&Arc<LiveTable<T>>| !inputs.contains(&table.file);
        // Between two existing slots of this level; at the start of a table of the base, if one lies there.
        let of_level: Vec<_> = deeper().filter(|run| run.level == level).cloned().collect();
        let slots = partitions(&of_level, 0);
        let slots: Vec<_> = slots.iter().map(|slot| &slot.range).filter(|r| r.overlaps(range)).collect();
        let slot_bytes = self.slot_bytes(level).max(1);
        let mut cuts: Vec<(u64, &[u8])> = Vec::new();
        for pair in slots.windows(2) {
            let start = pair[1].start.as_slice();
            let at = of_base.partition_point(|(_, key)| *key <= start);
            let of_base = at.checked_sub(1).map(|at| of_base[at]).filter(|(_, key)| !pair[0].end.admits(key));
            let (at, key) = of_base.unwrap_or_else(|| (place(start), start));
            // Joins slots that have become narrow.
            if at - cuts.last().map_or(0, |cut| cut.0) >= slot_bytes / 4 {
                cuts.push((at, key));
            }
        }
        let edges: Vec<u64> = [0].into_iter().chain(cuts.iter().map(|cut| cut.0)).chain([total]).collect();
        // Evenly inside ranges that are wider than a slot.
        let lies_across = |run: &Run<T>, key: &[u8]| {
            let table = run.find(key).map(|at| &run.tables()[at]);
            table.filter(stays).is_some_and(|t| t.meta.range.start != key)
        };
        let is_free = |key: &[u8]| range.start.as_slice() < key && deeper().all(|run| !lies_across(run, key));
        let tables_of_tiers = deeper().flat_map(|run| run.overlapping(range)).filter(stays);
        let starts = tables_of_tiers.map(|t| t.meta.range.start.as_slice());
        let mut of_tiers: Vec<(u64, &[u8])> = starts.map(|start| (place(start), start)).collect();
        of_tiers.sort_unstable();
        let pieces_max = bytes.saturating_mul(PIECE_PART) / limits.table_bytes.max(1);
        for edge in edges.windows(2) {
            let width = edge[1] - edge[0];
            let pieces = ((width + slot_bytes / 2) / slot_bytes).min(pieces_max);
            for n in 1..pieces {
                let ideal = edge[0] + width * n / pieces;
                let near = |places| nearest(places, ideal, width / pieces / 2, is_free);
                cuts.extend(near(&of_base).or_else(|| near(&of_tiers)));
            }
        }
        let mut cuts: Vec<_> = cuts.into_iter().map(|(_, key)| key.to_vec()).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }
}

/// Returns the acceptable key nearest to `ideal`, at most `far` away.
fn nearest<'k>(
    places: &[(u64, &'k [u8])],
    ideal: u64,
    far: u64,
    will_do: impl Fn(&[u8]) -> bool,
) -> Option<(u64, &'k [u8])> {
    let (before, behind) = places.split_at(places.partition_point(|(place, _)| *place < ideal));
    let is_near = |(place, _): &&(u64, &[u8])| place.abs_diff(ideal) <= far;
    let before = before.iter().rev().take_while(is_near).find(|(_, key)| will_do(key));
    let behind = behind.iter().take_while(is_near).find(|(_, key)| will_do(key));
    [before, behind].into_iter().flatten().min_by_key(|(place, _)| place.abs_diff(ideal)).copied()
}

/// Returns the keys at which to cut a flush of about `bytes`. With `finely`, each table lies above one table
/// of the base.
pub(crate) fn flush_cuts<T>(version: &Version<T>, limits: &Limits, bytes: u64, finely: bool) -> Vec<Vec<u8>> {
    let all = fences(version, limits.partition_bytes);
    match version.base() {
        Some(base) if !finely && !limits.fits_cache => {
            let tables = base.tables();
            let mut range = tables[0].meta.range.clone();
            range.extend(&tables[tables.len() - 1].meta.range);
            let shape = Shape::of(version, limits);
            shape.cuts(version, limits, Level::L0, &range, bytes, &BTreeSet::new())
        }
        _ if finely => all,
        _ => fences_for(all, bytes, limits.table_bytes),
    }
}
