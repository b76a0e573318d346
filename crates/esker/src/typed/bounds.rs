//! Ranges of typed keys as ranges of bytes.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use esker_tuple::{KeyError, PrefixOf, ToKey, encode, prefix_range};

use crate::{Error, Result};

/// Bounds of stored keys: the lower one included, the upper one excluded, if there are any.
pub type ByteRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A range of keys of type `K`: `..`, or a range of keys or of their leading fields. A bound of leading
/// fields stands for all keys that begin with them: `(7,)..=(8,)` contains all keys `(7, _)` and `(8, _)`.
///
/// Both ends of a Rust range have the same number of fields. A pair of ranges is what both contain, so
/// `((7, "b").., ..=(7,))` contains the keys `(7, _)` from `(7, "b")` on. The second one has an upper end
/// only.
pub trait KeyRange<K> {
    /// The bounds of the stored keys.
    #[doc(hidden)]
    fn to_bytes(&self) -> Result<ByteRange>;
}

impl<K> KeyRange<K> for RangeFull {
    fn to_bytes(&self) -> Result<ByteRange> {
        Ok((Bound::Unbounded, Bound::Unbounded))
    }
}

macro_rules! ranges {
    ($($range:ident),*) => {
        $(impl<K, Q: PrefixOf<K>> KeyRange<K> for $range<Q> {
            fn to_bytes(&self) -> Result<ByteRange> {
                between(self.start_bound(), self.end_bound())
            }
        })*
    };
}

ranges!(Range, RangeFrom, RangeInclusive, RangeTo, RangeToInclusive);

impl<K, Q: PrefixOf<K>> KeyRange<K> for (Bound<Q>, Bound<Q>) {
    fn to_bytes(&self) -> Result<ByteRange> {
        between(self.0.as_ref(), self.1.as_ref())
    }
}

macro_rules! narrowed {
    ($($upper:ident),*) => {
        $(impl<K, R: KeyRange<K>, Q: PrefixOf<K>> KeyRange<K> for (R, $upper<Q>) {
            fn to_bytes(&self) -> Result<ByteRange> {
                let ((lower, upper), (_, other)) = (self.0.to_bytes()?, self.1.to_bytes()?);
                let upper = match (upper, other) {
                    (Bound::Excluded(a), Bound::Excluded(b)) => Bound::Excluded(a.min(b)),
                    (Bound::Unbounded, bound) | (bound, _) => bound,
                };
                Ok((lower, upper))
            }
        })*
    };
}

narrowed!(RangeTo, RangeToInclusive);

fn between<Q: ToKey>(lower: Bound<&Q>, upper: Bound<&Q>) -> Result<ByteRange> {
    let behind = |key: &Q| prefix_range(key).map(|(_, end)| end);
    let lower = match lower {
        Bound::Included(key) => Bound::Included(encoded(key)?),
        Bound::Excluded(key) => Bound::Included(behind(key).map_err(unfit)?),
        Bound::Unbounded => Bound::Unbounded,
    };
    let upper = match upper {
        Bound::Included(key) => Bound::Excluded(behind(key).map_err(unfit)?),
        Bound::Excluded(key) => Bound::Excluded(encoded(key)?),
        Bound::Unbounded => Bound::Unbounded,
    };
    Ok((lower, upper))
}

/// The range of the keys that begin with these fields.
pub(super) fn prefix_of<Q: ToKey + ?Sized>(fields: &Q) -> Result<ByteRange> {
    let (start, end) = prefix_range(fields).map_err(unfit)?;
    Ok((Bound::Included(start), Bound::Excluded(end)))
}

/// The stored form of a key.
pub(super) fn encoded<Q: ToKey + ?Sized>(key: &Q) -> Result<Vec<u8>> {
    encode(key).map_err(unfit)
}

fn unfit(error: KeyError) -> Error {
    Error::Invalid(format!("the key cannot be stored: {error}"))
}
