//! The bytes of every workload: the same for every engine, run, machine and language, computed from a seed
//! and a number.
//!
//! ```text
//! word(seed, c) = mix64(seed + GOLDEN * (c + 1))        c-th output of splitmix64 started at seed
//! fill(seed)    = word(seed, 0), word(seed, 1), ...     8 bytes each, little-endian, the last one cut
//! ```
//!
//! Every part can be computed by itself, so reads need no list of keys in memory, and threads need no shards.
//!
//! The stream of a seed never changes, because results of different days are compared, and programs in other
//! languages use the same streams. Golden tests pin every generator.

pub mod accounts;
pub mod badger;
pub mod checksum;
pub mod distribution;
pub mod entries;
pub mod int;
pub mod items;
pub mod keyspaces;
pub mod obigstore;
pub mod order;
pub mod pool;
pub mod rng;
pub mod shapes;
pub mod storage;
#[cfg(test)]
mod tests;
pub mod ycsb;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finisher of splitmix64: a bijection that mixes every bit into every other.
pub fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The inverse of [`mix64`].
pub fn unmix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(0x3196_42B2_D24D_8EC3);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96DE_1B17_3F11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

/// Word number `counter` of the stream of `seed`.
pub fn word(seed: u64, counter: u64) -> u64 {
    mix64(seed.wrapping_add(GOLDEN.wrapping_mul(counter.wrapping_add(1))))
}

/// Fills `bytes` with the stream of `seed`: nothing in it can be compressed.
pub fn fill(seed: u64, bytes: &mut [u8]) {
    fill_from(seed, 0, bytes);
}

/// Fills `bytes` with the stream of `seed` from word `first` on.
pub fn fill_from(seed: u64, first: u64, bytes: &mut [u8]) {
    for (counter, chunk) in (first..).zip(bytes.chunks_mut(8)) {
        chunk.copy_from_slice(&word(seed, counter).to_le_bytes()[..chunk.len()]);
    }
}

/// Fills the first half of `bytes` with the stream of `seed` and repeats it in the second: LZ4, Snappy and
/// zstd halve it.
pub fn fill_half_redundant(seed: u64, bytes: &mut [u8]) {
    let (first, second) = bytes.split_at_mut(bytes.len().div_ceil(2));
    fill(seed, first);
    second.copy_from_slice(&first[..second.len()]);
}
