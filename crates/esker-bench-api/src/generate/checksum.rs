//! Checksums of what an engine answered, against what the generator says.

use super::GOLDEN;

/// A cheap checksum of a value as read: its first and last eight bytes and its length. Values are random, so a wrong
/// value shows in it; reading 16 bytes touches the value, as the source's benchmark does, and costs every engine the same.
pub fn probe(value: &[u8]) -> u64 {
    match (value.first_chunk::<8>(), value.last_chunk::<8>()) {
        (Some(first), Some(last)) => u64::from_le_bytes(*first)
            .wrapping_add(u64::from_le_bytes(*last).rotate_left(23))
            .wrapping_add(value.len() as u64),
        _ => value.iter().fold(value.len() as u64, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte)),
    }
}

/// A checksum of all bytes of an item, for the untimed full checks.
pub fn checksum(key: &[u8], value: &[u8]) -> u64 {
    let mut sum = key.len() as u64;
    for chunk in key.chunks(8).chain(value.chunks(8)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(GOLDEN).rotate_left(29);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::items::{Items, VALUE_BYTES};

    #[test]
    fn a_flipped_byte_changes_the_checks() {
        let (key, value) = (Items::new(1).key(5), Items::new(1).value(5));
        for i in 0..VALUE_BYTES {
            let mut flipped = value;
            flipped[i] ^= 1;
            assert_ne!(checksum(&key, &flipped), checksum(&key, &value), "byte {i}");
            assert_eq!(probe(&flipped) != probe(&value), !(8..VALUE_BYTES - 8).contains(&i), "byte {i}");
        }
    }
}
