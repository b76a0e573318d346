//! Runs a suite: a fresh process and a fresh directory per engine and run, engines taking turns.
//!
//! ```text
//! traced once:          esker lmdb redb                  -> syncs per commit
//! run 1..N, each group: esker lmdb redb, lmdb redb esker -> Record lines
//! ```
//!
//! This file decides what runs when. `process.rs` starts a child and reads its messages, `records.rs` makes
//! records of them, `trace.rs` counts the syncs, and `scratch.rs` is the directory in which children work.
//!
//! - Every engine and run gives a record for every row. A row that the child did not report, because it
//!   crashed, failed, was killed or ran out of time, gets an error. So does a row that could not be started,
//!   for lack of disk space or of a control group.
//! - A row whose commits must sync has an error instead of a value if the tracer saw too few syncs. A row
//!   that asks for no sync gets a note if most of its commits synced and it has enough commits.
//! - The scratch directory is empty before each child, and removed after the run.
//! - Groups in `done`, which an interrupted run has finished, are neither run nor traced again. A group is
//!   not finished if its turn was refused, for lack of disk space or of a control group. For engines and runs
//!   to be retried, it is not finished either if time ended, a row was not run, or the disk was filled.
//! - The time limit applies to one step: the load before the first row, each row, and what follows a row
//!   (background work, check, next load). The child receives the limit, and waits for background work for at
//!   most a quarter of it. A measured row keeps its value, with a note, when time ends in the step after it.
//!   A step under the tracer does almost no work, so its limit is at most that of scale `test`. A child has a
//!   minute to exit.
//! - No turn begins after `stop_at`. A turn that has begun is finished. The remaining turns are counted in a
//!   message and have no records.
//! - If `parts` is not empty, only its groups run, in the order of the whole run.
//! - Engines take turns within each group of a run, and a different engine is first in each. The order
//!   depends only on the numbers of run and group, so an interrupted run continues in the same order.

mod process;
mod records;
mod scratch;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use self::process::{Mode, Reported, run_child};
use self::records::{NOT_RUN, complete};
pub(crate) use self::scratch::Scratch;
use self::trace::{hold_against_trace, trace_syncs};
use crate::child::Job;
use crate::limit::Limit;
use crate::machine;
use crate::progress::Progress;
use crate::report::summary::is_lacking;
use crate::scale::Scale;
use crate::suites::Suite;
use esker_bench_api::results::Record;
use esker_bench_api::{Engine, Failure, Result};

/// Name of the directory in which children work.
const SCRATCH: &str = "esker-bench-data";

/// Suites, engines and limits of a run.
pub(crate) struct Plan {
    pub(crate) suite: &'static Suite,
    pub(crate) engines: Vec<&'static dyn Engine>,
    pub(crate) scale: Scale,
    pub(crate) runs: u32,
    /// Directory for the databases.
    pub(crate) dir: PathBuf,
    /// Time limit of one step of an engine.
    pub(crate) timeout: Duration,
    pub(crate) commit: String,
    /// Finished groups: engine, run, group.
    pub(crate) done: BTreeSet<(String, u32, usize)>,
    /// Whether syncs are counted first.
    pub(crate) trace: bool,
    /// Whether the device is trimmed before each turn.
    pub(crate) trim: bool,
    /// Time after which no turn begins.
    pub(crate) stop_at: Option<Instant>,
    /// Groups to run, counted from 0; empty for all.
    pub(crate) parts: Vec<usize>,
}

impl Plan {
    /// Returns whether `stop_at` has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.stop_at.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns the share of a group in the progress bar.
    fn weight(&self, group: usize) -> u64 {
        let rows = self.suite.rows(self.scale).into_iter();
        rows.filter(|row| row.group == group).map(|row| row.weight).sum()
    }
}

