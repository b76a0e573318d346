//! Runs operations on a database and on the model, and compares.
//!
//! ```text
//!   Op --> Db on FaultFs(MemFs)      results, reads, what is there after a restart
//!     `--> History                   any disagreement with the model panics
//! ```
//!
//! world.1. Reads of the newest state, snapshots, transactions, and held iterators and cursors agree with the
//!     model.
//! world.2. A transaction fails with a conflict if and only if a commit since its beginning touched a key
//!     that it writes, or, if it is serializable, has read.
//! world.3. After a restart, the state is allowed by the history (model_history.1), `len` is
//!     exact, and `check` finds nothing.
//! world.4. A call fails only with a reason: an injected fault, a full disk, or an earlier failure of the
//!     log. A failed commit has no effect, unless the log failed. The log fails only if one of its own calls
//!     does.
//! - A full disk fails a commit, but not the log: commits succeed again once there is space. Exception: a
//!   large commit whose manifest edit fails, if there is no space for a new manifest.
//! - Reads continue after failures: a read fails only if one of its own calls does.
//! - A panic in the file system ends only the current operation. Writes may be refused until the database is
//!   reopened; otherwise the operation had no effect.
//!
//! world.9. Reads of history return the state at the commit, or are refused with the oldest available commit.
//!     Changes since a commit lead from its state to the newest (past.rs).
//! world.10. A checkpoint or backup equals the database at its commit, whatever happens to either and
//!     whatever was interleaved with its steps. A checkpoint interrupted by a crash is complete or absent
//!     (copy.rs). The same holds for archives (archive.rs), unloaded files (unload.rs) and replicas
//!     (replica.rs).
//!
//! - A commit that only removes finds space on a disk that large commits have filled (crowd.rs).
//!
//! world.12. A commit of a guest is applied once or not at all, as its reply says (guests.rs).

mod archive;
mod beside;
mod between;
mod compacting;
mod copy;
mod coverage;
mod crowd;
pub mod faults;
mod feed;
mod filtered;
mod guests;
mod limited;
mod offline;
mod past;
mod reads;
mod replica;
mod restart;
mod tally;
mod timeline;
mod transaction;
mod turns;
mod unload;
mod verify;
mod write;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use esker::{Db, Keyspace, Snapshot};
use esker_env::{BrokenSync, FaultFs, Fs, ManualClock, MemFs, OpenOptions, SeededRandom};

pub use self::faults::Mode;
pub use self::restart::{Left, builder};
pub use self::tally::Tally;

use self::faults::attempt;
use self::transaction::{HeldTransaction, isolation_of};
use crate::judge::read::{self, HeldIterator};
use crate::judge::walk::HeldCursor;
use crate::keys::keys_of;
use crate::model::history::History;
use crate::model::state::{Id, State};
use crate::op::{KeyspaceNo, Op, Opening, Reader, Restart, SLOTS};
use crate::perform::{names, perform};
use crate::seals::{Seals, has_plain_text};
use crate::setting;

/// Directory of the database in the simulated file system.
pub const DIR: &str = "db";
/// A batch with this many writes may have its own log segments.
const LARGE_COMMIT: usize = 14;

/// A database and its model.
pub struct World {
    seed: u64,
    machine: Machine,
    process: Process,
    db: Option<Db>,
    keyspaces: BTreeMap<Id, Keyspace>,
    held: Held,
    history: History,
    /// Recent states with their commit numbers, newest last (past.rs).
    past: Vec<(u64, State)>,
    copies: Copies,
    /// The processes that share the database, in seeds that have them.
    guests: Option<guests::Guests>,
    /// Work to interleave with the next operation that has a point for it.
    between: Option<Vec<Op>>,
    /// Whether an expiring entry was ever put.
    expires: bool,
    /// How the run differs from usual ones.
    pub mode: Mode,
    seen: coverage::Seen,
    tally: Tally,
}

/// The simulated machine.
struct Machine {
    disk: MemFs,
    /// Whether the disk has no direct I/O.
    is_plain: bool,
    /// The file system of the current process.
    faults: FaultFs,
    clock: Arc<ManualClock>,
    /// Shared by all processes, so that each draws different numbers.
    random: Arc<SeededRandom>,
    /// The keys of encrypted files, shared by all processes as well.
    keys: Option<Arc<dyn Any + Send + Sync>>,
    /// Watches the disk if the files are encrypted.
    seals: Option<Arc<Seals>>,
    /// The compaction filters of all processes.
    filters: Arc<filtered::Filters>,
}

