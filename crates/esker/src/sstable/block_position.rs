//! A block of a table as an iterator sees it: its entries, and which of them are inside the bounds.
//!
//! The keys of a block are compared with the bounds once, when the iterator enters the block.

use std::ops::{Bound, Range};
use std::sync::Arc;

use super::block::Block;
use super::caches::{BlockIndex, Wanted};
use super::{Table, WalkWindow};
use crate::cache::{self, Guard};
use crate::types::bounds::Bounds;
use crate::types::expiry::{Expiry, value_start};
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// Bytes prefetched when an iterator enters a block.
const FETCH_AHEAD_BYTES: usize = 512;

/// A block held by an iterator.
#[derive(Clone)]
pub(crate) struct BlockPosition {
    table: Arc<Table>,
    index: Arc<BlockIndex>,
    number: usize,
    block: Arc<Block>,
    inside: Range<usize>,
    is_settled: bool,
    /// Sequence number of the iterator.
    at: SeqNo,
}

impl BlockPosition {
    /// Returns the block of a table that may hold `key`, or the first one above it.
    pub(crate) fn of_key(
        table: &Arc<Table>,
        key: &[u8],
        (bounds, at): (&Bounds, SeqNo),
        window: &mut WalkWindow,
    ) -> Result<Option<Self>> {
        // One pin for the index and the block: pins are a large part of a short range.
        let pin = cache::pin();
        let index = table.index_in(Wanted::Key(key), true, &pin)?.into_arc();
        let number = index.find(key);
        Self::enter((table, index), number, (bounds, at), (window, &pin))
    }

    /// Returns the first block of a table with keys inside the bounds, or one before it.
    pub(crate) fn first(
        table: &Arc<Table>,
        (bounds, at): (&Bounds, SeqNo),
        window: &mut WalkWindow,
    ) -> Result<Option<Self>> {
        match &bounds.lower {
            Bound::Included(key) | Bound::Excluded(key) => Self::of_key(table, key, (bounds, at), window),
            Bound::Unbounded => Self::of_key(table, &[], (bounds, at), window),
        }
    }

    /// Returns the last block of a table with keys inside the bounds, or one after it.
    pub(crate) fn last(
        table: &Arc<Table>,
        (bounds, at): (&Bounds, SeqNo),
        window: &mut WalkWindow,
    ) -> Result<Option<Self>> {
        table.ready()?;
        let Some(end) = table.blocks().checked_sub(1) else { return Ok(None) };
        let mut index = match &bounds.upper {
            Bound::Included(key) | Bound::Excluded(key) => table.index(Wanted::Key(key), true)?,
            Bound::Unbounded => table.index(Wanted::Block(end), true)?,
        };
        let mut last = match &bounds.upper {
            Bound::Included(key) | Bound::Excluded(key) => index.find(key),
            Bound::Unbounded => end,
        };
        // The versions of an included key may continue in the following blocks.
        while index.continues(last + 1) {
            last += 1;
            if last == index.range().end {
                index = table.index(Wanted::Block(last), true)?;
            }
        }
        Self::enter((table, index), last, (bounds, at), (window, &cache::pin()))
    }

    /// Returns block `number`. `None` if it does not exist. `index` is that of a neighbouring block.
    fn enter(
        (table, mut index): (&Arc<Table>, Arc<BlockIndex>),
        number: usize,
        (bounds, at): (&Bounds, SeqNo),
        (window, pin): (&mut WalkWindow, &Guard),
    ) -> Result<Option<Self>> {
        if number >= table.blocks() {
            return Ok(None);
        }
        if !index.range().contains(&number) {
            index = table.index_in(Wanted::Block(number), true, pin)?.into_arc();
        }
        let block = table.block_of_walk(&index, number, window, pin)?.into_arc();
        let simd = index.simd();
        // Returns the first entry `>= key`, or `> key` if `beyond`.
        let rank = |key: &[u8], beyond: bool| {
            let (mut at, is_there) = block.lower_bound(key, simd);
            if is_there && beyond {
                while at + 1 < block.count() && block.same_key_as_next(at) {
                    at += 1;
                }
                at += 1;
            }
            at
        };
        let start = match &bounds.lower {
            Bound::Included(key) => rank(key, false),
            Bound::Excluded(key) => rank(key, true),
            Bound::Unbounded => 0,
        };
        let end = match &bounds.upper {
            Bound::Included(key) => rank(key, true),
            Bound::Excluded(key) => rank(key, false),
            Bound::Unbounded => block.count(),
        };
        // The first entry may be an older version of the last key of the preceding block.
        let is_settled = block.all_visible() && table.base_seq() <= at && !index.continues(number);
        Ok(Some(BlockPosition {
            table: table.clone(),
            index,
            number,
            block,
            inside: start..end.max(start),
            is_settled,
            at,
        }))
    }

