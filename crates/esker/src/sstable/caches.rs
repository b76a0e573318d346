//! The caches of open tables: blocks, and the indexes and filters that find them.
//!
//! ```text
//!   table --slot--> index --slot of each block--> block
//!           `-----> filter
//! ```
//!
//! All three have the clock of `crate::cache` and one budget. An index or a filter is evicted as one item.
//! A part of an index would save little: an index has about a thousandth of the table's bytes. A part of a
//! filter would save nothing: keys are spread over all of it.
//!
//! caches.1. Cached indexes and filters take at most half of the memory. Filters give way to indexes, because
//!     a lookup needs the index and can do without the filter.
//! caches.2. An evicted index goes with its slots, and so with the cached blocks of its table. A reader that
//!     holds it goes on with it. What readers hold after an eviction does not count, as with blocks.

use std::ops::Deref;
use std::sync::Arc;

use super::block::Block;
use super::index::Index;
use crate::cache::{self, BudgetKind, CacheItem, CachedBlocks, Guard, MemoryBudget};
use crate::encoding::bloom::BlockedBloom;

/// The caches of all open tables of a database. Dereferences to the cache of blocks.
pub(crate) struct BlockCache {
    blocks: Arc<cache::BlockCache<Block>>,
    indexes: Arc<cache::BlockCache<BlockIndex>>,
    filters: Arc<cache::BlockCache<Filter>>,
}

/// The index of a table, and a slot for each of its blocks.
pub(crate) struct BlockIndex {
    index: Index,
    pub(in crate::sstable) blocks: CachedBlocks<Block>,
}

/// The filter of a table.
pub(in crate::sstable) struct Filter(pub(in crate::sstable) BlockedBloom);

impl BlockCache {
    /// Creates caches that use what the reservations of the budget leave.
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Arc<Self> {
        let (indexes, filters) =
            (cache::BlockCache::new(budget.clone()), cache::BlockCache::new(budget.clone()));
        Arc::new(BlockCache { blocks: cache::BlockCache::new(budget), indexes, filters })
    }

    /// Bytes of cached indexes and filters.
    pub(crate) fn finding_bytes(&self) -> u64 {
        self.indexes.used_bytes() + self.filters.used_bytes()
    }

    /// Evicts until everything fits. Called after the budget has shrunk.
    pub(crate) fn shrink(&self, pin: &Guard) {
        self.indexes.shrink(pin);
        self.filters.shrink(pin);
        self.blocks.shrink(pin);
    }

    /// Creates the slots of a table's index and filter.
    pub(in crate::sstable) fn slots(&self) -> (CachedBlocks<BlockIndex>, CachedBlocks<Filter>) {
        (self.indexes.register(1), self.filters.register(1))
    }

    /// Adds slots for the blocks to an index.
    pub(in crate::sstable) fn with_slots(&self, index: Index) -> BlockIndex {
        BlockIndex { blocks: self.blocks.register(index.len()), index }
    }
}

impl Deref for BlockCache {
    type Target = Arc<cache::BlockCache<Block>>;
    fn deref(&self) -> &Self::Target {
        &self.blocks
    }
}

impl Deref for BlockIndex {
    type Target = Index;
    #[inline(always)]
    fn deref(&self) -> &Index {
        &self.index
    }
}

impl CacheItem for BlockIndex {
    const KIND: Option<BudgetKind> = Some(BudgetKind::Index);

    fn size_bytes(&self) -> usize {
        self.index.size_bytes() + self.index.len() * 2 * size_of::<usize>()
    }

    fn first_bytes(&self) -> *const u8 {
        std::ptr::null()
    }
}

impl CacheItem for Filter {
    const KIND: Option<BudgetKind> = Some(BudgetKind::Filter);

    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    fn first_bytes(&self) -> *const u8 {
        std::ptr::null()
    }
}
