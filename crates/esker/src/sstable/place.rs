//! One block of a table as a walk sees it: its entries, and which of them lie inside the walk's bounds.
//!
//! place.1. Keys of a block are compared with the bounds once, when the walk comes to the block.

use std::ops::{Bound, Range};
use std::sync::Arc;

use super::Table;
use super::block::Block;
use crate::cache;
use crate::types::bounds::Bounds;
use crate::types::expiry::{Expiry, value_start};
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// A walk that comes to a block has so many of its bytes fetched already.
const FETCH_AHEAD_BYTES: usize = 512;

/// A block, held.
#[derive(Clone)]
pub(crate) struct BlockPlace {
    table: Arc<Table>,
    number: usize,
    block: Arc<Block>,
    inside: Range<usize>,
    is_settled: bool,
    /// What the walk sees up to.
    at: SeqNo,
}

impl BlockPlace {
    /// The block of a table that may hold `key`, or the first one above it.
    pub(crate) fn of_key(table: &Arc<Table>, key: &[u8], bounds: &Bounds, at: SeqNo) -> Result<Option<Self>> {
        table.ready()?;
        Self::enter(table, table.index().find(key), bounds, at)
    }

    /// The first block of a table with anything inside the bounds, or one before it.
    pub(crate) fn first(table: &Arc<Table>, bounds: &Bounds, at: SeqNo) -> Result<Option<Self>> {
        match &bounds.lower {
            Bound::Included(key) | Bound::Excluded(key) => Self::of_key(table, key, bounds, at),
            Bound::Unbounded => {
                table.ready()?;
                Self::enter(table, 0, bounds, at)
            }
        }
    }

    /// The last block of a table with anything inside the bounds, or one behind it.
    pub(crate) fn last(table: &Arc<Table>, bounds: &Bounds, at: SeqNo) -> Result<Option<Self>> {
        table.ready()?;
        let index = table.index();
        let mut last = match &bounds.upper {
            Bound::Included(key) | Bound::Excluded(key) => index.find(key).min(index.len().saturating_sub(1)),
            Bound::Unbounded => index.len().saturating_sub(1),
        };
        // The versions of a key that is included may go on in the next blocks.
        while last + 1 < index.len() && index.continues(last + 1) {
            last += 1;
        }
        Self::enter(table, last, bounds, at)
    }

    /// Block `number`; none if there is none.
    fn enter(table: &Arc<Table>, number: usize, bounds: &Bounds, at: SeqNo) -> Result<Option<Self>> {
        if number >= table.index().len() {
            return Ok(None);
        }
        let block = table.block(number, true, &cache::pin())?.into_arc();
        let simd = table.index().simd();
        // The first entry with a key not below `key`, or above it.
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
        // An older version of the key before the block may be its first entry.
        let is_settled = block.all_visible() && table.base_seq() <= at && !table.index().continues(number);
        Ok(Some(BlockPlace {
            table: table.clone(),
            number,
            block,
            inside: start..end.max(start),
            is_settled,
            at,
        }))
    }

    /// The first entry with a key not below `key`; the number of entries if there is none.
    pub(crate) fn rank(&self, key: &[u8]) -> usize {
        self.block.lower_bound(key, self.table.index().simd()).0
    }

    /// The block behind this one.
    pub(crate) fn next(&self, bounds: &Bounds) -> Result<Option<Self>> {
        Self::enter(&self.table, self.number + 1, bounds, self.at)
    }

    /// The block before this one.
    pub(crate) fn prev(&self, bounds: &Bounds) -> Result<Option<Self>> {
        self.number
            .checked_sub(1)
            .map_or(Ok(None), |number| Self::enter(&self.table, number, bounds, self.at))
    }

    /// The number of the block in its table.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The entries inside the bounds (place.1).
    #[inline(always)]
    pub(crate) fn inside(&self) -> Range<usize> {
        self.inside.clone()
    }

    /// Whether keys of the block, or of blocks before it, lie below the bounds.
    pub(crate) fn meets_lower(&self) -> bool {
        self.inside.start > 0
    }

    /// Whether keys of the block, or of blocks behind it, lie above the bounds.
    pub(crate) fn meets_upper(&self) -> bool {
        self.inside.end < self.block.count()
    }

    /// Whether each entry is the only version of its key, live, and seen by the walk.
    #[inline(always)]
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether the first entry is an older version of the key before the block.
    pub(crate) fn continues_key(&self) -> bool {
        self.table.index().continues(self.number)
    }

    /// Whether entry `i`, which is not the last, and the next one are versions of one key.
    pub(crate) fn same_key_as_next(&self, i: usize) -> bool {
        self.block.same_key_as_next(i)
    }

    /// The number of entries, also of those outside the bounds.
    pub(crate) fn count(&self) -> usize {
        self.block.count()
    }

    /// The sequence number of entry `i`.
    pub(crate) fn seq(&self, i: usize) -> SeqNo {
        self.table.seq_of(&self.block, i)
    }

    /// What entry `i` says about its key.
    #[inline(always)]
    pub(crate) fn kind(&self, i: usize) -> Kind {
        self.block.kind(i)
    }

    /// The parts that make up key `i`.
    #[inline(always)]
    pub(crate) fn key_parts<'a>(&'a self, i: usize, head: &'a mut [u8; 4]) -> [&'a [u8]; 3] {
        self.block.key_parts(i, head)
    }

    /// Key `i`.
    pub(crate) fn key(&self, i: usize) -> Vec<u8> {
        self.block.key(i)
    }

    /// What stands beside key `i`.
    #[inline(always)]
    pub(crate) fn value(&self, i: usize) -> &[u8] {
        self.block.value(i)
    }

    /// The value of entry `i`, as it is stored.
    #[inline(always)]
    pub(crate) fn stored(&self, i: usize) -> Stored<&[u8]> {
        Stored::of(self.block.kind(i), self.block.value(i))
    }

    /// The same as a handle.
    #[inline(always)]
    pub(crate) fn share(&self, i: usize) -> Stored<Value> {
        let (kind, mut range) = (self.block.kind(i), self.block.value_range(i));
        range.start += value_start(kind, range.len());
        Stored::new(kind, Value::part_of(&self.block, range))
    }

    /// When entry `i` expires; none if its kind does not.
    #[inline]
    pub(crate) fn expiry(&self, i: usize) -> Option<Expiry> {
        Expiry::of_version(self.block.kind(i), self.block.value(i))
    }

    /// Has the memory fetched that a walk at entry `i` reads some entries later.
    #[inline(always)]
    pub(crate) fn prefetch_behind(&self, i: usize) {
        self.block.prefetch_behind(i, FETCH_AHEAD_BYTES);
    }

    /// The same for a walk backwards.
    #[inline(always)]
    pub(crate) fn prefetch_before(&self, i: usize) {
        self.block.prefetch_before(i, FETCH_AHEAD_BYTES);
    }

    /// Has the memory fetched that a walk from entry `i` on reads first.
    pub(crate) fn prefetch(&self, i: usize) {
        self.block.prefetch_walk(i, FETCH_AHEAD_BYTES);
    }
}
