//! Starts one child process, puts it into its control group, and follows it until it ends or runs out of
//! time.
//!
//! ```text
//!   command --> child --stdout, a message a line--> listen --> Reported
//!                 `-- stderr, quoted where it fails
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::scratch::Scratch;
use super::{DISK_FILLED, NOT_LIMITED, Plan};
use crate::child::{self, Job};
use crate::limit::Limit;
use crate::machine;
use crate::parent;
use crate::progress::Progress;
use crate::recorder::add_note;
use crate::syncs;
use esker_bench_api::results::{Message, Record};
use esker_bench_api::{Failure, Result};

/// Interval between looks at the free disk space while an engine works.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// Part of a suite's memory limit that Go's garbage collector may use (`GOMEMLIMIT`). The rest is for the
/// page cache, from which Badger and bbolt read their mapped files. It is more than half, because the caches
/// of suite `badger` are half of its limit.
const COLLECTOR_SHARE: f64 = 5.0 / 8.0;
/// An engine is stopped when less than this is free on the disk, or less than a quarter of what was free when
/// it began.
const DISK_BYTES_KEPT: u64 = 2 << 30;
const STDERR_BYTES_SHOWN: usize = 600;
/// Time that a child may take to exit after its last row, unless the time limit of a step is shorter.
const END_MAX: Duration = Duration::from_secs(60);
/// Interval between looks at a child that is about to exit.
const END_LOOK_EVERY: Duration = Duration::from_millis(5);

/// Tracer and limits of a child.
#[derive(Clone, Copy)]
pub(super) struct Mode<'a> {
    pub(super) trace: Option<&'a Path>,
    pub(super) limit: Option<&'a Limit>,
    pub(super) memory_bytes_max: Option<u64>,
    /// Time limit of one step.
    pub(super) step: Duration,
}

impl Mode<'_> {
    /// Returns the time that the child may take to exit. A tracer slows down the exit as well.
    fn end_max(&self) -> Duration {
        if self.trace.is_some() { self.step } else { self.step.min(END_MAX) }
    }
}

/// Messages of one child, and how it ended.
#[derive(Default)]
pub(super) struct Reported {
    pub(super) records: Vec<Record>,
    /// Row that had begun and was not measured.
    pub(super) open_row: Option<String>,
    /// Last progress message of that row, or of the load before it.
    pub(super) last_progress: Option<String>,
    /// Row that was measured and not checked yet.
    pub(super) unchecked: Option<Record>,
    /// Reason why the child ended early.
    pub(super) failure: Option<String>,
    /// Whether the lab stopped the child, because its time or the disk was used up.
    pub(super) was_stopped: bool,
}

impl Reported {
    /// Keeps a record and replaces an earlier one of the same row. Returns whether the row is new.
    fn take(&mut self, record: Record) -> bool {
        if let Some(known) = self.records.iter_mut().find(|known| known.row == record.row) {
            *known = record;
            return false;
        }
        if self.open_row.as_ref() == Some(&record.row) {
            self.open_row = None;
        }
        self.unchecked = self.unchecked.take().filter(|unchecked| unchecked.row != record.row);
        self.records.push(record);
        true
    }

    /// Takes in a message about a row. Returns the row that this completes, unless it was complete before.
    fn receive(&mut self, message: Message) -> Option<String> {
        match message {
            Message::Begin(row) => self.open_row = Some(row),
            Message::Progress(text) => self.last_progress = Some(text),
            Message::Measured(record) => {
                self.open_row = self.open_row.take().filter(|row| *row != record.row);
                self.unchecked = Some(*record);
            }
            Message::Row(record) => {
                let row = record.row.clone();
                return self.take(*record).then_some(row);
            }
            Message::Done => {}
        }
        None
    }

    /// Notes why the lab stopped the child.
    fn stop(&mut self, why: String) {
        self.failure = Some(why);
        self.was_stopped = true;
    }
}

pub(super) fn run_child(
    plan: &Plan,
    job: &Job<'_>,
    scratch: &Scratch,
    program: &Path,
    mode: Mode<'_>,
    progress: Option<&mut Progress>,
) -> Result<Reported> {
    let dir = scratch.path.join("db");
    fs::create_dir(&dir)?;
    follow(command(job, program, &dir, mode), plan, job, scratch, mode, progress)
}

