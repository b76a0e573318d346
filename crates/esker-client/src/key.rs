//! Encodes several fields as one key whose bytes sort in the order of the fields.
//!
//! Fields are integers, floats, strings, bytes, `Option`s, tuples, and structs and enums that derive
//! [`Encode`] and [`Decode`] (of the crate `storekey`). The encoding of the first fields is a prefix of the
//! key, so all keys of a user, for example, share a prefix. The engine's typed tables use the same encoding.
//!
//! ```
//! use esker_client::key;
//!
//! # fn main() -> esker_client::Result<()> {
//! let visit = key::encode(&("ann", 7_u64))?;
//! assert!(visit < key::encode(&("ann", 1000_u64))? && visit < key::encode(&("bob", 1_u64))?);
//! assert!(visit.starts_with(&key::encode(&"ann")?));
//! let (user, second): (String, u64) = key::decode(&visit)?;
//! assert_eq!((user.as_str(), second), ("ann", 7));
//! # Ok(())
//! # }
//! ```

pub use storekey::{Decode, Encode};

use crate::{Bytes, Error, Result};

/// Encodes fields as a key.
///
/// # Errors
/// [`Error::Key`] if a field cannot be encoded.
pub fn encode(fields: &(impl Encode + ?Sized)) -> Result<Bytes> {
    storekey::encode_vec(fields).map_err(|error| Error::Key(error.to_string()))
}

/// Decodes the fields of a key.
///
/// # Errors
/// [`Error::Key`] if the key contains other fields.
pub fn decode<T: Decode>(key: &[u8]) -> Result<T> {
    storekey::decode(key).map_err(|error| Error::Key(error.to_string()))
}

/// Splits the key of an entry in a keyspace of rows into table, key and column, for programs that read it
/// with [`es`](crate::es) or with the engine.
///
/// # Errors
/// [`Error::Key`] if it is not such a key.
pub fn decode_stored(stored: &[u8]) -> Result<(Bytes, Bytes, Bytes)> {
    decode(stored)
}
