//! The commit pipeline: makes write sets durable, puts them into the memtable, makes them visible.
//!
//! ```text
//!   group --each: still allowed? conflicts? count deltas? seqno--> WAL buffer, memtable
//!         --once: WAL write, fdatasync (if anybody asked)--> Published --> outcomes
//! ```
//!
//! T1. A `Sync` commit is acknowledged only after its WAL record is synced; a `Buffered` one after the record is in
//!     the operating system.
//! T2. Sequence numbers grow by one with each commit, in WAL order; a commit becomes visible only after all before it.
//! T3. After a failed write or sync of the WAL nothing more is written or published ("poisoned"): what reached the
//!     disk is unknown. Reads go on. A disk that is full before anything was written only fails the commit. A panic
//!     between the first log record of a group and its publishing has the same effect: what it left, uncounted, must not
//!     become a table. So has one while a memtable is sealed: a segment may be at its end, and the memtable be known to nobody.
//! T4. A memtable is sealed together with the WAL segment it ends in: all its commits are in segments before
//!     `Sealed::wal_from`.
//! T5. A sealed memtable is offered to the flush only once the view has it among its immutable ones: a flush that came first would
//!     find nothing to take out, and the memtable would hide for ever what came after it.
//! T6. A full memtable is sealed before the next commit, or by the flush thread if none comes. It is full, too, if its part of the log is
//!     [`LOG_FACTOR`] times as large as a full memtable: the log has all that a commit wrote, the memtable only what it did not overwrite itself.
//! T7. The timed sync does not wait for a long commit: before that begins, its leader hands to the system what was committed earlier, and
//!     leaves it where the sync finds it without the commit lock.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::apply::{apply, count_deltas};
use super::conflict::conflicts;
use super::drop_mark::DropMark;
use super::payload::encode_header;
use super::queue::GroupQueue;
use super::snapshots::{Published, SnapshotGuard};
use super::write_set::{CountDeltas, WriteSet};
use crate::memtable::{Applier, Memtable};
use crate::read::view::ReadView;
use crate::read::view_cell::ViewCell;
use crate::types::canary::{self, Canary};
use crate::types::{Error, KeyspaceId, Result, SeqNo};
use crate::wal::{SyncHandle, SyncOutcome, WalWriter};

/// A commit of this many bytes starts its WAL write before it goes into the memtable, so that both overlap.
const OVERLAP_BYTES: usize = 32 << 10;

/// How much longer the log of a memtable may become than a full memtable is (T6). Where no commit overwrites what it wrote itself, the
/// log is the shorter one.
const LOG_FACTOR: u64 = 4;

/// A group with this many operations or bytes, or with a range removal, may take long (T7): each key is looked up, perhaps on the disk.
const LONG_OPS: usize = 1000;
const LONG_BYTES: usize = 1 << 20;
/// How long the timed sync waits for the commit lock before it looks for what a long commit has left to it.
const LOCK_PATIENCE: Duration = Duration::from_millis(10);

/// When a commit may be acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// At once. It reaches the disk some time later; a crash of the process or of the machine may lose the last ones.
    None,
    /// When the operating system has it: a crash of the process loses nothing, a power cut the last moments.
    Buffered,
    /// When it is on the disk.
    #[default]
    Sync,
}

/// One commit on its way.
pub struct CommitRequest {
    /// What to write.
    pub set: Arc<WriteSet>,
    /// When to acknowledge.
    pub durability: Durability,
    /// For a transaction: the snapshot it read from.
    pub since: Option<SnapshotGuard>,
    /// For each keyspace written: its name and whether it is being dropped.
    pub keyspaces: Vec<KeyspaceLife>,
}

/// Whether a keyspace can still be written.
#[derive(Clone, Debug)]
pub struct KeyspaceLife {
    /// The name, for the error.
    pub name: Arc<str>,
    /// Set once it is being dropped, before it is gone.
    pub dropping: DropMark,
}

/// A full memtable on its way to tables.
#[derive(Clone)]
pub struct Sealed {
    /// It.
    pub memtable: Arc<Memtable>,
    /// Its last commit.
    pub last_seq: SeqNo,
    /// Live items per keyspace after that commit.
    pub counts: Vec<(KeyspaceId, u64)>,
    /// The first WAL segment that is needed once this memtable is in tables.
    pub wal_from: u64,
}

/// The only way for data into the database.
pub struct Pipeline {
    queue: GroupQueue<CommitRequest, Result<SeqNo>>,
    state: Mutex<WriteState>,
    /// What was not synced when the commit began that is going on, if that may take long (T7).
    unsynced: Mutex<Option<SyncHandle>>,
    /// Sealed memtables, oldest first.
    sealed: Mutex<VecDeque<Sealed>>,
    view: Arc<ViewCell>,
    published: Arc<Published>,
    memtable_bytes: usize,
}

