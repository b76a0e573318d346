//! The child process: verifies the state after the previous one and works on it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker::{Db, Durability, Keyspace};
use esker_world::failure::{Failure, Result};
use fastrand::Rng;

use super::copier::Copier;
use super::judge::{self, Options};
use super::ledger::{self, Ledger, Recovered};
use super::model::Model;
use super::worker::{Log, Worker, options};
use crate::shape::Shape;

/// Interval between progress reports.
const REPORTS_EVERY: Duration = Duration::from_millis(50);

/// The parameters of a child on its command line.
#[derive(Clone, Debug)]
pub struct StormJob {
    /// Directory of the database, its ledgers and its copies.
    pub dir: PathBuf,
    /// Determines options and operations.
    pub seed: u64,
    /// Number of writer threads.
    pub workers: usize,
    /// How long it works unless killed.
    pub millis: u64,
    /// Whether results of merges and updates on expiring keys are not compared.
    pub skips_folded_expiry: bool,
}

/// Counters of a life.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) checkpoints: AtomicU64,
    pub(super) backups: AtomicU64,
    pub(super) restores: AtomicU64,
}

/// Verifies, works, verifies, closes, and verifies again.
///
/// # Errors
/// A broken promise or a failed call.
pub fn run_storm_child(job: &StormJob) -> Result<()> {
    let shape = Shape::of(job.seed);
    let db = open(job, shape).map_err(|error| Failure::from(error).during("opening"))?;
    let recovered = (0..job.workers)
        .map(|worker| ledger::read(&job.dir, worker, job.skips_folded_expiry))
        .collect::<Result<Vec<_>>>()?;
    let mut models = Vec::new();
    for recovered in recovered {
        models.push(settle(&db, recovered)?);
    }
    judge::agree(&db, &models, Options::Same, "after opening")?;
    println!("verified");
    let models = work(job, shape, &db, models)?;
    judge::agree(&db, &models, Options::Same, "at the end")?;
    db.close()?;
    let db = open(job, shape)?;
    judge::agree(&db, &models, Options::Same, "opened again")?;
    db.close()?;
    let report = shape.builder().check_offline(job.dir.join("db"))?;
    if !report.is_sound() {
        return Err(Failure::new(format!("offline: {:#?}", report.problems)));
    }
    Ok(())
}

fn open(job: &StormJob, shape: Shape) -> esker::Result<Db> {
    let keep = |_: &[u8], _: &[u8]| esker::Decision::Keep;
    let builder = shape.builder().durability(durability(job.seed));
    let builder = builder.feed_retention(64 << 20, Duration::from_secs(3600));
    builder.compaction_filter("w0.0", keep).open(job.dir.join("db"))
}

fn durability(seed: u64) -> Durability {
    if seed.is_multiple_of(3) { Durability::Sync } else { Durability::Buffered }
}

/// Returns the model of a worker, including a pending action that took effect.
fn settle(db: &Db, recovered: Recovered) -> Result<Model> {
    let Some((action, began)) = recovered.doubt else { return Ok(recovered.model) };
    let mut with = recovered.model.clone();
    with.apply(&action, (began, db.time_ms()));
    let why = judge::difference_of_all(db, &with, Options::Same)?;
    match (why, judge::difference_of_all(db, &recovered.model, Options::Same)?) {
        // The difference has expired or is about to.
        (None, None) => {
            with.doubt_what_differs(&recovered.model);
            Ok(with)
        }
        (None, Some(_)) => Ok(with),
        (Some(_), None) => Ok(recovered.model),
        (Some(why), Some(why_not)) => Err(Failure::new(format!(
            "after opening: with the pending {action:?}: {why}; without it: {why_not}"
        ))),
    }
}

/// Opens the keyspaces of a worker, creating missing ones.
fn keyspaces(db: &Db, model: &Model) -> Result<Vec<Keyspace>> {
    let names = model.slots.iter().map(|slot| &slot.name).enumerate();
    let one = |(n, name): (usize, &String)| -> Result<Keyspace> {
        if let Ok(keyspace) = db.open_keyspace(name) {
            return Ok(keyspace);
        }
        let mut batch = db.batch();
        let new = batch.create_keyspace(name)?;
        batch.set_options(&new, options(n))?;
        batch.commit().map_err(esker::Error::from)?;
        Ok(db.open_keyspace(name)?)
    };
    names.map(one).collect()
}

fn work(job: &StormJob, shape: Shape, db: &Db, models: Vec<Model>) -> Result<Vec<Model>> {
    let logs: Vec<Log> = models.iter().cloned().map(Log::new).collect();
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    let mut workers = Vec::new();
    for (n, model) in models.into_iter().enumerate() {
        workers.push(Worker {
            db,
            log: &logs[n],
            ledger: Ledger::begin(&job.dir, n, &model)?,
            keyspaces: keyspaces(db, &model)?,
            model,
            rng: Rng::with_seed(job.seed.wrapping_add(n as u64)),
            stamp: job.seed as u32 ^ (n as u32) << 28,
            durability: durability(job.seed),
        });
    }
    let began_at = db.snapshot().seqno().get();
    let rng = Rng::with_seed(!job.seed);
    let mut copier = Copier { db, logs: &logs, dir: job.dir.clone(), shape, rng, counts: &counts, began_at };
    std::thread::scope(|scope| {
        for (worker, log) in workers.iter_mut().zip(&logs) {
            let stop = &stop;
            scope.spawn(move || {
                worker.run(stop).unwrap_or_else(|failure| fail("worker", &failure));
                log.finish();
            });
        }
        scope.spawn(|| copier.run(&stop).unwrap_or_else(|failure| fail("copier", &failure)));
        let end = Instant::now() + Duration::from_millis(job.millis);
        while Instant::now() < end {
            std::thread::sleep(REPORTS_EVERY);
            report(&logs, &counts);
        }
        stop.store(true, Ordering::Relaxed);
    });
    report(&logs, &counts);
    Ok(workers.into_iter().map(|worker| worker.model).collect())
}

fn report(logs: &[Log], counts: &Counts) {
    let commits: usize = logs.iter().map(Log::len).sum();
    let [checkpoints, backups, restores] =
        [&counts.checkpoints, &counts.backups, &counts.restores].map(|count| count.load(Ordering::Relaxed));
    println!("{commits} {checkpoints} {backups} {restores}");
}

/// Exits after the first failure, leaving the files as they are.
fn fail(role: &str, failure: &Failure) {
    eprintln!("{role}: {failure}");
    std::process::exit(3);
}
