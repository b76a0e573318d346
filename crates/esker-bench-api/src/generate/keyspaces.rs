//! The items of suite `keyspaces`: those of `storage-bench` with keys in random order, each in a keyspace
//! that its number draws.
//!
//!   keyspace of item i   the high half of word(seed ^ DRAWS, i) * keyspaces, as `Rng::below` has it

use super::storage::StorageItems;
use super::word;

/// Makes the draws differ from the words of values.
const DRAWS: u64 = 0x5EED_0F5A_CE5A_1107;

/// The stream of a seed over a number of keyspaces.
#[derive(Clone, Copy, Debug)]
pub struct KeyspaceItems {
    items: StorageItems,
    seed: u64,
    keyspaces: u32,
}

impl KeyspaceItems {
    /// The stream of `seed` over `keyspaces` of them.
    pub fn new(seed: u64, keyspaces: u32) -> Self {
        Self { items: StorageItems::new(seed, false), seed, keyspaces }
    }

    /// The keyspace of item `i`.
    pub fn keyspace(self, i: u64) -> u32 {
        let product = u128::from(word(self.seed ^ DRAWS, i)) * u128::from(self.keyspaces);
        (product >> 64) as u32
    }

    /// The key of item `i`.
    pub fn key(self, i: u64) -> [u8; 8] {
        self.items.key(i)
    }

    /// Fills `bytes` with version `version` of the value of item `i`.
    pub fn value(self, i: u64, version: u64, bytes: &mut [u8]) {
        self.items.value(i, version, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keyspace_has_its_share() {
        let items = KeyspaceItems::new(1, 20);
        let mut counts = [0; 20];
        for i in 0..20_000 {
            counts[items.keyspace(i) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }
}
