//! `Multimap`: any number of sorted values for each key.

use esker_tuple::{Decoder, Encoder, KeyError, KeyOf, PrefixOf, ToKey, TypedKey};

use super::bounds::{KeyRange, prefix_of};
use super::codec::Plain;
use super::reads::Entries;
use super::table::{BatchView, State, StateMut, Table};
use crate::{Keyspace, Reads, Result, SeqNo, ViewMut};

/// A table with any number of values for each key, in order and without duplicates. Each pair is a key of the
/// keyspace: the fields of the key, then the value. So values are [`TypedKey`]s, too, of a few bytes.
///
/// ```
/// # #[cfg(feature = "typed")]
/// # fn main() -> esker::Result<()> {
/// # let db = esker::Db::in_memory()?;
/// use esker::typed::Multimap;
///
/// let tags: Multimap<String, u64> = Multimap::new(db.keyspace("tags")?);
/// tags.insert("rust", &7)?;
/// tags.insert("rust", &3)?;
/// tags.insert("sql", &3)?;
/// assert_eq!(tags.get("rust")?.collect::<esker::Result<Vec<_>>>()?, [3, 7]);
///
/// let snapshot = db.snapshot();
/// let mut batch = db.batch();
/// tags.on(&mut batch).delete("rust", &3)?;
/// tags.on(&mut batch).insert("sql", &9)?;
/// batch.commit()?;
/// assert!(!tags.contains("rust", &3)? && tags.at(&snapshot).contains("rust", &3)?);
/// assert_eq!((tags.len()?, tags.get("sql")?.rev().count()), (3, 2));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "typed"))]
/// # fn main() {}
/// ```
pub struct Multimap<K, V, S = Keyspace> {
    pairs: Table<Pair<K, V>, (), Plain, S>,
}

/// A key and one of its values.
pub(super) struct Pair<K, V>(K, V);

impl<K: ToKey, V: ToKey> ToKey for Pair<K, V> {
    fn encode(&self, out: &mut Encoder) {
        out.tuple(|out| self.encode_fields(out));
    }

    fn encode_fields(&self, out: &mut Encoder) {
        self.0.encode_fields(out);
        self.1.encode(out);
    }
}

impl<K: TypedKey, V: TypedKey> TypedKey for Pair<K, V> {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        from.tuple(Self::decode_fields)
    }

    fn decode_fields(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        Ok(Pair(K::decode_fields(from)?, V::decode(from)?))
    }
}

impl<K, V, Q: KeyOf<K>, W: KeyOf<V>> KeyOf<Pair<K, V>> for Pair<Q, W> {}

impl<K, V, S: Clone> Clone for Multimap<K, V, S> {
    fn clone(&self) -> Self {
        Multimap { pairs: self.pairs.clone() }
    }
}

impl<K: TypedKey, V: TypedKey> Multimap<K, V> {
    /// Creates a typed view of a keyspace. The types are not stored: use the types that wrote it.
    pub fn new(keyspace: Keyspace) -> Self {
        Multimap { pairs: Table::new(keyspace) }
    }

    /// The underlying keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        self.pairs.keyspace()
    }

    /// The table in a snapshot or in a transaction, for reading: see [`Table::at`].
    pub fn at<'a, T: State>(&'a self, state: &'a T) -> Multimap<K, V, T::View<'a>> {
        Multimap { pairs: self.pairs.at(state) }
    }

    /// The table in a transaction or in a batch, for writing: see [`Table::on`].
    pub fn on<'a, T: StateMut>(&'a self, state: &'a mut T) -> Multimap<K, V, T::View<'a>> {
        Multimap { pairs: self.pairs.on(state) }
    }
}

impl<K: TypedKey, V: TypedKey, S: Reads> Multimap<K, V, S> {
    /// Returns the values of a key, from either end.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a key that cannot be stored.
    pub fn get<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Values<K, V>> {
        prefix_of(key).map(|range| Values(Pairs(self.pairs.between(range))))
    }

    /// Returns whether a key has this value.
    ///
    /// # Errors
    /// Those of [`Reads::contains`].
    pub fn contains<Q: KeyOf<K> + ?Sized, W: KeyOf<V> + ?Sized>(&self, key: &Q, value: &W) -> Result<bool> {
        self.pairs.contains(&Pair(key, value))
    }

    /// Returns the pairs of a range of keys, from either end.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a key that cannot be stored.
    pub fn range(&self, range: impl KeyRange<K>) -> Result<Pairs<K, V>> {
        range.to_bytes().map(|range| Pairs(self.pairs.between(range)))
    }

