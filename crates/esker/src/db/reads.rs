//! The reads of one keyspace, the same for every state that can be read: `ReadCore` as an object, `Reads` for
//! generic functions.
//!
//! ```text
//!   Keyspace                              current state
//!   View of a Snapshot, Past              at a commit         } ReadCore --> Reads
//!   View, ViewMut of a Transaction        with its writes     }
//! ```

use std::ops::{Bound, ControlFlow};
use std::time::SystemTime;

use super::cursor::Cursor;
use super::handles::{ReadState, read_methods};
use super::key_handle::Key;
use super::keyspace::Keyspace;
use super::past::Past;
use super::range::{Keys, Range};
use super::snapshot::Snapshot;
use super::transaction::Transaction;
use super::ttl::Ttl;
use super::updates::ViewMut;
use crate::read::point::{Presence, ValueOf};
use crate::read::value_reader::{ReaderOf, ValueReader};
use crate::types::{KeyBounds, Result, Value};

/// The reads of one keyspace, as an object: a function over `&dyn ReadCore` accepts a [`Keyspace`], or the
/// view of a keyspace in a snapshot or a transaction. With [`Reads`] in scope it reads like any of them.
///
/// ```
/// use esker::{ReadCore, Reads};
///
/// fn total(prices: &dyn ReadCore) -> esker::Result<usize> {
///     prices.prefix("fruit/").map(|entry| Ok(entry?.1.len())).sum()
/// }
///
/// # fn main() -> esker::Result<()> {
/// # let db = esker::Db::in_memory()?;
/// let prices = db.keyspace("prices")?;
/// prices.put("fruit/apple", "30")?;
/// let snapshot = db.snapshot();
/// prices.put("fruit/pear", "50")?;
/// assert_eq!((total(&prices)?, total(&snapshot.keyspace(&prices))?), (4, 2));
/// # Ok(())
/// # }
/// ```
pub trait ReadCore {
    /// See [`Reads::get`].
    ///
    /// # Errors
    /// See [`Reads::get`].
    fn value_of(&self, key: &[u8]) -> Result<Option<Value>>;

    /// See [`Reads::reader`].
    ///
    /// # Errors
    /// See [`Reads::get`].
    fn reader_of(&self, key: &[u8]) -> Result<Option<ValueReader>>;

    /// See [`Reads::contains`].
    ///
    /// # Errors
    /// See [`Reads::get`].
    fn has(&self, key: &[u8]) -> Result<bool>;

    /// See [`Reads::ttl`].
    ///
    /// # Errors
    /// See [`Reads::get`].
    fn ttl_of(&self, key: &[u8]) -> Result<Option<Ttl>>;

    /// See [`Reads::multi_get`].
    ///
    /// # Errors
    /// See [`Reads::get`].
    fn values_of(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>>;

    /// See [`Reads::range`].
    fn between(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Range;

    /// See [`Reads::prefix`].
    fn with_prefix(&self, prefix: &[u8]) -> Range;

    /// See [`Reads::cursor_in`].
    ///
    /// # Errors
    /// See [`Reads::get`].
    fn cursor_between(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Cursor>;

    /// See [`Reads::len`].
    ///
    /// # Errors
    /// See [`Reads::get`].
    fn count(&self) -> Result<u64>;

    /// See [`Reads::is_empty`].
    ///
    /// # Errors
    /// See [`Reads::get`].
    fn has_no_keys(&self) -> Result<bool>;
}

/// The reads of one keyspace, for generic functions: all that has a [`ReadCore`]. A [`Keyspace`] and each
/// view have the same methods of their own.
pub trait Reads: ReadCore {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) with file and offset if bytes on disk are damaged;
    /// [`Io`](crate::Error::Io) if they cannot be read; [`KeyTooLong`](crate::Error::KeyTooLong);
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped;
    /// [`Closed`](crate::Error::Closed); [`ForeignHandle`](crate::Error::ForeignHandle) for a view of a
    /// keyspace of another database. All methods of this trait have these errors.
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.value_of(key.as_ref())
    }

    /// Returns a reader of the value of a key, for values that are too large to hold in memory.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.reader_of(key.as_ref())
    }

