//! kill -9: a child process works on a database on the real file system, dies at any moment, and what is left must
//! keep every promise.
//!
//! ```text
//!   parent --spawns--> child: open, writers --Intent, Ack--> pipe
//!      |--SIGKILL after a random time, often while the child still opens
//!      |--copies the directory, opens the copy or the original --World--> Journal::verify
//!      `--next round: the same directory, as the kill left it or as verification closed it
//! ```
//!
//! kill.1. A killed process loses nothing that it handed to the operating system: `Buffered` and `Sync` commits are all
//!     there, of `None` commits a prefix (journal.1 to journal.4 in `journal.rs`).
//! kill.2. A failure keeps the directory as the kill left it.
//! kill.3. A child that is killed was well: no thread of it had panicked, it opened the database, and (in one round of eight)
//!     each writer was answered once more before the kill.

mod child;
mod ear;
mod gate;
mod protocol;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use esker::Db;
use fastrand::Rng;

pub use self::child::{ChildJob, run_child};
use self::ear::{Ear, Waited};
use self::protocol::Message;
use crate::journal::{Crash, Journal, Left};
use crate::shape::Shape;
use crate::writers::{Found, Script, World};
use esker_world::budget::{Budget, Progress};
use esker_world::failure::{Failure, Result};
use esker_world::figures;
use esker_world::perform::with_operator;
use esker_world::watch::{PATIENCE, PATIENCE_WITH_CANARY, tells_of_panic};

/// The most threads that write.
const WRITERS: usize = 4;
/// The signal that cannot be caught.
const SIGKILL: i32 = 9;
/// One in so many rounds begins with a new database, so that making one is killed, too.
const FRESH_EVERY: u32 = 40;

/// What a child does wrong on purpose, to prove that the harness notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Acknowledges before it commits.
    AckEarly,
    /// Leaves one operation in fifty out, and acknowledges it.
    Drop,
    /// Commits each batch as two.
    Halves,
    /// Background threads panic.
    Panic,
    /// A writer waits for ever.
    Hang,
}

