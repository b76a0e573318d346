//! Cursors of `SCAN` and its kin: numbers for clients, keys for us.
//!
//! cursors.1. The number of a cursor follows from its key: who repeats a step gets the same number.
//! cursors.2. Of old cursors the oldest are forgotten. A walk with a forgotten one begins anew, and shows some keys twice.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

/// So many cursors are kept.
const KEPT_MAX: usize = 100_000;

#[derive(Default)]
struct Table {
    keys: HashMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
}

/// The cursors that clients hold.
#[derive(Default)]
pub struct Cursors {
    table: Mutex<Table>,
    hashing: RandomState,
}

impl Cursors {
    /// The number of the walk that goes on behind a key.
    pub fn number(&self, key: &[u8]) -> u64 {
        // 0 is the beginning, and clients may hold numbers of 63 bits.
        let mut number = (self.hashing.hash_one(key) >> 2).max(1);
        let mut table = self.table.lock();
        while table.keys.get(&number).is_some_and(|other| other != key) {
            number = (number + 1) >> 1 | 1 << 60;
        }
        if table.keys.insert(number, key.to_vec()).is_none() {
            table.order.push_back(number);
            if table.order.len() > KEPT_MAX {
                let oldest = table.order.pop_front();
                oldest.and_then(|oldest| table.keys.remove(&oldest));
            }
        }
        number
    }

    /// The key that a walk goes on behind; none if it begins.
    pub fn key(&self, number: u64) -> Option<Vec<u8>> {
        if number == 0 {
            return None;
        }
        self.table.lock().keys.get(&number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_1_cursors_2_numbers_stand_for_keys() {
        let cursors = Cursors::default();
        let number = cursors.number(b"a");
        assert_eq!((cursors.number(b"a"), cursors.key(number)), (number, Some(b"a".to_vec())));
        assert_eq!((cursors.key(0), cursors.key(number ^ 1)), (None, None));
        for n in 0..KEPT_MAX as u32 {
            cursors.number(&n.to_be_bytes());
        }
        assert_eq!(cursors.key(number), None);
        assert_eq!(cursors.table.lock().keys.len(), KEPT_MAX);
    }
}
