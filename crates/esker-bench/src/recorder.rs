//! A suite's side of a row: measures the work, turns failures into rows, and tells the runner.
//!
//!   suite --row(name, work)--> Recorder --measure--> Record --Message line on stdout--> runner
//!
//! A row is held back until the next begins, so that the untimed checks that follow it can still fail it.
//!
//! C1. Rows are recorded in the order in which the suite lists them, each once.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::measure::{disk_bytes, measure};
use crate::suites::Row;
use crate::syncs;
use esker_bench_api::Failure;
use esker_bench_api::results::{Message, Record, Usage};

/// How a row's time was taken.
pub(crate) enum Outcome {
    /// By the recorder: from the start of the work to its end.
    Measured,
    /// By the work itself, which had to prepare something first (threads).
    Seconds(f64),
}

/// See the module.
pub(crate) struct Recorder {
    rows: std::vec::IntoIter<Row>,
    /// What all records of this run share.
    blank: Record,
    dir: PathBuf,
    pending: Option<Record>,
    out: Box<dyn Write>,
    /// Whether this process runs under a tracer that looks for marks.
    traced: bool,
}

impl Recorder {
    pub(crate) fn new(rows: Vec<Row>, blank: Record, dir: &Path, out: Box<dyn Write>, traced: bool) -> Self {
        Self { rows: rows.into_iter(), blank, dir: dir.to_path_buf(), pending: None, out, traced }
    }

    /// The directory for the engine's files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Measures `work` as the row `name`. A wrong answer or a missing feature becomes the row's error; only a failure
    /// that ends the run is returned.
    pub(crate) fn row(
        &mut self,
        name: &str,
        mut work: impl FnMut() -> Result<Outcome, Failure>,
    ) -> Result<(), Failure> {
        self.row_of_passes(name, 1, &mut work)
    }

    /// Measures `work` so many times; the row's value is the median of the passes.
    pub(crate) fn row_of_passes(
        &mut self,
        name: &str,
        passes: usize,
        mut work: impl FnMut() -> Result<Outcome, Failure>,
    ) -> Result<(), Failure> {
        let mut record = self.begin(name)?;
        let mut times = Vec::new();
        let mut failure = None;
        for _ in 0..passes {
            self.mark(syncs::BEGIN, name);
            let measured = measure(&self.dir, &mut work);
            self.mark(syncs::END, name);
            record.usage = combine(record.usage, measured.usage);
            match measured.result {
                Ok(Outcome::Measured) => times.push(measured.seconds),
                Ok(Outcome::Seconds(seconds)) => times.push(seconds),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match &failure {
            Some(error) => record.error = Some(error.to_string()),
            None => record.value = Some(median(&times)),
        }
        record.passes = if passes > 1 { times } else { Vec::new() };
        self.pending = Some(record);
        match failure {
            Some(failure @ Failure::Engine(_)) => {
                self.flush()?;
                Err(failure)
            }
            _ => Ok(()),
        }
    }

    /// Records the bytes on disk as the row `name`.
    pub(crate) fn size_row(&mut self, name: &str) -> Result<(), Failure> {
        let mut record = self.begin(name)?;
        let disk = disk_bytes(&self.dir);
        record.usage.disk_bytes = disk.lengths;
        record.usage.disk_allocated_bytes = disk.allocated;
        record.value = Some(disk.lengths as f64);
        self.pending = Some(record);
        Ok(())
    }

    /// Runs an untimed check; a wrong answer fails the row before it.
    pub(crate) fn check<T>(&mut self, check: impl FnOnce() -> Result<T, Failure>) -> Result<(), Failure> {
        match (check(), &mut self.pending) {
            (Ok(_), _) => Ok(()),
            (Err(wrong @ Failure::Wrong(_)), Some(record)) => {
                record.value = None;
                record.error.get_or_insert_with(|| wrong.to_string());
                Ok(())
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Tells the runner that all rows have been recorded.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        assert_eq!(self.rows.next().map(|row| row.name), None, "C1");
        self.send(&Message::Done)
    }

    fn begin(&mut self, name: &str) -> Result<Record, Failure> {
        self.flush()?;
        let row = self.rows.next();
        let row =
            row.filter(|row| row.name == name).unwrap_or_else(|| panic!("C1: not the time for row {name}"));
        self.send(&Message::Begin(name.to_owned()))?;
        Ok(Record {
            row: row.name.to_owned(),
            unit: row.unit,
            better: row.better,
            ops: row.ops,
            ..self.blank.clone()
        })
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.pending.take().map_or(Ok(()), |record| self.send(&Message::Row(Box::new(record))))
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let line = serde_json::to_string(message).map_err(Failure::engine)?;
        writeln!(self.out, "{line}").and_then(|()| self.out.flush()).map_err(Failure::engine)
    }

    fn mark(&self, mark: &str, name: &str) {
        if self.traced {
            syncs::mark(mark, name);
        }
    }
}

/// Sums what adds up and keeps the highest or latest of the rest.
fn combine(a: Usage, b: Usage) -> Usage {
    Usage {
        peak_rss_bytes: a.peak_rss_bytes.max(b.peak_rss_bytes),
        written_bytes: a.written_bytes + b.written_bytes,
        read_bytes: a.read_bytes + b.read_bytes,
        cpu_s: a.cpu_s + b.cpu_s,
        ..b
    }
}

/// The middle value; of an even number, the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "the median of nothing");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}
