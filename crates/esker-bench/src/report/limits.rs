//! What the machine does without an engine, as lines in the charts of other suites: taken from the suite `limits` of the same report.
//!
//! ```text
//! commits that each sync     commits x one fdatasync (200 B or 4 KiB, preallocated), and the bytes themselves where they do not compress
//! records that each sync     sequential O_DIRECT writes          records that do not    memcpy
//! a table read from disk     the faster of both sequential reads
//! reads by n threads         reads x one dependent cache miss / as many threads as there are cores
//! ```
//!
//! LM1. A limit is drawn only where the row does that work at least: rows whose commits share syncs have none, nor have compressed bytes.
//! LM2. All counts of a limit are of one record.
//! LM3. It is a median (of syncs) or a mean of a process of its own at another time, and drawn under that name: a row may lie a little beyond it.
//! LM4. It is drawn for suites of the same machine alone, as far as descriptions tell machines apart.

use std::collections::BTreeMap;

use esker_bench_api::results::Unit;

use crate::report::runs::Runs;
use crate::report::summary::{RowSummary, Summary};

/// Bytes up to which a commit is held against the sync of a small append.
const SMALL_BYTES: u64 = 200;
/// Suites whose keys and values are random bytes, all of which a synced row has to write.
const RANDOM_BYTES: [&str; 2] = ["redb", "badger"];

/// The machine's figures that lines are drawn from.
#[derive(Default)]
pub(super) struct Limits {
    /// Suites that ran on the machine of the suite `limits`, with the cores of theirs (LM4).
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
    /// Of the suite `limits`, if it is there.
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
        let reads = ["sequential read, buffered", "sequential read, O_DIRECT"].map(value);
        Self {
            cores: cores.map(|suite| (suite.to_owned(), runs.cores(suite).max(1) as f64)).collect(),
            is_known: true,
            sync_small_s: value("fdatasync, append 200 B, preallocated file"),
            sync_page_s: value("fdatasync, append 4 KiB, preallocated file"),
            write_rate: value("sequential write, O_DIRECT"),
            read_rate: reads.into_iter().flatten().reduce(f64::max),
            copy_rate: value("memcpy"),
            miss_s: value("dependent cache miss"),
        }
    }

    /// Whether any line can be drawn.
    pub(super) fn are_known(&self) -> bool {
        self.is_known
    }

    /// The limit of a row of a suite, in the row's unit, and what it is.
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
            ("records", Unit::BytesPerSecond) => self.records(row),
            _ => None,
        }
    }

    /// Seconds that the device needs for the commits of a row.
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
            // A note says that the page cache could not be dropped.
            "table read"
                if row
                    .cells
                    .iter()
                    .filter_map(|cell| cell.value())
                    .all(|value| value.last().note.is_empty()) =>
            {
                Some((self.read_rate?, "the device"))
            }
            _ => None,
        }
    }
}

/// LM1: as far as was traced, every engine syncs at least once for each commit.
fn each_commit_syncs(row: &RowSummary) -> bool {
    let syncs = || row.cells.iter().filter_map(|cell| cell.value()?.syncs_per_commit);
    row.commits > 0 && syncs().next().is_some() && syncs().all(|syncs| syncs >= 1.0)
}

