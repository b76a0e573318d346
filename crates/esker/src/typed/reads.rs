//! The reads of typed tables: the same for every state that can be read.

use std::marker::PhantomData;

use esker_tuple::{KeyOf, PrefixOf, TypedKey};

use super::bounds::{ByteRange, KeyRange, encoded, prefix_of};
use super::codec::{Codec, Postcard};
use super::table::{Table, Types, key_of, value_of};
use crate::{Keys, Range, Reads, Result, Ttl, Value};

impl<K: TypedKey, V, C: Codec<V>, S: Reads> Table<K, V, C, S> {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// Those of [`Reads::get`]; [`Invalid`](crate::Error::Invalid) if the codec cannot decode the value. A
    /// value of another type may be decoded without an error.
    pub fn get<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>> {
        let key = encoded(key)?;
        let value = self.state.get(&key)?;
        value.map(|value| value_of::<V, C>(&key, &value)).transpose()
    }

    /// Returns the remaining lifetime of a key. `None`: the key does not exist.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn ttl<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Option<Ttl>> {
        self.state.ttl(encoded(key)?)
    }

    /// Returns whether a key exists.
    ///
    /// # Errors
    /// Those of [`Reads::contains`].
    pub fn contains<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<bool> {
        self.state.contains(encoded(key)?)
    }

    /// Returns the values of several keys, all at the same commit.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn multi_get<Q: KeyOf<K>>(&self, keys: impl IntoIterator<Item = Q>) -> Result<Vec<Option<V>>> {
        let keys: Vec<_> = keys.into_iter().map(|key| encoded(&key)).collect::<Result<_>>()?;
        let values = self.state.multi_get(&keys)?.into_iter().zip(&keys);
        let decode = |(value, key): (Option<Value>, &Vec<u8>)| {
            value.map(|value| value_of::<V, C>(key, &value)).transpose()
        };
        values.map(decode).collect()
    }

    /// Returns the entries of a range, from either end.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a key that cannot be stored.
    pub fn range(&self, range: impl KeyRange<K>) -> Result<Entries<K, V, C>> {
        range.to_bytes().map(|range| self.between(range))
    }

    /// Returns the entries whose keys begin with these fields, as a tuple, from either end.
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn prefix<Q: PrefixOf<K> + ?Sized>(&self, fields: &Q) -> Result<Entries<K, V, C>> {
        prefix_of(fields).map(|range| self.between(range))
    }

    /// Returns all entries, from either end.
    pub fn iter(&self) -> Entries<K, V, C> {
        Entries { range: self.state.iter(), types: PhantomData }
    }

    pub(super) fn between(&self, range: ByteRange) -> Entries<K, V, C> {
        Entries { range: self.state.range(range), types: PhantomData }
    }

    /// Returns the keys of a range, from either end, without their values.
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn keys(&self, range: impl KeyRange<K>) -> Result<TypedKeys<K>> {
        let range = range.to_bytes()?;
        Ok(TypedKeys { keys: self.state.keys(range), types: PhantomData })
    }

    /// Returns the first entry.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first(&self) -> Result<Option<(K, V)>> {
        self.iter().next().transpose()
    }

    /// Returns the last entry.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last(&self) -> Result<Option<(K, V)>> {
        self.iter().next_back().transpose()
    }

    /// Returns the number of entries: see [`Reads::len`].
    ///
    /// # Errors
    /// Those of [`Reads::len`].
    pub fn len(&self) -> Result<u64> {
        self.state.len()
    }

    /// Returns whether the table is empty.
    ///
    /// # Errors
    /// Those of [`Reads::is_empty`].
    pub fn is_empty(&self) -> Result<bool> {
        self.state.is_empty()
    }
}

/// An iterator over the entries of a [`Table`] in key order, from either end. It ends after an error, except
/// for an entry of another type.
pub struct Entries<K, V, C = Postcard> {
    pub(super) range: Range,
    types: Types<K, V, C>,
}

pub(super) fn entry<K: TypedKey, V, C: Codec<V>>((key, value): (crate::Key, Value)) -> Result<(K, V)> {
    Ok((key_of(&key)?, value_of::<V, C>(&key, &value)?))
}

impl<K: TypedKey, V, C: Codec<V>> Iterator for Entries<K, V, C> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.range.next().map(|found| found.and_then(entry::<K, V, C>))
    }
}

impl<K: TypedKey, V, C: Codec<V>> DoubleEndedIterator for Entries<K, V, C> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.next_back().map(|found| found.and_then(entry::<K, V, C>))
    }
}

/// An iterator over the keys of a [`Table`], in order, from either end.
pub struct TypedKeys<K> {
    pub(super) keys: Keys,
    types: PhantomData<fn() -> K>,
}

impl<K: TypedKey> Iterator for TypedKeys<K> {
    type Item = Result<K>;

    fn next(&mut self) -> Option<Self::Item> {
        self.keys.next().map(|key| key.and_then(|key| key_of(&key)))
    }
}

impl<K: TypedKey> DoubleEndedIterator for TypedKeys<K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.keys.next_back().map(|key| key.and_then(|key| key_of(&key)))
    }
}
