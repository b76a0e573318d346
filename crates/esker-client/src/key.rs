//! Keys of several fields, as bytes in the order of the fields.
//!
//! Fields are integers, floats, strings, bytes, `Option`s, tuples of those, and structs and enums that derive [`Encode`] and [`Decode`] (by the crate
//! `storekey`). The bytes of the first fields are what the bytes of all begin with: so the keys of one user are a prefix. They are the keys of the
//! engine's typed tables.
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

/// The bytes of a key of these fields.
///
/// # Errors
/// [`Error::Key`] if a field refuses to be encoded.
pub fn encode(fields: &(impl Encode + ?Sized)) -> Result<Bytes> {
    storekey::encode_vec(fields).map_err(|error| Error::Key(error.to_string()))
}

/// The fields of a key.
///
/// # Errors
/// [`Error::Key`] if the key has other fields.
pub fn decode<T: Decode>(key: &[u8]) -> Result<T> {
    storekey::decode(key).map_err(|error| Error::Key(error.to_string()))
}

/// The table, key and column that an entry of a keyspace of rows is of, for programs that read it by [`es`](crate::es) or with the engine.
///
/// # Errors
/// [`Error::Key`] if it is none.
pub fn decode_stored(stored: &[u8]) -> Result<(Bytes, Bytes, Bytes)> {
    decode(stored)
}
