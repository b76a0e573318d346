//! The figures that the sources of the workloads published, beside ours.
//!
//! ```text
//! figures.tsv --Figure--> seed_tables: source, machine, then per row:   published  redb 3.57 s  lmdb 1.51 s
//! results.jsonl --median--------------------------------------------->  here       esker 1.32 s  lmdb 1.67 s
//!             '--elsewhere: lines below a suite's table, for engines that no package registry has
//! ```
//!
//! Figures are shown as published, without scaling to our machine or our counts. If the counts differ, the
//! time of one operation is shown beside each.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use csv::ReaderBuilder;
use esker_bench_api::results::{Record, Unit};
use serde::Deserialize;

use crate::report::units::show;

const FIGURES: &str = include_str!("figures.tsv");

/// Where figures were published.
struct Source {
    id: &'static str,
    title: &'static str,
    machine: &'static str,
    differences: &'static str,
}

const SOURCES: [Source; 4] = [
    Source {
        id: "canopydb",
        title: "canopydb's page: redb's benchmarks with canopydb added",
        machine: "Intel i9-12900H without turbo boost, 32 GB; x64 Linux",
        differences: "sled ran without transactions; reads followed the order of insertion; LMDB and RocksDB were not compacted",
    },
    Source {
        id: "obigstore",
        title: "obigstore's page",
        machine: "EC2 m1.large, 2 cores, 7.5 GB, ephemeral disk (25.8 MB/s), Ubuntu 12.04; a second machine for the load",
        differences: "a server over TCP, on LevelDB; most figures of the page are pictures and have no number to copy; \
                      the rate of the uniform inserts is 1e9 pairs in 36,825 s",
    },
    Source {
        id: "go-sstables",
        title: "go-sstables' page",
        machine: "20 threads, NVMe with 3.5 GB/s read and 2.3 GB/s write, Windows; YCSB on another machine, NVMe with 2.5 and 1.5 GB/s; 2022",
        differences: "its put latency is with a sync, ours without; its YCSB mix counts inserts, reads and updates apart, \
                      and the figure here is their sum over the time; its record writes end in the page cache",
    },
    Source {
        id: "badger-notes",
        title: "notes on Badger and BoltDB, in the badger-bench form",
        machine: "EC2 i3.large, 2 cores, 15 GB, NVMe with 94,000 reads of 4 KiB a second, Ubuntu 16.04",
        differences: "counts of scale full; 32 goroutines populated, and reads are b.RunParallel at GOMAXPROCS 128 with one read \
                      transaction for each goroutine, where ours are one writer, one reader and a transaction for each get; BoltDB \
                      wrote without a sync; walks are the warm ones where the page has several, of ours those with values begin cold; \
                      Pogreb is named there and has no figure",
    },
];

/// Engines that no package registry has, so that only their published figures exist.
const NOT_TO_BE_HAD: [&str; 2] = ["obigstore", "go-sstables"];

/// One published number.
#[derive(Debug, Deserialize)]
struct Figure {
    source: String,
    suite: String,
    row: String,
    engine: String,
    value: f64,
    unit: Unit,
    /// Number of operations in the value; 0 if the source does not state it.
    ops: u64,
}

fn figures() -> Vec<Figure> {
    let mut lines = ReaderBuilder::new();
    let lines = lines.delimiter(b'\t').comment(Some(b'#')).has_headers(false).from_reader(FIGURES.as_bytes());
    lines.into_deserialize().map(|figure| figure.expect("a test parses every line of figures.tsv")).collect()
}

/// Returns the published tables beside `records`, which ran on the machines described (`esker-bench
/// seed-tables`).
pub(crate) fn seed_tables(records: &[Record], machines: &[String]) -> String {
    let figures = figures();
    let ours = medians(records);
    let mut text = String::new();
    for source in &SOURCES {
        let _ = writeln!(text, "{}\n  published on: {}", source.title, source.machine);
        let _ = writeln!(text, "  it differs:   {}", source.differences);
        if !machines.is_empty() {
            let _ = writeln!(text, "  ours:         {}", machines.join("; "));
        }
        let mut rows: Vec<(&str, &str, Vec<&Figure>)> = Vec::new();
        for figure in figures.iter().filter(|figure| figure.source == source.id) {
            match rows.iter_mut().find(|(suite, row, _)| (*suite, *row) == (&figure.suite, &figure.row)) {
                Some((.., of_row)) => of_row.push(figure),
                None => rows.push((&figure.suite, &figure.row, vec![figure])),
            }
        }
        for (suite, row, published) in rows {
            text += &row_text(suite, row, &published, &ours);
        }
        text.push('\n');
    }
    text
}

