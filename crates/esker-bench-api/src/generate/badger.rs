//! The items of suite `badger`: keys `vsz=VVVVV-k=KKKKKKKKKK`, random values.
//!
//! The value of a key never changes, so reads of keys that were drawn twice can be verified.

use super::pool::Pool;
use super::rng::Rng;
use super::ycsb::decimal;

/// Size of a key in bytes.
pub const KEY_BYTES: usize = 22;

/// The stream of a seed for one size of value and one range of keys.
#[derive(Debug)]
pub struct BadgerItems {
    seed: u64,
    value_bytes: usize,
    pool: Pool,
}

impl BadgerItems {
    /// Returns the stream of `seed` with values of `value_bytes` bytes.
    pub fn new(seed: u64, value_bytes: usize) -> Self {
        Self { seed, value_bytes, pool: Pool::new(seed) }
    }

    /// Returns the sequence of numbers to write, each to be drawn below the key range.
    pub fn draws(&self) -> Rng {
        Rng::new(self.seed ^ 0xBAD6_E400)
    }

    /// Returns the key of number `k`.
    pub fn key(&self, k: u64) -> [u8; KEY_BYTES] {
        let mut key = *b"vsz=00000-k=0000000000";
        decimal(self.value_bytes as u64, &mut key[4..9]);
        decimal(k, &mut key[12..]);
        key
    }

    /// Returns the value of number `k`.
    pub fn value(&self, k: u64) -> &[u8] {
        self.pool.value(k, self.value_bytes)
    }
}
