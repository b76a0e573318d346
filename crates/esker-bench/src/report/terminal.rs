//! Draws the table on the terminal: a line for each row, a column for each engine, the best value in bold,
//! and Esker's ratio.
//!
//!   Summary -> lines of text; a star marks the best where there is no bold

use std::fmt::Write as _;

use crate::published;
use crate::report::async_commits::AsyncRows;
use crate::report::details;
use crate::report::runs::Runs;
use crate::report::summary::{Cell, RowSummary, Summary, Verdict, is_lacking};
use crate::report::totals::TotalLines;
use crate::report::turns;
use crate::report::units::{seconds, show};

const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Draws the table. `styled` says whether the terminal shows colours.
pub(crate) fn table(summary: &Summary, runs: &Runs, styled: bool) -> String {
    let mut header = vec!["row".to_owned()];
    header.extend(summary.engines.iter().map(|(name, _)| name.clone()));
    header.push("ratio".to_owned());
    let mut lines = vec![header.into_iter().map(Text::plain).collect::<Vec<_>>()];
    lines.extend(summary.rows.iter().map(row));
    let rows_end = lines.len();
    let totals = TotalLines::of(summary);
    lines.extend(
        totals
            .lines
            .into_iter()
            .map(|(name, texts)| std::iter::once(name.to_owned()).chain(texts).map(Text::plain).collect()),
    );

    let columns = summary.engines.len() + 2;
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(Text::len).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let rule = widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("  ");
    let how_often = match summary.runs {
        1 => "1 run, no median".to_owned(),
        runs => format!("{runs} runs, median and spread"),
    };
    let mut out = format!("suite {}, scale {}, {how_often}\n", summary.suite, summary.scale);
    for (i, line) in lines.iter().enumerate() {
        if i == 1 || i == rows_end {
            let _infallible = writeln!(out, "{rule}");
        }
        let cells = line.iter().zip(&widths).enumerate();
        let cells: Vec<String> = cells.map(|(i, (text, width))| text.draw(*width, i == 0, styled)).collect();
        let _infallible = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    out + &notes(summary, &totals.notes, runs)
}

fn row(row: &RowSummary) -> Vec<Text> {
    let mut cells = vec![Text::plain(row.name.clone())];
    cells.extend(row.cells.iter().enumerate().map(|(i, cell)| match cell {
        Cell::Error(error) if is_lacking(error) => Text::plain("-".to_owned()),
        Cell::Error(_) => Text { style: RED, ..Text::plain("no value".to_owned()) },
        Cell::Value(value) => {
            let text = format!("{} {:>6}", show(value.median, row.unit), value.spread_text());
            if row.best == Some(i) { Text { style: BOLD, is_best: true, text } } else { Text::plain(text) }
        }
    }));
    cells.push(row.ratio.map_or_else(
        || Text::plain("-".to_owned()),
        |ratio| {
            let style = match row.verdict {
                Verdict::Won => GREEN,
                Verdict::Lost => RED,
                Verdict::Neither | Verdict::Unknown => "",
            };
            Text { style, ..Text::plain(format!("{ratio:.2}")) }
        },
    ));
    cells
}

/// Returns the lines below the table: notes on totals, rows out of turn, failures, syncs, machine, versions
/// and command.
fn notes(summary: &Summary, of_totals: &[String], runs: &Runs) -> String {
    let mut out = String::from("\n");
    let mut say = |line: String| out.push_str(&(line + "\n"));
    say("ratio: Esker to the best other engine; below 1 Esker is ahead".to_owned());
    of_totals.iter().cloned().for_each(&mut say);
    turns::apart_text(summary).into_iter().for_each(&mut say);
    for (failure, rows) in summary.failures() {
        say(format!("failed: {failure} ({})", rows.join("; ")));
    }
    drains(summary).into_iter().for_each(&mut say);
    syncs_per_commit(summary).into_iter().for_each(&mut say);
    AsyncRows::of(summary, runs).iter().map(AsyncRows::full).for_each(&mut say);
    for line in published::elsewhere(&summary.suite) {
        say(line);
    }
    let versions: Vec<String> =
        summary.engines.iter().map(|(name, version)| format!("{name} {version}")).collect();
    say(format!("engines: {}", versions.join(", ")));
    runs.lines(summary).into_iter().for_each(&mut say);
    say(format!("To repeat it: {}", details::command(summary, runs)));
    out
}

/// Returns a line for each row after which background work went on.
fn drains(summary: &Summary) -> Vec<String> {
    let line = |row: &RowSummary| {
        let cells = row.cells.iter().zip(&summary.engines);
        let drains = cells.filter_map(|(cell, (engine, _))| Some((engine, cell.value()?.drain()?)));
        let drains: Vec<_> = drains.map(|(engine, drain)| format!("{engine} {}", seconds(drain))).collect();
        (!drains.is_empty()).then(|| format!("drained behind {}: {}", row.name, drains.join(", ")))
    };
    summary.rows.iter().filter_map(line).collect()
}

/// Returns a line for each row that commits.
fn syncs_per_commit(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    let mut is_traced = false;
    for row in &summary.rows {
        let committing = row.cells.iter().zip(&summary.engines).filter_map(|(cell, (engine, _))| {
            let value = cell.value()?;
            (value.last().counts.commits > 0 || value.syncs_per_commit.is_some()).then_some((engine, value))
        });
        let syncs: Vec<String> = committing
            .map(|(engine, value)| match value.syncs_per_commit {
                Some(syncs) => {
                    is_traced = true;
                    format!("{engine} {syncs:.2}")
                }
                None => format!("{engine} not traced"),
            })
            .collect();
        if !syncs.is_empty() {
            lines.push(format!("syncs per commit, {}: {}", row.name, syncs.join(", ")));
        }
    }
    if !is_traced && !lines.is_empty() {
        return vec!["syncs per commit: not traced".to_owned()];
    }
    lines
}

struct Text {
    text: String,
    style: &'static str,
    is_best: bool,
}

impl Text {
    fn plain(text: String) -> Self {
        Self { text, style: "", is_best: false }
    }

    fn len(&self) -> usize {
        self.text.len() + usize::from(self.is_best)
    }

    fn draw(&self, width: usize, is_first: bool, styled: bool) -> String {
        let mark = if self.is_best && !styled { "*" } else { "" };
        let text = format!("{mark}{}", self.text);
        let padding = " ".repeat(width.saturating_sub(text.len()));
        let text =
            if styled && !self.style.is_empty() { format!("{}{text}{PLAIN}", self.style) } else { text };
        if is_first { text + &padding } else { padding + &text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tests::context;
    use crate::report::summary::tests::{counts, record};
    use esker_bench_api::results::{Counts, Detail, Record};

    fn runs() -> Runs {
        Runs::new(vec![context("esker-bench run redb", Vec::new())])
    }

    #[test]
    fn a_table_has_every_row_and_engine() {
        let records = [
            record("esker", "bulk load", 1, Some(0.5)),
            record("lmdb", "bulk load", 1, Some(2.0)),
            record("esker", "len()", 1, None),
            record("lmdb", "len()", 1, Some(1e-6)),
        ];
        let text = table(&Summary::new(&records), &runs(), false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "row                             esker             lmdb  ratio");
        assert_eq!(lines[3], "bulk load              *500 ms      -    2.00 s      -   0.25");
        assert_eq!(lines[4], "len()                        no value  *1.00 us      -      -");
        assert!(
            text.contains("failed: esker: it broke <here> (len())")
                && text.contains("Commit abc, begun 2026-11-22.")
        );
        let styled = table(&Summary::new(&records), &runs(), true);
        assert!(styled.contains("\x1b[1m500 ms      -\x1b[0m") && !styled.contains('*'));
    }

    #[test]
    fn rows_of_async_commits_say_what_is_known_of_them() {
        let of =
            |suite: &str, row: &str| Record { suite: suite.to_owned(), ..record("esker", row, 1, Some(1.0)) };
        let shows = |records: &[Record]| {
            table(&Summary::new(records), &runs(), false)
                .contains("\nRows of async commits (load (async)) are")
        };
        assert!(shows(&[of("ycsb", "load (async)"), of("ycsb", "load (sync)")]));
        assert!(!shows(&[of("redb", "nosync writes")]));
    }

    #[test]
    fn work_that_a_row_left_is_shown() {
        let of = |row: &str, drain_s| {
            let detail = Some(Box::new(Detail { drain_s, ..Detail::default() }));
            Record { detail, ..record("esker", row, 1, Some(1.0)) }
        };
        let records = [of("bulk load", Some(2.5)), of("reads", Some(0.001)), of("len()", None)];
        let text = table(&Summary::new(&records), &runs(), false);
        assert!(text.contains("\ndrained behind bulk load: esker 2.50 s\n"), "{text}");
        assert_eq!(text.matches("drained behind").count(), 1);
    }

    #[test]
    fn syncs_of_every_row_that_commits_are_shown() {
        let of = |row: &str, commits, syncs_per_commit| Record {
            counts: Counts { commits, syncs_per_commit, ..counts() },
            ..record("esker", row, 1, Some(1.0))
        };
        let mut records =
            vec![of("load (sync)", 60, Some(1.0)), of("G sync", 287, Some(1.02)), of("reads", 0, None)];
        let text = table(&Summary::new(&records), &runs(), false);
        assert!(
            text.contains("commit, load (sync): esker 1.00\n")
                && text.contains("commit, G sync: esker 1.02\n")
        );
        assert!(!text.contains("commit, reads"));
        records.iter_mut().for_each(|record| record.counts.syncs_per_commit = None);
        let text = table(&Summary::new(&records), &runs(), false);
        assert!(text.contains("syncs per commit: not traced\n") && !text.contains("G sync:"));
    }
}
