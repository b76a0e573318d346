//! Power loss on real files: a recorded run is stopped at any point, a possible state of the disk is written
//! as real files, and a database on them must keep all promises.
//!
//! ```text
//!   session: Db over RecordFs --steps--> Disk at a point --power_loss--> files --> Found --> Journal::verify
//!      |-- killed: the next session starts with the files as last seen, with unsynced changes pending
//!      `-- power lost: the next session starts with the remaining state
//! ```
//!
//! - Commits with less than `Sync` survive a power loss after the interval of the timed sync plus some
//!   seconds for a busy machine (`timed_sync.rs`).
//!
//! After a power loss every `Sync` commit exists, and the surviving commits are a prefix
//! (`journal.rs`). This also holds for repeated kills and losses: the state of a reopened database does not
//! depend on bytes that a later loss may remove. Every campaign must cover compactions, also through tiers,
//! and recycled log segments.
mod disk;
mod files;
mod recorder;
mod session;
mod timed_sync;
mod trace;

use std::path::{Path, PathBuf};

use esker::Db;
use fastrand::Rng;

use self::disk::{Disk, Files};
use self::session::Plan;
use self::trace::Step;
use crate::journal::{Crash, Journal, Left};
use crate::shape::Shape;
use crate::writers::{Expected, Found, WriterEvent};
use esker_world::budget::{Budget, Progress};
use esker_world::failure::{Failure, Result};
use esker_world::figures;
use esker_world::perform::with_operator;

/// Maximum number of writer threads.
const WRITERS: usize = 3;
/// Maximum number of lives of a database in one run.
const SESSIONS: usize = 4;
/// This many runs must cover all cases.
const RUNS_TO_MEET_ALL: u64 = 20;

/// Faults of the recording layer that the harness must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Syncs of files do nothing.
    SyncFile,
    /// Syncs of the directory do nothing.
    SyncDir,
}

/// A campaign of power losses.
#[derive(Clone, Debug)]
pub struct PowerCampaign {
    /// Directory of the databases; created if missing, and emptied.
    pub dir: PathBuf,
    /// Determines everything except thread scheduling.
    pub seed: u64,
    /// Length of the campaign in runs.
    pub budget: Budget,
    /// Number of power losses per session.
    pub moments: usize,
    /// The injected fault.
    pub canary: Option<Canary>,
}

figures! {
    /// Counters of a campaign.
    PowerSummary {
        runs: "runs: databases, each with some sessions",
        sessions: "sessions",
        after_kill: "sessions that began with what a kill left",
        after_power_loss: "sessions that began with what a power loss left",
        losses: "power losses survived",
        steps: "steps recorded",
        merges: "merges done",
        beside: "of these, the ones that began while others ran",
        tiered: "losses that left tier runs: merges went through tiers",
        recycled: "segments of the log whose files were used again",
        acknowledged: "operations acknowledged",
        lost: "acknowledged with less than `Sync`, and lost, over all losses",
        torn: "losses that left a torn log tail",
        timed_sync_ms: "longest time until unsynced commits were durable, in ms",
    }
}

impl PowerCampaign {
    /// Runs until the budget is exhausted.
    ///
    /// # Errors
    /// A broken promise, with the files and the command that reproduces it.
    pub fn run(&self) -> Result<PowerSummary> {
        let mut summary = PowerSummary::default();
        let mut progress = Progress::new(self.budget);
        let mut rng = Rng::with_seed(self.seed);
        while progress.goes_on() {
            let run = self.one_run(rng.u64(..), &mut summary);
            run.map_err(|failure| {
                let (seed, runs, moments) = (self.seed, progress.done() + 1, self.moments);
                Failure::new(format!(
                    "run {}: {failure}\nto reproduce (thread scheduling may differ): esker-torture power --seed {seed} \
                     --runs {runs} --moments {moments} --dir {}",
                    progress.done(),
                    self.dir.display()
                ))
            })?;
            summary.runs += 1;
            progress.advance(|| format!("{} losses survived", summary.losses));
        }
        // The canaries must be detected by the runs.
        if self.canary.is_none() {
            let (db, left) = (self.dir.join("db"), self.dir.join("left"));
            let longest = timed_sync::longest_wait(&db, &left, self.seed).map_err(|failure| {
                let (seed, dir) = (self.seed, self.dir.display());
                Failure::new(format!(
                    "{failure}\nto reproduce: esker-torture power --seed {seed} --runs 0 --dir {dir}"
                ))
            })?;
            summary.timed_sync_ms = longest.as_millis() as u64;
        }
        for dir in ["db", "left"] {
            files::remove(&self.dir.join(dir))?;
        }
        let missed = [summary.merges, summary.beside, summary.tiered, summary.recycled].contains(&0);
        if summary.runs >= RUNS_TO_MEET_ALL && missed {
            return Err(Failure::new(format!("some cases were not covered\n{summary}")));
        }
        Ok(summary)
    }

