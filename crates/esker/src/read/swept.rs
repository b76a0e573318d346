//! Ranges that sweeps removed as a whole, for as long as this process has the database open.
//!
//! A sweep of a whole table is a range removal, which nothing in its bytes tells from a user's. To a transaction it is no conflict: readers saw the
//! keys gone before. But where it removed a version newer than the transaction's snapshot, the removal stands for that write.
//!
//! swept.1. What is forgotten, or was not noted yet, counts as a user's removal: that may find conflicts where there are none, and misses none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::types::SeqNo;

/// Number of sweeps that are kept (swept.1).
const SWEEPS_MAX: usize = 4096;

/// The commits of such sweeps, each with the newest version that it removed.
#[derive(Debug, Default)]
pub(crate) struct SweptRanges {
    newest: Mutex<BTreeMap<SeqNo, SeqNo>>,
    /// How many there are. Relaxed: a hint that spares the lock (swept.1).
    len: AtomicUsize,
}

impl SweptRanges {
    /// This commit was a sweep of versions up to this one.
    pub(crate) fn note(&self, commit: SeqNo, newest: SeqNo) {
        let mut all = self.newest.lock();
        all.insert(commit, newest);
        if all.len() > SWEEPS_MAX {
            all.pop_first();
        }
        self.len.store(all.len(), Ordering::Relaxed);
    }

    /// Whether the range removal of a commit is a sweep that removed nothing newer than `since`.
    pub(crate) fn is_sweep(&self, commit: SeqNo, since: SeqNo) -> bool {
        self.len.load(Ordering::Relaxed) > 0
            && self.newest.lock().get(&commit).is_some_and(|newest| *newest <= since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swept_1_a_sweep_counts_as_a_removal_if_it_removed_something_newer_or_is_forgotten() {
        let (swept, seq) = (SweptRanges::default(), SeqNo::new);
        assert!(!swept.is_sweep(seq(9), seq(5)));
        swept.note(seq(9), seq(5));
        assert!(swept.is_sweep(seq(9), seq(5)) && swept.is_sweep(seq(9), seq(7)));
        assert!(!swept.is_sweep(seq(9), seq(4)) && !swept.is_sweep(seq(8), seq(7)));
        (10..10 + SWEEPS_MAX as u64).for_each(|commit| swept.note(seq(commit), seq(5)));
        assert!(!swept.is_sweep(seq(9), seq(7)) && swept.is_sweep(seq(10), seq(7)), "swept.1");
    }
}
