//! Scans all versions of a table in order, with large reads. Used by compactions and checks.
//!
//! ```text
//!   file --windows of up to 256 KiB--> buffer --verify, one block at a time--> EntryRef, EntryRef, ...
//!   cache --blocks that are in memory-------------------'
//! ```
//!
//! - Entries are returned in order from verified blocks. A block whose first and last keys do not fit its
//!   position is damage, reported with file and offset.
//! - An unreadable part of the file only loses the blocks it contains, not the other blocks of the same read.
//!
//! A scan neither fills the cache nor changes its order.

use std::ops::Range;
use std::sync::Arc;

use esker_env::PageBuf;

use super::Table;
use super::block::Block;
use super::caches::{BlockIndex, Wanted};
use crate::cache::{self, Pinned};
use crate::types::Result;
use crate::types::entry::EntryRef;

/// Bytes read at a time. A larger block is read alone.
const WINDOW_BYTES: u64 = 256 << 10;

/// A scan of a table. It starts before the first entry.
pub(crate) struct TableScan {
    table: Arc<Table>,
    /// The index, or the page with the current block. Set when the scan begins.
    index: Option<Arc<BlockIndex>>,
    /// Whether cached blocks may be used.
    use_resident: bool,
    block: Option<Arc<Block>>,
    /// Number of the block after the current one.
    next_block: usize,
    next_entry: usize,
    window: PageBuf,
    /// The part of the file in the window.
    window_extent: Range<u64>,
    /// End of the last window that could not be read. Blocks before it are read one by one.
    alone_until: u64,
    key: Vec<u8>,
}

impl TableScan {
    pub(super) fn new(table: Arc<Table>, use_resident: bool) -> Self {
        TableScan {
            table,
            index: None,
            use_resident,
            block: None,
            next_block: 0,
            next_entry: 0,
            window: PageBuf::default(),
            window_extent: 0..0,
            alone_until: 0,
            key: Vec::new(),
        }
    }

    /// Moves before the first version of the first key `>= key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        (self.block, self.next_entry) = (None, 0);
        let index = self.table.index(Wanted::Key(key), false)?;
        self.next_block = index.find(key);
        self.index = Some(index.clone());
        if self.advance_block()? {
            let block = self.block.as_ref().expect("advance_block found one");
            self.next_entry = block.lower_bound(key, index.simd()).0;
        }
        Ok(())
    }

    /// Returns the next version. `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<EntryRef<'_>>> {
        Ok(if self.advance()? { Some(self.current()) } else { None })
    }

    /// Moves to the next version. Returns false at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        while self.block.as_ref().is_none_or(|block| self.next_entry >= block.count()) {
            if !self.advance_block()? {
                return Ok(false);
            }
        }
        let block = self.block.as_ref().expect("the loop above ends with a block");
        let entry = self.next_entry;
        self.next_entry += 1;
        self.key.truncate(block.prefix().len());
        block.push_suffix(entry, &mut self.key);
        Ok(true)
    }

    /// The key of the current version.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the version that `next` returned last.
    ///
    /// # Panics
    /// Before the first version and after the last.
    #[inline]
    pub(crate) fn current(&self) -> EntryRef<'_> {
        let block = self.block.as_ref().expect("the scan stands on an entry");
        let entry = self.next_entry.checked_sub(1).expect("the scan stands on an entry");
        let seq = self.table.seq_of(block, entry);
        EntryRef { key: &self.key, seq, kind: block.kind(entry), value: block.value(entry) }
    }

    /// Returns the index, or the page of it, that finds a block.
    fn index(&mut self, number: usize) -> Result<&Arc<BlockIndex>> {
        if self.index.as_ref().is_none_or(|index| !index.range().contains(&number)) {
            self.index = Some(self.table.index(Wanted::Block(number), false)?);
        }
        Ok(self.index.as_ref().expect("it was set above"))
    }

    /// Moves to the next block. Returns false at the end.
    fn advance_block(&mut self) -> Result<bool> {
        let number = self.next_block;
        self.table.ready()?;
        if number >= self.table.blocks() {
            self.block = None;
            return Ok(false);
        }
        let index = self.index(number)?.clone();
        let pin = cache::pin();
        let resident = index.peek(number, &pin).filter(|_| self.use_resident).map(Pinned::to_arc);
        let block = match resident {
            Some(block) => block,
            None => Arc::new(self.read_block(number)?),
        };
        self.table.check_place(&index, number, &block, self.block.as_deref())?;
        self.key.clear();
        self.key.extend_from_slice(block.prefix());
        (self.block, self.next_block, self.next_entry) = (Some(block), number + 1, 0);
        Ok(true)
    }

    /// Reads and decodes a block.
    fn read_block(&mut self, number: usize) -> Result<Block> {
        let (place, start) = (self.bring_into_window(number)?, self.index(number)?.extent(number).start);
        self.table.decode_block(&self.window[place], start)
    }

    /// Reads the stored form of a block without verifying it.
    pub(super) fn read_stored(&mut self, number: usize) -> Result<&[u8]> {
        let place = self.bring_into_window(number)?;
        Ok(&self.window[place])
    }

    /// Reads a block into the window, and returns its position there.
    fn bring_into_window(&mut self, number: usize) -> Result<Range<usize>> {
        let extent = self.index(number)?.extent(number);
        if extent.start < self.window_extent.start || extent.end > self.window_extent.end {
            // A failed read leaves the window unchanged: a check continues with the next block.
            let all = extent.start..self.window_end(number)?;
            let (window, read) = match self.table.read_extent(all.clone()) {
                Ok(window) => (window, all),
                Err(_) if all != extent => {
                    self.alone_until = all.end;
                    (self.table.read_extent(extent.clone())?, extent.clone())
                }
                Err(error) => return Err(error),
            };
            (self.window, self.window_extent) = (window, read);
        }
        let start = (extent.start - self.window_extent.start) as usize;
        Ok(start..start + (extent.end - extent.start) as usize)
    }

    /// Returns the end of a window that starts with block `number` and holds whole blocks of one page of the
    /// index.
    fn window_end(&mut self, number: usize) -> Result<u64> {
        let alone_until = self.alone_until;
        let index = self.index(number)?;
        let Range { start, mut end } = index.extent(number);
        if start < alone_until {
            return Ok(end);
        }
        for next in number + 1..index.range().end {
            let next_end = index.extent(next).end;
            if next_end - start > WINDOW_BYTES {
                break;
            }
            end = next_end;
        }
        Ok(end)
    }
}
