//! The commit pipeline makes write sets durable, inserts them into the memtable and makes them visible.
//!
//! ```text
//!   group --each: keyspaces exist? conflicts? count deltas, sequence number--> WAL buffer, memtable
//!         --once: WAL write, fdatasync if requested--> Published --> outcomes
//! ```
//!
//! commit.1. A `Sync` commit is acknowledged only after its WAL record is synced; a `Buffered` one after the
//!     record is written to the page cache.
//! commit.2. Sequence numbers grow by one with each commit, in WAL order. A commit becomes visible only after
//!     all earlier ones.
//!
//! See also poison.1 in poison.rs and memtables.2 in memtables.rs.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::ahead::KeysAhead;
use super::apply::apply;
use super::conflict::{find_conflict, name_among};
use super::counts::{Counted, Effort, Presence, count_ranges, counted};
use super::drop_mark::DropMark;
use super::joiner::joiner;
use super::low_water_key;
use super::memtables::{Active, Memtables, Sealed};
use super::payload::encode_header;
use super::poison::{Cause, Poison};
use super::queue::GroupQueue;
use super::recent_writes::RecentWrites;
pub use super::request::{CommitRequest, Durability, Isolation, KeyspaceLife};
use super::snapshots::{Published, SnapshotGuard};
use super::watchers::Watchers;
use super::write_set::CountDeltas;
use crate::memtable::Applier;
use crate::read::view::ReadView;
use crate::read::view_cell::ViewCell;
use crate::types::canary::{self, Canary};
use crate::types::interleave::{self, Point};
use crate::types::key::encode_key;
use crate::types::parts::{Part, timed};
use crate::types::{Error, KeyspaceId, Result, SeqNo};
use crate::wal::{LogRoom, SyncHandle, WalWriter};

/// A commit of this many bytes starts its WAL write before it is inserted into the memtable, so that both
/// overlap.
const OVERLAP_BYTES: usize = 32 << 10;

/// Number of bytes in blob files that count as one byte of log.
const BLOB_BYTES_PART: u64 = 4;

/// The commit pipeline. All writes to the database pass through it.
pub struct Pipeline {
    queue: GroupQueue<CommitRequest, Result<SeqNo>>,
    pub(super) state: Mutex<WriteState>,
    /// The error that stopped writes ([`stopped_by`](Pipeline::stopped_by)).
    pub(super) stopped: Cause,
    /// What was unsynced when the current long commit started, for the timed sync (timed_sync.rs).
    pub(super) unsynced: Mutex<Option<SyncHandle>>,
    pub(super) memtables: Memtables,
    pub(super) view: Arc<ViewCell>,
    pub(super) published: Arc<Published>,
    /// Subscribers notified after each commit.
    pub(crate) watchers: Watchers,
}

/// State owned by the leader while it works.
pub struct WriteState {
    /// `None` once closed.
    pub(super) wal: Option<WalWriter>,
    pub(super) active: Active,
    pub(super) last_seq: SeqNo,
    pub(super) recent: RecentWrites,
    pub(super) poison: Poison,
}