/// What the leader owns while it works.
pub struct WriteState {
    /// None once closed.
    wal: Option<WalWriter>,
    active: Arc<Memtable>,
    applier: Applier,
    /// Written to the log since it was begun (T6).
    logged_bytes: u64,
    last_seq: SeqNo,
    poisoned: Option<Arc<Error>>,
    /// A commit is in the log and not yet published, or a memtable is being sealed. Seen by others only if its thread has panicked.
    is_halfway: bool,
}

impl Pipeline {
    /// Takes over after recovery: `applier` is that of `view.active`, and `wal` stands at the start of a segment.
    pub fn new(
        wal: WalWriter,
        view: Arc<ViewCell>,
        published: Arc<Published>,
        applier: Applier,
        sealed: Vec<Sealed>,
        memtable_bytes: usize,
    ) -> Self {
        let active = view.get().active.clone();
        let mut last_seq = published.visible();
        if canary::is_set(Canary::SeqNoReused) {
            last_seq = SeqNo::new(last_seq.get().saturating_sub(1));
        }
        Pipeline {
            queue: GroupQueue::default(),
            state: Mutex::new(WriteState {
                wal: Some(wal),
                active,
                applier,
                logged_bytes: 0,
                last_seq,
                poisoned: None,
                is_halfway: false,
            }),
            unsynced: Mutex::new(None),
            sealed: Mutex::new(sealed.into()),
            view,
            published,
            memtable_bytes,
        }
    }

    /// Commits. The sequence number is the commit's own.
    pub fn commit(&self, request: CommitRequest) -> Result<SeqNo> {
        if request.set.is_empty() {
            // A batch makes durable what was committed before it, even if it has nothing to add; a transaction has only read.
            if request.durability == Durability::Sync && request.since.is_none() {
                self.sync()?;
            }
            return Ok(self.published.visible());
        }
        // Others commit meanwhile.
        request.set.sort();
        self.queue.submit(request, |group| self.lead(group))
    }

    fn lead(&self, group: Vec<CommitRequest>) -> Vec<Result<SeqNo>> {
        let mut state = self.state.lock();
        let is_long = may_take_long(&group);
        let ready = state.check().and_then(|()| self.make_room(&mut state));
        if let Err(error) = ready.and_then(|()| self.leave_unsynced(&mut state, is_long)) {
            return group.iter().map(|_| Err(error.duplicate())).collect();
        }
        let outcomes = self.lead_ready(&mut state, &group);
        if is_long {
            self.unsynced.lock().take();
        }
        outcomes
    }

    fn lead_ready(&self, state: &mut WriteState, group: &[CommitRequest]) -> Vec<Result<SeqNo>> {
        let before = state.last_seq;
        let mut deltas = CountDeltas::new();
        let mut durability = Durability::None;
        let mut outcomes = Vec::with_capacity(group.len());
        for request in group {
            let outcome = self.enter(state, request, &mut deltas);
            if outcome.is_ok() {
                durability = durability.max(request.durability);
            }
            outcomes.push(outcome);
        }
        if state.last_seq == before {
            return outcomes;
        }
        let stored = match (&state.poisoned, durability) {
            (Some(cause), _) => Err(Error::Poisoned(cause.clone())),
            (None, Durability::Sync) if canary::is_set(Canary::WalSyncSkipped) => {
                state.wal().and_then(WalWriter::write)
            }
            (None, Durability::Sync) => state.wal().and_then(WalWriter::sync),
            (None, Durability::Buffered) => state.wal().and_then(WalWriter::write),
            (None, Durability::None) => Ok(()),
        };
        if let Err(error) = stored {
            state.is_halfway = false;
            let cause = state.poison(error);
            return outcomes.into_iter().map(|o| o.and(Err(cause.duplicate()))).collect();
        }
        self.published.publish(state.last_seq, &deltas);
        state.is_halfway = false;
        outcomes
    }

    /// Seals the memtable when it is full, or its log long (T6).
    fn make_room(&self, state: &mut WriteState) -> Result<()> {
        let is_full = state.active.bytes_used() >= self.memtable_bytes;
        let is_log_long = state.logged_bytes / LOG_FACTOR >= self.memtable_bytes as u64;
        // A memtable of a few bytes looks full when it is made.
        if (is_full || is_log_long) && !state.active.is_empty() {
            self.seal_active(state)?;
        }
        Ok(())
    }

    /// T7: before a long commit the timed sync gets what is not yet synced of the log.
    fn leave_unsynced(&self, state: &mut WriteState, is_long: bool) -> Result<()> {
        if is_long {
            let written = state.wal()?.write();
            written.map_err(|error| state.poison(error))?;
            *self.unsynced.lock() = state.wal()?.sync_handle();
        }
        Ok(())
    }

