//! Runs a suite: a fresh process and a fresh directory per engine and run, engines taking turns.
//!
//! ```text
//! traced once:          esker lmdb redb            -> syncs per commit
//! run 1..N, each group: esker lmdb redb, esker ... -> Record lines
//! ```
//!
//! N1. Every engine and run gives a record for every row (R1): what a child did not tell, because it crashed, failed, was
//!     killed or ran out of time, is filled in with an error. So is what could not be started: no disk space, no control group.
//! N2. A row whose commits must sync and were seen not to sync has an error instead of a value. One that asks for no sync and was
//!     seen to sync at most of its commits has a note.
//! N3. The scratch directory is empty before each child and gone after the run.
//! N4. With `done`, what an earlier, interrupted run has finished is not run again.
//! N5. The time limit is that of one step: of what comes before the first row (a load), of each row, and of what follows it (its background work,
//!     its check, the load of the next). A row that was measured keeps its value when time ends in the step after it, with a note.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::{self, Job};
use crate::limit::Limit;
use crate::machine;
use crate::progress::Progress;
use crate::scale::Scale;
use crate::suites::{Commits, Row, Suite};
use crate::syncs;
use esker_bench_api::results::{Message, Record};
use esker_bench_api::{Engine, Failure};

/// How the error of a row begins that an earlier failure kept from running.
const NOT_RUN: &str = "not run";
const SCRATCH: &str = "esker-bench-data";
/// How often the disk is looked at while an engine works.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// What a suite's memory limit leaves to a collector of garbage, which has to be told: the rest is for the page cache.
const COLLECTOR_SHARE: f64 = 7.0 / 8.0;
/// Syncs per commit from which a row that asks for none has to explain itself: background syncs are far below.
const UNASKED_SYNCS_MIN: f64 = 0.5;
/// What is left of the disk when an engine is stopped, or a quarter of what was free when it began.
const DISK_BYTES_KEPT: u64 = 2 << 30;
/// What stands in the note of a row that syncs unasked when its adapter has no reason for it.
const UNEXPLAINED: &str = "its adapter knows no reason";
const STDERR_BYTES_SHOWN: usize = 600;

/// What to run.
pub(crate) struct Plan {
    pub(crate) suite: &'static dyn Suite,
    pub(crate) engines: Vec<&'static dyn Engine>,
    pub(crate) scale: Scale,
    pub(crate) runs: u32,
    /// Where databases are made.
    pub(crate) dir: PathBuf,
    /// How long one step of an engine may take (N5).
    pub(crate) timeout: Duration,
    pub(crate) commit: String,
    /// N4: engine, run, group.
    pub(crate) done: BTreeSet<(String, u32, usize)>,
    /// Whether syncs are counted first.
    pub(crate) trace: bool,
}

