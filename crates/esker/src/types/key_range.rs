//! An interval of encoded keys: the keys of a table, or of a compaction.

use std::cmp::Ordering;

/// The end of an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The interval includes this key.
    Included(Vec<u8>),
    /// The interval ends before this key.
    Excluded(Vec<u8>),
}

impl End {
    /// The key of the end.
    pub fn key(&self) -> &[u8] {
        match self {
            End::Included(k) | End::Excluded(k) => k,
        }
    }

    /// Returns the first key beyond the end.
    pub fn following(&self) -> Vec<u8> {
        match self {
            End::Included(last) => [last, &[0][..]].concat(),
            End::Excluded(end) => end.clone(),
        }
    }

    /// Returns whether `key` is not beyond the end.
    pub fn admits(&self, key: &[u8]) -> bool {
        match self {
            End::Included(end) => key <= end.as_slice(),
            End::Excluded(end) => key < end.as_slice(),
        }
    }
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> Ordering {
        let included = |e: &End| matches!(e, End::Included(_));
        self.key().cmp(other.key()).then(included(self).cmp(&included(other)))
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All keys from `start` (included) to `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that may be in it.
    pub start: Vec<u8>,
    /// The end.
    pub end: End,
}

impl KeyRange {
    /// Returns the range of one key.
    pub fn point(key: &[u8]) -> Self {
        KeyRange { start: key.to_vec(), end: End::Included(key.to_vec()) }
    }

    /// Returns whether it is the range of one key.
    pub fn is_point(&self) -> bool {
        matches!(&self.end, End::Included(last) if *last == self.start)
    }

    /// Returns whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && self.end.admits(key)
    }

    /// Returns whether all keys of `other` are in the range.
    pub fn includes(&self, other: &KeyRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Returns whether the ranges share a key.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        self.end.admits(&other.start) && other.end.admits(&self.start)
    }

    /// Extends the range to cover `other` as well.
    pub fn extend(&mut self, other: &KeyRange) {
        if other.start < self.start {
            self.start.clone_from(&other.start);
        }
        if other.end > self.end {
            self.end = other.end.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: End) -> KeyRange {
        KeyRange { start: start.into(), end }
    }

    #[test]
    fn overlap_honours_the_kind_of_end() {
        let open = range("a", End::Excluded("c".into()));
        let closed = range("a", End::Included("c".into()));
        let next = range("c", End::Included("d".into()));
        assert!(!open.overlaps(&next) && !next.overlaps(&open));
        assert!(closed.overlaps(&next) && next.overlaps(&closed));
        assert!(
            open.contains(b"bzz")
                && !open.contains(b"c")
                && closed.contains(b"c")
                && !closed.contains(b"c\0")
        );
        assert!(open.end < closed.end);
        assert!(closed.includes(&open) && !open.includes(&closed) && !open.includes(&next));
        let mut all = open.clone();
        all.extend(&next);
        assert_eq!(all, range("a", End::Included("d".into())));
    }
}
