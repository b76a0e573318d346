//! A batch: several writes as one commit, without reading.

use std::ops::RangeBounds;
use std::sync::Arc;

use super::keyspace::Keyspace;
use super::writes::Writes;
use crate::engine::handle::Handle;
use crate::txn::commit::Durability;
use crate::types::Result;

/// Writes that become durable and visible together, over any keyspaces. Later ones win over earlier ones of the same
/// key. Unlike a transaction it checks for no conflicts.
pub struct WriteBatch {
    handle: Arc<Handle>,
    writes: Writes,
}

impl WriteBatch {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        WriteBatch { handle, writes: Writes::default() }
    }

    /// Sets a key to a value.
    ///
    /// # Errors
    /// [`KeyTooLong`](crate::Error::KeyTooLong), [`ValueTooLong`](crate::Error::ValueTooLong),
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped, [`Invalid`](crate::Error::Invalid) if it is one
    /// of another database. The batch stays as it was then.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.writes.put(keyspace.state_in(&self.handle)?, key.as_ref(), value.as_ref())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), but for the value's.
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.writes.remove(keyspace.state_in(&self.handle)?, key.as_ref())
    }

    /// Removes all keys of a range, except those that the batch puts later.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), but for the value's; the bounds are keys.
    pub fn remove_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        self.writes.remove_range(keyspace.state_in(&self.handle)?, &range)
    }

    /// The number of puts and removals made, repeated ones included, apart from those that a later range removal
    /// cancelled.
    pub fn len(&self) -> usize {
        self.writes.set.op_count()
    }

    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.writes.set.is_empty()
    }

    /// The bytes that the commit will log.
    pub fn byte_len(&self) -> usize {
        self.writes.set.byte_len()
    }

    /// Makes the writes durable and visible, all or none.
    ///
    /// # Errors
    /// [`Poisoned`](crate::Error::Poisoned): the log cannot be written or synced, now or since an earlier failure. If now, the next opening
    /// of the database shows whether the writes are there; until then nobody sees them.
    ///
    /// After any other error none of them is there: [`NoSpace`](crate::Error::NoSpace);
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if one was dropped meanwhile; [`Closed`](crate::Error::Closed);
    /// [`Corrupt`](crate::Error::Corrupt) and [`Io`](crate::Error::Io) if old values of the keys cannot be looked up, no memtable can be
    /// flushed to make room, or the log gets no further file.
    pub fn commit(self) -> Result<()> {
        let durability = self.handle.core.options.durability();
        self.commit_with(durability)
    }

    /// [`commit`](Self::commit) with a durability of its own.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        self.handle.core.submit(self.writes.into_request(durability, None))
    }
}
