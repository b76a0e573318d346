//! Runs operations on a database and on the model, and compares.
//!
//! ```text
//!   Op --> Db on FaultFs(MemFs)      results, reads, what is there after a restart
//!     `--> History                   must agree with the model, or the run panics
//! ```
//!
//! world.1. Reads of the newest state, of snapshots, of transactions, and of iterators and cursors held for long agree with the
//!     model.
//! world.2. A transaction fails with a conflict if and only if a commit since its beginning touched what it writes, or has read if it is serializable.
//! world.3. After a restart the state is one that the history allows (model_history.1 to model_history.3); `len` is exact; `check` finds nothing.
//! world.4. A call fails only if there is a reason: a fault was injected, the disk is full, or the log has failed before.
//!     A commit that fails, unless because of the log, has done nothing. The log fails only if a call of its own does.
//! world.5. A disk that is full fails a commit for want of space and no more: the log does not fail, and commits succeed once
//!     there is space. Exception: a large commit whose edit of the manifest fails, if there is no space for another manifest either.
//! world.6. Reads go on: one fails only if a call of its own does.
//! world.7. After a flush that nothing troubles the log has no segment but the one in use, whatever could not be removed before. Exception: where it
//!     is kept for the change feed.
//! world.8. A call of the file system's that panics ends the operation, and no other one. Writes may be refused from then on, until the database is
//!     opened again; where they are not, the operation has done nothing.
//! world.9. A keyspace that keeps history is read as it was at a commit, or refused with an older limit; and what has changed since a commit
//!     leads from that state to the newest (past.rs).
//! world.10. A checkpoint or a backup holds what the database held at the commit that it says it ends with, whatever happens to either and
//!     whatever was done between the steps that made it. A checkpoint that a process died in is whole or not there (copy.rs).
//!     The same holds of what is restored from an archive (archive.rs), of a file and what is loaded from it (unload.rs), and of
//!     a second database that makes the commits of the feed again (replica.rs).

mod archive;
mod between;
mod copy;
mod feed;
mod filtered;
mod offline;
mod outlook;
mod past;
mod replica;
mod restart;
mod timeline;
mod transaction;
pub mod trouble;
mod unload;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use esker::{Db, Durability, Keyspace, Snapshot};
use esker_env::{BrokenSync, FaultFs, Fs, ManualClock, MemFs, OpenOptions, SeededRandom};

pub use self::restart::{Left, builder};

use self::transaction::HeldTransaction;
use self::trouble::{attempt, is_panic};
use crate::figures;
use crate::judge::read::{self, HeldIterator, Source, check_read};
use crate::judge::walk::HeldCursor;
use crate::model::history::History;
use crate::model::keys::bounds;
use crate::model::state::{Id, Map, State};
use crate::op::{KeyspaceNo, Op, Opening, Read, Reader, Restart, SLOTS};
use crate::perform::{names, perform};
use crate::setting;

/// Where the database lives in the simulated file system.
pub const DIR: &str = "db";
/// A batch of so many writes may have log segments of its own.
const LARGE_COMMIT: usize = 14;

