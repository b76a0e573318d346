//! Typed tables: keys and values of Rust types in a keyspace, in the order of the key type. Feature `typed`.
//!
//! ```text
//!   Table<K, V> --key: storekey, order-preserving--> user keys of a keyspace
//!               `-value: a codec, postcard by default
//! ```
//!
//! Keys are integers, floats, strings, bytes, `Option`s, tuples of those, and structs and enums that derive
//! [`Encode`] and [`Decode`]. The derived code refers to the crate `storekey`, so a program that derives them
//! needs it in its `Cargo.toml`. Tuples are ordered by their first field, then by the next. [`Table::prefix`]
//! iterates over the keys with given leading fields. [`Descending`] reverses the order of a field.
//!
//! ```
//! # #[cfg(feature = "typed")]
//! # fn main() -> esker::Result<()> {
//! # let db = esker::Db::in_memory()?;
//! use esker::typed::{Descending, Table};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Visit {
//!     page: String,
//! }
//!
//! // By user, the newest visit first.
//! let visits: Table<(u32, Descending<u64>), Visit> = Table::new(db.keyspace("visits")?);
//! visits.put(&(7, Descending(100)), &Visit { page: "/".to_owned() })?;
//! visits.put(&(7, Descending(200)), &Visit { page: "/help".to_owned() })?;
//! for visit in visits.prefix(&7_u32)? {
//!     let ((user, Descending(second)), visit) = visit?;
//!     println!("{user} at {second}: {}", visit.page);
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "typed"))]
//! # fn main() {}
//! ```

use std::fmt;
use std::io::{self, BufRead, Read, Write};
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use serde::Serialize;
use serde::de::DeserializeOwned;
pub use storekey::{Decode, Encode};
use storekey::{DecodeError, EncodeError, Reader, Writer};

use crate::{Error, Key, Keyspace, Range, Reads, Result, SeqNo, Transaction, Value};

/// Encodes values as bytes.
pub trait Codec<V> {
    /// Encodes a value.
    ///
    /// # Errors
    /// A description of why the value cannot be encoded.
    fn encode(value: &V) -> Result<Vec<u8>, String>;
    /// Decodes a value.
    ///
    /// # Errors
    /// A description of why the bytes cannot be decoded.
    fn decode(bytes: &[u8]) -> Result<V, String>;
}

/// Encodes values with serde in the format of the crate `postcard`, which stores fields without names. A
/// value can only be read as the type that wrote it: a field that is added later cannot be read from old
/// values, not even with `#[serde(default)]`.
#[derive(Clone, Copy, Debug)]
pub struct Postcard;

impl<V: Serialize + DeserializeOwned> Codec<V> for Postcard {
    fn encode(value: &V) -> Result<Vec<u8>, String> {
        postcard::to_stdvec(value).map_err(|e| e.to_string())
    }
    fn decode(bytes: &[u8]) -> Result<V, String> {
        postcard::from_bytes(bytes).map_err(|e| e.to_string())
    }
}

/// A field with reversed order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Descending<T>(pub T);

impl<T: Ord> Ord for Descending<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.cmp(&self.0)
    }
}

impl<T: PartialOrd> PartialOrd for Descending<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        other.0.partial_cmp(&self.0)
    }
}

impl<T: Encode> Encode for Descending<T> {
    fn encode<W: Write>(&self, w: &mut Writer<W>) -> Result<(), EncodeError> {
        let bytes = storekey::encode_vec(&self.0).map_err(EncodeError::Custom)?;
        bytes.into_iter().try_for_each(|byte| w.write_u8(!byte))
    }
}

impl<T: Decode> Decode for Descending<T> {
    fn decode<R: BufRead>(r: &mut Reader<R>) -> Result<Self, DecodeError> {
        let turned = Turned { reader: r, byte: None };
        T::decode(&mut Reader::new(turned)).map(Descending)
    }
}

/// A reader that inverts all bits.
struct Turned<'a, R: BufRead> {
    reader: &'a mut Reader<R>,
    /// A byte that was read ahead.
    byte: Option<[u8; 1]>,
}

impl<R: BufRead> BufRead for Turned<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.byte.is_none() {
            self.byte = match self.reader.read_u8() {
                Ok(byte) => Some([!byte]),
                Err(DecodeError::UnexpectedEnd) => None,
                Err(error) => return Err(io::Error::other(error.to_string())),
            };
        }
        Ok(self.byte.as_ref().map_or(&[], |byte| &byte[..]))
    }
    fn consume(&mut self, bytes: usize) {
        if bytes > 0 {
            self.byte = None;
        }
    }
}

impl<R: BufRead> Read for Turned<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(first) = out.first_mut() else { return Ok(0) };
        match self.fill_buf()?.first() {
            Some(byte) => *first = *byte,
            None => return Ok(0),
        }
        self.consume(1);
        Ok(1)
    }
}

/// Type parameters of a table, which holds no values of them.
type Types<K, V, C> = PhantomData<fn() -> (K, V, C)>;

/// A typed view of a keyspace. Handles are cheap to clone.
pub struct Table<K, V, C = Postcard> {
    keyspace: Keyspace,
    types: Types<K, V, C>,
}

impl<K, V, C> Clone for Table<K, V, C> {
    fn clone(&self) -> Self {
        Table { keyspace: self.keyspace.clone(), types: PhantomData }
    }
}

impl<K, V, C> fmt::Debug for Table<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({:?})", self.keyspace.name())
    }
}

fn encoded(key: &(impl Encode + ?Sized)) -> Result<Vec<u8>> {
    storekey::encode_vec(key).map_err(|e| Error::Invalid(format!("the key cannot be stored: {e}")))
}

