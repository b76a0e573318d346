//! The newest commit of each key, by hash: shows that a key is unchanged without a lookup.
//!
//! ```text
//!   commit --hashes of its keys--> slots: the newest commit of each
//!   is_unchanged(hash, since)?  yes: nothing wrote the key later;  no: a lookup decides
//! ```
//!
//! recent_writes.1. If a commit after `since` wrote a key, [`RecentWrites::is_unchanged`] returns false. A
//!     slot holds the newest commit of all keys that share it. A commit without hashes counts for every key.
//!
//! The commit lock guards it.

use super::write_set::WriteSet;
use crate::encoding::hash::key_hash;
use crate::types::SeqNo;
use crate::types::canary::{self, Canary};

/// Number of slots. The keys of all commits under way are few of them.
const SLOTS: usize = 1 << 15;

/// A larger commit that was not looked up before counts for every key: hashing its keys would delay it.
const HASHED_MAX: usize = 64;

/// The newest commit of each slot.
pub(super) struct RecentWrites {
    /// Slots hold the distance from here.
    base: SeqNo,
    /// The newest commit whose keys are not in the slots.
    all: SeqNo,
    slots: Vec<u32>,
}

impl RecentWrites {
    /// Returns the state after commit `seq`, the last one of a recovered database.
    pub(super) fn new(seq: SeqNo) -> Self {
        RecentWrites { base: seq, all: seq, slots: vec![0; SLOTS] }
    }

    /// Returns whether no commit after `since` wrote the key with this hash (recent_writes.1).
    #[inline]
    pub(super) fn is_unchanged(&self, hash: u64, since: SeqNo) -> bool {
        let newest = u64::from(self.slots[hash as usize % SLOTS]);
        since >= self.all && newest <= since.get() - self.base.get()
    }

    /// Records the keys of a commit. Their hashes are known if they were looked up before the commit lock was
    /// taken.
    pub(super) fn note_set(&mut self, set: &WriteSet, hashes: Option<impl Iterator<Item = u64>>, seq: SeqNo) {
        match hashes {
            Some(hashes) => self.note(hashes, seq),
            None if set.op_count() > HASHED_MAX || !set.ranges().is_empty() => self.note_all(seq),
            None => self.note(set.entries(seq).map(|entry| key_hash(entry.key)), seq),
        }
    }

    /// Records the keys of a commit, by their hashes.
    pub(super) fn note(&mut self, hashes: impl Iterator<Item = u64>, seq: SeqNo) {
        let Ok(distance) = u32::try_from(seq.get().saturating_sub(self.base.get())) else {
            return *self = RecentWrites::new(seq);
        };
        if !canary::is_set(Canary::RecentWritesForgotten) {
            hashes.for_each(|hash| self.slots[hash as usize % SLOTS] = distance);
        }
    }

    /// Records a commit that may have written any key.
    pub(super) fn note_all(&mut self, seq: SeqNo) {
        self.all = seq;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_writes_1_a_key_is_changed_by_its_commits_and_by_those_without_hashes() {
        let seq = SeqNo::new;
        let mut recent = RecentWrites::new(seq(100));
        assert!(recent.is_unchanged(1, seq(100)));
        recent.note([1, 2].into_iter(), seq(101));
        assert!(!recent.is_unchanged(1, seq(100)) && recent.is_unchanged(3, seq(100)));
        assert!(recent.is_unchanged(1, seq(101)));
        assert!(!recent.is_unchanged(1 + SLOTS as u64, seq(100)), "of the same slot");
        recent.note_all(seq(102));
        assert!(!recent.is_unchanged(3, seq(101)) && recent.is_unchanged(1, seq(102)));
        let far = seq(101 + u64::from(u32::MAX));
        recent.note([3].into_iter(), far);
        let before = seq(far.get() - 1);
        assert!(!recent.is_unchanged(3, before) && !recent.is_unchanged(4, before));
        assert!(recent.is_unchanged(3, far));
    }
}