figures! {
    /// What happened in a run.
    Tally {
        ops: "operations done",
        commits: "commits acknowledged",
        conflicts: "conflicts found",
        undone: "times that a part of a transaction was undone",
        read_conflicts: "conflicts found by reads alone",
        reopenings: "databases closed or let go, and opened again",
        kills: "processes killed",
        unheard: "of these, the ones after which the system failed to write something, and nobody heard of it",
        power_losses: "power losses",
        inside_calls: "of kills and power losses those inside a call",
        while_opening: "of kills and power losses those while opening",
        inspected: "openings before which the tools that read files were tried on what was there",
        long_ids: "of these, the ones with a keyspace whose number takes several bytes",
        faults: "calls that failed on purpose",
        refused: "operations that failed because the disk was full",
        turns: "held cursors whose first step after other operations turned round",
        tiered: "runs in which several tier runs were there at once: data beyond the cache",
        tier_merges: "operations that made tier runs more or fewer: merges into them and out of them",
        unresolved: "runs in which commits left it to others to find out what they count",
        adopted: "large commits that became tables",
        wide: "runs in which a sorted run had several tables",
        moved: "runs in which tables moved to a lower run without being written",
        recycled: "runs in which the file of a log segment was kept for another",
        grown: "runs in which log segments of one process had several sizes",
        bulky: "runs in which a commit filled several log segments of its own",
        unreserved: "of these, the ones whose disk reserves no space",
        rewritten: "runs in which a manifest that had grown too long was replaced",
        expired: "runs in which entries expired",
        blobs: "runs in which values went to blob files",
        collected: "runs in which a blob file was collected, or removed as garbage",
        scattered: "runs in which a commit wrote to more keyspaces than operations make",
        followed: "commits that a reader of the change feed has applied to its copy",
        truncated: "times that it was too far behind, and began anew",
        past: "reads of keyspaces as they were",
        past_refused: "of commits that are not kept any more",
        versions: "versions of keys that were compared with what was",
        filtered: "entries that compaction filters have removed or changed",
        updated: "changes made of what keys had",
        copied: "checkpoints made",
        backed_up: "backups made, and restored",
        between: "operations done between two steps of another one",
        archived: "segments added to an archive",
        restored: "commits restored from a backup and an archive",
        replayed: "commits made again in a second database",
        unloaded: "files that the database was unloaded to, and loaded from",
        resumed: "of these, the ones that went on with what an earlier process had written",
        cut: "processes that ended while they loaded one",
        uncopied: "times that nothing was there of one that had failed",
        caught_up: "times that what had changed since a commit led to the newest state",
        large: "runs in which a value of a million bytes or more was committed",
        fs_calls: "calls of the file system",
        fingerprint: "a number that two runs share if they did the same",
    }
}

/// The database and its model.
pub struct World {
    disk: MemFs,
    /// The present process's door to the disk.
    faults: FaultFs,
    clock: Arc<ManualClock>,
    seed: u64,
    /// The disk is one without direct I/O.
    plain: bool,
    db: Option<Db>,
    keyspaces: BTreeMap<Id, Keyspace>,
    history: History,
    snapshots: [Option<(Snapshot, State)>; SLOTS],
    transactions: [Option<HeldTransaction>; SLOTS],
    iterators: [Option<HeldIterator>; SLOTS],
    cursors: [Option<HeldCursor>; SLOTS],
    /// Of the change feed.
    reader: feed::Reader,
    /// What is done between the steps of the next operation that has a point for it.
    between: Option<Vec<Op>>,
    copies: copy::Copies,
    filters: Arc<filtered::Filters>,
    /// States with the numbers of their commits, the newest last (past.rs).
    past: Vec<(u64, State)>,
    durability: Durability,
    /// How the present process has opened the database; none before the first.
    opening: Option<Opening>,
    /// Tier runs after the last operation.
    tier_runs: u64,
    /// Large commits of the present process.
    adoptions: u64,
    /// The files that the present process found.
    inherited: Vec<String>,
    /// The blob files that were there after the last operation.
    blob_files: BTreeSet<String>,
    /// What `CURRENT` held when it was last looked at.
    current: Vec<u8>,
    /// The log has failed since the database was opened.
    poisoned: bool,
    /// A call has panicked since then: it may have.
    panicked: bool,
    /// Faults that had fired when the operation at hand began.
    fired_before: u64,
    /// Calls that a full disk had refused by then.
    refused_before: u64,
    /// The same two numbers of when the process began.
    at_birth: (u64, u64),
    /// Something that expires has been put.
    expires: bool,
    /// The last process has closed the database, and met no fault.
    is_tidy: bool,
    /// What follows once the process has ended inside a call.
    armed: Option<Restart>,
    /// Faults stay across restarts, and the caller decides what follows an end inside a call.
    pub swept: bool,
    /// One sequence for all processes, which so draw other numbers than those before them.
    random: Arc<SeededRandom>,
    /// Openings and forks so far: they decide which openings are inspected.
    openings: u64,
    /// All openings are inspected.
    pub inspects_all: bool,
    tally: Tally,
}

