//! Statistics of each keyspace.

use crate::engine::state::State;
use crate::read::size::bytes_of;
use crate::types::key::{encode_key, keyspace_end};
use crate::types::key_range::{End, KeyRange};

/// Statistics of one keyspace at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Name of the keyspace.
    pub name: String,
    /// Live items. Exact, unless a table that [`len`](crate::Keyspace::len) would read is unreadable.
    pub items: u64,
    /// Estimated bytes of its entries in tables, including overwritten and removed ones. The error is at most
    /// one block (8 KiB by default) for each run. Indexes and filters are divided among the blocks. Memtables
    /// do not count.
    pub table_bytes: u64,
}

impl State {
    /// Statistics of all keyspaces, sorted by name. Costs some searches in memory for each keyspace and run,
    /// and what `len` costs.
    pub(crate) fn keyspace_stats(&self) -> Vec<KeyspaceStats> {
        let (version, pin) = (self.version(), self.snapshot());
        let keyspaces = self.catalog.all().into_iter();
        let figures = keyspaces.map(|(name, state)| {
            let range =
                KeyRange { start: encode_key(state.id, &[]), end: End::Excluded(keyspace_end(state.id)) };
            let tables = version.runs().iter().flat_map(|run| run.overlapping(&range));
            // A damaged table does not hide the others.
            let table_bytes = tables.map(|table| bytes_of(table, &range).unwrap_or_default()).sum();
            // If unresolved writes cannot be looked up, the count of the commits is the best estimate.
            let items = self.len_at(&state, &pin).unwrap_or_else(|_| state.counter.at(pin.seq()));
            KeyspaceStats { name, items, table_bytes }
        });
        figures.collect()
    }
}
