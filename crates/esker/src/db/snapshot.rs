//! A snapshot: the database as it was at one commit.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::key_handle::Key;
use super::keyspace::Keyspace;
use super::range::{Cursor, Keys, Range};
use super::reads::View;
use super::ttl::Ttl;
use super::writes::{encode_bounds, prefix_bounds};
use crate::engine::life::handle::Handle;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::state::reads::ReadSource;
use crate::read::fold::Operands;
use crate::read::point::{ExpiryOf, PointQuery, Presence, ValueOf};
use crate::read::value_reader::{ReaderOf, ValueReader};
use crate::txn::snapshots::SnapshotGuard;
use crate::types::bounds::Bounds;
use crate::types::expiry::Expiry;
use crate::types::{KeyBounds, Result, SeqNo, Value};

/// The state of all keyspaces at one commit. While it lives, the versions it sees are kept; space of everything else is reclaimed as
/// usual. It keeps no files: only its iterators and cursors do, until they drop.
///
/// Its methods are those of [`Reads`](crate::Reads), with the keyspace as their first argument.
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
    pub fn seqno(&self) -> SeqNo {
        self.pin.seq()
    }

    /// One keyspace of it.
    pub fn keyspace<'a>(&'a self, keyspace: &'a Keyspace) -> View<'a, Snapshot> {
        View { state: self, keyspace }
    }

    /// Looks a key up in a keyspace that is there.
    pub(super) fn find<W: PointQuery>(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<W::Out>> {
        self.handle.core.find_at::<W>(keyspace, key, self.pin.seq(), Operands::default())
    }

    /// The same below a transaction's operands.
    pub(super) fn find_below<W: PointQuery>(
        &self,
        keyspace: &KeyspaceState,
        key: &[u8],
        operands: Operands,
    ) -> Result<Option<W::Out>> {
        self.handle.core.find_at::<W>(keyspace, key, self.pin.seq(), operands)
    }

    /// For iterators over a keyspace that is there.
    pub(super) fn source(&self) -> Result<ReadSource> {
        self.handle.core.source_at(&self.pin)
    }

    /// The keyspace, if it is there.
    fn check<'a>(&self, keyspace: &'a Keyspace) -> Result<&'a KeyspaceState> {
        let state = keyspace.state_in(&self.handle)?;
        self.handle.core.check_there(state)?;
        Ok(state)
    }

    fn source_of(&self, keyspace: &Keyspace, bounds: Option<&Bounds>) -> Result<ReadSource> {
        let state = self.check(keyspace)?;
        let low_water_key = self.handle.core.low_water_key_for(state, bounds);
        Ok(ReadSource { low_water_key, ..self.source()? })
    }

    /// See [`Reads::get`](crate::Reads::get).
    ///
    /// # Errors
    /// See there.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.find::<ValueOf>(self.check(keyspace)?, key.as_ref())
    }

    /// See [`Reads::reader`](crate::Reads::reader).
    ///
    /// # Errors
    /// See there.
    pub fn reader(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.find::<ReaderOf>(self.check(keyspace)?, key.as_ref())
    }

    /// See [`Reads::contains`](crate::Reads::contains).
    ///
    /// # Errors
    /// See there.
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.find::<Presence>(self.check(keyspace)?, key.as_ref())?.is_some())
    }

    /// How long a key is still there, from now on: see [`Keyspace::ttl`].
    ///
    /// # Errors
    /// See [`Reads::get`](crate::Reads::get).
    pub fn ttl(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Ttl>> {
        let found = self.expiry(keyspace, key.as_ref())?;
        Ok(found.map(|expiry| Ttl::until(expiry, &self.handle.core.time)))
    }

    /// The moment at which a key expires, to the millisecond; none if it never does, or is not there.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// # let db = esker::Db::in_memory()?;
    /// let map = db.default_keyspace();
    /// map.put_with_ttl("session", "ann", Duration::from_secs(60))?;
    /// let end = db.snapshot().expires_at(&map, "session")?;
    /// assert!(end > Some(SystemTime::now()));
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Reads::get`](crate::Reads::get).
    pub fn expires_at(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        let expiry = self.expiry(keyspace, key.as_ref())?.flatten();
        Ok(expiry.and_then(|expiry| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(expiry.ms()))))
    }

    /// When a key expires, if it does; the outer none: it is not there.
    pub(crate) fn expiry(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.find::<ExpiryOf>(self.check(keyspace)?, key)
    }

    /// See [`Reads::multi_get`](crate::Reads::multi_get).
    ///
    /// # Errors
    /// See there.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let threads = self.handle.core.options.has_threads();
        self.source_of(keyspace, None)?.find_many(&keyspace.state, keys, threads)
    }

    /// The values of the first keys: of all, unless the values that were read exceed `bytes_max` bytes before. Of one
    /// key at least. Call it again with the keys that are left.
    ///
    /// # Errors
    /// Those of [`multi_get`](Self::multi_get).
    pub fn multi_get_within<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
        bytes_max: usize,
    ) -> Result<Vec<Option<Value>>> {
        let threads = self.handle.core.options.has_threads();
        self.source_of(keyspace, None)?.find_many_within(&keyspace.state, keys, threads, bytes_max)
    }

    /// See [`Reads::first`](crate::Reads::first).
    ///
    /// # Errors
    /// See there.
    pub fn first(&self, keyspace: &Keyspace) -> Result<Option<(Key, Value)>> {
        self.iter(keyspace).next().transpose()
    }

    /// See [`Reads::last`](crate::Reads::last).
    ///
    /// # Errors
    /// See there.
    pub fn last(&self, keyspace: &Keyspace) -> Result<Option<(Key, Value)>> {
        self.iter(keyspace).next_back().transpose()
    }

    /// The entries of a range, from either end.
    pub fn range(&self, keyspace: &Keyspace, range: impl KeyBounds) -> Range {
        let bounds = encode_bounds(keyspace.state.id, &range);
        Range::from_result(self.source_of(keyspace, Some(&bounds)), bounds)
    }

    /// The entries whose keys start with `prefix`, from either end.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Range {
        let bounds = prefix_bounds(keyspace.state.id, prefix.as_ref());
        Range::from_result(self.source_of(keyspace, Some(&bounds)), bounds)
    }

    /// All entries, from either end.
    pub fn iter(&self, keyspace: &Keyspace) -> Range {
        self.range(keyspace, ..)
    }

    /// The keys of a range, from either end.
    pub fn keys(&self, keyspace: &Keyspace, range: impl KeyBounds) -> Keys {
        self.range(keyspace, range).keys()
    }

    /// A cursor over all entries.
    ///
    /// # Errors
    /// See [`Reads::get`](crate::Reads::get).
    pub fn cursor(&self, keyspace: &Keyspace) -> Result<Cursor> {
        self.cursor_in(keyspace, ..)
    }

    /// A cursor over the entries of a range.
    ///
    /// # Errors
    /// See [`Reads::get`](crate::Reads::get).
    pub fn cursor_in(&self, keyspace: &Keyspace, range: impl KeyBounds) -> Result<Cursor> {
        let id = keyspace.state.id;
        let bounds = encode_bounds(id, &range);
        Ok(Cursor::new(self.source_of(keyspace, Some(&bounds))?, id, bounds))
    }

    /// The exact number of keys, without counting them: see [`Keyspace::len`].
    ///
    /// # Errors
    /// See [`Reads::get`](crate::Reads::get).
    #[inline]
    pub fn len(&self, keyspace: &Keyspace) -> Result<u64> {
        let keyspace = self.check(keyspace)?;
        self.handle.core.len_at(keyspace, &self.pin)
    }

    /// Whether a keyspace has no keys.
    ///
    /// # Errors
    /// See [`Reads::get`](crate::Reads::get).
    pub fn is_empty(&self, keyspace: &Keyspace) -> Result<bool> {
        let state = self.check(keyspace)?;
        let has_none = self.handle.core.len_at(state, &self.pin)? == 0;
        Ok(has_none || self.handle.core.may_have_expired() && self.first(keyspace)?.is_none())
    }
}