/// Starts the child and follows it until it has ended.
fn follow(
    mut command: Command,
    plan: &Plan,
    job: &Job<'_>,
    scratch: &Scratch,
    mode: Mode<'_>,
    progress: Option<&mut Progress>,
) -> Result<Reported> {
    let stderr_path = scratch.path.join("stderr");
    let stderr = File::create(&stderr_path)?;
    if let Some(bytes) = mode.memory_bytes_max {
        command.env("GOMEMLIMIT", format!("{:.0}", bytes as f64 * COLLECTOR_SHARE));
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn()?;
    let mut reported = match mode.limit.map_or(Ok(()), |limit| limit.take_in(child.id())) {
        Ok(()) => listen(plan, job, &mut child, mode.step, progress)?,
        Err(error) => {
            let failure = Some(format!("{NOT_LIMITED}: {error}"));
            Reported { failure, was_stopped: true, ..Reported::default() }
        }
    };
    if reported.failure.is_some() {
        // The child is dead or past its time. Nothing it still does counts.
        drop(child.kill());
    } else if !ends_within(&mut child, mode.end_max())? {
        // All messages have arrived. Only the exit hangs.
        drop(child.kill());
        if let Some(last) = reported.records.last_mut() {
            let seconds = mode.end_max().as_secs();
            add_note(last, &format!("behind it the process did not end within {seconds} s, and was killed"));
        }
    }
    let status = child.wait()?;
    if reported.failure.is_some() && mode.limit.is_some_and(Limit::has_killed) {
        reported.failure = Some("out of memory: killed at the suite's limit".to_owned());
    }
    if let Some(failure) = &mut reported.failure {
        let stderr = fs::read(&stderr_path).unwrap_or_default();
        let tail = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(STDERR_BYTES_SHOWN)..]);
        *failure = format!("{failure} ({status}) {}", tail.trim().replace('\n', " | ")).trim().to_owned();
    }
    Ok(reported)
}

/// Waits for the child to exit, for at most `most`. Returns whether it did.
fn ends_within(child: &mut Child, most: Duration) -> Result<bool> {
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() >= most {
            return Ok(false);
        }
        thread::sleep(END_LOOK_EVERY);
    }
    Ok(true)
}

fn command(job: &Job<'_>, program: &Path, dir: &Path, mode: Mode<'_>) -> Command {
    let mut command = match mode.trace {
        None => Command::new(program),
        Some(trace) => syncs::traced(program.as_os_str(), trace),
    };
    command.args(["child", job.suite.name, job.engine.name(), job.scale.name()]);
    command.arg(job.run.to_string()).arg(dir).args(["--commit", job.commit]);
    command.env(parent::STEP_SECONDS, mode.step.as_secs().to_string());
    command.args(["--group", &job.group.to_string(), "--memory-limit", job.memory_limit]);
    if mode.trace.is_some() {
        command.arg("--traced");
    }
    command
}

/// Follows a child's messages until it ends or runs out of time.
fn listen(
    plan: &Plan,
    job: &Job<'_>,
    child: &mut Child,
    step: Duration,
    mut progress: Option<&mut Progress>,
) -> Result<Reported> {
    let messages = messages_of(child)?;
    let weights: BTreeMap<_, _> = job.rows().into_iter().map(|row| (row.name, row.weight)).collect();
    let mut deadline = Instant::now() + step;
    let mut reported = Reported::default();
    let mut weight_left: u64 = weights.values().sum();
    let mut looked = Instant::now();
    let disk_bytes_kept = machine::disk_bytes_free(&plan.dir).unwrap_or(0).min(4 * DISK_BYTES_KEPT) / 4;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let message = messages.recv_timeout(left.min(WATCH_PERIOD));
        // A load reports progress about as often, so the disk is looked at whatever arrives.
        if looked.elapsed() >= WATCH_PERIOD {
            looked = Instant::now();
            if machine::disk_bytes_free(&plan.dir).is_some_and(|free| free < disk_bytes_kept) {
                reported.stop(format!("{DISK_FILLED} and was stopped"));
                break;
            }
        }
        if message.as_ref().is_ok_and(|message| !matches!(message, Message::Progress(_))) {
            reported.last_progress = None;
            deadline = Instant::now() + step;
        }
        match message {
            Ok(Message::Done) => break,
            Ok(message) => {
                if let (Message::Begin(row), Some(progress)) = (&message, &progress) {
                    progress.now(&format!("run {} of {}, {}, {row}", job.run, plan.runs, job.engine.name()));
                }
                if let Some(row) = reported.receive(message) {
                    let weight = weights.get(row.as_str()).copied().unwrap_or(0).min(weight_left);
                    weight_left -= weight;
                    progress.iter_mut().for_each(|progress| progress.advance(weight));
                }
            }
            Err(RecvTimeoutError::Timeout) if left > WATCH_PERIOD => {}
            Err(RecvTimeoutError::Timeout) => {
                reported.stop(out_of_time(step, reported.last_progress.as_deref()));
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                reported.failure = Some("the process ended early".to_owned());
                break;
            }
        }
    }
    progress.iter_mut().for_each(|progress| progress.advance(weight_left));
    Ok(reported)
}

