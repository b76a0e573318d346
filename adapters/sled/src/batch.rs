//! `Batch`: writes to a tree that are applied together.

use std::collections::HashMap;

use crate::IVec;

/// Writes to one tree that are applied together: see [`Tree::apply_batch`](crate::Tree::apply_batch).
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) writes: HashMap<IVec, Option<IVec>>,
}

impl Batch {
    /// Sets a key.
    pub fn insert<K: Into<IVec>, V: Into<IVec>>(&mut self, key: K, value: V) {
        self.writes.insert(key.into(), Some(value.into()));
    }

    /// Removes a key.
    pub fn remove<K: Into<IVec>>(&mut self, key: K) {
        self.writes.insert(key.into(), None);
    }
}
