//! `Table`: a keyspace, or a view of one, with typed keys and values.

use std::fmt;
use std::marker::PhantomData;

use esker_tuple::TypedKey;

use super::codec::{Codec, Postcard};
use crate::{
    Error, Keyspace, Past, Reads, Result, SeqNo, Snapshot, Transaction, View, ViewMut, WriteBatch,
    WriteOptions,
};

/// Type parameters of a table, which holds no values of them.
pub(super) type Types<K, V, C> = PhantomData<fn() -> (K, V, C)>;

/// A typed table. `C` is the [codec](super::Codec) of its values. `S` is what it reads and writes: a keyspace
/// with its current state, or a view of one in a snapshot ([`at`](Table::at)) or a transaction
/// ([`on`](Table::on)). A function over `&Table<K, V, C, impl Reads>` accepts them all.
pub struct Table<K, V, C = Postcard, S = Keyspace> {
    pub(super) state: S,
    types: Types<K, V, C>,
}

impl<K, V, C, S: Clone> Clone for Table<K, V, C, S> {
    fn clone(&self) -> Self {
        Table::over(self.state.clone())
    }
}

impl<K, V, C> fmt::Debug for Table<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({:?})", self.state.name())
    }
}

impl<K, V, C, S> Table<K, V, C, S> {
    pub(super) fn over(state: S) -> Self {
        Table { state, types: PhantomData }
    }
}

impl<K: TypedKey, V, C: Codec<V>> Table<K, V, C> {
    /// Creates a typed view of a keyspace. The types are not stored: use the types that wrote it.
    pub fn new(keyspace: Keyspace) -> Self {
        Table::over(keyspace)
    }

    /// The underlying keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.state
    }

    /// The table with a durability and a lifetime for its writes: see [`Keyspace::with`].
    pub fn with(&self, options: impl Into<WriteOptions>) -> Self {
        Table::over(self.state.with(options))
    }

    /// The table in a [`Snapshot`] or in a [`Transaction`], for reading.
    pub fn at<'a, T: State>(&'a self, state: &'a T) -> Table<K, V, C, T::View<'a>> {
        Table::over(state.view(&self.state))
    }

    /// The table in a [`Transaction`], for reading and writing, or in a [`WriteBatch`], for writing.
    pub fn on<'a, T: StateMut>(&'a self, state: &'a mut T) -> Table<K, V, C, T::View<'a>> {
        Table::over(state.view_mut(&self.state))
    }

    /// The table as it was at a commit: see [`Keyspace::at`].
    ///
    /// # Errors
    /// Those of [`Keyspace::at`].
    pub fn as_of(&self, seqno: SeqNo) -> Result<Table<K, V, C, Past>> {
        self.state.at(seqno).map(Table::over)
    }
}

/// What [`Table::at`] takes: a [`Snapshot`] or a [`Transaction`].
pub trait State {
    /// The view of one keyspace.
    type View<'a>: Reads
    where
        Self: 'a;

    #[doc(hidden)]
    fn view<'a>(&'a self, keyspace: &'a Keyspace) -> Self::View<'a>;
}

impl State for Snapshot {
    type View<'a> = View<'a, Snapshot>;

    fn view<'a>(&'a self, keyspace: &'a Keyspace) -> Self::View<'a> {
        self.keyspace(keyspace)
    }
}

impl State for Transaction {
    type View<'a> = View<'a, Transaction>;

    fn view<'a>(&'a self, keyspace: &'a Keyspace) -> Self::View<'a> {
        self.keyspace(keyspace)
    }
}

/// What [`Table::on`] takes: a [`Transaction`] or a [`WriteBatch`].
pub trait StateMut {
    /// The view of one keyspace.
    type View<'a>
    where
        Self: 'a;

    #[doc(hidden)]
    fn view_mut<'a>(&'a mut self, keyspace: &'a Keyspace) -> Self::View<'a>;
}

impl StateMut for Transaction {
    type View<'a> = ViewMut<'a>;

    fn view_mut<'a>(&'a mut self, keyspace: &'a Keyspace) -> Self::View<'a> {
        self.keyspace_mut(keyspace)
    }
}

/// One keyspace of a [`WriteBatch`].
pub struct BatchView<'a> {
    pub(super) batch: &'a mut WriteBatch,
    pub(super) keyspace: &'a Keyspace,
}

impl StateMut for WriteBatch {
    type View<'a> = BatchView<'a>;

    fn view_mut<'a>(&'a mut self, keyspace: &'a Keyspace) -> Self::View<'a> {
        BatchView { batch: self, keyspace }
    }
}

/// Decodes a stored key.
pub(super) fn key_of<K: TypedKey>(key: &[u8]) -> Result<K> {
    esker_tuple::decode(key).map_err(|error| {
        Error::Invalid(format!("the key \"{}\" is of another type: {error}", key.escape_ascii()))
    })
}

/// Decodes the value of a key.
pub(super) fn value_of<V, C: Codec<V>>(key: &[u8], value: &[u8]) -> Result<V> {
    C::decode(value).map_err(|error| {
        Error::Invalid(format!("the value of \"{}\" is of another type: {error}", key.escape_ascii()))
    })
}

/// Encodes a value.
pub(super) fn bytes_of<V, C: Codec<V>>(value: &V) -> Result<Vec<u8>> {
    C::encode(value).map_err(|error| Error::Invalid(format!("the value cannot be stored: {error}")))
}
