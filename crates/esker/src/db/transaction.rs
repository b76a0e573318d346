//! Optimistic transactions: read from a snapshot, gather writes, check for conflicts at the commit.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::bounds::{encode_bounds, prefix_bounds};
use super::commit_error::{CommitError, CommittingAll};
use super::cursor::Cursor;
use super::handles::{Gather, ReadState, catalog_methods, read_methods, write_methods};
use super::key_handle::Key;
use super::keyspace::Keyspace;
use super::range::{Keys, Range};
use super::restart::Restart;
use super::snapshot::Snapshot;
use super::ttl::Ttl;
use super::writes::{CommitConditions, ValueSource, Writes};
use crate::engine::life::exclusive::Turn;
use crate::engine::life::handle::Handle;
use crate::engine::life::owner::LockOwner;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::state::keyspace_options::KeyspaceOptions;
use crate::engine::state::reads::ReadSource;
use crate::read::fold::Operands;
use crate::read::point::{EntryOf, PointQuery, Presence, ValueOf};
use crate::read::value_reader::{ReaderOf, ValueReader};
use crate::txn::commit::{Durability, Isolation};
use crate::txn::layers::OwnAnswer;
use crate::txn::read_set::ReadSet;
use crate::types::bounds::Bounds;
use crate::types::canary::{self, Canary};
use crate::types::expiry::{Expiry, Lifetime};
use crate::types::key::KeyBuf;
use crate::types::limits::check_key;
use crate::types::{Error, KeyBounds, Result, SeqNo, Value};

/// A transaction. It reads the state at its beginning, with its own writes on top. It commits only if no
/// other commit has meanwhile written a key, or into a range, that it has read or writes; otherwise the
/// commit fails with [`Error::Conflict`](crate::Error::Conflict). A transaction without writes never
/// conflicts. A transaction waits for another one if one of them is [exclusive](Isolation::Exclusive), if
/// both want the same [lock](Self::lock), or if [`transact`](crate::Db::transact) runs one again after eight
/// conflicts. Dropping a transaction rolls it back.
///
/// [`Isolation`] describes the levels.
///
/// Its reads see its own writes. Calls with the keyspace as first argument are shorthands: `t.get(&ks, key)`
/// is `t.keyspace(&ks).get(key)` ([`keyspace`](Self::keyspace)), and `t.put(&ks, key, value)` is
/// `t.keyspace_mut(&ks).put(key, value)` ([`keyspace_mut`](Self::keyspace_mut)).
pub struct Transaction {
    pub(super) handle: Arc<Handle>,
    snapshot: Snapshot,
    pub(super) writes: Writes,
    /// The number of the newest savepoint.
    pub(super) last_point: u64,
    /// Its read set, if it is serializable.
    pub(super) reads: Option<Arc<ReadSet>>,
    /// Whether anything was read from the snapshot. Relaxed: it orders nothing.
    pub(super) has_read: AtomicBool,
    /// The read sets of its parts (part.2).
    pub(super) parts: Vec<Arc<ReadSet>>,
    /// Notices to send when it commits.
    pub(super) notices: Vec<(Arc<str>, Value)>,
    /// Its locks, if it has taken any.
    pub(super) owner: Option<LockOwner>,
    /// If it is exclusive: its turn, or why it has none.
    pub(super) turn: Option<Result<Turn>>,
    /// Whether the last operation failed in a way that requires a restart.
    pub(super) restart: Restart,
    attempt: u32,
    durability: Durability,
}

/// A value and its expiry.
pub(super) type Entry = (Value, Option<Expiry>);

/// Distance between the savepoint numbers of two transactions.
const POINTS_MAX: u64 = 1 << 32;
/// Number of transactions made. Relaxed: it orders nothing.
static MADE: AtomicU64 = AtomicU64::new(0);

