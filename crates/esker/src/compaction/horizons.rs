//! The sequence numbers at which readers may read.

use crate::types::SeqNo;

/// The sequence numbers that readers may read at: the registered snapshots, the visible number, and from
/// there on any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Horizons {
    ascending: Vec<SeqNo>,
}

impl Horizons {
    /// Of all registered snapshots and the visible number, in any order. None at all keeps every version.
    pub fn new(mut snapshots: Vec<SeqNo>) -> Self {
        snapshots.sort_unstable();
        snapshots.dedup();
        Horizons { ascending: snapshots }
    }

    /// The same readers, and any from this number on (compaction_judge.7). Above the newest horizon there may
    /// be any in any case.
    pub(crate) fn with_all_from(&self, from: SeqNo) -> Self {
        let from = from.min(self.newest());
        let below = self.ascending.iter().copied().filter(|horizon| *horizon < from);
        Horizons { ascending: below.chain([from]).collect() }
    }

    /// No reader stands above it but those to come.
    pub(super) fn newest(&self) -> SeqNo {
        self.ascending.last().copied().unwrap_or(SeqNo::ZERO)
    }

    /// No reader stands below it.
    #[inline]
    pub(super) fn oldest(&self) -> SeqNo {
        self.ascending.first().copied().unwrap_or(SeqNo::ZERO)
    }

    /// The last number of the stripe that `seq` lies in.
    #[inline]
    pub(crate) fn stripe_end(&self, seq: SeqNo) -> SeqNo {
        if seq <= self.oldest() {
            return self.oldest();
        }
        let at = self.ascending.partition_point(|&horizon| horizon < seq);
        self.ascending.get(at).copied().unwrap_or(seq)
    }
}
