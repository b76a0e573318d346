//! Does a transaction write what somebody else wrote since it began? Snapshot isolation: first committer wins.
//!
//! conflict.1. A conflict is a version, a tombstone or a range tombstone newer than the transaction's snapshot over a key
//!      that it writes, or anywhere in a range that it removes.
//! conflict.2. Nothing newer than a live snapshot is ever garbage-collected or loses its sequence number, so what there is
//!      to find is there. The commit lock is held: nothing new arrives meanwhile.

use crate::read::view::ReadView;
use crate::txn::write_set::WriteSet;
use crate::types::entry::EntryRef;
use crate::types::key_range::{End, KeyRange};
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Result, SeqNo};

/// Whether a transaction that began at `since` conflicts with later commits (conflict.1).
pub fn conflicts(set: &WriteSet, since: SeqNo, view: &ReadView) -> Result<bool> {
    if view.newest_possible() <= since {
        return Ok(false);
    }
    for entry in set.entries(SeqNo::MAX) {
        if view.newest_write(entry.key, since)?.is_some() {
            return Ok(true);
        }
    }
    for (start, end) in set.ranges() {
        let range = KeyRange { start: start.clone(), end: End::Excluded(end.clone()) };
        if range_written(&range, since, view)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether anything in `range` was written after `since`.
fn range_written(range: &KeyRange, since: SeqNo, view: &ReadView) -> Result<bool> {
    let newer = |tombstones: &RangeTombstones| tombstones.clipped(range).max_seq() > since;
    let inside = |entry: &EntryRef<'_>| range.end.admits(entry.key);
    for memtable in view.memtables() {
        if memtable.has_range_tombstones() && newer(&memtable.range_tombstones()) {
            return Ok(true);
        }
        let mut scan = memtable.scan();
        scan.seek(&range.start);
        while let Some(entry) = scan.next().filter(inside) {
            if entry.seq > since {
                return Ok(true);
            }
        }
    }
    for table in view.tables_newer(range, since) {
        if newer(table.range_tombstones()) {
            return Ok(true);
        }
        let mut scan = table.scan();
        scan.seek(&range.start)?;
        while let Some(entry) = scan.next()?.filter(inside) {
            if entry.seq > since {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
