//! Power loss below the file system: a recorded block device is stopped at any point, the kernel mounts a
//! possible state of the disk, and the database on it must keep all promises.
//!
//! ```text
//!   life: Db on ext4 on a loop device on Drive --events--> Content at a point --power_loss--> image
//!       --> ext4 mounts it (and replays its journal) --> Db --> Expected --> Journal::verify
//!   the next life starts with one of the images
//! ```
//!
//! The file system is that of the running kernel, which determines the effect of syncs and renames. After a
//! power loss every `Sync` commit exists, and the surviving commits are a prefix (`journal.rs`).

mod device;
mod host;

use std::path::PathBuf;

use esker::Db;
use fastrand::Rng;

use self::device::{Drive, Event, apply};
use self::host::Host;
use crate::content::Content;
use crate::journal::{Crash, Journal, Left};
use crate::shape::Shape;
use crate::writers::{Expected, Found, Writers};
use esker_world::budget::{Budget, Progress};
use esker_world::failure::{Failure, Result};
use esker_world::figures;
use esker_world::perform::with_operator;

/// The size of the drive.
const DRIVE_BYTES: usize = 48 << 20;
/// Maximum number of writer threads.
const WRITERS: usize = 3;
/// Maximum number of lives of a database in one run.
const LIVES: usize = 3;
/// Maximum number of operations of a writer in one life.
const OPS: usize = 60;

/// A fault of the drive that the harness must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Flushes do nothing.
    Flush,
}

/// A campaign of power losses. Requires Linux, root, FUSE, loop devices and ext4.
#[derive(Clone, Debug)]
pub struct BlockCampaign {
    /// Directory for the mount points; created if missing.
    pub dir: PathBuf,
    /// Determines everything except thread scheduling and the kernel's behavior.
    pub seed: u64,
    /// Length of the campaign in runs.
    pub budget: Budget,
    /// Number of power losses per life.
    pub moments: usize,
    /// The injected fault of the drive.
    pub canary: Option<Canary>,
}

figures! {
    /// Counters of a campaign.
    BlockSummary {
        runs: "runs: drives, each with some lives",
        lives: "lives",
        losses: "power losses survived",
        writes: "writes that the drives saw",
        flushes: "flushes that the drives saw",
        acknowledged: "operations acknowledged",
        lost: "acknowledged with less than `Sync`, and lost, over all losses",
        torn: "losses that left a torn log tail",
    }
}

impl BlockCampaign {
    /// Returns why the campaign cannot run on this system, or `None` if it can.
    pub fn obstacle(&self) -> Option<String> {
        let attempt = || {
            let host = self.host()?;
            let image = host.format()?;
            host.attach(image)?.detach()
        };
        attempt().err().map(|failure| failure.to_string())
    }

    fn host(&self) -> Result<Host> {
        Host::new(&self.dir, Drive::new(DRIVE_BYTES, self.canary == Some(Canary::Flush)))
    }

    /// Runs until the budget is exhausted.
    ///
    /// # Errors
    /// A broken promise, with the image and the command that reproduces it, or a missing requirement.
    pub fn run(&self) -> Result<BlockSummary> {
        let host = self.host().map_err(|f| f.during("needs Linux, root, FUSE, loop devices and ext4"))?;
        let formatted = host.format()?;
        let mut summary = BlockSummary::default();
        let mut progress = Progress::new(self.budget);
        let mut rng = Rng::with_seed(self.seed);
        while progress.goes_on() {
            let run = self.one_run(&host, &formatted, rng.u64(..), &mut summary);
            run.map_err(|failure| {
                Failure::new(format!(
                    "run {}: {failure}\nto reproduce (thread scheduling may differ): esker-torture block --seed {} --runs {} \
                     --moments {}",
                    progress.done(),
                    self.seed,
                    progress.done() + 1,
                    self.moments
                ))
            })?;
            summary.runs += 1;
            progress.advance(|| format!("{} losses survived", summary.losses));
        }
        Ok(summary)
    }

