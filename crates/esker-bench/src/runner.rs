//! Runs a suite: a fresh process and a fresh directory per engine and run, engines taking turns.
//!
//! ```text
//! traced once:  esker lmdb redb            -> syncs per commit
//! run 1..N:     esker lmdb redb, esker ... -> Record lines
//! ```
//!
//! N1. Every engine and run gives a record for every row (R1): what a child did not tell, because it crashed, failed, was
//!     killed or ran out of time, is filled in with an error.
//! N2. A row whose commits must sync and were seen not to sync has an error instead of a value.
//! N3. The scratch directory is empty before each child and gone after the run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::{self, Job};
use crate::machine;
use crate::progress::Progress;
use crate::scale::Scale;
use crate::suites::{Commits, Suite};
use crate::syncs;
use esker_bench_api::results::{Message, Record};
use esker_bench_api::{Engine, Failure};

/// How the error of a row begins that an earlier failure kept from running.
const NOT_RUN: &str = "not run";
const SCRATCH: &str = "esker-bench-data";
const STDERR_BYTES_SHOWN: usize = 600;

/// What to run.
pub(crate) struct Plan {
    pub(crate) suite: &'static dyn Suite,
    pub(crate) engines: Vec<&'static dyn Engine>,
    pub(crate) scale: Scale,
    pub(crate) runs: u32,
    /// Where databases are made.
    pub(crate) dir: PathBuf,
    /// How long one engine may take for one run.
    pub(crate) timeout: Duration,
    pub(crate) commit: String,
}

/// Runs the plan; `keep` is handed every record as soon as it is known.
pub(crate) fn run(plan: &Plan, keep: &mut dyn FnMut(&Record) -> Result<(), Failure>) -> Result<(), Failure> {
    let scratch = Scratch::new(&plan.dir)?;
    check_disk_space(plan)?;
    let weight: u64 = plan.suite.rows(plan.scale).iter().map(|row| row.weight).sum();
    let mut progress = Progress::new(weight * u64::from(plan.runs) * plan.engines.len() as u64);
    let syncs = trace_syncs(plan, &scratch, &progress)?;
    for run in 1..=plan.runs {
        for engine in &plan.engines {
            let job =
                Job { suite: plan.suite, engine: *engine, scale: plan.scale, run, commit: &plan.commit };
            let start = Instant::now();
            scratch.clear()?;
            machine::settle_disk();
            let told = run_child(plan, &job, &scratch, None, Some(&mut progress))?;
            let records = complete(&job, told);
            for mut record in records {
                hold_against_trace(&mut record, &job, syncs.get(engine.name()));
                keep(&record)?;
                if let Some(error) = record.error.as_ref().filter(|error| !error.starts_with(NOT_RUN)) {
                    progress.note(&format!("{}, {}: {error}", engine.name(), record.row), true);
                }
            }
            let seconds = start.elapsed().as_secs_f64();
            progress
                .note(&format!("run {run} of {}: {} took {seconds:.1} s", plan.runs, engine.name()), false);
        }
    }
    progress.finish();
    Ok(())
}

fn check_disk_space(plan: &Plan) -> Result<(), Failure> {
    let needed = plan.suite.disk_bytes_max(plan.scale);
    match machine::disk_bytes_free(&plan.dir) {
        Some(free) if free < needed => Err(Failure::Engine(format!(
            "{} has {} MB free; this scale may need {} MB. Choose another directory with --dir, or a smaller --scale",
            plan.dir.display(),
            free / 1_000_000,
            needed / 1_000_000
        ))),
        _ => Ok(()),
    }
}

/// What one child told before it ended, and how it ended.
struct Told {
    records: Vec<Record>,
    /// The row that had begun and not ended.
    open_row: Option<String>,
    /// Why there is no more.
    failure: Option<String>,
}

fn run_child(
    plan: &Plan,
    job: &Job<'_>,
    scratch: &Scratch,
    trace: Option<&Path>,
    progress: Option<&mut Progress>,
) -> Result<Told, Failure> {
    let stderr_path = scratch.path.join("stderr");
    let stderr = File::create(&stderr_path).map_err(Failure::engine)?;
    let dir = scratch.path.join("db");
    fs::create_dir(&dir).map_err(Failure::engine)?;
    let mut child = command(job, &dir, trace)?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(Failure::engine)?;
    let mut told = listen(plan, job, &mut child, progress)?;
    if told.failure.is_some() {
        // Already dead, or past its time: either way nothing it still does counts.
        drop(child.kill());
    }
    let status = child.wait().map_err(Failure::engine)?;
    if let Some(failure) = &mut told.failure {
        let stderr = fs::read(&stderr_path).unwrap_or_default();
        let tail = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(STDERR_BYTES_SHOWN)..]);
        *failure = format!("{failure} ({status}) {}", tail.trim().replace('\n', " | ")).trim().to_owned();
    }
    Ok(told)
}

