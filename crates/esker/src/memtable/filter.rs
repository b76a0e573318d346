//! A Bloom filter in front of the tree: it detects keys that are not in the memtable.
//!
//! ```text
//!   hash --> [small][sized for the memtable][twice that] ...     the newest is filled, all are probed
//! ```
//!
//! There are no false negatives (memtable.3): the bits of a key are set before the key becomes reachable, and
//! a filter is published before it is used. Each filter takes as many keys as it was sized for; then a larger
//! one is added.
//!
//! The number of keys is not known in advance. The first filter is small, for tiny databases. The second is
//! sized for keys and values of about 100 bytes, so that more are rarely needed.

use std::sync::OnceLock;

use crate::encoding::bloom::BlockedBloom;
use crate::types::prefetch::prefetch_line;

const BITS_PER_KEY: u32 = 10;
const SMALL_KEYS: usize = 4096;
/// Expected bytes of a key and its value.
const ENTRY_BYTES: usize = 100;
const FILTERS_MAX: usize = 24;

/// Bloom filters of growing size.
pub(super) struct Filter {
    /// Set in order, by the applier; `OnceLock` publishes them to readers.
    filters: [OnceLock<BlockedBloom>; FILTERS_MAX],
    /// Number of keys expected in the memtable.
    expected: usize,
}

/// The state of the applier for one [`Filter`].
pub(super) struct FilterWriter {
    newest: usize,
    /// Number of keys that the newest filter still takes.
    left: usize,
}

impl Filter {
    /// Creates a filter for a memtable of this size.
    pub(super) fn new(expected_bytes: usize) -> (Self, FilterWriter) {
        let expected = (expected_bytes / ENTRY_BYTES).max(1);
        let filter = Filter { filters: Default::default(), expected };
        let left = filter.open(0);
        (filter, FilterWriter { newest: 0, left })
    }

    /// Number of keys that filter `n` takes.
    fn capacity(&self, n: usize) -> usize {
        let small = SMALL_KEYS.min(self.expected);
        if n == 0 { small } else { self.expected.max(small * 4).saturating_mul(1 << (n - 1)) }
    }

    fn open(&self, n: usize) -> usize {
        let keys = self.capacity(n);
        self.filters[n].get_or_init(|| BlockedBloom::new(keys, BITS_PER_KEY));
        keys
    }

    /// Prefetches the memory that `insert` of the same hash writes.
    #[inline]
    pub(super) fn prefetch(&self, writer: &FilterWriter, hash: u64) {
        if let Some(filter) = self.filters[writer.newest].get() {
            prefetch_line(filter.line_address(hash));
        }
    }

    /// Adds the hash of a key.
    #[inline]
    pub(super) fn insert(&self, writer: &mut FilterWriter, hash: u64) {
        if writer.left == 0 && writer.newest + 1 < FILTERS_MAX {
            writer.newest += 1;
            writer.left = self.open(writer.newest);
        }
        writer.left = writer.left.saturating_sub(1);
        self.filters[writer.newest].get().expect("the newest filter is open").insert(hash);
    }

    /// Returns false if the key was not inserted.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.filters.iter().map_while(OnceLock::get).any(|filter| filter.may_contain(hash))
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.filters.iter().map_while(OnceLock::get).map(BlockedBloom::size_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::hash::key_hash;

    #[test]
    fn filter_1_filter_2_grows_without_false_negatives() {
        // Under Miri all keys but those of the smallest filter fit in the first filters.
        let keys = if cfg!(miri) { 600 } else { 60_000 };
        for expected_bytes in [0, 1000, 1 << 20] {
            let (filter, mut writer) = Filter::new(expected_bytes);
            let hash = |n: u32| key_hash(&n.to_le_bytes());
            for n in 0..keys {
                filter.insert(&mut writer, hash(n));
                assert!(filter.may_contain(hash(n)) && filter.may_contain(hash(n / 2)));
            }
            assert!((0..keys).all(|n| filter.may_contain(hash(n))));
            let passed = (keys..keys * 8 / 3).filter(|&n| filter.may_contain(hash(n))).count();
            assert!(passed < keys as usize / 5, "{passed} of {} absent keys pass", keys * 5 / 3);
            assert!(cfg!(miri) || filter.size_bytes() < 60_000 * 5, "{}", filter.size_bytes());
        }
    }

    #[test]
    fn a_tiny_memtable_has_a_tiny_filter() {
        assert_eq!(Filter::new(64 << 20).0.size_bytes(), 5120);
        assert!(Filter::new(4 << 10).0.size_bytes() <= 64);
    }
}