impl Transaction {
    pub(crate) fn new(
        handle: Arc<Handle>,
        isolation: Isolation,
        durability: Durability,
        attempt: u32,
    ) -> Self {
        let turn = (isolation == Isolation::Exclusive).then(|| Turn::take(handle.clone()));
        let reads = (isolation == Isolation::Serializable).then(Arc::default);
        let snapshot = Snapshot::new(handle.clone());
        let last_point = MADE.fetch_add(1, Ordering::Relaxed).wrapping_mul(POINTS_MAX);
        let (writes, has_read, owner) = (Writes::default(), AtomicBool::new(false), None);
        let (parts, notices, restart) = (Vec::new(), Vec::new(), Restart::default());
        Transaction {
            handle,
            snapshot,
            writes,
            last_point,
            reads,
            has_read,
            parts,
            notices,
            owner,
            turn,
            restart,
            attempt,
            durability,
        }
    }

    /// Returns the read set if reads are noted, for a read of a keyspace.
    pub(super) fn reads_of(&self, state: &KeyspaceState) -> Option<&Arc<ReadSet>> {
        self.reads.as_ref().inspect(|reads| reads.note_keyspace(state.id, || state.name()))
    }

    /// Returns whether it depends on its snapshot.
    pub(super) fn has_read(&self) -> bool {
        self.has_read.load(Ordering::Relaxed)
    }

    /// Replaces the snapshot. Nothing has been read from the old one.
    pub(super) fn renew(&mut self, snapshot: Snapshot) {
        self.snapshot = snapshot;
        // found.1
        Arc::make_mut(&mut self.writes.set).forget_found();
    }

    /// Returns the sequence number of its snapshot.
    pub(super) fn seqno(&self) -> SeqNo {
        self.snapshot.seqno()
    }

    /// The state that it reads, without its own writes.
    pub fn snapshot(&self) -> &Snapshot {
        self.has_read.store(true, Ordering::Relaxed);
        &self.snapshot
    }

    /// How often [`Db::transact`](crate::Db::transact) has started it: 1 at first, one more after each
    /// conflict.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Sets a key to a value with this lifetime.
    pub(super) fn put_for(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        lifetime: Lifetime,
    ) -> Result<()> {
        let (writes, core, state) = self.room_in(keyspace)?;
        writes.put_for(core, state, key, value, lifetime)
    }

    /// Replaces the value of an entry that was read, and keeps its expiry. A new key gets the default
    /// lifetime of its keyspace.
    pub(super) fn put_in_place_of(
        &mut self,
        old: Option<&Entry>,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let old = old.filter(|_| !canary::is_set(Canary::UpdateForgetsExpiry));
        let Some((_, expiry)) = old else { return self.put(keyspace, key, value) };
        let (writes, core, state) = self.room_in(keyspace)?;
        writes.put_until(core, state, key, value, *expiry)
    }

