//! Idle policy: what an idle database flushes and compacts although no write asks for it.
//!
//! ```text
//!   active memtable: removals --by table--> Hidden { bytes, hidden } --frees_much--> flush, then compaction
//! ```
//!
//! idle.1. Within seconds of idleness, the memtable is flushed if that frees more bytes than it writes, and at least
//!      [`FREED_MIN`], of tables of which at least the part 1 / [`PART_MIN`] is hidden. Tables that are hidden entirely go
//!      without a flush (compaction/covered.rs).
//! idle.2. This is looked at once after each commit, and a flush leaves an empty memtable: an idle database stops working.
//! idle.3. A database smaller than [`FREED_MIN`] is never flushed for this. Nor is one whose commits remove what is still in
//!      the memtable.
//! idle.4. A few small runs above a large base are compacted with it only after a pause of base size /
//!      [`REST_BYTES_PER_SECOND`]. Short pauses between small flushes (memtable_age.1) do not rewrite the base.
//! idle.5. A memtable that is a large part of the database, and larger than [`SMALL_MIN`], is flushed once nothing has been
//!      committed for [`QUIET`]: tables are read faster.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::compaction::covered::is_hidden;
use crate::engine::upkeep::Upkeep;
use crate::engine::upkeep::pace::time_of;
use crate::manifest::version::{Level, Version};
use crate::memtable::Memtable;
use crate::types::{FileId, SeqNo};

/// What a flush has to free, in bytes; smaller memtables ask for less.
const FREED_MIN: u64 = 1 << 20;
/// Average rate at which compactions may rewrite a large base while idle (idle.4).
const REST_BYTES_PER_SECOND: u64 = 16 << 20;
/// The runs above the base are small if together they have less than the part 1 / N of it, and less than half a memtable.
const LITTLE_PART: u64 = 6;
/// At least the part 1 / N of a table has to be hidden, or rewriting it costs more than it frees.
const PART_MIN: u64 = 8;

/// A memtable of fewer bytes is read as fast as tables (idle.5). With small memtables the bound is lower.
const SMALL_MIN: u64 = 1 << 20;
/// The memtable is not flushed if the tables are more than N times as large (idle.5).
const TABLES_MAX: u64 = 4;
/// Time after the last commit (idle.5).
const QUIET: Duration = Duration::from_secs(1);

/// Up to which commit the memtable has been looked at (idle.2).
#[derive(Debug, Default)]
pub(crate) struct IdlePolicy {
    /// Relaxed: only the holder of the compaction's turn uses it.
    looked_at: AtomicU64,
    /// For how long nothing has been committed, in milliseconds, as far as the compaction's thread knows.
    idle_ms: AtomicU64,
}

impl IdlePolicy {
    /// Notes for how long nothing has been committed.
    pub(in crate::engine) fn note_idle(&self, idle_for: Duration) {
        self.idle_ms.store(idle_for.as_millis() as u64, Ordering::Relaxed);
    }

    /// For how long nothing has been committed.
    pub(in crate::engine) fn idle_for(&self) -> Duration {
        Duration::from_millis(self.idle_ms.load(Ordering::Relaxed))
    }
}

/// A table, and what the memtable hides of it.
#[derive(Clone, Copy, Debug, Default)]
struct Hidden {
    /// Bytes on disk.
    bytes: u64,
    /// About how many of them are hidden.
    hidden: u64,
}

/// Whether a flush of a memtable frees enough (idle.1).
fn frees_much(tables: impl Iterator<Item = Hidden>, memtable_bytes: u64, freed_min: u64) -> bool {
    let worth = tables.filter(|table| table.hidden.saturating_mul(PART_MIN) >= table.bytes);
    let freed: u64 = worth.map(|table| table.hidden.min(table.bytes)).sum();
    freed >= memtable_bytes.max(freed_min)
}

/// What the memtable hides of each table, a sum over its removals.
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

/// Returns how long the database has to be idle before `upper` bytes are compacted with a base (idle.4).
fn merge_rest(upper: u64, base: u64, memtable_bytes: u64) -> Duration {
    let is_little = upper < memtable_bytes / 2 && upper.saturating_mul(LITTLE_PART) < base;
    if is_little { time_of(base, REST_BYTES_PER_SECOND) } else { Duration::ZERO }
}

