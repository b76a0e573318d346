//! A replica: a second database, on its own disk, that replays the commits of the first.
//!
//! ```text
//!   Db --checkpoint--> image of the disk --open--> the replica
//!   Db --feed, commit by commit--> Replay --> the replica --compare--> the model at the replica's position
//!                  `-- too far behind: another checkpoint
//! ```
//!
//! - The replica equals the state at its position: entries, expiry times, keyspaces and
//!   options.
//! - The feed shows no commit that a crash of the first database undoes.
//!
//! A restarted replica keeps its durable commits and continues after them. If the feed retains everything,
//! the replica is never too far behind.

use std::sync::Arc;

use esker::replay::{Replay, encode};
use esker::{Builder, Db, Durability, Error, Feed, Result, SeqNo};
use esker_env::{Env, FaultFs, ManualClock, MemFs};

use super::copy::{COPY, options_of, remove};
use super::faults::attempt;
use super::restart::lose;
use super::{DIR, World};
use crate::judge::read;
use crate::op::{Following, Loss};

/// The replica and its connection to the first database.
pub(super) struct Replica {
    disk: MemFs,
    /// The file system of the current process.
    faults: FaultFs,
    db: Db,
    /// `None` until it has opened its keyspaces.
    replay: Option<Replay>,
    /// The feed of the first database's current process.
    feed: Option<Feed>,
    /// Pairs of its own commit number and that of the first database. The first pair is the checkpoint's.
    places: Vec<(u64, u64)>,
    /// Its last durable commit.
    synced: u64,
}

impl Replica {
    /// Returns the replayed commit number of the first database.
    fn position(&self) -> u64 {
        self.places.last().map_or(0, |(_, position)| *position)
    }

    /// Closes the feed at the end of the first database's process.
    pub(super) fn let_go(&mut self) {
        self.feed = None;
    }

    /// Replays commits of the feed. Returns their number.
    fn catch_up(&mut self, first: &Db, how: &Following) -> Result<u64> {
        let mut made = 0;
        let mut feed = match self.feed.take() {
            Some(feed) => feed,
            None => first.feed_after(SeqNo::new(self.position()))?,
        };
        while how.commits == 0 || made < u64::from(how.commits) {
            let mut commit = match feed.try_next() {
                Ok(Some(commit)) => commit,
                // There are no more commits.
                Ok(None) | Err(Error::Poisoned(_)) => break,
                Err(error) => return Err(error),
            };
            let mut changes = Vec::new();
            while let Some(change) = commit.next_change()? {
                encode(&change, &mut changes)?;
            }
            self.make(commit.seqno().get(), &changes, how.durability);
            made += 1;
        }
        self.feed = Some(feed);
        Ok(made)
    }

    /// Replays one commit.
    fn make(&mut self, seqno: u64, changes: &[u8], durability: Durability) {
        let db = &self.db;
        let replay = self.replay.get_or_insert_with(|| Replay::new(db).expect("it is open"));
        let (part, rest) = changes.split_at(changes.len() / 2);
        let made = replay
            .take(part, |_, _| {})
            .and_then(|()| replay.take(rest, |_, _| {}))
            .and_then(|()| replay.commit(durability));
        let own =
            made.unwrap_or_else(|error| panic!("replica: commit {seqno} cannot be made again: {error}"));
        if durability == Durability::Sync {
            self.synced = own.get();
        }
        self.places.push((own.get(), seqno));
    }

    /// Restarts the replica after a power loss.
    fn restart(self, loss: Loss, builder: Builder, clock: &Arc<ManualClock>, seed: u64) -> Replica {
        let Replica { disk, faults, db, replay, feed: _, mut places, synced } = self;
        faults.freeze();
        drop((replay, db));
        let disk = lose(&disk, loss);
        let (faults, db) = open(&disk, builder, clock, seed);
        let own = db.stats().seqno.get();
        assert!(own >= synced, "commit {synced} is gone: it ends with {own}");
        places.retain(|(number, _)| *number <= own);
        Replica { disk, faults, db, replay: None, feed: None, places, synced: own }
    }
}

