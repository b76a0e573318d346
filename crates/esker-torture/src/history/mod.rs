//! Checks what concurrent clients observe, across crashes: linearizability, isolation, and an invariant sum
//! of money.
//!
//! ```text
//!   lives of one database: open, audit, clients, power loss | kill | close   --> linear.rs   single keys
//!     in memory, or on real files with kill -9 (killed.rs, notes.rs)      |-> lists.rs    transactions
//!                                                                         `-> story.rs    bank, counter, forks
//! ```
//!
//! torture_history.1. Single-key operations are linearizable, also in keyspaces that are created and dropped
//!     (`guests.rs`).
//! torture_history.2. Transactions are snapshot isolated, and a snapshot shows the state when it was taken.
//!     Serializable and exclusive transactions are serializable among all others (graph.2 of `graph.rs`).
//! torture_history.3. Both hold across power losses for `Sync` commits, and across kills for `Buffered` ones:
//!     acknowledged calls took effect, pending ones did or never will. This includes earlier failures of log
//!     writes and syncs, full disks (`full_disk.rs`), and failures to write tables, the manifest and names
//!     (`failing_disk.rs`).
//! torture_history.4. No thread panics or hangs, including in lives that a crash ends.

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

use self::clients::{Client, Keyspaces, Record, Shared};
pub use self::killed::{HistoryJob, run_history_child};
use self::story::{Cut, Story};
use crate::panicky::PanickyThreads;
use crate::shape::Shape;
use esker_world::budget::{Budget, Progress};
use esker_world::failure::{Failure, Result, or_stopped};
use esker_world::figures;
use esker_world::watch::{HANG_TIMEOUT, Watch};

/// Calls of each client per life.
const OPS: u64 = 200;
/// Maximum number of lives of a database.
const LIVES: u64 = 3;
/// In one of this many lives in memory that end with a crash, the log fails first.
const FAILS_EVERY: u8 = 4;
/// The failure is within this many writes and syncs of the log.
const FAILS_WITHIN: u64 = 40;
/// Part of the names of log segments in use.
const LOG: &str = ".wal";
/// In one of this many lives in memory without a failing log, the disk is sometimes full; in child processes,
/// in every second one.
const FULL_EVERY: u8 = 4;
/// In one of this many of the other lives in memory, the disk fails to write files other than the log.
const FAULTY_EVERY: u8 = 2;
/// Duration of syncs of a log that will fail, so that several commits wait and fail together.
const SLOW_SYNC: Duration = Duration::from_micros(100);
/// Interval at which the progress of clients is checked.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Faults of clients that the checkers must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Transactions commit without conflict detection.
    NoConflictCheck,
    /// Range removals in transactions detect conflicts only on keys that they see.
    NoRangeCheck,
    /// Serializable transactions do not validate scanned ranges.
    NoPhantomCheck,
    /// Transactions read the newest value of each key instead of a snapshot.
    NoSnapshot,
    /// Single keys are read from an old snapshot.
    StaleReads,
    /// A crash loses the last acknowledged commits.
    ForgetfulCrash,
    /// Writes of single keys return before they take effect.
    EarlyReply,
    /// Transactions that fail for lack of space are committed later.
    LateCommit,
    /// Dropped keyspaces still exist and accept their old handles.
    GhostKeyspace,
    /// Recreated keyspaces contain the old keys.
    GhostKeys,
    /// Background threads panic in lives that a crash ends.
    Panic,
    /// A client hangs in a child process.
    Hang,
}

impl Canary {
    /// All canaries with their names on the command line.
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

    /// Returns the canary of this name.
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

/// The fault of a life in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LifeFault {
    Nothing,
    /// A write or a sync of the log fails.
    Log,
    /// The disk is sometimes full.
    FullDisk,
    /// Calls on tables, the manifest and names fail.
    FailingDisk,
}

/// The disk of a life.
struct Disk {
    memory: MemFs,
    /// The file system that the database uses.
    faults: FaultFs,
}

impl Disk {
    fn new(memory: MemFs) -> Self {
        let faults = FaultFs::new(Arc::new(memory.clone()));
        Disk { memory, faults }
    }
}

