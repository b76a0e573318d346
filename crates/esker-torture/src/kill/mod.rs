//! kill -9: a child process works on a database on the real file system and is killed at any time. The
//! remaining files must keep all promises.
//!
//! ```text
//!   parent --spawns--> child: open, writers --Intent, Ack--> pipe
//!      |--SIGKILL after a random time, often while the child is still opening
//!      |--copies the directory, opens the copy or the original --Expected--> Journal::verify
//!      `--next round: the same directory, as the kill left it or as verification closed it
//! ```
//!
//! A killed process loses nothing that it wrote to the operating system: all `Buffered` and `Sync` commits
//! survive, and a prefix of the `None` commits (`journal.rs`). A failure keeps the
//! directory as the kill left it. Until the kill, the child works: no thread panicked, it opened the
//! database, and in one round of eight each writer got another acknowledgement before the kill.

mod child;
mod gate;
mod output;
mod protocol;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use esker::Db;
use fastrand::Rng;

pub use self::child::{ChildJob, run_child};
use self::output::{OutputReader, Waited};
use self::protocol::Message;
use crate::journal::{Crash, Journal, Left};
use crate::shape::Shape;
use crate::writers::{Expected, Found, Script};
use esker_world::budget::{Budget, Progress};
use esker_world::failure::{Failure, Result};
use esker_world::figures;
use esker_world::perform::with_operator;
use esker_world::watch::{HANG_TIMEOUT, HANG_TIMEOUT_OF_CANARY, tells_of_panic};

/// Maximum number of writer threads.
const WRITERS: usize = 4;
/// The signal that cannot be caught.
const SIGKILL: i32 = 9;
/// One in this many rounds starts with a new database, so that its creation is interrupted, too.
const FRESH_EVERY: u32 = 40;

/// Faults of a child that the harness must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Acknowledges operations before committing them.
    AckEarly,
    /// Skips one operation in fifty but acknowledges it.
    Drop,
    /// Commits each batch as two commits.
    Halves,
    /// Background threads panic.
    Panic,
    /// A writer hangs.
    Hang,
}

