//! Limits of the machine without an engine, drawn as lines in the charts of other suites. They come from
//! suite `limits` of the same report.
//!
//! ```text
//! commits that each sync     commits x one fdatasync (200 B or 4 KiB, preallocated); where the bytes do not
//!                            compress, also the bytes by the faster of both sequential writes
//! records that each sync     the faster of both sequential writes
//! records that do not        memcpy
//! read from an empty cache   a table, values in their order: the faster of both sequential reads
//! reads by n threads         reads x one dependent cache miss / number of cores, for keys drawn evenly
//! ```
//!
//! - A limit is drawn only if the row must do at least that work. Rows whose commits share syncs have none,
//!   and compressed bytes have none.
//! - All counts of a limit come from one record.
//! - A limit is a median (of syncs) or a mean, measured by another process at another time, and the line says
//!   so. A row may be a little better than its limit.
//! - A limit is drawn only for suites of the same machine, as far as the descriptions of machines show that.

use std::collections::BTreeMap;

use esker_bench_api::results::Unit;

use crate::report::runs::Runs;
use crate::report::summary::{RowSummary, Summary};

/// Largest commit that is compared with the sync of a small append.
const SMALL_BYTES: u64 = 200;
/// Suites whose keys and values are random bytes, so that a synced row has to write all of them.
const RANDOM_BYTES: [&str; 3] = ["redb", "badger", "large"];

/// Figures of the machine from which lines are drawn.
#[derive(Default)]
pub(super) struct Limits {
    /// Suites that ran on the machine of suite `limits`, with its number of cores.
    cores: BTreeMap<String, f64>,
    is_known: bool,
    sync_small_s: Option<f64>,
    sync_page_s: Option<f64>,
    write_rate: Option<f64>,
    read_rate: Option<f64>,
    copy_rate: Option<f64>,
    miss_s: Option<f64>,
}

impl Limits {
    /// Finds the figures of suite `limits`, if the report has it.
    pub(super) fn find(summaries: &[Summary], runs: &Runs) -> Self {
        let Some(limits) = summaries.iter().find(|summary| summary.suite == "limits") else {
            return Self::default();
        };
        let value = |name: &str| {
            let row = limits.rows.iter().find(|row| row.name == name)?;
            Some(row.cells.first()?.value()?.median).filter(|value| *value > 0.0)
        };
        let suites = summaries.iter().map(|summary| summary.suite.as_str());
        let cores = suites.filter(|suite| runs.share_a_machine(suite, &limits.suite));
        let writes = ["sequential write, buffered", "sequential write, O_DIRECT"].map(value);
        let reads = ["sequential read, buffered", "sequential read, O_DIRECT"].map(value);
        Self {
            cores: cores.map(|suite| (suite.to_owned(), runs.cores(suite).max(1) as f64)).collect(),
            is_known: true,
            sync_small_s: value("fdatasync, append 200 B, preallocated file"),
            sync_page_s: value("fdatasync, append 4 KiB, preallocated file"),
            write_rate: writes.into_iter().flatten().reduce(f64::max),
            read_rate: reads.into_iter().flatten().reduce(f64::max),
            copy_rate: value("memcpy"),
            miss_s: value("dependent cache miss"),
        }
    }

    /// Returns whether any line can be drawn.
    pub(super) fn are_known(&self) -> bool {
        self.is_known
    }

    /// Returns the limit of a row in the unit of the row, and its description.
    pub(super) fn of(&self, suite: &str, row: &RowSummary) -> Option<(f64, &'static str)> {
        let cores = *self.cores.get(suite)?;
        match (suite, row.unit) {
            (_, Unit::Seconds | Unit::OpsPerSecond) if each_commit_syncs(row) => {
                let (seconds, what) = self.commits(suite, row)?;
                let value = if row.unit == Unit::Seconds { seconds } else { row.ops as f64 / seconds };
                Some((value, what))
            }
            ("redb", Unit::Seconds) => {
                Some((self.misses(redb_readers(&row.name)?.min(cores), row.ops)?, "one cache miss each"))
            }
            ("badger", Unit::Seconds) if row.name.starts_with("random read") => {
                Some((self.misses(1.0, 1)?, "one cache miss"))
            }
            ("badger", Unit::Seconds) if row.name.starts_with("iterate with values") && is_cold(row) => {
                let bytes = value_bytes(&row.name)? * row.ops as f64;
                Some((bytes / self.read_rate?, "reading the values once"))
            }
            ("ycsb", Unit::OpsPerSecond) if row.name.starts_with("read-only") => {
                Some((1.0 / self.misses(1.0, 1)?, "one cache miss each"))
            }
            ("records", Unit::BytesPerSecond) => self.records(row),
            _ => None,
        }
    }

