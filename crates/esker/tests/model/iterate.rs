//! An iterator that is held while the database goes on: it shows the state of the moment it was made.

use std::collections::VecDeque;

use esker::Range;

use super::state::{Bounds, Map, slice};

/// An iterator and what it must still give.
pub struct HeldIterator {
    db: Range,
    rest: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl HeldIterator {
    /// `db` was just made, of the range `bounds` of `map`.
    pub fn new(db: Range, map: &Map, bounds: &Bounds) -> Self {
        HeldIterator {
            db,
            rest: slice(map, bounds).into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect(),
        }
    }

    /// Takes one entry from the front or the back.
    pub fn take(&mut self, back: bool) {
        let (found, expected) = match back {
            false => (self.db.next(), self.rest.pop_front()),
            true => (self.db.next_back(), self.rest.pop_back()),
        };
        let found = found.map(|entry| entry.expect("an entry of a held iterator"));
        let found = found.map(|(k, v)| (k.to_vec(), v.to_vec()));
        assert!(found == expected, "W1: held iterator, back {back}: {found:?}, expected {expected:?}");
    }
}
