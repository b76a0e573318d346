//! The commit pipeline: makes write sets durable, puts them into the memtable, makes them visible.
//!
//! ```text
//!   group --each: still allowed? conflicts? count deltas? seqno--> WAL buffer, memtable
//!         --once: WAL write, fdatasync (if anybody asked)--> Published --> outcomes
//! ```
//!
//! commit.1. A `Sync` commit is acknowledged only after its WAL record is synced; a `Buffered` one after the record is in
//!     the operating system.
//! commit.2. Sequence numbers grow by one with each commit, in WAL order; a commit becomes visible only after all before it.
//! poison.1 is in poison.rs, memtables.1 to memtables.3 are in memtables.rs, timed_sync.1 is in timed_sync.rs.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::apply::apply;
use super::blobs::BlobUse;
use super::conflict::find_conflict;
use super::counts::{Counted, Effort, count_ranges, counted};
use super::drop_mark::DropMark;
use super::front;
use super::joiner::joiner;
use super::layers::Layers;
use super::memtables::{Active, Memtables, Sealed};
use super::payload::encode_header;
use super::poison::{Cause, Poison};
use super::queue::GroupQueue;
use super::range_count::RangeCounts;
use super::read_set::ReadSet;
use super::snapshots::{Published, SnapshotGuard};
use super::timed_sync::may_take_long;
use super::watchers::Watchers;
use super::write_set::{CountDeltas, WriteSet};
use crate::memtable::Applier;
use crate::read::view::ReadView;
use crate::read::view_cell::ViewCell;
use crate::types::canary::{self, Canary};
use crate::types::interleave::{self, Point};
use crate::types::key::{decode_key, encode_key};
use crate::types::{Error, KeyspaceId, Result, SeqNo, Value};
use crate::wal::{LogRoom, SyncHandle, WalWriter};

/// A commit of this many bytes starts its WAL write before it goes into the memtable, so that both overlap.
const OVERLAP_BYTES: usize = 32 << 10;

/// So many bytes of values in blob files count as one byte of log.
const BLOB_BYTES_PART: u64 = 4;

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

/// What a transaction is kept apart from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// It commits only if all that it has read is still so: keys, keys that were not there, ranges exactly as far as they were walked, lengths, and
    /// names of keyspaces that it has asked for. The outcome is that of transactions that run one after the other. Expiry is no conflict: an
    /// entry that was read may expire and be [swept](crate::Db::sweep) meanwhile. But a length that a sweep has changed is one, and so is a sweep of a key
    /// that the transaction merges into, whatever its isolation.
    #[default]
    Serializable,
    /// It commits if nobody else has written what it writes. Two transactions that each read what the other writes can both commit
    /// (write skew). Reads cost a little less.
    Snapshot,
    /// It begins once it is its turn: exclusive transactions run one after the other, in the order in which they were begun, and all other commits
    /// wait until it ends. So it never conflicts, unless the thread that used it last commits something beside it. A thread that has one open and waits
    /// for another thread's commit waits for ever. If a thread begins a second one, the operations of the second fail with
    /// [`Error::Invalid`] after a second. Where the database is closed meanwhile, those that wait for a turn fail with [`Error::Closed`], and so do
    /// commits that wait.
    Exclusive,
}

/// One commit on its way.
#[derive(Default)]
pub struct CommitRequest {
    /// What to write.
    pub set: Arc<WriteSet>,
    /// What to write besides, of a large transaction: older than what is in the set.
    pub(crate) layers: Layers,
    /// What values of both are in blob files.
    pub(crate) blobs: BlobUse,
    /// When to acknowledge.
    pub durability: Durability,
    /// For a transaction: the snapshot it read from.
    pub since: Option<SnapshotGuard>,
    /// What it has read there, if that must not have changed.
    pub(crate) reads: Option<Arc<ReadSet>>,
    /// It has the exclusive turn, or has given it to others (engine/writes/exclusive_turn.rs).
    pub(crate) may_pass: bool,
    /// For each keyspace written: its name and whether it has been dropped.
    pub keyspaces: Vec<KeyspaceLife>,
    /// The marks of the keyspaces that it drops.
    pub drops: Vec<DropMark>,
    /// What its range removals remove, as of a moment before.
    pub(crate) ranges: Option<RangeCounts>,
    /// What it says once it is visible: topic and text.
    pub(crate) notices: Vec<(Arc<str>, Value)>,
}

