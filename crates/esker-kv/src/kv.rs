//! The traits of stores whose calls block.
//!
//! kv.1. A commit is there whole or not at all, and durable once [`Transaction::commit`] has returned.
//! kv.2. A transaction reads one state, with its own writes on top. The state includes every commit that had
//!       returned before [`Kv::begin`] was called.
//! kv.3. A commit fails with [`Error::Conflict`](crate::Error::Conflict) if another transaction has changed a
//!       key since that state which this one writes or has read with [`Transaction::get_for_update`].
//! kv.4. A snapshot reads one state for as long as it is held.

use bytes::Bytes;

use crate::page::{Page, Query};
use crate::{Result, Space, Span};

/// Reads of one state of a store, or, on a store itself, of its newest state at each call.
pub trait Reads {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable), [`Error::Invalid`](crate::Error::Invalid) for a
    /// space of another store, [`Error::SnapshotTooOld`](crate::Error::SnapshotTooOld).
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>>;

    /// Returns the values of several keys, in their order.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    fn multi_get(&self, space: &Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>>;

    /// Returns the first entries of a range.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    fn page(&self, space: &Space, query: Query<'_>) -> Result<Page>;

    /// Returns the number of keys in a range. Takes time in proportion to it, unless a store can do better.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    fn count(&self, space: &Space, span: Span<'_>) -> Result<u64>;
}

/// A fixed state of a store (kv.4).
pub trait Snapshot: Reads + Send + Sync {}

/// A savepoint of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(pub usize);

/// A transaction (kv.1 to kv.3). Dropping it rolls it back.
pub trait Transaction: Reads + Send {
    /// Returns the value of a key. The commit conflicts if another transaction has changed the key. May wait
    /// for a transaction that has read the same key for update.
    ///
    /// # Errors
    /// Those of [`Reads::get`], and [`Error::Conflict`](crate::Error::Conflict): roll back.
    fn get_for_update(&mut self, space: &Space, key: &[u8]) -> Result<Option<Bytes>>;

    /// Sets a key.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge), [`Error::Invalid`](crate::Error::Invalid), and those of
    /// [`Reads::get`] if the store is asked at once. The transaction is then as before the call.
    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()>;

    /// Removes the keys of a range.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    fn remove_range(&mut self, space: &Space, span: Span<'_>) -> Result<()>;

    /// Sets a savepoint.
    ///
    /// # Errors
    /// Those of [`Reads::get`].
    fn savepoint(&mut self) -> Result<Savepoint>;

    /// Undoes the writes since a savepoint, and releases later ones. The savepoint stays.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the savepoint was released; those of [`Reads::get`].
    fn rollback_to(&mut self, point: Savepoint) -> Result<()>;

    /// Releases a savepoint and later ones. The writes since then stay.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the savepoint was released.
    fn release(&mut self, point: Savepoint) -> Result<()>;

    /// Commits.
    ///
    /// # Errors
    /// All of [`Error`](crate::Error). After [`OutcomeUnknown`](crate::Error::OutcomeUnknown) the transaction
    /// may be committed; after all others it is not.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// The limits of a store. A longer key, value or transaction is refused with
/// [`Error::TooLarge`](crate::Error::TooLarge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest key, in bytes.
    pub key_bytes: usize,
    /// The longest value, in bytes.
    pub value_bytes: usize,
    /// The largest transaction, in bytes of keys and values. `u64::MAX`: as much as the store has room for.
    pub transaction_bytes: u64,
}

/// A store of spaces, which are ordered maps.
pub trait Kv: Reads + Send + Sync {
    /// Opens the space of this name, and creates it if it does not exist.
    ///
    /// # Errors
    /// Those of [`Reads::get`], and [`Error::Invalid`](crate::Error::Invalid) for a name that the store does
    /// not take. Names of up to 200 letters, digits, dots, dashes and underscores always work.
    fn space(&self, name: &str) -> Result<Space>;

    /// Returns the space of this name, if it exists.
    ///
    /// # Errors
    /// Those of [`Reads::get`].
    fn find_space(&self, name: &str) -> Result<Option<Space>>;

    /// Returns the names of all spaces, in order.
    ///
    /// # Errors
    /// Those of [`Reads::get`].
    fn spaces(&self) -> Result<Vec<String>>;

    /// Drops a space with all its keys, if it exists. A later commit that writes to it through an old handle
    /// fails with [`Error::Invalid`](crate::Error::Invalid); one at the same time may be lost with the space.
    ///
    /// # Errors
    /// Those of [`Reads::get`].
    fn drop_space(&self, name: &str) -> Result<()>;

    /// Renames spaces in one commit. `names` has pairs of the old and the new name, applied in order.
    ///
    /// # Errors
    /// Those of [`Reads::get`], and [`Error::Invalid`](crate::Error::Invalid) if there is no space of an old
    /// name, or one of a new name; [`Error::Unsupported`](crate::Error::Unsupported) if the store renames one
    /// space at a time.
    fn rename_spaces(&self, names: &[(&str, &str)]) -> Result<()>;

    /// Returns a snapshot of the newest state.
    ///
    /// # Errors
    /// Those of [`Reads::get`].
    fn snapshot(&self) -> Result<Box<dyn Snapshot>>;

    /// Begins a transaction.
    ///
    /// # Errors
    /// Those of [`Reads::get`].
    fn begin(&self) -> Result<Box<dyn Transaction>>;

    /// Returns the limits of the store.
    fn limits(&self) -> Limits;
}