    /// Returns the first entry with a key `>= key`, or the number of entries if there is none.
    pub(crate) fn rank(&self, key: &[u8]) -> usize {
        self.block.lower_bound(key, self.index.simd()).0
    }

    /// Returns the following block.
    pub(crate) fn next(&self, bounds: &Bounds, window: &mut WalkWindow) -> Result<Option<Self>> {
        Self::enter(
            (&self.table, self.index.clone()),
            self.number + 1,
            (bounds, self.at),
            (window, &cache::pin()),
        )
    }

    /// Returns the preceding block.
    pub(crate) fn prev(&self, bounds: &Bounds, window: &mut WalkWindow) -> Result<Option<Self>> {
        let Some(number) = self.number.checked_sub(1) else { return Ok(None) };
        Self::enter((&self.table, self.index.clone()), number, (bounds, self.at), (window, &cache::pin()))
    }

    /// Number of the block in its table.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Returns the entries inside the bounds.
    #[inline(always)]
    pub(crate) fn inside(&self) -> Range<usize> {
        self.inside.clone()
    }

    /// Returns whether keys of this block are below the bounds.
    pub(crate) fn meets_lower(&self) -> bool {
        self.inside.start > 0
    }

    /// Returns whether keys of this block are above the bounds.
    pub(crate) fn meets_upper(&self) -> bool {
        self.inside.end < self.block.count()
    }

    /// Returns whether entry `i + 1` is the newest version of the next key, visible to the iterator and a put
    /// that does not expire. It must be inside the bounds.
    #[inline]
    pub(crate) fn is_live_after(&self, i: usize) -> bool {
        self.block.kind(i + 1).is_lasting_put()
            && self.seq(i + 1) <= self.at
            && !self.block.same_key_as_next(i)
    }

    /// Returns whether each entry is live, visible and the only version of its key.
    #[inline(always)]
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Returns whether the first entry is an older version of the last key of the preceding block.
    pub(crate) fn continues_key(&self) -> bool {
        self.index.continues(self.number)
    }

    /// Returns whether entries `i` and `i + 1` are versions of one key. `i` must not be the last entry.
    pub(crate) fn same_key_as_next(&self, i: usize) -> bool {
        self.block.same_key_as_next(i)
    }

    /// Number of entries, including those outside the bounds.
    pub(crate) fn count(&self) -> usize {
        self.block.count()
    }

    /// Sequence number of entry `i`.
    pub(crate) fn seq(&self, i: usize) -> SeqNo {
        self.table.seq_of(&self.block, i)
    }

    /// Kind of entry `i`.
    #[inline(always)]
    pub(crate) fn kind(&self, i: usize) -> Kind {
        self.block.kind(i)
    }

    /// Returns the parts of key `i`.
    #[inline(always)]
    pub(crate) fn key_parts<'a>(&'a self, i: usize, head: &'a mut [u8; 4]) -> [&'a [u8]; 3] {
        self.block.key_parts(i, head)
    }

    /// Returns key `i`.
    pub(crate) fn key(&self, i: usize) -> Vec<u8> {
        self.block.key(i)
    }

    /// Returns the value bytes of entry `i` as stored.
    #[inline(always)]
    pub(crate) fn stored(&self, i: usize) -> Stored<&[u8]> {
        Stored::of(self.block.kind(i), self.block.value(i))
    }

    /// Returns a handle to the stored value of entry `i`.
    #[inline(always)]
    pub(crate) fn share(&self, i: usize) -> Stored<Value> {
        let (kind, mut range) = (self.block.kind(i), self.block.value_range(i));
        range.start += value_start(kind, range.len());
        Stored::new(kind, Value::part_of(&self.block, range))
    }

    /// Returns when entry `i` expires, if its kind can.
    #[inline]
    pub(crate) fn expiry(&self, i: usize) -> Option<Expiry> {
        Expiry::of_version(self.block.kind(i), self.block.value(i))
    }

    /// Prefetches what a forward iterator at entry `i` will read soon.
    #[inline(always)]
    pub(crate) fn prefetch_behind(&self, i: usize) {
        self.block.prefetch_behind(i, FETCH_AHEAD_BYTES);
    }

    /// Prefetches what a backward iterator at entry `i` will read soon.
    #[inline(always)]
    pub(crate) fn prefetch_before(&self, i: usize) {
        self.block.prefetch_before(i, FETCH_AHEAD_BYTES);
    }

    /// Prefetches what an iterator that starts at entry `i` reads first.
    pub(crate) fn prefetch(&self, i: usize) {
        self.block.prefetch_walk(i, FETCH_AHEAD_BYTES);
    }
}