/// The result of one life of a database.
struct Lived {
    records: Vec<Record>,
    /// The state after the crash.
    crash: Option<(MemFs, Cut)>,
    /// Whether the database reported stopped writes at the end, which was allowed (failing_disk.2).
    is_stopped: bool,
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
        let lived = self.life(keyspaces, &shared, rng, lives, End::Close, &Disk::new(MemFs::new()))?;
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
        // Separate random numbers, so that the lives of a seed do not depend on them.
        let (mut fault_rng, mut fulls) = (Rng::with_seed(!seed), Rng::with_seed(seed.rotate_left(32)));
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
            let keyspaces = Keyspaces::new(&db, life > 0)?;
            let life_fault = if fault_rng.u8(0..FAILS_EVERY) == 0 && end != End::Close {
                log_will_fail(&disk.faults, &mut fault_rng);
                LifeFault::Log
            } else if fulls.u8(0..FULL_EVERY) == 0 {
                LifeFault::FullDisk
            } else if failings.u8(0..FAULTY_EVERY) == 0 {
                failing_disk::will_fail(&disk.faults, &mut failings, end != End::Close);
                LifeFault::FailingDisk
            } else {
                LifeFault::Nothing
            };
            shared.may_be_full.store(life_fault == LifeFault::FullDisk, Ordering::Relaxed);
            shared.may_fail.store(life_fault == LifeFault::FailingDisk, Ordering::Relaxed);
            let Lived { records, crash, is_stopped } = self.life(keyspaces, shared, rng, life, end, &disk)?;
            let refused = shared.refused.swap(0, Ordering::Relaxed);
            if life_fault == LifeFault::FailingDisk {
                summary.faulty_lives += u64::from(disk.faults.fired() > 0);
                summary.not_made += refused;
                summary.stopped_lives += u64::from(is_stopped);
            } else {
                summary.refused += refused;
                summary.full_lives += u64::from(refused > 0);
            }
            // After a crash, the old database continues beside the crashed state, and must still work
            // (torture_history.4).
            let stats = db.stats();
            summary.merges += stats.compactions;
            summary.tiered += u64::from(stats.tier_runs > 0);
            let closed = db.close().map_err(|error| Failure::from(error).of_write());
            if life_fault == LifeFault::Log || is_stopped {
                let is_log_failure = closed.as_ref().is_err_and(Failure::is_injected);
                summary.log_failures += u64::from(is_log_failure && life_fault == LifeFault::Log);
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

    /// Runs one life: an audit, then clients, then its end; before a close, another audit.
    fn life(
        &self,
        keyspaces: Keyspaces,
        shared: &Shared,
        rng: &mut Rng,
        life: u64,
        end: End,
        disk: &Disk,
    ) -> Result<Lived> {
        let (db, fs) = (&keyspaces.db, &disk.memory);
        let client =
            |id, rng| Client { shared, keyspaces: &keyspaces, id, rng, records: Vec::new(), notes: None };
        let mut auditor = client(usize::MAX, rng.fork());
        auditor.audit(life * OPS)?;
        shared.stop.store(false, Ordering::Relaxed);
        shared.progress.store(0, Ordering::Relaxed);
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
            let is_full = shared.may_be_full.load(Ordering::Relaxed);
            let filler = is_full.then(|| scope.spawn(|| full_disk::fill(fs, shared, Rng::with_seed(!seed))));
            let churner = scope.spawn(|| churn(db, shared, churn_rng));
            let all_are_finished = || threads.iter().all(|t| t.is_finished());
            let crash = match end {
                End::Close => {
                    self.wait_until(shared, all_are_finished);
                    None
                }
                End::Kill | End::PowerLoss => {
                    self.wait_until(shared, || {
                        shared.progress.load(Ordering::Relaxed) >= crash_at
                            || threads.iter().any(|t| t.is_finished())
                    });
                    let before = shared.tick();
                    let left = if end == End::Kill { fs.kill() } else { fs.crash(seed) };
                    left.set_capacity(None);
                    Some((left, Cut { before, after: shared.tick() }))
                }
            };
            shared.stop.store(true, Ordering::Relaxed);
            let has_room = || filler.as_ref().is_none_or(|filler| filler.is_finished());
            let others_are_finished = || churner.is_finished() && keeper.is_finished() && has_room();
            self.wait_until(shared, || all_are_finished() && others_are_finished());
            let outcomes: Vec<_> = threads
                .into_iter()
                .chain([keeper])
                .map(|t| t.join().map_err(|_| Failure::new("a client panicked")))
                .collect();
            (outcomes, churner.join(), crash)
        });
        or_stopped(churned.map_err(|_| Failure::new("the thread that flushes panicked"))?)?;
        if shared.may_be_full.swap(false, Ordering::Relaxed) {
            auditor.write_after_full(life * OPS)?;
        }
        let mut is_stopped = false;
        if shared.may_fail.swap(false, Ordering::Relaxed) {
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

    /// Waits for a condition that clients bring about. Threads that hang cannot be ended, so the process
    /// exits if clients make no progress (torture_history.4).
    fn wait_until(&self, shared: &Shared, is_so: impl Fn() -> bool) {
        let mut watch = Watch::new(HANG_TIMEOUT);
        while !is_so() {
            if watch.stands_still(shared.progress.load(Ordering::Relaxed)) {
                let (seed, threads) = (self.seed, self.threads);
                let _ = writeln!(
                    std::io::stderr(),
                    "no client has made progress for {HANG_TIMEOUT:?}\nto reproduce (thread scheduling may differ): \
                     esker-torture history --seed {seed} --threads {threads}",
                );
                std::process::exit(1);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Makes syncs of the log slow, and schedules a failure of one of its writes or syncs.
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

/// Flushes and compacts beside the clients until stopped.
fn churn(db: &Db, shared: &Shared, mut rng: Rng) -> Result<()> {
    while !shared.stop.load(Ordering::Relaxed) {
        let (outcome, what) = match rng.u8(0..8) {
            0 => (db.compact(), "compacting beside the clients"),
            _ => (db.flush(), "flushing beside the clients"),
        };
        match outcome.map_err(Failure::from) {
            Err(failure) if shared.excuses(&failure) => {}
            other => other.map_err(|failure| failure.during(what).of_write())?,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
