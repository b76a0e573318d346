//! A suite's side of a row: measures the work, turns failures into rows, and tells the runner.
//!
//!   suite --row(name, work)--> Recorder --measure--> Record --Message line on stdout--> runner
//!
//! A row is told twice: as soon as it is measured, and again when the next begins, with what the wait for
//! background work added and with the verdict of the untimed checks that follow it. A row whose check does
//! not end in time keeps its value (bench_runner.5 of the runner).
//!
//! bench_recorder.1. What a check finds wrong may be the doing of any row that wrote since the last check
//!     that found all right: it voids them all. Those that were told to their end are told again.
//!
//! bench_recorder.2. Rows of a group are recorded in the order in which the suite lists them, each once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::mem;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use esker_bench_api::Failure;
use esker_bench_api::results::{Detail, Message, Record, Unit, Usage};

use crate::how_far::{self, HowFar, Out};
use crate::machine;
use crate::measure::{Peaks, Usages, disk_bytes, idle_wait_max, measure, wait_until_idle, watched};
use crate::row::Row;
use crate::scale::Scale;
use crate::syncs;

/// What a row's work says about itself; what it leaves out, the recorder takes from its own clock and from
/// the row.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The time that counts, when the work had to prepare something first (threads).
    pub(crate) seconds: Option<f64>,
    /// The value itself, when it is neither the time nor a rate over it.
    pub(crate) value: Option<f64>,
    /// Operations, when their number was not known before.
    pub(crate) ops: Option<u64>,
    /// Commits, when their number was not known before.
    pub(crate) commits: Option<u64>,
    /// Bytes of keys and values written.
    pub(crate) user_written_bytes: u64,
    /// Bytes of keys and values alive at the end.
    pub(crate) live_bytes: u64,
    /// Latencies and series.
    pub(crate) detail: Option<Box<Detail>>,
    /// What a reader has to know.
    pub(crate) note: String,
    /// Whether it wrote the data anew without a commit, as a compaction does (bench_recorder.1).
    pub(crate) rewrites: bool,
}

/// See the module.
pub(crate) struct Recorder {
    rows: std::vec::IntoIter<Row>,
    /// What all records of this run share.
    blank: Record,
    dir: PathBuf,
    pending: Option<Record>,
    /// Rows that wrote and were told to their end, since the last check that found all right
    /// (bench_recorder.1).
    unchecked: Vec<Record>,
    /// Whether the row that is pending wrote.
    pending_wrote: bool,
    /// What the next row has to say of what came before it.
    note_for_next: String,
    figures_for_next: BTreeMap<String, f64>,
    /// What had been used when a load that is no row began, until it is drained.
    load: Option<Usages>,
    out: Out,
    /// Whether this process runs under a tracer that looks for marks.
    traced: bool,
    idle_window: Duration,
    idle_wait_max: Duration,
}

impl Recorder {
    pub(crate) fn new(
        rows: Vec<Row>,
        blank: Record,
        dir: &Path,
        out: Box<dyn Write>,
        traced: bool,
        idle_window: Duration,
    ) -> Self {
        Self {
            rows: rows.into_iter(),
            blank,
            dir: dir.to_path_buf(),
            pending: None,
            unchecked: Vec::new(),
            pending_wrote: false,
            note_for_next: String::new(),
            figures_for_next: BTreeMap::new(),
            load: None,
            out: Rc::new(RefCell::new(out)),
            traced,
            idle_window,
            idle_wait_max: idle_wait_max(None),
        }
    }

    /// A step of this run may take so long before the lab ends it: background work is waited for no longer
    /// than that leaves room for.
    pub(crate) fn within(mut self, step: Option<Duration>) -> Self {
        self.idle_wait_max = idle_wait_max(step);
        self
    }

    /// The directory for the engine's files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Measures `work` as the row `name`. A wrong answer or a missing feature becomes the row's error; only a
    /// failure that ends the run is returned.
    pub(crate) fn row(
        &mut self,
        name: &str,
        mut work: impl FnMut() -> Result<Outcome, Failure>,
    ) -> Result<(), Failure> {
        self.row_of_passes(name, 1, &mut work)
    }

