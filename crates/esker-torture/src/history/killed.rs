//! A life of a database that ends with kill -9: clients in a process of its own, which its parent kills.
//!
//! ```text
//!   parent --spawns--> child: open, audit, clients --Notes--> file
//!      `--SIGKILL while it opens or works ------------------> Told: what returned, what was under way
//! ```
//!
//! killed.1. What has returned to a client has happened: `Buffered` and `Sync` commits outlive the process. What was under way has
//!      happened before the next life begins, or never will (torture_history.3).
//! killed.2. Until it was killed the process was well: no thread of it had panicked, and it went on writing notes (torture_history.4).

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

use super::clients::{Client, Places, Record, World};
use super::notes::{Notes, Told};
use super::story::Cut;
use super::{Canary, LOOK_EVERY, OPS, churn, full_disk};
use crate::panicky::PanickyThreads;
use crate::shape::Shape;
use esker_world::failure::{Failure, Result};
use esker_world::watch::{PATIENCE, PATIENCE_WITH_CANARY, Watch, tells_of_panic};

/// The signal that cannot be caught.
const SIGKILL: i32 = 9;
/// So much a child writes down about as it works, in bytes; it is killed somewhere before.
const NOTES_BYTES: u64 = 200_000;

/// One life, as the parent tells it to its child.
#[derive(Clone, Debug)]
pub struct HistoryJob {
    /// The database's directory.
    pub dir: PathBuf,
    /// The file of the notes.
    pub notes: PathBuf,
    /// Determines the options.
    pub seed: u64,
    /// The number of the life.
    pub life: u64,
    /// The first tick of its clock.
    pub clock: u64,
    /// Clients at once.
    pub threads: usize,
    /// Whether commits are synced, or only handed to the operating system.
    pub sync: bool,
    /// Whether the disk is full at times.
    pub full: bool,
    /// Whether the money was seen in a life before.
    pub has_money: bool,
    /// What goes wrong.
    pub canary: Option<Canary>,
}

/// What a life of another process was.
pub(super) struct Killed {
    pub(super) records: Vec<Record>,
    /// Commits that failed for want of space.
    pub(super) refused: u64,
    /// None if the child did all its work and closed the database.
    pub(super) cut: Option<Cut>,
    /// A tick after all of it.
    pub(super) clock: u64,
}

/// When the child is killed.
enum Moment {
    /// So long after it was started: it mostly opens the database then.
    Starting(Duration),
    /// When it has written down so many bytes.
    Working(u64),
}

impl HistoryJob {
    /// Starts `program` as the child, and kills it at some moment.
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
        let patience = if self.canary == Some(Canary::Hang) { PATIENCE_WITH_CANARY } else { PATIENCE };
        let mut hangs = false;
        match moment {
            Moment::Starting(after) => std::thread::sleep(after),
            Moment::Working(bytes) => {
                let mut watch = Watch::new(patience);
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
            return Err(Failure::new(format!("the child has written nothing down for {patience:?}")));
        }
        // Clients, and the ones that audit and keep guests.
        let told = Told::read(&self.notes, self.threads + 2)?;
        if !is_killed && !told.under_way.is_empty() {
            return Err(Failure::new("the child closed the database with calls under way"));
        }
        let before = told.last_tick.max(self.clock);
        let cut = Cut { before, after: before + 1 };
        let under_way = told.under_way.into_iter();
        let under_way = under_way.map(|(called, event)| Record { called, returned: cut.after, event });
        let records = told.returned.into_iter().chain(under_way).collect();
        Ok(Killed { records, refused: told.refused, cut: is_killed.then_some(cut), clock: cut.after + 1 })
    }
}

/// The child: an audit of what is there, then clients until they are done, if nobody kills them before.
///
/// # Errors
/// What an operation that must succeed fails with.
pub fn run_history_child(job: &HistoryJob) -> Result<()> {
    let notes = Notes::append(&job.notes)?;
    let durability = if job.sync { Durability::Sync } else { Durability::Buffered };
    let faults = FaultFs::new(Arc::new(RealFs::new()));
    let mut env = if job.full { Env::with_fs(Arc::new(faults.clone())) } else { Env::real() };
    if job.canary == Some(Canary::Panic) {
        env.threads = Arc::new(PanickyThreads);
    }
    let db = Shape::of(job.seed).builder().env(env).durability(durability).open(&job.dir)?;
    let world = World::resumed(job.canary, job.clock, job.life);
    let places = Places::new(&db, job.has_money)?;
    let mut rng = Rng::with_seed(job.seed ^ job.clock);
    let mut client = |id| Client {
        world: &world,
        places: &places,
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
    world.may_be_full.store(job.full, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let ops = job.life * OPS..(job.life + 1) * OPS;
        let threads: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let ops = ops.clone();
                scope.spawn(move || client.run(ops))
            })
            .collect();
        let churner = scope.spawn(|| churn(&db, &world, churn_rng));
        let keeper = scope.spawn(move || keeper.keep_guests());
        let filler = job.full.then(|| scope.spawn(|| full_disk::refuse(&faults, &world, full_rng)));
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        world.stop.store(true, Ordering::Relaxed);
        let filled = filler.map_or(Ok(()), |filler| filler.join());
        filled.map_err(|_| Failure::new("the thread that fills the disk panicked"))?;
        churner.join().map_err(|_| Failure::new("the thread that flushes panicked"))??;
        for outcome in outcomes.into_iter().chain([keeper.join()]) {
            outcome.map_err(|_| Failure::new("a client panicked"))??;
        }
        Ok::<(), Failure>(())
    })?;
    if world.may_be_full.swap(false, Ordering::Relaxed) {
        last.write_after_full(job.life * OPS)?;
    }
    drop(last);
    drop(places);
    Ok(db.close()?)
}
