//! A suite's side of a row: measures the work, turns failures into rows, and tells the runner.
//!
//!   suite --row(name, work)--> Recorder --measure--> Record --Message line on stdout--> runner
//!
//! A row is told twice: as soon as it is measured, and again when the next begins, with what the wait for background work added and with
//! the verdict of the untimed checks that follow it. A row whose check does not end in time keeps its value (N5 of the runner).
//!
//! C2. What a check finds wrong may be the doing of any row that wrote since the last check that found all right: it voids them all. Those
//!     that were told to their end are told again.
//!
//! C1. Rows of a group are recorded in the order in which the suite lists them, each once.

use std::io::Write;
use std::mem;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use esker_bench_api::results::{Detail, Message, Record, Unit, Usage};
use esker_bench_api::{Failure, Store};

use crate::machine;
use crate::measure::{Peaks, Usages, disk_bytes, idle_wait_max, measure, wait_until_idle, watched};
use crate::scale::Scale;
use crate::suites::Row;
use crate::syncs;

/// What a row's work says about itself; what it leaves out, the recorder takes from its own clock and from the row.
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
    /// Whether it wrote the data anew without a commit, as a compaction does (C2).
    pub(crate) rewrites: bool,
}

impl Outcome {
    /// Says on how many items the row began: where rows before it were cut by time, a faster engine has more of them.
    pub(crate) fn on(mut self, items: u64) -> Self {
        let figures = &mut self.detail.get_or_insert_default().figures;
        figures.insert("items when it began".to_owned(), items as f64);
        self
    }
}

