//! Finds the last op of each key of a write set by hash.
//!
//! The index knows the previous op of the same key for each of its ops, so rolling back costs time only for
//! the ops undone.

use hashbrown::HashTable;

use crate::encoding::hash::key_hash;

/// No op.
const NONE: u32 = u32::MAX;

/// A hash index of the ops of a write set. Keys are passed in by op number.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// The last op of each key.
    last: HashTable<u32>,
    /// For each op, the previous op of the same key.
    before: Vec<u32>,
}

impl Index {
    /// Number of ops indexed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.before.len()
    }

    /// Indexes the ops up to number `ops`.
    pub(super) fn grow<'a>(&mut self, ops: usize, key_at: impl Fn(u32) -> &'a [u8]) {
        for at in self.before.len() as u32..ops as u32 {
            let key = key_at(at);
            let hash = key_hash(key);
            let earlier = match self.last.find_mut(hash, |&i| key_at(i) == key) {
                Some(slot) => std::mem::replace(slot, at),
                None => {
                    self.last.insert_unique(hash, at, |&i| key_hash(key_at(i)));
                    NONE
                }
            };
            self.before.push(earlier);
        }
    }

    /// Removes the ops from number `ops` on. Their keys must still be available.
    pub(super) fn go_back<'a>(&mut self, ops: usize, key_at: impl Fn(u32) -> &'a [u8]) {
        while self.before.len() > ops {
            let earlier = self.before.pop().unwrap_or(NONE);
            let at = self.before.len() as u32;
            let Ok(mut slot) = self.last.find_entry(key_hash(key_at(at)), |&i| i == at) else { continue };
            match earlier {
                NONE => drop(slot.remove()),
                earlier => *slot.get_mut() = earlier,
            }
        }
    }

    /// Returns the last op of a key.
    pub(super) fn last<'a>(&self, key: &[u8], key_at: impl Fn(u32) -> &'a [u8]) -> Option<usize> {
        self.last.find(key_hash(key), |&i| key_at(i) == key).map(|&i| i as usize)
    }

    /// Returns the previous op of the same key.
    pub(super) fn before(&self, at: usize) -> Option<usize> {
        self.before.get(at).filter(|before| **before != NONE).map(|before| *before as usize)
    }

    /// Removes all ops and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.last.clear();
        self.before.clear();
    }
}
