//! One life of a database in this process.
//!
//! ```text
//!   audit --> clients, keeper of guests, flushes and compactions, full disk --> crash | close --> audit
//! ```

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use esker::Keyspace;
use esker_env::{FaultFs, MemFs};
use fastrand::Rng;

use super::clients::Client;
use super::events::Record;
use super::keyspaces::Keyspaces;
use super::shared::Shared;
use super::story::Cut;
use super::{HistoryCampaign, failing_disk, full_disk};
use esker_world::failure::{Failure, Result, or_stopped};
use esker_world::watch::{HANG_TIMEOUT, Watch};

/// Calls of each client per life.
pub(super) const OPS: u64 = 200;
/// Number of values that are written for compactions, at a time and in all, and their size.
const BALLAST_PUTS: usize = 32;
const BALLAST_KEYS: u16 = 2000;
const BALLAST_BYTES: usize = 100;
/// Interval at which the progress of clients is checked.
pub(super) const LOOK_EVERY: Duration = Duration::from_micros(200);

/// How a life of the database ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Close,
    Kill,
    PowerLoss,
}

/// The disk of a life.
pub(super) struct Disk {
    memory: MemFs,
    /// The file system that the database uses.
    pub(super) faults: FaultFs,
}

impl Disk {
    pub(super) fn new(memory: MemFs) -> Self {
        let faults = FaultFs::new(Arc::new(memory.clone()));
        Disk { memory, faults }
    }
}

/// The state after a crash, and when it happened.
type Crash = (MemFs, Cut);

/// The result of one life of a database.
pub(super) struct Lived {
    pub(super) records: Vec<Record>,
    pub(super) crash: Option<Crash>,
    /// Whether the database reported stopped writes at the end, which was allowed.
    pub(super) is_stopped: bool,
}

/// A life of the database.
pub(super) struct Life<'a> {
    pub(super) campaign: &'a HistoryCampaign,
    pub(super) shared: &'a Shared,
    pub(super) keyspaces: Keyspaces,
    /// Counts from 0.
    pub(super) number: u64,
    pub(super) end: End,
    pub(super) disk: &'a Disk,
}

