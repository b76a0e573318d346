//! Runs a life of a database in a child process that is killed.
//!
//! ```text
//!   parent --spawns--> child: open, audit, clients --Notes--> file
//!      `--SIGKILL while it opens or works ------------------> Report: returned calls and pending ones
//! ```
//!
//! Calls that returned to a client took effect: `Buffered` and `Sync` commits survive the process. Pending
//! calls took effect before the next life begins or never (torture_history.3). Until the kill the process
//! works: no thread has panicked, and it writes notes.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker::Durability;
use esker_env::{Env, FaultFs, RealFs};
use fastrand::Rng;

use super::canary::Canary;
use super::clients::Client;
use super::events::Record;
use super::full_disk;
use super::keyspaces::Keyspaces;
use super::life::{LOOK_EVERY, OPS, churn, join};
use super::notes::{Notes, Report};
use super::shared::Shared;
use super::story::Cut;
use crate::panicky::PanickyThreads;
use crate::shape::Shape;
use esker_world::failure::{Failure, Result};
use esker_world::watch::{HANG_TIMEOUT, HANG_TIMEOUT_OF_CANARY, Watch, tells_of_panic};

/// The signal that cannot be caught.
const SIGKILL: i32 = 9;
/// Bytes of notes that a child writes; it is killed before the end.
const NOTES_BYTES: u64 = 200_000;

/// One life, described by the parent to its child.
#[derive(Clone, Debug)]
pub struct HistoryJob {
    /// Directory of the database.
    pub dir: PathBuf,
    /// File of the notes.
    pub notes: PathBuf,
    /// Determines the options.
    pub seed: u64,
    /// Number of the life.
    pub life: u64,
    /// First tick of its clock.
    pub clock: u64,
    /// Number of concurrent clients.
    pub threads: usize,
    /// Whether commits are synced, or only written to the operating system.
    pub sync: bool,
    /// Whether the disk is sometimes full.
    pub full: bool,
    /// Whether an earlier life has seen the money.
    pub has_money: bool,
    /// The injected fault.
    pub canary: Option<Canary>,
}

/// The result of a life in another process.
pub(super) struct Killed {
    pub(super) records: Vec<Record>,
    /// Number of commits that failed for lack of space.
    pub(super) refused: u64,
    /// `None` if the child completed its work and closed the database.
    pub(super) cut: Option<Cut>,
    /// A tick after all its calls.
    pub(super) clock: u64,
}

/// When the child is killed.
enum Moment {
    /// This long after its start, mostly while it opens the database.
    Starting(Duration),
    /// After it has written this many bytes of notes.
    Working(u64),
}

