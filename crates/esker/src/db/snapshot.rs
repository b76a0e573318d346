//! `Snapshot`: the database as it was at one commit.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::cursor::Cursor;
use super::handles::{ReadState, read_methods};
use super::key_handle::Key;
use super::keyspace::Keyspace;
use super::range::{Keys, Range};
use super::ttl::Ttl;
use crate::engine::life::handle::Handle;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::state::reads::ReadSource;
use crate::read::fold::Operands;
use crate::read::point::{ExpiryOf, PointQuery, Presence, ValueOf};
use crate::read::value_reader::{ReaderOf, ValueReader};
use crate::txn::snapshots::SnapshotGuard;
use crate::types::bounds::Bounds;
use crate::types::expiry::KeyExpiry;
use crate::types::{KeyBounds, Result, SeqNo, Value};

/// The state of all keyspaces at one commit. While it exists, the versions that it sees are kept; other space
/// is reclaimed as usual. A snapshot keeps no files. Its iterators and cursors keep files until they drop.
///
/// Its methods are those of [`Reads`](crate::Reads), with the keyspace as their first argument. They are
/// shorthands: `snapshot.get(&ks, key)` is `snapshot.keyspace(&ks).get(key)`.
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

    /// The number of the newest visible commit.
    pub fn seqno(&self) -> SeqNo {
        self.pin.seq()
    }

    /// Looks up a key below a transaction's operands. The keyspace exists.
    pub(super) fn find_below<W: PointQuery>(
        &self,
        keyspace: &KeyspaceState,
        key: &[u8],
        operands: Operands,
    ) -> Result<Option<W::Out>> {
        self.handle.core.find_at::<W>(keyspace, key, self.pin.seq(), operands)
    }

    /// Returns the source of iterators over a keyspace that exists.
    pub(super) fn source_below(&self) -> Result<ReadSource> {
        self.handle.core.source_at(&self.pin)
    }

    /// Returns the state of the keyspace if it exists.
    fn check<'a>(&self, keyspace: &'a Keyspace) -> Result<&'a KeyspaceState> {
        let state = keyspace.state_in(&self.handle)?;
        self.handle.core.check_there(state)?;
        Ok(state)
    }

    /// Returns when a key expires, to the millisecond. `None`: never, or the key is absent. An entry can
    /// expire after a range has returned it: then it is absent here, as [`contains`](Self::contains) shows.
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
        let KeyExpiry::At(expiry) = self.expiry(keyspace, key.as_ref())? else { return Ok(None) };
        Ok(SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(expiry.ms())))
    }

    /// Returns when a key expires.
    pub(crate) fn expiry(&self, keyspace: &Keyspace, key: &[u8]) -> Result<KeyExpiry> {
        Ok(match self.find::<ExpiryOf>(keyspace, key)? {
            Some(Some(expiry)) => KeyExpiry::At(expiry),
            Some(None) => KeyExpiry::Never,
            None => KeyExpiry::Absent,
        })
    }
}

impl ReadState for Snapshot {
    #[inline]
    fn find<W: PointQuery>(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<W::Out>> {
        self.find_below::<W>(self.check(keyspace)?, key, Operands::default())
    }

    fn source(&self, keyspace: &Keyspace, bounds: Option<&Bounds>) -> Result<ReadSource> {
        let low_water_key = self.handle.core.low_water_key_for(self.check(keyspace)?, bounds);
        Ok(ReadSource { low_water_key, ..self.source_below()? })
    }

    #[inline]
    fn count(&self, keyspace: &Keyspace) -> Result<u64> {
        self.handle.core.len_at(self.check(keyspace)?, &self.pin)
    }

    fn has_no_keys(&self, keyspace: &Keyspace) -> Result<bool> {
        let has_none = self.count(keyspace)? == 0;
        Ok(has_none || self.handle.core.may_have_expired() && self.first(keyspace)?.is_none())
    }
}

read_methods!(Snapshot, |self, keyspace| (self, keyspace));