/// The current process.
#[derive(Default)]
struct Process {
    /// Its options; `None` before the first process.
    opening: Option<Opening>,
    /// Number of openings and forks so far, which decides the openings that are inspected.
    openings: u64,
    /// Whether the log has failed since the database was opened.
    poisoned: bool,
    /// Whether a call has panicked since then, so that the log may have failed.
    panicked: bool,
    /// Number of faults before the current operation.
    fired_before: u64,
    /// Number of refusals by a full disk before the current operation.
    refused_before: u64,
    /// Both numbers when the process started.
    at_birth: (u64, u64),
    /// Whether the last process met no fault and closed the database.
    is_tidy: bool,
    /// The restart after the scheduled end of the process.
    armed: Option<Restart>,
}

/// What is held across operations.
#[derive(Default)]
struct Held {
    iterators: [Option<HeldIterator>; SLOTS],
    cursors: [Option<HeldCursor>; SLOTS],
    snapshots: [Option<(Snapshot, State)>; SLOTS],
    transactions: [Option<HeldTransaction>; SLOTS],
    compactions: Vec<compacting::Stopped>,
}

/// The copies of the database, and what they may contain.
#[derive(Default)]
struct Copies {
    /// Reads the change feed.
    reader: feed::Reader,
    /// The last checkpoint.
    checkpoint: Option<copy::Copied>,
    archive: Option<archive::Archive>,
    replica: Option<replica::Replica>,
    /// States by commit number.
    timeline: timeline::Timeline,
    /// First commit since which the feed has retained everything, as far as an opening knows.
    kept_from: Option<u64>,
    /// Whether there was a power loss.
    has_lost_power: bool,
}

impl World {
    /// Creates a new disk without a database.
    pub fn new(seed: u64, broken: Option<BrokenSync>) -> Self {
        let disk = MemFs::new();
        disk.leave_noise();
        if setting::has_unsynced_dir(seed) {
            // The owner created the directory without syncing its parent.
            disk.make_dir(DIR.as_ref()).expect("it is new");
        }
        broken.into_iter().for_each(|which| disk.break_syncs(which));
        let keys = keys_of(seed).filter(|_| setting::is_encrypted(seed));
        World {
            seed,
            machine: Machine {
                faults: FaultFs::new(Arc::new(disk.clone())),
                seals: None,
                disk,
                is_plain: false,
                clock: Arc::new(ManualClock::new()),
                random: Arc::new(SeededRandom::new(seed)),
                keys,
                filters: Arc::default(),
            },
            process: Process::default(),
            db: None,
            keyspaces: BTreeMap::new(),
            held: Held::default(),
            history: History::new(State::new()),
            past: Vec::new(),
            copies: Copies::default(),
            guests: None,
            between: None,
            expires: false,
            mode: Mode::default(),
            seen: coverage::Seen::default(),
            tally: Tally::default(),
        }
    }

    /// Watches what the disk of an encrypted world is given. Takes time for each write.
    pub fn watch_seals(&mut self) {
        let machine = &mut self.machine;
        machine.seals = machine.keys.as_ref().map(|_| Seals::watch(&machine.disk, has_plain_text));
    }

    /// Gives the seed no keys, for callers that read its files themselves.
    pub fn forgo_encryption(&mut self) {
        (self.machine.keys, self.machine.seals) = (None, None);
    }

    /// Makes the disk plain: no direct I/O, short reads, no space reservation.
    pub fn be_plain(&mut self) {
        self.machine.disk.be_plain();
        self.machine.is_plain = true;
    }

    /// Returns the options of the current process.
    pub fn opening(&self) -> Option<Opening> {
        self.process.opening
    }

    /// Returns whether the disk supports direct I/O.
    pub fn gives_direct_files(&self) -> bool {
        let file = self.image().open("a new file".as_ref(), OpenOptions::create_new().direct());
        file.expect("there is room").is_direct()
    }

