//! The number of keys of a keyspace: the counts of commits, less what compactions and look-ups found to be
//! counted twice.
//!
//! The count is read before the view. So the view holds all versions that the count includes, or what
//! compactions made of them.

use crate::engine::state::State;
use crate::engine::state::catalog::KeyspaceState;
use crate::txn::snapshots::{Counter, SnapshotGuard};
use crate::types::{KeyspaceId, Result};

impl State {
    /// The live keys at the newest commit.
    #[inline]
    pub(crate) fn len_now(&self, keyspace: &KeyspaceState) -> Result<u64> {
        let count = self.published.count_of(&keyspace.counter);
        self.check_open()?;
        if !self.published.may_overcount() {
            return Ok(count);
        }
        let is_resolved = {
            let guard = crate::sync::pin();
            self.view.load(&guard).is_resolved()
        };
        if is_resolved { Ok(count) } else { self.len_at(keyspace, &self.snapshot()) }
    }

    /// The live keys at a pinned commit.
    #[inline]
    pub(crate) fn len_at(&self, keyspace: &KeyspaceState, pin: &SnapshotGuard) -> Result<u64> {
        self.exact_count(&keyspace.counter, keyspace.id, pin)
    }

    /// The live keys of any counter.
    pub(crate) fn exact_count(&self, counter: &Counter, id: KeyspaceId, pin: &SnapshotGuard) -> Result<u64> {
        let count = counter.at(pin.seq());
        self.check_open()?;
        if !self.published.may_overcount() {
            return Ok(count);
        }
        let view = self.view.get();
        Ok(count.saturating_sub(view.overcount(id, pin.seq())?))
    }

    /// The live keys of all keyspaces with a counter.
    pub(crate) fn exact_counts(&self, pin: &SnapshotGuard) -> Result<Vec<(KeyspaceId, u64)>> {
        let counters = self.published.counts_at(pin.seq()).into_iter();
        let exact = counters.map(|(id, _)| Ok((id, self.exact_count(&self.published.counter(id), id, pin)?)));
        exact.collect()
    }
}
