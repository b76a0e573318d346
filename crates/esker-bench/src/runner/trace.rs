//! Counts the syncs per commit with a tracer at the smallest scale, and compares them with what a row asks
//! for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::process::{Mode, run_child};
use super::scratch::Scratch;
use super::{Plan, Programs, Todo};
use crate::child::Job;
use crate::progress::Progress;
use crate::recorder::add_note;
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::syncs;
use esker_bench_api::Result;
use esker_bench_api::results::Record;

/// A row that asks for no sync gets a note from this number of syncs per commit on. Background syncs are far
/// fewer.
const UNASKED_SYNCS_MIN: f64 = 0.5;
/// Rows with fewer commits get no such note: a first log file or a new tree alone takes a dozen syncs.
const UNASKED_COMMITS_MIN: u64 = 50;
/// Text of the note where the adapter gives no reason for the syncs.
const UNEXPLAINED: &str = "its adapter knows no reason";

pub(super) type TracedRows = BTreeMap<String, Traced>;

/// Syncs and commits that the tracer counted in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Traced {
    syncs: u64,
    commits: u64,
}

impl Traced {
    fn per_commit(self) -> f64 {
        self.syncs as f64 / self.commits as f64
    }
}

/// Runs every engine once under a tracer at the smallest scale, as far as it has groups to run and time.
/// Returns an empty map where there is no tracer.
pub(super) fn trace_syncs(
    plan: &Plan,
    todo: &Todo,
    programs: &Programs,
    scratch: &Scratch,
    progress: &Progress,
) -> Result<BTreeMap<&'static str, TracedRows>> {
    let mut found = BTreeMap::new();
    if !plan.trace {
        return Ok(found);
    }
    if !syncs::tracer_works() {
        progress.note("strace is not installed: syncs per commit are not traced", true);
        return Ok(found);
    }
    for engine in &plan.engines {
        let turns = todo.iter().filter(|(_, _, other)| other.name() == engine.name());
        let groups: BTreeSet<usize> = turns.map(|(_, group, _)| *group).collect();
        let (false, Ok(program)) = (groups.is_empty(), &programs[engine.name()]) else { continue };
        progress.now(&format!("counting the syncs of {}", engine.name()));
        let mut rows = TracedRows::new();
        for group in groups {
            if plan.is_over() {
                return Ok(found);
            }
            let job = Job {
                suite: plan.suite,
                engine: *engine,
                scale: Scale::Test,
                run: 0,
                group,
                commit: "",
                memory_limit: "",
            };
            trace_group(plan, &job, program, scratch, progress, &mut rows)?;
        }
        found.insert(engine.name(), rows);
    }
    Ok(found)
}

/// Runs one group under the tracer, and adds its rows.
fn trace_group(
    plan: &Plan,
    job: &Job<'_>,
    program: &Path,
    scratch: &Scratch,
    progress: &Progress,
    rows: &mut TracedRows,
) -> Result<()> {
    scratch.clear()?;
    if job.rows().iter().all(|row| row.commits == Commits::None) {
        return Ok(());
    }
    let trace = scratch.path.join("trace");
    let step = traced_step(plan.timeout);
    let mode = Mode { trace: Some(&trace), limit: None, memory_bytes_max: None, step };
    let reported = run_child(plan, job, scratch, program, mode, None)?;
    if let Some(failure) = reported.failure.filter(|_| reported.was_stopped) {
        progress.note(&format!("not all syncs of {} were counted: {failure}", job.engine.name()), true);
    }
    let syncs = syncs::parse(&fs::read_to_string(&trace).unwrap_or_default());
    for record in reported.records.iter().filter(|record| record.counts.commits > 0 && record.error.is_none())
    {
        if let Some(syncs) = syncs.get(&record.row) {
            rows.insert(record.row.clone(), Traced { syncs: *syncs, commits: record.counts.commits });
        }
    }
    Ok(())
}

/// Returns the time limit of a step under the tracer, given that of the run.
fn traced_step(step: Duration) -> Duration {
    step.min(Duration::from_secs(Scale::Test.seconds_max()))
}

/// Returns the name of the same row at the traced scale. Some names contain counts, which differ by scale.
fn traced_name(job: &Job<'_>, row: &Row) -> String {
    let names = |scale: Scale| {
        let rows = job.suite.rows(scale).into_iter().filter(|row| row.group == job.group);
        rows.map(|row| row.name).collect::<Vec<_>>()
    };
    let at = names(job.scale).iter().position(|name| *name == row.name);
    at.and_then(|at| names(Scale::Test).into_iter().nth(at)).unwrap_or_else(|| row.name.clone())
}

/// Adds the traced syncs to a record, and judges them.
pub(super) fn hold_against_trace(record: &mut Record, job: &Job<'_>, traced: Option<&TracedRows>) {
    let Some(traced) = traced else { return };
    let Some(row) = job.rows().into_iter().find(|row| row.name == record.row) else { return };
    let traced = traced.get(&traced_name(job, &row)).copied();
    record.counts.syncs_per_commit = traced.map(Traced::per_commit);
    let (Some(traced), None) = (traced, &record.error) else { return };
    let syncs = traced.per_commit();
    match row.commits {
        Commits::Sync(_) if syncs < (job.suite.syncs_per_commit_min)(job.group) => {
            record.value = None;
            record.error = Some(format!("does not sync: {syncs:.2} syncs per commit where each must sync"));
        }
        Commits::Async(_) | Commits::NoSync(_)
            if syncs >= UNASKED_SYNCS_MIN && traced.commits >= UNASKED_COMMITS_MIN =>
        {
            let why = job.engine.syncs_unasked().unwrap_or(UNEXPLAINED);
            let text = format!(
                "{syncs:.2} syncs per commit where none is asked for ({} commits traced): {why}",
                traced.commits
            );
            add_note(record, &text);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::job;
    use super::*;

    #[test]
    fn a_traced_step_has_the_time_of_its_own_scale() {
        let seconds = |scale: Scale| Duration::from_secs(scale.seconds_max());
        assert_eq!(traced_step(seconds(Scale::Seed)), seconds(Scale::Test));
        assert_eq!(traced_step(Duration::from_secs(7)), Duration::from_secs(7));
    }

    #[test]
    fn unasked_syncs_are_noted_of_rows_with_enough_commits() {
        let job = Job {
            suite: crate::suites::find("obigstore").unwrap(),
            engine: crate::engines::find("redb").unwrap(),
            scale: Scale::Seed,
            group: 3,
            ..job()
        };
        let row = job.rows().remove(0);
        assert!(matches!(row.commits, Commits::Async(_) | Commits::NoSync(_)));
        let note = |syncs, commits| {
            let mut record = Record { row: row.name.clone(), value: Some(1.0), ..job.blank() };
            let traced = TracedRows::from([(traced_name(&job, &row), Traced { syncs, commits })]);
            hold_against_trace(&mut record, &job, Some(&traced));
            assert_eq!(record.counts.syncs_per_commit, Some(syncs as f64 / commits as f64));
            record.note
        };
        let noted = note(100, 100);
        assert!(noted.contains("1.00 syncs per commit") && noted.contains("100 commits traced"), "{noted}");
        // The syncs of a first log file.
        assert_eq!(note(18, 20), "");
        assert_eq!(note(18, 100), "");
    }
}
