//! The records of suite `ycsb`: key `user` and 20 digits, value 10 fields of 100 random bytes, one after the
//! other.
//!
//!   key i     "user" + mix64(seed + i) in decimal, 20 digits, zeros in front
//!   value i, v   fill(word(word(seed, i), v)): v counts the updates of record i

use super::{fill, mix64, unmix64, word};

/// Bytes in a key.
pub const KEY_BYTES: usize = 24;
/// Bytes in a value.
pub const VALUE_BYTES: usize = 1000;

/// The stream of a seed.
#[derive(Clone, Copy, Debug)]
pub struct YcsbRecords {
    seed: u64,
}

impl YcsbRecords {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The key of record `i`.
    pub fn key(self, i: u64) -> [u8; KEY_BYTES] {
        let mut key = *b"user00000000000000000000";
        decimal(mix64(self.seed.wrapping_add(i)), &mut key[4..]);
        key
    }

    /// The number of the record with this key, if there can be one.
    pub fn item(self, key: &[u8]) -> Option<u64> {
        let digits = std::str::from_utf8(key.strip_prefix(b"user")?).ok()?;
        Some(unmix64(digits.parse().ok()?).wrapping_sub(self.seed))
    }

    /// Fills `bytes` with version `version` of record `i`.
    pub fn value(self, i: u64, version: u64, bytes: &mut [u8]) {
        fill(word(word(self.seed, i), version), bytes);
    }
}

/// Writes `number` in decimal, right-aligned, zeros in front; higher digits that do not fit are cut.
pub(super) fn decimal(mut number: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
