//! Syncs per commit: counted by a tracer at the smallest scale, and held against what a row asks for (bench_runner.2).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
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
use esker_bench_api::Failure;
use esker_bench_api::results::Record;

/// Syncs per commit from which a row that asks for none has to explain itself: background syncs are far below.
const UNASKED_SYNCS_MIN: f64 = 0.5;
/// Fewer commits than these say nothing of unasked syncs: those of a first log file, or of a tree that is made, are a dozen.
const UNASKED_COMMITS_MIN: u64 = 50;
/// What stands in the note of a row that syncs unasked when its adapter has no reason for it.
const UNEXPLAINED: &str = "its adapter knows no reason";

pub(super) type TracedRows = BTreeMap<String, Traced>;

/// What the tracer saw of a row.
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

/// Runs every engine once under a tracer at the smallest scale, as far as it has groups to run (bench_runner.4) and time (bench_runner.6); no engine is listed where there is no tracer.
pub(super) fn trace_syncs(
    plan: &Plan,
    todo: &Todo,
    programs: &Programs,
    scratch: &Scratch,
    progress: &Progress,
) -> Result<BTreeMap<&'static str, TracedRows>, Failure> {
    let mut found = BTreeMap::new();
    if !plan.trace {
        return Ok(found);
    }
    if !syncs::tracer_works() {
        progress.note("strace is not installed: syncs per commit are not traced", true);
        return Ok(found);
    }
    let scale = Scale::Test;
    let step = traced_step(plan.timeout);
    for engine in &plan.engines {
        let groups: BTreeSet<usize> = todo
            .iter()
            .filter(|(_, _, other)| other.name() == engine.name())
            .map(|(_, group, _)| *group)
            .collect();
        if groups.is_empty() {
            continue;
        }
        progress.now(&format!("counting the syncs of {}", engine.name()));
        let mut rows = TracedRows::new();
        for group in groups {
            let Ok(program) = &programs[engine.name()] else { continue };
            if plan.is_over() {
                return Ok(found);
            }
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
                Mode { trace: Some(&trace), limit: None, memory_bytes_max: None, step },
                None,
            )?;
            if let Some(failure) = told.failure.filter(|_| told.was_stopped) {
                progress.note(&format!("not all syncs of {} were counted: {failure}", engine.name()), true);
            }
            let syncs = syncs::parse(&fs::read_to_string(&trace).unwrap_or_default());
            for record in told.records.iter().filter(|record| record.commits > 0 && record.error.is_none()) {
                if let Some(syncs) = syncs.get(&record.row) {
                    let traced = Traced { syncs: *syncs, commits: record.commits };
                    rows.insert(record.row.clone(), traced);
                }
            }
        }
        found.insert(engine.name(), rows);
    }
    Ok(found)
}

/// How long a step may take under the tracer where one of the run may take `step` (bench_runner.5).
fn traced_step(step: Duration) -> Duration {
    step.min(Duration::from_secs(Scale::Test.seconds_max()))
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

/// bench_runner.2.
pub(super) fn hold_against_trace(record: &mut Record, job: &Job<'_>, traced: Option<&TracedRows>) {
    let Some(traced) = traced else { return };
    let Some(row) = job.rows().into_iter().find(|row| row.name == record.row) else { return };
    let traced = traced.get(&traced_name(job, &row)).copied();
    record.syncs_per_commit = traced.map(Traced::per_commit);
    let (Some(traced), None) = (traced, &record.error) else { return };
    let syncs = traced.per_commit();
    match row.commits {
        Commits::Sync(_) if syncs < job.suite.syncs_per_commit_min(job.group) => {
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
    use super::*;

    #[test]
    fn bench_runner_5_a_traced_step_has_the_time_of_the_scale_that_it_is_of() {
        let seconds = |scale: Scale| Duration::from_secs(scale.seconds_max());
        assert_eq!(traced_step(seconds(Scale::Seed)), seconds(Scale::Test));
        assert_eq!(traced_step(Duration::from_secs(7)), Duration::from_secs(7));
    }

    #[test]
    fn bench_runner_2_unasked_syncs_are_noted_of_rows_with_enough_commits() {
        let job = Job {
            suite: crate::suites::find("obigstore").unwrap(),
            engine: crate::engines::find("redb").unwrap(),
            scale: Scale::Seed,
            run: 1,
            group: 3,
            commit: "",
            memory_limit: "",
        };
        let row = job.rows().remove(0);
        assert!(matches!(row.commits, Commits::Async(_) | Commits::NoSync(_)));
        let note = |syncs, commits| {
            let mut record = Record { row: row.name.clone(), value: Some(1.0), ..job.blank() };
            let traced = TracedRows::from([(traced_name(&job, &row), Traced { syncs, commits })]);
            hold_against_trace(&mut record, &job, Some(&traced));
            assert_eq!(record.syncs_per_commit, Some(syncs as f64 / commits as f64));
            record.note
        };
        let noted = note(100, 100);
        assert!(
            noted.contains("1.00 syncs per commit") && noted.contains("100 commits traced"),
            "bench_runner.2: {noted}"
        );
        // What a first log file takes.
        assert_eq!(note(18, 20), "", "bench_runner.2");
        assert_eq!(note(18, 100), "", "bench_runner.2");
    }
}
