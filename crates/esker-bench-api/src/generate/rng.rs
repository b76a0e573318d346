//! A seeded sequence of random numbers: splitmix64, which every language writes in three lines.

use super::word;

/// The sequence of a seed.
#[derive(Clone, Debug)]
pub struct Rng {
    seed: u64,
    counter: u64,
}

impl Rng {
    /// The sequence of `seed`, from its first number.
    pub fn new(seed: u64) -> Self {
        Self { seed, counter: 0 }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let next = word(self.seed, self.counter);
        self.counter = self.counter.wrapping_add(1);
        next
    }

    /// A number below `n`: the high half of the product with 64 random bits.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a number below nothing");
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A fraction in `0.0..1.0`: the upper 53 bits.
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}
