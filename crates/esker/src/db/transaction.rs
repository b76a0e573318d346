//! Optimistic transactions: read from a snapshot, gather writes, check for conflicts at commit.

use std::ops::RangeBounds;
use std::sync::Arc;

use super::keyspace::Keyspace;
use super::range::Range;
use super::snapshot::Snapshot;
use super::writes::{Writes, encode_bounds, prefix_bounds};
use crate::engine::handle::Handle;
use crate::read::point::{Presence, ValueOf};
use crate::txn::commit::Durability;
use crate::txn::write_set::Own;
use crate::types::bounds::Bounds;
use crate::types::key::KeyBuf;
use crate::types::limits::check_key;
use crate::types::{Result, Value};

/// A transaction under snapshot isolation. It reads the state of the moment it began, with its own writes on top, and
/// commits only if nobody else has meanwhile written a key (or into a range) that it writes; otherwise
/// [`Error::Conflict`](crate::Error::Conflict). Dropping it rolls it back.
///
/// Snapshot isolation permits write skew: two transactions that each read what the other writes can both commit.
/// Write a key that both depend on to make them conflict.
pub struct Transaction {
    handle: Arc<Handle>,
    snapshot: Snapshot,
    writes: Writes,
}

impl Transaction {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        let snapshot = Snapshot::new(handle.clone());
        Transaction { handle, snapshot, writes: Writes::default() }
    }

    /// The state it reads from, without its own writes.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Sets a key to a value.
    ///
    /// # Errors
    /// Those of [`WriteBatch::put`](crate::WriteBatch::put).
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.writes.put(keyspace.state_in(&self.handle)?, key.as_ref(), value.as_ref())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Those of [`WriteBatch::remove`](crate::WriteBatch::remove).
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.writes.remove(keyspace.state_in(&self.handle)?, key.as_ref())
    }

    /// Removes all keys of a range.
    ///
    /// # Errors
    /// Those of [`WriteBatch::remove_range`](crate::WriteBatch::remove_range).
    pub fn remove_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        self.writes.remove_range(keyspace.state_in(&self.handle)?, &range)
    }

    /// What it has written of a key. Who finds it untouched checks that the keyspace is there, as `own` does for others (catalog.4).
    fn own(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Own<'_>> {
        if self.writes.set.is_empty() {
            return Ok(Own::Untouched);
        }
        check_key(key)?;
        let keyspace = keyspace.state_in(&self.handle)?;
        let own = self.writes.set.get(&KeyBuf::new(keyspace.id, key));
        if !matches!(own, Own::Untouched) {
            self.handle.core.check_there(keyspace)?;
        }
        Ok(own)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`].
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        match self.own(keyspace, key.as_ref())? {
            Own::Put(value) => Ok(Some(Value::copy_of(value))),
            Own::Removed => Ok(None),
            Own::Untouched => self.snapshot.find::<ValueOf>(keyspace, key.as_ref()),
        }
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`].
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        match self.own(keyspace, key.as_ref())? {
            Own::Put(_) => Ok(true),
            Own::Removed => Ok(false),
            Own::Untouched => Ok(self.snapshot.find::<Presence>(keyspace, key.as_ref())?.is_some()),
        }
    }

    fn walk(&self, keyspace: &Keyspace, bounds: Bounds) -> Range {
        let source = self.snapshot.source(keyspace);
        let own = (!self.writes.set.is_empty()).then(|| self.writes.set.clone());
        Range::from_result(source.map(|source| crate::engine::reads::ReadSource { own, ..source }), bounds)
    }

    /// The entries of a range, from either end, with the writes made so far.
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Range {
        self.walk(keyspace, encode_bounds(keyspace.state.id, &range))
    }

    /// The entries whose keys start with `prefix`, from either end, with the writes made so far.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Range {
        self.walk(keyspace, prefix_bounds(keyspace.state.id, prefix.as_ref()))
    }

    /// All entries, from either end, with the writes made so far.
    pub fn iter(&self, keyspace: &Keyspace) -> Range {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// Makes the writes durable and visible, all or none.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict): begin again; [`Db::transact`](crate::Db::transact) does so. And those of
    /// [`WriteBatch::commit`](crate::WriteBatch::commit).
    pub fn commit(self) -> Result<()> {
        let durability = self.handle.core.options.durability();
        self.commit_with(durability)
    }

    /// [`commit`](Self::commit) with a durability of its own.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        let since = self.snapshot.pin().clone();
        self.handle.core.submit(self.writes.into_request(durability, Some(since)))
    }

    /// Forgets the writes.
    pub fn rollback(self) {}
}