    /// Returns the counters so far.
    pub fn tally(&self) -> Tally {
        let mut tally = self.tally;
        self.count_calls(&mut tally);
        tally.fingerprint ^= self.history.newest().digest();
        tally
    }

    /// Returns the file system of the current process, for adding faults.
    pub fn faults(&self) -> &FaultFs {
        &self.machine.faults
    }

    /// Returns whether the process ended inside a call.
    pub fn is_dead(&self) -> bool {
        self.machine.faults.is_frozen()
    }

    /// Returns whether writes are refused until the database is reopened.
    pub fn is_poisoned(&self) -> bool {
        self.process.poisoned
    }

    /// Returns the expected contents.
    pub fn newest(&self) -> &State {
        self.history.newest()
    }

    /// Returns the number of the newest commit.
    pub fn seqno(&self) -> u64 {
        self.db.as_ref().map_or(0, |db| db.stats().seqno.get())
    }

    /// Returns the disk as the next process would find it after a kill.
    pub fn image(&self) -> MemFs {
        self.machine.disk.kill()
    }

    /// Returns the bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.machine.disk.used_bytes()
    }

    /// Reads all keyspaces completely.
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

    /// Performs one operation.
    ///
    /// # Panics
    /// If anything disagrees with the model.
    pub fn perform(&mut self, op: &Op) {
        self.tally.ops += 1;
        self.begin_operation();
        self.expire();
        self.lift_limits_before(op);
        self.finish_compactions_before(op);
        if matches!(op, Op::Checkpoint | Op::Backup) && !self.is_dead() {
            self.compact_beside_copy();
        }
        if !self.is_dead() {
            self.dispatch(op);
        }
        if !self.is_dead() {
            self.compact_beside();
        }
        // Not after each operation, so that several commits accumulate.
        if self.tally.ops.is_multiple_of(3) {
            self.follow();
        }
        self.note_coverage();
        // Other segments are counted when processes end; those of large commits would be gone by then.
        let is_large = matches!(op, Op::Batch(writes, _) if writes.len() >= LARGE_COMMIT);
        if self.mode.swept || is_large {
            self.note_log_sizes();
        }
        if self.is_dead() && !self.mode.swept {
            let restart = self.process.armed.take().expect("what ends a process is armed");
            self.tally.inside_calls += 1;
            self.restart(&restart);
        }
        if !self.is_dead() && setting::has_history(self.seed) {
            self.remember();
        }
        self.end_guest_operation();
        self.note_moment();
        self.machine.seals.iter().for_each(|seals| _ = seals.assert_sound());
    }

    fn dispatch(&mut self, op: &Op) {
        self.begin_guest();
        if self.goes_by_guest(op) && self.dispatch_to_guest(op) {
            return;
        }
        match op {
            Op::Write(..) | Op::Batch(..) | Op::Names(..) | Op::Ingest(..) => self.change(op),
            Op::Create(_) | Op::Drop(_) | Op::Rename(..) => self.change(op),
            Op::Update(no, update) => self.update(op, *no, *update),
            Op::Begin(slot) => self.begin(*slot, isolation_of(*slot)),
            Op::BeginExclusive(slot) => self.begin_exclusive(*slot),
            Op::TakeTurns(no, writes) => self.take_turns(*no, writes),
            Op::Crowd(crowd) => self.crowd(crowd),
            Op::Guest(event) => self.note_guest_event(*event),
            Op::TransactionWrite(slot, no, write) => self.transaction_write(*slot, *no, write),
            Op::TransactionUpdate(slot, no, update) => self.transaction_update(*slot, *no, *update),
            Op::TransactionOpen(slot, name) => self.transaction_open(*slot, *name),
            Op::Point(slot, point) => self.point(*slot, *point),
            Op::Commit(slot, durability) => {
                if let Some(transaction) = self.held.transactions[*slot].take() {
                    self.commit(transaction, *durability);
                }
            }
            Op::Rollback(slot) => {
                if let Some(transaction) = self.held.transactions[*slot].take() {
                    transaction.db.rollback();
                }
            }
            Op::Snapshot(slot) => {
                self.held.snapshots[*slot] = Some((self.db().snapshot(), self.history.newest().clone()));
            }
            Op::ReleaseSnapshot(slot) => self.held.snapshots[*slot] = None,
            Op::Read(reader, no, read) => self.read_view(*reader, *no, read),
            Op::SetLifetime(no, _) => self.set_lifetime(op, *no),
            Op::SetBytesMax(no, _) => self.set_bytes_max(op, *no),
            Op::SetHistory(..) | Op::SetLazyCounting(..) => self.maintain(self.done(op)),
            Op::Versions(no, key) => self.read_versions(*no, *key),
            Op::Past(commits_ago, no, read) => self.read_past(*commits_ago, *no, read),
            Op::Since(commits_ago, no) => self.catch_up(*commits_ago, *no),
            Op::Iterate(slot, reader, no, range) => self.iterate(*slot, *reader, *no, *range),
            Op::IterateOn(slot, takes) => self.iterate_on(*slot, takes),
            Op::HoldCursor(slot, reader, no) => self.hold_cursor(*slot, *reader, *no),
            Op::MoveCursor(slot, moves) => self.move_cursor(*slot, moves),
            Op::Flush => self.flush(op),
            Op::Compact | Op::CompactRange(..) => self.compact(op),
            Op::Sync => self.maintain(self.done(op)),
            Op::Step(step) => self.step(op, *step),
            Op::Checkpoint => self.checkpoint(),
            Op::Backup => self.back_up(),
            Op::Archive(pick) => self.archive(*pick),
            Op::Unload(how) => self.unload(how),
            Op::Follow(how) => self.follow_on(how),
            Op::Between(work) => self.between = Some(work.clone()),
            Op::Beside => self.look_beside(),
            Op::Check => self.verify_all(),
            Op::SetClock(ms) => self.machine.clock.set_wall(i64::from(*ms)),
            Op::Clock(ms) => self.machine.clock.advance(Duration::from_millis(u64::from(*ms))),
            Op::Restart(restart) => self.restart(restart),
            Op::RestartIn { after, keep, restart } => self.arm(*after, *keep, restart),
            Op::Fault(fault) => self.machine.faults.add(faults::rule(*fault)),
            Op::DiskFull(bytes) => self.fill_disk(*bytes),
            Op::Mend(restart) => {
                self.mend();
                if self.process.poisoned {
                    self.restart(restart);
                }
            }
        }
    }

    fn flush(&mut self, op: &Op) {
        let before = self.db().stats().flushes;
        self.maintain(self.done(op));
        self.check_log_is_released(before);
    }

    fn compact(&mut self, op: &Op) {
        let done = self.filtering(|world| world.done(op));
        // An empty range flushes nothing.
        if self.excused_tidying(done).is_some() && matches!(op, Op::Compact) {
            self.history.all_durable();
        }
        self.note_filtered();
        self.note_oldest();
    }

    /// Returns the engine's time.
    fn now_ms(&self) -> u64 {
        self.db.as_ref().map_or(0, Db::time_ms)
    }

    /// Performs an operation on the database.
    fn done(&self, op: &Op) -> esker::Result<()> {
        let newest = self.history.newest();
        if self.goes_by_guest(op) {
            return self.done_by_guest(op);
        }
        attempt(|| match op {
            Op::Names(changes, durability) => names(self.db(), &newest.changes_of(changes), *durability, ""),
            op => perform(self.db(), op, |no| Ok(self.pick(no).1), ""),
        })
    }

    /// Notes the outcome of a call that makes everything durable.
    fn maintain(&mut self, outcome: esker::Result<()>) {
        if self.excused(outcome).is_some() {
            self.history.all_durable();
        }
    }

    /// Checks that a flush left only the segment in use, unless the log is kept for the feed. `before` is the
    /// earlier number of flushes.
    fn check_log_is_released(&self, before: u64) {
        let is_kept = self.process.opening.is_some_and(|opening| opening.feed_bytes.is_some());
        if is_kept || self.met_fault() || self.was_refused() || self.db().stats().flushes == before {
            return;
        }
        let names = self.machine.disk.list_dir(DIR.as_ref()).expect("a file system in memory does not fail");
        let segments: Vec<_> = names.iter().filter(|name| name.ends_with(".wal")).collect();
        assert!(segments.len() <= 1, "a flush leaves {segments:?}");
    }
}
