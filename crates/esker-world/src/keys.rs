//! The keys of simulated encryption.

use std::any::Any;
use std::sync::Arc;

use esker_env::{Env, MemFs};

/// Returns the environment with keys drawn from the seed, by which new databases are encrypted. Without the
/// feature `encryption` it returns the same environment.
#[cfg(feature = "encryption")]
pub fn encrypted(env: &Env, seed: u64) -> Env {
    esker::encryption::with_keys(env, provider::Seeded::new(seed))
}

/// Returns the environment.
#[cfg(not(feature = "encryption"))]
pub fn encrypted(env: &Env, _seed: u64) -> Env {
    env.clone()
}

/// Returns the keys of a seed, for the environments of all its processes.
pub(crate) fn keys_of(seed: u64) -> Option<Arc<dyn Any + Send + Sync>> {
    encrypted(&Env::simulated(Arc::new(MemFs::new()), seed), seed).keys
}

#[cfg(feature = "encryption")]
mod provider {
    use std::io;

    use esker::encryption::{KeyProvider, MasterKeys};
    use esker_env::{Random, SeededRandom};

    /// A master key, and random numbers that a seed determines.
    #[derive(Debug)]
    pub(super) struct Seeded {
        master: MasterKeys,
        random: SeededRandom,
    }

    impl Seeded {
        pub(super) fn new(seed: u64) -> Self {
            let mut key = [7; 32];
            key[..8].copy_from_slice(&seed.to_le_bytes());
            let master = MasterKeys::new("simulated", &key).expect("the id is short");
            Seeded { master, random: SeededRandom::new(!seed) }
        }
    }

    impl KeyProvider for Seeded {
        fn current(&self) -> io::Result<String> {
            self.master.current()
        }
        fn wrap(&self, id: &str, key: &[u8; 32]) -> io::Result<Vec<u8>> {
            self.master.wrap(id, key)
        }
        fn unwrap(&self, id: &str, wrapped: &[u8]) -> io::Result<[u8; 32]> {
            self.master.unwrap(id, wrapped)
        }
        fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
            for piece in bytes.chunks_mut(8) {
                piece.copy_from_slice(&self.random.next_u64().to_le_bytes()[..piece.len()]);
            }
            Ok(())
        }
    }
}