impl Canary {
    /// All canaries with their names on the command line.
    pub const ALL: [(&'static str, Canary); 5] = [
        ("ack-early", Canary::AckEarly),
        ("drop", Canary::Drop),
        ("halves", Canary::Halves),
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

/// A campaign of kills.
#[derive(Clone, Debug)]
pub struct KillCampaign {
    /// The program to start as a child process: this one.
    pub program: PathBuf,
    /// Directory of the database; created if missing, and emptied first.
    pub dir: PathBuf,
    /// Determines everything except the times of the kills.
    pub seed: u64,
    /// Length of the campaign.
    pub budget: Budget,
    /// The injected fault.
    pub canary: Option<Canary>,
}

figures! {
    /// Counters of a campaign.
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
    /// This long after its start, mostly while it opens the database.
    Starting(Duration),
    /// This long after the database is open.
    Working(Duration),
    /// This long after the database is open, and after each writer got another acknowledgement.
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

/// The result of a round.
struct Round {
    journal: Journal,
    opened: bool,
}

impl KillCampaign {
    /// Kills children until the budget is exhausted.
    ///
    /// # Errors
    /// A broken promise, or a child that ended by itself, with the directory and the command that reproduces
    /// it.
    pub fn run(&self) -> Result<KillSummary> {
        let mut summary = KillSummary::default();
        let mut progress = Progress::new(self.budget);
        let mut rng = Rng::with_seed(self.seed);
        let mut expected = self.start_again()?;
        while progress.goes_on() {
            if rng.u32(0..FRESH_EVERY) == 0 {
                expected = self.start_again()?;
            }
            let round = self.round(&expected, &mut rng, &mut summary);
            expected = round.map_err(|failure| self.explain(&failure, progress.done()))?.expected;
            summary.rounds += 1;
            progress.advance(|| format!("{} acknowledged", summary.acknowledged));
        }
        Ok(summary)
    }

    fn database(&self) -> PathBuf {
        self.dir.join("db")
    }

    /// Returns the directory with a copy of the database as the last kill left it.
    fn evidence(&self) -> PathBuf {
        self.dir.join("as-killed")
    }

    fn start_again(&self) -> Result<Expected> {
        fs::create_dir_all(&self.dir)?;
        for dir in [self.database(), self.evidence(), self.dir.join("copy")] {
            if dir.exists() {
                fs::remove_dir_all(dir)?;
            }
        }
        Ok(Expected::empty(WRITERS))
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

    fn round(&self, expected: &Expected, rng: &mut Rng, summary: &mut KillSummary) -> Result<Left> {
        let seed = rng.u64(..);
        let writers = rng.usize(1..=WRITERS);
        let moment = Moment::draw(rng);
        let round = self.kill(expected, seed, writers, moment);
        copy_dir(&self.database(), &self.evidence())?;
        let round = round?;
        // A copy leaves the original for the next child to recover. Verifying the original closes it cleanly.
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

    /// Waits for the time of the kill. Fails if the child does not reach it. A child that ended is reported
    /// by the caller.
    fn wait_for(&self, moment: Moment, writers: usize, reader: &OutputReader) -> Result<()> {
        let (after, answered) = match moment {
            Moment::Starting(after) => {
                std::thread::sleep(after);
                return Ok(());
            }
            Moment::Working(after) => (after, false),
            Moment::Answered(after) => (after, true),
        };
        if reader.wait(HANG_TIMEOUT, |heard| !heard.is_empty()) == Waited::TimedOut {
            return Err(Failure::new(format!("the child has not opened the database in {HANG_TIMEOUT:?}")));
        }
        std::thread::sleep(after);
        if answered {
            // The canary hangs once the database is open.
            let timeout =
                if self.canary == Some(Canary::Hang) { HANG_TIMEOUT_OF_CANARY } else { HANG_TIMEOUT };
            let before = protocol::acks(&reader.heard(), writers);
            let is_answered = |heard: &[u8]| {
                protocol::acks(heard, writers).iter().zip(&before).all(|(now, before)| now > before)
            };
            if reader.wait(timeout, is_answered) == Waited::TimedOut {
                let now = protocol::acks(&reader.heard(), writers);
                return Err(Failure::new(format!(
                    "a writer hangs for {timeout:?}: the numbers of acknowledged operations were {before:?} and are {now:?}"
                )));
            }
        }
        Ok(())
    }

    /// Starts a child and kills it.
    fn kill(&self, expected: &Expected, seed: u64, writers: usize, moment: Moment) -> Result<Round> {
        let mut command = Command::new(&self.program);
        command.arg("kill-child").arg(self.database()).arg(seed.to_string());
        let names = |writer: usize| expected.writers[writer].names_by_age().join(child::BETWEEN_NAMES);
        command.args((0..writers).map(|writer| format!("--names={}", names(writer))));
        if let Some(canary) = self.canary {
            command.arg(format!("--canary={}", canary.name()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = gate::start(&mut command);
        let mut child = child.map_err(|e| Failure::from(e).during("starting the child"))?;
        let reader = OutputReader::on(child.stdout.take().expect("it is piped"));
        let waited = self.wait_for(moment, writers, &reader);
        child.kill()?;
        let output = child.wait_with_output()?;
        let heard = reader.into_heard()?;
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.signal() != Some(SIGKILL) {
            return Err(Failure::new(format!("the child ended by itself, {}: {text}", output.status)));
        }
        if tells_of_panic(&text) {
            return Err(Failure::new(format!("a thread of the child panicked: {text}")));
        }
        waited?;
        let messages =
            protocol::decode_all(&heard).ok_or_else(|| Failure::new("the output of the child is invalid"))?;
        let mut journal = Journal::new(expected.clone(), Shape::of(seed).durability);
        let script = |writer| Script::new(seed, writer, expected.writers[writer].clone());
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

/// Copies the files of a directory, replacing the target. A missing source has no files.
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