    /// Checks one commit and puts it into the WAL's buffer and the memtable, not yet visible.
    fn enter(
        &self,
        state: &mut WriteState,
        request: &CommitRequest,
        deltas: &mut CountDeltas,
    ) -> Result<SeqNo> {
        if let Some(cause) = &state.poisoned {
            return Err(Error::Poisoned(cause.clone()));
        }
        if let Some(gone) = request.keyspaces.iter().find(|k| k.dropping.is_set()) {
            return Err(Error::KeyspaceNotFound(gone.name.to_string()));
        }
        let set = &request.set;
        let view = self.view.get();
        if let Some(snapshot) = &request.since
            && !canary::is_set(Canary::ConflictCheckSkipped)
            && conflicts(set, snapshot.seq(), &view)?
        {
            return Err(Error::Conflict);
        }
        let pending = |id| deltas.iter().filter(|d| d.0 == id).map(|d| d.1).sum();
        let count = |id| self.published.counter(id).now().saturating_add_signed(pending(id));
        let own = count_deltas(set, &view, count)?;
        self.check_counts(state, &own, count)?;
        let header = encode_header(&own);
        let bytes = (header.len() + set.byte_len()) as u64;
        state.wal()?.reserve(bytes)?;
        let seq = state.last_seq.next();
        state.is_halfway = true;
        let mut log = || {
            let wal = state.wal()?;
            wal.append(seq, &[&header, set.payload()])?;
            if set.byte_len() >= OVERLAP_BYTES && request.durability == Durability::Sync {
                wal.write()?;
                wal.start_writeback();
            }
            Ok(())
        };
        let logged = log();
        if let Err(error) = logged {
            state.is_halfway = false;
            return Err(state.poison(error));
        }
        apply(set, seq, &state.active, &mut state.applier);
        state.logged_bytes += bytes;
        state.last_seq = seq;
        deltas.extend(own);
        Ok(seq)
    }

    /// Refuses a commit that would remove more than there is (PL1): a range of a table is not what was written. Logged, it would make
    /// the log unreadable.
    fn check_counts(
        &self,
        state: &mut WriteState,
        own: &CountDeltas,
        count: impl Fn(KeyspaceId) -> u64,
    ) -> Result<()> {
        let Some(&(id, delta)) = own.iter().find(|d| count(d.0).checked_add_signed(d.1).is_none()) else {
            return Ok(());
        };
        let dir = state.wal()?.dir().to_path_buf();
        let detail = format!(
            "a commit would change the count of keyspace {id}, {}, by {delta}: `esker check` tells which table is damaged",
            count(id)
        );
        Err(Error::corrupt("table", dir, 0, detail))
    }

    /// Ends the active memtable and its WAL segment, and starts new ones (T4).
    fn seal_active(&self, state: &mut WriteState) -> Result<()> {
        // T3
        state.is_halfway = true;
        let sealed = self.seal_halfway(state);
        state.is_halfway = false;
        sealed
    }

    fn seal_halfway(&self, state: &mut WriteState) -> Result<()> {
        let wal_from = match state.wal()?.rotate() {
            Ok(segment) => segment,
            Err(error) => return Err(state.poison(error)),
        };
        let memtable = Arc::new(Memtable::new(self.memtable_bytes));
        let full = std::mem::replace(&mut state.active, memtable.clone());
        state.applier = memtable.applier();
        state.logged_bytes = 0;
        let (last_seq, counts) = (state.last_seq, self.published.counts());
        // T5: whoever flushes finds it in the view, and takes it out.
        self.view.update(|old| {
            let mut immutables = old.immutables.clone();
            immutables.insert(0, full.clone());
            ReadView { active: memtable, immutables, version: old.version.clone() }
        });
        self.sealed.lock().push_back(Sealed { memtable: full, last_seq, counts, wal_from });
        Ok(())
    }

    /// Seals the memtable if it is full (T6), unless a commit is going on, after which another may come and do it.
    pub fn seal_if_full(&self) -> Result<()> {
        match self.state.try_lock() {
            Some(mut state) if state.check().is_ok() && state.wal.is_some() => self.make_room(&mut state),
            _ => Ok(()),
        }
    }

    /// Seals the active memtable if it holds anything.
    pub fn seal(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.check()?;
        if state.active.is_empty() {
            return Ok(());
        }
        self.seal_active(&mut state)
    }

    /// The sealed memtables, oldest first.
    pub fn sealed(&self) -> Vec<Sealed> {
        self.sealed.lock().iter().cloned().collect()
    }

    /// The last commit of the newest sealed memtable.
    pub fn newest_sealed(&self) -> Option<SeqNo> {
        self.sealed.lock().back().map(|sealed| sealed.last_seq)
    }

    /// Whether a memtable whose last commit is at most this one is sealed.
    pub fn has_sealed(&self, last: SeqNo) -> bool {
        self.sealed.lock().front().is_some_and(|oldest| oldest.last_seq <= last)
    }

