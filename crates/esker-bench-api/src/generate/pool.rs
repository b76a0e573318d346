//! Values without a cost: slices of one pool of random bytes. For suites with large values, where filling
//! each value would be a part of the measured time.
//!
//! ```text
//! pool                -> fill(seed), 8 MiB
//! value i of n bytes  -> pool[at .. at + n], at = word(seed, POOL_WORDS + i) mod (8 MiB - n + 1)
//! ```

use super::{fill, word};

/// Size of the pool.
pub const POOL_BYTES: usize = 8 << 20;

const POOL_WORDS: u64 = POOL_BYTES as u64 / 8;

/// A pool of random bytes.
#[derive(Debug)]
pub struct Pool {
    seed: u64,
    bytes: Vec<u8>,
}

impl Pool {
    /// The pool of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut bytes = vec![0; POOL_BYTES];
        fill(seed, &mut bytes);
        Self { seed, bytes }
    }

    /// Value `i`: `len` bytes, at most [`POOL_BYTES`].
    pub fn value(&self, i: u64, len: usize) -> &[u8] {
        let at = word(self.seed, POOL_WORDS.wrapping_add(i)) % (POOL_BYTES - len + 1) as u64;
        &self.bytes[at as usize..][..len]
    }
}
