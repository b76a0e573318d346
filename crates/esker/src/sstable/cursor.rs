//! A cursor over the keys of a table that are visible to a reader, in both directions.
//!
//! ```text
//!   entries:       a@9 a@5 a@2 | b@7 | c@8 c@1        a reader at 6 sees: a@5, c@1
//! ```
//!
//! A valid cursor has a current block and is on the newest version of a key up to `at`.
//!
//! `key` holds the whole key: while the cursor moves within a block, the prefix of the block stays in place.
//! The cursor holds its current block, the index, or the page of it, that finds the block, and a window of
//! the file (table/walk_window.rs). An idle cursor keeps these in memory. After an error the cursor is not
//! valid.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::block::Block;
use super::caches::{BlockIndex, Wanted};
use super::{Table, WalkWindow};
use crate::cache::{self, Guard};
use crate::types::bounds::BoundKey;
use crate::types::cursor::SourceCursor;
use crate::types::expiry::{Expiry, value_start};
use crate::types::key::prefix_len;
use crate::types::key_room::KeyRoom;
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// Distance of the prefetch after the current entry. Entries are read in sequence, but a scan may be too
/// short for the hardware prefetcher.
const FETCH_AHEAD_BYTES: usize = 512;

/// In a block with versions, at most this number of next entries is looked at to see whether they are plain.
const PLAIN_COUNTED_MAX: usize = 32;

/// A cursor over a table.
pub(crate) struct TableCursor {
    table: Arc<Table>,
    at: SeqNo,
    window: WalkWindow,
    /// The index, or the page with the current block. Set by the first seek.
    index: Option<Arc<BlockIndex>>,
    current: Option<CurrentBlock>,
    /// Index of the current entry, if the cursor is valid.
    entry: usize,
    valid: bool,
    key: KeyRoom,
    /// The block whose prefix starts `key`; `usize::MAX` if none.
    key_block: usize,
}

/// The current block.
struct CurrentBlock {
    number: usize,
    block: Arc<Block>,
    /// Whether each entry is live, visible to the reader and the only version of its key.
    is_settled: bool,
}

impl TableCursor {
    pub(super) fn new(table: Arc<Table>, at: SeqNo, fill_cache: bool) -> Self {
        TableCursor {
            table,
            at,
            window: WalkWindow::new(fill_cache),
            index: None,
            current: None,
            entry: 0,
            valid: false,
            key: KeyRoom::default(),
            key_block: usize::MAX,
        }
    }

    /// Returns the index. A seek must have begun.
    #[inline(always)]
    fn index(&self) -> &BlockIndex {
        self.index.as_ref().expect("a cursor that was moved has an index")
    }

    /// Returns the current block.
    #[inline(always)]
    fn block(&self) -> &Block {
        &self.current.as_ref().expect("a valid cursor has a block").block
    }

    #[inline(always)]
    fn number(&self) -> usize {
        self.current.as_ref().expect("a valid cursor has a block").number
    }

    /// Begins a seek. Returns false if the table has no blocks.
    #[inline(always)]
    fn begin(&mut self) -> Result<bool> {
        self.valid = false;
        self.table.ready()?;
        Ok(self.table.blocks() > 0)
    }

    /// Takes the index, or the page of it, that finds what is wanted.
    fn turn_page(&mut self, wanted: Wanted<'_>, pin: &Guard) -> Result<()> {
        self.index = Some(self.table.index_in(wanted, self.window.fills_cache, pin)?.into_arc());
        Ok(())
    }

    /// Makes block `number` the current block.
    #[inline]
    fn enter(&mut self, number: usize) -> Result<()> {
        let is_indexed = self.index.as_ref().is_some_and(|index| index.range().contains(&number));
        if is_indexed && self.current.as_ref().is_some_and(|current| current.number == number) {
            return Ok(());
        }
        self.enter_pinned(number, &cache::pin())
    }

    #[inline]
    fn enter_pinned(&mut self, number: usize, pin: &Guard) -> Result<()> {
        if self.index.as_ref().is_none_or(|index| !index.range().contains(&number)) {
            self.turn_page(Wanted::Block(number), pin)?;
        }
        let (table, index) = (&self.table, self.index.as_ref().expect("its page was turned to"));
        let block = table.block_of_walk(index, number, &mut self.window, pin)?.into_arc();
        let is_settled = block.all_visible() && table.base_seq() <= self.at && !index.continues(number);
        self.current = Some(CurrentBlock { number, block, is_settled });
        Ok(())
    }

    /// Returns whether the entry after `entry` of the current block is the newest version of the next key,
    /// visible, and a put of an inline value that does not expire.
    #[inline]
    fn is_plain_after(&self, entry: usize) -> bool {
        let block = self.block();
        entry + 1 < block.count()
            && block.kind(entry + 1).is_plain()
            && self.table.seq_of(block, entry + 1) <= self.at
            && !block.same_key_as_next(entry)
    }

