//! Through the page cache, or past it? How tables are written.
//!
//! ```text
//!   memory that the system has for it, all tables --with each version--> room? --> yes: what is written is in memory for whoever reads it
//!                                                                             `--> no: unbuffered, which takes less processor time
//! ```
//!
//! page_cache.1. Tables go through the page cache only while all of them have room in it beside the memory that the database may take. What does
//!      not fit would push itself out, and other programs' files with it.
//! page_cache.2. What flushes, large transactions and ingests write goes past it: merges replace it soon, and commits wait for it.
//! page_cache.3. Where nothing is known of the system's memory all go past it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::core::Core;

/// Whether merges write through the page cache. Relaxed: a choice between two right ways.
#[derive(Debug, Default)]
pub(crate) struct PageCache(AtomicBool);

/// page_cache.1, page_cache.3
fn holds(room: Option<u64>, tables: u64, memory: u64) -> bool {
    room.is_some_and(|room| tables.saturating_add(memory) <= room)
}

impl Core {
    /// Looks how much memory the system has, after it was opened or tables have come or gone.
    pub(super) fn account_page_cache(&self) {
        let room = self.env.fs.page_cache_room();
        self.page_cache.0.store(holds(room, self.table_bytes(), self.options.memory()), Ordering::Relaxed);
    }

    /// Whether merges write past the page cache.
    pub(super) fn writes_past_page_cache(&self) -> bool {
        !self.page_cache.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_1_page_cache_3_all_tables_have_room_beside_the_memory_or_none_is_cached() {
        assert!(holds(Some(10), 6, 4));
        assert!(!holds(Some(10), 7, 4) && !holds(Some(10), u64::MAX, 4));
        assert!(!holds(None, 0, 0));
    }
}