    fn one_run(&self, seed: u64, summary: &mut PowerSummary) -> Result<()> {
        let mut rng = Rng::with_seed(seed);
        // Separate random numbers, because thread scheduling affects how many are drawn.
        let mut losses = rng.fork();
        let shape = Shape::of(seed);
        let mut disk = Disk::default();
        let mut journal = Journal::new(Expected::empty(WRITERS), shape.durability);
        let dir = self.dir.join("db");
        let sessions = rng.usize(1..=SESSIONS);
        for n in 1..=sessions {
            let plan = Plan {
                dir: &dir,
                shape,
                seed: rng.u64(..),
                writers: rng.usize(1..=WRITERS),
                tasks: rng.usize(0..80),
                canary: self.canary,
            };
            let session = plan.run(&disk, journal.clone(), WRITERS);
            let session = session.map_err(|failure| failure.during(&format!("session {n}")))?;
            let steps = session.steps.len();
            summary.sessions += 1;
            summary.steps += steps as u64;
            summary.merges += session.merges;
            summary.beside += session.beside;
            summary.recycled += session.recycled;
            // The end of this session, and the points of the power losses.
            let end = losses.usize(0..=steps);
            let mut moments: Vec<usize> =
                (0..self.moments).map(|_| moment(&session.steps, &mut losses)).collect();
            moments.push(end);
            moments.sort_unstable();
            let mut done = 0;
            let mut next = None;
            for moment in moments {
                for step in &session.steps[done..moment] {
                    disk.apply(step);
                    follow(&mut journal, step, &session.journal);
                }
                done = moment;
                let files = disk.power_loss(&mut losses);
                let left = self.verify(&files, &journal, summary);
                let left = left.map_err(|f| {
                    f.during(&format!("session {n} of {sessions}, moment {moment} of {steps}"))
                })?;
                if moment == end && next.is_none() {
                    next = Some((disk.clone(), journal.clone(), files, left));
                }
            }
            summary.acknowledged += journal.acknowledged() as u64;
            let (mut then_disk, then_journal, files, left) = next.expect("the end is among the moments");
            if rng.u8(0..3) > 0 {
                summary.after_kill += u64::from(n < sessions);
                then_disk.prune();
                (disk, journal) = (then_disk, then_journal);
            } else {
                summary.after_power_loss += u64::from(n < sessions);
                disk = Disk::durable(files, then_disk.at());
                journal = Journal::new(left.expected, shape.durability);
            }
        }
        Ok(())
    }

    /// Opens the state after a power loss on the real file system.
    fn verify(&self, left: &Files, journal: &Journal, summary: &mut PowerSummary) -> Result<Left> {
        let dir = self.dir.join("left");
        files::write(&dir, left)?;
        let verdict = || {
            let db =
                with_operator(Db::builder()).open(&dir).map_err(|e| Failure::from(e).during("opening"))?;
            let stats = db.stats();
            let found = Found::read(&db, WRITERS)?;
            let left = journal.verify(&found, Crash::Power)?;
            db.close()?;
            Ok((left, stats))
        };
        let (verdict, stats) = verdict().map_err(|failure: Failure| self.keep(left, &failure))?;
        summary.losses += 1;
        summary.lost += verdict.lost as u64;
        summary.torn += u64::from(stats.recovered_torn_bytes > 0);
        summary.tiered += u64::from(stats.tier_runs > 0);
        Ok(verdict)
    }

    /// Keeps the files of a failure.
    fn keep(&self, left: &Files, failure: &Failure) -> Failure {
        let dir: &Path = &self.dir.join("as-lost");
        match files::write(dir, left) {
            Ok(()) => {
                Failure::new(format!("{failure}\nthe files as the power loss left them: {}", dir.display()))
            }
            Err(error) => Failure::new(format!("{failure}\nthe files could not be kept: {error}")),
        }
    }
}

/// Chooses a point of a session: any, or one just after a critical step.
fn moment(steps: &[Step], rng: &mut Rng) -> usize {
    let any = rng.usize(0..=steps.len());
    if rng.bool() {
        return any;
    }
    let turn = steps[..any].iter().rposition(Step::is_turning_point);
    turn.map_or(any, |at| at + 1)
}

/// Adds a report to the promises. `opened` is the journal at the opening of the database.
fn follow(journal: &mut Journal, step: &Step, opened: &Journal) {
    match step {
        Step::WriterEvent(WriterEvent::Opened) => *journal = opened.clone(),
        Step::WriterEvent(said) => journal.hear(said),
        _ => {}
    }
}