impl CommitRequest {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.layers.is_empty()
    }

    /// Whether an encoded key is of a keyspace that counts lazily.
    fn counts_lazily(&self, key: &[u8]) -> bool {
        let id = decode_key(key).map(|(id, _)| id);
        self.keyspaces.iter().any(|keyspace| keyspace.is_lazy && Some(keyspace.id) == id)
    }

    /// Refuses it if a keyspace that it writes has been dropped. For certain only under the commit lock.
    pub(crate) fn check_keyspaces(&self) -> Result<()> {
        match self.keyspaces.iter().find(|keyspace| keyspace.is_dropping()) {
            Some(gone) => Err(Error::KeyspaceNotFound(gone.name.to_string())),
            None => Ok(()),
        }
    }
}

/// Whether a keyspace can still be written.
#[derive(Clone, Debug)]
pub struct KeyspaceLife {
    /// Its number.
    pub id: KeyspaceId,
    /// The name, for the error.
    pub name: Arc<str>,
    /// Set once it has been dropped. None: this commit creates or drops it itself.
    pub dropping: Option<DropMark>,
    /// Its keys are not looked up (counts.3).
    pub is_lazy: bool,
}

impl KeyspaceLife {
    fn is_dropping(&self) -> bool {
        self.dropping.as_ref().is_some_and(DropMark::is_set)
    }
}

/// The only way for data into the database.
pub struct Pipeline {
    queue: GroupQueue<CommitRequest, Result<SeqNo>>,
    pub(super) state: Mutex<WriteState>,
    /// What stopped writes (`stopped_by` in poison.rs).
    pub(super) stopped: Cause,
    /// What was not synced when the commit began that is going on, if that may take long (timed_sync.1).
    pub(super) unsynced: Mutex<Option<SyncHandle>>,
    pub(super) memtables: Memtables,
    pub(super) view: Arc<ViewCell>,
    pub(super) published: Arc<Published>,
    /// Who is told of commits.
    pub(crate) watchers: Watchers,
}

