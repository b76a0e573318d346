//! Which range tombstones hide a key: the sets of all sources, searched without merging them.
//!
//! ```text
//!   active memtable     [a-------)      [m----)
//!   sealed memtable         [c------)
//!   run                [a)[b)    [f)[g)             tables side by side: one layer
//!   known stretch               <-->                between two edges the answer is the same
//! ```
//!
//! cover.1. The answer is that of one set with the tombstones of all layers.
//!
//! A walk asks for neighbours: the stretch around the last answer is kept, so that most questions cost two comparisons.

use crate::types::SeqNo;
use crate::types::range_tombstone::{RangeTombstone, RangeTombstones, SharedKey};

/// Sets of range tombstones, each of one or more sources.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// None is empty.
    sets: Vec<RangeTombstones>,
}

impl Layers {
    /// Adds a set. Shares its fragments.
    pub fn push(&mut self, set: &RangeTombstones) {
        if !set.is_empty() && !self.sets.last_mut().is_some_and(|last| last.append(set)) {
            self.sets.push(set.clone());
        }
    }

    /// Whether there are no tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The tombstones, one per fragment and sequence number.
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

/// What a reader at one sequence number finds covered.
pub struct Cover {
    layers: Layers,
    at: SeqNo,
    known: Option<Stretch>,
}

/// Keys with the same answer.
struct Stretch {
    start: Option<SharedKey>,
    end: Option<SharedKey>,
    newest: SeqNo,
}

impl Cover {
    /// For a reader at `at`.
    pub fn new(layers: Layers, at: SeqNo) -> Self {
        Cover { layers, at, known: None }
    }

    /// Whether nothing is covered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The newest tombstone over `key` that the reader sees; zero if none (cover.1).
    #[inline]
    pub fn newest(&mut self, key: &[u8]) -> SeqNo {
        match &self.known {
            Some(stretch) if stretch.holds(key) => stretch.newest,
            _ => self.look_up(key),
        }
    }

    fn look_up(&mut self, key: &[u8]) -> SeqNo {
        let (mut start, mut end, mut newest) = (None, None, SeqNo::ZERO);
        for set in &self.layers.sets {
            let place = set.place_of(key);
            newest = newest.max(place.fragment.map_or(SeqNo::ZERO, |f| f.newest_at(self.at)));
            // None is below every start, but above every end.
            start = start.max(place.start);
            end = [end, place.end].into_iter().flatten().min();
        }
        self.known = Some(Stretch { start: start.cloned(), end: end.cloned(), newest });
        newest
    }

    /// Where the stretch around `key` ends whose keys the reader finds covered by one tombstone or several of `cover` or
    /// newer; none if `key` is not.
    pub fn covered_to(&self, key: &[u8], cover: SeqNo) -> Option<&SharedKey> {
        self.layers.sets.iter().filter_map(|set| set.covered_to(key, self.at, cover)).max()
    }
}

impl Stretch {
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