/// Runs the plan. `keep` receives each record as soon as it is known.
pub(crate) fn run(plan: &Plan, keep: &mut dyn FnMut(&Record) -> Result<()>) -> Result<()> {
    let scratch = Scratch::new(&plan.dir, SCRATCH)?;
    let todo = todo(plan);
    let mut progress = Progress::new(todo.iter().map(|(_, group, _)| plan.weight(*group)).sum());
    let programs = programs(plan);
    let has_space = todo.iter().any(|(_, group, _)| no_disk_space(plan, *group).is_none());
    let syncs = if !has_space || plan.is_over() {
        BTreeMap::new()
    } else {
        trace_syncs(plan, &todo, &programs, &scratch, &progress)?
    };
    let turns = todo.len();
    for (turn, (run, group, engine)) in todo.into_iter().enumerate() {
        if plan.is_over() {
            let (left, suite) = (turns - turn, plan.suite.name);
            progress.note(&format!("suite {suite}: {left} of {turns} turns are left for --resume"), true);
            break;
        }
        let limit = (plan.suite.memory_bytes_max)(group).map_or(Ok(None), Limit::new);
        let memory_limit = described(plan, group, &limit);
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
        let reported = take_turn(plan, &job, &scratch, &programs[engine.name()], limit, &mut progress)?;
        for mut record in complete(&job, reported) {
            hold_against_trace(&mut record, &job, syncs.get(engine.name()));
            keep(&record)?;
            let is_shown = |error: &&String| !error.starts_with(NOT_RUN) && !is_lacking(error);
            if let Some(error) = record.error.as_ref().filter(is_shown) {
                progress.note(&format!("{}, {}: {error}", engine.name(), record.row), true);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let has_parts = plan.suite.groups(plan.scale) > 1;
        let part = if has_parts { format!(", part {}", group + 1) } else { String::new() };
        let (runs, name) = (plan.runs, engine.name());
        progress.note(&format!("run {run} of {runs}{part}: {name} took {seconds:.1} s"), false);
    }
    progress.finish();
    Ok(())
}

/// Describes how the memory of a turn is limited, for its records.
fn described(plan: &Plan, group: usize, limit: &io::Result<Option<Limit>>) -> String {
    match (limit, (plan.suite.memory_bytes_max)(group)) {
        (Ok(Some(limit)), _) => limit.description.clone(),
        (_, Some(_)) => {
            "only the cache, by the engine's option: no control group can be made here".to_owned()
        }
        (_, None) => "only the cache, by the engine's option".to_owned(),
    }
}

/// Runs one group of one engine in a child process, or reports why it cannot run.
fn take_turn(
    plan: &Plan,
    job: &Job<'_>,
    scratch: &Scratch,
    program: &Result<PathBuf, String>,
    limit: io::Result<Option<Limit>>,
    progress: &mut Progress,
) -> Result<Reported> {
    scratch.clear()?;
    if plan.scale != Scale::Test {
        machine::settle_disk();
    }
    if plan.trim {
        machine::trim(&plan.dir).map_err(|why| {
            Failure::Engine(format!(
                "the device could not be trimmed: {why}; without --trim the run says that it was not"
            ))
        })?;
    }
    let limit = limit.map_err(|error| format!("{NOT_LIMITED}: {error}"));
    let (program, limit) = match (program, limit, no_disk_space(plan, job.group)) {
        (Ok(program), Ok(limit), None) => (program, limit),
        (_, _, Some(why)) | (_, Err(why), _) => return Ok(refused(plan, job, why, progress)),
        (Err(why), _, _) => return Ok(refused(plan, job, why.clone(), progress)),
    };
    let memory_bytes_max = (plan.suite.memory_bytes_max)(job.group);
    let mode = Mode { trace: None, limit: limit.as_ref(), memory_bytes_max, step: plan.timeout };
    run_child(plan, job, scratch, program, mode, Some(progress))
}

fn refused(plan: &Plan, job: &Job<'_>, why: String, progress: &mut Progress) -> Reported {
    progress.advance(plan.weight(job.group));
    Reported { failure: Some(why), ..Reported::default() }
}

/// First words of the error of a row whose time ended.
const OUT_OF_TIME: &str = "out of time";
/// First words of errors that are due to the machine.
const NO_DISK_SPACE: &str = "the disk has";
const DISK_FILLED: &str = "filled the disk";
const NOT_LIMITED: &str = "its memory could not be limited";
/// Errors that may not occur with more time or disk space.
const MAY_PASS: [&str; 3] = [OUT_OF_TIME, NOT_RUN, DISK_FILLED];
/// Errors of a turn that was refused. They are not the engine's.
const REFUSED: [&str; 2] = [NO_DISK_SPACE, NOT_LIMITED];

/// Returns the finished groups of this suite, and removes the records of its other groups. `retried` has the
/// engines to retry, and the number of runs, from the first on, to which this applies. `is_finished`: the
/// records of all groups are complete, without rows that an engine does not support.
pub(crate) fn take_done(
    suite: &Suite,
    scale: Scale,
    records: &mut Vec<Record>,
    retried: (&[&dyn Engine], u32),
    is_finished: bool,
) -> BTreeSet<(String, u32, usize)> {
    let rows = suite.rows(scale);
    let group_of = |row: &str| rows.iter().find(|known| known.name == row).map(|known| known.group);
    let is_ours = |record: &Record| record.suite == suite.name && record.scale == scale.name();
    let is_retried = |record: &Record| {
        let begins = |known: &[&str]| {
            record.error.as_ref().is_some_and(|error| known.iter().any(|begin| error.starts_with(begin)))
        };
        let is_asked_for =
            retried.0.iter().any(|engine| engine.name() == record.engine) && record.run <= retried.1;
        begins(&REFUSED) || (is_asked_for && begins(&MAY_PASS))
    };
    let mut seen: BTreeMap<(String, u32, usize), usize> = BTreeMap::new();
    let mut again = BTreeSet::new();
    for record in records.iter().filter(|record| is_ours(record)) {
        if let Some(group) = group_of(&record.row) {
            let key = (record.engine.clone(), record.run, group);
            if is_retried(record) {
                again.insert(key.clone());
            }
            *seen.entry(key).or_default() += 1;
        }
    }
    let whole = |group: usize| rows.iter().filter(|row| row.group == group).count();
    let done: BTreeSet<_> = seen
        .into_iter()
        .filter(|(key, count)| (is_finished || *count == whole(key.2)) && !again.contains(key))
        .map(|(key, _)| key)
        .collect();
    records.retain(|record| {
        !is_ours(record)
            || group_of(&record.row)
                .is_some_and(|group| done.contains(&(record.engine.clone(), record.run, group)))
    });
    done
}

/// Turns: run, group, engine.
type Todo = Vec<(u32, usize, &'static dyn Engine)>;

/// Returns the turns in their order.
fn todo(plan: &Plan) -> Todo {
    let mut todo = Vec::new();
    for run in 1..=plan.runs {
        let is_asked_for = |group: &usize| plan.parts.is_empty() || plan.parts.contains(group);
        for group in (0..plan.suite.groups(plan.scale)).filter(is_asked_for) {
            let mut engines = plan.engines.clone();
            let turned = (run as usize - 1 + group) % engines.len().max(1);
            engines.rotate_left(turned);
            let left = engines
                .into_iter()
                .filter(|engine| !plan.done.contains(&(engine.name().to_owned(), run, group)));
            todo.extend(left.map(|engine| (run, group, engine)));
        }
    }
    todo
}

type Programs = BTreeMap<&'static str, Result<PathBuf, String>>;

/// Returns the path of this program for each engine that can run, or why the engine cannot.
fn programs(plan: &Plan) -> Programs {
    let engines = plan.engines.iter();
    let program = |engine: &&'static dyn Engine| {
        let reason = engine.cannot_run(plan.suite.name).map(Failure::Unsupported);
        let ready = reason.map_or_else(|| engine.prepare(), Err);
        let program = ready.and_then(|()| std::env::current_exe().map_err(Failure::engine));
        (engine.name(), program.map_err(|failure| failure.to_string()))
    };
    engines.map(program).collect()
}

/// Returns why the disk is too small for this group, or `None`.
fn no_disk_space(plan: &Plan, group: usize) -> Option<String> {
    let needed = (plan.suite.disk_bytes_max)(plan.scale, group);
    let free = machine::disk_bytes_free(&plan.dir).filter(|free| *free < needed)?;
    Some(format!(
        "{NO_DISK_SPACE} {} MB free; this part of the suite may need {} MB. Choose another directory with --dir, or a smaller --scale",
        free / 1_000_000,
        needed / 1_000_000
    ))
}

#[cfg(test)]
mod tests;