    /// Moves to an entry of the current block.
    #[inline(always)]
    fn stand_on(&mut self, entry: usize) {
        let current = self.current.as_ref().expect("a valid cursor has a block");
        if self.key_block != current.number {
            self.key.set_prefix(current.block.prefix());
            self.key_block = current.number;
        }
        current.block.prefetch_behind(entry, FETCH_AHEAD_BYTES);
        let mut head = [0; 4];
        let [prefix, head, rest] = current.block.key_parts(entry, &mut head);
        self.key.set_suffix(prefix.len(), head, rest);
        self.entry = entry;
        self.valid = true;
    }

    /// Moves to the first visible entry at or after `entry` of the current block. That entry must be the
    /// newest version of its key, or follow only invisible versions of it; the first visible one is then the
    /// newest.
    #[inline]
    fn settle_forward(&mut self, mut entry: usize) -> Result<()> {
        loop {
            let block = self.block();
            while entry < block.count() {
                if self.table.seq_of(block, entry) <= self.at {
                    self.stand_on(entry);
                    return Ok(());
                }
                entry += 1;
            }
            let next = self.number() + 1;
            if next == self.table.blocks() {
                return Ok(());
            }
            self.enter(next)?;
            entry = 0;
        }
    }

    /// Moves to the newest visible version of the last key that has one, among the entries before `entry` of
    /// the current block. `entry` must be at the start of a key.
    fn settle_backward(&mut self, mut entry: usize) -> Result<()> {
        let mut found: Option<(usize, usize)> = None;
        loop {
            let block = self.block();
            while entry > 0 {
                entry -= 1;
                if self.table.seq_of(block, entry) <= self.at {
                    found = Some((self.number(), entry));
                }
                let key_ends = entry > 0 && !block.same_key_as_next(entry - 1);
                if key_ends && found.is_some() {
                    break;
                }
            }
            let number = self.number();
            let key_goes_on = entry == 0 && self.index().continues(number);
            if let Some((number, entry)) = found
                && !key_goes_on
            {
                self.enter(number)?;
                self.stand_on(entry);
                return Ok(());
            }
            if number == 0 {
                return Ok(());
            }
            self.enter(number - 1)?;
            entry = self.block().count();
        }
    }

    /// Enters the block that may hold `key` and returns its first entry `>= key`.
    #[inline]
    fn search(&mut self, key: &[u8]) -> Result<usize> {
        if self.index.as_ref().is_some_and(|index| index.covers(key)) {
            self.enter(self.index().find(key))?;
        } else {
            // One pin for the index and the block: pins are a large part of a short range.
            let pin = cache::pin();
            self.turn_page(Wanted::Key(key), &pin)?;
            self.enter_pinned(self.index().find(key), &pin)?;
        }
        Ok(self.block().lower_bound(key, self.index().simd()).0)
    }
}

impl TableCursor {
    /// Passes the next `count` user keys and their values to `visit` until it breaks. `plain_before` has
    /// counted them. Ends on the last entry visited.
    #[inline]
    pub(crate) fn visit_plain(
        &mut self,
        count: usize,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let user_key = prefix_len(&self.key);
        let current = self.current.as_ref().expect("a valid cursor has a block");
        for entry in self.entry + 1..=self.entry + count {
            let mut head = [0; 4];
            let [prefix, head, rest] = current.block.key_parts(entry, &mut head);
            self.key.set_suffix(prefix.len(), head, rest);
            current.block.prefetch_behind(entry, FETCH_AHEAD_BYTES);
            self.entry = entry;
            visit(&self.key[user_key..], current.block.value(entry))?;
        }
        ControlFlow::Continue(())
    }
}