/// Runs the plan; `keep` is handed every record as soon as it is known.
pub(crate) fn run(plan: &Plan, keep: &mut dyn FnMut(&Record) -> Result<(), Failure>) -> Result<(), Failure> {
    let scratch = Scratch::new(&plan.dir)?;
    let todo = todo(plan);
    let weight = |group| -> u64 {
        let rows = plan.suite.rows(plan.scale).into_iter();
        rows.filter(|row| row.group == group).map(|row| row.weight).sum()
    };
    let mut progress = Progress::new(todo.iter().map(|(_, group, _)| weight(*group)).sum());
    let programs = programs(plan);
    let no_space = no_disk_space(plan);
    let syncs =
        if no_space.is_some() { BTreeMap::new() } else { trace_syncs(plan, &programs, &scratch, &progress)? };
    for (run, group, engine) in todo {
        let memory_bytes_max = plan.suite.memory_bytes_max(group);
        let limit = memory_bytes_max.map_or(Ok(None), Limit::new);
        let memory_limit = match (&limit, memory_bytes_max) {
            (Ok(Some(limit)), _) => limit.description.clone(),
            (_, Some(_)) => {
                "only the cache, by the engine's option: no control group can be made here".to_owned()
            }
            (_, None) => "only the cache, by the engine's option".to_owned(),
        };
        let job = Job {
            suite: plan.suite,
            engine,
            scale: plan.scale,
            run,
            group,
            commit: &plan.commit,
            memory_limit: &memory_limit,
        };
        let start = Instant::now();
        scratch.clear()?;
        if plan.scale != Scale::Test {
            machine::settle_disk();
        }
        let limit = limit.map_err(|error| format!("its memory could not be limited: {error}"));
        let ready = match (&programs[engine.name()], limit, &no_space) {
            (_, _, Some(why)) => Err(why.clone()),
            (Err(why), _, _) => Err(why.clone()),
            (_, Err(why), _) => Err(why),
            (Ok(program), Ok(limit), None) => Ok((program, limit)),
        };
        let told = match ready {
            Ok((program, limit)) => {
                let mode = Mode { trace: None, limit: limit.as_ref(), memory_bytes_max };
                run_child(plan, &job, &scratch, program, mode, Some(&mut progress))?
            }
            Err(why) => {
                progress.advance(weight(group));
                Told { failure: Some(why), ..Told::default() }
            }
        };
        for mut record in complete(&job, told) {
            hold_against_trace(&mut record, &job, syncs.get(engine.name()));
            keep(&record)?;
            if let Some(error) = record.error.as_ref().filter(|error| !error.starts_with(NOT_RUN)) {
                progress.note(&format!("{}, {}: {error}", engine.name(), record.row), true);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let part =
            if plan.suite.groups(plan.scale) > 1 { format!(", part {}", group + 1) } else { String::new() };
        progress
            .note(&format!("run {run} of {}{part}: {} took {seconds:.1} s", plan.runs, engine.name()), false);
    }
    progress.finish();
    Ok(())
}

/// Takes from `records` what a run has finished of this suite: keeps its whole groups and forgets the rest (N4).
pub(crate) fn take_done(
    suite: &dyn Suite,
    scale: Scale,
    records: &mut Vec<Record>,
) -> BTreeSet<(String, u32, usize)> {
    let rows = suite.rows(scale);
    let group_of = |row: &str| rows.iter().find(|known| known.name == row).map(|known| known.group);
    let is_ours = |record: &Record| record.suite == suite.name() && record.scale == scale.name();
    let mut seen: BTreeMap<(String, u32, usize), usize> = BTreeMap::new();
    for record in records.iter().filter(|record| is_ours(record)) {
        if let Some(group) = group_of(&record.row) {
            *seen.entry((record.engine.clone(), record.run, group)).or_default() += 1;
        }
    }
    let whole = |group: usize| rows.iter().filter(|row| row.group == group).count();
    let done: BTreeSet<_> = seen
        .into_iter()
        .filter(|((_, _, group), count)| *count == whole(*group))
        .map(|(key, _)| key)
        .collect();
    records.retain(|record| {
        !is_ours(record)
            || group_of(&record.row)
                .is_some_and(|group| done.contains(&(record.engine.clone(), record.run, group)))
    });
    done
}

/// Run, group, engine: engines take turns within each group.
fn todo(plan: &Plan) -> Vec<(u32, usize, &'static dyn Engine)> {
    let mut todo = Vec::new();
    for run in 1..=plan.runs {
        for group in 0..plan.suite.groups(plan.scale) {
            let engines = plan.engines.iter().copied();
            let left = engines.filter(|engine| !plan.done.contains(&(engine.name().to_owned(), run, group)));
            todo.extend(left.map(|engine| (run, group, engine)));
        }
    }
    todo
}

type Programs = BTreeMap<&'static str, Result<PathBuf, String>>;

/// The program that runs each engine, which is this one, unless the engine has its own; or why none does.
fn programs(plan: &Plan) -> Programs {
    let engines = plan.engines.iter();
    let program = |engine: &&'static dyn Engine| {
        let reason = engine.cannot_run(plan.suite.name()).map(Failure::Unsupported);
        let program = reason.map_or_else(|| engine.program(), Err).and_then(|program| match program {
            Some(program) => Ok(program),
            None => std::env::current_exe().map_err(Failure::engine),
        });
        (engine.name(), program.map_err(|failure| failure.to_string()))
    };
    engines.map(program).collect()
}

/// How a child is run.
#[derive(Clone, Copy)]
struct Mode<'a> {
    trace: Option<&'a Path>,
    limit: Option<&'a Limit>,
    memory_bytes_max: Option<u64>,
}