/// See the module.
pub(crate) struct Recorder {
    rows: std::vec::IntoIter<Row>,
    /// What all records of this run share.
    blank: Record,
    dir: PathBuf,
    pending: Option<Record>,
    /// Rows that wrote and were told to their end, since the last check that found all right (C2).
    unchecked: Vec<Record>,
    /// Whether the row that is pending wrote.
    pending_wrote: bool,
    /// What the next row has to say of what came before it.
    note_for_next: String,
    out: Box<dyn Write>,
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
            out,
            traced,
            idle_window,
            idle_wait_max: idle_wait_max(None),
        }
    }

    /// A step of this run may take so long before the lab ends it: background work is waited for no longer than that leaves room for.
    pub(crate) fn within(mut self, step: Option<Duration>) -> Self {
        self.idle_wait_max = idle_wait_max(step);
        self
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

    /// Measures the row that makes what all later rows of the group work on. If it fails in any way, they have nothing to
    /// show: they are recorded as not run, and the result is false.
    pub(crate) fn groundwork(
        &mut self,
        name: &str,
        work: impl FnMut() -> Result<Outcome, Failure>,
    ) -> Result<bool, Failure> {
        self.row(name, work)?;
        if self.pending.as_ref().is_some_and(|record| record.error.is_none()) {
            return Ok(true);
        }
        self.cannot_rest(&format!("not run: there is no data, since the row `{name}` failed"))?;
        Ok(false)
    }

    /// Records what the files occupy on disk as the row `name`, with their lengths beside it: files may be sparse.
    pub(crate) fn size_row(&mut self, name: &str) -> Result<(), Failure> {
        let mut record = self.begin(name)?;
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

    /// Waits until the engine owes no background work, and until what it wrote has left the page cache for the device; the time that it
    /// takes stands beside the row before, and what it uses is added to that row's usage. Before the first row it is time and work of no row.
    /// An engine that does not come to rest in time is left to its work, and the row says so; before the first row, the first.
    pub(crate) fn drain(&mut self, store: &dyn Store) -> Result<(), Failure> {
        self.drain_by(|deadline| store.drain(deadline))
    }

    /// The same for what is no store: `drain` is its own wait, until the deadline at most.
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

    /// Waits for the work that opening the database has begun: it is of no row.
    pub(crate) fn settle(&mut self, store: &dyn Store) -> Result<(), Failure> {
        self.flush()?;
        self.drain(store)
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
        }
    }

    /// Runs an untimed check of all that has been written; a wrong answer fails the row before it, and all rows that wrote since the last
    /// check that found all right (C2).
    pub(crate) fn check<T>(&mut self, check: impl FnOnce() -> Result<T, Failure>) -> Result<(), Failure> {
        let found = check();
        let unchecked = mem::take(&mut self.unchecked);
        if let Err(wrong @ Failure::Wrong(_)) = &found {
            for mut record in unchecked {
                void(&mut record, wrong);
                self.send(&Message::Row(Box::new(record)))?;
            }
        } else {
            self.pending_wrote = false;
        }
        self.judge(found)
    }

    /// Runs an untimed check of what the row before it did; a wrong answer fails that row alone. What other rows wrote stays unchecked.
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
    fn measured(&mut self, record: Record) -> Result<(), Failure> {
        self.send(&Message::Measured(Box::new(record.clone())))?;
        self.pending = Some(record);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let Some(record) = self.pending.take() else { return Ok(()) };
        if mem::take(&mut self.pending_wrote) {
            self.unchecked.push(record.clone());
        }
        self.send(&Message::Row(Box::new(record)))
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
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use esker_bench_api::OpenOptions;

    use super::*;
    use crate::engines;
    use crate::report::summary::tests::record;

    /// What a recorder sends.
    #[derive(Clone, Default)]
    pub(crate) struct Sent(Arc<Mutex<Vec<u8>>>);

    impl Write for Sent {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Sent {
        /// All rows that were told to their end, each as it was told last.
        pub(crate) fn records(&self) -> Vec<Record> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            let mut records: Vec<Record> = Vec::new();
            for line in text.lines() {
                let Message::Row(record) = serde_json::from_str(line).unwrap() else { continue };
                match records.iter_mut().find(|told| told.row == record.row) {
                    Some(told) => *told = *record,
                    None => records.push(*record),
                }
            }
            records
        }

        /// Row and error of each record.
        fn rows(&self) -> Vec<(String, Option<String>)> {
            self.records().into_iter().map(|record| (record.row, record.error)).collect()
        }

        /// The rows that were begun.
        pub(crate) fn begun(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            let messages = text.lines().map(|line| serde_json::from_str(line).unwrap());
            let begun = |message| match message {
                Message::Begin(row) => Some(row),
                _ => None,
            };
            messages.filter_map(begun).collect()
        }

        /// What each message is.
        fn kinds(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
        }
    }

    fn recorder(dir: &Path, sent: &Sent) -> Recorder {
        let rows = vec![Row::time("load".to_owned(), String::new())];
        let (blank, out) = (record("e", "", 1, Some(0.0)), Box::new(sent.clone()));
        Recorder::new(rows, blank, dir, out, false, Duration::ZERO)
    }

    #[test]
    fn a_row_is_told_before_its_check_and_again_after_it() {
        let (dir, sent) = (tempfile::tempdir().unwrap(), Sent::default());
        let mut recorder = recorder(dir.path(), &sent);
        recorder.row("load", || Ok(Outcome::default())).unwrap();
        assert_eq!(sent.kinds(), ["begin", "measured"]);
        recorder.check(|| Err::<(), _>(Failure::Wrong("bad".to_owned()))).unwrap();
        recorder.finish().unwrap();
        assert_eq!(sent.kinds(), ["begin", "measured", "row", "done"]);
        assert_eq!(sent.rows(), [("load".to_owned(), Some("wrong answer: bad".to_owned()))]);
    }

    #[test]
    fn c2_a_failed_check_voids_what_was_written_since_the_last_one_that_passed() {
        let (dir, sent) = (tempfile::tempdir().unwrap(), Sent::default());
        let names = ["load", "mix", "reads", "update", "compact", "reads again", "late"];
        let rows = names.map(|name| Row::time(name.to_owned(), String::new())).to_vec();
        let (blank, out) = (record("e", "", 1, None), Box::new(sent.clone()));
        let blank = Record { error: None, commits: 0, ..blank };
        let mut recorder = Recorder::new(rows, blank, dir.path(), out, false, Duration::ZERO);
        let wrote = || Ok(Outcome { user_written_bytes: 1, ..Outcome::default() });
        let bad = || Err::<(), _>(Failure::Wrong("bad".to_owned()));
        recorder.row("load", wrote).unwrap();
        recorder.check(|| Ok(())).unwrap();
        recorder.row("mix", || Ok(Outcome { commits: Some(7), ..Outcome::default() })).unwrap();
        recorder.row("reads", || Ok(Outcome::default())).unwrap();
        // It says nothing of what the mix wrote.
        recorder.check_row(|| Ok(())).unwrap();
        recorder.row("update", wrote).unwrap();
        recorder.row("compact", || Ok(Outcome { rewrites: true, ..Outcome::default() })).unwrap();
        recorder.row("reads again", || Ok(Outcome::default())).unwrap();
        recorder.check(bad).unwrap();
        recorder.row("late", wrote).unwrap();
        recorder.check_row(bad).unwrap();
        recorder.finish().unwrap();
        let void: Vec<_> = sent.rows().into_iter().filter(|row| row.1.is_some()).map(|row| row.0).collect();
        assert_eq!(void, ["mix", "update", "compact", "reads again", "late"]);
        assert!(sent.records().iter().all(|record| record.value.is_none() == record.error.is_some()));
    }

    #[test]
    fn what_the_drain_uses_is_the_rows() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = recorder(dir.path(), &Sent::default());
        recorder.row("load", || Ok(Outcome::default())).unwrap();
        let measured = recorder.pending.as_ref().unwrap().usage.cpu_s;
        let (before, start) = (Usages::now(dir.path()), Instant::now());
        while start.elapsed() < Duration::from_secs(1) {}
        let peaks = Peaks { anon_bytes: 0, disk_bytes: 1 << 40 };
        recorder.add_drain(1.0, &before, peaks);
        let record = recorder.pending.unwrap();
        assert_eq!(record.usage.peak_disk_bytes, 1 << 40);
        // A busy machine may give the loop little of its time, but never nothing of a second.
        assert!(record.usage.cpu_s > measured + 0.02);
        assert_eq!(record.detail.unwrap().drain_s, Some(1.0));
    }

    #[test]
    fn a_row_says_that_background_work_went_on() {
        let (dir, sent) = (tempfile::tempdir().unwrap(), Sent::default());
        let rows = ["load", "reads"].map(|name| Row::time(name.to_owned(), String::new())).to_vec();
        let (blank, out) = (record("e", "", 1, Some(0.0)), Box::new(sent.clone()));
        let mut recorder = Recorder::new(rows, blank, dir.path(), out, false, Duration::from_millis(40));
        // Three windows of rest do not fit.
        recorder.idle_wait_max = Duration::from_millis(60);
        let store =
            engines::find("redb").unwrap().open(dir.path(), &OpenOptions::with_cache(1 << 20)).unwrap();
        recorder.drain(&*store).unwrap();
        recorder.row("load", || Ok(Outcome::default())).unwrap();
        recorder.settle(&*store).unwrap();
        recorder.row("reads", || Ok(Outcome { note: "warm".to_owned(), ..Outcome::default() })).unwrap();
        recorder.drain(&*store).unwrap();
        recorder.finish().unwrap();
        let notes: Vec<_> = sent.records().into_iter().map(|record| record.note).collect();
        let note = "background work went on after 0.06 s";
        assert_eq!(notes, [note.to_owned(), format!("{note}; warm; {note}")]);
    }

    #[test]
    fn an_engine_whose_own_wait_has_no_end_gets_half_of_the_step() {
        let (dir, sent) = (tempfile::tempdir().unwrap(), Sent::default());
        let mut recorder = recorder(dir.path(), &sent).within(Some(Duration::from_millis(400)));
        recorder.row("load", || Ok(Outcome::default())).unwrap();
        let start = Instant::now();
        recorder
            .drain_by(|deadline| {
                let wait = deadline.duration_since(start);
                assert!(wait <= Duration::from_secs(10), "{wait:?}");
                std::thread::sleep(wait);
                Ok(())
            })
            .unwrap();
        assert!(start.elapsed() >= Duration::from_millis(200));
        recorder.finish().unwrap();
        assert_eq!(sent.records()[0].note, "background work went on after 0.2 s");
    }

    #[test]
    fn without_groundwork_the_rest_of_the_group_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let rows = ["load", "reads", "scans"].map(|name| Row::time(name.to_owned(), String::new())).to_vec();
        for (fails, expected) in [(false, [false; 3]), (true, [true; 3])] {
            let sent = Sent::default();
            let blank = record("e", "", 1, Some(0.0));
            let out = Box::new(sent.clone());
            let mut recorder = Recorder::new(rows.clone(), blank, dir.path(), out, false, Duration::ZERO);
            let work = || if fails { Err(Failure::Wrong("bad".to_owned())) } else { Ok(Outcome::default()) };
            if recorder.groundwork("load", work).unwrap() {
                recorder.row("reads", || Ok(Outcome::default())).unwrap();
                recorder.row("scans", || Ok(Outcome::default())).unwrap();
            }
            recorder.finish().unwrap();
            let found = sent.rows();
            assert_eq!(found.iter().map(|row| row.1.is_some()).collect::<Vec<_>>(), expected, "{found:?}");
        }
    }
}