/// Opens the replica.
fn open(disk: &MemFs, builder: Builder, clock: &Arc<ManualClock>, seed: u64) -> (FaultFs, Db) {
    let faults = FaultFs::new(Arc::new(disk.clone()));
    let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(faults.clone()), seed) };
    let opened = builder.env(env).open(COPY);
    let db = opened.unwrap_or_else(|error| panic!("it cannot be opened: {error}"));
    (faults, db)
}

/// Returns the lengths of all keyspaces.
fn lens(db: &Db) -> Result<Vec<u64>> {
    db.keyspaces()?.iter().map(|name| db.open_keyspace(name)?.len()).collect()
}

impl World {
    /// Replays some commits and compares. Creates the replica if there is none.
    pub(super) fn follow_on(&mut self, how: &Following) {
        if self.keeps_all().is_none() {
            return;
        }
        let Some(mut replica) = self.copies.replica.take() else { return self.begin_replica() };
        let position = replica.position();
        let outcome = attempt(|| replica.catch_up(self.db(), how));
        match outcome {
            Ok(made) => self.tally.replayed += made,
            Err(Error::FeedTruncated { oldest }) => {
                let is_kept = self.copies.kept_from.is_some_and(|kept| position >= kept);
                assert!(!is_kept, "behind {position} the feed begins with {oldest}");
                self.tally.truncated += 1;
                return;
            }
            Err(error) => {
                self.read::<()>(Err(error));
            }
        }
        self.check_replica(&replica);
        if let Some(loss) = how.loss {
            let opening = self.opening_of_copies();
            replica = replica.restart(loss, self.builder(opening), &self.machine.clock, self.seed);
            self.check_replica(&replica);
            self.tally.power_losses += 1;
        }
        self.copies.replica = Some(replica);
    }

    /// Creates the replica from a checkpoint.
    fn begin_replica(&mut self) {
        self.checkpoint();
        let Some(seqno) = self.copies.checkpoint.as_ref().and_then(|copied| copied.made) else { return };
        if self.is_dead() {
            return;
        }
        let disk = self.machine.disk.kill();
        disk.set_capacity(None);
        remove(&disk, DIR.as_ref());
        let builder = self.builder(self.opening_of_copies());
        let (faults, db) = open(&disk, builder, &self.machine.clock, self.seed);
        let own = db.stats().seqno.get();
        let places = vec![(own, seqno)];
        self.copies.replica =
            Some(Replica { disk, faults, db, replay: None, feed: None, places, synced: own });
    }

    /// Compares the replica with the model.
    fn check_replica(&self, replica: &Replica) {
        let (db, position) = (&replica.db, replica.position());
        let states = self.copies.timeline.at(position);
        if states.is_empty() {
            return;
        }
        let now_ms = db.time_ms();
        // Unswept expired entries count.
        let found = read::contents_with(db, false, !self.expires, self.expires.then_some(now_ms));
        let found = found.unwrap_or_else(|error| panic!("replica: it cannot be read: {error}"));
        if let Some(difference) = self.difference(&states, &found, now_ms) {
            panic!("replica: at {position} it is another: {difference}");
        }
        if position == self.seqno()
            && let Ok(expected) = attempt(|| options_of(self.db()))
        {
            let found = options_of(db).unwrap_or_else(|error| panic!("replica: options: {error}"));
            assert_eq!(found, expected, "replica: options at {position}");
            // Both count unswept expired entries.
            if let (Ok(expected), Ok(found)) = (attempt(|| lens(self.db())), lens(db)) {
                assert_eq!(found, expected, "replica: lengths at {position}");
            }
        }
    }

    /// Compares the replica's position with the last commit that an opening found.
    pub(super) fn check_replica_is_behind(&self, seqno: u64) {
        let position = self.copies.replica.as_ref().map_or(0, Replica::position);
        assert!(position <= seqno, "the feed has shown {position}, and {seqno} is the last");
    }
}
