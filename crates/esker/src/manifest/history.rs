//! The manifest's records of history: which commits were visible at which times, and from which commit on a
//! keyspace's history is complete.
//!
//! ```text
//!   flush      --(time, visible commit)--> Marks --newest before now - duration--> what compactions keep
//!   compaction --commit below which versions were dropped--> Floors --> older reads are refused
//! ```
//!
//! - A mark states that its commit was visible at its time. Times and commits ascend, even if the clock goes
//!   back.
//! - There are at most [`MARKS_MAX`]. When there are more, the one whose removal leaves the smallest gap
//!   relative to its age is removed. So the distance of marks grows with their age.
//! - A mark for the same commit as the last one with an earlier time sets the clock back: no commit
//!   counts as made after that time.
//! - A floor only rises.

use std::collections::BTreeMap;

use super::field::{Field, Item, Rows, list};
use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::types::{KeyspaceId, SeqNo};

/// Maximum number of marks.
const MARKS_MAX: usize = 512;

/// Pairs of a time in Unix milliseconds and a commit that was visible then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(Vec<(u64, SeqNo)>);

impl Marks {
    /// One mark.
    pub fn one(ms: u64, seq: SeqNo) -> Self {
        Marks(vec![(ms, seq)])
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All marks in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, SeqNo)> {
        self.0.iter().copied()
    }

    /// The time of the newest mark; 0 if there is none.
    pub fn newest_ms(&self) -> u64 {
        self.0.last().map_or(0, |mark| mark.0)
    }

    /// Adds newer marks.
    pub fn extend(&mut self, others: &Marks) {
        for &(ms, seq) in &others.0 {
            match self.0.last() {
                Some(last) if last.1 == seq => self.0.iter_mut().for_each(|mark| mark.0 = mark.0.min(ms)),
                Some(last) if last.1 > seq => {}
                _ => self.0.push((ms.max(self.newest_ms()), seq)),
            }
        }
        while self.0.len() > MARKS_MAX {
            self.0.remove(self.least_needed());
        }
    }

    /// The mark whose removal leaves the smallest gap relative to its age. Never the first or the
    /// last.
    fn least_needed(&self) -> usize {
        let newest = self.newest_ms();
        let part = |around: &[(u64, SeqNo)]| {
            let [before, after] = [around[0].0, around[2].0];
            (after - before) as f64 / (newest - before + 1) as f64
        };
        let parts = self.0.windows(3).map(part).enumerate();
        parts.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at + 1)
    }

    /// The newest commit known to have been visible at this time.
    pub fn newest_by(&self, ms: u64) -> Option<SeqNo> {
        let after = self.0.partition_point(|mark| mark.0 <= ms);
        Some(self.0[after.checked_sub(1)?].1)
    }
}

list!(Marks, |marks| marks.iter(), |mark: (u64, SeqNo)| marks.extend(&Marks::one(mark.0, mark.1)));

/// For each keyspace, the commit from which on its history is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Floors(BTreeMap<KeyspaceId, SeqNo>);

impl Floors {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All floors.
    pub fn iter(&self) -> impl Iterator<Item = (KeyspaceId, SeqNo)> {
        self.0.iter().map(|(id, seq)| (*id, *seq))
    }

    /// The floor of a keyspace; zero if it has none.
    pub fn of(&self, id: KeyspaceId) -> SeqNo {
        self.0.get(&id).copied().unwrap_or(SeqNo::ZERO)
    }

    /// Raises a floor: versions that a reader below this commit needs were dropped (floors.1).
    #[inline]
    pub fn raise(&mut self, id: KeyspaceId, to: SeqNo) {
        let floor = self.0.entry(id).or_insert(SeqNo::ZERO);
        *floor = to.max(*floor);
    }

    /// Raises floors to those of another set.
    pub fn extend(&mut self, others: &Floors) {
        others.iter().for_each(|(id, to)| self.raise(id, to));
    }

    /// Removes the floors of other keyspaces.
    pub fn retain(&mut self, keep: impl Fn(KeyspaceId) -> bool) {
        self.0.retain(|id, _| keep(*id));
    }
}

list!(Floors, |floors| floors.iter(), |floor: (KeyspaceId, SeqNo)| floors.raise(floor.0, floor.1));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_commit_by_a_time_and_clocks_that_go_back() {
        let seq = SeqNo::new;
        let mut marks = Marks::default();
        for (ms, n) in [(10, 5), (20, 7), (5, 9), (30, 9), (40, 12)] {
            marks.extend(&Marks::one(ms, seq(n)));
        }
        let by = |ms| marks.newest_by(ms).map(SeqNo::get);
        assert_eq!([9, 10, 19, 20, 39, 99].map(by), [None, Some(5), Some(5), Some(9), Some(9), Some(12)]);
        let mut bytes = Vec::new();
        Field::encode(&marks, 24, &mut bytes);
        let mut again = Marks::default();
        Field::decode(&mut again, 24, &mut ByteReader::new(&bytes[1..])).unwrap();
        assert_eq!(again, marks);
    }

    #[test]
    fn marks_are_few_and_their_distance_grows_with_their_age() {
        let mut marks = Marks::default();
        for n in 1..=50_000 {
            marks.extend(&Marks::one(n, SeqNo::new(n)));
            assert!(marks.0.len() <= MARKS_MAX);
        }
        for age in [1, 10, 100, 1000, 10_000, 40_000] {
            let found = marks.newest_by(50_000 - age).unwrap().get();
            let late = 50_000 - age - found;
            assert!(late <= age / 10, "{late} of {age}");
        }
    }

    #[test]
    fn floors_1_floors_only_rise() {
        let (a, b, seq) = (KeyspaceId::new(1), KeyspaceId::new(2), SeqNo::new);
        let mut floors = Floors::default();
        [(a, 5), (b, 3), (a, 4), (b, 9)].into_iter().for_each(|(id, to)| floors.raise(id, seq(to)));
        assert_eq!((floors.of(a), floors.of(b), floors.of(KeyspaceId::new(3))), (seq(5), seq(9), seq(0)));
        let mut bytes = Vec::new();
        Field::encode(&floors, 24, &mut bytes);
        let mut again = Floors::default();
        Field::decode(&mut again, 24, &mut ByteReader::new(&bytes[1..])).unwrap();
        assert_eq!(again, floors);
        again.retain(|id| id == b);
        assert_eq!((again.of(a), again.of(b)), (SeqNo::ZERO, seq(9)));
    }
}
