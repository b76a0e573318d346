//! What concurrent clients saw: is it linearizable, is it snapshot isolated, is the money still there? Over crashes, too.
//!
//! ```text
//!   lives of one database: open, audit, clients, power loss | kill | close   --Records--> linear.rs   single keys
//!     in memory, or on real files with kill -9 (killed.rs, notes.rs)         |-> lists.rs    transactions
//!                                                                            `-> story.rs    bank, counter, forks
//! ```
//!
//! torture_history.1. Single-key operations are linearizable, also on keyspaces that come and go (`guests.rs`).
//! torture_history.2. Transactions are snapshot isolated, and a snapshot is of the moment it was taken. Those that are serializable or exclusive are so, among all
//!     others (graph.2 of `graph.rs`).
//! torture_history.3. torture_history.1 and torture_history.2 hold over a power loss for a database that commits with `Sync`, and over a kill with `Buffered`: what was
//!     acknowledged before it has happened, what was under way has happened or never will.
//!     So it is where a write or a sync of the log fails before: what was acknowledged has happened, what failed has or never
//!     will.
//!     And so it is where the disk is full at times (`full_disk.rs`), or fails to write tables, the manifest and names
//!     (`failing_disk.rs`).
//! torture_history.4. No thread panics and none waits for ever, in a life that is cut short neither.

mod clients;
mod failing_disk;
mod full_disk;
mod graph;
mod guests;
mod killed;
pub mod linear;
mod list_store;
pub mod lists;
mod notes;
mod story;
mod transaction;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker::{Builder, Db, Durability};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};
use fastrand::Rng;

use self::clients::{Client, Places, Record, World};
pub use self::killed::{HistoryJob, run_history_child};
use self::story::{Cut, Story};
use crate::panicky::PanickyThreads;
use crate::shape::Shape;
use esker_world::budget::{Budget, Progress};
use esker_world::failure::{Failure, Result, or_stopped};
use esker_world::figures;
use esker_world::watch::{PATIENCE, Watch};

/// Calls that each client makes in one life.
const OPS: u64 = 200;
/// The most lives of a database.
const LIVES: u64 = 3;
/// In one of so many lives in memory that a crash ends, the log fails before.
const FAILS_EVERY: u8 = 4;
/// It fails in one of its first writes and syncs, of so many.
const FAILS_WITHIN: u64 = 40;
/// In the names of its files once they are in use.
const LOG: &str = ".wal";
/// In one of so many lives in memory whose log does not fail the disk is full at times; it is in every other process.
const FULL_EVERY: u8 = 4;
/// In one of so many lives in memory in which neither is so the disk fails to write other files than the log.
const FAULTY_EVERY: u8 = 2;
/// How long syncs of a log take that will fail: others commit meanwhile, and fail together.
const SLOW_SYNC: Duration = Duration::from_micros(100);
/// How often whoever waits for clients looks how far they have come.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// What clients do wrong on purpose, to prove that the checkers notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Transactions are committed without looking for conflicts.
    NoConflictCheck,
    /// Transactions that remove a range look for conflicts on the keys that they see there, and not on the others.
    NoRangeCheck,
    /// Serializable transactions do not look at their commit whether ranges that they have walked over are still the same.
    NoPhantomCheck,
    /// Transactions read each key as it is when they first read it, instead of one snapshot.
    NoSnapshot,
    /// Single keys are read from a snapshot taken before.
    StaleReads,
    /// A crash loses what was acknowledged last.
    ForgetfulCrash,
    /// Writes of single keys return before they are made.
    EarlyReply,
    /// Transactions that fail for want of space are made later all the same.
    LateCommit,
    /// Keyspaces that are said to be dropped are there, under the handles that they had.
    GhostKeyspace,
    /// Keyspaces that are made again under an old name have the old one's keys.
    GhostKeys,
    /// Background threads panic, in lives that a crash ends.
    Panic,
    /// A client waits for ever, in a process that can be killed.
    Hang,
}

