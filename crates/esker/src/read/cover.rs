//! Finds the range tombstones that cover a key, in the sets of all sources, without merging the sets.
//!
//! ```text
//!   active memtable     [a-------)      [m----)
//!   sealed memtable         [c------)
//!   run                [a)[b)    [f)[g)             tables of a run form one layer
//!   cached span                 <-->                the answer is the same between two edges
//! ```
//!
//! The answer is the same as for one set with the tombstones of all layers.
//!
//! Consecutive keys of an iterator are close together. The span around the last answer is cached, so most
//! queries cost two comparisons.

use crate::types::SeqNo;
use crate::types::range_tombstone::{RangeTombstone, RangeTombstones, SharedKey};

/// Sets of range tombstones, each of one or more sources.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// No set is empty.
    sets: Vec<RangeTombstones>,
}

impl Layers {
    /// Adds a set, sharing its fragments.
    pub fn push(&mut self, set: &RangeTombstones) {
        if !set.is_empty() && !self.sets.last_mut().is_some_and(|last| last.append(set)) {
            self.sets.push(set.clone());
        }
    }

    /// Returns whether there are no tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Iterates over the tombstones, one per fragment and sequence number.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.sets.iter().flat_map(RangeTombstones::iter)
    }
}

impl From<RangeTombstones> for Layers {
    fn from(set: RangeTombstones) -> Self {
        let mut layers = Layers::default();
        layers.push(&set);
        layers
    }
}

/// The range tombstones visible at one sequence number.
pub struct Cover {
    layers: Layers,
    at: SeqNo,
    known: Option<KnownSpan>,
}

/// A span of keys with the same answer.
struct KnownSpan {
    start: Option<SharedKey>,
    end: Option<SharedKey>,
    newest: SeqNo,
}

impl Cover {
    /// Creates a cover for a reader at `at`.
    pub fn new(layers: Layers, at: SeqNo) -> Self {
        Cover { layers, at, known: None }
    }

    /// Returns whether there are no tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Returns the newest visible tombstone over `key`; zero if there is none.
    #[inline]
    pub fn newest(&mut self, key: &[u8]) -> SeqNo {
        match &self.known {
            Some(span) if span.holds(key) => span.newest,
            _ => self.look_up(key),
        }
    }

    fn look_up(&mut self, key: &[u8]) -> SeqNo {
        let (mut start, mut end, mut newest) = (None, None, SeqNo::ZERO);
        for set in &self.layers.sets {
            let place = set.position_of(key);
            newest = newest.max(place.fragment.map_or(SeqNo::ZERO, |f| f.newest_at(self.at)));
            // `None` is less than every start but greater than every end.
            start = start.max(place.start);
            end = [end, place.end].into_iter().flatten().min();
        }
        self.known = Some(KnownSpan { start: start.cloned(), end: end.cloned(), newest });
        newest
    }

    /// Returns the end of the span around `key` in which every key is covered by a visible tombstone of
    /// sequence number `cover` or newer. `None` if `key` is not covered so.
    pub fn covered_to(&self, key: &[u8], cover: SeqNo) -> Option<&SharedKey> {
        self.layers.sets.iter().filter_map(|set| set.covered_to(key, self.at, cover)).max()
    }
}

impl KnownSpan {
    #[inline]
    fn holds(&self, key: &[u8]) -> bool {
        self.start.as_ref().is_none_or(|start| &**start <= key)
            && self.end.as_ref().is_none_or(|end| key < &**end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cover_1_layers_answer_like_one_set() {
        let mut rng = fastrand::Rng::with_seed(5);
        let (mut covered, mut layers_seen) = (0, 0);
        for round in 0..2000 {
            let mut tombstone = || RangeTombstone {
                start: vec![rng.u8(0..30)],
                end: vec![rng.u8(0..30)],
                seq: SeqNo::new(rng.u64(1..20)),
            };
            let sets: Vec<Vec<_>> = (0..4).map(|n| (0..n).map(|_| tombstone()).collect()).collect();
            let mut layers = Layers::default();
            sets.iter().for_each(|set| layers.push(&RangeTombstones::new(set.clone())));
            layers_seen += layers.sets.len();
            let one = RangeTombstones::new(sets.concat());
            let at = SeqNo::new(rng.u64(0..21));
            let mut cover = Cover::new(layers, at);
            let mut key = 0;
            for step in 0..100 {
                key = match rng.u8(0..4) {
                    0 => rng.u8(0..31),
                    1 => key.saturating_sub(1),
                    _ => (key + 1).min(30),
                };
                let newest = one.cover(&[key], at);
                assert_eq!(cover.newest(&[key]), newest, "round {round} step {step} key {key}");
                if newest == SeqNo::ZERO {
                    continue;
                }
                covered += 1;
                let end = cover.covered_to(&[key], newest).expect("it is covered").to_vec();
                assert!(end.as_slice() > &[key][..]);
                for inside in (key..31).filter(|k| &[*k][..] < end.as_slice()) {
                    assert!(one.cover(&[inside], at) >= newest, "round {round} {key}..{inside} of {end:?}");
                }
            }
        }
        assert!(covered > 10_000 && layers_seen > 3000, "{covered} {layers_seen}");
    }
}