/// Why the disk is too small for this suite; `None` where it is not.
fn no_disk_space(plan: &Plan) -> Option<String> {
    let needed = plan.suite.disk_bytes_max(plan.scale);
    let free = machine::disk_bytes_free(&plan.dir).filter(|free| *free < needed)?;
    Some(format!(
        "{} has {} MB free; this scale may need {} MB. Choose another directory with --dir, or a smaller --scale",
        plan.dir.display(),
        free / 1_000_000,
        needed / 1_000_000
    ))
}

/// What one child told before it ended, and how it ended.
#[derive(Default)]
struct Told {
    records: Vec<Record>,
    /// The row that had begun and was not measured.
    open_row: Option<String>,
    /// The row that was measured and not checked yet.
    unchecked: Option<Record>,
    /// Why there is no more.
    failure: Option<String>,
    /// Whether it was the lab that ended it, at the end of its time or of the disk.
    was_stopped: bool,
}

fn run_child(
    plan: &Plan,
    job: &Job<'_>,
    scratch: &Scratch,
    program: &Path,
    mode: Mode<'_>,
    progress: Option<&mut Progress>,
) -> Result<Told, Failure> {
    let stderr_path = scratch.path.join("stderr");
    let stderr = File::create(&stderr_path).map_err(Failure::engine)?;
    let dir = scratch.path.join("db");
    fs::create_dir(&dir).map_err(Failure::engine)?;
    let mut command = command(job, program, &dir, mode.trace);
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
        Ok(()) => listen(plan, job, &mut child, progress)?,
        Err(error) => {
            let failure = Some(format!("its memory could not be limited: {error}"));
            Told { failure, was_stopped: true, ..Told::default() }
        }
    };
    if told.failure.is_some() {
        // Already dead, or past its time: either way nothing it still does counts.
        drop(child.kill());
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

fn command(job: &Job<'_>, program: &Path, dir: &Path, trace: Option<&Path>) -> Command {
    let mut command = match trace {
        None => Command::new(program),
        Some(trace) => syncs::traced(program.as_os_str(), trace),
    };
    command.args(["child", job.suite.name(), job.engine.name(), job.scale.name()]);
    command.arg(job.run.to_string()).arg(dir).args(["--commit", job.commit]);
    command.args(["--group", &job.group.to_string(), "--memory-limit", job.memory_limit]);
    if trace.is_some() {
        command.arg("--traced");
    }
    command
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
    let weights: BTreeMap<_, _> = job.rows().into_iter().map(|row| (row.name, row.weight)).collect();
    // N5
    let mut deadline = Instant::now() + plan.timeout;
    let mut told = Told::default();
    let mut weight_left: u64 = weights.values().sum();
    let disk_bytes_kept = machine::disk_bytes_free(&plan.dir).unwrap_or(0).min(4 * DISK_BYTES_KEPT) / 4;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let message = messages.recv_timeout(left.min(WATCH_PERIOD));
        if message.is_ok() {
            deadline = Instant::now() + plan.timeout;
        }
        match message {
            Ok(Message::Begin(row)) => {
                if let Some(progress) = &progress {
                    progress.now(&format!("run {} of {}, {}, {row}", job.run, plan.runs, job.engine.name()));
                }
                told.open_row = Some(row);
            }
            Ok(Message::Measured(record)) => {
                if told.open_row.as_deref() == Some(&record.row) {
                    told.open_row = None;
                }
                told.unchecked = Some(*record);
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
                told.unchecked = None;
                told.records.push(*record);
            }
            Ok(Message::Done) => break,
            Err(RecvTimeoutError::Timeout) if left > WATCH_PERIOD => {
                if machine::disk_bytes_free(&plan.dir).is_some_and(|free| free < disk_bytes_kept) {
                    told.failure = Some("filled the disk and was stopped".to_owned());
                    told.was_stopped = true;
                    break;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                told.failure = Some(format!("out of time after {} s", plan.timeout.as_secs()));
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

/// N1, N5.
fn complete(job: &Job<'_>, told: Told) -> Vec<Record> {
    let mut records = told.records;
    let failure = told.failure.unwrap_or_else(|| "the process did not report this row".to_owned());
    let (mut culprit, mut what) = (told.open_row, "failed");
    if let Some(mut record) = told.unchecked {
        culprit = Some(record.row.clone());
        // An engine that fails by itself while its row is checked has no value; one that was stopped was only slow.
        if told.was_stopped {
            what = "was measured, and what follows it did not end";
            add_note(
                &mut record,
                &format!("what follows the row, its check included, did not end: {failure}"),
            );
            records.push(record);
        }
    }
    for row in job.rows() {
        if records.iter().any(|record| record.row == row.name) {
            continue;
        }
        let error = match &culprit {
            Some(culprit) if *culprit != row.name => format!("{NOT_RUN}: {culprit} {what}"),
            _ => failure.clone(),
        };
        records.push(Record {
            row: row.name,
            unit: row.unit,
            better: row.better,
            ops: row.ops,
            error: Some(error),
            ..job.blank()
        });
    }
    records
}

fn add_note(record: &mut Record, note: &str) {
    if !record.note.is_empty() {
        record.note += "; ";
    }
    record.note += note;
}

type SyncsPerCommit = BTreeMap<String, f64>;

/// Runs every engine once under a tracer at the smallest scale; no engine is listed where there is no tracer.
fn trace_syncs(
    plan: &Plan,
    programs: &Programs,
    scratch: &Scratch,
    progress: &Progress,
) -> Result<BTreeMap<&'static str, SyncsPerCommit>, Failure> {
    let mut found = BTreeMap::new();
    if !plan.trace {
        return Ok(found);
    }
    if !syncs::tracer_works() {
        progress.note("strace is not installed: syncs per commit are not traced", true);
        return Ok(found);
    }
    let scale = Scale::Test;
    for engine in &plan.engines {
        progress.now(&format!("counting the syncs of {}", engine.name()));
        let mut per_commit = SyncsPerCommit::new();
        for group in 0..plan.suite.groups(scale) {
            let Ok(program) = &programs[engine.name()] else { continue };
            scratch.clear()?;
            let trace = scratch.path.join("trace");
            let job = Job {
                suite: plan.suite,
                engine: *engine,
                scale,
                run: 0,
                group,
                commit: "",
                memory_limit: "",
            };
            if job.rows().iter().all(|row| row.commits == Commits::None) {
                continue;
            }
            let told = run_child(
                plan,
                &job,
                scratch,
                program,
                Mode { trace: Some(&trace), limit: None, memory_bytes_max: None },
                None,
            )?;
            let syncs = syncs::parse(&fs::read_to_string(&trace).unwrap_or_default());
            for record in told.records.iter().filter(|record| record.commits > 0 && record.error.is_none()) {
                if let Some(syncs) = syncs.get(&record.row) {
                    per_commit.insert(record.row.clone(), *syncs as f64 / record.commits as f64);
                }
            }
        }
        found.insert(engine.name(), per_commit);
    }
    Ok(found)
}

/// The row of the traced scale that stands for this one: some names tell counts, which differ by scale.
fn traced_name(job: &Job<'_>, row: &Row) -> String {
    let names = |scale: Scale| {
        let rows = job.suite.rows(scale).into_iter().filter(|row| row.group == job.group);
        rows.map(|row| row.name).collect::<Vec<_>>()
    };
    let at = names(job.scale).iter().position(|name| *name == row.name);
    at.and_then(|at| names(Scale::Test).into_iter().nth(at)).unwrap_or_else(|| row.name.clone())
}

/// N2.
fn hold_against_trace(record: &mut Record, job: &Job<'_>, syncs: Option<&SyncsPerCommit>) {
    let Some(syncs) = syncs else { return };
    let Some(row) = job.rows().into_iter().find(|row| row.name == record.row) else { return };
    record.syncs_per_commit = syncs.get(&traced_name(job, &row)).copied();
    let (Some(syncs), None) = (record.syncs_per_commit, &record.error) else { return };
    match row.commits {
        Commits::Sync(_) if syncs < job.suite.syncs_per_commit_min(job.group) => {
            record.value = None;
            record.error = Some(format!("does not sync: {syncs:.2} syncs per commit where each must sync"));
        }
        Commits::NoSync(_) if syncs >= UNASKED_SYNCS_MIN => {
            let why = job.engine.syncs_unasked().unwrap_or(UNEXPLAINED);
            add_note(record, &format!("{syncs:.2} syncs per commit where none is asked for: {why}"));
        }
        _ => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    /// A suite of two rows that needs more disk than there is.
    struct Huge;

    impl Suite for Huge {
        fn name(&self) -> &'static str {
            "huge"
        }
        fn summary(&self) -> &'static str {
            ""
        }
        fn rows(&self, _scale: Scale) -> Vec<Row> {
            ["load", "reads"].map(|name| Row::time(name, "")).to_vec()
        }
        fn disk_bytes_max(&self, _scale: Scale) -> u64 {
            u64::MAX
        }
        fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
            None
        }
        fn run(&self, _: &dyn Engine, _: Scale, _: usize, _: &mut Recorder) -> Result<(), Failure> {
            panic!("nothing of it may run")
        }
    }

    fn esker() -> &'static dyn Engine {
        crate::engines::find("esker").unwrap()
    }

    #[test]
    fn n1_a_suite_without_disk_space_gives_rows_and_does_not_end_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan {
            suite: &Huge,
            engines: vec![esker()],
            scale: Scale::Test,
            runs: 2,
            dir: dir.path().to_path_buf(),
            timeout: Duration::from_secs(1),
            commit: String::new(),
            done: BTreeSet::new(),
            trace: true,
        };
        let mut errors = Vec::new();
        let mut keep = |record: &Record| {
            errors.push(record.error.clone().unwrap());
            Ok(())
        };
        run(&plan, &mut keep).unwrap();
        assert_eq!(errors.len(), 4);
        assert!(errors.iter().all(|error| error.contains("MB free")), "{errors:?}");
    }

    #[test]
    fn n5_a_measured_row_keeps_its_value_if_the_lab_stops_what_follows_and_not_if_the_engine_fails() {
        let job = Job {
            suite: &Huge,
            engine: esker(),
            scale: Scale::Test,
            run: 1,
            group: 0,
            commit: "",
            memory_limit: "",
        };
        let told = |was_stopped| Told {
            unchecked: Some(Record { row: "load".to_owned(), value: Some(1.0), ..job.blank() }),
            failure: Some("out of time".to_owned()),
            was_stopped,
            ..Told::default()
        };
        let slow = complete(&job, told(true));
        assert_eq!((slow[0].value, slow[0].error.as_ref()), (Some(1.0), None));
        assert!(slow[0].note.contains("out of time"), "{slow:?}");
        assert!(slow[1].error.as_ref().unwrap().starts_with(NOT_RUN), "{slow:?}");
        let broken = complete(&job, told(false));
        assert_eq!((broken[0].value, broken[0].error.as_deref()), (None, Some("out of time")));
        assert_eq!(broken.len(), 2);
    }
}