    /// Measures `work` `passes` times; the row's value is the median of the passes.
    pub(crate) fn row_of_passes(
        &mut self,
        name: &str,
        passes: usize,
        mut work: impl FnMut() -> Result<Outcome, Failure>,
    ) -> Result<(), Failure> {
        let mut record = self.begin(name)?;
        let mut values = Vec::new();
        let mut failure = None;
        let mut rewrites = false;
        for _ in 0..passes {
            self.mark(syncs::BEGIN, name);
            let measured = measure(&self.dir, &mut work);
            self.mark(syncs::END, name);
            record.usage = combine(record.usage, measured.usage);
            match measured.result {
                Ok(outcome) => {
                    rewrites |= outcome.rewrites;
                    values.push(take_over(&mut record, outcome, measured.seconds));
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match &failure {
            Some(error) => record.error = Some(error.to_string()),
            None => record.value = Some(median(&values)),
        }
        record.passes = if passes > 1 { values } else { Vec::new() };
        let wrote = rewrites || record.commits > 0 || record.user_written_bytes > 0;
        self.measured(record)?;
        self.pending_wrote = wrote;
        match failure {
            Some(failure @ Failure::Engine(_)) => {
                self.flush()?;
                Err(failure)
            }
            _ => Ok(()),
        }
    }

    /// Whether the last row, which makes what all later rows of the group work on, has a value. If it has
    /// none, they have nothing to show: they are recorded as not run.
    pub(crate) fn is_groundwork_there(&mut self) -> Result<bool, Failure> {
        let name = match &self.pending {
            Some(record) if record.error.is_none() => return Ok(true),
            Some(record) => record.row.clone(),
            None => String::new(),
        };
        self.cannot_rest(&format!("not run: there is no data, since the row `{name}` failed"))?;
        Ok(false)
    }

    /// Records what the files occupy on disk as the row `name`, with their lengths beside it: files may be
    /// sparse. `live_bytes` are those of the keys and values that are there.
    pub(crate) fn size_row(&mut self, name: &str, live_bytes: u64) -> Result<(), Failure> {
        let mut record = Record { live_bytes, ..self.begin(name)? };
        let disk = disk_bytes(&self.dir);
        record.usage.disk_bytes = disk.lengths;
        record.usage.disk_allocated_bytes = disk.allocated;
        record.value = Some(disk.allocated as f64);
        let figures = &mut record.detail.get_or_insert_default().figures;
        figures.insert("file length bytes".to_owned(), disk.lengths as f64);
        self.measured(record)
    }

    /// Gives the row `name` an error without trying, because the engine lacks what it needs.
    pub(crate) fn cannot(&mut self, name: &str, why: &str) -> Result<(), Failure> {
        self.row(name, || Err(Failure::Unsupported(why.to_owned())))
    }

    /// Gives the rows that have not begun an error: what the engine lacks was seen before them.
    pub(crate) fn cannot_rest(&mut self, why: &str) -> Result<(), Failure> {
        let rest: Vec<_> = self.rows.as_slice().iter().map(|row| row.name.clone()).collect();
        rest.iter().try_for_each(|row| self.cannot(row, why))
    }

    /// Progress messages of a step that makes `all` of `what`.
    pub(crate) fn how_far(&self, what: &'static str, all: u64) -> HowFar {
        HowFar::new(Rc::clone(&self.out), what, all)
    }

    /// Runs a load that is no row. What it takes stands among the figures of the next row, with what the
    /// drain behind it takes: time, and the bytes that the process wrote in both.
    pub(crate) fn load(
        &mut self,
        what: &'static str,
        all: u64,
        load: impl FnOnce(&mut HowFar) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let before = Usages::now(&self.dir);
        let start = Instant::now();
        load(&mut self.how_far(what, all))?;
        self.figures_for_next.insert("load s".to_owned(), start.elapsed().as_secs_f64());
        self.load = Some(before);
        Ok(())
    }

    /// Waits until the engine owes no background work, and until what it wrote has left the page cache for
    /// the device; the time that it takes stands beside the row before, and what it uses is added to that
    /// row's usage. Before the first row it is time and work of no row. An engine that does not come to rest
    /// in time is left to its work, and the row says so; before the first row, the first. `drain` is the
    /// engine's own wait, until the deadline at most.
    pub(crate) fn drain_by(
        &mut self,
        drain: impl FnOnce(Instant) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let start = Instant::now();
        let deadline = start + self.idle_wait_max;
        let before = Usages::now(&self.dir);
        // A tracer keeps a process busy that would be idle without it.
        if self.traced {
            return drain(deadline);
        }
        let (waited, peaks) = watched(&self.dir, || -> Result<(f64, bool), Failure> {
            drain(deadline)?;
            let drained_s = start.elapsed().as_secs_f64();
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = wait_until_idle(self.idle_window, left);
            let mut seconds = drained_s + waited.busy_s;
            if self.blank.scale != Scale::Test.name() {
                let start = Instant::now();
                machine::settle_disk();
                seconds += start.elapsed().as_secs_f64();
            }
            Ok((seconds, waited.is_idle))
        });
        let (seconds, is_idle) = waited?;
        if let Some(before) = self.load.take() {
            let mut usage = Usage::default();
            before.add_since(&self.dir, &mut usage);
            self.figures_for_next.insert("load drain s".to_owned(), seconds);
            self.figures_for_next.insert("load written bytes".to_owned(), usage.written_bytes as f64);
        }
        self.add_drain(seconds, &before, peaks);
        if !is_idle {
            let note = format!("background work went on after {} s", self.idle_wait_max.as_secs_f64());
            match &mut self.pending {
                Some(record) => add_note(record, &note),
                None => self.note_for_next = note,
            }
        }
        Ok(())
    }

    /// Counts to the row before what was used since `before`.
    fn add_drain(&mut self, seconds: f64, before: &Usages, peaks: Peaks) {
        if let Some(record) = &mut self.pending {
            record.detail.get_or_insert_default().drain_s = Some(seconds);
            before.add_since(&self.dir, &mut record.usage);
            let disk = disk_bytes(&self.dir);
            let usage = &mut record.usage;
            usage.disk_bytes = disk.lengths;
            usage.disk_allocated_bytes = disk.allocated;
            usage.peak_disk_bytes = usage.peak_disk_bytes.max(peaks.disk_bytes).max(disk.allocated);
            usage.peak_anon_bytes = usage.peak_anon_bytes.max(peaks.anon_bytes);
            usage.peak_file_bytes = usage.peak_file_bytes.max(peaks.file_bytes);
        }
    }

    /// Runs an untimed check of all that has been written; a wrong answer, or an engine that cannot give one,
    /// fails the row before it, and all rows that wrote since the last check that found all right
    /// (bench_recorder.1).
    pub(crate) fn check<T>(&mut self, check: impl FnOnce() -> Result<T, Failure>) -> Result<(), Failure> {
        let found = check();
        let unchecked = mem::take(&mut self.unchecked);
        match &found {
            Ok(_) => self.pending_wrote = false,
            Err(failure) => {
                for mut record in unchecked {
                    void(&mut record, failure);
                    self.send(&Message::Row(Box::new(record)))?;
                }
            }
        }
        self.judge(found)
    }

    /// Runs an untimed check of what the row before it did; a wrong answer fails that row alone. What other
    /// rows wrote stays unchecked.
    pub(crate) fn check_row<T>(&mut self, check: impl FnOnce() -> Result<T, Failure>) -> Result<(), Failure> {
        self.judge(check())
    }

    fn judge<T>(&mut self, found: Result<T, Failure>) -> Result<(), Failure> {
        match (found, &mut self.pending) {
            (Ok(_), _) => Ok(()),
            (Err(wrong @ Failure::Wrong(_)), Some(record)) => {
                void(record, &wrong);
                Ok(())
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Tells the runner that all rows have been recorded.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        assert_eq!(self.rows.next().map(|row| row.name), None, "bench_recorder.2");
        self.send(&Message::Done)
    }

    fn begin(&mut self, name: &str) -> Result<Record, Failure> {
        self.flush()?;
        let row = self.rows.next();
        let row = row
            .filter(|row| row.name == name)
            .unwrap_or_else(|| panic!("bench_recorder.2: not the time for row {name}"));
        self.send(&Message::Begin(name.to_owned()))?;
        Ok(Record {
            row: row.name,
            unit: row.unit,
            better: row.better,
            ops: row.ops,
            commits: row.commits.count(),
            started_unix_ms: machine::unix_milliseconds(),
            note: mem::take(&mut self.note_for_next),
            ..self.blank.clone()
        })
    }

    /// Tells of a row that is measured, and keeps it for its checks.
    fn measured(&mut self, mut record: Record) -> Result<(), Failure> {
        let figures = mem::take(&mut self.figures_for_next);
        if !figures.is_empty() {
            record.detail.get_or_insert_default().figures.extend(figures);
        }
        self.send(&Message::Measured(Box::new(record.clone())))?;
        self.pending = Some(record);
        Ok(())
    }

    /// Tells the last row to its end: what follows is of no row.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let Some(record) = self.pending.take() else { return Ok(()) };
        if mem::take(&mut self.pending_wrote) {
            self.unchecked.push(record.clone());
        }
        self.send(&Message::Row(Box::new(record)))
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        how_far::send(&self.out, message)
    }

    fn mark(&self, mark: &str, name: &str) {
        if self.traced {
            syncs::mark(mark, name);
        }
    }
}

/// Moves what the work said into the record; returns the value of the pass.
fn take_over(record: &mut Record, outcome: Outcome, measured_seconds: f64) -> f64 {
    let seconds = outcome.seconds.unwrap_or(measured_seconds);
    record.ops = outcome.ops.unwrap_or(record.ops);
    record.commits = outcome.commits.unwrap_or(record.commits);
    record.user_written_bytes += outcome.user_written_bytes;
    record.live_bytes = outcome.live_bytes;
    record.detail = outcome.detail;
    // The passes of a row say the same.
    if !record.note.contains(&outcome.note) {
        add_note(record, &outcome.note);
    }
    outcome.value.unwrap_or(match record.unit {
        Unit::Seconds => seconds,
        Unit::Bytes => record.user_written_bytes as f64,
        Unit::OpsPerSecond => record.ops as f64 / seconds,
        Unit::BytesPerSecond => record.user_written_bytes as f64 / seconds,
    })
}

/// Takes a row's value: its data is wrong.
fn void(record: &mut Record, wrong: &Failure) {
    record.value = None;
    record.error.get_or_insert_with(|| wrong.to_string());
}

/// Adds to what a reader of the row has to know.
pub(crate) fn add_note(record: &mut Record, note: &str) {
    if !record.note.is_empty() {
        record.note += "; ";
    }
    record.note += note;
}

/// Sums what adds up and keeps the highest or latest of the rest.
fn combine(a: Usage, b: Usage) -> Usage {
    Usage {
        peak_rss_bytes: a.peak_rss_bytes.max(b.peak_rss_bytes),
        peak_anon_bytes: a.peak_anon_bytes.max(b.peak_anon_bytes),
        peak_file_bytes: a.peak_file_bytes.max(b.peak_file_bytes),
        peak_disk_bytes: a.peak_disk_bytes.max(b.peak_disk_bytes),
        written_bytes: a.written_bytes + b.written_bytes,
        read_bytes: a.read_bytes + b.read_bytes,
        device_written_bytes: a.device_written_bytes + b.device_written_bytes,
        device_read_bytes: a.device_read_bytes + b.device_read_bytes,
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

#[cfg(test)]
pub(crate) mod tests;
