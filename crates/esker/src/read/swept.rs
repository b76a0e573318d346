//! Remembers which range removals were expiry sweeps of whole tables, while this process has the database
//! open.
//!
//! Sweeping a whole table writes a range removal that looks like one made by a user. It is no conflict for a
//! transaction, because readers already saw the keys as removed. But if it removed a version newer than the
//! snapshot of the transaction, the removal represents that write.
//!
//! A sweep that was forgotten or is not recorded yet counts as a removal by a user. That may report
//! conflicts that do not exist, and never misses one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::types::SeqNo;

/// Maximum number of sweeps remembered.
const SWEEPS_MAX: usize = 4096;

/// The commits of sweeps, each with the newest version that it removed.
#[derive(Debug, Default)]
pub(crate) struct SweptRanges {
    newest: Mutex<BTreeMap<SeqNo, SeqNo>>,
    /// Number of sweeps. Relaxed: a hint that avoids the lock.
    len: AtomicUsize,
}

impl SweptRanges {
    /// Records that `commit` swept versions up to `newest`.
    pub(crate) fn note(&self, commit: SeqNo, newest: SeqNo) {
        let mut all = self.newest.lock();
        all.insert(commit, newest);
        if all.len() > SWEEPS_MAX {
            all.pop_first();
        }
        self.len.store(all.len(), Ordering::Relaxed);
    }

    /// Returns whether the range removal of a commit is a sweep that removed nothing newer than `since`.
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
        assert!(!swept.is_sweep(seq(9), seq(7)) && swept.is_sweep(seq(10), seq(7)));
    }
}
