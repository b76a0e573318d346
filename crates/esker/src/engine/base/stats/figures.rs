//! The figures of [`Stats`] as a list, for programs that export or print all of them.

use std::fmt;
use std::time::Duration;

use super::Stats;
use crate::types::SeqNo;
use crate::types::latency::Latency;

/// One figure of [`Stats`]. [`Stats::each`] visits all of them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figure {
    /// The name of the field or of the method.
    pub name: &'static str,
    /// What the figure is about, for people: `data`, `log`.
    pub group: &'static str,
    /// Whether it only grows.
    pub kind: FigureKind,
    /// One sentence, without a line break.
    pub help: &'static str,
    /// The value.
    pub value: FigureValue,
}

/// Whether a figure only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// A level, which rises and falls.
    Gauge,
    /// A sum since the database was opened, which has a rate.
    Counter,
}

/// A value, by its unit. `None`: there is no value now.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FigureValue {
    /// A number of things.
    Count(u64),
    /// A number of bytes.
    Bytes(u64),
    /// A commit.
    SeqNo(Option<SeqNo>),
    /// A time.
    Time(Option<Duration>),
    /// A quotient.
    Ratio(Option<f64>),
    /// The quantiles of many times.
    Latency(Latency),
    /// A text.
    Text(Option<String>),
}

impl FigureValue {
    /// The value as a number, times in seconds. `None` if there is none now, and for latencies and texts.
    pub fn number(&self) -> Option<f64> {
        match self {
            Count(n) | Bytes(n) => Some(*n as f64),
            FigureValue::SeqNo(seqno) => seqno.map(|seqno| seqno.get() as f64),
            Time(time) => time.map(|time| time.as_secs_f64()),
            Ratio(ratio) => *ratio,
            FigureValue::Latency(_) | Text(_) => None,
        }
    }
}

/// Times are in seconds. A value that there is not is an empty text.
impl fmt::Display for FigureValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count(n) | Bytes(n) => n.fmt(f),
            FigureValue::SeqNo(Some(seqno)) => seqno.fmt(f),
            Text(Some(text)) => f.write_str(text),
            FigureValue::Latency(latency) => {
                for (quantile, time) in latency.quantiles() {
                    write!(f, "p{}={},", quantile * 100.0, time.as_secs_f64())?;
                }
                write!(f, "max={}", latency.max.as_secs_f64())
            }
            other => other.number().map_or(Ok(()), |number| number.fmt(f)),
        }
    }
}

use FigureKind::{Counter, Gauge};
use FigureValue::{Bytes, Count, Ratio, Text, Time};

/// Name, kind, value, help.
type Row = (&'static str, FigureKind, fn(&Stats) -> FigureValue, &'static str);

/// All figures, by group.
const GROUPS: [(&str, &[Row]); 8] = [
    ("data", DATA),
    ("operations", OPERATIONS),
    ("memory", MEMORY),
    ("log", LOG),
    ("flushes and compactions", UPKEEP),
    ("readers", READERS),
    ("failures", FAILURES),
    ("opening", OPENING),
];

const DATA: &[Row] = &[
    ("items", Gauge, |s| Count(s.items), "Live items of all keyspaces."),
    ("unresolved", Gauge, |s| Count(s.unresolved), "Writes whose commit did not check for the key."),
    ("keyspaces", Gauge, |s| Count(s.keyspaces), "Keyspaces."),
    ("seqno", Counter, |s| Count(s.seqno.get()), "The newest visible commit."),
    ("tables", Gauge, |s| Count(s.tables), "Tables."),
    ("table_bytes", Gauge, |s| Bytes(s.table_bytes), "Bytes of all tables on disk."),
    ("runs", Gauge, |s| Count(s.runs), "Sorted runs."),
    ("tier_runs", Gauge, |s| Count(s.tier_runs), "Sorted runs between the newest ones and the base."),
    ("base_bytes", Gauge, |s| Bytes(s.base_bytes), "Bytes of the tables of the base run."),
    ("blob_files", Gauge, |s| Count(s.blob_files), "Blob files."),
    ("blob_bytes", Gauge, |s| Bytes(s.blob_bytes), "Bytes of blob files."),
    ("blob_live_bytes", Gauge, |s| Bytes(s.blob_live_bytes), "Bytes of values that tables refer to."),
    (
        "space_amplification",
        Gauge,
        |s| Ratio(s.space_amplification()),
        "Bytes of tables and blob files for each live byte.",
    ),
];

