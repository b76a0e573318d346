//! Applies a commit to the memtable: its range removals first, then one op for each key (write_set.1).

use super::write_set::WriteSet;
use crate::memtable::{Applier, Memtable};
use crate::types::SeqNo;
use crate::types::range_tombstone::RangeTombstone;

/// Inserts a write set into the memtable as commit `seq`. The entries at the ascending indexes `unresolved`
/// are unresolved.
pub fn apply(set: &WriteSet, unresolved: &[u32], seq: SeqNo, memtable: &Memtable, applier: &mut Applier) {
    for (start, end) in set.ranges() {
        let tombstone = RangeTombstone { start: start.clone(), end: end.clone(), seq };
        memtable.add_range_tombstone(applier, tombstone);
    }
    match unresolved {
        [] => memtable.insert_all(applier, set.entries(seq)),
        _ => memtable.insert_all(applier, set.entries_with(seq, unresolved)),
    }
}
