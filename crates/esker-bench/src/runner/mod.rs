//! Runs a suite: a fresh process and a fresh directory per engine and run, engines taking turns.
//!
//! ```text
//! traced once:          esker lmdb redb                  -> syncs per commit
//! run 1..N, each group: esker lmdb redb, lmdb redb esker -> Record lines
//! ```
//!
//! To read the source: this file says what runs when; `process.rs` starts a child and follows what it tells;
//! `records.rs` makes the rows of it; `trace.rs` counts the syncs; `scratch.rs` is where children work.
//!
//! bench_runner.1. Every engine and run gives a record for every row: what a child did not tell, because it
//!     crashed, failed, was killed or ran out of time, is filled in with an error. So is what could not be
//!     started: no disk space, no control group.
//! bench_runner.2. A row whose commits must sync and were seen not to sync has an error instead of a value.
//!     One that asks for no sync and was seen to sync at most of its commits has a note, if these were enough
//!     to tell.
//! bench_runner.3. The scratch directory is empty before each child and gone after the run.
//! bench_runner.4. With `done`, what an earlier, interrupted run has finished is not run again, nor traced. A
//!     group is never finished whose turn was refused, for want of disk space or of a control group: nothing
//!     of it ran. Of engines and runs that are to be retried none is finished in which time ended, a row was
//!     not run, or the disk was filled; of others it stays as it is.
//! bench_runner.5. The time limit is that of one step: of what comes before the first row (a load), of each
//!     row, and of what follows it (its background work, its check, the load of the next). A child is told of
//!     it, and no wait for background work takes more than a quarter of it. A row that was measured keeps its
//!     value when time ends in the step after it, with a note. A step under the tracer, which does almost no
//!     work, has no more than scale `test` gives. A child that is done has a minute to end.
//! bench_runner.6. From `stop_at` on no turn begins: what has begun goes on to its end, and what is left is
//!     reported and has no record.
//! bench_runner.7. Of `parts`, if there are any, and of no other group something is run, each in the order
//!     that it has in the whole run.
//! bench_runner.8. Engines take turns within each group of a run, and another of them is the first in each:
//!     by the numbers of run and group alone, so that a run that was interrupted goes on in the same order.

mod process;
mod records;
mod scratch;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use self::process::{Mode, Told, run_child};
use self::records::{NOT_RUN, complete};
use self::scratch::Scratch;
use self::trace::{hold_against_trace, trace_syncs};
use crate::child::Job;
use crate::limit::Limit;
use crate::machine;
use crate::progress::Progress;
use crate::report::summary::is_lacking;
use crate::scale::Scale;
use crate::suites::Suite;
use esker_bench_api::results::Record;
use esker_bench_api::{Engine, Failure};

/// What to run.
pub(crate) struct Plan {
    pub(crate) suite: &'static dyn Suite,
    pub(crate) engines: Vec<&'static dyn Engine>,
    pub(crate) scale: Scale,
    pub(crate) runs: u32,
    /// Where databases are made.
    pub(crate) dir: PathBuf,
    /// How long one step of an engine may take (bench_runner.5).
    pub(crate) timeout: Duration,
    pub(crate) commit: String,
    /// bench_runner.4: engine, run, group.
    pub(crate) done: BTreeSet<(String, u32, usize)>,
    /// Whether syncs are counted first.
    pub(crate) trace: bool,
    /// Whether the device is trimmed before each turn.
    pub(crate) trim: bool,
    /// bench_runner.6.
    pub(crate) stop_at: Option<Instant>,
    /// bench_runner.7: groups, from 0.
    pub(crate) parts: Vec<usize>,
}