    /// Returns the seconds that the device needs for the commits of a row.
    fn commits(&self, suite: &str, row: &RowSummary) -> Option<(f64, &'static str)> {
        let is_small = row.user_written_bytes <= SMALL_BYTES * row.commits;
        let sync_s = self.sync_small_s.filter(|_| is_small).or(self.sync_page_s)?;
        let syncs = (sync_s * row.commits as f64, "median fdatasync");
        let random = self.write_rate.filter(|_| RANDOM_BYTES.contains(&suite));
        let bytes = random.map(|rate| (row.user_written_bytes as f64 / rate, "writing the bytes once"));
        match bytes {
            Some(bytes) if bytes.0 > syncs.0 => Some(bytes),
            _ => Some(syncs).filter(|_| row.commits > 1),
        }
    }

    fn misses(&self, threads: f64, reads: u64) -> Option<f64> {
        Some(self.miss_s? * reads as f64 / threads)
    }

    fn records(&self, row: &RowSummary) -> Option<(f64, &'static str)> {
        match row.name.as_str() {
            name if name.ends_with("sync per record)") => Some((self.write_rate?, "the device")),
            name if name.ends_with(", plain)") => Some((self.copy_rate?, "memcpy")),
            "table read" if is_cold(row) => Some((self.read_rate?, "the device")),
            _ => None,
        }
    }
}

/// Explains which rows of a suite have no line although they read or write.
pub(super) fn without(suite: &str) -> &'static str {
    match suite {
        "redb" | "int" | "large" => {
            "No line: a single sync says nothing; bytes that compress, or that need not be on the device yet, have no bound"
        }
        "storage-bench" | "churn" => {
            "No line where commits do not sync: reads are of recent items or of few, which a processor's cache may hold, and what is written need not be on the \
             device yet"
        }
        "obigstore" => {
            "No line: requests share syncs, half of each value compresses, and reads go over working sets that a cache may hold"
        }
        "ycsb" => {
            "No line where commits do not sync, except for even reads: what is written need not be on the device yet, zipfian reads may find their records in \
             the processor's cache, and 1.2 GB fit the memory, so random reads of the device bound nothing"
        }
        "badger" => {
            "No line of random reads of the device: what it reads ahead, and memory, serve a part of them; none of walks over keys, which compress"
        }
        "sizes" => {
            "No line: data in cache may fit that of the processor, and of data beyond memory engines that compress hold two thirds in it, so random reads of \
             the device bound only a third of the reads"
        }
        "keyspaces" | "open" => "No line: how much has to be read and written is each engine's own choice",
        "server" => "No line: what requests cost is the network's and the client's, too",
        "shapes" => "No line: all data is in memory, and small databases fit the processor's cache",
        "transactions" => {
            "No line: writers share syncs, and what does not sync need not be on the device yet"
        }
        "time" => {
            "No line: what is written need not be on the device yet, and what is read was written a moment before"
        }
        "records" => {
            "No line of compressed records, of flushes, which need not be on the device yet, and of databases that a processor's cache may hold"
        }
        _ => "",
    }
}

/// Returns whether the row began with an empty page cache. A note says if the cache could not be dropped.
fn is_cold(row: &RowSummary) -> bool {
    let mut values = row.cells.iter().filter_map(|cell| cell.value());
    values.all(|value| value.last().note.is_empty())
}

/// Returns the smallest size of a value, from the name of the row: `(16 KB)`.
fn value_bytes(row: &str) -> Option<f64> {
    let (number, unit) = row.rsplit_once('(')?.1.strip_suffix(')')?.split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    match unit {
        "B" => Some(number),
        "KB" => Some(number * 1e3),
        _ => None,
    }
}

/// Returns whether every engine synced at least once for each commit, as far as that was traced.
fn each_commit_syncs(row: &RowSummary) -> bool {
    let syncs = || row.cells.iter().filter_map(|cell| cell.value()?.syncs_per_commit);
    row.commits > 0 && syncs().next().is_some() && syncs().all(|syncs| syncs >= 1.0)
}

/// Returns the number of threads of a row of reads.
fn redb_readers(row: &str) -> Option<f64> {
    let rest = row.strip_prefix("random ")?;
    match rest {
        "reads" | "range reads" => Some(1.0),
        _ => rest.strip_prefix("reads (")?.strip_suffix(" threads)")?.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