fn command(job: &Job<'_>, dir: &Path, trace: Option<&Path>) -> Result<Command, Failure> {
    let program = std::env::current_exe().map_err(Failure::engine)?;
    let mut command = match trace {
        None => Command::new(program),
        Some(trace) => syncs::traced(program.as_os_str(), trace),
    };
    command.args(["child", job.suite.name(), job.engine.name(), job.scale.name()]);
    command.arg(job.run.to_string()).arg(dir).args(["--commit", job.commit]);
    if trace.is_some() {
        command.arg("--traced");
    }
    Ok(command)
}

/// Follows a child's messages to its end or to the end of its time.
fn listen(
    plan: &Plan,
    job: &Job<'_>,
    child: &mut Child,
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
    let weights: BTreeMap<_, _> =
        job.suite.rows(job.scale).iter().map(|row| (row.name, row.weight)).collect();
    let deadline = Instant::now() + plan.timeout;
    let mut told = Told { records: Vec::new(), open_row: None, failure: None };
    let mut weight_left: u64 = weights.values().sum();
    loop {
        match messages.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Message::Begin(row)) => {
                if let Some(progress) = &progress {
                    progress.now(&format!("run {} of {}, {}, {row}", job.run, plan.runs, job.engine.name()));
                }
                told.open_row = Some(row);
            }
            Ok(Message::Row(record)) => {
                let weight = weights.get(record.row.as_str()).copied().unwrap_or(0).min(weight_left);
                if let Some(progress) = &mut progress {
                    progress.advance(weight);
                }
                weight_left -= weight;
                if told.open_row.as_deref() == Some(&record.row) {
                    told.open_row = None;
                }
                told.records.push(*record);
            }
            Ok(Message::Done) => break,
            Err(RecvTimeoutError::Timeout) => {
                told.failure = Some(format!("out of time after {} s", plan.timeout.as_secs()));
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

/// N1.
fn complete(job: &Job<'_>, told: Told) -> Vec<Record> {
    let mut records = told.records;
    let failure = told.failure.unwrap_or_else(|| "the process did not report this row".to_owned());
    let open_row = told.open_row;
    for row in job.suite.rows(job.scale) {
        if records.iter().any(|record| record.row == row.name) {
            continue;
        }
        let error = match &open_row {
            Some(open) if open != row.name => format!("{NOT_RUN}: {open} failed"),
            _ => failure.clone(),
        };
        records.push(Record {
            row: row.name.to_owned(),
            unit: row.unit,
            better: row.better,
            ops: row.ops,
            error: Some(error),
            ..job.blank()
        });
    }
    records
}

type SyncsPerCommit = BTreeMap<&'static str, f64>;

/// Runs every engine once under a tracer at the smallest scale; no engine is listed where there is no tracer.
fn trace_syncs(
    plan: &Plan,
    scratch: &Scratch,
    progress: &Progress,
) -> Result<BTreeMap<&'static str, SyncsPerCommit>, Failure> {
    let mut found = BTreeMap::new();
    if !syncs::tracer_works() {
        progress.note("strace is not installed: syncs per commit are not traced", true);
        return Ok(found);
    }
    let scale = Scale::Test;
    for engine in &plan.engines {
        progress.now(&format!("counting the syncs of {}", engine.name()));
        scratch.clear()?;
        let trace = scratch.path.join("trace");
        let job = Job { suite: plan.suite, engine: *engine, scale, run: 0, commit: "" };
        run_child(plan, &job, scratch, Some(&trace), None)?;
        let syncs = syncs::parse(&fs::read_to_string(&trace).unwrap_or_default());
        let per_commit = plan.suite.rows(scale).into_iter().filter_map(|row| {
            let syncs = *syncs.get(row.name)?;
            (row.commits != Commits::None).then(|| (row.name, syncs as f64 / row.commits.count() as f64))
        });
        found.insert(engine.name(), per_commit.collect());
    }
    Ok(found)
}

/// N2.
fn hold_against_trace(record: &mut Record, job: &Job<'_>, syncs: Option<&SyncsPerCommit>) {
    let Some(syncs) = syncs else { return };
    let Some(row) = job.suite.rows(job.scale).into_iter().find(|row| row.name == record.row) else { return };
    record.syncs_per_commit = syncs.get(row.name).copied();
    if let (Commits::Sync(_), Some(syncs), None) = (row.commits, record.syncs_per_commit, &record.error)
        && syncs < 1.0
    {
        record.value = None;
        record.error = Some(format!("does not sync: {syncs:.2} syncs per commit where each must sync"));
    }
}

/// The directory in which children work (N3).
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(dir: &Path) -> Result<Self, Failure> {
        let scratch = Self { path: dir.join(SCRATCH) };
        scratch.clear()?;
        Ok(scratch)
    }

    fn clear(&self) -> Result<(), Failure> {
        if self.path.exists() {
            fs::remove_dir_all(&self.path).map_err(Failure::engine)?;
        }
        fs::create_dir_all(&self.path).map_err(Failure::engine)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{} could not be removed: {error}", self.path.display());
        }
    }
}
