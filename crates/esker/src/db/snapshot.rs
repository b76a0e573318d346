//! A snapshot: the database as it was at one commit.

use std::ops::RangeBounds;
use std::sync::Arc;

use super::key_handle::Key;
use super::keyspace::Keyspace;
use super::range::{Cursor, Range};
use super::writes::{encode_bounds, prefix_bounds};
use crate::engine::handle::Handle;
use crate::engine::reads::ReadSource;
use crate::read::point::{Presence, ValueOf, Want};
use crate::txn::snapshots::SnapshotGuard;
use crate::types::{Result, Value};

/// The state of all keyspaces at one commit. It pins a sequence number, not files: while it lives, the versions it
/// sees are kept; space of everything else is reclaimed as usual.
#[derive(Clone)]
pub struct Snapshot {
    handle: Arc<Handle>,
    pin: SnapshotGuard,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot(@{})", self.pin.seq())
    }
}

impl Snapshot {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        let pin = handle.core.snapshot();
        Snapshot { handle, pin }
    }

    pub(crate) fn pin(&self) -> &SnapshotGuard {
        &self.pin
    }

    /// The number of the newest commit it sees.
    pub fn seqno(&self) -> u64 {
        self.pin.seq().get()
    }

    pub(crate) fn find<W: Want>(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<W::Out>> {
        let keyspace = keyspace.state_in(&self.handle)?;
        self.handle.core.find_at::<W>(keyspace, key, self.pin.seq())
    }

    /// For iterators.
    pub(super) fn source(&self, keyspace: &Keyspace) -> Result<ReadSource> {
        self.handle.core.source_at(keyspace.state_in(&self.handle)?, &self.pin)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the keyspace is one of another database, as of all methods here.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.find::<ValueOf>(keyspace, key.as_ref())
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.find::<Presence>(keyspace, key.as_ref())?.is_some())
    }

    /// The values of several keys.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let source = self.source(keyspace)?;
        source.find_many(&keyspace.state, keys)
    }

    /// The first entry.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) and [`Io`](crate::Error::Io) if a table cannot be read; [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped.
    pub fn first(&self, keyspace: &Keyspace) -> Result<Option<(Key, Value)>> {
        self.iter(keyspace).next().transpose()
    }

    /// The last entry.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) and [`Io`](crate::Error::Io) if a table cannot be read; [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped.
    pub fn last(&self, keyspace: &Keyspace) -> Result<Option<(Key, Value)>> {
        self.iter(keyspace).next_back().transpose()
    }

    /// The entries of a range, from either end.
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Range {
        Range::from_result(self.source(keyspace), encode_bounds(keyspace.state.id, &range))
    }

    /// The entries whose keys start with `prefix`, from either end.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Range {
        Range::from_result(self.source(keyspace), prefix_bounds(keyspace.state.id, prefix.as_ref()))
    }

    /// All entries, from either end.
    pub fn iter(&self, keyspace: &Keyspace) -> Range {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// A cursor over all entries.
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped.
    pub fn cursor(&self, keyspace: &Keyspace) -> Result<Cursor> {
        let source = self.source(keyspace)?;
        Ok(Cursor::new(source, keyspace.state.id, encode_bounds::<&[u8]>(keyspace.state.id, &(..))))
    }

    /// The exact number of keys, without counting.
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped.
    #[inline]
    pub fn len(&self, keyspace: &Keyspace) -> Result<u64> {
        let keyspace = keyspace.state_in(&self.handle)?;
        self.handle.core.check_there(keyspace)?;
        Ok(keyspace.counter.at(self.pin.seq()))
    }

    /// Whether a keyspace has no keys.
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped.
    pub fn is_empty(&self, keyspace: &Keyspace) -> Result<bool> {
        Ok(self.len(keyspace)? == 0)
    }
}
