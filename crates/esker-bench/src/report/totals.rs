//! Sums up what each engine used over all rows of a suite: the last lines of its table.
//!
//! - An engine that lacks a row of another engine has no totals, because it did less work.
//! - Sums (processor time, bytes written) appear only if all engines with totals did the same number of
//!   operations in each row. If a row ends by time, a faster engine does more in it. Peaks are not sums and
//!   always appear.
//! - Engines are ranked by anonymous memory. Mapped file pages appear beside it: they are page cache, which
//!   engines that read their files also use, but which does not count to their processes.

use crate::report::summary::{Summary, Totals, operations};
use crate::report::units::{bytes, known_bytes, seconds};

/// Lines with a text for each engine, and notes for the reader.
pub(super) struct TotalLines {
    pub(super) lines: Vec<(&'static str, Vec<String>)>,
    pub(super) notes: Vec<String>,
}

impl TotalLines {
    pub(super) fn of(summary: &Summary) -> Self {
        let rows: Vec<_> = summary.rows.iter().filter(|row| row.runs > 0).collect();
        let is_whole = |at: &usize| rows.iter().all(|row| row.cells[*at].value().is_some());
        let (whole, lacking): (Vec<usize>, Vec<usize>) = (0..summary.engines.len()).partition(is_whole);
        let is_equal_work = rows.iter().all(|row| {
            let values = whole.iter().filter_map(|at| row.cells[*at].value());
            let mut operations = values.flat_map(|value| value.records.iter().map(operations));
            let first = operations.next();
            operations.all(|operations| Some(operations) == first)
        });
        let line = |name: &'static str, is_said: bool, text: &dyn Fn(&Totals) -> String| {
            let texts = summary.totals.iter().enumerate().map(|(at, totals)| {
                if is_said && whole.contains(&at) { text(totals) } else { "-".to_owned() }
            });
            (name, texts.collect::<Vec<_>>())
        };
        let mut notes = Vec::new();
        if !lacking.is_empty() {
            let names: Vec<&str> = lacking.iter().map(|at| summary.engines[*at].0.as_str()).collect();
            notes.push(format!("no totals of {}: they lack rows that others have", names.join(", ")));
        }
        if !is_equal_work {
            notes.push(
                "no sums of processor and bytes: rows end by time, and a faster engine does more in them"
                    .to_owned(),
            );
        }
        Self {
            lines: vec![
                line("peak anonymous memory", true, &|totals| bytes(totals.peak_anon_bytes)),
                line("mapped file pages", true, &|totals| bytes(totals.file_bytes)),
                line("written to the device", is_equal_work, &|totals| {
                    known_bytes(totals.device_written_bytes)
                }),
                line("processor, all rows", is_equal_work, &|totals| seconds(totals.cpu_s)),
            ],
            notes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::tests::{counts, record};
    use esker_bench_api::results::{Counts, Record, Usage};

    fn used(engine: &str, row: &str, ops: u64, value: Option<f64>) -> Record {
        let usage = Usage {
            peak_rss_bytes: 50 << 20,
            peak_anon_bytes: 2 << 20,
            rss_file_bytes: 3 << 20,
            device_written_bytes: 1 << 20,
            cpu_s: 1.5,
            ..Usage::default()
        };
        Record { counts: Counts { ops, ..counts() }, usage, ..record(engine, row, 1, value) }
    }

    fn column(records: &[Record], at: usize) -> (Vec<String>, Vec<String>) {
        let totals = TotalLines::of(&Summary::new(records));
        (totals.lines.into_iter().map(|(_, texts)| texts[at].clone()).collect(), totals.notes)
    }

    #[test]
    fn an_engine_without_a_row_has_no_totals_and_file_pages_stand_apart() {
        let records = [
            used("esker", "load", 10, Some(1.0)),
            used("lmdb", "load", 10, Some(1.0)),
            used("esker", "reads", 10, Some(1.0)),
            used("lmdb", "reads", 10, None),
            used("esker", "removals", 10, None),
            used("lmdb", "removals", 10, None),
        ];
        let (ours, notes) = column(&records, 0);
        assert_eq!(ours, ["2.00 MiB", "3.00 MiB", "2.00 MiB", "3.00 s"]);
        assert_eq!(column(&records, 1).0, ["-"; 4]);
        assert_eq!(notes, ["no totals of lmdb: they lack rows that others have"]);
    }

    #[test]
    fn rows_that_end_by_time_have_no_sums() {
        let mut records = [used("esker", "G", 10, Some(1.0)), used("lmdb", "G", 10, Some(1.0))];
        let (theirs, notes) = column(&records, 1);
        assert_eq!(theirs, ["2.00 MiB", "3.00 MiB", "1.00 MiB", "1.50 s"]);
        assert!(notes.is_empty(), "{notes:?}");
        records[1].counts.ops = 20;
        let (theirs, notes) = column(&records, 1);
        assert_eq!(theirs, ["2.00 MiB", "3.00 MiB", "-", "-"]);
        assert!(notes[0].contains("rows end by time"), "{notes:?}");
    }
}
