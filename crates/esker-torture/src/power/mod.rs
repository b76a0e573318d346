//! Power loss on real files: a recorded run is stopped at any moment, a disk that the loss may leave is written out as
//! real files, and a database on them must keep every promise.
//!
//! ```text
//!   session: Db over RecordFs --steps--> Disk at moment m --power_loss--> files --real Env--> World --> Journal::verify
//!      |-- killed at a moment: the next session begins with the files as they were seen, unsynced as they are
//!      `-- power lost at a moment: the next session begins with what was left
//! ```
//!
//! power.1. After a power loss every `Sync` commit is there, and what is left is a prefix of the commits (journal.1 to journal.4).
//! power.2. So it is after any number of kills and losses in a row: what a reopened database shows, and what it
//!     acknowledges on top, does not rest on bytes that a later loss takes away.
//! power.3. A campaign has met what it is for: merges, also through tiers, and segments of the log that were used again.
//! power.4. What was committed with less than `Sync` survives a power loss once the timed sync was due, and some seconds more have
//!     passed on a busy machine (`timed_sync.rs`).

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
use crate::writers::{Found, Said, World};
use esker_world::budget::{Budget, Progress};
use esker_world::failure::{Failure, Result};
use esker_world::figures;
use esker_world::perform::with_operator;

/// The most threads that write.
const WRITERS: usize = 3;
/// The most lives of a database in one run.
const SESSIONS: usize = 4;
/// So many runs meet everything (power.3).
const RUNS_TO_MEET_ALL: u64 = 20;

/// A lie of the recording layer, to prove that the harness notices.
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
    /// Where databases live; made if missing, and emptied.
    pub dir: PathBuf,
    /// Determines all but the scheduling of threads.
    pub seed: u64,
    /// How long, in runs.
    pub budget: Budget,
    /// Moments at which each session loses power.
    pub moments: usize,
    /// What the recording layer does wrong.
    pub canary: Option<Canary>,
}

figures! {
    /// The figures of a campaign.
    PowerSummary {
        runs: "runs: databases, each with some sessions",
        sessions: "sessions",
        after_kill: "sessions that began with what a kill left",
        after_power_loss: "sessions that began with what a power loss left",
        losses: "power losses survived",
        steps: "steps recorded",
        merges: "merges done",
        tiered: "losses that left tier runs: merges went through tiers",
        recycled: "segments of the log whose files were used again",
        acknowledged: "operations acknowledged",
        lost: "acknowledged with less than `Sync`, and lost, over all losses",
        torn: "losses that left a torn log tail",
        timed_sync_ms: "the longest time until commits were durable for which nobody asked, in ms",
    }
}

impl PowerCampaign {
    /// Runs until the budget is used up.
    ///
    /// # Errors
    /// A broken promise, with the files that show it and the command to try again.
    pub fn run(&self) -> Result<PowerSummary> {
        let mut summary = PowerSummary::default();
        let mut progress = Progress::new(self.budget);
        let mut rng = Rng::with_seed(self.seed);
        while progress.goes_on() {
            let run = self.one_run(rng.u64(..), &mut summary);
            run.map_err(|failure| {
                let (seed, runs, moments) = (self.seed, progress.done() + 1, self.moments);
                Failure::new(format!(
                    "run {}: {failure}\nto try again (threads are scheduled anew): esker-torture power --seed {seed} \
                     --runs {runs} --moments {moments} --dir {}",
                    progress.done(),
                    self.dir.display()
                ))
            })?;
            summary.runs += 1;
            progress.advance(|| format!("{} losses survived", summary.losses));
        }
        // The canaries' lies are for the runs to find.
        if self.canary.is_none() {
            let (db, left) = (self.dir.join("db"), self.dir.join("left"));
            let longest = timed_sync::longest_wait(&db, &left, self.seed).map_err(|failure| {
                let (seed, dir) = (self.seed, self.dir.display());
                Failure::new(format!(
                    "{failure}\nto try again: esker-torture power --seed {seed} --runs 0 --dir {dir}"
                ))
            })?;
            summary.timed_sync_ms = longest.as_millis() as u64;
        }
        for dir in ["db", "left"] {
            files::remove(&self.dir.join(dir))?;
        }
        let missed = [summary.merges, summary.tiered, summary.recycled].contains(&0);
        if summary.runs >= RUNS_TO_MEET_ALL && missed {
            return Err(Failure::new(format!("power.3: something was never met\n{summary}")));
        }
        Ok(summary)
    }

    fn one_run(&self, seed: u64, summary: &mut PowerSummary) -> Result<()> {
        let mut rng = Rng::with_seed(seed);
        // Apart, for how much is drawn of it is the scheduler's: the lives of a run are the seed's.
        let mut losses = rng.fork();
        let shape = Shape::of(seed);
        let mut disk = Disk::default();
        let mut journal = Journal::new(World::empty(WRITERS), shape.durability);
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
            summary.recycled += session.recycled;
            // The moment at which this session ends for the next one, and those at which power is lost aside.
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
                journal = Journal::new(left.world, shape.durability);
            }
        }
        Ok(())
    }

    /// Opens what a power loss left, on the real file system.
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

    /// Keeps the files of a failure as the loss left them.
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

/// A moment of a session: any, or just after a step at which much is at stake.
fn moment(steps: &[Step], rng: &mut Rng) -> usize {
    let any = rng.usize(0..=steps.len());
    if rng.bool() {
        return any;
    }
    let turn = steps[..any].iter().rposition(Step::is_turning_point);
    turn.map_or(any, |at| at + 1)
}

/// Takes what was said into the promises; `opened` are those once the database was open.
fn follow(journal: &mut Journal, step: &Step, opened: &Journal) {
    match step {
        Step::Said(Said::Opened) => *journal = opened.clone(),
        Step::Said(said) => journal.hear(said),
        _ => {}
    }
}
