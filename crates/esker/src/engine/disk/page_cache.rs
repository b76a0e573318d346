//! Decides whether tables are written through the page cache or with direct I/O.
//!
//! Compactions write through the page cache while all tables fit in it, beside the memory that the database
//! may take. Then readers find new tables in memory. A larger set of tables would evict itself, and the files
//! of other programs. Direct I/O needs less processor time. It is also used if the size of the page cache is
//! unknown, and for the tables of flushes, large transactions and ingests, since compactions replace these
//! soon.
//!
//! Small values of large transactions go through the page cache while tables and blob files together fit in
//! it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::disk::Disk;

/// Whether compactions write through the page cache. Relaxed: both ways are correct.
#[derive(Debug, Default)]
pub(crate) struct PageCache(AtomicBool);

impl PageCache {
    /// Records whether all tables fit in the page cache.
    pub(in crate::engine) fn set(&self, has_room: bool) {
        self.0.store(has_room, Ordering::Relaxed);
    }
}

/// Page cache left after `files` and `memory` bytes. `None` if they do not fit, or if its size `room` is
/// unknown.
pub(in crate::engine) fn left(room: Option<u64>, files: u64, memory: u64) -> Option<u64> {
    room?.checked_sub(files.saturating_add(memory))
}

impl Disk {
    /// Returns whether compactions write with direct I/O.
    pub(in crate::engine) fn writes_past_page_cache(&self) -> bool {
        !self.page_cache.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tables_have_room_beside_the_memory_or_none_is_cached() {
        assert_eq!((left(Some(10), 6, 4), left(Some(11), 6, 4)), (Some(0), Some(1)));
        assert_eq!((left(Some(10), 7, 4), left(Some(10), u64::MAX, 4), left(None, 0, 0)), (None, None, None));
    }
}
