//! A blocked Bloom filter: detects absent keys with one cache line access.
//!
//! ```text
//!   key_hash(key) --high bits--> one line of 512 bits
//!                 `-remixed----> a few bits in that line, all set by insert
//! ```
//!
//! bloom.1. No false negatives: `may_contain` returns true for every hash whose insertion happened before the
//!     probe.
//!
//! A probe touches one 64-byte line. A memtable fills its filter while readers probe it. A table builds its
//! filter when it is finished and stores it (bytes: docs/formats/sstable.md). The technique is that of Putze,
//! Sanders and Singler (2007); with 10 bits per key about 1 % of absent keys pass.

use super::bytes::{DecodeError, Decoded};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::types::canary::{self, Canary};

const LINE_BYTES: usize = 64;
const LINE_BITS: u64 = LINE_BYTES as u64 * 8;
/// Each probe takes 9 bits of a 64-bit hash.
const PROBES_MAX: u32 = 7;

#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; LINE_BYTES / 8]);

/// A blocked Bloom filter. Its hashes are those of [`key_hash`](super::hash::key_hash).
pub struct BlockedBloom {
    lines: Box<[Line]>,
    probes: u32,
}

impl BlockedBloom {
    /// Creates an empty filter sized for `keys` keys at `bits_per_key` (usually 10). Inserting more keys only
    /// raises the rate of false positives.
    pub fn new(keys: usize, bits_per_key: u32) -> Self {
        let bits = (keys as u64).saturating_mul(u64::from(bits_per_key));
        let lines = bits.div_ceil(LINE_BITS).max(1) as usize;
        // The optimum of a plain Bloom filter is 0.69 probes per bit; lines fill unevenly, which favours
        // fewer.
        let probes = (bits_per_key * 6 / 10).clamp(1, PROBES_MAX);
        BlockedBloom { lines: (0..lines).map(|_| Line::default()).collect(), probes }
    }

    /// Adds a hash. Only one thread may insert at a time: bits are set by a load and a store, because an
    /// atomic instruction per bit would triple the cost. Any number of threads may probe meanwhile. The
    /// inserter publishes its keys with a release store of its own; the filter adds no ordering.
    #[inline]
    pub fn insert(&self, hash: u64) {
        if canary::is_set(Canary::FilterForgets) && hash.is_multiple_of(16) {
            return;
        }
        let line = self.line(hash);
        for bit in probe_bits(hash, self.probes) {
            let word = &line.0[bit / 64];
            word.store(word.load(Ordering::Relaxed) | 1 << (bit % 64), Ordering::Relaxed);
        }
    }

    /// Returns false if the hash was not inserted.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let line = self.line(hash);
        // Without branches: a mispredicted branch costs more than the remaining probes of a loaded line.
        let missing = probe_bits(hash, self.probes)
            .fold(0, |missing, bit| missing | (!line.0[bit / 64].load(Ordering::Relaxed) >> (bit % 64) & 1));
        missing == 0
    }

    /// Returns the address of the line of a hash, for prefetching.
    #[inline]
    pub fn line_address(&self, hash: u64) -> *const u8 {
        std::ptr::from_ref(self.line(hash)).cast()
    }

    /// Bytes in memory. The stored form is one byte longer.
    pub fn size_bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }

    #[inline]
    fn line(&self, hash: u64) -> &Line {
        &self.lines[((u128::from(hash) * self.lines.len() as u128) >> 64) as usize]
    }

    /// Appends the stored form: the lines, then the number of probes in one byte.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.size_bytes() + 1);
        for word in self.lines.iter().flat_map(|line| &line.0) {
            out.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        out.push(self.probes as u8);
    }

    /// Decodes the stored form.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let Some((&probes, lines)) = bytes.split_last() else {
            return Err(DecodeError::new(0, "the filter is empty"));
        };
        if lines.is_empty() || lines.len() % LINE_BYTES != 0 {
            return Err(DecodeError::new(lines.len(), "expected whole 64-byte lines and one byte"));
        }
        if !(1..=PROBES_MAX).contains(&u32::from(probes)) {
            return Err(DecodeError::new(
                lines.len(),
                format!("{probes} probes, expected 1 to {PROBES_MAX}"),
            ));
        }
        let word = |b: &[u8]| AtomicU64::new(b.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)));
        let line = |b: &[u8]| Line(std::array::from_fn(|i| word(&b[i * 8..i * 8 + 8])));
        Ok(BlockedBloom {
            lines: lines.chunks_exact(LINE_BYTES).map(line).collect(),
            probes: u32::from(probes),
        })
    }
}

/// Returns the bit positions of a hash in its line. The high bits of the hash select the line. The
/// multiplication (by 2^64 divided by the golden ratio) makes all bits contribute to the positions.
#[inline]
fn probe_bits(hash: u64, probes: u32) -> impl Iterator<Item = usize> {
    let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..probes).map(move |i| (mixed >> (64 - 9 * (i + 1)) & (LINE_BITS - 1)) as usize)
}

impl std::fmt::Debug for BlockedBloom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockedBloom({} bytes, {} probes)", self.size_bytes(), self.probes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::key_hash;
    use super::*;

    fn filled(keys: u64, bits_per_key: u32) -> BlockedBloom {
        let filter = BlockedBloom::new(keys as usize, bits_per_key);
        (0..keys).for_each(|n| filter.insert(key_hash(&n.to_le_bytes())));
        filter
    }

    #[test]
    fn bloom_1_no_false_negatives() {
        let most = if cfg!(miri) { 300 } else { 30_000 };
        for keys in [1, 2, 50, 51, 52, 1000, 30_000].map(|keys| most.min(keys)) {
            for bits in [1, 6, 10, 20] {
                let filter = filled(keys, bits);
                assert!((0..keys).all(|n| filter.may_contain(key_hash(&n.to_le_bytes()))), "{keys} {bits}");
            }
        }
        assert!(!BlockedBloom::new(0, 10).may_contain(0));
    }

    #[test]
    fn about_one_in_hundred_absent_keys_passes() {
        let (sizes, probed) = if cfg!(miri) { ([500, 1000], 2_000) } else { ([10_000, 300_000], 200_000) };
        for keys in sizes {
            let filter = filled(keys, 10);
            let absent = keys..keys + probed;
            let passed = absent.filter(|n| filter.may_contain(key_hash(&n.to_le_bytes()))).count() as u64;
            assert!(passed < probed * 12 / 1000, "{passed} of {probed} passed at {keys} keys");
        }
    }

    #[test]
    fn the_stored_form_comes_back() {
        let filter = filled(500, 10);
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        assert_eq!(bytes.len(), filter.size_bytes() + 1);
        let again = BlockedBloom::decode(&bytes).unwrap();
        assert!((0..500u64).all(|n| again.may_contain(key_hash(&n.to_le_bytes()))));
        let mut second = Vec::new();
        again.encode(&mut second);
        assert_eq!(bytes, second);
        for bad in [&bytes[..0], &bytes[1..], &bytes[..bytes.len() - 1], &[0; 65], &[9; 65], &[6]] {
            assert!(BlockedBloom::decode(bad).is_err());
        }
    }
}
