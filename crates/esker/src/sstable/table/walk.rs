//! Reads the blocks of a walk: from the cache, from the window of the walk, or alone.

use std::sync::Arc;

use super::Table;
use super::blocks::{HAS_ROOM_BYTES, ItemRef};
use crate::cache::Guard;
use crate::sstable::block::Block;
use crate::sstable::caches::BlockIndex;
use crate::sstable::walk_window::WalkWindow;
use crate::types::Result;

impl Table {
    /// Returns the block that a walk enters, from memory or from the file.
    #[inline(always)]
    pub(in crate::sstable) fn block_of_walk<'g>(
        &self,
        index: &'g BlockIndex,
        number: usize,
        window: &mut WalkWindow,
        pin: &'g Guard,
    ) -> Result<ItemRef<'g, Block>> {
        window.enter(self.address(), self.blocks(), number);
        match index.load(number, pin) {
            Some(block) => Ok(ItemRef::Pinned(block)),
            None => Ok(ItemRef::Loaded(self.load_for_walk(index, number, window, pin)?)),
        }
    }

    #[inline]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[cold]
    fn load_for_walk(
        &self,
        index: &BlockIndex,
        number: usize,
        window: &mut WalkWindow,
        pin: &Guard,
    ) -> Result<Arc<Block>> {
        let (extent, fill) = (index.extent(number), window.fills_cache);
        // A read around the block serves other readers, too.
        let is_cached_ahead = fill && index.blocks.room_bytes() >= HAS_ROOM_BYTES;
        if !is_cached_ahead && window.stored(self.address(), &extent).is_none() {
            window.read(self.address(), index, number, pin, |extent| self.read_extent(extent));
        }
        let Some(stored) = window.stored(self.address(), &extent) else {
            return self.load(index, number, fill, pin);
        };
        index.blocks.note_miss();
        let block = Arc::new(self.decode_block(stored, extent.start)?);
        self.check_place(index, number, &block, None)?;
        if fill {
            index.insert_read(number, &block, window.is_long(), pin);
        }
        Ok(block)
    }
}
