//! Statistics of each keyspace.

use std::ops::Bound;

use crate::engine::state::State;
use crate::manifest::version::Run;
use crate::types::bounds::BoundKey;
use crate::types::key::{encode_key, keyspace_end};

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
            let (start, end) = (encode_key(state.id, &[]), keyspace_end(state.id));
            let table_bytes = version.runs().iter().map(|run| bytes_between(run, &start, &end)).sum();
            // If unresolved writes cannot be looked up, the count of the commits is the best estimate.
            let items = self.len_at(&state, &pin).unwrap_or_else(|_| state.counter.at(pin.seq()));
            KeyspaceStats { name, items, table_bytes }
        });
        figures.collect()
    }
}

/// Estimated bytes of a run's tables with keys from `start` to `end`.
fn bytes_between(run: &Run, start: &[u8], end: &[u8]) -> u64 {
    let within =
        run.within(&Bound::Included(BoundKey::copy_of(start)), &Bound::Excluded(BoundKey::copy_of(end)));
    let (first, last) = (within.start, within.end.saturating_sub(1));
    let tables = run.tables()[within].iter().enumerate();
    let bytes = tables.map(|(n, live)| match first + n {
        // Tables between the first and the last lie entirely in the range.
        at if at == first || at == last => {
            live.table.bytes_before(end).saturating_sub(live.table.bytes_before(start))
        }
        _ => live.meta.file_bytes,
    });
    bytes.sum()
}