const OPERATIONS: &[Row] = &[
    ("gets", Counter, |s| Count(s.gets), "Keys looked up one at a time."),
    ("commits", Counter, |s| Count(s.commits), "Successful commits with a write."),
    ("conflicts", Counter, |s| Count(s.conflicts), "Transactions that ran again after a conflict."),
    ("committed_bytes", Counter, |s| Bytes(s.committed_bytes), "Bytes that commits wrote."),
    ("get_latency", Gauge, |s| FigureValue::Latency(s.get_latency), "How long lookups took."),
    ("commit_latency", Gauge, |s| FigureValue::Latency(s.commit_latency), "How long commits took."),
    ("sync_latency", Gauge, |s| FigureValue::Latency(s.sync_latency), "How long syncs of the log took."),
    ("stalls", Counter, |s| Count(s.stalls), "Waits of writers for a flush or a compaction."),
    ("stall_time", Counter, |s| Time(Some(s.stall_time)), "Total duration of these waits."),
    ("writers_waiting", Gauge, |s| Count(s.writers_waiting), "Writers that wait for a flush."),
];

const MEMORY: &[Row] = &[
    ("memtable_bytes", Gauge, |s| Bytes(s.memtable_bytes), "Bytes in memtables."),
    ("memtables_sealed", Gauge, |s| Count(s.memtables_sealed), "Memtables that wait for their flush."),
    (
        "cache_bytes",
        Gauge,
        |s| Bytes(s.cache_bytes.total()),
        "Bytes of cached blocks, indexes and filters of tables.",
    ),
    (
        "index_and_filter_bytes",
        Gauge,
        |s| Bytes(s.cache_bytes.indexes_and_filters),
        "Bytes of cached indexes and filters of tables.",
    ),
    ("cache_hits", Counter, |s| Count(s.cache_hits), "Blocks found in the cache."),
    ("cache_misses", Counter, |s| Count(s.cache_misses), "Reads of blocks that were not in the cache."),
    (
        "cache_hit_ratio",
        Gauge,
        |s| Ratio(s.cache_hit_ratio()),
        "Share of wanted blocks that were in the cache.",
    ),
];

const LOG: &[Row] = &[
    ("log_bytes", Gauge, |s| Bytes(s.log_bytes), "Bytes of the log that the next opening would read."),
    ("log_bytes_written", Counter, |s| Bytes(s.log_bytes_written), "Bytes written to the log."),
    ("log_files_recycled", Counter, |s| Count(s.log_files_recycled), "Files of the log kept for reuse."),
];

const UPKEEP: &[Row] = &[
    ("flushes", Counter, |s| Count(s.flushes), "Finished flushes."),
    ("flush_bytes_written", Counter, |s| Bytes(s.flush_bytes_written), "Bytes that flushes wrote."),
    ("adoptions", Counter, |s| Count(s.adoptions), "Large transactions adopted as tables."),
    ("blob_bytes_written", Counter, |s| Bytes(s.blob_bytes_written), "Bytes of values in blob files."),
    ("collections", Counter, |s| Count(s.collections), "Blob files removed by garbage collection."),
    (
        "collection_bytes_written",
        Counter,
        |s| Bytes(s.collection_bytes_written),
        "Bytes of values that garbage collection copied.",
    ),
    ("compactions", Counter, |s| Count(s.compactions), "Finished compactions."),
    ("moves", Counter, |s| Count(s.moves), "Compactions that only moved tables to a lower run."),
    ("tables_dropped", Counter, |s| Count(s.tables_dropped), "Tables removed unread."),
    ("expiring", Gauge, |s| Count(s.expiring), "Versions of keys with an expiry."),
    ("swept_keys", Counter, |s| Count(s.swept_keys), "Expired keys that were removed."),
    ("compaction_bytes_read", Counter, |s| Bytes(s.compaction_bytes_read), "Bytes that compactions read."),
    (
        "compaction_bytes_written",
        Counter,
        |s| Bytes(s.compaction_bytes_written),
        "Bytes that compactions wrote.",
    ),
    (
        "pending_compaction_bytes",
        Gauge,
        |s| Bytes(s.pending_compaction_bytes),
        "Bytes to compact until writers are not throttled.",
    ),
    (
        "write_amplification",
        Gauge,
        |s| Ratio(s.write_amplification()),
        "Bytes written to the disk for each committed byte.",
    ),
];

