//! The items of suite `storage-bench`: 8-byte keys, values that compress to a half.
//!
//!   key i           mix64(seed + i), big-endian: random and never twice;  sequential: i, big-endian
//!   value i, v      fill_half_redundant(word(word(seed, i), v)): v counts the overwrites of item i

use super::{fill_half_redundant, mix64, unmix64, word};

/// The stream of a seed.
#[derive(Clone, Copy, Debug)]
pub struct StorageItems {
    seed: u64,
    sequential: bool,
}

impl StorageItems {
    /// The stream of `seed`, with keys in random order or one after the other.
    pub fn new(seed: u64, sequential: bool) -> Self {
        Self { seed, sequential }
    }

    /// The key of item `i`.
    pub fn key(self, i: u64) -> [u8; 8] {
        if self.sequential { i.to_be_bytes() } else { mix64(self.seed.wrapping_add(i)).to_be_bytes() }
    }

    /// The number of the item with this key.
    pub fn item(self, key: &[u8; 8]) -> u64 {
        let number = u64::from_be_bytes(*key);
        if self.sequential { number } else { unmix64(number).wrapping_sub(self.seed) }
    }

    /// Fills `bytes` with version `version` of the value of item `i`.
    pub fn value(self, i: u64, version: u64, bytes: &mut [u8]) {
        fill_half_redundant(word(word(self.seed, i), version), bytes);
    }
}