impl Life<'_> {
    /// Runs the life.
    pub(super) fn run(self, rng: &mut Rng) -> Result<Lived> {
        let (shared, first) = (self.shared, self.number * OPS);
        let mut auditor = self.client(usize::MAX, rng);
        auditor.audit(first)?;
        shared.stop.store(false, Ordering::Relaxed);
        shared.progress.store(0, Ordering::Relaxed);
        let (worked, crash) = self.work(rng)?;
        if shared.may_be_full.swap(false, Ordering::Relaxed) {
            auditor.write_after_full(first)?;
        }
        let mut is_stopped = false;
        if shared.may_fail.swap(false, Ordering::Relaxed) {
            self.disk.faults.clear();
            let may_be_stopped = failing_disk::may_have_stopped_log(&self.disk.faults.fired_after(0));
            is_stopped = auditor.write_after_faults(first, may_be_stopped)?;
        }
        if crash.is_none() {
            auditor.audit(first + OPS)?;
        }
        let mut records = auditor.records;
        records.extend(worked);
        Ok(Lived { records, crash, is_stopped })
    }

    fn client(&self, id: usize, rng: &mut Rng) -> Client<'_> {
        let (shared, keyspaces) = (self.shared, &self.keyspaces);
        Client { shared, keyspaces, id, rng: rng.fork(), records: Vec::new(), notes: None }
    }

    /// Runs the clients until the end of the life. Returns their records, and what a crash leaves.
    fn work<'a>(&'a self, rng: &mut Rng) -> Result<(Vec<Record>, Option<Crash>)> {
        let (shared, threads) = (self.shared, self.campaign.threads);
        let crash_at = rng.u64(0..OPS * threads as u64 * 3 / 4);
        let clients: Vec<_> = (0..threads).map(|id| self.client(id, rng)).collect();
        let (seed, churn_rng) = (rng.u64(..), rng.fork());
        let keeper = self.client(threads, rng);
        let (records, churned, crash) = std::thread::scope(|scope| {
            let first = self.number * OPS;
            let run = |client: Client<'a>| scope.spawn(move || client.run(first..first + OPS));
            let threads: Vec<_> = clients.into_iter().map(run).collect();
            let keeper = scope.spawn(|| keeper.keep_guests());
            let is_full = shared.may_be_full.load(Ordering::Relaxed);
            let fill = || full_disk::fill(&self.disk.memory, shared, Rng::with_seed(!seed));
            let filler = is_full.then(|| scope.spawn(fill));
            let churner = scope.spawn(|| churn(&self.keyspaces, shared, churn_rng));
            let is_one_finished = || threads.iter().any(|thread| thread.is_finished());
            let are_all_finished = || threads.iter().all(|thread| thread.is_finished());
            let crash = match self.end {
                End::Close => {
                    self.wait_until(are_all_finished);
                    None
                }
                End::Kill | End::PowerLoss => {
                    let is_time = || shared.progress.load(Ordering::Relaxed) >= crash_at;
                    self.wait_until(|| is_time() || is_one_finished());
                    Some(self.crash(seed))
                }
            };
            shared.stop.store(true, Ordering::Relaxed);
            let has_room = || filler.as_ref().is_none_or(|filler| filler.is_finished());
            let are_others_finished = || churner.is_finished() && keeper.is_finished() && has_room();
            self.wait_until(|| are_all_finished() && are_others_finished());
            (join(threads.into_iter().chain([keeper])), churner.join(), crash)
        });
        or_stopped(churned.map_err(|_| Failure::new("the thread that flushes panicked"))?)?;
        Ok((records?, crash))
    }

    /// Takes the state that a crash would leave now. The database continues.
    fn crash(&self, seed: u64) -> Crash {
        let before = self.shared.tick();
        let memory = &self.disk.memory;
        let left = if self.end == End::Kill { memory.kill() } else { memory.crash(seed) };
        left.set_capacity(None);
        (left, Cut { before, after: self.shared.tick() })
    }

    /// Waits for a condition that clients bring about. Threads that hang cannot be ended, so the process
    /// exits if clients make no progress.
    fn wait_until(&self, is_so: impl Fn() -> bool) {
        let mut watch = Watch::new(HANG_TIMEOUT);
        while !is_so() {
            if watch.stands_still(self.shared.progress.load(Ordering::Relaxed)) {
                let HistoryCampaign { seed, threads, .. } = self.campaign;
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

/// Waits for clients. Returns their records, or the first error.
pub(super) fn join<'s>(
    clients: impl IntoIterator<Item = ScopedJoinHandle<'s, Result<Vec<Record>>>>,
) -> Result<Vec<Record>> {
    let outcomes: Vec<_> = clients.into_iter().map(ScopedJoinHandle::join).collect();
    let records = outcomes.into_iter().map(|joined| joined.map_err(|_| Failure::new("a client panicked"))?);
    Ok(records.collect::<Result<Vec<_>>>()?.concat())
}

/// Flushes and compacts beside the clients until stopped. What clients write is too little for compactions at
/// several levels, so this also writes.
pub(super) fn churn(Keyspaces { db, ballast, .. }: &Keyspaces, shared: &Shared, mut rng: Rng) -> Result<()> {
    while !shared.stop.load(Ordering::Relaxed) {
        let (outcome, what) = match rng.u8(0..16) {
            0 => (db.compact(), "compacting beside the clients"),
            1..8 => (db.flush(), "flushing beside the clients"),
            _ => (write_ballast(ballast, &mut rng), "writing beside the clients"),
        };
        match outcome.map_err(Failure::from) {
            Err(failure) if shared.excuses(&failure) => {}
            other => other.map_err(|failure| failure.during(what).of_write())?,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Writes values that nothing reads into a keyspace of their own, by commits that go through the log.
fn write_ballast(ballast: &Keyspace, rng: &mut Rng) -> esker::Result<()> {
    for _ in 0..BALLAST_PUTS {
        ballast.put(rng.u16(0..BALLAST_KEYS).to_be_bytes(), [rng.u8(..); BALLAST_BYTES])?;
    }
    Ok(())
}
