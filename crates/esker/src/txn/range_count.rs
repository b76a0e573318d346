//! Counts the live keys of removed ranges before the commit lock is taken, so that other commits proceed
//! while a large range is counted.
//!
//! ```text
//!   before the lock:  live keys at a pinned sequence number, by iteration
//!   under the lock:   + keys of the range put by later commits, - keys removed by them: each looked up
//! ```
//!
//! - Keys written after the pinned sequence number are in memtables. If some were flushed, or a
//!   range was removed since, the range is counted again under the lock.

use std::collections::BTreeSet;

use super::snapshots::SnapshotGuard;
use crate::read::point::CountedPresence;
use crate::read::view::ReadView;
use crate::types::key_range::{End, KeyRange};
use crate::types::{Result, SeqNo};

/// Ranges and their live keys at one sequence number.
#[derive(Debug)]
pub(crate) struct RangeCounts {
    pub(super) since: SnapshotGuard,
    /// Start, end, live keys.
    pub(super) ranges: Vec<(Vec<u8>, Vec<u8>, u64)>,
}

impl RangeCounts {
    /// Creates the count of one range with `live` keys at `since`.
    pub(crate) fn known(since: SnapshotGuard, start: Vec<u8>, end: Vec<u8>, live: u64) -> Self {
        RangeCounts { since, ranges: vec![(start, end, live)] }
    }

    /// Returns the live keys of one of the ranges now. `None` if that requires iteration. The caller must
    /// hold the commit lock.
    pub(super) fn live_now(&self, start: &[u8], end: &[u8], view: &ReadView) -> Result<Option<u64>> {
        let known = self.ranges.iter().find(|range| range.0 == start && range.1 == end);
        let Some((_, _, live)) = known else { return Ok(None) };
        let since = self.since.seq();
        let range = KeyRange { start: start.to_vec(), end: End::Excluded(end.to_vec()) };
        if view.tables_newer(&range, since).next().is_some() {
            return Ok(None);
        }
        let mut written = BTreeSet::new();
        for memtable in view.memtables().filter(|memtable| memtable.max_seq() > Some(since)) {
            if memtable.has_range_tombstones()
                && memtable.range_tombstones().clipped(&range).max_seq() > since
            {
                return Ok(None);
            }
            let mut scan = memtable.scan();
            scan.seek(start);
            while let Some(entry) = scan.next().filter(|entry| entry.key < end) {
                if entry.seq > since && written.last().is_none_or(|last: &Vec<u8>| last != entry.key) {
                    written.insert(entry.key.to_vec());
                }
            }
        }
        let guard = crate::sync::pin();
        let mut now = *live;
        for key in written {
            let live_at =
                |at: SeqNo| view.find::<CountedPresence>(&key, at, &guard).map(|found| found.is_some());
            let (before, after) = (live_at(since)?, live_at(SeqNo::MAX)?);
            now = (now + u64::from(after)).saturating_sub(u64::from(before));
        }
        Ok(Some(now))
    }
}