impl Canary {
    /// All, with their names on the command line.
    const ALL: [(&'static str, Canary); 12] = [
        ("no-conflict-check", Canary::NoConflictCheck),
        ("no-range-check", Canary::NoRangeCheck),
        ("no-phantom-check", Canary::NoPhantomCheck),
        ("no-snapshot", Canary::NoSnapshot),
        ("stale-reads", Canary::StaleReads),
        ("forgetful-crash", Canary::ForgetfulCrash),
        ("early-reply", Canary::EarlyReply),
        ("late-commit", Canary::LateCommit),
        ("ghost-keyspace", Canary::GhostKeyspace),
        ("ghost-keys", Canary::GhostKeys),
        ("panic", Canary::Panic),
        ("hang", Canary::Hang),
    ];

    /// The canary of this name.
    pub fn named(name: &str) -> Option<Canary> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, canary)| *canary)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, canary)| *canary == self).map_or("", |(name, _)| name)
    }
}

/// A campaign of histories.
#[derive(Clone, Debug)]
pub struct HistoryCampaign {
    /// The program to start as a child that is killed: this one.
    pub program: PathBuf,
    /// Where databases on the real file system live; made if missing.
    pub dir: PathBuf,
    /// Determines all but the scheduling of threads.
    pub seed: u64,
    /// How long, in histories.
    pub budget: Budget,
    /// Clients at once.
    pub threads: usize,
    /// What goes wrong.
    pub canary: Option<Canary>,
}

figures! {
    /// The figures of a campaign.
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

/// How a life of the database ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    Kill,
    PowerLoss,
}

/// What goes wrong in a life in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Nothing,
    /// A write or a sync of the log fails.
    Log,
    /// There is no space at times.
    FullDisk,
    /// Calls about tables, the manifest and names fail.
    FailingDisk,
}

/// The disk of a life.
struct Disk {
    memory: MemFs,
    /// What the database sees of it.
    faults: FaultFs,
}

impl Disk {
    fn new(memory: MemFs) -> Self {
        let faults = FaultFs::new(Arc::new(memory.clone()));
        Disk { memory, faults }
    }
}

/// What one life of a database was.
struct Lived {
    records: Vec<Record>,
    /// What the crash left.
    crash: Option<(MemFs, Cut)>,
    /// In the end the database has said that writes are stopped, and was allowed to (failing_disk.2).
    is_stopped: bool,
}

impl HistoryCampaign {
    /// Records and checks until the budget is used up.
    ///
    /// # Errors
    /// An anomaly, with the operations that show it and the command to try again.
    pub fn run(&self) -> Result<HistorySummary> {
        let mut summary = HistorySummary::default();
        let mut progress = Progress::new(self.budget);
        let mut rng = Rng::with_seed(self.seed);
        while progress.goes_on() {
            self.one_history(rng.u64(..), &mut summary).map_err(|failure| {
                let (seed, n, threads) = (self.seed, progress.done(), self.threads);
                Failure::new(format!(
                    "history {n}: {failure}\nto try again (threads are scheduled anew): esker-torture history --seed \
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
        let world = World::new(self.canary);
        let mut story = Story::default();
        let lives = rng.u64(1..=LIVES);
        let on_files = match self.canary {
            // In memory the loss is certain; a kill rarely meets one.
            Some(Canary::ForgetfulCrash) => false,
            // There the disk is full more often.
            Some(Canary::LateCommit) => false,
            // Only a process that ends in the midst of a write shows it, or only a process can be ended.
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
                    "{failure}\nthe database and what its clients wrote down: {}",
                    kept.display()
                ))
            })?;
        } else {
            self.lives_in_memory(seed, lives, &mut rng, &world, &mut story, summary)?;
            story.check()?;
        }
        story.count(summary);
        Ok(())
    }

    /// Lives of other processes on the files in `place`, each killed, then one of this process.
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
        // Apart, so that the lives of a seed do not depend on it.
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
        let world = World::resumed(canary, clock, lives);
        let db = Shape::of(seed).builder().durability(Durability::Sync).open(&dir)?;
        let places = Places::new(&db, story.has_money())?;
        let lived = self.life(places, &world, rng, lives, End::Close, &Disk::new(MemFs::new()))?;
        db.close()?;
        story.add(lived.records, None);
        Ok(())
    }

