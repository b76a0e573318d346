//! The permutation word: which slots of a node are in use, and their key order.
//!
//! ```text
//!   bits 0..4: number of slots in use     bits 4+4r..8+4r: slot of the entry with rank r
//! ```
//!
//! Slots are allocated in the order 0, 1, 2, ... and never freed, so the slots in use are
//! those below `len`.
//!
//! The technique is Masstree's (Mao, Kohler, Morris 2012): an insert fills a free slot, then publishes the
//! slot and its rank with one store.

/// Maximum number of entries in a node.
pub(super) const SLOTS: usize = 15;

/// The key order of the entries of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Permutation(u64);

impl Permutation {
    /// Returns the permutation of the slots `0..len` in slot order.
    pub(super) fn in_order(len: usize) -> Self {
        (0..len).fold(Permutation(0), |all, rank| all.with(rank))
    }

    #[inline(always)]
    pub(super) const fn from_word(word: u64) -> Self {
        Permutation(word)
    }

    #[inline(always)]
    pub(super) const fn word(self) -> u64 {
        self.0
    }

    /// Number of slots in use.
    #[inline(always)]
    pub(super) const fn len(self) -> usize {
        (self.0 & 0xF) as usize
    }

    /// Returns whether every slot is in use.
    pub(super) const fn is_full(self) -> bool {
        self.len() == SLOTS
    }

    /// Returns the slot of the entry with this rank.
    #[inline(always)]
    pub(super) const fn slot(self, rank: usize) -> usize {
        debug_assert!(rank < self.len());
        (self.0 >> (4 + 4 * rank) & 0xF) as usize
    }

    /// Returns the permutation with the next free slot inserted at `rank`. Later entries move
    /// up by one rank.
    #[must_use]
    pub(super) fn with(self, rank: usize) -> Self {
        let slot = self.len();
        assert!(slot < SLOTS && rank <= slot);
        let below = (1 << (4 + 4 * rank)) - 1;
        Permutation((self.0 & below | (self.0 & !below) << 4 | (slot as u64) << (4 + 4 * rank)) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutation_1_agrees_with_a_vector() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let mut permutation = Permutation::default();
            let mut list = Vec::new();
            for slot in 0..SLOTS {
                let rank = rng.usize(0..=slot);
                list.insert(rank, slot);
                permutation = permutation.with(rank);
                assert_eq!(permutation.len(), list.len());
                assert!((0..list.len()).all(|rank| permutation.slot(rank) == list[rank]));
            }
            assert!(permutation.is_full());
        }
        assert_eq!(Permutation::in_order(3).slot(2), 2);
    }
}
