//! The last op of each key of a write set, found by hash.
//!
//! write_set_index.1. Of each of the first `len` ops it knows the op of the same key before it. So going back takes time for the ops that
//!      are forgotten, however many stay.

use hashbrown::HashTable;

use crate::encoding::hash::key_hash;

/// No op.
const NONE: u32 = u32::MAX;

/// See the module's text. Keys are asked for by the number of their op.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// The last op of each key.
    last: HashTable<u32>,
    /// Of each op the one of the same key before it.
    before: Vec<u32>,
}

impl Index {
    /// The number of ops that it knows, from the first on.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.before.len()
    }

    /// Takes in the ops up to this number.
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

    /// Forgets the ops from this number on, whose keys can still be asked for.
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

    /// The last op of a key.
    pub(super) fn last<'a>(&self, key: &[u8], key_at: impl Fn(u32) -> &'a [u8]) -> Option<usize> {
        self.last.find(key_hash(key), |&i| key_at(i) == key).map(|&i| i as usize)
    }

    /// The op of the same key before this one.
    pub(super) fn before(&self, at: usize) -> Option<usize> {
        self.before.get(at).filter(|before| **before != NONE).map(|before| *before as usize)
    }

    /// Forgets all ops, and keeps the memory for others.
    pub(super) fn clear(&mut self) {
        self.last.clear();
        self.before.clear();
    }
}