    fn lives_in_memory(
        &self,
        seed: u64,
        lives: u64,
        rng: &mut Rng,
        world: &World,
        story: &mut Story,
        summary: &mut HistorySummary,
    ) -> Result<()> {
        let mut fs = MemFs::new();
        // Apart, so that the lives of a seed do not depend on them.
        let (mut troubles, mut fulls) = (Rng::with_seed(!seed), Rng::with_seed(seed.rotate_left(32)));
        let mut failings = Rng::with_seed(seed.rotate_left(16));
        for life in 0..=lives {
            let end = match rng.u8(0..3) {
                _ if life == lives => End::Close,
                0 => End::Close,
                1 => End::Kill,
                _ => End::PowerLoss,
            };
            let kept = match end {
                End::Kill if rng.bool() => Durability::Buffered,
                _ => Durability::Sync,
            };
            let durability = match self.canary {
                Some(Canary::ForgetfulCrash) => Durability::None,
                _ => kept,
            };
            let disk = Disk::new(fs.clone());
            let mut env = Env::with_fs(Arc::new(disk.faults.clone()));
            if self.canary == Some(Canary::Panic) && end != End::Close {
                env.threads = Arc::new(PanickyThreads);
            }
            let builder: Builder = Shape::of(seed).builder().env(env);
            let db = builder.durability(durability).open("db")?;
            let places = Places::new(&db, life > 0)?;
            let trouble = if troubles.u8(0..FAILS_EVERY) == 0 && end != End::Close {
                log_will_fail(&disk.faults, &mut troubles);
                Trouble::Log
            } else if fulls.u8(0..FULL_EVERY) == 0 {
                Trouble::FullDisk
            } else if failings.u8(0..FAULTY_EVERY) == 0 {
                failing_disk::will_fail(&disk.faults, &mut failings, end != End::Close);
                Trouble::FailingDisk
            } else {
                Trouble::Nothing
            };
            world.may_be_full.store(trouble == Trouble::FullDisk, Ordering::Relaxed);
            world.may_fail.store(trouble == Trouble::FailingDisk, Ordering::Relaxed);
            let Lived { records, crash, is_stopped } = self.life(places, world, rng, life, end, &disk)?;
            let refused = world.refused.swap(0, Ordering::Relaxed);
            if trouble == Trouble::FailingDisk {
                summary.faulty_lives += u64::from(disk.faults.fired() > 0);
                summary.not_made += refused;
                summary.stopped_lives += u64::from(is_stopped);
            } else {
                summary.refused += refused;
                summary.full_lives += u64::from(refused > 0);
            }
            // After a crash it has lived on beside what the crash left, and must be well (torture_history.4).
            let stats = db.stats();
            summary.merges += stats.compactions;
            summary.tiered += u64::from(stats.tier_runs > 0);
            let closed = db.close().map_err(|error| Failure::from(error).of_write());
            if trouble == Trouble::Log || is_stopped {
                let is_log_failure = closed.as_ref().is_err_and(Failure::is_injected);
                summary.log_failures += u64::from(is_log_failure && trouble == Trouble::Log);
                or_stopped(closed)?;
            } else {
                closed?;
            }
            story.add(records, crash.as_ref().map(|(_, cut)| *cut));
            match end {
                End::Close => {}
                End::Kill => summary.kills += 1,
                End::PowerLoss => summary.power_losses += 1,
            }
            if let Some((left, _)) = crash {
                fs = left;
            }
        }
        Ok(())
    }

