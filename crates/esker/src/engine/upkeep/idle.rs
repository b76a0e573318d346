//! Idle policy: decides what an idle database flushes and compacts without a need of writers.
//!
//! ```text
//!   active memtable: removals --by table--> Hidden { bytes, hidden } --flush_reason--> flush, compaction
//! ```
//!
//! - Within seconds of idleness the memtable is flushed if that frees more bytes than it writes, and at
//!   least `FREED_MIN` (txn/flush_reason.rs). Only tables with at least 1 / [`PART_MIN`] hidden count.
//!   Tables that are hidden entirely are dropped without a flush (compaction/covered.rs).
//! - This is checked once after each commit, and a flush leaves an empty memtable, so an idle database stops
//!   working.
//! - A database smaller than `FREED_MIN` is never flushed for this, nor is one whose commits remove what is
//!   still in the memtable.
//! - A few small runs above a large base are compacted with it only after a pause of base size /
//!   [`IDLE_BYTES_PER_SECOND`]. Short pauses between small flushes therefore do not rewrite
//!   the base.
//! - A memtable that is a large part of the database, and larger than `LARGE_MIN`, is flushed after
//!   `QUIET` without commits, because tables are faster to read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::compaction::covered::is_hidden;
use crate::compaction::plan::IDLE_DISCOUNT;
use crate::engine::upkeep::Upkeep;
use crate::engine::upkeep::compact::compaction_ns;
use crate::engine::upkeep::pace::time_of;
use crate::manifest::level::Level;
use crate::manifest::version::{Run, Version};
use crate::memtable::Memtable;
use crate::txn::flush_reason::{FlushReason, MemtableFacts, Moment, flush_reason};
use crate::types::{FileId, SeqNo};

/// Average rate at which compactions may rewrite a large base while idle.
const IDLE_BYTES_PER_SECOND: u64 = 16 << 20;
/// Runs above the base are small if together they have less than 1 / this of its size, and less than half a
/// memtable.
const LITTLE_PART: u64 = 6;
/// At least 1 / this of a table must be hidden; otherwise rewriting it costs more than it frees.
const PART_MIN: u64 = 8;

/// Tracks the idle time and up to which commit the memtable was checked.
#[derive(Debug, Default)]
pub(crate) struct IdlePolicy {
    /// Relaxed: only the holder of the compaction turn uses it.
    looked_at: AtomicU64,
    /// Milliseconds since the last commit, as far as the compaction thread knows.
    idle_ms: AtomicU64,
}

