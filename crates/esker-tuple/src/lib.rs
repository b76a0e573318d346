//! Keys of several fields whose bytes sort in the order of the fields: the tuple encoding of FoundationDB.
//!
//! ```text
//!   a value --ToKey--> Encoder --> bytes of a key --> Decoder --Key--> an equal value
//! ```
//!
//! Fields are integers, floats, booleans, text, bytes, `Option`s, lists, tuples of those, and structs and
//! enums that derive `TypedKey`. The encoding of the first fields begins the key, so all keys of a user, for
//! example, share a prefix. Every language that has a FoundationDB client can read such keys.
//!
//! ```
//! # fn main() -> Result<(), esker_tuple::KeyError> {
//! let visit = esker_tuple::encode(&("ann", 7))?;
//! assert!(visit < esker_tuple::encode(&("ann", 1000))? && visit < esker_tuple::encode(&("bob", 1))?);
//! assert!(visit.starts_with(&esker_tuple::encode("ann")?));
//! let (user, second): (String, u64) = esker_tuple::decode(&visit)?;
//! assert_eq!((user.as_str(), second), ("ann", 7));
//! # Ok(())
//! # }
//! ```
//!
//! Order: for all keys `a` and `b` of one type, `a < b` if and only if the bytes of `a` sort before those of
//! `b`. Floats have the order of [`f64::total_cmp`].
//!
//! Bytes: docs/formats/tuple.md

mod containers;
mod decoder;
mod element;
mod encoder;
mod error;
mod escaped;
mod key;
mod scalars;
mod tuples;

pub use containers::{Descending, Uuid};
pub use decoder::Decoder;
pub use element::{Element, Elements};
pub use encoder::Encoder;
pub use error::KeyError;
pub use escaped::{append_bytes, bytes_of, split_bytes};
pub use key::{KeyOf, PrefixOf, ToKey, TypedKey};

/// Maximum depth of tuples within tuples.
pub const DEPTH_MAX: u32 = 64;

/// Encodes a key. A tuple or struct becomes its fields, one after the other.
///
/// # Errors
/// [`KeyError::TooDeep`] if tuples are nested more than [`DEPTH_MAX`] deep.
pub fn encode<Q: ToKey + ?Sized>(key: &Q) -> Result<Vec<u8>, KeyError> {
    let mut out = Encoder::new();
    key.encode_fields(&mut out);
    out.finish()
}

/// Decodes a key.
///
/// # Errors
/// What is wrong with the bytes, or that they hold other fields.
pub fn decode<K: TypedKey>(bytes: &[u8]) -> Result<K, KeyError> {
    let mut from = Decoder::new(bytes);
    let key = K::decode_fields(&mut from)?;
    from.finish()?;
    Ok(key)
}

/// The range of the keys that begin with these fields: its first key, and the first key behind it.
///
/// ```
/// # fn main() -> Result<(), esker_tuple::KeyError> {
/// let (start, end) = esker_tuple::prefix_range(&("ann",))?;
/// let is_in = |key: Vec<u8>| start <= key && key < end;
/// assert!(is_in(esker_tuple::encode(&("ann", 7))?) && !is_in(esker_tuple::encode(&("ann\0", 7))?));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of [`encode`].
pub fn prefix_range<Q: ToKey + ?Sized>(fields: &Q) -> Result<(Vec<u8>, Vec<u8>), KeyError> {
    let start = encode(fields)?;
    let end = [&start[..], &[encoder::ESCAPE]].concat();
    Ok((start, end))
}

/// The fuzz target: any bytes are fields that are encoded to the same bytes, or an error.
#[doc(hidden)]
pub fn check_any(bytes: &[u8]) {
    if let Ok(elements) = decode::<Elements>(bytes) {
        assert_eq!(encode(&elements).as_deref(), Ok(bytes), "{elements}");
        if let Some((field, rest)) = split_bytes(bytes) {
            assert_eq!([field, rest].concat(), bytes);
            assert_eq!(elements.0.first(), Some(&Element::Bytes(bytes_of(field).into_owned())));
        }
    }
    type Recursive = Option<Vec<Option<(Descending<Option<String>>, [i8; 2], Box<u64>)>>>;
    if let Ok(key) = decode::<Recursive>(bytes) {
        assert_eq!(encode(&key).as_deref(), Ok(bytes));
    }
}

#[cfg(test)]
mod tests;