impl Canary {
    /// All, with their names on the command line.
    pub const ALL: [(&'static str, Canary); 5] = [
        ("ack-early", Canary::AckEarly),
        ("drop", Canary::Drop),
        ("halves", Canary::Halves),
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

/// A campaign of kills.
#[derive(Clone, Debug)]
pub struct KillCampaign {
    /// The program to start as a child: this one.
    pub program: PathBuf,
    /// Where the database lives; made if missing, and emptied first.
    pub dir: PathBuf,
    /// Determines all but the moments of the kills, which are the scheduler's.
    pub seed: u64,
    /// How long.
    pub budget: Budget,
    /// What the child does wrong.
    pub canary: Option<Canary>,
}

figures! {
    /// The figures of a campaign.
    KillSummary {
        rounds: "kills survived",
        while_opening: "of them, while the child was opening the database",
        acknowledged: "operations that were acknowledged",
        unacknowledged_left: "operations that were under way, and are left",
        lost: "acknowledged with `None`, and lost",
        torn: "rounds in which a torn log tail was dropped",
        tiered: "rounds that left tier runs: merges went through tiers",
        replayed: "commits replayed from the log",
    }
}

/// When the child is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after it was started: it mostly opens the database then.
    Starting(Duration),
    /// So long after the database is open.
    Working(Duration),
    /// So long after the database is open, and when each writer has been answered once more (kill.3).
    Answered(Duration),
}

impl Moment {
    fn draw(rng: &mut Rng) -> Self {
        let micros = |n| Duration::from_micros(n);
        match rng.u8(0..8) {
            0 | 1 => Moment::Starting(micros(rng.u64(500..40_000))),
            2..6 => Moment::Working(micros(rng.u64(0..100_000))),
            6 => Moment::Answered(micros(rng.u64(0..100_000))),
            _ => Moment::Working(micros(rng.u64(100_000..600_000))),
        }
    }
}

/// What one round heard and left.
struct Round {
    journal: Journal,
    opened: bool,
}

impl KillCampaign {
    /// Kills until the budget is used up.
    ///
    /// # Errors
    /// A broken promise, or a child that ended by itself, with the directory and the command to try again.
    pub fn run(&self) -> Result<KillSummary> {
        let mut summary = KillSummary::default();
        let mut progress = Progress::new(self.budget);
        let mut rng = Rng::with_seed(self.seed);
        let mut world = self.begin_anew()?;
        while progress.goes_on() {
            if rng.u32(0..FRESH_EVERY) == 0 {
                world = self.begin_anew()?;
            }
            let round = self.round(&world, &mut rng, &mut summary);
            world = round.map_err(|failure| self.explain(&failure, progress.done()))?.world;
            summary.rounds += 1;
            progress.advance(|| format!("{} acknowledged", summary.acknowledged));
        }
        Ok(summary)
    }

    fn database(&self) -> PathBuf {
        self.dir.join("db")
    }

    /// The database as the last kill left it.
    fn evidence(&self) -> PathBuf {
        self.dir.join("as-killed")
    }

    fn begin_anew(&self) -> Result<World> {
        fs::create_dir_all(&self.dir)?;
        for dir in [self.database(), self.evidence(), self.dir.join("copy")] {
            if dir.exists() {
                fs::remove_dir_all(dir)?;
            }
        }
        Ok(World::empty(WRITERS))
    }

    fn explain(&self, failure: &Failure, round: u64) -> Failure {
        let (seed, dir) = (self.seed, self.dir.display());
        Failure::new(format!(
            "round {round}: {failure}\nthe directory as the kill left it: {}\nto try again (the moments of the kills \
             differ): esker-torture kill --seed {seed} --rounds {} --dir {dir}",
            self.evidence().display(),
            round + 1,
        ))
    }

    fn round(&self, world: &World, rng: &mut Rng, summary: &mut KillSummary) -> Result<Left> {
        let seed = rng.u64(..);
        let writers = rng.usize(1..=WRITERS);
        let moment = Moment::draw(rng);
        let round = self.kill(world, seed, writers, moment);
        copy_dir(&self.database(), &self.evidence())?;
        let round = round?;
        // A copy leaves the original for the next child to recover; the original, once closed, is as after a clean end.
        let dir = if rng.bool() { self.database() } else { self.dir.join("copy") };
        if dir != self.database() {
            copy_dir(&self.database(), &dir)?;
        }
        let gate = gate::no_child_starts();
        let db = with_operator(Db::builder()).open(&dir).map_err(|e| Failure::from(e).during("opening"))?;
        let stats = db.stats();
        let found = Found::read(&db, WRITERS)?;
        let left = round.journal.verify(&found, Crash::Process)?;
        db.close()?;
        drop(gate);
        summary.while_opening += u64::from(!round.opened);
        summary.acknowledged += round.journal.acknowledged() as u64;
        summary.unacknowledged_left += left.unacknowledged as u64;
        summary.lost += left.lost as u64;
        summary.torn += u64::from(stats.recovered_torn_bytes > 0);
        summary.tiered += u64::from(stats.tier_runs > 0);
        summary.replayed += stats.recovered_commits;
        Ok(left)
    }

    /// Waits for the moment of the kill; fails if the child does not get there (kill.3). If it has ended, that is for others to
    /// notice.
    fn wait_for(&self, moment: Moment, writers: usize, ear: &Ear) -> Result<()> {
        let (after, answered) = match moment {
            Moment::Starting(after) => {
                std::thread::sleep(after);
                return Ok(());
            }
            Moment::Working(after) => (after, false),
            Moment::Answered(after) => (after, true),
        };
        if ear.wait(PATIENCE, |heard| !heard.is_empty()) == Waited::InVain {
            return Err(Failure::new(format!("the child has not opened the database in {PATIENCE:?}")));
        }
        std::thread::sleep(after);
        if answered {
            // The canary hangs when the database is open.
            let patience = if self.canary == Some(Canary::Hang) { PATIENCE_WITH_CANARY } else { PATIENCE };
            let before = protocol::acks(&ear.heard(), writers);
            let is_answered = |heard: &[u8]| {
                protocol::acks(heard, writers).iter().zip(&before).all(|(now, before)| now > before)
            };
            if ear.wait(patience, is_answered) == Waited::InVain {
                let now = protocol::acks(&ear.heard(), writers);
                return Err(Failure::new(format!(
                    "a writer has waited for {patience:?}: operations acknowledged to each were {before:?}, are {now:?}"
                )));
            }
        }
        Ok(())
    }

    /// Starts a child, and kills it at its moment.
    fn kill(&self, world: &World, seed: u64, writers: usize, moment: Moment) -> Result<Round> {
        let mut command = Command::new(&self.program);
        command.arg("kill-child").arg(self.database()).arg(seed.to_string());
        let names = |writer: usize| world.writers[writer].names_by_age().join(child::BETWEEN_NAMES);
        command.args((0..writers).map(|writer| format!("--names={}", names(writer))));
        if let Some(canary) = self.canary {
            command.arg(format!("--canary={}", canary.name()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = gate::start(&mut command);
        let mut child = child.map_err(|e| Failure::from(e).during("starting the child"))?;
        let ear = Ear::on(child.stdout.take().expect("it is piped"));
        let waited = self.wait_for(moment, writers, &ear);
        child.kill()?;
        let output = child.wait_with_output()?;
        let heard = ear.into_heard()?;
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.signal() != Some(SIGKILL) {
            return Err(Failure::new(format!("the child ended by itself, {}: {text}", output.status)));
        }
        if tells_of_panic(&text) {
            return Err(Failure::new(format!("a thread of the child panicked: {text}")));
        }
        waited?;
        let messages =
            protocol::decode_all(&heard).ok_or_else(|| Failure::new("the child talks nonsense"))?;
        let mut journal = Journal::new(world.clone(), Shape::of(seed).durability);
        let script = |writer| Script::new(seed, writer, world.writers[writer].clone());
        let mut scripts: Vec<Script> = (0..writers).map(script).collect();
        let mut opened = false;
        for message in messages {
            match message {
                Message::Opened => opened = true,
                Message::Intent(writer) => {
                    let script = &mut scripts[usize::from(writer)];
                    let task = script.next();
                    script.go_on(&task);
                    journal.intent(usize::from(writer), task);
                }
                Message::Ack(writer) => journal.ack(usize::from(writer)),
            }
        }
        Ok(Round { journal, opened })
    }
}

/// Copies the files of a directory; what the copy held before is gone. A directory that is not there has no files.
fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    if from.exists() {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
