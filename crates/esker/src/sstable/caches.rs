//! The caches of open tables: blocks, and the indexes and filters that find them.
//!
//! ```text
//!   table --slot--> index --slot of each block--> block
//!           |-----> root --slot of each page--> page of the index --slot of each block--> block
//!           `-----> filter
//! ```
//!
//! All have the clock of `crate::cache` and one budget. An index, a root, a page or a filter is evicted as
//! one item. A small table has an index, a large one a root and pages. A part of a filter would save nothing:
//! keys are spread over all of it.
//!
//! - Cached indexes and filters take at most half of the memory, and roots at most half of that.
//!   Indexes and pages give way to roots, because a root is needed for all of its pages. Filters give way
//!   to all of these, because a lookup can do without a filter.
//! - An evicted index, root or page goes with its slots, and so with all that is cached below it. A
//!   reader that holds it goes on with it. What readers hold after an eviction does not count, as with
//!   blocks.

use std::ops::Deref;
use std::sync::Arc;

use super::block::Block;
use super::index::Index;
use super::root::Root;
use crate::cache::{self, BudgetKind, CacheItem, CachedBlocks, Guard, MemoryBudget, Pinned};
use crate::encoding::bloom::BlockedBloom;

/// Bytes of a slot: two pointers.
const SLOT_BYTES: usize = 2 * size_of::<usize>();

/// The caches of all open tables of a database. Dereferences to the cache of blocks.
pub(crate) struct BlockCache {
    blocks: Arc<cache::BlockCache<Block>>,
    roots: Arc<cache::BlockCache<PagedIndex>>,
    indexes: Arc<cache::BlockCache<BlockIndex>>,
    filters: Arc<cache::BlockCache<Filter>>,
}

/// The slot of a table's index.
pub(in crate::sstable) enum IndexSlot {
    /// Of the index of a small table.
    Blocks(CachedBlocks<BlockIndex>),
    /// Of the root of a large table.
    Paged(CachedBlocks<PagedIndex>),
}

/// The root of an index, and a slot for each of its pages.
pub(crate) struct PagedIndex {
    pub(in crate::sstable) root: Root,
    pub(in crate::sstable) pages: CachedBlocks<BlockIndex>,
}

/// An index of blocks, and a slot for each of them.
pub(crate) struct BlockIndex {
    index: Index,
    pub(in crate::sstable) blocks: CachedBlocks<Block>,
}

/// The filter of a table.
pub(in crate::sstable) struct Filter(pub(in crate::sstable) BlockedBloom);

impl BlockCache {
    /// Creates caches that use what the reservations of the budget leave.
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(BlockCache {
            roots: cache::BlockCache::new(budget.clone()),
            indexes: cache::BlockCache::new(budget.clone()),
            filters: cache::BlockCache::new(budget.clone()),
            blocks: cache::BlockCache::new(budget),
        })
    }

    /// Bytes of cached indexes and filters.
    pub(crate) fn finding_bytes(&self) -> u64 {
        self.roots.used_bytes() + self.indexes.used_bytes() + self.filters.used_bytes()
    }

    /// Smallest capacity of the budget from which on no cached index or filter is evicted.
    pub(crate) fn capacity_needed(&self) -> u64 {
        MemoryBudget::capacity_for(self.roots.used_bytes(), self.finding_bytes())
    }

    /// Evicts until everything fits. Called after the budget has shrunk.
    pub(crate) fn shrink(&self, pin: &Guard) {
        self.roots.shrink(pin);
        self.indexes.shrink(pin);
        self.filters.shrink(pin);
        self.blocks.shrink(pin);
    }

    /// Creates the slots of a table's index and filter.
    pub(in crate::sstable) fn slots(&self, is_paged: bool) -> (IndexSlot, CachedBlocks<Filter>) {
        let index = match is_paged {
            true => IndexSlot::Paged(self.roots.register(1)),
            false => IndexSlot::Blocks(self.indexes.register(1)),
        };
        (index, self.filters.register(1))
    }

    /// Adds slots for the blocks to an index.
    pub(in crate::sstable) fn with_blocks(&self, index: Index) -> Arc<BlockIndex> {
        Arc::new(BlockIndex { blocks: self.blocks.register(index.range().len()), index })
    }

    /// Adds slots for the pages to a root.
    pub(in crate::sstable) fn with_pages(&self, root: Root) -> Arc<PagedIndex> {
        Arc::new(PagedIndex { pages: self.indexes.register(root.pages().len()), root })
    }
}

/// What a reader looks for in an index.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// The first block that may hold the key.
    Key(&'a [u8]),
    /// The block of this number, which the table has.
    Block(usize),
}

impl PagedIndex {
    /// Returns the page that finds what is wanted.
    #[inline(always)]
    pub(in crate::sstable) fn page(&self, wanted: Wanted<'_>) -> usize {
        match wanted {
            Wanted::Key(key) => self.root.find(key),
            Wanted::Block(number) => self.root.page_of(number),
        }
    }
}

impl IndexSlot {
    /// Returns the index that finds what is wanted, if it is in memory.
    #[inline(always)]
    pub(in crate::sstable) fn touch<'g>(
        &'g self,
        wanted: Wanted<'_>,
        pin: &'g Guard,
    ) -> Option<Pinned<'g, BlockIndex>> {
        match self {
            IndexSlot::Blocks(slot) => slot.touch(0, pin),
            IndexSlot::Paged(slot) => {
                let top = slot.touch(0, pin)?.get();
                top.pages.touch(top.page(wanted), pin)
            }
        }
    }
}

impl BlockIndex {
    /// Returns a block if it is in memory.
    #[inline(always)]
    pub(in crate::sstable) fn load<'g>(&'g self, number: usize, pin: &'g Guard) -> Option<Pinned<'g, Block>> {
        self.blocks.load(number - self.index.first(), pin)
    }

    /// Returns a block if it is in memory, without counting a use.
    pub(in crate::sstable) fn peek<'g>(&'g self, number: usize, pin: &'g Guard) -> Option<Pinned<'g, Block>> {
        self.blocks.peek(number - self.index.first(), pin)
    }

    /// Caches a block that was read for a reader; see [`CachedBlocks::insert_passing`].
    pub(in crate::sstable) fn insert_read(
        &self,
        number: usize,
        block: &Arc<Block>,
        is_passing: bool,
        pin: &Guard,
    ) {
        self.blocks.insert_passing(number - self.index.first(), block, is_passing, pin);
    }

    /// Caches a block. A `hot` block survives the next pass of the clock hand.
    pub(in crate::sstable) fn insert(&self, number: usize, block: &Arc<Block>, hot: bool, pin: &Guard) {
        self.blocks.insert(number - self.index.first(), block, hot, pin);
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
        size_of::<Self>() + self.index.size_bytes() + self.index.range().len() * SLOT_BYTES
    }

    fn first_bytes(&self) -> *const u8 {
        std::ptr::null()
    }
}

impl CacheItem for PagedIndex {
    const KIND: Option<BudgetKind> = Some(BudgetKind::Root);

    fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.root.size_bytes() + self.root.pages().len() * SLOT_BYTES
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
