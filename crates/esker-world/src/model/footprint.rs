//! The keys that a commit touches, which decide conflicts.

use std::ops::Bound;

use super::keys::{KeyBounds, positions};
use super::state::Id;
use crate::op::{NAMES, Write};

/// Names of keyspaces count as keys of this keyspace.
const OF_NAMES: Id = Id(u32::MAX);

/// Non-empty, half-open ranges of positions.
#[derive(Clone, Debug, Default)]
pub struct Footprint(Vec<(Id, u32, u32)>);

impl Footprint {
    /// Returns the footprint of writes.
    pub fn of(writes: &[(Id, Write)]) -> Self {
        let mut footprint = Footprint::default();
        writes.iter().for_each(|(id, write)| footprint.add(*id, write));
        footprint
    }

    /// Adds the keys of a write.
    pub fn add(&mut self, id: Id, write: &Write) {
        let touched = match write {
            Write::Put(key, _)
            | Write::PutFor(key, ..)
            | Write::PutUntil(key, ..)
            | Write::Merge(key, _)
            | Write::MergeFor(key, ..)
            | Write::MergeAt(key, ..)
            | Write::Remove(key) => (Bound::Included(*key), Bound::Included(*key)),
            Write::RemoveRange(range) => *range,
            Write::Clear => (Bound::Unbounded, Bound::Unbounded),
        };
        let (start, end) = positions(touched);
        if start < end {
            self.0.push((id, start, end));
        }
    }

    /// Adds a keyspace name that is read or changed.
    pub fn add_name(&mut self, name: &str) {
        if let Some(at) = NAMES.iter().position(|known| *known == name) {
            self.0.push((OF_NAMES, at as u32, at as u32 + 1));
        }
    }

    /// Adds a range that is read or written.
    pub fn add_range(&mut self, id: Id, bounds: KeyBounds) {
        let (start, end) = positions(bounds);
        if start < end {
            self.0.push((id, start, end));
        }
    }

    /// Returns whether the footprint is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether two footprints overlap.
    pub fn conflicts(&self, other: &Footprint) -> bool {
        let overlaps = |a: &(Id, u32, u32), b: &(Id, u32, u32)| a.0 == b.0 && a.1 < b.2 && b.1 < a.2;
        self.0.iter().any(|a| other.0.iter().any(|b| overlaps(a, b)))
    }
}
