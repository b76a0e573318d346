//! Uses all features at once, in several threads and with kills. Acknowledged commits survive, and each copy
//! equals the state after its commit.
//!
//! ```text
//!   parent --spawns, kills--> child: opens, verifies the previous state, then concurrently
//!                               workers  puts, lifetimes, merges, ranges, ingests, names, locks --ledger-->
//!                               copier   checkpoints, backups, archive, restore, repair
//!                               engine   flushes, compactions, sweeps, blob collection, history, feed
//! ```
//!
//! After a kill, each worker's keyspaces contain the result of its acknowledged commits, with or without the
//! pending one. A copy with a commit number contains exactly the commits up to it, with exact counts.
//! Keyspaces keep their options, in the database and in copies.

mod child;
mod copier;
mod judge;
mod ledger;
mod model;
mod worker;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use esker_world::budget::{Budget, Progress};
use esker_world::failure::{Failure, Result};
use esker_world::figures;
use esker_world::watch::tells_of_panic;
use fastrand::Rng;

pub use self::child::{StormJob, run_storm_child};

/// Number of writer threads.
const WORKERS: usize = 4;
/// One round in this many starts with a new database.
const FRESH_EVERY: u32 = 20;
/// Maximum time of a child that is not killed, in addition to its working time.
const CHILD_TIMEOUT: Duration = Duration::from_secs(300);

/// A campaign.
#[derive(Clone, Debug)]
pub struct StormCampaign {
    /// The program to start as a child process: this one.
    pub program: PathBuf,
    /// Directory of the database, ledgers and copies.
    pub dir: PathBuf,
    /// Determines everything except timing.
    pub seed: u64,
    /// Length of the campaign.
    pub budget: Budget,
    /// Whether results of merges and updates on expiring keys are not compared.
    pub skips_folded_expiry: bool,
}

figures! {
    /// Counters of a campaign.
    StormSummary {
        rounds: "processes",
        kills: "of them killed",
        while_opening: "of these, while opening or verifying",
        commits: "commits acknowledged (those of a process's last 50 ms are not counted)",
        checkpoints: "checkpoints compared by commit number",
        backups: "backups restored and compared",
        restores: "commits restored from the archive and compared",
    }
}

impl StormCampaign {
    /// Starts and kills children until the budget is exhausted.
    ///
    /// # Errors
    /// A broken promise, with the directory and the seed.
    pub fn run(&self) -> Result<StormSummary> {
        let (mut summary, mut progress) = (StormSummary::default(), Progress::new(self.budget));
        let mut rng = Rng::with_seed(self.seed);
        while progress.goes_on() {
            if summary.rounds == 0 || rng.u32(0..FRESH_EVERY) == 0 {
                self.start_again()?;
            }
            self.round(&mut rng, &mut summary).map_err(|failure| self.explain(&failure, progress.done()))?;
            summary.rounds += 1;
            progress.advance(|| format!("{} acknowledged", summary.commits));
        }
        Ok(summary)
    }

    fn place(&self) -> PathBuf {
        self.dir.join("storm")
    }

    fn start_again(&self) -> Result<()> {
        let place = self.place();
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        Ok(fs::create_dir_all(&place)?)
    }

    fn explain(&self, failure: &Failure, round: u64) -> Failure {
        let (seed, dir, place) = (self.seed, self.dir.display(), self.place());
        Failure::new(format!(
            "round {round}: {failure}\nwhat is left: {}\nto try again (the moments differ): esker-torture storm --seed {seed} \
             --rounds {} --dir {dir}",
            place.display(),
            round + 1,
        ))
    }

    fn round(&self, rng: &mut Rng, summary: &mut StormSummary) -> Result<()> {
        let (seed, is_killed) = (rng.u64(..), rng.u8(0..8) > 0);
        let millis = rng.u64(200..4000);
        let mut command = Command::new(&self.program);
        command.arg("storm-child").arg(self.place()).arg(seed.to_string()).arg(WORKERS.to_string());
        command.arg(if is_killed { 3_600_000 } else { millis }.to_string());
        if self.skips_folded_expiry {
            command.arg("--skip-folded-expiry");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Failure::from(error).during("starting the child"))?;
        let killer = is_killed.then(|| child.id());
        let output = match killer {
            Some(_) => {
                std::thread::sleep(Duration::from_millis(if rng.u8(0..6) == 0 {
                    millis / 20
                } else {
                    millis
                }));
                child.kill()?;
                child.wait_with_output()?
            }
            None => wait(child, CHILD_TIMEOUT + Duration::from_millis(millis))?,
        };
        self.judge(&output, is_killed, summary)
    }

    fn judge(&self, output: &Output, is_killed: bool, summary: &mut StormSummary) -> Result<()> {
        let text = String::from_utf8_lossy(&output.stderr);
        let is_well = output.status.success() || is_killed && output.status.signal() == Some(9);
        if !is_well || tells_of_panic(&text) {
            return Err(Failure::new(format!("the child ended by itself, {}: {text}", output.status)));
        }
        let heard = String::from_utf8_lossy(&output.stdout);
        let mut lines = heard.lines();
        let is_open = lines.next().is_some();
        summary.kills += u64::from(is_killed);
        summary.while_opening += u64::from(is_killed && !is_open);
        let numbers = lines.rfind(|line| line.split(' ').count() == 4).unwrap_or("0 0 0 0");
        let mut numbers = numbers.split(' ').map(|number| number.parse::<u64>().unwrap_or(0));
        let mut add = |count: &mut u64| *count += numbers.next().unwrap_or(0);
        add(&mut summary.commits);
        add(&mut summary.checkpoints);
        add(&mut summary.backups);
        add(&mut summary.restores);
        Ok(())
    }
}

/// Waits for a child that ends by itself.
fn wait(mut child: std::process::Child, timeout: Duration) -> Result<Output> {
    let end = std::time::Instant::now() + timeout;
    while child.try_wait()?.is_none() {
        if std::time::Instant::now() > end {
            child.kill()?;
            return Err(Failure::new(format!("the child has not ended in {timeout:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(child.wait_with_output()?)
}
