//! One child: started, taken into its control group, followed to its end or to the end of its time.
//!
//! ```text
//!   command --> child --stdout, a message a line--> listen --> Told
//!                 `-- stderr, kept for the reason of a failure
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
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
use esker_bench_api::Failure;
use esker_bench_api::results::{Message, Record};

/// How often the disk is looked at while an engine works.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// What a suite's memory limit leaves to a collector of garbage, which has to be told: the rest is for the page cache, from which Badger and
/// bbolt read their mapped files. More than half, since the caches of suite `badger` are half of its limit.
const COLLECTOR_SHARE: f64 = 5.0 / 8.0;
/// What is left of the disk when an engine is stopped, or a quarter of what was free when it began.
const DISK_BYTES_KEPT: u64 = 2 << 30;
const STDERR_BYTES_SHOWN: usize = 600;
/// How long a child that is done may take to end, where a step may take as long: what its rows wrote is closed by then.
const END_MAX: Duration = Duration::from_secs(60);
/// How often a child is looked at that is about to end.
const END_LOOK_EVERY: Duration = Duration::from_millis(5);

/// How a child is run.
#[derive(Clone, Copy)]
pub(super) struct Mode<'a> {
    pub(super) trace: Option<&'a Path>,
    pub(super) limit: Option<&'a Limit>,
    pub(super) memory_bytes_max: Option<u64>,
    /// How long one step may take (bench_runner.5).
    pub(super) step: Duration,
}

impl Mode<'_> {
    /// How long the child may take to end when it is done: a tracer makes that long, too.
    fn end_max(&self) -> Duration {
        if self.trace.is_some() { self.step } else { self.step.min(END_MAX) }
    }
}

/// What one child told before it ended, and how it ended.
#[derive(Default)]
pub(super) struct Told {
    pub(super) records: Vec<Record>,
    /// The row that had begun and was not measured.
    pub(super) open_row: Option<String>,
    /// How far that row, or what came before it, has come.
    pub(super) how_far: Option<String>,
    /// The row that was measured and not checked yet.
    pub(super) unchecked: Option<Record>,
    /// Why there is no more.
    pub(super) failure: Option<String>,
    /// Whether it was the lab that ended it, at the end of its time or of the disk.
    pub(super) was_stopped: bool,
}

impl Told {
    /// Keeps a record, in the place of what was told of its row before; says whether the row is new.
    fn take(&mut self, record: Record) -> bool {
        if let Some(told) = self.records.iter_mut().find(|told| told.row == record.row) {
            *told = record;
            return false;
        }
        if self.open_row.as_ref() == Some(&record.row) {
            self.open_row = None;
        }
        self.unchecked = self.unchecked.take().filter(|unchecked| unchecked.row != record.row);
        self.records.push(record);
        true
    }
}

pub(super) fn run_child(
    plan: &Plan,
    job: &Job<'_>,
    scratch: &Scratch,
    program: &Path,
    mode: Mode<'_>,
    progress: Option<&mut Progress>,
) -> Result<Told, Failure> {
    let dir = scratch.path.join("db");
    fs::create_dir(&dir).map_err(Failure::engine)?;
    follow(command(job, program, &dir, mode), plan, job, scratch, mode, progress)
}

