//! Checks what concurrent clients observe, across crashes: linearizability, isolation, and an invariant sum
//! of money.
//!
//! ```text
//!   lives of one database: open, audit, clients, power loss | kill | close   --> linear.rs  single keys
//!     in memory, or on real files with kill -9 (killed.rs, notes.rs)      |-> lists.rs   transactions
//!                                                                         `-> story.rs   bank, counter
//! ```
//!
//! - Single-key operations are linearizable, also in keyspaces that are created and dropped (`guests.rs`).
//! - Transactions are snapshot isolated, and a snapshot shows the state when it was taken. Serializable and
//!   exclusive transactions are serializable among all others (`graph.rs`).
//!
//! torture_history.3. Both hold across power losses for `Sync` commits, and across kills for `Buffered` ones:
//!     acknowledged calls took effect, pending ones did or never will. This includes earlier failures of log
//!     writes and syncs, full disks (`full_disk.rs`), and failures to write tables, the manifest and names
//!     (`failing_disk.rs`).
//!
//! - No thread panics or hangs, including in lives that a crash ends.

mod canary;
mod clients;
mod events;
mod failing_disk;
mod full_disk;
mod graph;
mod guests;
mod keyspaces;
mod killed;
mod life;
mod life_fault;
pub mod linear;
mod list_store;
pub mod lists;
mod notes;
mod shared;
mod story;
mod transaction;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker::Durability;
use esker_env::{Env, MemFs};
use fastrand::Rng;

pub use self::canary::Canary;
use self::keyspaces::Keyspaces;
pub use self::killed::{HistoryJob, run_history_child};
use self::life::{Disk, End, Life, Lived};
use self::life_fault::{FaultRngs, LifeFault};
use self::shared::Shared;
use self::story::Story;
use crate::panicky::PanickyThreads;
use crate::shape::{CompactionsBeside, Shape};
use esker_world::budget::{Budget, Progress};
use esker_world::failure::{Failure, Result, or_stopped};
use esker_world::figures;

/// Maximum number of lives of a database.
const LIVES: u64 = 3;

/// A campaign of histories.
#[derive(Clone, Debug)]
pub struct HistoryCampaign {
    /// The program to start as a child process: this one.
    pub program: PathBuf,
    /// Directory of databases on the real file system; created if missing.
    pub dir: PathBuf,
    /// Determines everything except thread scheduling.
    pub seed: u64,
    /// Length of the campaign in histories.
    pub budget: Budget,
    /// Number of concurrent clients.
    pub threads: usize,
    /// The injected fault.
    pub canary: Option<Canary>,
}

figures! {
    /// Counters of a campaign.
    HistorySummary {
        histories: "histories",
        power_losses: "power losses within them",
        kills: "kills within them, of a file system in memory",
        log_failures: "lives in memory in which the log failed, before the crash or after it",
        full_lives: "lives in memory in which commits failed for want of space",
        refused: "those commits",
        faulty_lives: "lives in memory in which a call about a table, the manifest or a name failed",
        not_made: "commits that failed for that, and were not made",
        stopped_lives: "of these lives, the ones whose log stopped for that, and said so",
        processes_killed: "processes killed within them",
        full_processes: "of these, the ones in which commits failed for want of space",
        merges: "merges beside the clients, in memory",
        beside: "of these, the ones that began while others ran",
        tiered: "lives in memory that ended with tier runs: merges went through tiers",
        operations: "operations on registers",
        committed: "transactions that committed",
        serializable: "of these, the serializable and exclusive ones that may have written",
        aborted: "transactions that conflicted",
        unknown: "transactions that a crash left unknown",
        bank_snapshots: "snapshots of the bank",
        increments: "increments of the counter",
        fork_snapshots: "snapshots of two keys that two clients write",
    }
}

impl HistoryCampaign {
    /// Records and checks histories until the budget is exhausted.
    ///
    /// # Errors
    /// An anomaly, with the operations involved and the command that reproduces it.
    pub fn run(&self) -> Result<HistorySummary> {
        let mut summary = HistorySummary::default();
        let mut progress = Progress::new(self.budget);
        let mut rng = Rng::with_seed(self.seed);
        while progress.goes_on() {
            self.one_history(rng.u64(..), &mut summary).map_err(|failure| {
                let (seed, n, threads) = (self.seed, progress.done(), self.threads);
                Failure::new(format!(
                    "history {n}: {failure}\nto reproduce (thread scheduling may differ): esker-torture history --seed \
                     {seed} --histories {} --threads {threads}",
                    n + 1
                ))
            })?;
            summary.histories += 1;
            progress.advance(|| format!("{} transactions", summary.committed));
        }
        Ok(summary)
    }

    fn one_history(&self, seed: u64, summary: &mut HistorySummary) -> Result<()> {
        let mut rng = Rng::with_seed(seed);
        let shared = Shared::new(self.canary);
        let mut story = Story::default();
        let lives = rng.u64(1..=LIVES);
        let on_files = match self.canary {
            // In memory the loss is certain; a kill rarely causes one.
            Some(Canary::ForgetfulCrash) => false,
            // In memory the disk is full more often.
            Some(Canary::LateCommit) => false,
            // Only a process that is killed during a write shows it, and only a process can be killed.
            Some(Canary::EarlyReply | Canary::Hang) => true,
            _ => rng.u8(0..4) == 0,
        };
        if on_files {
            std::fs::create_dir_all(&self.dir)?;
            let place = tempfile::Builder::new().prefix("history-").tempdir_in(&self.dir)?;
            let lived = self.lives_of_processes(place.path(), seed, lives, &mut rng, &mut story, summary);
            lived.and_then(|()| story.check()).map_err(|failure| {
                let kept = place.keep();
                Failure::new(format!(
                    "{failure}\nthe database and the notes of its clients: {}",
                    kept.display()
                ))
            })?;
        } else {
            self.lives_in_memory(seed, lives, &mut rng, &shared, &mut story, summary)?;
            story.check()?;
        }
        story.count(summary);
        Ok(())
    }