impl World {
    /// A new disk, without a database.
    pub fn new(seed: u64, broken: Option<BrokenSync>) -> Self {
        let disk = MemFs::new();
        disk.leave_noise();
        if setting::has_unsynced_dir(seed) {
            // Its owner has made the directory, and not synced its parent.
            disk.make_dir(DIR.as_ref()).expect("it is new");
        }
        broken.into_iter().for_each(|which| disk.break_syncs(which));
        World {
            faults: FaultFs::new(Arc::new(disk.clone())),
            disk,
            clock: Arc::new(ManualClock::new()),
            seed,
            plain: false,
            db: None,
            keyspaces: BTreeMap::new(),
            history: History::new(State::new()),
            snapshots: Default::default(),
            transactions: Default::default(),
            iterators: Default::default(),
            cursors: Default::default(),
            reader: feed::Reader::default(),
            between: None,
            copies: copy::Copies::default(),
            filters: Arc::default(),
            past: Vec::new(),
            durability: Durability::Sync,
            opening: None,
            tier_runs: 0,
            adoptions: 0,
            inherited: Vec::new(),
            blob_files: BTreeSet::new(),
            current: Vec::new(),
            poisoned: false,
            panicked: false,
            fired_before: 0,
            refused_before: 0,
            at_birth: (0, 0),
            expires: false,
            is_tidy: false,
            armed: None,
            swept: false,
            random: Arc::new(SeededRandom::new(seed)),
            openings: 0,
            inspects_all: false,
            tally: Tally::default(),
        }
    }

    /// From now on no file is direct, reads are short, and no space can be reserved.
    pub fn be_plain(&mut self) {
        self.disk.be_plain();
        self.plain = true;
    }

    /// How the present process has opened the database.
    pub fn opening(&self) -> Option<Opening> {
        self.opening
    }

    /// Whether a file is direct for who asks for it.
    pub fn gives_direct_files(&self) -> bool {
        let file = self.image().open("a new file".as_ref(), OpenOptions::create_new().direct());
        file.expect("there is room").is_direct()
    }

    /// What has happened so far.
    pub fn tally(&self) -> Tally {
        let mut tally = self.tally;
        self.count_calls(&mut tally);
        tally.fingerprint ^= self.history.newest().digest();
        tally
    }

    /// The door to the disk, to put faults into.
    pub fn faults(&self) -> &FaultFs {
        &self.faults
    }

    /// The process has ended inside a call.
    pub fn is_dead(&self) -> bool {
        self.faults.is_frozen()
    }

    /// Writes are refused until the database is opened again.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// What the database must hold now.
    pub fn newest(&self) -> &State {
        self.history.newest()
    }

    /// The number of its newest commit.
    pub fn seqno(&self) -> u64 {
        self.db.as_ref().map_or(0, |db| db.stats().seqno)
    }

    /// The disk, as the next process would find it if this one were killed now.
    pub fn image(&self) -> MemFs {
        self.disk.kill()
    }

