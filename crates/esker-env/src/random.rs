//! Random numbers: from the operating system, or from a seed.

use std::fmt::Debug;

use parking_lot::Mutex;

/// A source of random numbers. Not for secrets.
pub trait Random: Send + Sync + Debug + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// Random numbers with a random seed.
#[derive(Debug)]
pub struct SystemRandom(Mutex<fastrand::Rng>);

impl SystemRandom {
    /// Creates a generator with a random seed.
    pub fn new() -> Self {
        SystemRandom(Mutex::new(fastrand::Rng::new()))
    }
}

impl Default for SystemRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        self.0.lock().u64(..)
    }
}

/// Random numbers determined by a seed.
#[derive(Debug)]
pub struct SeededRandom(Mutex<fastrand::Rng>);

impl SeededRandom {
    /// Creates the generator with this seed.
    pub fn new(seed: u64) -> Self {
        SeededRandom(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        self.0.lock().u64(..)
    }
}
