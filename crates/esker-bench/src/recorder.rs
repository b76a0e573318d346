//! Measures the work of rows, turns failures into rows, and sends the rows to the runner.
//!
//!   suite --row(name, work)--> Recorder --measure--> Record --Message line on stdout--> runner
//!
//! A row is sent twice: when it is measured, and when the next row begins. The second time it includes the
//! wait for background work and the result of the untimed checks that follow it. A row whose check does not
//! end in time keeps its value.
//!
//! - Wrong data may come from any row that wrote since the last successful check. A failed check therefore
//!   removes the values of all of them, and sends the finished ones again.
//! - Rows of a group are recorded in the order in which the suite lists them, each once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::mem;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use esker_bench_api::results::{Counts, Detail, Message, Record, Setting, Unit, Usage};
use esker_bench_api::{Failure, Result};

use crate::machine;
use crate::measure::{Peaks, Usages, disk_bytes, idle_wait_max, measure, wait_until_idle, watched};
use crate::row::Row;
use crate::scale::Scale;
use crate::step_progress::{self, Out, StepProgress};
use crate::syncs;

/// Result of a row's work. For missing fields, the recorder uses its own clock and the row.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Time that counts, if the work prepared something first (threads).
    pub(crate) seconds: Option<f64>,
    /// Value of the row, if it is neither the time nor a rate over it.
    pub(crate) value: Option<f64>,
    /// Number of operations, if the row does not state it.
    pub(crate) ops: Option<u64>,
    /// Number of commits, if the row does not state it.
    pub(crate) commits: Option<u64>,
    /// Bytes of keys and values written.
    pub(crate) user_written_bytes: u64,
    /// Bytes of keys and values alive at the end.
    pub(crate) live_bytes: u64,
    /// Latencies and series.
    pub(crate) detail: Option<Box<Detail>>,
    /// Note for the reader of the row.
    pub(crate) note: String,
    /// Whether it rewrote data without a commit, as a compaction does.
    pub(crate) rewrites: bool,
}

/// Recorder of one group.
pub(crate) struct Recorder {
    rows: std::vec::IntoIter<Row>,
    /// Fields that all records of this run share.
    blank: Record,
    dir: PathBuf,
    pending: Option<Record>,
    /// Finished rows that wrote since the last successful check.
    unchecked: Vec<Record>,
    /// Whether the pending row wrote.
    pending_wrote: bool,
    /// Note and figures for the next row, from before it.
    note_for_next: String,
    figures_for_next: BTreeMap<String, f64>,
    /// Totals at the start of a load that is not a row, until it is drained.
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

    /// Limits the wait for background work, given the time limit of a step.
    pub(crate) fn within(mut self, step: Option<Duration>) -> Self {
        self.idle_wait_max = idle_wait_max(step);
        self
    }

    /// Returns the directory for the engine's files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Measures `work` as the row `name`. A wrong answer or a missing feature becomes the row's error.
    /// Returns only failures that end the run.
    pub(crate) fn row(&mut self, name: &str, mut work: impl FnMut() -> Result<Outcome>) -> Result<()> {
        self.row_of_passes(name, 1, &mut work)
    }

