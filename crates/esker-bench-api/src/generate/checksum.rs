//! Checksums of answers, to compare them with the generators.

use super::GOLDEN;

/// The checksum covers parts of the whole value if it is longer than this.
const SMALL_BYTES: usize = 1024;
const CACHE_LINE_BYTES: usize = 64;

/// Returns a cheap checksum of a value: of its length and its first and last eight bytes. If the value is
/// longer than 1,024 bytes, also of eight of every 64 bytes. Values are random, so a wrong value changes it.
/// For a small value, reading 16 bytes touches all of it, as the source's benchmark does. For a large value,
/// an engine that lends from its mapped file would otherwise read one page where others read all.
pub fn probe(value: &[u8]) -> u64 {
    let ends = match (value.first_chunk::<8>(), value.last_chunk::<8>()) {
        (Some(first), Some(last)) => u64::from_le_bytes(*first)
            .wrapping_add(u64::from_le_bytes(*last).rotate_left(23))
            .wrapping_add(value.len() as u64),
        _ => value.iter().fold(value.len() as u64, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte)),
    };
    let lines = if value.len() > SMALL_BYTES { value } else { &[] };
    lines.chunks_exact(CACHE_LINE_BYTES).fold(ends, |sum, line| {
        line.first_chunk::<8>().map_or(sum, |word| sum.rotate_left(7) ^ u64::from_le_bytes(*word))
    })
}

/// Returns a checksum of all bytes of an item, for the untimed full checks.
pub fn checksum(key: &[u8], value: &[u8]) -> u64 {
    let add = |sum: u64, word: u64| (sum ^ word).wrapping_mul(GOLDEN).rotate_left(29);
    [key, value].into_iter().fold(key.len() as u64, |sum, bytes| {
        // Whole words first: copying a slice of any length for each word would take most of the time.
        let (words, rest) = bytes.as_chunks::<8>();
        let sum = words.iter().fold(sum, |sum, word| add(sum, u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        if rest.is_empty() { sum } else { add(sum, u64::from_le_bytes(last)) }
    })
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

    #[test]
    fn a_large_value_is_touched_all_over() {
        let value: Vec<u8> = (0..20_000_u32).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
        for (len, is_touched) in [(SMALL_BYTES, false), (SMALL_BYTES + 1, true), (value.len(), true)] {
            for at in (CACHE_LINE_BYTES..len - CACHE_LINE_BYTES).step_by(CACHE_LINE_BYTES) {
                let mut flipped = value[..len].to_vec();
                flipped[at] ^= 1;
                assert_eq!(probe(&flipped) != probe(&value[..len]), is_touched, "byte {at} of {len}");
            }
        }
    }
}