impl SourceCursor for TableCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if !self.begin()? {
            return Ok(());
        }
        let entry = self.search(key)?;
        self.block().prefetch_walk(entry, FETCH_AHEAD_BYTES);
        self.settle_forward(entry)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        if !self.begin()? {
            return Ok(());
        }
        let entry = self.search(key)?;
        self.settle_backward(entry)
    }

    fn seek_first(&mut self) -> Result<()> {
        if !self.begin()? {
            return Ok(());
        }
        self.enter(0)?;
        self.settle_forward(0)
    }

    fn seek_last(&mut self) -> Result<()> {
        if !self.begin()? {
            return Ok(());
        }
        self.enter(self.table.blocks() - 1)?;
        let end = self.block().count();
        self.settle_backward(end)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        assert!(self.valid, "next on a cursor that stands on no key");
        let mut entry = self.entry;
        let current = self.current.as_ref().expect("a valid cursor has a block");
        if current.is_settled && entry + 1 < current.block.count() {
            self.stand_on(entry + 1);
            return Ok(());
        }
        self.valid = false;
        loop {
            let block = self.block();
            while entry + 1 < block.count() {
                entry += 1;
                if !block.same_key_as_next(entry - 1) {
                    return self.settle_forward(entry);
                }
            }
            let next = self.number() + 1;
            if next == self.table.blocks() {
                return Ok(());
            }
            let key_goes_on = self.index().continues(next);
            self.enter(next)?;
            if !key_goes_on {
                return self.settle_forward(0);
            }
            entry = 0;
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        assert!(self.valid, "prev on a cursor that stands on no key");
        let mut entry = self.entry;
        if entry > 0 && self.current.as_ref().is_some_and(|current| current.is_settled) {
            self.stand_on(entry - 1);
            return Ok(());
        }
        self.valid = false;
        // Newer versions of the key precede this one.
        loop {
            let block = self.block();
            while entry > 0 {
                if !block.same_key_as_next(entry - 1) {
                    return self.settle_backward(entry);
                }
                entry -= 1;
            }
            let number = self.number();
            if number == 0 {
                return Ok(());
            }
            let key_goes_on = self.index().continues(number);
            self.enter(number - 1)?;
            let count = self.block().count();
            if !key_goes_on {
                return self.settle_backward(count);
            }
            entry = count - 1;
        }
    }

    #[inline(always)]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline(always)]
    fn key(&self) -> &[u8] {
        assert!(self.valid, "key of a cursor that stands on none");
        &self.key
    }

    #[inline(always)]
    fn seq(&self) -> SeqNo {
        assert!(self.valid, "sequence number of a cursor that stands on no key");
        self.table.seq_of(self.block(), self.entry)
    }

    #[inline(always)]
    fn kind(&self) -> Kind {
        assert!(self.valid, "kind of a cursor that stands on no key");
        self.block().kind(self.entry)
    }

    #[inline(always)]
    fn stored(&self) -> Stored<&[u8]> {
        assert!(self.valid, "value of a cursor that stands on no key");
        Stored::of(self.kind(), self.block().value(self.entry))
    }

    #[inline]
    fn expiry(&self) -> Option<Expiry> {
        Expiry::of_version(self.kind(), self.block().value(self.entry))
    }

    #[inline]
    fn share(&self) -> Stored<Value> {
        assert!(self.valid, "value of a cursor that stands on no key");
        let current = self.current.as_ref().expect("a valid cursor has a block");
        let (kind, mut range) = (current.block.kind(self.entry), current.block.value_range(self.entry));
        range.start += value_start(kind, range.len());
        Stored::new(kind, Value::part_of(&current.block, range))
    }

    fn older(&mut self) -> Result<bool> {
        assert!(self.valid, "older version of a cursor that stands on no key");
        let (number, entry) = (self.number(), self.entry);
        let block = self.block();
        if entry + 1 < block.count() {
            if !block.same_key_as_next(entry) {
                return Ok(false);
            }
            self.entry += 1;
            return Ok(true);
        }
        let next = number + 1;
        if next == self.table.blocks() || !self.index().continues(next) {
            return Ok(false);
        }
        self.valid = false;
        self.enter(next)?;
        self.stand_on(0);
        Ok(true)
    }

    fn stored_ahead(&self, keys: usize) -> Option<Stored<&[u8]>> {
        let (block, entry) = (&self.current.as_ref()?.block, self.entry + keys);
        (entry < block.count()).then(|| Stored::of(block.kind(entry), block.value(entry)))
    }

    fn plain_before(&self, rival: Option<&[u8]>, upper: &Bound<BoundKey>) -> usize {
        assert!(self.valid, "the keys after a cursor that stands on none");
        let Some(current) = self.current.as_ref() else { return 0 };
        if !current.is_settled && !self.is_plain_after(self.entry) {
            return 0;
        }
        let (block, simd) = (&current.block, self.index().simd());
        let below_rival = rival.map_or(block.count(), |key| block.lower_bound(key, simd).0);
        let inside = match upper {
            Bound::Unbounded => block.count(),
            Bound::Excluded(key) => block.lower_bound(key, simd).0,
            Bound::Included(key) => {
                let (rank, is_there) = block.lower_bound(key, simd);
                rank + usize::from(is_there)
            }
        };
        let end = below_rival.min(inside);
        if current.is_settled {
            return end.saturating_sub(self.entry + 1);
        }
        let next = self.entry..end.saturating_sub(1).min(self.entry + PLAIN_COUNTED_MAX);
        next.take_while(|&entry| self.is_plain_after(entry)).count()
    }

    #[inline]
    fn step(&mut self) {
        self.stand_on(self.entry + 1);
    }
}
