//! What a commit touched: decides which transactions conflict.

use std::ops::Bound;

use super::keys::{KeyBounds, positions};
use super::state::Id;
use crate::op::{NAMES, Write};

/// Names of keyspaces are keys of this one.
const OF_NAMES: Id = Id(u32::MAX);

/// Ranges of positions, half open, none of them empty.
#[derive(Clone, Debug, Default)]
pub struct Footprint(Vec<(Id, u32, u32)>);

impl Footprint {
    /// Of these writes.
    pub fn of(writes: &[(Id, Write)]) -> Self {
        let mut footprint = Footprint::default();
        writes.iter().for_each(|(id, write)| footprint.add(*id, write));
        footprint
    }

    /// Adds what a write touches.
    pub fn add(&mut self, id: Id, write: &Write) {
        let touched = match write {
            Write::Put(key, _)
            | Write::PutFor(key, ..)
            | Write::PutUntil(key, ..)
            | Write::Merge(key, _)
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

    /// Adds a name of a keyspace, asked for or changed.
    pub fn add_name(&mut self, name: &str) {
        if let Some(at) = NAMES.iter().position(|known| *known == name) {
            self.0.push((OF_NAMES, at as u32, at as u32 + 1));
        }
    }

    /// Adds the keys between bounds, read or written.
    pub fn add_range(&mut self, id: Id, bounds: KeyBounds) {
        let (start, end) = positions(bounds);
        if start < end {
            self.0.push((id, start, end));
        }
    }

    /// Whether nothing is touched.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether two commits touch the same key.
    pub fn conflicts(&self, other: &Footprint) -> bool {
        let overlaps = |a: &(Id, u32, u32), b: &(Id, u32, u32)| a.0 == b.0 && a.1 < b.2 && b.1 < a.2;
        self.0.iter().any(|a| other.0.iter().any(|b| overlaps(a, b)))
    }
}