impl Plan {
    /// bench_runner.6.
    fn is_over(&self) -> bool {
        self.stop_at.is_some_and(|end| Instant::now() >= end)
    }
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
    let has_space = todo.iter().any(|(_, group, _)| no_disk_space(plan, *group).is_none());
    let syncs = if !has_space || plan.is_over() {
        BTreeMap::new()
    } else {
        trace_syncs(plan, &todo, &programs, &scratch, &progress)?
    };
    let turns = todo.len();
    for (turn, (run, group, engine)) in todo.into_iter().enumerate() {
        if plan.is_over() {
            let (left, suite) = (turns - turn, plan.suite.name());
            progress.note(&format!("suite {suite}: {left} of {turns} turns are left for --resume"), true);
            break;
        }
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
        if plan.trim {
            machine::trim(&plan.dir).map_err(|why| {
                Failure::Engine(format!(
                    "the device could not be trimmed: {why}; without --trim the run says that it was not"
                ))
            })?;
        }
        let limit = limit.map_err(|error| format!("{NOT_LIMITED}: {error}"));
        let ready = match (&programs[engine.name()], limit, no_disk_space(plan, group)) {
            (_, _, Some(why)) => Err(why),
            (Err(why), _, _) => Err(why.clone()),
            (_, Err(why), _) => Err(why),
            (Ok(program), Ok(limit), None) => Ok((program, limit)),
        };
        let told = match ready {
            Ok((program, limit)) => {
                let mode = Mode { trace: None, limit: limit.as_ref(), memory_bytes_max, step: plan.timeout };
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
            if let Some(error) =
                record.error.as_ref().filter(|error| !error.starts_with(NOT_RUN) && !is_lacking(error))
            {
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

/// How the error of a row begins whose time ended.
const OUT_OF_TIME: &str = "out of time";
/// And of what the machine had no room for.
const NO_DISK_SPACE: &str = "the disk has";
const DISK_FILLED: &str = "filled the disk";
const NOT_LIMITED: &str = "its memory could not be limited";
/// Errors that do not say all of the engine: with more time, or on a machine with more room, there may be a
/// value.
const MAY_PASS: [&str; 3] = [OUT_OF_TIME, NOT_RUN, DISK_FILLED];
/// Errors of a turn that was refused, which say nothing of the engine.
const REFUSED: [&str; 2] = [NO_DISK_SPACE, NOT_LIMITED];

/// Takes from `records` what a run has finished of this suite: keeps its whole groups and forgets the rest
/// (bench_runner.4). `retried` has the engines to run again, and the number of runs, from the first on, in
/// which they are.
pub(crate) fn take_done(
    suite: &dyn Suite,
    scale: Scale,
    records: &mut Vec<Record>,
    retried: (&[&dyn Engine], u32),
) -> BTreeSet<(String, u32, usize)> {
    let rows = suite.rows(scale);
    let group_of = |row: &str| rows.iter().find(|known| known.name == row).map(|known| known.group);
    let is_ours = |record: &Record| record.suite == suite.name() && record.scale == scale.name();
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
        .filter(|(key, count)| *count == whole(key.2) && !again.contains(key))
        .map(|(key, _)| key)
        .collect();
    records.retain(|record| {
        !is_ours(record)
            || group_of(&record.row)
                .is_some_and(|group| done.contains(&(record.engine.clone(), record.run, group)))
    });
    done
}

/// Run, group, engine.
type Todo = Vec<(u32, usize, &'static dyn Engine)>;

/// Engines take turns within each group (bench_runner.8).
fn todo(plan: &Plan) -> Todo {
    let mut todo = Vec::new();
    for run in 1..=plan.runs {
        // bench_runner.7
        let is_asked_for = |group: &usize| plan.parts.is_empty() || plan.parts.contains(group);
        for group in (0..plan.suite.groups(plan.scale)).filter(is_asked_for) {
            let mut engines = plan.engines.clone();
            // bench_runner.8
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

/// This program, for each engine that can run; or why it cannot.
fn programs(plan: &Plan) -> Programs {
    let engines = plan.engines.iter();
    let program = |engine: &&'static dyn Engine| {
        let reason = engine.cannot_run(plan.suite.name()).map(Failure::Unsupported);
        let ready = reason.map_or_else(|| engine.prepare(), Err);
        let program = ready.and_then(|()| std::env::current_exe().map_err(Failure::engine));
        (engine.name(), program.map_err(|failure| failure.to_string()))
    };
    engines.map(program).collect()
}

/// Why the disk is too small for this group now; `None` where it is not.
fn no_disk_space(plan: &Plan, group: usize) -> Option<String> {
    let needed = plan.suite.disk_bytes_max(plan.scale, group);
    let free = machine::disk_bytes_free(&plan.dir).filter(|free| *free < needed)?;
    Some(format!(
        "{NO_DISK_SPACE} {} MB free; this part of the suite may need {} MB. Choose another directory with --dir, or a smaller --scale",
        free / 1_000_000,
        needed / 1_000_000
    ))
}

#[cfg(test)]
mod tests;
