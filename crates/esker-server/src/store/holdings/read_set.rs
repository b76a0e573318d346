//! What a serializable transaction has read.
//!
//! held_reads.1. All that an answer depended on is in it: keys that were not there, and gaps between keys that were walked over.
//! held_reads.2. Its size is bounded. Beyond, what was read of a place becomes one stretch: that may find conflicts where there are none, and misses none.

use std::collections::BTreeMap;

use super::place::Place;
use crate::store::Order;
use crate::store::spans::{Spans, Stretch};

/// Stretches of a place are put together when there are so many, and become one if there are still more than half of it.
const STRETCHES_MAX: usize = 20_000;
/// The same by the bytes of their ends.
const BYTES_MAX: usize = 2 << 20;

/// What was read, by the names of places.
#[derive(Default)]
pub struct ReadSet(BTreeMap<String, (Place, OfPlace)>);

#[derive(Default)]
struct OfPlace {
    stretches: Vec<Stretch>,
    bytes: usize,
}

impl OfPlace {
    fn add(&mut self, stretch: Stretch) {
        match self.stretches.last_mut() {
            // Most walks go on where they stood.
            Some(last) if last.to.as_ref() == Some(&stretch.from) => last.to = stretch.to,
            Some(last) if *last == stretch => {}
            _ => {
                self.bytes += stretch.from.len() + stretch.to.as_ref().map_or(0, Vec::len);
                self.stretches.push(stretch);
            }
        }
        if self.stretches.len() > STRETCHES_MAX || self.bytes > BYTES_MAX {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        let spans = Spans::of(std::mem::take(&mut self.stretches));
        let bytes =
            |of: &[Stretch]| of.iter().map(|s| s.from.len() + s.to.as_ref().map_or(0, Vec::len)).sum();
        let mut stretches: Vec<Stretch> = spans.in_order(Order::Up).cloned().collect();
        self.bytes = bytes(&stretches);
        if stretches.len() > STRETCHES_MAX / 2 || self.bytes > BYTES_MAX / 2 {
            // held_reads.2
            let from = std::mem::take(&mut stretches[0].from);
            let to = stretches.pop().and_then(|last| last.to);
            stretches = vec![Stretch { from, to }];
            self.bytes = bytes(&stretches);
        }
        self.stretches = stretches;
    }
}

impl ReadSet {
    /// Notes what was read of a place.
    pub fn note(&mut self, place: &Place, stretch: Stretch) {
        self.0.entry(place.name()).or_insert_with(|| (place.clone(), OfPlace::default())).1.add(stretch);
    }

    /// What was read of each place.
    pub fn places(&self) -> impl Iterator<Item = (&Place, &[Stretch])> {
        self.0.values().map(|(place, of)| (place, of.stretches.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use esker::Db;

    use super::*;
    use crate::store::{LocalStore, Store};

    #[test]
    fn held_reads_1_held_reads_2_all_that_was_read_stays_in_it() {
        let store = LocalStore::new(Db::in_memory().unwrap(), 1 << 20);
        let place = Place::keyspace(store.space("s", false).unwrap());
        let mut set = ReadSet::default();
        set.note(&place, Stretch::range(b"a", b"c"));
        set.note(&place, Stretch::range(b"c", b"e"));
        let of = |set: &ReadSet| set.places().next().unwrap().1.to_vec();
        assert_eq!(of(&set), [Stretch::range(b"a", b"e")]);
        let keys = || (0..100_000_u32).map(|n| (n * 2).to_be_bytes());
        for key in keys() {
            set.note(&place, Stretch::point(&key));
        }
        assert!(of(&set).len() <= STRETCHES_MAX, "held_reads.2");
        let spans = Spans::of(of(&set));
        let is_in = |name: &[u8]| spans.place(name, Order::Up) == crate::store::spans::Place::Inside;
        assert!(keys().all(|key| is_in(&key)) && is_in(b"b"), "held_reads.1");
    }
}