/// Medians and operations of rows, by suite and row, then engine and scale.
type Ours = BTreeMap<(String, String), BTreeMap<(String, String), Vec<(f64, u64)>>>;

fn medians(records: &[Record]) -> Ours {
    let mut ours = Ours::new();
    for record in records {
        if let Some(value) = record.value {
            let row = ours.entry((record.suite.clone(), record.row.clone())).or_default();
            let key = (record.scale.clone(), record.engine.clone());
            row.entry(key).or_default().push((value, record.counts.ops));
        }
    }
    ours
}

fn row_text(suite: &str, row: &str, published: &[&Figure], ours: &Ours) -> String {
    let mut text = format!("\n  {suite}: {row}\n");
    let here = ours.get(&(suite.to_owned(), row.to_owned()));
    let ops_here = here.and_then(|engines| engines.values().flatten().map(|(_, ops)| *ops).next());
    let other_count = |ops: u64| ops > 0 && ops_here.is_some_and(|here| here != ops);
    text += "    published ";
    for figure in published {
        let one =
            if other_count(figure.ops) { each(figure.value, figure.unit, figure.ops) } else { String::new() };
        let _ = write!(text, "  {} {}{one}", figure.engine, show(figure.value, figure.unit));
    }
    text.push('\n');
    let mut scale_before = "";
    for ((scale, engine), values) in here.into_iter().flatten() {
        if scale != scale_before {
            let lead = if scale_before.is_empty() { "" } else { "\n" };
            let _ = write!(text, "{lead}    here ({scale})");
            scale_before = scale;
        }
        let ops = values[0].1;
        let value = crate::recorder::median(&values.iter().map(|(value, _)| *value).collect::<Vec<_>>());
        let unit = published[0].unit;
        let one =
            if published.iter().any(|f| other_count(f.ops)) { each(value, unit, ops) } else { String::new() };
        let _ = write!(text, "  {engine} {}{one}", show(value, unit));
    }
    if here.is_some() {
        text.push('\n');
    }
    text
}

/// Returns the time of one operation, in brackets, if it says more than the whole.
fn each(value: f64, unit: Unit, ops: u64) -> String {
    if unit == Unit::Seconds && ops > 1 {
        format!(" ({} each of {ops})", show(value / ops as f64, unit))
    } else {
        String::new()
    }
}

/// Returns published figures for the rows of a suite, of engines that no registry has.
pub(crate) fn elsewhere(suite: &str) -> Vec<String> {
    let figures =
        figures().into_iter().filter(|f| f.suite == suite && NOT_TO_BE_HAD.contains(&f.engine.as_str()));
    figures
        .map(|f| {
            let machine =
                SOURCES.iter().find(|source| source.id == f.source).map_or("", |source| source.machine);
            format!("{}, {}: {} (published; {machine})", f.engine, f.row, show(f.value, f.unit))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines;
    use crate::report::summary::tests::{counts, record};
    use esker_bench_api::results::Counts;

    #[test]
    fn every_line_of_the_figures_is_one() {
        for figure in figures() {
            assert!(figure.value > 0.0, "{figure:?}");
            assert!(SOURCES.iter().any(|source| source.id == figure.source), "{figure:?}");
        }
        assert!(figures().len() > 100);
    }

    #[test]
    fn an_engine_that_can_be_had_is_not_called_otherwise() {
        assert!(NOT_TO_BE_HAD.iter().all(|name| engines::find(name).is_none()));
        assert!(
            elsewhere("records")
                .iter()
                .any(|line| line.contains("get latency (100 records): 315 ns (published"))
        );
        assert!(elsewhere("redb").is_empty());
    }

    #[test]
    fn published_and_ours_stand_together_unscaled() {
        let record = |engine: &str, value: f64| Record {
            scale: "quick".to_owned(),
            counts: Counts { ops: 250_000, ..counts() },
            ..record(engine, "bulk load", 1, Some(value))
        };
        let records = [record("esker", 0.3), record("esker", 0.5), record("esker", 0.4), record("lmdb", 0.5)];
        let text = seed_tables(&records, &["this machine".to_owned()]);
        assert!(text.contains("published on: Intel i9-12900H"), "{text}");
        assert!(text.contains("lmdb 1.51 s (1.51 us each of 1000000)"), "{text}");
        assert!(text.contains("here (quick)  esker 400 ms (1.60 us each of 250000)  lmdb 500 ms"), "{text}");
        assert!(text.contains("ours:         this machine"));
        assert!(
            text.contains("b.RunParallel at GOMAXPROCS 128 with one read transaction for each"),
            "{text}"
        );
    }
}
