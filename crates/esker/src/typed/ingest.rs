//! Sorted pairs that are committed to a typed table without log and memtable.

use std::marker::PhantomData;

use esker_tuple::{KeyOf, TypedKey};

use super::bounds::encoded;
use super::codec::{Codec, Postcard};
use super::table::{Table, Types, bytes_of};
use crate::{CommitError, Ingest, Result, SeqNo};

/// Pairs in ascending order for a [`Table`]: see [`Ingest`].
pub struct TypedIngest<K, V, C = Postcard> {
    ingest: Ingest,
    types: Types<K, V, C>,
}

impl<K: TypedKey, V, C: Codec<V>> Table<K, V, C> {
    /// Begins to collect sorted pairs, which are committed together: see
    /// [`Keyspace::ingest`](crate::Keyspace::ingest).
    pub fn ingest(&self) -> TypedIngest<K, V, C> {
        TypedIngest { ingest: self.state.ingest(), types: PhantomData }
    }
}

impl<K: TypedKey, V, C: Codec<V>> TypedIngest<K, V, C> {
    /// Adds a pair. Its key must be above all earlier keys.
    ///
    /// # Errors
    /// Those of [`Ingest::put`]; [`Invalid`](crate::Error::Invalid) if the key or the value cannot be
    /// encoded.
    pub fn put<Q: KeyOf<K> + ?Sized>(&mut self, key: &Q, value: &V) -> Result<()> {
        self.ingest.put(encoded(key)?, bytes_of::<V, C>(value)?)
    }

    /// Number of pairs added.
    pub fn len(&self) -> u64 {
        self.ingest.len()
    }

    /// Returns whether no pair was added.
    pub fn is_empty(&self) -> bool {
        self.ingest.is_empty()
    }

    /// Makes all pairs durable and visible, or none: see [`Ingest::commit`].
    ///
    /// # Errors
    /// Those of [`Ingest::commit`], with the ingest in its byte form.
    pub fn commit(self) -> Result<SeqNo, CommitError<Ingest>> {
        self.ingest.commit()
    }
}