impl Pipeline {
    /// Creates the pipeline after recovery. `applier` belongs to `view.active`, and `wal` is at the start of
    /// a segment.
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
        let poison = Poison::with_shelf(wal.shelf());
        Pipeline {
            queue: GroupQueue::default(),
            stopped: poison.shared_cause(),
            state: Mutex::new(WriteState {
                wal: Some(wal),
                active: Active::new(active, applier.joining(joiner(&view))),
                last_seq,
                recent: RecentWrites::new(last_seq),
                poison,
            }),
            unsynced: Mutex::new(None),
            memtables: Memtables::new(sealed, memtable_bytes),
            view,
            published,
            watchers: Watchers::default(),
        }
    }

    /// Commits `request` and returns its sequence number.
    pub fn commit(&self, mut request: CommitRequest) -> Result<SeqNo> {
        if request.set.is_empty() {
            // An empty batch still makes earlier commits durable; an empty transaction has only read.
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

    /// Commits several non-empty requests as one group, in order.
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

    /// Does the work that does not need the commit lock, so that other commits can proceed.
    fn prepare(&self, request: &mut CommitRequest) -> Result<()> {
        if !request.set.is_decodable() {
            // write_set.5 of write_set.rs
            let text =
                "commit rejected: a key, value or range bound is too long for the log; nothing was written";
            return Err(Error::Invalid(text.to_owned()));
        }
        request.set.sort();
        if !request.set.ranges().is_empty() && request.ranges.is_none() {
            self.resolve_pending_counts()?;
            // Pinned only for the duration of the commit.
            let since = self.published.snapshot(Duration::MAX);
            request.ranges = count_ranges(request.set.ranges(), &self.view.get(), since)?;
            interleave::reached(Point::RangeCounted);
        }
        // A commit that need not wait for others looks its keys up once, under the lock.
        if self.state.is_locked() || interleave::is_used() { self.look_ahead(request) } else { Ok(()) }
    }

    /// Looks up the keys of a request, unless that was done already.
    pub(crate) fn look_ahead(&self, request: &mut CommitRequest) -> Result<()> {
        if request.ahead.is_none() && !request.set.is_empty() && request.layers.is_empty() {
            // ahead.1
            let at = self.published.visible();
            let view = self.view.get();
            let usual = Effort::of(&view);
            request.ahead = KeysAhead::look_up(&request.set, &view, at, |key| request.effort(key, usual))?;
            interleave::reached(Point::KeysCounted);
        }
        Ok(())
    }

    /// Resolves unresolved versions before the commit takes the lock, so that counting the range needs no
    /// file reads.
    fn resolve_pending_counts(&self) -> Result<()> {
        let (at, view) = (self.published.visible(), self.view.get());
        if view.unresolved() > 0 {
            view.overcount(KeyspaceId::DEFAULT, at)?;
        }
        Ok(())
    }

    fn lead(&self, group: Vec<CommitRequest>) -> Vec<Result<SeqNo>> {
        let mut state = timed(Part::Wait, || self.state.lock());
        let is_long = CommitRequest::may_take_long(&group);
        let ready = state.poison.check().and_then(|()| self.make_room(&mut state));
        if let Err(error) = ready.and_then(|()| self.leave_unsynced(&mut state, is_long)) {
            return group.iter().map(|_| Err(error.clone())).collect();
        }
        let outcomes = self.lead_ready(&mut state, &group);
        if is_long {
            self.unsynced.lock().take();
        }
        outcomes
    }

    pub(super) fn lead_ready(&self, state: &mut WriteState, group: &[CommitRequest]) -> Vec<Result<SeqNo>> {
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
            return outcomes.into_iter().map(|o| o.and(Err(cause.clone()))).collect();
        }
        self.published.publish(state.last_seq, &deltas);
        state.poison.settle();
        if let Some(wal) = &state.wal {
            wal.notify_visible();
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

    /// Checks one commit and adds it to the WAL buffer and the memtable without making it visible. Adds the
    /// keyspaces that it drops to `marked`.
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
        let (view, ahead) = (self.view.get(), request.ahead.as_ref());
        let is_unchanged = |place, since| ahead.is_some_and(|a| a.is_unchanged(place, since, &state.recent));
        if let Some(since) = request.since.as_ref().map(SnapshotGuard::seq)
            && !canary::is_set(Canary::ConflictCheckSkipped)
            && let Some(conflict) = find_conflict(set, since, &view, |place| is_unchanged(place, since))?
        {
            return Err(conflict.into_error(|id| name_among(&request.keyspaces, id)));
        }
        let pending = |id| deltas.iter().filter(|d| d.0 == id).map(|d| d.1).sum();
        let count = |id| self.published.counter(id).now().saturating_add_signed(pending(id));
        let exact = |id| Ok(count(id).saturating_sub(view.overcount(id, state.last_seq)?));
        self.check_reads(request, &view, exact)?;
        let usual = Effort::of(&view);
        let effort = |place, key: &[u8]| match ahead.and_then(|ahead| ahead.presence(place, &state.recent)) {
            Some(presence) => Effort::Known(presence),
            None if request.has_found(place, &state.recent) => Effort::Known(Presence::Live),
            None => request.effort(key, usual),
        };
        let Counted { deltas: own, unresolved } =
            counted(set, &view, SeqNo::MAX, effort, exact, request.ranges.as_ref())?;
        self.check_counts(state, &own, count)?;
        let unresolved_ops = set.encode_unresolved(&unresolved);
        if !unresolved.is_empty() {
            self.published.note_overcount();
        }
        let header = encode_header(&own);
        let bytes = (header.len() + set.byte_len() + unresolved_ops.len()) as u64;
        let room = if set.removes_only() { LogRoom::HeldBack } else { LogRoom::Common };
        state.wal()?.reserve(bytes, room)?;
        let blobs = &request.blobs;
        blobs.leases.iter().for_each(|lease| state.active.memtable.keep(lease.file()));
        let seq = state.last_seq.next();
        self.note_puts(request, &view, seq);
        state.poison.begin();
        let is_large = set.byte_len() >= OVERLAP_BYTES && request.durability == Durability::Sync;
        let logged = state.wal().and_then(|wal| {
            wal.append(seq, &[&header, set.payload(), &unresolved_ops])?;
            if is_large {
                wal.write()?;
                wal.start_writeback();
            }
            Ok(())
        });
        if let Err(error) = logged {
            state.poison.settle();
            return Err(state.poison.stop(error));
        }
        let (memtable, applier) = (&state.active.memtable, &mut state.active.applier);
        timed(Part::Memtable, || apply(set, &unresolved, seq, memtable, applier));
        // drop_mark.1
        marked.extend(request.drops.iter().filter(|mark| mark.set()).cloned());
        // Blob bytes count towards the log, to limit the number of commits that recovery has to check.
        state.active.logged_bytes += bytes + blobs.bytes / BLOB_BYTES_PART;
        state.active.beside_bytes += blobs.bytes;
        blobs.leases.iter().for_each(|lease| lease.file().note_commit(seq));
        state.last_seq = seq;
        state.recent.note_set(set, ahead.map(KeysAhead::hashes), seq);
        deltas.extend(own);
        Ok(seq)
    }

    /// Records the puts of a commit in the low-water keys and the skip ranges.
    fn note_puts(&self, request: &CommitRequest, view: &ReadView, seq: SeqNo) {
        if self.published.enter(seq) {
            self.note_low_water_keys(request, seq);
        }
        // skip_ranges.2
        if view.skip_ranges.enter(seq) {
            let puts = request.set.entries(seq).filter(|entry| entry.kind.is_live());
            view.skip_ranges.note_puts(seq, puts.map(|entry| entry.key));
        }
    }

    /// Records the lowest key of the commit in each keyspace with a low-water key (low_water_key.2).
    fn note_low_water_keys(&self, request: &CommitRequest, seq: SeqNo) {
        for life in &*request.keyspaces {
            let counter = self.published.counter(life.id);
            if !counter.low_water_key.is_known() {
                continue;
            }
            let prefix = encode_key(life.id, &[]);
            let of_keyspace = request.set.entries_from(&prefix, seq);
            let mut of_keyspace = of_keyspace.take_while(|entry| entry.key.starts_with(&prefix));
            if let Some(first) = of_keyspace.find(|entry| entry.kind.is_live()) {
                counter.low_water_key.note_put(seq, low_water_key::head_of(&first.key[prefix.len()..]));
            }
        }
    }

    /// Fails the commit of a serializable transaction if something it read has changed.
    pub(super) fn check_reads(
        &self,
        request: &CommitRequest,
        view: &ReadView,
        len_now: impl Fn(KeyspaceId) -> Result<u64>,
    ) -> Result<()> {
        let is_checked = !canary::is_set(Canary::ReadCheckSkipped);
        let Some(since) = request.since.as_ref().filter(|_| is_checked) else { return Ok(()) };
        for reads in &request.reads {
            if let Some(conflict) = reads.find_conflict(since.seq(), view, &len_now)? {
                return Err(conflict.into_error(|id| reads.name_of(id)));
            }
        }
        Ok(())
    }

    /// Fails a commit that would remove more keys than there are, which happens if a range of a table is
    /// damaged. Logging it would make the log unreadable.
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
            "a commit would change the count of keyspace {id}, {}, by {delta}: run `esker check` to find the damaged table",
            count(id)
        );
        Err(Error::corrupt("table", dir, 0, detail))
    }

    /// If no version is unresolved and no count is too high, lets `len` read the counter without the view.
    /// Does nothing while a commit is running.
    pub(crate) fn note_resolved(&self) {
        if self.published.may_overcount()
            && let Some(_state) = self.state.try_lock()
            && self.view.get().is_resolved()
        {
            self.published.note_exact();
        }
    }

    /// The log segment that the next commit is written to.
    pub fn current_segment(&self) -> Result<u64> {
        self.state.lock().wal().map(|wal| wal.current_segment())
    }

    /// Truncates the current log segment to its used size.
    pub(crate) fn cut_log(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.poison.check()?;
        let cut = state.wal().and_then(WalWriter::cut);
        cut.map_err(|error| state.poison.stop(error))
    }

    /// Fails after a failure or a panic.
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.state.lock().poison.check()
    }

    /// Stops all further writes. Returns the error to report.
    pub(crate) fn stop(&self, error: Error) -> Error {
        self.state.lock().poison.stop(error)
    }

    /// Returns the error that stopped writes. Does not wait for a running commit.
    pub fn stopped_by(&self) -> Option<Arc<Error>> {
        if let Some(cause) = self.stopped.get() {
            return Some(cause.clone());
        }
        // A panic leaves no cause. A thread that holds the lock has checked that there was none.
        match self.state.try_lock()?.poison.check() {
            Err(Error::Poisoned(cause)) => Some(cause),
            _ => None,
        }
    }

    /// Returns the failure that stopped writes to the WAL.
    pub fn poisoned(&self) -> Option<Arc<Error>> {
        match self.state.lock().poison.check() {
            Err(Error::Poisoned(cause)) => Some(cause),
            _ => None,
        }
    }

    /// Returns whether a commit is running.
    pub fn is_committing(&self) -> bool {
        self.state.is_locked()
    }

    /// Runs `work` while commits are blocked, as during a commit.
    #[cfg(test)]
    pub fn while_committing<T>(&self, work: impl FnOnce() -> T) -> T {
        let _state = self.state.lock();
        work()
    }

    /// Makes the log durable and closes it. Later commits fail.
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
