//! Power loss below the file system: a recorded block device is stopped at any moment, what its cache may leave is mounted
//! again by the kernel, and the database on it must keep every promise.
//!
//! ```text
//!   life: Db on ext4 on a loop device on Drive --events--> Content at moment m --power_loss--> image
//!       --> ext4 mounts it (its journal recovers) --> Db --> World --> Journal::verify
//!   the next life begins with one of the images
//! ```
//!
//! The file system is the real one of the running kernel: what a sync, a rename or a directory sync is worth is up to it.
//!
//! torture_block.1. After a power loss every `Sync` commit is there, and what is left is a prefix of the commits (journal.1 to journal.4).

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
use crate::writers::{Found, World, Writers};
use esker_world::budget::{Budget, Progress};
use esker_world::failure::{Failure, Result};
use esker_world::figures;
use esker_world::perform::with_operator;

/// The size of the drive.
const DRIVE_BYTES: usize = 48 << 20;
/// The most threads that write.
const WRITERS: usize = 3;
/// The most lives of a database in one run.
const LIVES: usize = 3;
/// The most operations of a writer in one life.
const OPS: usize = 60;

/// A lie of the drive, to prove that the harness notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Flushes do nothing.
    Flush,
}

/// A campaign of power losses. Needs Linux, root, FUSE, loop devices and ext4.
#[derive(Clone, Debug)]
pub struct BlockCampaign {
    /// Where things are mounted; made if missing.
    pub dir: PathBuf,
    /// Determines all but the scheduling of threads and what the kernel makes of it.
    pub seed: u64,
    /// How long, in runs.
    pub budget: Budget,
    /// Moments at which each life loses power.
    pub moments: usize,
    /// What the drive does wrong.
    pub canary: Option<Canary>,
}

figures! {
    /// The figures of a campaign.
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
    /// Why no such campaign can be run here, or `None` when it can.
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

    /// Runs until the budget is used up.
    ///
    /// # Errors
    /// A broken promise, with the image that shows it and the command to try again; something that this needs and that
    /// is not here.
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
                    "run {}: {failure}\nto try again (threads are scheduled anew): esker-torture block --seed {} --runs {} \
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
        let (mut image, mut world) = (formatted.to_vec(), World::empty(WRITERS));
        let lives = rng.usize(1..=LIVES);
        for n in 1..=lives {
            let writers =
                Writers { seed: rng.u64(..), count: rng.usize(1..=WRITERS), tasks: rng.usize(0..OPS) };
            let events = live(host, image.clone(), &world, shape, writers);
            let events = events.map_err(|failure| failure.during(&format!("life {n}")))?;
            let mut moments: Vec<usize> = (0..self.moments).map(|_| moment(&events, &mut rng)).collect();
            moments.sort_unstable();
            let next = rng.usize(0..moments.len().max(1));
            let mut content = Content::durable(image);
            let mut journal = Journal::new(world, shape.durability);
            let mut done = 0;
            let mut left = None;
            for (i, &moment) in moments.iter().enumerate() {
                for (at, event) in events.iter().enumerate().take(moment).skip(done) {
                    apply(&mut content, at, event);
                    if let Event::Said(said) = event {
                        journal.hear(said);
                    }
                }
                done = moment;
                let lost = content.power_loss(&mut rng);
                let found = self.verify(host, &lost, &journal, summary).map_err(|failure| {
                    failure.during(&format!("life {n} of {lives}, moment {moment} of {}", events.len()))
                })?;
                if i == next {
                    left = Some((lost, found.world));
                }
            }
            summary.lives += 1;
            summary.acknowledged += journal.acknowledged() as u64;
            summary.writes += events.iter().filter(|e| matches!(e, Event::Write { .. })).count() as u64;
            summary.flushes += events.iter().filter(|e| matches!(e, Event::Flush)).count() as u64;
            let Some(left) = left else { break };
            (image, world) = left;
        }
        Ok(())
    }

    /// Mounts what a power loss left, and opens the database on it.
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

    /// Keeps the image of a failure as the loss left it.
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

/// One life: mount, open, write, close, unmount. Gives all that happened.
fn live(host: &Host, image: Vec<u8>, expected: &World, shape: Shape, writers: Writers) -> Result<Vec<Event>> {
    let attached = host.attach(image)?;
    let db = shape.builder().open(attached.path().join("db"))?;
    let found = Found::read(&db, WRITERS)?;
    if !found.is(expected) {
        return Err(Failure::new(
            "the database shows something else than when the same drive was opened before",
        ));
    }
    writers.work(&db, expected, &|said| host.drive.say(said))?;
    db.close()?;
    attached.detach()
}

/// A moment of a life: any, or just after something at which much is at stake.
fn moment(events: &[Event], rng: &mut Rng) -> usize {
    let any = rng.usize(0..=events.len());
    if rng.bool() {
        return any;
    }
    let turn = events[..any].iter().rposition(|event| !matches!(event, Event::Write { .. }));
    turn.map_or(any, |at| at + 1)
}
