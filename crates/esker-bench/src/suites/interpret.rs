//! Executes the steps of a group on one engine and records its rows.
//!
//! ```text
//! Group -> step by step -> Executor (works/, or a program in Go)
//!                      `-> Recorder: rows, drains, checks
//! ```

use std::path::Path;

use esker_bench_api::{Durability, Engine, Failure, Feature, OpenOptions, Result};

use crate::engines::go::{self, Remote};
use crate::machine;
use crate::recorder::{Outcome, Recorder};
use crate::suites::items::Items;
use crate::suites::page_cache::{NOT_COLD, NOT_EMPTY};
use crate::suites::plan::{Group, Measure, PageCache, Step, Value, Work};
use crate::suites::works::mix::INSERT;
use crate::suites::works::{Checked, Done, Executor, Native, expect, reads};
use crate::suites::{Turn, needs};

/// A group in execution.
struct Run<'a> {
    engine: &'a dyn Engine,
    items: Items,
    recorder: &'a mut Recorder,
    drop_page_cache: &'a dyn Fn() -> bool,
    is_cold: bool,
    /// Note for the rows that follow.
    note: &'static str,
    /// False after the groundwork failed.
    goes_on: bool,
}

/// Runs a group of a suite.
pub(crate) fn run(group: &Group, turn: Turn<'_>) -> Result<()> {
    run_with(group, turn, &machine::drop_page_cache)
}

/// The same, with a replacement for dropping the page cache.
pub(crate) fn run_with(group: &Group, turn: Turn<'_>, drop_page_cache: &dyn Fn() -> bool) -> Result<()> {
    let Turn { engine, recorder, .. } = turn;
    group.needs.iter().try_for_each(|feature| needs(engine, *feature))?;
    let transactions = match group.transactions {
        None => None,
        Some(kind) => match kind.nearest(engine.transaction_kinds()) {
            None => return Err(esker_bench_api::engine::no_transactions(engine)),
            nearest => nearest,
        },
    };
    let dir = recorder.dir().to_path_buf();
    let mut executor = executor(engine, group, transactions, &dir)?;
    let items = Items::new(group.source);
    let mut run = Run { engine, items, recorder, drop_page_cache, is_cold: false, note: "", goes_on: true };
    run.steps(&group.steps, &mut *executor, None)?;
    executor.close()
}

fn executor<'a>(
    engine: &'a dyn Engine,
    group: &Group,
    transactions: Option<esker_bench_api::TransactionKind>,
    dir: &Path,
) -> Result<Box<dyn Executor + 'a>> {
    if go::is_peer(engine.name()) {
        return Ok(Box::new(Remote::new(engine.name(), group.source, transactions, dir)?));
    }
    Ok(Box::new(Native::new(engine, group.source, transactions, dir.to_path_buf())))
}

