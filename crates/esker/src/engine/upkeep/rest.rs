//! Rest: whether an idle database flushes its memtable because of what that removes.
//!
//! ```text
//!   active memtable: removals --by table--> Hidden { bytes, hidden } --frees_much--> flush, then compaction (nobody writes)
//! ```
//!
//! rest.1. What the memtable's removals hide goes within seconds of rest: a memtable is flushed if that frees more than it writes, and
//!      [`FREED_MIN`] at the least, of tables of which at least one part in [`PART_MIN`] is hidden. Tables that are hidden as wholes go
//!      without (compaction/covered.rs).
//! rest.2. It is looked at once after each commit, and a flush leaves an empty memtable: an idle database comes to rest.
//! rest.3. Databases smaller than [`FREED_MIN`] never flush for it, nor do such whose commits remove what is in the memtable still.
//! rest.4. Little above a large base is merged with it for nobody's writing only after as long a rest as it takes to write the base at
//!      [`REST_BYTES_PER_SECOND`]. So short rests between small flushes (age.1) cost no merges of the whole.
//! rest.5. A memtable that is much of the database, and more than [`SMALL_MIN`], is flushed once nothing has been committed for [`QUIET`]: tables are
//!      read faster.

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
/// What merges of little with much may write, on average (rest.4).
const REST_BYTES_PER_SECOND: u64 = 16 << 20;
/// What is above the base is little if it is less than one part in so many of it, and than half a memtable.
const LITTLE_PART: u64 = 6;
/// Of a table such a part has to be hidden, or it costs more to write it anew than it frees.
const PART_MIN: u64 = 8;

/// A memtable of fewer bytes is read as fast as tables are (rest.5). Smaller memtables ask for less.
const SMALL_MIN: u64 = 1 << 20;
/// Tables that are so many times as large as the memtable are too much to be merged with it for this.
const TABLES_MAX: u64 = 4;
/// So long after the last commit a database rests (rest.5).
const QUIET: Duration = Duration::from_secs(1);

/// Up to which commit the memtable has been looked at (rest.2).
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Relaxed: only the holder of the compaction's turn uses it.
    looked_at: AtomicU64,
    /// For how long nothing has been committed, in milliseconds, as far as the compaction's thread knows.
    idle_ms: AtomicU64,
}

impl Rest {
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
    /// About so many of them are hidden.
    hidden: u64,
}

/// Whether a flush of a memtable of so many bytes frees enough (rest.1).
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

/// How long a rest comes before so many bytes above a base are merged with it (rest.4).
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
    /// Whether merges are due for nobody's writing, of a database that is idle (rest.4). Beyond the cache little is not merged at rest. Without threads
    /// nobody knows how long the rest has been.
    pub(in crate::engine) fn rest_pays_merges(&self, version: &Version) -> bool {
        if !self.options.has_threads() || !self.limits_at_rest().fits_cache {
            return true;
        }
        let base = version.base().map_or(0, |run| run.bytes());
        let rest = merge_rest(upper_bytes(version), base, self.options.memtable_bytes as u64);
        self.rest.idle_for() >= rest
    }

    /// Whether the active memtable is to be flushed for what it removes, of an idle database; looked at once after each commit. For the
    /// holder of the compaction's turn.
    pub(in crate::engine) fn rest_frees_space(&self) -> bool {
        let visible = self.published.visible();
        let view = self.view.get();
        // Those that are sealed are on their way.
        if self.rest.looked_at.load(Ordering::Relaxed) == visible.get() || !view.immutables.is_empty() {
            return false;
        }
        self.rest.looked_at.store(visible.get(), Ordering::Relaxed);
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

/// Whether a memtable of so many bytes is flushed at rest, above tables of so many (rest.5).
fn is_much(memtable_bytes: u64, table_bytes: u64, small_min: u64) -> bool {
    memtable_bytes >= small_min && table_bytes / TABLES_MAX <= memtable_bytes
}

impl Upkeep {
    /// Whether the active memtable is to be flushed because the database has been at rest for so long (rest.5). For the holder of the compaction's turn.
    pub(in crate::engine) fn rests_in_memtable(&self, idle_for: Duration) -> bool {
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

    /// `64:60 8:0`: tables of so many MiB, of which so many are hidden; the memtable's KiB.
    fn flushes(tables: &str, memtable_kib: u64) -> bool {
        let parse = |word: &str| {
            let (bytes, hidden) = word.split_once(':').unwrap();
            let [bytes, hidden] = [bytes, hidden].map(|mib| (mib.parse::<f64>().unwrap() * 1048576.0) as u64);
            Hidden { bytes, hidden }
        };
        frees_much(tables.split_whitespace().map(parse), memtable_kib << 10, FREED_MIN)
    }

    #[test]
    fn rest_4_little_is_merged_with_much_after_a_long_rest() {
        for (upper_mib, base_mib, secs) in
            [(4, 320, 20), (4, 25, 1), (4, 24, 0), (31, 640, 40), (32, 640, 0), (4, 0, 0), (200, 320, 0)]
        {
            let rest = merge_rest(upper_mib << 20, base_mib << 20, 64 << 20);
            assert_eq!(rest.as_secs(), secs, "rest.4: {upper_mib} and {base_mib} MiB");
        }
    }

    #[test]
    fn rest_5_much_is_flushed_and_little_is_not() {
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
                "rest.5: {memtable_kib} {tables_kib}"
            );
        }
    }

    #[test]
    fn rest_1_rest_3_a_flush_frees_more_than_it_writes_and_not_little() {
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
            assert_eq!(flushes(tables, memtable_kib), expected, "rest.1: {tables}, {memtable_kib} KiB");
        }
    }
}