impl IdlePolicy {
    /// Records the time since the last commit.
    pub(in crate::engine) fn note_idle(&self, idle_for: Duration) {
        self.idle_ms.store(idle_for.as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns the time since the last commit.
    pub(in crate::engine) fn idle_for(&self) -> Duration {
        Duration::from_millis(self.idle_ms.load(Ordering::Relaxed))
    }
}

/// The size of a table, and how much of it the memtable hides.
#[derive(Clone, Copy, Debug, Default)]
struct Hidden {
    /// Bytes on disk.
    bytes: u64,
    /// Approximately how many of them are hidden.
    hidden: u64,
}

/// Returns the bytes that a flush frees in sufficiently hidden tables.
fn freed_bytes(tables: impl Iterator<Item = Hidden>) -> u64 {
    let worth = tables.filter(|table| table.hidden.saturating_mul(PART_MIN) >= table.bytes);
    worth.map(|table| table.hidden.min(table.bytes)).sum()
}

/// Returns how much of each table the memtable hides, summed over its removals.
fn hidden(version: &Version, memtable: &Memtable, visible: SeqNo) -> Vec<Hidden> {
    let mut hidden: HashMap<FileId, u64> = HashMap::new();
    if memtable.has_range_tombstones() {
        let tombstones = memtable.range_tombstones();
        for (_, table) in version.tables().filter(|(_, table)| !is_hidden(table, &tombstones, visible)) {
            let inside = tombstones.clipped(&table.meta.range);
            let bytes = inside.fragments().map(|f| table.table.bytes_between(&f.start, &f.end)).sum();
            hidden.insert(table.file, bytes);
        }
    }
    if memtable.removals() > 0 {
        let mut scan = memtable.scan();
        while let Some(entry) = scan.next() {
            if entry.kind.is_live() {
                continue;
            }
            for run in version.runs() {
                if let Some(at) = run.find(entry.key) {
                    let table = &run.tables()[at];
                    let of_entry = table.meta.file_bytes / table.meta.counts.entries.max(1);
                    *hidden.entry(table.file).or_default() += of_entry;
                }
            }
        }
    }
    let of = |file| hidden.get(&file).copied().unwrap_or_default();
    version.tables().map(|(_, t)| Hidden { bytes: t.meta.file_bytes, hidden: of(t.file) }).collect()
}

/// Returns how long the database has to be idle before `upper` bytes are compacted with a base.
fn idle_pause(upper: u64, base: u64, memtable_bytes: u64) -> Duration {
    let is_little = upper < memtable_bytes / 2 && upper.saturating_mul(LITTLE_PART) < base;
    if is_little { time_of(base, IDLE_BYTES_PER_SECOND) } else { Duration::ZERO }
}

/// Returns the bytes above the base, plus those that their tombstones free.
fn upper_bytes(version: &Version) -> u64 {
    let Some(base) = version.base() else { return u64::MAX };
    let entries: u64 = base.tables().iter().map(|table| table.meta.counts.entries).sum();
    let entry_bytes = base.bytes() / entries.max(1);
    let upper = version.runs().iter().filter(|run| run.level != Level::BASE);
    let tables = upper.flat_map(|run| run.tables());
    let weights = tables.map(|table| match table.meta.counts.range_tombstones {
        0 => table.meta.file_bytes + table.meta.counts.tombstones.saturating_mul(entry_bytes),
        _ => u64::MAX,
    });
    weights.fold(0, u64::saturating_add)
}

impl Upkeep {
    /// Returns whether an idle database compacts small runs with a large base. Always true beyond
    /// the cache, where tiers keep the base apart, and without threads, because then the idle time is
    /// unknown.
    pub(in crate::engine) fn idle_compaction_is_due(&self, version: &Version) -> bool {
        if !self.options.has_threads() || !self.limits_when_idle().fits_cache {
            return true;
        }
        let base = version.base().map_or(0, |run| run.bytes());
        let pause = idle_pause(upper_bytes(version), base, self.options.memtable_bytes as u64);
        self.idle.idle_for() >= pause
    }

    /// Returns why an idle database flushes the active memtable, if it does. For the holder of the compaction
    /// turn.
    pub(in crate::engine) fn idle_flush_reason(&self, lost_ns: u64) -> Option<FlushReason> {
        let view = self.view.get();
        // Sealed memtables are flushed anyway.
        if !view.immutables.is_empty() {
            return None;
        }
        let (version, memtable) = (view.version.clone(), view.active.clone());
        drop(view);
        let one_run = |run: &Run| run.bytes() + 2 * memtable.bytes_used() as u64;
        let one_run_ns = match version.runs() {
            // While idle, compaction costs a quarter.
            [run] => Some(compaction_ns(one_run(run)) / u128::from(IDLE_DISCOUNT)),
            _ => None,
        };
        let idle = Moment::Idle {
            idle_for: self.idle.idle_for(),
            table_bytes: version.runs().iter().map(|run| run.bytes()).sum(),
            lost_ns,
            one_run_ns,
            freed_bytes: &|| self.freed_bytes(&version, &memtable),
        };
        flush_reason(self.memtable_facts(&memtable), idle)
    }

    /// Returns the bytes of tables that a flush of the memtable frees. Returns zero if it was called since
    /// the last commit.
    fn freed_bytes(&self, version: &Version, memtable: &Memtable) -> u64 {
        let visible = self.published.visible();
        let looked_at = self.idle.looked_at.swap(visible.get(), Ordering::Relaxed);
        if looked_at == visible.get() || !memtable.has_range_tombstones() && memtable.removals() == 0 {
            return 0;
        }
        freed_bytes(hidden(version, memtable, visible).into_iter())
    }

    /// Returns the facts about a memtable that the policy needs.
    pub(in crate::engine) fn memtable_facts(&self, memtable: &Memtable) -> MemtableFacts {
        MemtableFacts {
            bytes: memtable.bytes_used() as u64,
            content_bytes: memtable.content_bytes() as u64,
            is_empty: memtable.is_empty(),
            bytes_max: self.options.memtable_bytes as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `64:60 8:0`: for each table its MiB and how many of them are hidden.
    fn freed(tables: &str) -> f64 {
        let parse = |word: &str| {
            let (bytes, hidden) = word.split_once(':').unwrap();
            let [bytes, hidden] = [bytes, hidden].map(|mib| (mib.parse::<f64>().unwrap() * 1048576.0) as u64);
            Hidden { bytes, hidden }
        };
        freed_bytes(tables.split_whitespace().map(parse)) as f64 / 1048576.0
    }

    #[test]
    fn small_runs_are_compacted_with_a_large_base_after_a_long_pause() {
        for (upper_mib, base_mib, secs) in
            [(4, 320, 20), (4, 25, 1), (4, 24, 0), (31, 640, 40), (32, 640, 0), (4, 0, 0), (200, 320, 0)]
        {
            let pause = idle_pause(upper_mib << 20, base_mib << 20, 64 << 20);
            assert_eq!(pause.as_secs(), secs, "{upper_mib} and {base_mib} MiB");
        }
    }

    #[test]
    fn a_flush_frees_what_it_hides_of_tables_that_it_hides_enough_of() {
        for (tables, expected) in [
            ("", 0.0),
            ("64:0 64:0", 0.0),
            ("64:60 8:0", 60.0),
            ("64:8 64:0", 8.0),
            ("64:7.9 64:7.9", 0.0),
            ("0.5:0.5 0.5:0.5", 1.0),
            // Counted more than once, in several runs.
            ("1:99", 1.0),
            ("4:4 64:1", 4.0),
        ] {
            assert_eq!(freed(tables), expected, "{tables}");
        }
    }
}
