//! `KeyBounds`: the argument of `range` and `delete_range`.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: `..`, `"a"..`, `"a".."c"`, `.."c"`, `"a"..="c"`, `..="c"`, a pair of [`Bound`]s, or a
/// reference to any of these. The ends are anything that gives bytes: `&str`, `String`, `&[u8]`, arrays,
/// `Vec<u8>`, [`Key`](crate::Key).
///
/// The standard `RangeBounds` does not serve: it needs a type for the ends, which `..` does not have.
pub trait KeyBounds {
    /// The lower bound.
    fn lower(&self) -> Bound<&[u8]>;
    /// The upper bound.
    fn upper(&self) -> Bound<&[u8]>;
}

impl KeyBounds for RangeFull {
    fn lower(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
    fn upper(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

impl<K: AsRef<[u8]>> KeyBounds for (Bound<K>, Bound<K>) {
    fn lower(&self) -> Bound<&[u8]> {
        self.0.as_ref().map(K::as_ref)
    }
    fn upper(&self) -> Bound<&[u8]> {
        self.1.as_ref().map(K::as_ref)
    }
}

impl<B: KeyBounds + ?Sized> KeyBounds for &B {
    fn lower(&self) -> Bound<&[u8]> {
        (**self).lower()
    }
    fn upper(&self) -> Bound<&[u8]> {
        (**self).upper()
    }
}

macro_rules! of_range {
    ($($range:ident),*) => {$(
        impl<K: AsRef<[u8]>> KeyBounds for $range<K> {
            fn lower(&self) -> Bound<&[u8]> {
                RangeBounds::start_bound(self).map(K::as_ref)
            }
            fn upper(&self) -> Bound<&[u8]> {
                RangeBounds::end_bound(self).map(K::as_ref)
            }
        }
    )*};
}

of_range!(Range, RangeFrom, RangeTo, RangeInclusive, RangeToInclusive);

#[cfg(test)]
mod tests {
    use std::ops::Bound::{Excluded, Included, Unbounded};

    use super::*;

    #[test]
    fn every_kind_of_range_has_its_bounds() {
        fn ends(range: impl KeyBounds) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
            (range.lower().map(<[u8]>::to_vec), range.upper().map(<[u8]>::to_vec))
        }
        let (a, c) = (b"a".to_vec(), b"c".to_vec());
        assert_eq!(ends(..), (Unbounded, Unbounded));
        assert_eq!(ends("a"..), (Included(a.clone()), Unbounded));
        assert_eq!(ends(..b"c"), (Unbounded, Excluded(c.clone())));
        assert_eq!(ends(&a..&c), (Included(a.clone()), Excluded(c.clone())));
        let owned = "a".to_owned()..="c".to_owned();
        assert_eq!(ends(&owned), (Included(a.clone()), Included(c.clone())));
        assert_eq!(ends(..=[b'c']), (Unbounded, Included(c.clone())));
        assert_eq!(ends((Excluded("a"), Unbounded)), (Excluded(a), Unbounded));
    }
}
