//! The pairs of suite `obigstore`: 16-byte keys, values whose second half repeats the first.
//!
//! The value of a key never changes: its seed is a checksum of the key. So any read can be verified without a
//! record of what was written.
//!
//! Hotspots, as in `bm_makedata -hotspot P:N` of the source: 2^N remembered keys. With probability P a write
//! goes to a random hotspot, half of the time to the key after its last one, half of the time to a random key
//! that it has. Otherwise a new random key replaces the hotspot.

use super::checksum::checksum;
use super::rng::Rng;
use super::{fill_half_redundant, mix64};

/// A key.
pub type Key = [u8; 16];

/// Fills `bytes` with the value of `key`.
pub fn value(key: &[u8], bytes: &mut [u8]) {
    fill_half_redundant(checksum(key, &[]), bytes);
}

/// Sequential key `i`: 16 decimal digits.
pub fn sequential_key(i: u64) -> Key {
    let mut key = [0; 16];
    super::ycsb::decimal(i, &mut key);
    key
}

/// Returns random key `i` of the stream of `seed`. All keys differ.
pub fn random_key(seed: u64, i: u64) -> Key {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix64(seed.wrapping_add(i)).to_be_bytes());
    key[8..].copy_from_slice(&mix64(seed ^ i.rotate_left(32)).to_be_bytes());
    key
}

/// The hotspot generator.
#[derive(Debug)]
pub struct Hotspots {
    rng: Rng,
    stay: f64,
    /// First key and number of keys of each hotspot.
    spots: Vec<(u128, u64)>,
}

impl Hotspots {
    /// Returns `2^spots_log2` hotspots. `stay` is P.
    pub fn new(seed: u64, stay: f64, spots_log2: u32) -> Self {
        let mut rng = Rng::new(seed);
        let spots = (0..1_u64 << spots_log2).map(|_| (random_u128(&mut rng), 0)).collect();
        Self { rng, stay, spots }
    }

    /// Returns the next key to write, and whether it is new.
    pub fn next_key(&mut self) -> (Key, bool) {
        let spot = self.rng.below(self.spots.len() as u64) as usize;
        if self.rng.fraction() >= self.stay {
            self.spots[spot] = (random_u128(&mut self.rng), 0);
        }
        let (first, keys) = self.spots[spot];
        if keys > 0 && self.rng.next_u64() & 1 == 1 {
            let overwritten = first.wrapping_add(u128::from(self.rng.below(keys)));
            return (overwritten.to_be_bytes(), false);
        }
        self.spots[spot].1 = keys + 1;
        (first.wrapping_add(u128::from(keys)).to_be_bytes(), true)
    }
}

fn random_u128(rng: &mut Rng) -> u128 {
    u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())
}
