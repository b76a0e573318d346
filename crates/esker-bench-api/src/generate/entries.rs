//! The entries of suite `time`: 16-byte keys, 100-byte values of which half repeats. Nine of ten expire.
//!
//! ```text
//! key of entry i     obigstore::random_key(seed, i)
//! value              obigstore::value of the key
//! time of expiry     never for i = 0, 10, 20, ...
//!                    else hold + spread * word(seed, i) / 2^64, in ms after the first put
//! ```

use super::obigstore::{self, Key, random_key};
use super::word;

/// Bytes of a value.
pub const VALUE_BYTES: usize = 100;
/// One entry in this many never expires.
pub const ENTRIES_PER_LASTING: u64 = 10;

/// The entries of a seed.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    seed: u64,
    hold_ms: u64,
    spread_ms: u64,
}

impl Entries {
    /// Returns entries that expire from `hold_ms` on, evenly over `spread_ms`. Both are milliseconds, counted
    /// from the first put.
    pub fn new(seed: u64, hold_ms: u64, spread_ms: u64) -> Self {
        Self { seed, hold_ms, spread_ms }
    }

    /// Returns the key of entry `i`.
    pub fn key(self, i: u64) -> Key {
        random_key(self.seed, i)
    }

    /// Returns the value of entry `i`.
    pub fn value(self, i: u64) -> [u8; VALUE_BYTES] {
        let mut value = [0; VALUE_BYTES];
        obigstore::value(&self.key(i), &mut value);
        value
    }

    /// Returns when entry `i` expires, in milliseconds from the first put, or `None` if never.
    pub fn expires_ms(self, i: u64) -> Option<u64> {
        let share = ((u128::from(self.spread_ms) * u128::from(word(self.seed, i))) >> 64) as u64;
        (!i.is_multiple_of(ENTRIES_PER_LASTING)).then_some(self.hold_ms + share)
    }

    /// Returns how many of the first `count` entries never expire.
    pub fn lasting(count: u64) -> u64 {
        count.div_ceil(ENTRIES_PER_LASTING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_of_ten_expire_evenly_over_the_spread() {
        let entries = Entries::new(3, 1000, 500);
        let moments: Vec<_> = (0..10_001).filter_map(|i| entries.expires_ms(i)).collect();
        assert_eq!(moments.len() as u64, 10_001 - Entries::lasting(10_001));
        assert!(moments.iter().all(|ms| (1000..1500).contains(ms)));
        let early = moments.iter().filter(|ms| **ms < 1250).count();
        assert!((4300..4700).contains(&early), "{early}");
    }
}