impl HistoryJob {
    /// Starts `program` as the child and kills it.
    pub(super) fn run(&self, program: &Path, rng: &mut Rng) -> Result<Killed> {
        File::create(&self.notes)?;
        let moment = match rng.u8(0..4) {
            0 => Moment::Starting(Duration::from_micros(rng.u64(500..40_000))),
            _ => Moment::Working(rng.u64(1..NOTES_BYTES)),
        };
        let mut command = Command::new(program);
        command.arg("history-child").arg(&self.dir).arg(&self.notes);
        command.args([self.seed, self.life, self.clock, self.threads as u64].map(|n| n.to_string()));
        command.args(self.sync.then_some("--sync"));
        command.args(self.full.then_some("--full"));
        command.args(self.has_money.then_some("--has-money"));
        command.args(self.canary.map(|canary| format!("--canary={}", canary.name())));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| Failure::from(e).during("starting the child"))?;
        let timeout = if self.canary == Some(Canary::Hang) { HANG_TIMEOUT_OF_CANARY } else { HANG_TIMEOUT };
        let mut hangs = false;
        match moment {
            Moment::Starting(after) => std::thread::sleep(after),
            Moment::Working(bytes) => {
                let mut watch = Watch::new(timeout);
                loop {
                    let written = fs::metadata(&self.notes)?.len();
                    if written >= bytes || child.try_wait()?.is_some() {
                        break;
                    }
                    hangs = watch.stands_still(written);
                    if hangs {
                        break;
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        }
        child.kill()?;
        let output = child.wait_with_output()?;
        let is_killed = output.status.signal() == Some(SIGKILL);
        let text = String::from_utf8_lossy(&output.stderr);
        if !is_killed && !output.status.success() {
            return Err(Failure::new(format!("the child ended by itself, {}: {text}", output.status)));
        }
        if tells_of_panic(&text) {
            return Err(Failure::new(format!("a thread of the child panicked: {text}")));
        }
        if hangs {
            return Err(Failure::new(format!("the child has written no notes for {timeout:?}")));
        }
        // Clients, and the threads that audit and keep guests.
        let report = Report::read(&self.notes, self.threads + 2)?;
        if !is_killed && !report.pending.is_empty() {
            return Err(Failure::new("the child closed the database with pending calls"));
        }
        let before = report.last_tick.max(self.clock);
        let cut = Cut { before, after: before + 1 };
        let pending = report.pending.into_iter();
        let pending = pending.map(|(called, event)| Record { called, returned: cut.after, event });
        let records = report.returned.into_iter().chain(pending).collect();
        Ok(Killed { records, refused: report.refused, cut: is_killed.then_some(cut), clock: cut.after + 1 })
    }
}

/// The child process: audits the database, then runs clients until they are done or the process is killed.
///
/// # Errors
/// The error of an operation that must succeed.
pub fn run_history_child(job: &HistoryJob) -> Result<()> {
    let notes = Notes::append(&job.notes)?;
    let durability = if job.sync { Durability::Sync } else { Durability::Buffered };
    let faults = FaultFs::new(Arc::new(RealFs::new()));
    let mut env = if job.full { Env::with_fs(Arc::new(faults.clone())) } else { Env::real() };
    if job.canary == Some(Canary::Panic) {
        env.threads = Arc::new(PanickyThreads);
    }
    let db = Shape::of(job.seed).builder().env(env).durability(durability).open(&job.dir)?;
    let shared = Shared::resumed(job.canary, job.clock, job.life);
    let keyspaces = Keyspaces::new(&db, job.has_money)?;
    let mut rng = Rng::with_seed(job.seed ^ job.clock);
    let mut client = |id| Client {
        shared: &shared,
        keyspaces: &keyspaces,
        id,
        rng: rng.fork(),
        records: Vec::new(),
        notes: Some(&notes),
    };
    client(usize::MAX).audit(job.life * OPS)?;
    let clients: Vec<_> = (0..job.threads).map(&mut client).collect();
    let keeper = client(job.threads);
    let mut last = client(usize::MAX);
    let (churn_rng, full_rng) = (rng.fork(), rng.fork());
    shared.may_be_full.store(job.full, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let first = job.life * OPS;
        let clients = clients.into_iter();
        let threads: Vec<_> =
            clients.map(|client| scope.spawn(move || client.run(first..first + OPS))).collect();
        let churner = scope.spawn(|| churn(&keyspaces, &shared, churn_rng));
        let keeper = scope.spawn(move || keeper.keep_guests());
        let filler = job.full.then(|| scope.spawn(|| full_disk::refuse(&faults, &shared, full_rng)));
        let worked = join(threads);
        shared.stop.store(true, Ordering::Relaxed);
        let filled = filler.map_or(Ok(()), |filler| filler.join());
        filled.map_err(|_| Failure::new("the thread that fills the disk panicked"))?;
        churner.join().map_err(|_| Failure::new("the thread that flushes panicked"))??;
        worked.and_then(|_| join([keeper]))
    })?;
    if shared.may_be_full.swap(false, Ordering::Relaxed) {
        last.write_after_full(job.life * OPS)?;
    }
    drop(last);
    drop(keyspaces);
    Ok(db.close()?)
}