/// What the leader owns while it works.
pub struct WriteState {
    /// None once closed.
    pub(super) wal: Option<WalWriter>,
    pub(super) active: Active,
    pub(super) last_seq: SeqNo,
    pub(super) poison: Poison,
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
        let poison = Poison::telling(wal.shelf());
        Pipeline {
            queue: GroupQueue::default(),
            stopped: poison.shared_cause(),
            state: Mutex::new(WriteState {
                wal: Some(wal),
                active: Active::new(active, applier.joining(joiner(&view))),
                last_seq,
                poison,
            }),
            unsynced: Mutex::new(None),
            memtables: Memtables::new(sealed, memtable_bytes),
            view,
            published,
            watchers: Watchers::default(),
        }
    }

    /// Commits. The sequence number is the commit's own.
    pub fn commit(&self, mut request: CommitRequest) -> Result<SeqNo> {
        if request.set.is_empty() {
            // A batch makes durable what was committed before it, even if it has nothing to add; a transaction has only read.
            if request.durability == Durability::Sync && request.since.is_none() {
                self.sync()?;
            }
            if request.notices.is_empty() {
                return Ok(self.published.visible());
            }
            // watchers.1
            let _state = self.state.lock();
            let visible = self.published.visible();
            self.watchers.committed(&request, visible);
            return Ok(visible);
        }
        self.prepare(&mut request)?;
        self.queue.submit(request, |group| self.lead(group))
    }

    /// Commits several that write something, in this order.
    pub(crate) fn commit_group(&self, mut requests: Vec<CommitRequest>) -> Vec<Result<SeqNo>> {
        let refused: Vec<_> = requests.iter_mut().map(|request| self.prepare(request).err()).collect();
        let accepted = requests.into_iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let mut outcomes = self.lead(accepted.map(|(request, _)| request).collect()).into_iter();
        let outcome = |refused: Option<Error>| match refused {
            Some(error) => Err(error),
            None => outcomes.next().expect("an outcome for each request"),
        };
        refused.into_iter().map(outcome).collect()
    }

    /// What can be done before the commit lock is taken: others commit meanwhile.
    fn prepare(&self, request: &mut CommitRequest) -> Result<()> {
        if !request.set.is_decodable() {
            // write_set.5 of write_set.rs
            let text = "a commit has a key, a value or the end of a range that the log does not take: nothing of it was written";
            return Err(Error::Invalid(text.to_owned()));
        }
        request.set.sort();
        if !request.set.ranges().is_empty() && request.ranges.is_none() {
            self.find_what_is_owed()?;
            // It is pinned for no longer than the commit takes.
            let since = self.published.snapshot(Duration::MAX);
            request.ranges = count_ranges(request.set.ranges(), &self.view.get(), since)?;
            interleave::reached(Point::RangeCounted);
        }
        Ok(())
    }

    /// Has unresolved versions looked up now, so that a range removal need not do it under the commit lock.
    fn find_what_is_owed(&self) -> Result<()> {
        let (at, view) = (self.published.visible(), self.view.get());
        if view.unresolved() > 0 {
            view.overcount(KeyspaceId::DEFAULT, at)?;
        }
        Ok(())
    }

    fn lead(&self, group: Vec<CommitRequest>) -> Vec<Result<SeqNo>> {
        let mut state = self.state.lock();
        let is_long = may_take_long(&group);
        let ready = state.poison.check().and_then(|()| self.make_room(&mut state));
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
        let (mut deltas, mut marked) = (CountDeltas::new(), Vec::new());
        let mut durability = Durability::None;
        let mut outcomes = Vec::with_capacity(group.len());
        for request in group {
            let outcome = self.enter(state, request, &mut deltas, &mut marked);
            if outcome.is_ok() {
                durability = durability.max(request.durability);
            }
            outcomes.push(outcome);
        }
        if state.last_seq == before {
            return outcomes;
        }
        let stored = match (state.poison.cause(), durability) {
            (Err(poisoned), _) => Err(poisoned),
            (Ok(()), Durability::Sync) if canary::is_set(Canary::WalSyncSkipped) => {
                state.wal().and_then(WalWriter::write)
            }
            (Ok(()), Durability::Sync) => state.wal().and_then(WalWriter::sync),
            (Ok(()), Durability::Buffered) => state.wal().and_then(WalWriter::write),
            (Ok(()), Durability::None) => Ok(()),
        };
        if let Err(error) = stored {
            state.poison.settle();
            let cause = state.poison.stop(error);
            // drop_mark.2
            marked.iter().for_each(DropMark::clear);
            return outcomes.into_iter().map(|o| o.and(Err(cause.duplicate()))).collect();
        }
        self.published.publish(state.last_seq, &deltas);
        state.poison.settle();
        if let Some(wal) = &state.wal {
            wal.tell_visible();
        }
        if self.watchers.are_any() {
            for (request, outcome) in group.iter().zip(&outcomes) {
                if let Ok(seq) = outcome {
                    self.watchers.committed(request, *seq);
                }
            }
        }
        outcomes
    }

    /// Checks one commit and puts it into the WAL's buffer and the memtable, not yet visible. `marked`: keyspaces that it drops.
    fn enter(
        &self,
        state: &mut WriteState,
        request: &CommitRequest,
        deltas: &mut CountDeltas,
        marked: &mut Vec<DropMark>,
    ) -> Result<SeqNo> {
        state.poison.cause()?;
        request.check_keyspaces()?;
        let set = &*request.set;
        let view = self.view.get();
        if let Some(snapshot) = &request.since
            && !canary::is_set(Canary::ConflictCheckSkipped)
            && let Some(conflict) = find_conflict(set, snapshot.seq(), &view)?
        {
            return Err(conflict.into_error(&request.keyspaces));
        }
        let pending = |id| deltas.iter().filter(|d| d.0 == id).map(|d| d.1).sum();
        let count = |id| self.published.counter(id).now().saturating_add_signed(pending(id));
        let exact = |id| Ok(count(id).saturating_sub(view.overcount(id, state.last_seq)?));
        self.check_reads(request, &view, exact)?;
        let usual = Effort::of(&view);
        let is_lazy = request.keyspaces.iter().any(|keyspace| keyspace.is_lazy);
        let effort = |key: &[u8]| match is_lazy && request.counts_lazily(key) {
            true => Effort::None,
            false => usual,
        };
        let Counted { deltas: own, unresolved } =
            counted(set, &view, SeqNo::MAX, effort, exact, request.ranges.as_ref())?;
        self.check_counts(state, &own, count)?;
        let unresolved_ops = set.encode_unresolved(&unresolved);
        if !unresolved.is_empty() {
            self.published.note_owing();
        }
        let header = encode_header(&own);
        let bytes = (header.len() + set.byte_len() + unresolved_ops.len()) as u64;
        let room = if set.removes_only() { LogRoom::HeldBack } else { LogRoom::Common };
        state.wal()?.reserve(bytes, room)?;
        let blobs = &request.blobs;
        blobs.leases.iter().for_each(|lease| state.active.memtable.keep(lease.file()));
        let seq = state.last_seq.next();
        if self.published.enter(seq) {
            self.note_fronts(request, seq);
        }
        // skip_ranges.2
        if view.skip_ranges.enter(seq) {
            let puts = set.entries(seq).filter(|entry| entry.kind.is_live());
            view.skip_ranges.note_puts(seq, puts.map(|entry| entry.key));
        }
        state.poison.begin();
        let mut log = || {
            let wal = state.wal()?;
            wal.append(seq, &[&header, set.payload(), &unresolved_ops])?;
            if set.byte_len() >= OVERLAP_BYTES && request.durability == Durability::Sync {
                wal.write()?;
                wal.start_writeback();
            }
            Ok(())
        };
        let logged = log();
        if let Err(error) = logged {
            state.poison.settle();
            return Err(state.poison.stop(error));
        }
        apply(set, &unresolved, seq, &state.active.memtable, &mut state.active.applier);
        // drop_mark.1
        marked.extend(request.drops.iter().filter(|mark| mark.set()).cloned());
        // So that no more of them are to be looked at when the database opens.
        state.active.logged_bytes += bytes + blobs.bytes / BLOB_BYTES_PART;
        state.active.beside_bytes += blobs.bytes;
        blobs.leases.iter().for_each(|lease| lease.file().note_commit(seq));
        state.last_seq = seq;
        deltas.extend(own);
        Ok(seq)
    }

    /// front.2
    fn note_fronts(&self, request: &CommitRequest, seq: SeqNo) {
        for life in &request.keyspaces {
            let counter = self.published.counter(life.id);
            if !counter.front.is_known() {
                continue;
            }
            let prefix = encode_key(life.id, &[]);
            let of_keyspace = request.set.entries_from(&prefix, seq);
            let mut of_keyspace = of_keyspace.take_while(|entry| entry.key.starts_with(&prefix));
            if let Some(first) = of_keyspace.find(|entry| entry.kind.is_live()) {
                counter.front.note_put(seq, front::head_of(&first.key[prefix.len()..]));
            }
        }
    }

    /// Refuses the commit of a serializable transaction if what it has read has changed.
    pub(super) fn check_reads(
        &self,
        request: &CommitRequest,
        view: &ReadView,
        len_now: impl Fn(KeyspaceId) -> Result<u64>,
    ) -> Result<()> {
        let (Some(since), Some(reads)) = (&request.since, &request.reads) else { return Ok(()) };
        if canary::is_set(Canary::ReadCheckSkipped) {
            return Ok(());
        }
        match reads.find_conflict(since.seq(), view, len_now)? {
            Some(conflict) => Err(conflict.into_error(&request.keyspaces)),
            None => Ok(()),
        }
    }

    /// Refuses a commit that would remove more than there is (payload.1): a range of a table is not what was written. Logged, it would make
    /// the log unreadable.
    pub(super) fn check_counts(
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

    /// Lets lengths be read without a look at the view again, if nothing in it is unresolved or owed: then no count has ever been too large. Does
    /// nothing while somebody commits.
    pub(crate) fn note_resolved(&self) {
        if self.published.may_owe()
            && let Some(_state) = self.state.try_lock()
            && self.view.get().is_resolved()
        {
            self.published.note_exact();
        }
    }

    /// The segment of the log that the next commit goes to, or starts in.
    pub fn current_segment(&self) -> Result<u64> {
        self.state.lock().wal().map(|wal| wal.current_segment())
    }

    /// Cuts the log's segment in use to what is used.
    pub(crate) fn cut_log(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.poison.check()?;
        let cut = state.wal().and_then(WalWriter::cut);
        cut.map_err(|error| state.poison.stop(error))
    }

    /// Writes to the WAL are stopped by this failure.
    pub fn poisoned(&self) -> Option<Arc<Error>> {
        match self.state.lock().poison.check() {
            Err(Error::Poisoned(cause)) => Some(cause),
            _ => None,
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

impl WriteState {
    pub(super) fn wal(&mut self) -> Result<&mut WalWriter> {
        self.wal.as_mut().ok_or(Error::Closed)
    }
}
