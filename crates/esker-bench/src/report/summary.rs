//! Sums up the records of one suite and scale: medians, spread, the best engine, and ratios.
//!
//! - A row with an error in any run has no median: the engine did not always do the work.
//! - A ratio says how many times worse Esker is than the best other engine: the quotient of the medians,
//!   inverted for rates. Below 1 Esker is ahead, whatever the unit.
//! - A row is lost or won only if the difference exceeds the spread of both sides. With fewer than three runs
//!   on a side, it must also exceed a half.
//! - Other figures of a cell come only from runs with a value: a failed row has no figures and no curves. A
//!   number is the median over the runs, and a curve is that of one run.

use std::collections::{BTreeMap, BTreeSet};

use crate::recorder::median;
use crate::report::turns;
use esker_bench_api::results::{Better, Detail, Record, Unit};

/// The engine that ratios are about.
pub(crate) const HOME: &str = "esker";
/// Number of runs from which on their spread is trusted.
const RUNS_MIN: usize = 3;
/// Assumed error of the value of fewer runs, as a part of it. Among the 192 published pairs of row and engine
/// with three runs (suites `redb` and `int`), the slowest run took up to 1.5 times as long as the fastest in
/// 185, and up to 11 times in the others.
pub(crate) const FEW_RUNS_MARGIN: f64 = 0.5;

/// First words of the error of a row that the engine lacks a feature for. Reports show an empty cell, and
/// leave out a row or an engine with nothing else. A row without records counts as such a row: finished
/// results do not have them.
const LACKING: &str = "not supported";

/// Returns whether the error means that the engine lacks a feature for the row.
pub(crate) fn is_lacking(error: &str) -> bool {
    error.starts_with(LACKING)
}

/// Shorter drains are not shown: asking an idle engine takes milliseconds.
const DRAIN_SHOWN_MIN_S: f64 = 0.02;

/// One suite at one scale.
pub(crate) struct Summary {
    pub(crate) suite: String,
    pub(crate) scale: String,
    /// Number of runs of each engine.
    pub(crate) runs: u32,
    /// Esker, then the others by name, with versions.
    pub(crate) engines: Vec<(String, String)>,
    /// The rows, in the order in which they ran.
    pub(crate) rows: Vec<RowSummary>,
    /// What each engine used over all rows of a run.
    pub(crate) totals: Vec<Totals>,
    /// Pairs of row and engine that were not measured in turn with the others (`turns.rs`).
    pub(crate) apart: BTreeSet<(String, String)>,
    /// Whether the records have the start times of their rows.
    pub(crate) has_times: bool,
}

/// One row over all engines; `cells` is parallel to `Summary::engines`.
pub(crate) struct RowSummary {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
    /// Operations, commits and bytes handed over. All three come from one record, the last with a value.
    pub(crate) ops: u64,
    pub(crate) commits: u64,
    pub(crate) user_written_bytes: u64,
    pub(crate) cells: Vec<Cell>,
    /// Index of the best engine.
    pub(crate) best: Option<usize>,
    /// Index of the best engine other than Esker.
    pub(crate) peer: Option<usize>,
    /// How many times worse Esker is than the best other engine; below 1 it is ahead.
    pub(crate) ratio: Option<f64>,
    pub(crate) verdict: Verdict,
    /// Smallest number of runs behind a value.
    pub(crate) runs: usize,
}

/// Comparison of Esker with the best other engine in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Lost,
    /// The difference may be chance.
    Neither,
    Won,
    /// Esker, or every other engine, has no value.
    Unknown,
}

/// One row of one engine.
pub(crate) enum Cell {
    Value(Value),
    Error(String),
}

/// The runs of one row of one engine.
pub(crate) struct Value {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) runs: usize,
    pub(crate) syncs_per_commit: Option<f64>,
    /// The records of all runs, in order; at least one.
    pub(crate) records: Vec<Record>,
}

impl Value {
    /// Returns the last run.
    pub(crate) fn last(&self) -> &Record {
        self.records.last().expect("a value is of a run")
    }

    /// Returns the number and the details of the last run with latencies and series.
    pub(crate) fn detail(&self) -> Option<(u32, &Detail)> {
        let mut runs = self.records.iter().rev();
        runs.find_map(|record| Some((record.run, record.detail.as_deref()?)))
    }

    /// Returns the median of a figure over the runs that have it.
    pub(crate) fn median_of(&self, figure: impl Fn(&Record) -> Option<f64>) -> Option<f64> {
        let figures: Vec<f64> = self.records.iter().filter_map(figure).collect();
        (!figures.is_empty()).then(|| median(&figures))
    }

    /// Returns the distance between the best and the worst run as a part of the median, or `None` for a
    /// single run.
    pub(crate) fn spread(&self) -> Option<f64> {
        (self.runs > 1).then(|| if self.median > 0.0 { (self.max - self.min) / self.median } else { 0.0 })
    }

    /// Formats the spread for reports.
    pub(crate) fn spread_text(&self) -> String {
        self.spread().map_or_else(|| "-".to_owned(), |spread| format!("{:.0} %", spread * 100.0))
    }