fn decoded<K: Decode, V, C: Codec<V>>(key: &[u8], value: &[u8]) -> Result<(K, V)> {
    let wrong = |what: &str, why: String| {
        Error::Invalid(format!("the {what} at \"{}\" is of another type: {why}", key.escape_ascii()))
    };
    let value = C::decode(value).map_err(|why| wrong("value", why))?;
    Ok((storekey::decode(key).map_err(|e| wrong("key", e.to_string()))?, value))
}

impl<K: Encode + Decode, V, C: Codec<V>> Table<K, V, C> {
    /// Creates a typed view of a keyspace. The types are not stored: use the types that wrote it.
    pub fn new(keyspace: Keyspace) -> Self {
        Table { keyspace, types: PhantomData }
    }

    /// The underlying keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    fn value_of(value: Option<Value>) -> Result<Option<V>> {
        let decode = |value: Value| {
            C::decode(&value).map_err(|e| Error::Invalid(format!("the value is of another type: {e}")))
        };
        value.map(decode).transpose()
    }

    fn bytes_of(value: &V) -> Result<Vec<u8>> {
        C::encode(value).map_err(|e| Error::Invalid(format!("the value cannot be stored: {e}")))
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`]; [`Error::Invalid`] if the codec cannot decode the value. A value of
    /// another type may be decoded without an error.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        self.get_from(&self.keyspace, key)
    }

    /// Returns the value of a key in a snapshot or a transaction, given by its
    /// [`keyspace`](crate::Transaction::keyspace).
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_from(&self, reads: &impl Reads, key: &K) -> Result<Option<V>> {
        Self::value_of(reads.get(encoded(key)?)?)
    }

    /// Returns whether a key exists.
    ///
    /// # Errors
    /// Those of [`Keyspace::contains`].
    pub fn contains(&self, key: &K) -> Result<bool> {
        self.keyspace.contains(encoded(key)?)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// Those of [`Keyspace::put`]; [`Error::Invalid`] if the codec cannot encode the value.
    pub fn put(&self, key: &K, value: &V) -> Result<SeqNo> {
        self.keyspace.put(encoded(key)?, Self::bytes_of(value)?)
    }

    /// Sets the value of a key in a transaction.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_in(&self, transaction: &mut Transaction, key: &K, value: &V) -> Result<()> {
        transaction.put(&self.keyspace, encoded(key)?, Self::bytes_of(value)?)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Those of [`Keyspace::delete`].
    pub fn remove(&self, key: &K) -> Result<SeqNo> {
        self.keyspace.delete(encoded(key)?)
    }

    /// Removes a key in a transaction.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    pub fn remove_in(&self, transaction: &mut Transaction, key: &K) -> Result<()> {
        transaction.delete(&self.keyspace, encoded(key)?)
    }

    /// Iterates over a range of entries, from either end.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key that cannot be stored.
    pub fn range(&self, range: impl RangeBounds<K>) -> Result<Entries<K, V, C>> {
        self.range_of(&self.keyspace, range)
    }

    /// Iterates over a range of entries in a snapshot or a transaction.
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn range_of(&self, reads: &impl Reads, range: impl RangeBounds<K>) -> Result<Entries<K, V, C>> {
        let bound = |bound: Bound<&K>| -> Result<Bound<Vec<u8>>> {
            Ok(match bound {
                Bound::Included(key) => Bound::Included(encoded(key)?),
                Bound::Excluded(key) => Bound::Excluded(encoded(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        let bounds = (bound(range.start_bound())?, bound(range.end_bound())?);
        Ok(Entries { range: reads.range(bounds), types: PhantomData })
    }

    /// Iterates over the entries whose keys start with these fields (the leading fields of a tuple or
    /// struct), from either end.
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn prefix(&self, fields: &(impl Encode + ?Sized)) -> Result<Entries<K, V, C>> {
        self.prefix_of(&self.keyspace, fields)
    }

    /// Iterates over the entries whose keys start with these fields, in a snapshot or a transaction.
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn prefix_of(&self, reads: &impl Reads, fields: &(impl Encode + ?Sized)) -> Result<Entries<K, V, C>> {
        Ok(Entries { range: reads.prefix(encoded(fields)?), types: PhantomData })
    }

    /// Returns the number of entries.
    ///
    /// # Errors
    /// Those of [`Keyspace::len`].
    pub fn len(&self) -> Result<u64> {
        self.keyspace.len()
    }

    /// Returns whether the table is empty.
    ///
    /// # Errors
    /// Those of [`Keyspace::len`].
    pub fn is_empty(&self) -> Result<bool> {
        self.keyspace.is_empty()
    }
}

/// An iterator over the entries of a [`Table`] in key order, from either end. It ends after an error, except
/// for an entry of another type.
pub struct Entries<K, V, C = Postcard> {
    range: Range,
    types: Types<K, V, C>,
}

impl<K: Decode, V, C: Codec<V>> Entries<K, V, C> {
    fn decoded(entry: Result<(Key, Value)>) -> Result<(K, V)> {
        let (key, value) = entry?;
        decoded::<K, V, C>(&key, &value)
    }
}

impl<K: Decode, V, C: Codec<V>> Iterator for Entries<K, V, C> {
    type Item = Result<(K, V)>;
    fn next(&mut self) -> Option<Self::Item> {
        self.range.next().map(Self::decoded)
    }
}

impl<K: Decode, V, C: Codec<V>> DoubleEndedIterator for Entries<K, V, C> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.next_back().map(Self::decoded)
    }
}