    /// Returns whether a key exists.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.has(key.as_ref())
    }

    /// Returns the remaining lifetime of a key. `None`: the key does not exist.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<Ttl>> {
        self.ttl_of(key.as_ref())
    }

    /// Returns the values of several keys, all at the same commit.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.values_of(&keys.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    }

    /// Returns the entries of a range, from either end.
    fn range(&self, range: impl KeyBounds) -> Range {
        self.between(range.lower(), range.upper())
    }

    /// Returns the entries whose keys have this prefix, from either end.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.with_prefix(prefix.as_ref())
    }

    /// Returns a cursor over the entries of a range.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn cursor_in(&self, range: impl KeyBounds) -> Result<Cursor> {
        self.cursor_between(range.lower(), range.upper())
    }

    /// Returns the exact number of keys without walking over them. In a transaction this looks up each key
    /// that it has written.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn len(&self) -> Result<u64> {
        self.count()
    }

    /// Returns whether there are no keys.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn is_empty(&self) -> Result<bool> {
        self.has_no_keys()
    }

    /// Returns all entries, from either end.
    fn iter(&self) -> Range {
        self.range(..)
    }

    /// Returns the keys of a range, from either end.
    fn keys(&self, range: impl KeyBounds) -> Keys {
        self.range(range).keys()
    }

    /// Passes the entries of a range to `visit`, in key order, until it breaks: see [`Range::visit`].
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn for_each(
        &self,
        range: impl KeyBounds,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.range(range).visit(visit)
    }

    /// Returns the first entry.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn first(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next().transpose()
    }

    /// Returns the last entry.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn last(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next_back().transpose()
    }

    /// Returns a cursor over all entries.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn cursor(&self) -> Result<Cursor> {
        self.cursor_in(..)
    }
}

impl<T: ReadCore + ?Sized> Reads for T {}

/// One keyspace of a [`Snapshot`] or of a [`Transaction`], for reading. Made by their `keyspace` methods.
/// They have the same calls with the keyspace as first argument, as shorthands.
#[derive(Clone, Copy)]
pub struct View<'a, S> {
    pub(super) state: &'a S,
    pub(super) keyspace: &'a Keyspace,
}

impl Snapshot {
    /// Returns a view of one keyspace.
    pub fn keyspace<'a>(&'a self, keyspace: &'a Keyspace) -> View<'a, Snapshot> {
        View { state: self, keyspace }
    }
}

impl Transaction {
    /// A view of one keyspace for reading.
    pub fn keyspace<'a>(&'a self, keyspace: &'a Keyspace) -> View<'a, Transaction> {
        View { state: self, keyspace }
    }
}

impl View<'_, Snapshot> {
    /// Returns when a key expires: see [`Snapshot::expires_at`].
    ///
    /// # Errors
    /// See [`Reads::get`](crate::Reads::get).
    pub fn expires_at(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        self.state.expires_at(self.keyspace, key)
    }
}

/// Implements [`ReadCore`] for a view, and gives it the same reads of its own. `$state`: the [`ReadState`]
/// that it reads, and the keyspace.
macro_rules! reads_by {
    ($type:ty, |$view:ident| ($state:expr, $keyspace:expr)) => {
        impl ReadCore for $type {
            fn value_of(&$view, key: &[u8]) -> Result<Option<Value>> {
                $state.find::<ValueOf>($keyspace, key)
            }
            fn reader_of(&$view, key: &[u8]) -> Result<Option<ValueReader>> {
                $state.find::<ReaderOf>($keyspace, key)
            }
            fn has(&$view, key: &[u8]) -> Result<bool> {
                Ok($state.find::<Presence>($keyspace, key)?.is_some())
            }
            fn ttl_of(&$view, key: &[u8]) -> Result<Option<Ttl>> {
                ReadState::ttl_of($state, $keyspace, key)
            }
            fn values_of(&$view, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
                $state.find_many_watched($keyspace, keys, usize::MAX)
            }
            fn between(&$view, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Range {
                $state.walk($keyspace, (start, end))
            }
            fn with_prefix(&$view, prefix: &[u8]) -> Range {
                $state.walk_prefix($keyspace, prefix)
            }
            fn cursor_between(&$view, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Cursor> {
                $state.cursor_over($keyspace, (start, end))
            }
            fn count(&$view) -> Result<u64> {
                ReadState::count($state, $keyspace)
            }
            fn has_no_keys(&$view) -> Result<bool> {
                ReadState::has_no_keys($state, $keyspace)
            }
        }
    };
}

reads_by!(View<'_, Snapshot>, |self| (self.state, self.keyspace));
reads_by!(View<'_, Transaction>, |self| (self.state, self.keyspace));
reads_by!(ViewMut<'_>, |self| (&*self.transaction, self.keyspace));
reads_by!(Keyspace, |self| (self.core(), self));
reads_by!(Past, |self| (self, &self.keyspace));
read_methods!(View<'_, Snapshot>, |self| (self.state, self.keyspace));
read_methods!(View<'_, Transaction>, |self| (self.state, self.keyspace));
read_methods!(ViewMut<'_>, |self| (&*self.transaction, self.keyspace));
read_methods!(Past, |self| (self, &self.keyspace));
