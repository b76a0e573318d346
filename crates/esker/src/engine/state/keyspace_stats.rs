//! Figures of each keyspace.

use std::ops::Bound;

use crate::engine::state::State;
use crate::manifest::version::Run;
use crate::types::bounds::BoundKey;
use crate::types::key::{encode_key, keyspace_end};

/// Figures of one keyspace, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Live items: exactly, unless a table cannot be read that [`len`](crate::Keyspace::len) would look into.
    pub items: u64,
    /// About how many bytes of tables on disk hold it, overwritten and removed entries included: right to a block (8 KiB unless set
    /// otherwise) in each run, with indexes and filters shared out over the blocks. What is in memtables does not count.
    pub table_bytes: u64,
}

impl State {
    /// Figures of all keyspaces, sorted by name. Takes some searches in memory for each keyspace and run, and looks up what `len` would.
    pub(crate) fn keyspace_stats(&self) -> Vec<KeyspaceStats> {
        let (version, pin) = (self.version(), self.snapshot());
        let keyspaces = self.catalog.all().into_iter();
        let figures = keyspaces.map(|(name, state)| {
            let (start, end) = (encode_key(state.id, &[]), keyspace_end(state.id));
            let table_bytes = version.runs().iter().map(|run| bytes_between(run, &start, &end)).sum();
            // Where what commits have not looked up cannot be read, their count is the best there is.
            let items = self.len_at(&state, &pin).unwrap_or_else(|_| state.counter.at(pin.seq()));
            KeyspaceStats { name, items, table_bytes }
        });
        figures.collect()
    }
}

/// About how many bytes of a run's tables hold keys from `start` up to `end`.
fn bytes_between(run: &Run, start: &[u8], end: &[u8]) -> u64 {
    let within =
        run.within(&Bound::Included(BoundKey::copy_of(start)), &Bound::Excluded(BoundKey::copy_of(end)));
    let (first, last) = (within.start, within.end.saturating_sub(1));
    let tables = run.tables()[within].iter().enumerate();
    let bytes = tables.map(|(n, live)| match first + n {
        // Those between lie in it whole.
        at if at == first || at == last => {
            live.table.bytes_before(end).saturating_sub(live.table.bytes_before(start))
        }
        _ => live.meta.file_bytes,
    });
    bytes.sum()
}