    fn one_run(&self, host: &Host, formatted: &[u8], seed: u64, summary: &mut BlockSummary) -> Result<()> {
        let mut rng = Rng::with_seed(seed);
        let shape = Shape::of(seed);
        let (mut image, mut expected) = (formatted.to_vec(), Expected::empty(WRITERS));
        let lives = rng.usize(1..=LIVES);
        for n in 1..=lives {
            let writers =
                Writers { seed: rng.u64(..), count: rng.usize(1..=WRITERS), tasks: rng.usize(0..OPS) };
            let events = live(host, image.clone(), &expected, shape, writers);
            let events = events.map_err(|failure| failure.during(&format!("life {n}")))?;
            let mut moments: Vec<usize> = (0..self.moments).map(|_| moment(&events, &mut rng)).collect();
            moments.sort_unstable();
            let next = rng.usize(0..moments.len().max(1));
            let mut content = Content::durable(image);
            let mut journal = Journal::new(expected, shape.durability);
            let mut done = 0;
            let mut left = None;
            for (i, &moment) in moments.iter().enumerate() {
                for (at, event) in events.iter().enumerate().take(moment).skip(done) {
                    apply(&mut content, at, event);
                    if let Event::WriterEvent(said) = event {
                        journal.hear(said);
                    }
                }
                done = moment;
                let lost = content.power_loss(&mut rng);
                let found = self.verify(host, &lost, &journal, summary).map_err(|failure| {
                    failure.during(&format!("life {n} of {lives}, moment {moment} of {}", events.len()))
                })?;
                if i == next {
                    left = Some((lost, found.expected));
                }
            }
            summary.lives += 1;
            summary.acknowledged += journal.acknowledged() as u64;
            summary.writes += events.iter().filter(|e| matches!(e, Event::Write { .. })).count() as u64;
            summary.flushes += events.iter().filter(|e| matches!(e, Event::Flush)).count() as u64;
            let Some(left) = left else { break };
            (image, expected) = left;
        }
        Ok(())
    }

    /// Mounts the state after a power loss and opens the database on it.
    fn verify(
        &self,
        host: &Host,
        image: &[u8],
        journal: &Journal,
        summary: &mut BlockSummary,
    ) -> Result<Left> {
        let verdict = || {
            let attached = host.attach(image.to_vec())?;
            let db = with_operator(Db::builder()).open(attached.path().join("db"));
            let db = db.map_err(|e| Failure::from(e).during("opening"))?;
            let torn = db.stats().recovered_torn_bytes > 0;
            let found = Found::read(&db, WRITERS)?;
            let left = journal.verify(&found, Crash::Power)?;
            db.close()?;
            attached.detach()?;
            Ok((left, torn))
        };
        let (left, torn) = verdict().map_err(|failure: Failure| self.keep(image, &failure))?;
        summary.losses += 1;
        summary.lost += left.lost as u64;
        summary.torn += u64::from(torn);
        Ok(left)
    }

    /// Keeps the image of a failure.
    fn keep(&self, image: &[u8], failure: &Failure) -> Failure {
        let path = self.dir.join("as-lost.img");
        match std::fs::write(&path, image) {
            Ok(()) => Failure::new(format!(
                "{failure}\nthe drive as the power loss left it: mount -o loop {} DIR",
                path.display()
            )),
            Err(error) => Failure::new(format!("{failure}\nthe drive could not be kept: {error}")),
        }
    }
}

/// Runs one life: mount, open, write, close, unmount. Returns all events.
fn live(
    host: &Host,
    image: Vec<u8>,
    expected: &Expected,
    shape: Shape,
    writers: Writers,
) -> Result<Vec<Event>> {
    let attached = host.attach(image)?;
    let db = shape.builder().open(attached.path().join("db"))?;
    let found = Found::read(&db, WRITERS)?;
    if !found.is(expected) {
        return Err(Failure::new(
            "the contents differ from those found by an earlier opening of the same image",
        ));
    }
    writers.work(&db, expected, &|said| host.drive.say(said))?;
    db.close()?;
    attached.detach()
}

/// Chooses a point of a life: any, or one just after a critical event.
fn moment(events: &[Event], rng: &mut Rng) -> usize {
    let any = rng.usize(0..=events.len());
    if rng.bool() {
        return any;
    }
    let turn = events[..any].iter().rposition(|event| !matches!(event, Event::Write { .. }));
    turn.map_or(any, |at| at + 1)
}