    /// One life: an audit of what is there, then clients, then its end; before a close, another audit.
    fn life(
        &self,
        places: Places,
        world: &World,
        rng: &mut Rng,
        life: u64,
        end: End,
        disk: &Disk,
    ) -> Result<Lived> {
        let (db, fs) = (&places.db, &disk.memory);
        let client = |id, rng| Client { world, places: &places, id, rng, records: Vec::new(), notes: None };
        let mut auditor = client(usize::MAX, rng.fork());
        auditor.audit(life * OPS)?;
        world.stop.store(false, Ordering::Relaxed);
        world.progress.store(0, Ordering::Relaxed);
        let crash_at = rng.u64(0..OPS * self.threads as u64 * 3 / 4);
        let clients: Vec<_> = (0..self.threads).map(|id| client(id, rng.fork())).collect();
        let (seed, churn_rng) = (rng.u64(..), rng.fork());
        let keeper = client(self.threads, rng.fork());
        let (outcomes, churned, crash) = std::thread::scope(|scope| {
            let ops = life * OPS..(life + 1) * OPS;
            let threads: Vec<_> = clients
                .into_iter()
                .map(|client| {
                    scope.spawn({
                        let ops = ops.clone();
                        move || client.run(ops)
                    })
                })
                .collect();
            let keeper = scope.spawn(move || keeper.keep_guests());
            let is_full = world.may_be_full.load(Ordering::Relaxed);
            let filler = is_full.then(|| scope.spawn(|| full_disk::fill(fs, world, Rng::with_seed(!seed))));
            let churner = scope.spawn(|| churn(db, world, churn_rng));
            let all_are_finished = || threads.iter().all(|t| t.is_finished());
            let crash = match end {
                End::Close => {
                    self.wait_until(world, all_are_finished);
                    None
                }
                End::Kill | End::PowerLoss => {
                    self.wait_until(world, || {
                        world.progress.load(Ordering::Relaxed) >= crash_at
                            || threads.iter().any(|t| t.is_finished())
                    });
                    let before = world.tick();
                    let left = if end == End::Kill { fs.kill() } else { fs.crash(seed) };
                    left.set_capacity(None);
                    Some((left, Cut { before, after: world.tick() }))
                }
            };
            world.stop.store(true, Ordering::Relaxed);
            let has_room = || filler.as_ref().is_none_or(|filler| filler.is_finished());
            let others_are_finished = || churner.is_finished() && keeper.is_finished() && has_room();
            self.wait_until(world, || all_are_finished() && others_are_finished());
            let outcomes: Vec<_> = threads
                .into_iter()
                .chain([keeper])
                .map(|t| t.join().map_err(|_| Failure::new("a client panicked")))
                .collect();
            (outcomes, churner.join(), crash)
        });
        or_stopped(churned.map_err(|_| Failure::new("the thread that flushes panicked"))?)?;
        if world.may_be_full.swap(false, Ordering::Relaxed) {
            auditor.write_after_full(life * OPS)?;
        }
        let mut is_stopped = false;
        if world.may_fail.swap(false, Ordering::Relaxed) {
            disk.faults.clear();
            let may_be_stopped = failing_disk::may_have_stopped_log(&disk.faults.fired_after(0));
            is_stopped = auditor.write_after_faults(life * OPS, may_be_stopped)?;
        }
        if crash.is_none() {
            auditor.audit((life + 1) * OPS)?;
        }
        let mut records = auditor.records;
        for outcome in outcomes {
            records.extend(outcome??);
        }
        Ok(Lived { records, crash, is_stopped })
    }

    /// Waits for something that clients at work bring about. Threads that wait for ever cannot be ended, so if the clients
    /// come to a stand, this process ends (torture_history.4).
    fn wait_until(&self, world: &World, is_so: impl Fn() -> bool) {
        let mut watch = Watch::new(PATIENCE);
        while !is_so() {
            if watch.stands_still(world.progress.load(Ordering::Relaxed)) {
                let (seed, threads) = (self.seed, self.threads);
                let _ = writeln!(
                    std::io::stderr(),
                    "no client has got anywhere for {PATIENCE:?}\nto try again (threads are scheduled anew): \
                     esker-torture history --seed {seed} --threads {threads}",
                );
                std::process::exit(1);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// From now on syncs of the log are slow, and one of its writes or syncs will fail.
fn log_will_fail(faults: &FaultFs, rng: &mut Rng) {
    let fault = match rng.u8(0..4) {
        0 => FaultRule::new(&[OpKind::Write], FaultAction::ShortWrite { keep: rng.usize(0..2000) }),
        1 => FaultRule::new(&[OpKind::SyncData], FaultAction::LostSync),
        _ => {
            let fail = FaultAction::Fail(std::io::ErrorKind::Other);
            FaultRule::new(&[OpKind::Write, OpKind::SyncData], fail)
        }
    };
    faults.add(fault.on_path(LOG).nth(rng.u64(1..=FAILS_WITHIN)));
    let slow = FaultRule::new(&[OpKind::SyncData], FaultAction::Delay(SLOW_SYNC));
    faults.add(slow.on_path(LOG).forever());
}

/// Flushes and merges beside the clients until it is told to end.
fn churn(db: &Db, world: &World, mut rng: Rng) -> Result<()> {
    while !world.stop.load(Ordering::Relaxed) {
        let (outcome, what) = match rng.u8(0..8) {
            0 => (db.compact(), "merging beside the clients"),
            _ => (db.flush(), "flushing beside the clients"),
        };
        match outcome.map_err(Failure::from) {
            Err(failure) if world.excuses(&failure) => {}
            other => other.map_err(|failure| failure.during(what).of_write())?,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
