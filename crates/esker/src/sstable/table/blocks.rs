//! Reads the data blocks of a table, from the cache or from the file.
//!
//! While the cache has free space, a miss reads up to 128 KiB around the block, which takes little longer
//! than 8 KiB. At most it reads about as many bytes as are cached, so that the first get after an opening is
//! quick.

use std::ops::Range;
use std::sync::Arc;

use esker_env::PageBuf;

use super::Table;
use super::loading::Loaded;
use crate::cache::{self, CacheItem, Guard, Pinned};
use crate::sstable::block::Block;
use crate::sstable::caches::{BlockIndex, Wanted};
use crate::sstable::footer::Footer;
use crate::sstable::parts::{parse_block, read_footer, read_stored};
use crate::sstable::stored;
use crate::types::Result;

/// Bytes read around a block that is not cached, at least and at most.
const AROUND_BYTES_MIN: u64 = 8 << 10;
const AROUND_BYTES_MAX: u64 = 128 << 10;
/// With less free cache space, a block is read alone.
pub(super) const HAS_ROOM_BYTES: u64 = 1 << 20;

impl CacheItem for Block {
    fn size_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn first_bytes(&self) -> *const u8 {
        self.bytes().as_ptr()
    }
}

/// A cached item used by a read: protected by the caller's pin if it was cached, otherwise owned.
pub(in crate::sstable) enum ItemRef<'g, T> {
    Pinned(Pinned<'g, T>),
    Loaded(Arc<T>),
}

impl<T> std::ops::Deref for ItemRef<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        match self {
            ItemRef::Pinned(item) => item,
            ItemRef::Loaded(item) => item,
        }
    }
}

impl<T> ItemRef<'_, T> {
    #[inline(always)]
    pub(in crate::sstable) fn into_arc(self) -> Arc<T> {
        match self {
            ItemRef::Pinned(item) => item.to_arc(),
            ItemRef::Loaded(item) => item,
        }
    }
}

impl Table {
    #[cold]
    pub(super) fn load(
        &self,
        index: &BlockIndex,
        number: usize,
        fill: bool,
        pin: &Guard,
    ) -> Result<Arc<Block>> {
        let (Loaded { file, opener, .. }, blocks) = (self.loaded(), &index.blocks);
        blocks.note_miss();
        if fill && blocks.room_bytes() >= HAS_ROOM_BYTES {
            self.load_around(index, number, pin);
            if let Some(block) = index.peek(number, pin) {
                return Ok(block.to_arc());
            }
        }
        let extent = index.extent(number);
        let stored = read_stored(&*file.get()?, self.path(), extent.clone())?;
        let packed = stored::is_packed(&stored);
        let block = parse_block(opener.open_owned(stored, extent.start), packed);
        let block = Arc::new(block.map_err(|e| e.in_file("block", self.path(), extent.start))?);
        // A block of another position would give wrong answers, or keep an iterator in place forever.
        self.check_place(index, number, &block, None)?;
        if fill {
            index.insert_read(number, &block, false, pin);
        }
        Ok(block)
    }

    /// Caches a block and the blocks around it while the cache has free space, so that a database that fits
    /// is soon cached completely. All are blocks of one page of the index. Errors are ignored: a reader of
    /// the block gets them.
    fn load_around(&self, index: &BlockIndex, number: usize, pin: &Guard) {
        let (file, numbers) = (&self.loaded().file, index.range());
        let cached = index.blocks.used_bytes().next_power_of_two();
        let around = cached.clamp(AROUND_BYTES_MIN, AROUND_BYTES_MAX);
        let window = |number: usize| index.extent(number).start / around;
        let is_near = |other: &usize| window(*other) == window(number);
        let first = (numbers.start..number).rev().take_while(is_near).last().unwrap_or(number);
        let last = (number..numbers.end).take_while(is_near).last().unwrap_or(number);
        let start = index.extent(first).start;
        let Ok(file) = file.get() else { return };
        let Ok(bytes) = read_stored(&*file, self.path(), start..index.extent(last).end) else { return };
        for near in (first..=last).filter(|near| index.peek(*near, pin).is_none()) {
            let extent = index.extent(near);
            let stored = &bytes[(extent.start - start) as usize..(extent.end - start) as usize];
            if let Ok(block) = self.decode_block(stored, extent.start)
                && self.check_place(index, near, &block, None).is_ok()
            {
                index.insert(near, &Arc::new(block), near == number, pin);
            }
        }
    }

    /// Reads the footer again.
    pub(in crate::sstable) fn read_footer(&self) -> Result<Footer> {
        let file = self.loaded().file.get()?;
        let env = self.source.lock().env.clone();
        Ok(read_footer(&env, (&*file, self.path()), self.file_bytes())?.0)
    }

    /// Verifies and decodes the stored form of the block at `offset`.
    pub(in crate::sstable) fn decode_block(&self, stored: &[u8], offset: u64) -> Result<Block> {
        let block = parse_block(self.loaded().opener.open(stored, offset), stored::is_packed(stored));
        block.map_err(|e| e.in_file("block", self.path(), offset))
    }

    /// Reads a range of the file. `extent` comes from the verified index, so it lies inside the file.
    pub(in crate::sstable) fn read_extent(&self, extent: Range<u64>) -> Result<PageBuf> {
        read_stored(&*self.loaded().file.get()?, self.path(), extent)
    }

    /// Caches blocks that the writer kept, starting with the first.
    pub(in crate::sstable) fn warm(&self, blocks: Vec<Arc<Block>>) {
        let pin = cache::pin();
        let mut blocks = blocks.iter().enumerate().take(self.blocks()).peekable();
        while let Some((first, _)) = blocks.peek() {
            // A reader gets the error.
            let Ok(index) = self.index_in(Wanted::Block(*first), true, &pin) else { return };
            while let Some((number, block)) = blocks.next_if(|(number, _)| index.range().contains(number)) {
                index.insert(number, block, false, &pin);
            }
        }
    }
}
