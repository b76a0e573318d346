//! What the machine allows, as lines in the charts of other suites: taken from the suite `limits` of the same report.
//!
//! ```text
//! commits that each sync     commits x one fdatasync of 4 KiB into a preallocated file
//! reads by one thread        reads x one dependent cache miss
//! bytes written in order     the rate of sequential O_DIRECT writes
//! ```
//!
//! A limit is drawn only where the row cannot pass it: rows whose commits share syncs have none.

use esker_bench_api::results::Unit;

use crate::report::summary::{RowSummary, Summary};

/// The machine's figures that lines are drawn from.
#[derive(Default)]
pub(super) struct Limits {
    sync_s: Option<f64>,
    miss_s: Option<f64>,
    write_rate: Option<f64>,
}

impl Limits {
    /// Of the suite `limits`, if it is there.
    pub(super) fn find(summaries: &[Summary]) -> Self {
        let Some(limits) = summaries.iter().find(|summary| summary.suite == "limits") else {
            return Self::default();
        };
        let value = |name: &str| {
            let row = limits.rows.iter().find(|row| row.name == name)?;
            Some(row.cells.first()?.value()?.median)
        };
        Self {
            sync_s: value("fdatasync, append 4 KiB, preallocated file"),
            miss_s: value("dependent cache miss"),
            write_rate: value("sequential write, O_DIRECT"),
        }
    }

    /// The limit of a row, in the row's unit, and what it is.
    pub(super) fn of(&self, row: &RowSummary) -> Option<(f64, &'static str)> {
        let single = row.cells.iter().filter_map(|cell| cell.value()?.syncs_per_commit);
        let each_commit_syncs = row.commits > 0 && single.fold(f64::INFINITY, f64::min) >= 1.0;
        let has_syncs =
            row.cells.iter().any(|cell| cell.value().is_some_and(|value| value.syncs_per_commit.is_some()));
        if each_commit_syncs && has_syncs {
            let seconds = self.sync_s? * row.commits as f64;
            return match row.unit {
                Unit::Seconds if row.commits > 1 => Some((seconds, "fdatasync alone")),
                Unit::OpsPerSecond => Some((row.ops as f64 / seconds, "fdatasync alone")),
                _ => None,
            };
        }
        match row.unit {
            Unit::BytesPerSecond if row.name.contains("write") => Some((self.write_rate?, "the device")),
            Unit::Seconds if row.name == "random reads" => {
                Some((self.miss_s? * row.ops as f64, "one cache miss each"))
            }
            _ => None,
        }
    }
}