    /// Returns how long background work went on after the row, if that is long enough to show.
    pub(crate) fn drain(&self) -> Option<f64> {
        self.median_of(|record| record.detail.as_ref()?.drain_s)
            .filter(|seconds| *seconds >= DRAIN_SHOWN_MIN_S)
    }

    /// Returns the syncs per commit, or that they were not counted. Returns `None` if the row does not
    /// commit.
    pub(crate) fn syncs_text(&self) -> Option<String> {
        match self.syncs_per_commit {
            Some(syncs) => Some(format!("{syncs:.2}")),
            None => (self.last().counts.commits > 0).then(|| "not traced".to_owned()),
        }
    }
}

/// Returns the number of operations behind the resources of a row: those of all passes. If the value is the
/// time of one operation of many, all operations with a latency count.
pub(crate) fn operations(record: &Record) -> u64 {
    let latencies = record.detail.iter().flat_map(|detail| detail.latency.values());
    let of_value = record.counts.ops * record.passes.len().max(1) as u64;
    of_value.max(latencies.map(|latency| latency.count).sum())
}

impl Cell {
    /// The value, if there is one.
    pub(crate) fn value(&self) -> Option<&Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::Error(_) => None,
        }
    }
}

/// Medians over the runs of an engine, of the rows with a value.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) peak_anon_bytes: f64,
    /// The most mapped file bytes at the end of a row.
    pub(crate) file_bytes: f64,
    /// Bytes written by the device of the database, or zero if unknown.
    pub(crate) device_written_bytes: f64,
    pub(crate) cpu_s: f64,
}

impl Summary {
    /// Returns every failure once, with the rows that it affected. A missing feature of an engine is not a
    /// failure.
    pub(crate) fn failures(&self) -> Vec<(String, Vec<&str>)> {
        let mut failures: Vec<(String, Vec<&str>)> = Vec::new();
        for row in &self.rows {
            for (cell, (engine, _)) in row.cells.iter().zip(&self.engines) {
                let Cell::Error(error) = cell else { continue };
                if is_lacking(error) {
                    continue;
                }
                let failure = format!("{engine}: {error}");
                match failures.iter_mut().find(|(known, _)| *known == failure) {
                    Some((_, rows)) => rows.push(&row.name),
                    None => failures.push((failure, vec![&row.name])),
                }
            }
        }
        failures
    }

    /// Returns one summary for each suite and scale, in the order of the records.
    pub(crate) fn all(records: &[Record]) -> Vec<Self> {
        let apart = turns::apart(records);
        let mut parts: Vec<Vec<Record>> = Vec::new();
        for record in records {
            let same = |part: &&mut Vec<Record>| {
                part.first().is_some_and(|first| first.suite == record.suite && first.scale == record.scale)
            };
            match parts.iter_mut().find(same) {
                Some(part) => part.push(record.clone()),
                None => parts.push(vec![record.clone()]),
            }
        }
        let summary = |part: &Vec<Record>| {
            let mut summary = Self::new(part);
            let ours = |record: &&&Record| record.suite == summary.suite && record.scale == summary.scale;
            let ours = apart.iter().filter(ours).map(|record| (record.row.clone(), record.engine.clone()));
            summary.apart = ours.collect();
            summary
        };
        parts.iter().map(summary).filter(|summary| !summary.rows.is_empty()).collect()
    }

    /// Returns whether the engine was measured apart from the others of this row.
    pub(crate) fn is_apart(&self, row: &RowSummary, at: usize) -> bool {
        self.apart.contains(&(row.name.clone(), self.engines[at].0.clone()))
    }

    /// Sums up records of one suite and scale.
    pub(crate) fn new(records: &[Record]) -> Self {
        let mut engines: Vec<(String, String)> = Vec::new();
        let mut row_names: Vec<&Record> = Vec::new();
        let is_there = |record: &&Record| record.error.as_deref().is_none_or(|error| !is_lacking(error));
        for record in records.iter().filter(is_there) {
            if !engines.iter().any(|(name, _)| *name == record.engine) {
                engines.push((record.engine.clone(), record.setting.version.clone()));
            }
            if !row_names.iter().any(|known| known.row == record.row) {
                row_names.push(record);
            }
        }
        engines.sort_by(|(a, _), (b, _)| (a != HOME, a).cmp(&(b != HOME, b)));
        let rows = row_names.iter().map(|known| row(known, &engines, records)).collect();
        let totals = engines.iter().map(|(engine, _)| totals(engine, records)).collect();
        Self {
            suite: records.first().map_or_else(String::new, |record| record.suite.clone()),
            scale: records.first().map_or_else(String::new, |record| record.scale.clone()),
            runs: records.iter().map(|record| record.run).max().unwrap_or(0),
            engines,
            rows,
            totals,
            apart: BTreeSet::new(),
            has_times: records
                .iter()
                .all(|record| record.value.is_none() || record.setting.started_unix_ms > 0),
        }
    }
}

