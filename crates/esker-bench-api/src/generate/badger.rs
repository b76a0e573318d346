//! The items of suite `badger`: keys `vsz=VVVVV-k=KKKKKKKKKK`, random values.
//!
//! The value of a key is the same whenever it is written, so a read of a key that was drawn twice can be
//! verified.

use super::pool::Pool;
use super::rng::Rng;
use super::ycsb::decimal;

/// Bytes in a key.
pub const KEY_BYTES: usize = 22;

/// The stream of a seed for one size of value and one range of keys.
#[derive(Debug)]
pub struct BadgerItems {
    seed: u64,
    value_bytes: usize,
    pool: Pool,
}

impl BadgerItems {
    /// The stream of `seed` with values of `value_bytes`.
    pub fn new(seed: u64, value_bytes: usize) -> Self {
        Self { seed, value_bytes, pool: Pool::new(seed) }
    }

    /// The numbers k to write, in order; each is to be taken below the key range.
    pub fn draws(&self) -> Rng {
        Rng::new(self.seed ^ 0xBAD6_E400)
    }

    /// The key of number `k`.
    pub fn key(&self, k: u64) -> [u8; KEY_BYTES] {
        let mut key = *b"vsz=00000-k=0000000000";
        decimal(self.value_bytes as u64, &mut key[4..9]);
        decimal(k, &mut key[12..]);
        key
    }

    /// The value of number `k`.
    pub fn value(&self, k: u64) -> &[u8] {
        self.pool.value(k, self.value_bytes)
    }
}
