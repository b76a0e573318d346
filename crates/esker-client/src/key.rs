//! Encodes several fields as one key whose bytes sort in the order of the fields.
//!
//! Fields are integers, floats, booleans, strings, bytes, `Option`s, lists, tuples, and structs and enums
//! that derive [`TypedKey`](trait@TypedKey). The encoding of the first fields is a prefix of the key, so all
//! keys of a user, for example, share a prefix. It is that of FoundationDB's tuples, which other languages
//! can read (docs/formats/tuple.md).
//!
//! ```
//! use esker_client::key::{self, TypedKey};
//!
//! #[derive(TypedKey, Debug, PartialEq)]
//! struct Visit {
//!     user: String,
//!     second: u64,
//! }
//!
//! # fn main() -> esker_client::Result<()> {
//! let visit = key::encode(&("ann", 7))?;
//! assert!(visit < key::encode(&("ann", 1000))? && visit < key::encode(&("bob", 1))?);
//! assert!(visit.starts_with(&key::encode("ann")?));
//! assert_eq!(key::decode::<Visit>(&visit)?, Visit { user: "ann".to_owned(), second: 7 });
//! # Ok(())
//! # }
//! ```

pub use esker_derive::ClientKey as TypedKey;
pub use esker_tuple::{
    Decoder, Descending, Element, Elements, Encoder, KeyError, KeyOf, PrefixOf, ToKey, TypedKey, Uuid,
};

use crate::{Bytes, Result};

/// Encodes fields as a key.
///
/// # Errors
/// [`Error::Key`](crate::Error::Key) if tuples are nested too deep.
pub fn encode(fields: &(impl ToKey + ?Sized)) -> Result<Bytes> {
    Ok(esker_tuple::encode(fields)?)
}

/// Decodes the fields of a key.
///
/// # Errors
/// [`Error::Key`](crate::Error::Key) if the key contains other fields.
pub fn decode<K: TypedKey>(key: &[u8]) -> Result<K> {
    Ok(esker_tuple::decode(key)?)
}

/// The range of the keys that begin with these fields: its first key, and the first key behind it. Unlike
/// the prefix that [`encode`] returns, it excludes text and bytes that go on with a zero byte.
///
/// # Errors
/// Those of [`encode`].
pub fn range(fields: &(impl ToKey + ?Sized)) -> Result<(Bytes, Bytes)> {
    Ok(esker_tuple::prefix_range(fields)?)
}

/// Splits the key of an entry in a keyspace of rows into table, key and column, for programs that read it
/// with [`es`](crate::es) or with the engine.
///
/// # Errors
/// [`Error::Key`](crate::Error::Key) if it is not such a key.
pub fn decode_stored(stored: &[u8]) -> Result<(Bytes, Bytes, Bytes)> {
    decode(stored)
}