/// Starts the child and stays with it until it has ended.
fn follow(
    mut command: Command,
    plan: &Plan,
    job: &Job<'_>,
    scratch: &Scratch,
    mode: Mode<'_>,
    progress: Option<&mut Progress>,
) -> Result<Told, Failure> {
    let stderr_path = scratch.path.join("stderr");
    let stderr = File::create(&stderr_path).map_err(Failure::engine)?;
    if let Some(bytes) = mode.memory_bytes_max {
        command.env("GOMEMLIMIT", format!("{:.0}", bytes as f64 * COLLECTOR_SHARE));
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(Failure::engine)?;
    let mut told = match mode.limit.map_or(Ok(()), |limit| limit.take_in(child.id())) {
        Ok(()) => listen(plan, job, &mut child, mode.step, progress)?,
        Err(error) => {
            let failure = Some(format!("{NOT_LIMITED}: {error}"));
            Told { failure, was_stopped: true, ..Told::default() }
        }
    };
    if told.failure.is_some() {
        // Already dead, or past its time: either way nothing it still does counts.
        drop(child.kill());
    } else if !ends_within(&mut child, mode.end_max())? {
        // What it told is whole: only its own end hangs.
        drop(child.kill());
        if let Some(last) = told.records.last_mut() {
            let seconds = mode.end_max().as_secs();
            add_note(last, &format!("behind it the process did not end within {seconds} s, and was killed"));
        }
    }
    let status = child.wait().map_err(Failure::engine)?;
    if told.failure.is_some() && mode.limit.is_some_and(Limit::has_killed) {
        told.failure = Some("out of memory: killed at the suite's limit".to_owned());
    }
    if let Some(failure) = &mut told.failure {
        let stderr = fs::read(&stderr_path).unwrap_or_default();
        let tail = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(STDERR_BYTES_SHOWN)..]);
        *failure = format!("{failure} ({status}) {}", tail.trim().replace('\n', " | ")).trim().to_owned();
    }
    Ok(told)
}

/// Whether the child ends in time.
fn ends_within(child: &mut Child, most: Duration) -> Result<bool, Failure> {
    let start = Instant::now();
    while child.try_wait().map_err(Failure::engine)?.is_none() {
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
    command.args(["child", job.suite.name(), job.engine.name(), job.scale.name()]);
    command.arg(job.run.to_string()).arg(dir).args(["--commit", job.commit]);
    command.env(parent::STEP_SECONDS, mode.step.as_secs().to_string());
    command.args(["--group", &job.group.to_string(), "--memory-limit", job.memory_limit]);
    if mode.trace.is_some() {
        command.arg("--traced");
    }
    command
}

/// Follows a child's messages to its end or to the end of its time.
fn listen(
    plan: &Plan,
    job: &Job<'_>,
    child: &mut Child,
    step: Duration,
    mut progress: Option<&mut Progress>,
) -> Result<Told, Failure> {
    let stdout = child.stdout.take().ok_or_else(|| Failure::engine("a child without stdout"))?;
    let (sender, messages) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if child::message(&line).is_some_and(|message| sender.send(message).is_err()) {
                break;
            }
        }
    });
    let weights: BTreeMap<_, _> = job.rows().into_iter().map(|row| (row.name, row.weight)).collect();
    // bench_runner.5
    let mut deadline = Instant::now() + step;
    let mut told = Told::default();
    let mut weight_left: u64 = weights.values().sum();
    let mut looked = Instant::now();
    let disk_bytes_kept = machine::disk_bytes_free(&plan.dir).unwrap_or(0).min(4 * DISK_BYTES_KEPT) / 4;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let message = messages.recv_timeout(left.min(WATCH_PERIOD));
        // A load tells how far it is about as often: the disk is looked at whatever arrives.
        if looked.elapsed() >= WATCH_PERIOD {
            looked = Instant::now();
            if machine::disk_bytes_free(&plan.dir).is_some_and(|free| free < disk_bytes_kept) {
                told.failure = Some(format!("{DISK_FILLED} and was stopped"));
                told.was_stopped = true;
                break;
            }
        }
        if message.as_ref().is_ok_and(|message| !matches!(message, Message::Progress(_))) {
            told.how_far = None;
            deadline = Instant::now() + step;
        }
        match message {
            Ok(Message::Begin(row)) => {
                if let Some(progress) = &progress {
                    progress.now(&format!("run {} of {}, {}, {row}", job.run, plan.runs, job.engine.name()));
                }
                told.open_row = Some(row);
            }
            Ok(Message::Progress(text)) => told.how_far = Some(text),
            Ok(Message::Measured(record)) => {
                if told.open_row.as_deref() == Some(&record.row) {
                    told.open_row = None;
                }
                told.unchecked = Some(*record);
            }
            Ok(Message::Row(record)) => {
                let weight = weights.get(record.row.as_str()).copied().unwrap_or(0).min(weight_left);
                if told.take(*record) {
                    if let Some(progress) = &mut progress {
                        progress.advance(weight);
                    }
                    weight_left -= weight;
                }
            }
            Ok(Message::Done) => break,
            Err(RecvTimeoutError::Timeout) if left > WATCH_PERIOD => {}
            Err(RecvTimeoutError::Timeout) => {
                told.failure = Some(out_of_time(step, told.how_far.as_deref()));
                told.was_stopped = true;
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                told.failure = Some("the process ended early".to_owned());
                break;
            }
        }
    }
    if let Some(progress) = &mut progress {
        progress.advance(weight_left);
    }
    Ok(told)
}