impl Run<'_> {
    fn steps(
        &mut self,
        steps: &[Step],
        executor: &mut dyn Executor,
        mut held: Option<Checked<'_>>,
    ) -> Result<()> {
        for step in steps {
            if !self.goes_on {
                return Ok(());
            }
            self.step(step, executor, held.as_mut().map(|check| &mut **check as _))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, executor: &mut dyn Executor, held: Option<Checked<'_>>) -> Result<()> {
        match step {
            Step::Open(options, modes) => executor.open(&self.options(options, modes)),
            Step::OpenWithin(options, modes) => executor.open_within(&self.options(options, modes)),
            Step::DropPageCache => {
                executor.close()?;
                self.is_cold = (self.drop_page_cache)();
                Ok(())
            }
            Step::SetDurability(durability) if self.lacks(Some(durability.feature())).is_none() => {
                executor.set_durability(*durability)
            }
            Step::SetDurability(_) => Ok(()),
            Step::Load(what, work) => self.recorder.load(what, made(work), |step_progress| {
                executor.work(work, &mut |done, now| step_progress.at(done, now)).map(drop)
            }),
            Step::Unmeasured(work) => executor.work(work, &mut |_, _| Ok(())).map(drop),
            Step::Row(measure) => self.row(measure, executor),
            Step::Size(row, needed) => match self.lacks(*needed) {
                Some(why) => self.recorder.cannot(&row.name, why),
                None => {
                    let live_bytes = executor.live_bytes();
                    self.recorder.size_row(&row.name, live_bytes)
                }
            },
            Step::Compact(row) => self.compact(row.as_ref().map(|row| &*row.name), executor),
            Step::Drain => self.recorder.drain_by(|deadline| executor.drain(deadline)),
            Step::Settle => {
                self.recorder.flush()?;
                self.recorder.drain_by(|deadline| executor.drain(deadline))
            }
            Step::Check => self.recorder.check(|| executor.work(&Work::Check, &mut |_, _| Ok(()))),
            Step::UnderSnapshot(steps) => {
                executor.under_snapshot(&mut |executor, check| self.steps(steps, executor, Some(check)))
            }
            Step::CheckSnapshot => match held {
                Some(check) => self.recorder.check_row(check),
                None => Err(Failure::engine("no snapshot is held")),
            },
        }
    }

    /// Returns why the engine lacks the feature.
    fn lacks(&self, feature: Option<Feature>) -> Option<&'static str> {
        self.engine.cannot(feature?)
    }

    fn options(&self, options: &OpenOptions, modes: &[Durability]) -> OpenOptions {
        OpenOptions { durability: self.engine.first_of(modes).unwrap_or(options.durability), ..*options }
    }

    fn compact(&mut self, row: Option<&str>, executor: &mut dyn Executor) -> Result<()> {
        let lacking = self.lacks(Some(Feature::Compaction));
        let Some(row) = row else {
            if lacking.is_some() {
                self.note = "not compacted: it has no compaction";
                return Ok(());
            }
            return executor.compact().map(drop);
        };
        if let Some(why) = lacking {
            return self.recorder.cannot(row, why);
        }
        executor.collect_garbage()?;
        self.recorder.row(row, || {
            let seconds = Some(executor.compact()?);
            Ok(Outcome { seconds, rewrites: true, ..Outcome::default() })
        })
    }

    fn row(&mut self, measure: &Measure, executor: &mut dyn Executor) -> Result<()> {
        let Measure { row, work, instead, cache, warm_up, .. } = measure;
        if let Some(why) = self.lacks(measure.needs) {
            if let Some(instead) = instead {
                executor.work(instead, &mut |_, _| Ok(()))?;
            }
            return self.recorder.cannot(&row.name, why);
        }
        if *cache == PageCache::Cold && !self.is_cold {
            return self.recorder.row(&row.name, || Err(Failure::NotRun(NOT_COLD.to_owned())));
        }
        let note = if *cache == PageCache::Noted && !self.is_cold { NOT_EMPTY } else { self.note };
        let expected = reads::expected(work, &self.items, executor.items());
        let warmed = warm_up.as_ref().map(|work| executor.work(work, &mut |_, _| Ok(())));
        executor.collect_garbage()?;
        let mut step_progress = self.recorder.step_progress(measure.progress, made(work));
        self.recorder.row_of_passes(&row.name, measure.passes, || {
            let warm_up_reads = warmed.clone().transpose()?.map(|done| done.ops);
            let mut on_progress =
                |done, now| if is_long(work) { step_progress.at(done, now) } else { Ok(()) };
            let done = executor.work(work, &mut on_progress)?;
            if let Some(expected) = expected {
                expect("sum of what was found", done.sum, expected)?;
            }
            outcome(measure, done, warm_up_reads, note)
        })?;
        if measure.is_groundwork && !self.recorder.is_groundwork_there()? {
            self.goes_on = false;
        }
        Ok(())
    }
}

/// Returns the number of items that the work makes, for progress.
fn made(work: &Work) -> u64 {
    match work {
        Work::Put { count, .. }
        | Work::LoadKeyspaces { count }
        | Work::LoadAccounts { count }
        | Work::PutExpiring { count, .. } => *count,
        Work::Mix(mix) if mix.percent[INSERT] == 100 => mix.budget.ops,
        _ => u64::MAX,
    }
}

/// Returns whether the work reports progress: it puts a known number of items.
fn is_long(work: &Work) -> bool {
    made(work) < u64::MAX
}

fn outcome(measure: &Measure, done: Done, warm_up_reads: Option<u64>, note: &str) -> Result<Outcome> {
    if let Some(why) = &done.void {
        return Err(Failure::Unsupported(why.clone()));
    }
    let latency = |kind: &str| done.detail.as_ref().and_then(|detail| detail.latency.get(kind)).copied();
    let value = match measure.value {
        Value::Unit => None,
        Value::PerOperation => Some(done.seconds / done.ops.max(1) as f64),
        Value::Mean(kind) => latency(kind).map(|latency| latency.mean),
        Value::P99 => latency("write").map(|latency| latency.p99),
    };
    let began_on = done.began_on.map(|items| ("items when it began".to_owned(), items as f64));
    let warmed = warm_up_reads.map(|reads| ("warm-up reads".to_owned(), reads as f64));
    let note = if done.note.is_empty() { note.to_owned() } else { done.note.clone() };
    let mut done = done;
    done.figures.extend(began_on.into_iter().chain(warmed));
    let outcome = recorded(done);
    Ok(Outcome { ops: value.map(|_| 1).or(outcome.ops), value, note, ..outcome })
}

/// Converts the outcome of work for the recorder.
pub(crate) fn recorded(done: Done) -> Outcome {
    let mut detail = done.detail;
    if !done.figures.is_empty() {
        detail.get_or_insert_default().figures.extend(done.figures);
    }
    Outcome {
        seconds: Some(done.seconds),
        ops: (done.ops > 0).then_some(done.ops),
        commits: (done.commits > 0).then_some(done.commits),
        user_written_bytes: done.written_bytes,
        live_bytes: done.live_bytes,
        detail,
        ..Outcome::default()
    }
}