    /// Runs lives in child processes on the files in `place`, each killed, then one in this process.
    fn lives_of_processes(
        &self,
        place: &Path,
        seed: u64,
        lives: u64,
        rng: &mut Rng,
        story: &mut Story,
        summary: &mut HistorySummary,
    ) -> Result<()> {
        let dir = place.join("db");
        // Separate random numbers, so that the lives of a seed do not depend on them.
        let mut fulls = Rng::with_seed(seed.rotate_left(32));
        let mut clock = 0;
        for life in 0..lives {
            let job = HistoryJob {
                dir: dir.clone(),
                notes: place.join(format!("notes-{life}")),
                seed,
                life,
                clock,
                threads: self.threads,
                sync: rng.bool(),
                // What this canary has acknowledged must not be refused.
                full: fulls.bool() && self.canary != Some(Canary::EarlyReply),
                has_money: story.has_money(),
                canary: self.canary,
            };
            let killed = job.run(&self.program, rng)?;
            summary.processes_killed += u64::from(killed.cut.is_some());
            summary.full_processes += u64::from(killed.cut.is_some() && killed.refused > 0);
            summary.refused += killed.refused;
            story.add(killed.records, killed.cut);
            clock = killed.clock;
        }
        let canary = self.canary.filter(|canary| *canary != Canary::Hang);
        let shared = Shared::resumed(canary, clock, lives);
        let db = Shape::of(seed).builder().durability(Durability::Sync).open(&dir)?;
        let keyspaces = Keyspaces::new(&db, story.has_money())?;
        let disk = Disk::new(MemFs::new());
        let life =
            Life { campaign: self, shared: &shared, keyspaces, number: lives, end: End::Close, disk: &disk };
        let lived = life.run(rng)?;
        db.close()?;
        story.add(lived.records, None);
        Ok(())
    }

    fn lives_in_memory(
        &self,
        seed: u64,
        lives: u64,
        rng: &mut Rng,
        shared: &Shared,
        story: &mut Story,
        summary: &mut HistorySummary,
    ) -> Result<()> {
        let mut fs = MemFs::new();
        let mut fault_rngs = FaultRngs::of_seed(seed);
        for number in 0..=lives {
            let (end, durability) = self.draw_end(number == lives, rng);
            let disk = Disk::new(fs.clone());
            let mut env = Env::with_fs(Arc::new(disk.faults.clone()));
            if self.canary == Some(Canary::Panic) && end != End::Close {
                env.threads = Arc::new(PanickyThreads);
            }
            let beside = CompactionsBeside::default();
            let builder = beside.with(Shape::of(seed).builder());
            let db = builder.env(env).durability(durability).open("db")?;
            let keyspaces = Keyspaces::new(&db, number > 0)?;
            let fault = fault_rngs.draw(&disk.faults, end != End::Close);
            shared.may_be_full.store(fault == LifeFault::FullDisk, Ordering::Relaxed);
            shared.may_fail.store(fault == LifeFault::FailingDisk, Ordering::Relaxed);
            let life = Life { campaign: self, shared, keyspaces, number, end, disk: &disk };
            let Lived { records, crash, is_stopped } = life.run(rng)?;
            let refused = shared.refused.swap(0, Ordering::Relaxed);
            if fault == LifeFault::FailingDisk {
                summary.faulty_lives += u64::from(disk.faults.fired() > 0);
                summary.not_made += refused;
                summary.stopped_lives += u64::from(is_stopped);
            } else {
                summary.refused += refused;
                summary.full_lives += u64::from(refused > 0);
            }
            // After a crash, the old database continues beside the crashed state, and must still work.
            let stats = db.stats();
            summary.merges += stats.compactions;
            summary.beside += beside.get();
            summary.tiered += u64::from(stats.tier_runs > 0);
            let closed = db.close().map_err(|error| Failure::from(error).of_write());
            if fault == LifeFault::Log || is_stopped {
                let is_log_failure = closed.as_ref().is_err_and(Failure::is_injected);
                summary.log_failures += u64::from(is_log_failure && fault == LifeFault::Log);
                or_stopped(closed)?;
            } else {
                closed?;
            }
            story.add(records, crash.as_ref().map(|(_, cut)| *cut));
            summary.kills += u64::from(end == End::Kill);
            summary.power_losses += u64::from(end == End::PowerLoss);
            if let Some((left, _)) = crash {
                fs = left;
            }
        }
        Ok(())
    }

    /// Chooses how a life ends, and the durability of its commits.
    fn draw_end(&self, is_last: bool, rng: &mut Rng) -> (End, Durability) {
        let end = match rng.u8(0..3) {
            _ if is_last => End::Close,
            0 => End::Close,
            1 => End::Kill,
            _ => End::PowerLoss,
        };
        let kept = match end {
            End::Kill if rng.bool() => Durability::Buffered,
            _ => Durability::Sync,
        };
        match self.canary {
            Some(Canary::ForgetfulCrash) => (end, Durability::None),
            _ => (end, kept),
        }
    }
}
