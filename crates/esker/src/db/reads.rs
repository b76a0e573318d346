//! `Reads`: the reads of one keyspace, the same for every state that can be read.
//!
//! ```text
//!   Keyspace                              current state
//!   View of a Snapshot                    at a commit         } Reads
//!   View, ViewMut of a Transaction        with its writes     }
//! ```

use std::ops::ControlFlow;

use super::cursor::Cursor;
use super::handles::ReadState;
use super::key_handle::Key;
use super::keyspace::Keyspace;
use super::range::{Keys, Range};
use super::snapshot::Snapshot;
use super::transaction::Transaction;
use crate::read::point::{Presence, ValueOf};
use crate::read::value_reader::{ReaderOf, ValueReader};
use crate::types::{KeyBounds, Result, Value};

/// The reads of one keyspace. A function over `&impl Reads` accepts a [`Keyspace`], or the view of a keyspace
/// in a snapshot or a transaction.
///
/// ```
/// use esker::Reads;
///
/// fn total(prices: &impl Reads) -> esker::Result<usize> {
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
pub trait Reads {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) with file and offset if bytes on disk are damaged;
    /// [`Io`](crate::Error::Io) if they cannot be read; [`KeyTooLong`](crate::Error::KeyTooLong);
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped;
    /// [`Closed`](crate::Error::Closed); [`Invalid`](crate::Error::Invalid) for a view of a keyspace of
    /// another database. All methods of this trait have these errors.
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>>;

    /// Returns a reader of the value of a key, for values that are too large to hold in memory.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>>;

    /// Returns whether a key exists.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool>;

    /// Returns the values of several keys, all at the same commit.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>>;

    /// Returns the entries of a range, from either end.
    fn range(&self, range: impl KeyBounds) -> Range;

    /// Returns the entries whose keys have this prefix, from either end.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range;

    /// Returns a cursor over the entries of a range.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn cursor_in(&self, range: impl KeyBounds) -> Result<Cursor>;

    /// Returns the exact number of keys without walking over them. In a transaction this looks up each key
    /// that it has written.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn len(&self) -> Result<u64>;

    /// Returns whether there are no keys.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
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

/// One keyspace of a [`Snapshot`] or of a [`Transaction`]: see [`Reads`]. Made by their `keyspace` methods.
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

/// Implements [`Reads`] for a view. `$state`: the [`ReadState`] that it reads, and the keyspace.
macro_rules! reads_by {
    ($type:ty, |$view:ident| ($state:expr, $keyspace:expr)) => {
        impl Reads for $type {
            fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                let $view = self;
                $state.find::<ValueOf>($keyspace, key.as_ref())
            }
            fn reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
                let $view = self;
                $state.find::<ReaderOf>($keyspace, key.as_ref())
            }
            fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                let $view = self;
                Ok($state.find::<Presence>($keyspace, key.as_ref())?.is_some())
            }
            fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
                let $view = self;
                $state.find_many_watched($keyspace, keys, usize::MAX)
            }
            fn range(&self, range: impl KeyBounds) -> Range {
                let $view = self;
                $state.walk($keyspace, range)
            }
            fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
                let $view = self;
                $state.walk_prefix($keyspace, prefix.as_ref())
            }
            fn cursor_in(&self, range: impl KeyBounds) -> Result<Cursor> {
                let $view = self;
                $state.cursor_over($keyspace, range)
            }
            fn len(&self) -> Result<u64> {
                let $view = self;
                $state.count($keyspace)
            }
            fn is_empty(&self) -> Result<bool> {
                let $view = self;
                $state.has_no_keys($keyspace)
            }
        }
    };
}

reads_by!(View<'_, Snapshot>, |view| (view.state, view.keyspace));
reads_by!(View<'_, Transaction>, |view| (view.state, view.keyspace));
reads_by!(super::updates::ViewMut<'_>, |view| (view.transaction, view.keyspace));
reads_by!(Keyspace, |keyspace| (keyspace.core(), keyspace));
reads_by!(super::past::Past, |past| (past, &past.keyspace));