/// Threads of a row of reads.
fn redb_readers(row: &str) -> Option<f64> {
    let rest = row.strip_prefix("random ")?;
    match rest {
        "reads" | "range reads" => Some(1.0),
        _ => rest.strip_prefix("reads (")?.strip_suffix(" threads)")?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tests::context;
    use crate::report::summary::tests::record;
    use esker_bench_api::results::{Better, Record};

    fn of_machine(row: &str, unit: Unit, value: f64) -> Record {
        Record { suite: "limits".to_owned(), unit, ..record("machine", row, 1, Some(value)) }
    }

    fn limits() -> Limits {
        let records = [
            of_machine("fdatasync, append 200 B, preallocated file", Unit::Seconds, 1e-3),
            of_machine("fdatasync, append 4 KiB, preallocated file", Unit::Seconds, 2e-3),
            of_machine("sequential write, O_DIRECT", Unit::BytesPerSecond, 1e8),
            of_machine("sequential read, buffered", Unit::BytesPerSecond, 3e8),
            of_machine("sequential read, O_DIRECT", Unit::BytesPerSecond, 2e8),
            of_machine("memcpy", Unit::BytesPerSecond, 1e10),
            of_machine("dependent cache miss", Unit::Seconds, 1e-7),
        ];
        with_suites(&records, &["redb", "records", "storage-bench"])
    }

    /// Limits of these records for suites of the same machine, which has two cores.
    fn with_suites(records: &[Record], suites: &[&str]) -> Limits {
        let others =
            suites.iter().map(|suite| Record { suite: (*suite).to_owned(), ..record("esker", "r", 1, None) });
        let records: Vec<Record> = records.iter().cloned().chain(others).collect();
        let mut context = context("", Vec::new());
        context.machine.cores = 2;
        context.note_suites(&records);
        Limits::find(&Summary::all(&records), &Runs::new(vec![context]))
    }

    fn limit(limits: &Limits, record: Record) -> Option<(f64, &'static str)> {
        let summary = Summary::new(&[record]);
        limits.of(&summary.suite, &summary.rows[0])
    }

    fn close(found: Option<(f64, &'static str)>, value: f64, what: &str) {
        let (found, found_what) = found.unwrap();
        assert!((found / value - 1.0).abs() < 1e-9 && found_what == what, "{found} {found_what}");
    }

    #[test]
    fn a_row_has_the_limit_of_what_it_does() {
        let limits = limits();
        assert!(limits.are_known() && !Limits::default().are_known());
        let synced = |commits, user_written_bytes, name: &str| Record {
            commits,
            user_written_bytes,
            ..record("esker", name, 1, Some(9.0))
        };
        close(limit(&limits, synced(1000, 174_000, "individual writes")), 1.0, "median fdatasync");
        close(limit(&limits, synced(100, 17_400_000, "batch writes")), 0.2, "median fdatasync");
        close(limit(&limits, synced(1, 174_000_000, "bulk load")), 1.74, "writing the bytes once");
        assert_eq!(limit(&limits, synced(1, 100, "bulk load")), None, "a single sync says nothing");
        let reads = |name: &str| Record { ops: 1000, ..record("esker", name, 1, Some(9.0)) };
        close(limit(&limits, reads("random reads")), 1e-4, "one cache miss each");
        close(limit(&limits, reads("random reads (32 threads)")), 5e-5, "one cache miss each");
        let rate = |name: &str| Record {
            suite: "records".to_owned(),
            unit: Unit::BytesPerSecond,
            better: Better::Higher,
            ..record("esker", name, 1, Some(1e6))
        };
        close(limit(&limits, rate("table read")), 3e8, "the device");
        close(limit(&limits, rate("record write (1 KB, plain)")), 1e10, "memcpy");
        close(limit(&limits, rate("record write (1 KB, plain + sync per record)")), 1e8, "the device");
        assert_eq!(limit(&limits, rate("record write (1 KB, zstd)")), None, "LM1");
        let warm = Record { note: "the page cache could not be dropped".to_owned(), ..rate("table read") };
        assert_eq!(limit(&limits, warm), None, "LM1");
    }

    #[test]
    fn lm4_another_machine_has_no_limit() {
        let records = [
            of_machine("dependent cache miss", Unit::Seconds, 1e-7),
            record("esker", "random reads", 1, Some(9.0)),
        ];
        let limit_on = |cpu: &str| {
            let [mut here, mut there] = [context("", Vec::new()), context("", Vec::new())];
            here.note_suites(&records[..1]);
            there.note_suites(&records[1..]);
            there.machine.cpu = cpu.to_owned();
            let cpu = here.machine.cpu.clone();
            let limits = Limits::find(&Summary::all(&records), &Runs::new(vec![here, there]));
            (limit(&limits, records[1].clone()), cpu)
        };
        let (elsewhere, here) = limit_on("another");
        assert_eq!(elsewhere, None);
        close(limit_on(&here).0, 1e-6, "one cache miss each");
    }

    #[test]
    fn lm1_commits_that_share_syncs_have_no_limit() {
        let shared =
            Record { commits: 1000, syncs_per_commit: Some(0.2), ..record("esker", "w", 1, Some(1.0)) };
        assert_eq!(limit(&limits(), shared), None);
    }

    #[test]
    fn lm2_a_rate_is_limited_by_counts_of_one_record() {
        let with = |engine: &str, value: Option<f64>, ops, commits| Record {
            suite: "storage-bench".to_owned(),
            unit: Unit::OpsPerSecond,
            better: Better::Higher,
            ops,
            commits,
            user_written_bytes: 520 * commits,
            ..record(engine, "G sync", 1, value)
        };
        let summary = Summary::new(&[with("esker", Some(1.0), 1000, 950), with("lmdb", None, 1, 1)]);
        close(limits().of(&summary.suite, &summary.rows[0]), 1000.0 / (950.0 * 2e-3), "median fdatasync");
    }
}