    /// The value of a key and its expiry.
    pub(super) fn entry(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Entry>> {
        self.find::<EntryOf>(keyspace, key)
    }

    /// Opens the keyspace with this name as the transaction sees it. A serializable transaction that has
    /// looked up a name conflicts with later commits that create, drop or rename a keyspace of this name,
    /// whether it found one or not.
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound).
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.begin_operation()?;
        self.note_name(name);
        let found = self.writes.changes.find(&self.handle.core.catalog, name);
        let state = found.ok_or_else(|| Error::KeyspaceNotFound(name.to_owned()))?;
        self.check_there(&state)?;
        Ok(Keyspace::new(self.handle.clone(), state))
    }

    /// Fails if the keyspace is gone, for everyone or for this transaction.
    fn check_there(&self, state: &KeyspaceState) -> Result<()> {
        let changes = &self.writes.changes;
        match () {
            () if changes.is_empty() => self.handle.core.check_there(state),
            () if changes.drops(state.id) => Err(state.not_found()),
            () if changes.creates(state.id) => Ok(()),
            () => self.handle.core.check_there(state),
        }
    }

    /// Commits the writes, all or none, and makes them visible. The durability is the one that
    /// [`Db::transaction`](crate::Db::transaction) set, or that of the database. Returns the number of the
    /// commit.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict): run the transaction again, as
    /// [`Db::transact`](crate::Db::transact) does. Those of
    /// [`WriteBatch::commit`](crate::WriteBatch::commit). The error returns the transaction.
    pub fn commit(self) -> Result<SeqNo, CommitError<Transaction>> {
        let durability = self.durability;
        self.commit_with(durability)
    }

    /// Same as [`commit`](Self::commit), with this durability.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_with(mut self, durability: Durability) -> Result<SeqNo, CommitError<Transaction>> {
        let done = self
            .conditions()
            .and_then(|conditions| self.writes.commit(&self.handle.core, durability, conditions));
        done.map_err(|error| CommitError::new(error, self))
    }

    /// Same as [`commit`](Self::commit), without a waiting thread: see [`Keyspace::put_async`]. The future
    /// holds the transaction's locks until it is done or dropped. A transaction that is exclusive, or changes
    /// keyspaces, is committed at once by the caller.
    ///
    /// # Errors
    /// The future's are those of [`commit`](Self::commit).
    pub fn commit_async(self) -> CommittingAll<Transaction> {
        let durability = self.durability;
        self.commit_async_with(durability)
    }

    /// Same as [`commit_async`](Self::commit_async), with this durability.
    ///
    /// # Errors
    /// The future's are those of [`commit`](Self::commit).
    pub fn commit_async_with(mut self, durability: Durability) -> CommittingAll<Transaction> {
        if self.turn.is_some() || !self.writes.changes_nothing() {
            return CommittingAll::done(self.commit_with(durability));
        }
        let core = self.handle.core.clone();
        let request =
            self.conditions().and_then(|conditions| self.writes.request(&core, durability, conditions));
        let handle = self.handle.clone();
        CommittingAll::new(request.map(|request| handle.commit_async(request)), self)
    }

    /// Begins the commit: returns its conditions.
    fn conditions(&mut self) -> Result<CommitConditions> {
        self.begin_operation()?;
        if canary::is_set(Canary::LockReleasedEarly) {
            self.owner = None;
        }
        self.owner.iter().for_each(LockOwner::note_thread);
        Ok(CommitConditions {
            since: Some(self.snapshot.pin().clone()),
            reads: self.reads.iter().chain(&self.parts).cloned().collect(),
            is_exclusive: self.turn.is_some(),
            notices: self.notices.clone(),
        })
    }

    /// Sends a notice under a topic when the transaction commits: see [`Db::listen`](crate::Db::listen).
    /// Notices are not stored. A rollback to a savepoint does not withdraw them.
    pub fn notify(&mut self, topic: &str, text: impl AsRef<[u8]>) {
        self.notices.push((topic.into(), Value::copy_of(text.as_ref())));
    }

    /// Has an exclusive transaction belong to no thread until its next operation. Commits of this thread wait
    /// for it then, as those of other threads do. Without this they pass it, so that a thread does not wait
    /// for itself. Call it after each operation if tasks share threads: a commit of another task, which
    /// happens to run in this thread, would pass. Has no effect on other transactions.
    pub fn leave_thread(&self) {
        if let Some(Ok(turn)) = &self.turn {
            turn.leave_thread();
        }
    }

    /// Drops the writes.
    pub fn rollback(self) {}
}