const READERS: &[Row] = &[
    ("snapshots", Gauge, |s| Count(s.snapshots), "Open snapshots and transactions."),
    (
        "oldest_snapshot",
        Gauge,
        |s| FigureValue::SeqNo(s.oldest_snapshot.map(|oldest| oldest.seqno)),
        "The oldest commit that one of these reads at.",
    ),
    (
        "oldest_snapshot_age",
        Gauge,
        |s| Time(s.oldest_snapshot.map(|oldest| oldest.age)),
        "Time since which that commit has been kept.",
    ),
    ("iterators", Gauge, |s| Count(s.iterators), "Live iterators and cursors."),
    ("oldest_iterator", Gauge, |s| Time(s.oldest_iterator), "Age of files that only iterators keep."),
];

const FAILURES: &[Row] = &[
    ("flushes_failed", Counter, |s| Count(s.flushes_failed), "Failed flushes."),
    ("compactions_failed", Counter, |s| Count(s.compactions_failed), "Failed compactions."),
    ("tables_unreadable", Gauge, |s| Count(s.tables_unreadable), "Tables that a compaction could not read."),
    (
        "background_error",
        Gauge,
        |s| Text(s.background_error.clone()),
        "Message of the last failure of background work.",
    ),
];

const OPENING: &[Row] = &[
    ("recovered_commits", Gauge, |s| Count(s.recovered_commits), "Commits replayed by the opening."),
    (
        "recovered_torn_bytes",
        Gauge,
        |s| Bytes(s.recovered_torn_bytes),
        "Bytes of a torn log tail that the opening dropped.",
    ),
];

impl Stats {
    /// Visits all figures, group by group, always in the same order: for exporters. The examples `prometheus`
    /// and `opentelemetry` show two.
    ///
    /// ```
    /// # let db = esker::Db::in_memory()?;
    /// db.default_keyspace().put("a", "1")?;
    /// let mut text = String::new();
    /// db.stats().each(|figure| {
    ///     if let Some(number) = figure.value.number() {
    ///         text += &format!("esker_{} {number}\n", figure.name);
    ///     }
    /// });
    /// assert!(text.contains("esker_items 1\n"));
    /// # Ok::<(), esker::Error>(())
    /// ```
    pub fn each(&self, mut visit: impl FnMut(Figure)) {
        for (group, rows) in GROUPS {
            for &(name, kind, value, help) in rows {
                visit(Figure { name, group, kind, help, value: value(self) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_field_of_stats_is_a_figure() {
        let stats = Stats::default();
        let mut names = BTreeSet::new();
        stats.each(|figure| assert!(names.insert(figure.name), "{figure:?} comes twice"));
        let debug = format!("{stats:#?}");
        let fields = debug.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(':'));
        let fields: BTreeSet<_> =
            fields.map(|(name, _)| name).filter(|name| !name.starts_with(' ')).collect();
        assert!(fields.len() > 40 && fields.is_subset(&names), "{:?}", fields.difference(&names));
    }

    #[test]
    fn values_have_units() {
        let latency = Latency { samples: 9, p50: Duration::from_millis(2), ..Latency::default() };
        let shown = [
            (Count(3), "3", Some(3.0)),
            (Bytes(1 << 60), "1152921504606846976", Some((1_u64 << 60) as f64)),
            (Time(Some(Duration::from_millis(1500))), "1.5", Some(1.5)),
            (Time(None), "", None),
            (Ratio(Some(0.25)), "0.25", Some(0.25)),
            (FigureValue::SeqNo(Some(SeqNo::new(7))), "7", Some(7.0)),
            (FigureValue::Latency(latency), "p50=0.002,p99=0,p99.9=0,max=0", None),
            (Text(Some("a".into())), "a", None),
        ];
        for (value, text, number) in shown {
            assert_eq!((value.to_string(), value.number()), (text.to_owned(), number));
        }
    }
}