/// Starts a thread that reads the messages of a child.
fn messages_of(child: &mut Child) -> Result<Receiver<Message>> {
    let stdout = child.stdout.take().ok_or_else(|| Failure::engine("a child without stdout"))?;
    let (sender, messages) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if child::message(&line).is_some_and(|message| sender.send(message).is_err()) {
                break;
            }
        }
    });
    Ok(messages)
}

fn out_of_time(step: Duration, progress: Option<&str>) -> String {
    let progress = progress.map(|text| format!(", {text}")).unwrap_or_default();
    format!("out of time after {} s{progress}", step.as_secs())
}

#[cfg(test)]
mod tests {
    use super::super::SCRATCH;
    use super::super::tests::{job, plan};
    use super::*;
    #[cfg(unix)]
    use crate::gate;
    use crate::report::summary::tests::record;

    #[test]
    fn a_time_out_says_how_far_the_step_came() {
        let step = Duration::from_secs(150);
        assert_eq!(out_of_time(step, None), "out of time after 150 s");
        let progress = Some("3 of 7 items written");
        assert_eq!(out_of_time(step, progress), "out of time after 150 s, 3 of 7 items written");
    }

    #[test]
    fn the_last_word_on_a_row_counts() {
        let measured = record("redb", "scans", 1, Some(3.0));
        let mut reported = Reported { unchecked: Some(measured), ..Reported::default() };
        let rows = [("load", Some(1.0)), ("reads", Some(2.0)), ("load", None)];
        assert_eq!(
            rows.map(|(row, value)| reported.take(record("redb", row, 1, value))),
            [true, true, false]
        );
        assert!(reported.unchecked.is_some(), "the row that is being checked is another");
        let values: Vec<_> =
            reported.records.iter().map(|record| (record.row.as_str(), record.value)).collect();
        assert_eq!(values, [("load", None), ("reads", Some(2.0))]);
    }

    fn mode(step: Duration) -> Mode<'static> {
        Mode { trace: None, limit: None, memory_bytes_max: None, step }
    }

    /// Runs a script as the child and returns its messages.
    #[cfg(unix)]
    fn run_script(script: &str, step: Duration) -> Reported {
        let dir = tempfile::tempdir().unwrap();
        let (plan, scratch) = (plan(dir.path()), Scratch::new(dir.path(), SCRATCH).unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let _shut = gate::no_database_is_open();
        follow(command, &plan, &job(), &scratch, mode(step), None).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn a_child_that_is_done_and_does_not_end_is_killed() {
        let row =
            Message::Row(Box::new(Record { value: Some(1.0), ..record("esker", "load", 1, Some(1.0)) }));
        let [row, done] = [row, Message::Done].map(|message| serde_json::to_string(&message).unwrap());
        let says = format!("echo '{row}'; echo '{done}'; ");
        let reported = run_script(&(says.clone() + "exec sleep 60"), Duration::from_secs(5));
        assert!(reported.failure.is_none() && reported.records[0].value == Some(1.0));
        assert!(reported.records[0].note.contains("did not end within 5 s"), "{}", reported.records[0].note);
        let reported = run_script(&(says + "exec sleep 0.1"), Duration::from_secs(120));
        assert_eq!(
            (reported.records.len(), reported.records[0].note.as_str()),
            (1, ""),
            "a child that exits in time is not killed"
        );
    }

    #[test]
    fn the_end_of_a_child_is_short_unless_it_is_traced() {
        let mode = mode(Duration::from_secs(3600));
        assert_eq!(mode.end_max(), END_MAX);
        assert_eq!(Mode { trace: Some(Path::new("trace")), ..mode }.end_max(), mode.step);
        assert_eq!(Mode { step: Duration::from_secs(2), ..mode }.end_max(), Duration::from_secs(2));
    }

    #[test]
    fn a_child_receives_the_time_limit_of_a_step() {
        let command = command(&job(), Path::new("lab"), Path::new("db"), mode(Duration::from_secs(150)));
        let reported = command.get_envs().find(|(name, _)| *name == parent::STEP_SECONDS).unwrap().1;
        assert_eq!(reported.unwrap(), "150");
    }
}