impl ReadState for Transaction {
    fn find<W: PointQuery>(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<W::Out>> {
        check_key(key)?;
        let state = self.state_of(keyspace)?;
        self.check_there(state)?;
        let mut operands = Operands::default();
        if !self.writes.is_empty() {
            match self.writes.find::<W>(&self.handle.core, &KeyBuf::new(state.id, key))? {
                OwnAnswer::Known(own) => {
                    self.handle.core.check_open()?;
                    return Ok(own);
                }
                OwnAnswer::Below(found) => operands = found,
            }
        }
        self.has_read.store(true, Ordering::Relaxed);
        if let Some(reads) = self.reads_of(state) {
            reads.note_key(&KeyBuf::new(state.id, key));
        }
        let is_counted = operands.is_empty() && !state.is_lazy();
        let found = self.snapshot.find_below::<W>(state, key, operands)?;
        if is_counted && found.is_some() {
            self.writes.set.note_found(&KeyBuf::new(state.id, key));
        }
        Ok(found)
    }

    fn source(&self, keyspace: &Keyspace, bounds: Option<&Bounds>) -> Result<ReadSource> {
        let state = self.state_of(keyspace)?;
        self.check_there(state)?;
        self.has_read.store(true, Ordering::Relaxed);
        let own = if self.writes.is_empty() { None } else { Some(self.writes.own()?) };
        // Skipped entries would have to be checked at the commit.
        let low_water_key = match (&self.reads, &own) {
            (None, None) => self.handle.core.low_water_key_for(&keyspace.state, bounds),
            _ => None,
        };
        Ok(ReadSource {
            own,
            low_water_key,
            reads: self.reads_of(state).cloned(),
            ..self.snapshot.source_below()?
        })
    }

    fn count(&self, keyspace: &Keyspace) -> Result<u64> {
        let state = self.state_of(keyspace)?;
        self.check_there(state)?;
        let view = self.handle.core.view.get();
        view.check_open()?;
        let at = self.snapshot.seqno();
        let before = self.handle.core.len_at(state, self.snapshot.pin())?;
        self.has_read.store(true, Ordering::Relaxed);
        if let Some(reads) = self.reads_of(state) {
            reads.note_len(state.id, before);
        }
        let of_whole = |id| Ok(if id == state.id { before } else { 0 });
        let deltas = self.writes.count_deltas(&self.handle.core, &view, at, of_whole)?;
        let delta = deltas.iter().find(|delta| delta.0 == state.id).map_or(0, |delta| delta.1);
        Ok(before.checked_add_signed(delta).expect("counts.1: no more is removed than was there"))
    }

    fn find_many<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
        bytes_max: usize,
    ) -> Result<Vec<Option<Value>>> {
        let state = self.state_of(keyspace)?;
        self.check_there(state)?;
        let core = &self.handle.core;
        let mut found = Vec::with_capacity(keys.len());
        let mut others = Vec::new();
        let mut left = bytes_max;
        for (at, key) in keys.iter().map(AsRef::as_ref).enumerate() {
            if left == 0 && at > 0 {
                break;
            }
            check_key(key)?;
            let own = match self.writes.is_empty() {
                true => OwnAnswer::Below(Operands::default()),
                false => self.writes.find::<ValueOf>(core, &KeyBuf::new(state.id, key))?,
            };
            let own = match own {
                OwnAnswer::Known(own) => own,
                OwnAnswer::Below(operands) if operands.is_empty() => {
                    others.push((at, key));
                    None
                }
                OwnAnswer::Below(_) => self.find::<ValueOf>(keyspace, key)?,
            };
            left = left.saturating_sub(own.as_ref().map_or(0, |own| own.len()));
            found.push(own.map(Value::unpinned));
        }
        core.check_open()?;
        if let Some(reads) = self.reads_of(state) {
            others.iter().for_each(|(_, key)| reads.note_key(&KeyBuf::new(state.id, key)));
        }
        self.has_read.store(true, Ordering::Relaxed);
        let keys: Vec<_> = others.iter().map(|(_, key)| *key).collect();
        let threads = core.options.has_threads();
        let values = self.snapshot.source_below()?.find_many(state, &keys, threads, left)?;
        let unread = others.get(values.len()).map(|(at, _)| *at);
        others.iter().zip(values).for_each(|((at, _), value)| found[*at] = value);
        found.truncate(unread.unwrap_or(usize::MAX));
        Ok(found)
    }
}

read_methods!(Transaction, |self, keyspace| (self, keyspace));

impl Gather for Transaction {
    fn begin(&mut self, names: &[&str]) -> Result<(&mut Writes, &Arc<Handle>)> {
        self.begin_operation()?;
        names.iter().for_each(|name| self.note_name(name));
        Ok((&mut self.writes, &self.handle))
    }
}

write_methods!(Transaction, |self, keyspace| (self, keyspace));
catalog_methods!(Transaction);

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction(@{}, {} writes)", self.snapshot.seqno(), self.writes.op_count())
    }
}
