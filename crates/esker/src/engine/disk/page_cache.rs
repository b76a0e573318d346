//! Through the page cache, or past it? How tables are written.
//!
//! ```text
//!   memory that the system has for it, all tables --with each version--> room? --> yes: what is written is in memory for its readers
//!                                                                             `--> no: unbuffered, which takes less processor time
//! ```
//!
//! page_cache.1. Tables go through the page cache only while all of them have room in it beside the memory that the database may take. What does
//!      not fit would push itself out, and other programs' files with it.
//! page_cache.2. What flushes, large transactions and ingests write goes past it: merges replace it soon, and commits wait for it.
//! page_cache.3. Where nothing is known of the system's memory all go past it.
//! page_cache.4. Small values of large transactions go through it while tables and blob files have room in it beside the memory.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::disk::Disk;

/// Whether merges write through the page cache. Relaxed: a choice between two right ways.
#[derive(Debug, Default)]
pub(crate) struct PageCache(AtomicBool);

impl PageCache {
    /// Notes whether all tables have room in it.
    pub(in crate::engine) fn set(&self, has_room: bool) {
        self.0.store(has_room, Ordering::Relaxed);
    }
}

/// What is left of the room for the page cache beside these bytes; none: they have no room.
pub(in crate::engine) fn left(room: Option<u64>, files: u64, memory: u64) -> Option<u64> {
    room?.checked_sub(files.saturating_add(memory))
}

impl Disk {
    /// Whether merges write past the page cache.
    pub(in crate::engine) fn writes_past_page_cache(&self) -> bool {
        !self.page_cache.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_1_page_cache_3_all_tables_have_room_beside_the_memory_or_none_is_cached() {
        assert_eq!((left(Some(10), 6, 4), left(Some(11), 6, 4)), (Some(0), Some(1)));
        assert_eq!((left(Some(10), 7, 4), left(Some(10), u64::MAX, 4), left(None, 0, 0)), (None, None, None));
    }
}