fn out_of_time(step: Duration, how_far: Option<&str>) -> String {
    let how_far = how_far.map(|text| format!(", {text}")).unwrap_or_default();
    format!("out of time after {} s{how_far}", step.as_secs())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Huge, esker, plan};
    use super::*;
    #[cfg(unix)]
    use crate::gate;
    use crate::report::summary::tests::record;
    use crate::scale::Scale;

    #[test]
    fn a_time_out_says_how_far_the_step_came() {
        let step = Duration::from_secs(150);
        assert_eq!(out_of_time(step, None), "out of time after 150 s");
        let how_far = Some("3 of 7 items written");
        assert_eq!(out_of_time(step, how_far), "out of time after 150 s, 3 of 7 items written");
    }

    #[test]
    fn the_last_word_on_a_row_counts() {
        let measured = record("redb", "scans", 1, Some(3.0));
        let mut told = Told { unchecked: Some(measured), ..Told::default() };
        let told_of = [("load", Some(1.0)), ("reads", Some(2.0)), ("load", None)];
        assert_eq!(told_of.map(|(row, value)| told.take(record("redb", row, 1, value))), [true, true, false]);
        assert!(told.unchecked.is_some(), "the row that is being checked is another");
        let values: Vec<_> = told.records.iter().map(|record| (record.row.as_str(), record.value)).collect();
        assert_eq!(values, [("load", None), ("reads", Some(2.0))]);
    }

    fn job() -> Job<'static> {
        Job {
            suite: &Huge,
            engine: esker(),
            scale: Scale::Test,
            run: 1,
            group: 0,
            commit: "",
            memory_limit: "",
        }
    }

    fn mode(step: Duration) -> Mode<'static> {
        Mode { trace: None, limit: None, memory_bytes_max: None, step }
    }

    /// What a child tells that runs this script.
    #[cfg(unix)]
    fn told_by(script: &str, step: Duration) -> Told {
        let dir = tempfile::tempdir().unwrap();
        let (plan, scratch) = (plan(dir.path()), Scratch::new(dir.path()).unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let _shut = gate::no_database_is_open();
        follow(command, &plan, &job(), &scratch, mode(step), None).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn bench_runner_5_a_child_that_is_done_and_does_not_end_is_killed() {
        let row =
            Message::Row(Box::new(Record { value: Some(1.0), ..record("esker", "load", 1, Some(1.0)) }));
        let [row, done] = [row, Message::Done].map(|message| serde_json::to_string(&message).unwrap());
        let says = format!("echo '{row}'; echo '{done}'; ");
        let told = told_by(&(says.clone() + "exec sleep 60"), Duration::from_secs(5));
        assert!(told.failure.is_none() && told.records[0].value == Some(1.0));
        assert!(told.records[0].note.contains("did not end within 5 s"), "{}", told.records[0].note);
        let told = told_by(&(says + "exec sleep 0.1"), Duration::from_secs(120));
        assert_eq!((told.records.len(), told.records[0].note.as_str()), (1, ""), "one that ends is let end");
    }

    #[test]
    fn the_end_of_a_child_is_short_unless_it_is_traced() {
        let mode = mode(Duration::from_secs(3600));
        assert_eq!(mode.end_max(), END_MAX);
        assert_eq!(Mode { trace: Some(Path::new("trace")), ..mode }.end_max(), mode.step);
        assert_eq!(Mode { step: Duration::from_secs(2), ..mode }.end_max(), Duration::from_secs(2));
    }

    #[test]
    fn bench_runner_5_a_child_is_told_how_long_a_step_may_take() {
        let command = command(&job(), Path::new("lab"), Path::new("db"), mode(Duration::from_secs(150)));
        let told = command.get_envs().find(|(name, _)| *name == parent::STEP_SECONDS).unwrap().1;
        assert_eq!(told.unwrap(), "150");
    }
}
