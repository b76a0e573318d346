//! The bounds of a walk.

use std::ops::Bound;

/// Bounds of a range of encoded keys.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The first key, or the key before the first.
    pub lower: Bound<Vec<u8>>,
    /// The last key, or the key after the last.
    pub upper: Bound<Vec<u8>>,
}

impl Bounds {
    /// Whether a key is not before the lower bound.
    #[inline]
    pub fn above_lower(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => lower.as_slice() <= key,
            Bound::Excluded(lower) => lower.as_slice() < key,
            Bound::Unbounded => true,
        }
    }

    /// Whether a key is not after the upper bound.
    #[inline]
    pub fn below_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        }
    }
}