fn row(known: &Record, engines: &[(String, String)], records: &[Record]) -> RowSummary {
    let cells: Vec<Cell> = engines
        .iter()
        .map(|(engine, _)| {
            cell(records.iter().filter(|record| record.row == known.row && record.engine == *engine))
        })
        .collect();
    let is_better = |a: f64, b: f64| if known.better == Better::Lower { a < b } else { a > b };
    let medians: Vec<Option<f64>> = cells.iter().map(|cell| cell.value().map(|value| value.median)).collect();
    let best_of = |wanted: &dyn Fn(usize) -> bool| {
        let mut best: Option<(usize, f64)> = None;
        for (i, median) in medians.iter().enumerate() {
            if let Some(median) = median.filter(|_| wanted(i))
                && best.is_none_or(|(_, so_far)| is_better(median, so_far))
            {
                best = Some((i, median));
            }
        }
        best
    };
    let home = engines.iter().position(|(name, _)| name == HOME);
    let home_median = home.and_then(|home| medians[home]);
    let peer = best_of(&|i| Some(i) != home);
    let ratio = home_median.zip(peer).and_then(|(ours, (_, peer))| {
        let (part, whole) = if known.better == Better::Lower { (ours, peer) } else { (peer, ours) };
        (whole > 0.0).then(|| part / whole)
    });
    let (ours, best_peer) = (home.map(|home| &cells[home]), peer.and_then(|(peer, _)| cells[peer].value()));
    let verdict = match (ours, best_peer, ratio) {
        (Some(Cell::Error(_)), Some(_), _) => Verdict::Lost,
        (Some(Cell::Value(ours)), Some(peer), Some(ratio)) => verdict(ours, peer, ratio),
        _ => Verdict::Unknown,
    };
    let of_one =
        records.iter().rfind(|record| record.row == known.row && record.value.is_some()).unwrap_or(known);
    RowSummary {
        name: known.row.clone(),
        unit: known.unit,
        better: known.better,
        ops: of_one.counts.ops,
        commits: of_one.counts.commits,
        user_written_bytes: of_one.counts.user_written_bytes,
        best: best_of(&|_| true).map(|(i, _)| i),
        peer: peer.map(|(i, _)| i),
        ratio,
        verdict,
        runs: cells.iter().filter_map(Cell::value).map(|value| value.runs).min().unwrap_or(0),
        cells,
    }
}

/// Compares the ratio with the spread of both sides.
fn verdict(ours: &Value, peer: &Value, ratio: f64) -> Verdict {
    let margin = [ours, peer].map(|value| {
        let spread = value.spread().unwrap_or(0.0);
        if value.runs < RUNS_MIN { spread.max(FEW_RUNS_MARGIN) } else { spread }
    });
    if ratio.max(1.0 / ratio) - 1.0 <= margin[0].max(margin[1]) {
        Verdict::Neither
    } else if ratio < 1.0 {
        Verdict::Won
    } else {
        Verdict::Lost
    }
}

/// Sums up the runs of one engine in a row. An error in any run makes the cell an error.
fn cell<'a>(runs: impl Iterator<Item = &'a Record>) -> Cell {
    let mut values = Vec::new();
    let (mut syncs_per_commit, mut records) = (None, Vec::new());
    for record in runs {
        match (&record.error, record.value) {
            (None, Some(value)) => values.push(value),
            (Some(error), _) => return Cell::Error(error.clone()),
            (None, None) => return Cell::Error("no value".to_owned()),
        }
        syncs_per_commit = syncs_per_commit.or(record.counts.syncs_per_commit);
        records.push(record.clone());
    }
    if records.is_empty() {
        return Cell::Error(LACKING.to_owned());
    }
    Cell::Value(Value {
        median: median(&values),
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        runs: values.len(),
        syncs_per_commit,
        records,
    })
}

fn totals(engine: &str, records: &[Record]) -> Totals {
    let mut runs: BTreeMap<u32, Totals> = BTreeMap::new();
    for record in records.iter().filter(|record| record.engine == engine && record.value.is_some()) {
        let usage = &record.usage;
        let run = runs.entry(record.run).or_default();
        run.peak_anon_bytes = run.peak_anon_bytes.max(usage.peak_anon_bytes.max(usage.rss_anon_bytes) as f64);
        run.file_bytes = run.file_bytes.max(usage.peak_file_bytes.max(usage.rss_file_bytes) as f64);
        run.device_written_bytes += usage.device_written_bytes as f64;
        run.cpu_s += usage.cpu_s;
    }
    let over_runs = |pick: fn(&Totals) -> f64| {
        let figures: Vec<f64> = runs.values().map(pick).collect();
        if figures.is_empty() { 0.0 } else { median(&figures) }
    };
    Totals {
        peak_anon_bytes: over_runs(|run| run.peak_anon_bytes),
        file_bytes: over_runs(|run| run.file_bytes),
        device_written_bytes: over_runs(|run| run.device_written_bytes),
        cpu_s: over_runs(|run| run.cpu_s),
    }
}

#[cfg(test)]
pub(crate) mod tests;
