//! The items of suite `int`: u32 keys in random order, u64 values; both big-endian, so that bytes sort as
//! numbers do.

use super::word;

/// The stream of a seed.
#[derive(Clone, Copy, Debug)]
pub struct Ints {
    seed: u64,
}

impl Ints {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The key of item `i`: a bijection of `u32` (MurmurHash3's finisher), so no key comes twice.
    pub fn key(self, i: u32) -> [u8; 4] {
        let mut z = i ^ word(self.seed, 0) as u32;
        z = (z ^ (z >> 16)).wrapping_mul(0x85EB_CA6B);
        z = (z ^ (z >> 13)).wrapping_mul(0xC2B2_AE35);
        (z ^ (z >> 16)).to_be_bytes()
    }

    /// The value of item `i`.
    pub fn value(self, i: u32) -> [u8; 8] {
        word(self.seed, u64::from(i) + 1).to_be_bytes()
    }
}