    /// Returns the pairs whose keys begin with these fields, as a tuple, from either end.
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn prefix<Q: PrefixOf<K> + ?Sized>(&self, fields: &Q) -> Result<Pairs<K, V>> {
        prefix_of(fields).map(|range| Pairs(self.pairs.between(range)))
    }

    /// Returns all pairs, from either end.
    pub fn iter(&self) -> Pairs<K, V> {
        Pairs(self.pairs.iter())
    }

    /// Returns the number of pairs: see [`Reads::len`].
    ///
    /// # Errors
    /// Those of [`Reads::len`].
    pub fn len(&self) -> Result<u64> {
        self.pairs.len()
    }

    /// Returns whether there are no pairs.
    ///
    /// # Errors
    /// Those of [`Reads::is_empty`].
    pub fn is_empty(&self) -> Result<bool> {
        self.pairs.is_empty()
    }
}

/// Implements writes. `$out`: what they return.
macro_rules! write_methods {
    ($handle:ty, ($($ref:tt)*) $self:ident, $out:ty) => {
        impl<K: TypedKey, V: TypedKey> Multimap<K, V, $handle> {
            /// Adds a value to a key, unless the key has it.
            ///
            /// # Errors
            /// Those of [`Keyspace::put`].
            pub fn insert<Q: KeyOf<K> + ?Sized, W: KeyOf<V> + ?Sized>(
                $($ref)* $self,
                key: &Q,
                value: &W,
            ) -> Result<$out> {
                $self.pairs.put(&Pair(key, value), &())
            }

            /// Removes a value of a key, if the key has it.
            ///
            /// # Errors
            /// Those of [`Keyspace::delete`].
            pub fn delete<Q: KeyOf<K> + ?Sized, W: KeyOf<V> + ?Sized>(
                $($ref)* $self,
                key: &Q,
                value: &W,
            ) -> Result<$out> {
                $self.pairs.delete(&Pair(key, value))
            }

            /// Removes all values of a key.
            ///
            /// # Errors
            /// Those of [`Keyspace::delete_range`].
            pub fn delete_all<Q: KeyOf<K> + ?Sized>($($ref)* $self, key: &Q) -> Result<$out> {
                $self.pairs.delete_between(prefix_of(key)?)
            }

            /// Removes all values of all keys of a range.
            ///
            /// # Errors
            /// Those of [`Keyspace::delete_range`].
            pub fn delete_range($($ref)* $self, range: impl KeyRange<K>) -> Result<$out> {
                $self.pairs.delete_between(range.to_bytes()?)
            }

            /// Removes all pairs.
            ///
            /// # Errors
            /// Those of [`Keyspace::clear`].
            pub fn clear($($ref)* $self) -> Result<$out> {
                $self.pairs.clear()
            }
        }
    };
}

write_methods!(Keyspace, (&) self, SeqNo);
write_methods!(ViewMut<'_>, (&mut) self, ());
write_methods!(BatchView<'_>, (&mut) self, ());

/// An iterator over the pairs of a [`Multimap`] in order, from either end.
pub struct Pairs<K, V>(pub(super) Entries<Pair<K, V>, (), Plain>);

/// Decodes the entry of a pair.
#[cfg(feature = "tokio")]
pub(super) fn pair<K: TypedKey, V: TypedKey>(found: (crate::Key, crate::Value)) -> Result<(K, V)> {
    let (Pair(key, value), ()) = super::reads::entry::<Pair<K, V>, (), Plain>(found)?;
    Ok((key, value))
}

impl<K: TypedKey, V: TypedKey> Iterator for Pairs<K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|pair| pair.map(|(Pair(key, value), ())| (key, value)))
    }
}

impl<K: TypedKey, V: TypedKey> DoubleEndedIterator for Pairs<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|pair| pair.map(|(Pair(key, value), ())| (key, value)))
    }
}

/// An iterator over the values of a key in order, from either end: made by [`Multimap::get`].
pub struct Values<K, V>(pub(super) Pairs<K, V>);

impl<K: TypedKey, V: TypedKey> Iterator for Values<K, V> {
    type Item = Result<V>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|pair| pair.map(|(_, value)| value))
    }
}

impl<K: TypedKey, V: TypedKey> DoubleEndedIterator for Values<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|pair| pair.map(|(_, value)| value))
    }
}
