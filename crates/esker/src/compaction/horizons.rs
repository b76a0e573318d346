//! The sequence numbers at which readers may read.

use crate::types::SeqNo;

/// The sequence numbers at which readers may read: the registered snapshots, the visible number, and any
/// later number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Horizons {
    ascending: Vec<SeqNo>,
}

impl Horizons {
    /// Returns the horizons for all registered snapshots and the visible number, in any order. An empty list
    /// keeps every version.
    pub fn new(mut snapshots: Vec<SeqNo>) -> Self {
        snapshots.sort_unstable();
        snapshots.dedup();
        Horizons { ascending: snapshots }
    }

    /// Adds readers at any sequence number from `from` on (compaction_judge.7). Above the newest horizon any
    /// number is possible anyway.
    pub(crate) fn with_all_from(&self, from: SeqNo) -> Self {
        let from = from.min(self.newest());
        let below = self.ascending.iter().copied().filter(|horizon| *horizon < from);
        Horizons { ascending: below.chain([from]).collect() }
    }

    /// Returns the newest horizon: only future readers stand above it.
    pub(super) fn newest(&self) -> SeqNo {
        self.ascending.last().copied().unwrap_or(SeqNo::ZERO)
    }

    /// Returns the oldest horizon: no reader stands below it.
    #[inline]
    pub(super) fn oldest(&self) -> SeqNo {
        self.ascending.first().copied().unwrap_or(SeqNo::ZERO)
    }

    /// Returns the last number of the stripe that contains `seq`.
    #[inline]
    pub(crate) fn stripe_end(&self, seq: SeqNo) -> SeqNo {
        if seq <= self.oldest() {
            return self.oldest();
        }
        let at = self.ascending.partition_point(|&horizon| horizon < seq);
        self.ascending.get(at).copied().unwrap_or(seq)
    }
}