    /// How many memtables are sealed.
    pub fn sealed_len(&self) -> usize {
        self.sealed.lock().len()
    }

    /// The oldest `n` sealed memtables are in tables now: forgets them, and their part of the WAL.
    pub fn release(&self, n: usize) {
        let released = self.sealed.lock().drain(..n).next_back();
        if let Some(last) = released {
            // What cannot be removed now is tried again with the next flush.
            let _ = self.state.lock().wal().and_then(|wal| wal.release_below(last.wal_from));
        }
    }

    /// The segment of the log that the next commit goes to, or starts in.
    pub fn current_segment(&self) -> Result<u64> {
        self.state.lock().wal().map(|wal| wal.current_segment())
    }

    /// Makes all commits so far durable.
    pub fn sync(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.check()?;
        let synced = state.wal()?.sync();
        synced.map_err(|error| state.poison(error))
    }

    /// Writes to the WAL are stopped by this failure.
    pub fn poisoned(&self) -> Option<Arc<Error>> {
        match self.state.lock().check() {
            Err(Error::Poisoned(cause)) => Some(cause),
            _ => None,
        }
    }

    /// Makes durable what was committed without waiting for it. The sync itself does not hold up commits.
    pub fn sync_unsynced(&self) -> Result<()> {
        let handle = match self.lock_or_left() {
            Ok(mut state) => {
                if state.check().is_err() {
                    return Ok(());
                }
                let wal = state.wal()?;
                let written = wal.write();
                written.map_err(|error| state.poison(error))?;
                state.wal()?.sync_handle()
            }
            Err(left) => Some(left),
        };
        let Some(handle) = handle.filter(|_| !canary::is_set(Canary::TimedSyncSkipped)) else {
            return Ok(());
        };
        self.note_synced(handle.sync())
    }

    /// Tells the log of a sync, and goes on with what long commits leave to sync meanwhile (T7).
    fn note_synced(&self, mut outcome: SyncOutcome) -> Result<()> {
        loop {
            match self.lock_or_left() {
                Ok(mut state) => {
                    let noted = state.wal()?.synced(outcome);
                    return noted.map_err(|error| state.poison(error));
                }
                // It covers what the last one did: it is of the same segment, or of a later one, before which that was made durable.
                Err(left) if outcome.is_ok() => outcome = left.sync(),
                Err(_) => {}
            }
        }
    }

    /// The commit lock, or what a long commit that holds it has left to sync (T7).
    fn lock_or_left(&self) -> std::result::Result<MutexGuard<'_, WriteState>, SyncHandle> {
        loop {
            if let Some(state) = self.state.try_lock_for(LOCK_PATIENCE) {
                return Ok(state);
            }
            if let Some(left) = self.unsynced.lock().take() {
                return Err(left);
            }
        }
    }

    /// Whether a commit is going on.
    pub fn is_committing(&self) -> bool {
        self.state.is_locked()
    }

    /// Does it as if a commit were going on.
    #[cfg(test)]
    pub fn while_committing<T>(&self, work: impl FnOnce() -> T) -> T {
        let _state = self.state.lock();
        work()
    }

    /// Makes the log durable and tidy. No commit succeeds afterwards.
    pub fn close(&self) -> Result<()> {
        let wal = self.state.lock().wal.take();
        wal.map_or(Ok(()), WalWriter::close)
    }
}

/// Whether this may take longer than commits of some keys do.
fn may_take_long(group: &[CommitRequest]) -> bool {
    let sets = || group.iter().map(|request| &request.set);
    sets().map(|set| set.op_count()).sum::<usize>() >= LONG_OPS
        || sets().map(|set| set.byte_len()).sum::<usize>() >= LONG_BYTES
        || sets().any(|set| !set.ranges().is_empty())
}

impl WriteState {
    fn wal(&mut self) -> Result<&mut WalWriter> {
        self.wal.as_mut().ok_or(Error::Closed)
    }

    /// Refuses after a failure (T3).
    fn check(&self) -> Result<()> {
        if self.is_halfway && !canary::is_set(Canary::PoisonForgotten) {
            let text = "a thread panicked while it committed: reopen the database".to_owned();
            return Err(Error::Poisoned(Arc::new(Error::Invalid(text))));
        }
        self.poisoned.as_ref().map_or(Ok(()), |cause| Err(Error::Poisoned(cause.clone())))
    }

    /// Stops all further writes (T3); says so.
    fn poison(&mut self, error: Error) -> Error {
        let cause = match error {
            Error::Poisoned(cause) => cause,
            error => Arc::new(error),
        };
        if canary::is_set(Canary::PoisonForgotten) {
            return Error::Poisoned(cause);
        }
        Error::Poisoned(self.poisoned.get_or_insert(cause).clone())
    }
}