    /// Measures `work` `passes` times. The row's value is the median of the passes.
    pub(crate) fn row_of_passes(
        &mut self,
        name: &str,
        passes: usize,
        mut work: impl FnMut() -> Result<Outcome>,
    ) -> Result<()> {
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
        let wrote = rewrites || record.counts.commits > 0 || record.counts.user_written_bytes > 0;
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

    /// Returns whether the last row, on which all later rows of the group depend, has a value. If it has
    /// none, they are recorded as not run.
    pub(crate) fn is_groundwork_there(&mut self) -> Result<bool> {
        let name = match &self.pending {
            Some(record) if record.error.is_none() => return Ok(true),
            Some(record) => record.row.clone(),
            None => String::new(),
        };
        self.cannot_rest(|| Failure::NotRun(format!("there is no data, since the row `{name}` failed")))?;
        Ok(false)
    }

    /// Records the bytes that the files occupy as the row `name`, and their lengths as a figure, because
    /// files may be sparse. `live_bytes` is the size of the live keys and values.
    pub(crate) fn size_row(&mut self, name: &str, live_bytes: u64) -> Result<()> {
        let mut record = self.begin(name)?;
        record.counts.live_bytes = live_bytes;
        let disk = disk_bytes(&self.dir);
        record.usage.disk_bytes = disk.lengths;
        record.usage.disk_allocated_bytes = disk.allocated;
        record.value = Some(disk.allocated as f64);
        let figures = &mut record.detail.get_or_insert_default().figures;
        figures.insert("file length bytes".to_owned(), disk.lengths as f64);
        self.measured(record)
    }

    /// Records the row `name` as an error, because the engine lacks what it needs.
    pub(crate) fn cannot(&mut self, name: &str, why: &str) -> Result<()> {
        self.row(name, || Err(Failure::Unsupported(why.to_owned())))
    }

    /// Records all remaining rows as errors.
    pub(crate) fn cannot_rest(&mut self, why: impl Fn() -> Failure) -> Result<()> {
        let rest: Vec<_> = self.rows.as_slice().iter().map(|row| row.name.clone()).collect();
        rest.iter().try_for_each(|row| self.row(row, || Err(why())))
    }

    /// Returns the sender of progress messages of a step that writes `all` of `what`.
    pub(crate) fn step_progress(&self, what: &'static str, all: u64) -> StepProgress {
        StepProgress::new(Rc::clone(&self.out), what, all)
    }

    /// Runs a load that is not a row. Its time, and the time and written bytes of the drain after it, are
    /// figures of the next row.
    pub(crate) fn load(
        &mut self,
        what: &'static str,
        all: u64,
        load: impl FnOnce(&mut StepProgress) -> Result<()>,
    ) -> Result<()> {
        let before = Usages::now(&self.dir);
        let start = Instant::now();
        load(&mut self.step_progress(what, all))?;
        self.figures_for_next.insert("load s".to_owned(), start.elapsed().as_secs_f64());
        self.load = Some(before);
        Ok(())
    }

    /// Waits until the engine has no background work, and until the page cache is written to the device. The
    /// last row gets the time as a figure, and the usage is added to it. If the engine does not become idle
    /// in time, the last row gets a note, or the first row if none was measured. `drain` is the engine's own
    /// wait, until a deadline.
    pub(crate) fn drain_by(&mut self, drain: impl FnOnce(Instant) -> Result<()>) -> Result<()> {
        let start = Instant::now();
        let deadline = start + self.idle_wait_max;
        let before = Usages::now(&self.dir);
        // Under a tracer the process never looks idle.
        if self.traced {
            return drain(deadline);
        }
        let (waited, peaks) = watched(&self.dir, || -> Result<(f64, bool)> {
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

    /// Adds the usage since `before` to the last row.
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

    /// Runs an untimed check of everything written. If it fails, the last row and all rows that wrote since
    /// the last successful check fail.
    pub(crate) fn check<T>(&mut self, check: impl FnOnce() -> Result<T>) -> Result<()> {
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

    /// Runs an untimed check of the last row. A wrong answer fails that row only. Other rows stay unchecked.
    pub(crate) fn check_row<T>(&mut self, check: impl FnOnce() -> Result<T>) -> Result<()> {
        self.judge(check())
    }

    fn judge<T>(&mut self, found: Result<T>) -> Result<()> {
        match (found, &mut self.pending) {
            (Ok(_), _) => Ok(()),
            (Err(wrong @ Failure::Wrong(_)), Some(record)) => {
                void(record, &wrong);
                Ok(())
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Sends the last row, and reports that all rows have been recorded.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()?;
        assert_eq!(self.rows.next().map(|row| row.name), None);
        self.send(&Message::Done)
    }

    fn begin(&mut self, name: &str) -> Result<Record> {
        self.flush()?;
        let row = self.rows.next();
        let row = row.filter(|row| row.name == name).unwrap_or_else(|| panic!("row {name} is out of order"));
        self.send(&Message::Begin(name.to_owned()))?;
        let blank = self.blank.clone();
        Ok(Record {
            row: row.name,
            unit: row.unit,
            better: row.better,
            counts: Counts { ops: row.ops, commits: row.commits.count(), ..blank.counts },
            setting: Setting { started_unix_ms: machine::unix_milliseconds(), ..blank.setting },
            note: mem::take(&mut self.note_for_next),
            ..blank
        })
    }

    /// Sends a measured row, and keeps it for its checks.
    fn measured(&mut self, mut record: Record) -> Result<()> {
        let figures = mem::take(&mut self.figures_for_next);
        if !figures.is_empty() {
            record.detail.get_or_insert_default().figures.extend(figures);
        }
        self.send(&Message::Measured(Box::new(record.clone())))?;
        self.pending = Some(record);
        Ok(())
    }

    /// Sends the finished last row. What follows belongs to no row.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let Some(record) = self.pending.take() else { return Ok(()) };
        if mem::take(&mut self.pending_wrote) {
            self.unchecked.push(record.clone());
        }
        self.send(&Message::Row(Box::new(record)))
    }

    fn send(&mut self, message: &Message) -> Result<()> {
        step_progress::send(&self.out, message)
    }

    fn mark(&self, mark: &str, name: &str) {
        if self.traced {
            syncs::mark(mark, name);
        }
    }
}

/// Moves the result of the work into the record, and returns the value of the pass.
fn take_over(record: &mut Record, outcome: Outcome, measured_seconds: f64) -> f64 {
    let seconds = outcome.seconds.unwrap_or(measured_seconds);
    let counts = &mut record.counts;
    counts.ops = outcome.ops.unwrap_or(counts.ops);
    counts.commits = outcome.commits.unwrap_or(counts.commits);
    counts.user_written_bytes += outcome.user_written_bytes;
    counts.live_bytes = outcome.live_bytes;
    record.detail = outcome.detail;
    // All passes of a row have the same note.
    if !record.note.contains(&outcome.note) {
        add_note(record, &outcome.note);
    }
    outcome.value.unwrap_or(match record.unit {
        Unit::Seconds => seconds,
        Unit::Bytes => record.counts.user_written_bytes as f64,
        Unit::OpsPerSecond => record.counts.ops as f64 / seconds,
        Unit::BytesPerSecond => record.counts.user_written_bytes as f64 / seconds,
    })
}

/// Removes a row's value, because its data is wrong.
fn void(record: &mut Record, wrong: &Failure) {
    record.value = None;
    record.error.get_or_insert_with(|| wrong.to_string());
}

/// Adds a note for the reader of the row.
pub(crate) fn add_note(record: &mut Record, note: &str) {
    if !record.note.is_empty() {
        record.note += "; ";
    }
    record.note += note;
}

/// Adds up counters, and keeps the highest or latest of the other fields.
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

/// Returns the median: of an even number of values, the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "the median of nothing");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

#[cfg(test)]
pub(crate) mod tests;