/// Bytes above the base, and those that their removals free.
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
    /// Whether an idle database compacts small runs with a large base (idle.4). Always true beyond the cache, where tiers keep the base apart,
    /// and without threads, since then the idle time is unknown.
    pub(in crate::engine) fn idle_compaction_is_due(&self, version: &Version) -> bool {
        if !self.options.has_threads() || !self.limits_when_idle().fits_cache {
            return true;
        }
        let base = version.base().map_or(0, |run| run.bytes());
        let rest = merge_rest(upper_bytes(version), base, self.options.memtable_bytes as u64);
        self.idle.idle_for() >= rest
    }

    /// Whether an idle database flushes the active memtable for what it removes (idle.1). Answers true once after each commit at most. For the
    /// holder of the compaction turn.
    pub(in crate::engine) fn flush_frees_space(&self) -> bool {
        let visible = self.published.visible();
        let view = self.view.get();
        // Those that are sealed are on their way.
        if self.idle.looked_at.load(Ordering::Relaxed) == visible.get() || !view.immutables.is_empty() {
            return false;
        }
        self.idle.looked_at.store(visible.get(), Ordering::Relaxed);
        let (version, memtable) = (view.version.clone(), view.active.clone());
        drop(view);
        if !memtable.has_range_tombstones() && memtable.removals() == 0 {
            return false;
        }
        let freed_min = FREED_MIN.min(self.options.memtable_bytes as u64 / 4);
        let tables = hidden(&version, &memtable, visible);
        frees_much(tables.into_iter(), memtable.content_bytes() as u64, freed_min)
    }
}

/// Whether a memtable is large enough to be flushed while idle (idle.5).
fn is_much(memtable_bytes: u64, table_bytes: u64, small_min: u64) -> bool {
    memtable_bytes >= small_min && table_bytes / TABLES_MAX <= memtable_bytes
}

impl Upkeep {
    /// Whether the active memtable is flushed because the database has been idle this long (idle.5). For the holder of the compaction turn.
    pub(in crate::engine) fn idle_memtable_is_large(&self, idle_for: Duration) -> bool {
        if idle_for < QUIET {
            return false;
        }
        let view = self.view.get();
        let table_bytes = view.version.runs().iter().map(|run| run.bytes()).sum();
        let small_min = SMALL_MIN.min(self.options.memtable_bytes as u64 / 4);
        view.immutables.is_empty() && is_much(view.active.content_bytes() as u64, table_bytes, small_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `64:60 8:0`: for each table its MiB and how many of them are hidden; then the memtable's KiB.
    fn flushes(tables: &str, memtable_kib: u64) -> bool {
        let parse = |word: &str| {
            let (bytes, hidden) = word.split_once(':').unwrap();
            let [bytes, hidden] = [bytes, hidden].map(|mib| (mib.parse::<f64>().unwrap() * 1048576.0) as u64);
            Hidden { bytes, hidden }
        };
        frees_much(tables.split_whitespace().map(parse), memtable_kib << 10, FREED_MIN)
    }

    #[test]
    fn idle_4_little_is_merged_with_much_after_a_long_rest() {
        for (upper_mib, base_mib, secs) in
            [(4, 320, 20), (4, 25, 1), (4, 24, 0), (31, 640, 40), (32, 640, 0), (4, 0, 0), (200, 320, 0)]
        {
            let rest = merge_rest(upper_mib << 20, base_mib << 20, 64 << 20);
            assert_eq!(rest.as_secs(), secs, "idle.4: {upper_mib} and {base_mib} MiB");
        }
    }

    #[test]
    fn idle_5_much_is_flushed_and_little_is_not() {
        for (memtable_kib, tables_kib, expected) in [
            (1024, 0, true),
            (1023, 0, false),
            (1024, 4096, true),
            (1024, 4200, false),
            (60_000, 200_000, true),
        ] {
            assert_eq!(
                is_much(memtable_kib << 10, tables_kib << 10, SMALL_MIN),
                expected,
                "idle.5: {memtable_kib} {tables_kib}"
            );
        }
    }

    #[test]
    fn idle_1_idle_3_a_flush_frees_more_than_it_writes_and_not_little() {
        for (tables, memtable_kib, expected) in [
            ("", 1, false),
            ("64:0 64:0", 1, false),
            ("64:60 8:0", 1, true),
            ("64:8 64:0", 1, true),
            ("64:7.9 64:7.9", 1, false),
            ("0.5:0.5", 1, false),
            ("0.5:0.5 0.5:0.5", 1, true),
            ("1:1", 1024, true),
            ("1:1", 1025, false),
            // Counted more than once: in several runs.
            ("1:99", 1025, false),
            ("4:4 64:1", 3 << 10, true),
            ("4:4 64:1", 5 << 10, false),
        ] {
            assert_eq!(flushes(tables, memtable_kib), expected, "idle.1: {tables}, {memtable_kib} KiB");
        }
    }
}
