//! The bounds of a walk.

use std::ops::Bound;

use super::Value;
use super::key::prefix_len;

/// An encoded key. Short ones are copied without an allocation, long ones are shared.
pub type BoundKey = Value;

/// Bounds of a range of encoded keys.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The first key, or the key before the first.
    pub lower: Bound<BoundKey>,
    /// The last key, or the key after the last.
    pub upper: Bound<BoundKey>,
}

impl Bounds {
    /// Returns whether they include the start of the keyspace.
    #[inline]
    pub fn begin_keyspace(&self) -> bool {
        matches!(&self.lower, Bound::Included(key) if prefix_len(key) == key.len())
    }

    /// Returns whether `key` is not before the lower bound.
    #[inline]
    pub fn above_lower(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => lower[..] <= *key,
            Bound::Excluded(lower) => lower[..] < *key,
            Bound::Unbounded => true,
        }
    }

    /// Returns whether `key` is not after the upper bound.
    #[inline]
    pub fn below_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => *key <= upper[..],
            Bound::Excluded(upper) => *key < upper[..],
            Bound::Unbounded => true,
        }
    }
}