    /// Bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.disk.used_bytes()
    }

    /// Reads each keyspace whole.
    pub fn read_everything(&mut self) {
        for no in 0..self.keyspaces.len() as u8 {
            self.perform(&Op::Read(Reader::Latest, KeyspaceNo(no), read::everything()));
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn pick(&self, no: KeyspaceNo) -> (Id, Keyspace) {
        let at = usize::from(no.0) % self.keyspaces.len();
        let (id, keyspace) = self.keyspaces.iter().nth(at).expect("there is the default keyspace");
        (*id, keyspace.clone())
    }

    /// Does one operation.
    ///
    /// # Panics
    /// If anything disagrees with the model.
    pub fn perform(&mut self, op: &Op) {
        self.tally.ops += 1;
        self.begin_operation();
        self.expire();
        self.dispatch(op);
        // Not after each, so that there is something to read.
        if self.tally.ops.is_multiple_of(3) {
            self.follow();
        }
        self.sight();
        // Seeds are many, and each meets its own when its processes end, but for those of large commits, which flushes remove before.
        let is_large = matches!(op, Op::Batch(writes, _) if writes.len() >= LARGE_COMMIT);
        if self.swept || is_large {
            self.sight_log();
        }
        if self.is_dead() && !self.swept {
            let restart = self.armed.take().expect("what ends a process is armed");
            self.tally.inside_calls += 1;
            self.restart(&restart);
        }
        if !self.is_dead() && setting::has_history(self.seed) {
            self.remember();
        }
        self.note_moment();
    }

    /// Takes note of what is met in this run.
    fn sight(&mut self) {
        let Some(stats) = self.db.as_ref().map(Db::stats) else { return };
        let tally = &mut self.tally;
        let tier_runs = std::mem::replace(&mut self.tier_runs, stats.tier_runs);
        let adoptions = std::mem::replace(&mut self.adoptions, stats.adoptions);
        tally.adopted += stats.adoptions.saturating_sub(adoptions);
        tally.tier_merges += u64::from(tier_runs != stats.tier_runs);
        let sightings = [
            (&mut tally.tiered, stats.tier_runs > 1),
            (&mut tally.unresolved, stats.unresolved > 0),
            (&mut tally.wide, stats.tables > stats.runs),
            (&mut tally.moved, stats.moves > 0),
            (&mut tally.recycled, stats.log_files_recycled > 0),
        ];
        sightings.into_iter().filter(|sighting| sighting.1).for_each(|(seen, _)| *seen = 1);
        self.sight_manifest();
        if self.opening.is_some_and(|opening| opening.blobs_over > 0) || !self.blob_files.is_empty() {
            self.sight_blobs();
        }
    }

    fn dispatch(&mut self, op: &Op) {
        match op {
            Op::Write(..)
            | Op::Batch(..)
            | Op::Create(_)
            | Op::Drop(_)
            | Op::Rename(..)
            | Op::Names(..)
            | Op::Ingest(..) => {
                self.change(op);
            }
            Op::Update(no, update) => self.update(op, *no, *update),
            Op::Begin(slot) => self.begin(*slot),
            Op::TransactionWrite(slot, no, write) => self.transaction_write(*slot, *no, write),
            Op::TransactionUpdate(slot, no, update) => self.transaction_update(*slot, *no, *update),
            Op::TransactionOpen(slot, name) => self.transaction_open(*slot, *name),
            Op::Point(slot, point) => self.point(*slot, *point),
            Op::Commit(slot, durability) => {
                if let Some(transaction) = self.transactions[*slot].take() {
                    self.commit(transaction, *durability);
                }
            }
            Op::Rollback(slot) => {
                if let Some(transaction) = self.transactions[*slot].take() {
                    transaction.rollback();
                }
            }
            Op::Snapshot(slot) => {
                self.snapshots[*slot] = Some((self.db().snapshot(), self.history.newest().clone()));
            }
            Op::ReleaseSnapshot(slot) => self.snapshots[*slot] = None,
            Op::Read(reader, no, read) => {
                let (id, keyspace) = self.pick(*no);
                let (source, map) = self.source(*reader, &keyspace, id);
                let found = attempt(|| check_read(&source, &map, read, self.expires));
                self.note_read(*reader, id, read, found.is_ok());
                self.read(found);
            }
            Op::SetLifetime(no, _) => self.set_lifetime(op, *no),
            Op::SetHistory(..) | Op::SetLazyCounting(..) => self.maintain(self.done(op)),
            Op::Versions(no, key) => self.read_versions(*no, *key),
            Op::Past(age, no, read) => self.read_past(*age, *no, read),
            Op::Since(age, no) => self.catch_up(*age, *no),
            Op::Iterate(slot, reader, no, range) => {
                let (id, keyspace) = self.pick(*no);
                let (source, map) = self.source(*reader, &keyspace, id);
                let held = HeldIterator::new(source.range(bounds(*range)), &map, *range);
                self.iterators[*slot] = Some(held);
                self.note_read(*reader, id, &Read::Ends, true);
            }
            Op::IterateOn(slot, takes) => {
                if let Some(mut iterator) = self.iterators[*slot].take() {
                    let taken = attempt(|| takes.iter().try_for_each(|back| iterator.take(*back)));
                    if self.read(taken).is_some() {
                        self.iterators[*slot] = Some(iterator);
                    }
                }
            }
            Op::HoldCursor(slot, reader, no) => self.hold_cursor(*slot, *reader, *no),
            Op::MoveCursor(slot, moves) => {
                if self.cursors[*slot].is_none() {
                    self.hold_cursor(*slot, Reader::Latest, KeyspaceNo(0));
                }
                if let Some(mut cursor) = self.cursors[*slot].take() {
                    let moved = attempt(|| cursor.go(moves));
                    // Where it stands after a panic nobody says.
                    let is_lost = moved.as_ref().is_err_and(is_panic);
                    self.tally.turns += u64::from(self.read(moved).unwrap_or(false));
                    self.cursors[*slot] = Some(cursor).filter(|_| !is_lost);
                }
            }
            Op::Flush => {
                let before = self.db().stats().flushes;
                self.maintain(self.done(op));
                self.check_log_is_released(before);
            }
            Op::Compact => {
                let done = self.filtering(|world| world.done(op));
                if self.excused_tidying(done).is_some() {
                    self.history.all_durable();
                }
                self.note_filtered();
            }
            Op::Sync => self.maintain(self.done(op)),
            Op::Step(step) => {
                let done = self.filtering(|world| world.interleaved(|world| world.done(op)));
                match step {
                    // With a log that has failed there is nothing to sync.
                    esker::BackgroundStep::SyncLog if !self.poisoned && !self.panicked => self.maintain(done),
                    // It tells of files that it cannot remove.
                    esker::BackgroundStep::PrepareLog => drop(self.excused_tidying(done)),
                    _ => drop(self.excused(done)),
                }
                self.note_filtered();
            }
            Op::Checkpoint => self.checkpoint(),
            Op::Backup => self.back_up(),
            Op::Archive(pick) => self.archive(*pick),
            Op::Unload(how) => self.unload(how),
            Op::Follow(how) => self.follow_on(how),
            Op::Between(work) => self.between = Some(work.clone()),
            Op::Check => self.verify_all(),
            Op::SetClock(ms) => self.clock.set_wall(i64::from(*ms)),
            Op::Clock(ms) => self.clock.advance(Duration::from_millis(u64::from(*ms))),
            Op::Restart(restart) => self.restart(restart),
            Op::RestartIn { after, keep, restart } => self.arm(*after, *keep, restart),
            Op::Fault(fault) => self.faults.add(trouble::rule(*fault)),
            Op::DiskFull(bytes) => self.fill_disk(*bytes),
            Op::Mend(restart) => {
                self.mend();
                if self.poisoned {
                    self.restart(restart);
                }
            }
        }
    }

    /// The engine's time.
    fn now_ms(&self) -> u64 {
        self.db.as_ref().map_or(0, Db::time_ms)
    }

    /// Forgets what has expired by now (model_history.4).
    fn expire(&mut self) {
        if !self.expires {
            return;
        }
        let now_ms = self.now_ms();
        if self.history.set_now(now_ms) {
            self.tally.expired = 1;
        }
        self.snapshots.iter_mut().flatten().for_each(|(_, state)| {
            state.expire(now_ms);
        });
        self.transactions.iter_mut().flatten().for_each(|held| held.expire(now_ms));
        self.iterators.iter_mut().flatten().for_each(|held| held.expire(now_ms));
        for held in &mut self.cursors {
            // Where one stands that stands on nothing nobody says.
            if held.as_mut().is_some_and(|cursor| !cursor.expire(now_ms)) {
                *held = None;
            }
        }
    }

    /// Has what has expired removed, so that lengths are those of the model; whether that could be.
    fn sweep(&mut self) -> bool {
        let swept = if self.expires { attempt(|| self.db().sweep().map(drop)) } else { Ok(()) };
        self.excused(swept).is_some()
    }

    /// Does an operation to the database.
    fn done(&self, op: &Op) -> esker::Result<()> {
        let newest = self.history.newest();
        attempt(|| match op {
            Op::Names(changes, durability) => names(self.db(), &newest.changes_of(changes), *durability, ""),
            op => perform(self.db(), op, |no| Ok(self.pick(no).1), ""),
        })
    }

    fn hold_cursor(&mut self, slot: usize, reader: Reader, no: KeyspaceNo) {
        let (id, keyspace) = self.pick(no);
        let (source, map) = self.source(reader, &keyspace, id);
        // Transactions have none.
        let held = attempt(|| source.cursor().transpose());
        let held = held.transpose().map(|made| made.map(|cursor| HeldCursor::new(cursor, &map)));
        self.cursors[slot] = held.and_then(|made| self.read(made));
    }

    fn note_read(&mut self, reader: Reader, id: Id, read: &Read, is_answered: bool) {
        if let Reader::Transaction(slot) = reader
            && let Some(transaction) = &mut self.transactions[slot]
        {
            transaction.note_read(id, read, is_answered);
        }
    }

    /// Takes note of a call that makes everything durable.
    fn maintain(&mut self, outcome: esker::Result<()>) {
        if self.excused(outcome).is_some() {
            self.history.all_durable();
        }
    }

    /// world.7, of a flush before which there had been so many.
    fn check_log_is_released(&self, before: u64) {
        let is_kept = self.opening.is_some_and(|opening| opening.feed_bytes.is_some());
        if is_kept || self.in_trouble() || self.was_refused() || self.db().stats().flushes == before {
            return;
        }
        let names = self.disk.list_dir(DIR.as_ref()).expect("a file system in memory does not fail");
        let segments: Vec<_> = names.iter().filter(|name| name.ends_with(".wal")).collect();
        assert!(segments.len() <= 1, "world.7: a flush leaves {segments:?}");
    }

    fn source<'a>(&'a self, reader: Reader, keyspace: &'a Keyspace, id: Id) -> (Source<'a>, Arc<Map>) {
        let held = match reader {
            Reader::Latest => None,
            Reader::Snapshot(slot) => {
                let held = self.snapshots[slot].as_ref();
                held.map(|(snapshot, state)| (Source::Snapshot(snapshot, keyspace), state.map(id)))
            }
            Reader::Transaction(slot) => {
                let held = self.transactions[slot].as_ref();
                held.map(|held| (Source::Transaction(held.db(), keyspace), held.state().map(id)))
            }
        };
        held.unwrap_or_else(|| (Source::Latest(keyspace), self.history.newest().map(id)))
    }

    /// Everything that can be read is as it should be (world.1), and `check` agrees.
    pub fn verify_all(&mut self) {
        self.expire();
        let is_swept = self.sweep();
        let now_ms = self.expires.then(|| self.now_ms());
        let found = attempt(|| read::contents_with(self.db(), true, is_swept, now_ms));
        let Some(found) = self.read(found) else { return };
        if let Some(difference) = self.history.newest().difference(&found) {
            panic!("world.1: {difference}");
        }
        self.follow();
        let checked = attempt(|| self.db().check());
        if let Some(report) = self.excused(checked) {
            assert!(self.are_explained(&report.problems), "check: {:#?}", report.problems);
        }
        let held: Vec<_> = self.snapshots.iter().flatten().cloned().collect();
        for (snapshot, state) in held {
            for (id, keyspace) in self.keyspaces.clone() {
                let source = Source::Snapshot(&snapshot, &keyspace);
                self.read(attempt(|| check_read(&source, &state.map(id), &read::everything(), true)));
            }
        }
    }
}
