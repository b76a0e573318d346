//! Looks up one key in a table.
//!
//! ```text
//!   get: key, hash --filter--> [root --page-->] index --block number--> slot --in memory--> lower_bound
//!                                                                       `--empty--> OnMiss: read, insert
//! ```
//!
//! The versions of a key may continue in the next block (`Index::continues`). A cached lookup has two cache
//! misses: the heads of the block, and the entry.

use std::sync::Arc;

use super::Table;
use super::blocks::ItemRef;
use super::loading::Loaded;
use crate::cache::Guard;
use crate::sstable::block::Block;
use crate::sstable::caches::{BlockIndex, Wanted};
use crate::types::expiry::{Expiry, value_start};
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Error, Result, SeqNo, Value};

/// What a lookup does if a block is not in memory.
pub(crate) trait OnMiss {
    /// Why there is no answer.
    type Error: From<Error>;
    /// Returns the block.
    fn load(table: &Table, index: &BlockIndex, number: usize, pin: &Guard)
    -> Result<Arc<Block>, Self::Error>;
    /// Loads the parts of a table that is not loaded yet.
    fn load_parts(table: &Table) -> Result<&Loaded, Self::Error>;
    /// Loads the index, or the page of it, that finds what is wanted.
    fn load_index(
        table: &Table,
        loaded: &Loaded,
        wanted: Wanted<'_>,
        pin: &Guard,
    ) -> Result<Arc<BlockIndex>, Self::Error>;
    /// Returns whether the table may hold the key with this hash.
    fn may_contain(table: &Table, loaded: &Loaded, hash: u64, pin: &Guard) -> Result<bool, Self::Error>;
}

/// Reads the block from the file.
pub(crate) struct ReadOnMiss;
/// Fails without reading the file.
pub(crate) struct MemoryOnly;

/// Why a lookup in memory has no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The file would have to be read.
    NotInMemory,
    /// The lookup failed.
    Failed(Error),
}

impl From<Error> for NoAnswer {
    fn from(error: Error) -> Self {
        NoAnswer::Failed(error)
    }
}

impl OnMiss for ReadOnMiss {
    type Error = Error;
    #[inline]
    fn load(table: &Table, index: &BlockIndex, number: usize, pin: &Guard) -> Result<Arc<Block>> {
        table.load(index, number, true, pin)
    }
    fn load_parts(table: &Table) -> Result<&Loaded> {
        table.load_parts()
    }
    fn load_index(
        table: &Table,
        loaded: &Loaded,
        wanted: Wanted<'_>,
        pin: &Guard,
    ) -> Result<Arc<BlockIndex>> {
        table.load_index(loaded, wanted, true, pin)
    }
    #[inline(always)]
    fn may_contain(table: &Table, loaded: &Loaded, hash: u64, pin: &Guard) -> Result<bool> {
        match loaded.filter.touch(0, pin) {
            Some(filter) => Ok(filter.0.may_contain(hash)),
            None => table.ask_filter(loaded, hash, pin),
        }
    }
}

impl OnMiss for MemoryOnly {
    type Error = NoAnswer;
    fn load(_: &Table, _: &BlockIndex, _: usize, _: &Guard) -> Result<Arc<Block>, NoAnswer> {
        Err(NoAnswer::NotInMemory)
    }
    fn load_parts(_: &Table) -> Result<&Loaded, NoAnswer> {
        Err(NoAnswer::NotInMemory)
    }
    fn load_index(_: &Table, _: &Loaded, _: Wanted<'_>, _: &Guard) -> Result<Arc<BlockIndex>, NoAnswer> {
        Err(NoAnswer::NotInMemory)
    }
    #[inline(always)]
    fn may_contain(_: &Table, loaded: &Loaded, hash: u64, pin: &Guard) -> Result<bool, NoAnswer> {
        Ok(loaded.may_contain(hash, pin))
    }
}

/// A version found in a table, in place.
pub(crate) struct Found<'g> {
    block: ItemRef<'g, Block>,
    entry: usize,
    seq: SeqNo,
}

impl Found<'_> {
    /// Returns the version independent of the index in which it was found.
    fn owned<'g>(self) -> Found<'g> {
        Found { block: ItemRef::Loaded(self.block.into_arc()), entry: self.entry, seq: self.seq }
    }

    /// Sequence number of the version.
    #[inline(always)]
    pub(crate) fn seq(&self) -> SeqNo {
        self.seq
    }

    /// Kind of the version.
    #[inline(always)]
    pub(crate) fn kind(&self) -> Kind {
        self.block.kind(self.entry)
    }

    /// Returns the expiry of the version, or `None` if it does not expire.
    #[inline]
    pub(crate) fn expiry(&self) -> Option<Expiry> {
        Expiry::of_version(self.kind(), &self.block.bytes()[self.block.value_range(self.entry)])
    }

    /// Returns the stored value. A small value is copied; a larger one keeps its block alive.
    #[inline(always)]
    pub(crate) fn share(self) -> Stored<Value> {
        let (kind, mut range) = (self.kind(), self.block.value_range(self.entry));
        range.start += value_start(kind, range.len());
        let value = if Value::is_small(range.len()) {
            Value::copy_of(&self.block.bytes()[range])
        } else {
            Value::slice_of(self.block.into_arc(), range)
        };
        Stored::new(kind, value)
    }
}

/// The newest version of a key among the blocks of an index.
enum Newest<'g> {
    /// The version, or `None` if there is none.
    Is(Option<Found<'g>>),
    /// It can only be in this block, which starts the next page of the index, or in later ones.
    InNextPage(usize),
}

impl Table {
    /// Returns the newest version of `key` visible at `at`, including tombstones. The caller must check range
    /// tombstones. `hash` is the hash of the key.
    ///
    /// Probing the filter costs a cache miss, about as much as searching a cached block. With `filter_first`
    /// the filter is probed first, which pays if the key is likely absent. Otherwise it is probed only before
    /// a block is read from the file.
    #[inline]
    pub(crate) fn get<'g>(
        &'g self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        filter_first: bool,
        pin: &'g Guard,
    ) -> Result<Option<Found<'g>>> {
        self.get_by::<ReadOnMiss>(key, hash, at, filter_first, pin)
    }

    /// Like `get`, with a policy for blocks that are not in memory.
    #[inline]
    pub(crate) fn get_by<'g, M: OnMiss>(
        &'g self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        filter_first: bool,
        pin: &'g Guard,
    ) -> Result<Option<Found<'g>>, M::Error> {
        let loaded = match self.loaded.get() {
            Some(loaded) => loaded,
            None => M::load_parts(self)?,
        };
        if filter_first && !M::may_contain(self, loaded, hash, pin)? {
            return Ok(None);
        }
        match loaded.index.touch(Wanted::Key(key), pin) {
            Some(index) => self.find::<M>(index.get(), key, hash, at, pin),
            None => self.find_loading::<M>(key, hash, at, pin),
        }
    }

    /// Like `find`, for a table whose index, or the page of it, is not in memory.
    #[cold]
    fn find_loading<'g, M: OnMiss>(
        &'g self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        pin: &'g Guard,
    ) -> Result<Option<Found<'g>>, M::Error> {
        let loaded = self.loaded();
        if !loaded.may_contain(hash, pin) {
            return Ok(None);
        }
        let index = M::load_index(self, loaded, Wanted::Key(key), pin)?;
        Ok(self.find::<M>(&index, key, hash, at, pin)?.map(Found::owned))
    }

    /// Returns the sequence number of the newest version of `key`, of any kind.
    pub(crate) fn newest_seq(&self, key: &[u8], hash: u64, pin: &Guard) -> Result<Option<SeqNo>> {
        Ok(self.get(key, hash, SeqNo::MAX, true, pin)?.map(|found| found.seq()))
    }

    /// Returns the newest version of a key after `since`, ignoring sweeps (conflict.3).
    pub(crate) fn newest_written(
        &self,
        key: &[u8],
        hash: u64,
        since: SeqNo,
        pin: &Guard,
    ) -> Result<Option<SeqNo>> {
        let mut below = SeqNo::MAX;
        while let Some(found) = self.get(key, hash, below, true, pin)?
            && found.seq() > since
        {
            if !found.kind().is_sweep() {
                return Ok(Some(found.seq()));
            }
            let Some(before) = found.seq().before() else { break };
            below = before;
        }
        Ok(None)
    }

    /// Returns the newest version of `key` up to `at`.
    #[inline]
    fn find<'g, M: OnMiss>(
        &self,
        index: &'g BlockIndex,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        pin: &'g Guard,
    ) -> Result<Option<Found<'g>>, M::Error> {
        let number = index.find(key);
        if number >= index.range().end {
            return Ok(None);
        }
        let block = match index.load(number, pin) {
            Some(block) => ItemRef::Pinned(block),
            None if !M::may_contain(self, self.loaded(), hash, pin)? => return Ok(None),
            None => ItemRef::Loaded(M::load(self, index, number, pin)?),
        };
        let (entry, found) = block.lower_bound(key, index.simd());
        if !found {
            return Ok(None);
        }
        match self.newest_from::<M>(index, (number, block, entry), at, pin)? {
            Newest::Is(found) => Ok(found),
            Newest::InNextPage(number) => self.newest_in_pages::<M>(number, at, pin),
        }
    }

    /// Returns the newest version up to `at` of a key, among this entry of a block and the following ones of
    /// the index.
    #[inline(always)]
    fn newest_from<'g, M: OnMiss>(
        &self,
        index: &'g BlockIndex,
        (mut number, mut block, mut i): (usize, ItemRef<'g, Block>, usize),
        at: SeqNo,
        pin: &'g Guard,
    ) -> Result<Newest<'g>, M::Error> {
        loop {
            let seq = self.seq_of(&block, i);
            if seq <= at {
                return Ok(Newest::Is(Some(Found { block, entry: i, seq })));
            }
            if i + 1 < block.count() {
                if !block.same_key_as_next(i) {
                    return Ok(Newest::Is(None));
                }
                i += 1;
            } else {
                number += 1;
                if !index.continues(number) {
                    return Ok(Newest::Is(None));
                }
                if number == index.range().end {
                    return Ok(Newest::InNextPage(number));
                }
                block = match index.load(number, pin) {
                    Some(block) => ItemRef::Pinned(block),
                    None => ItemRef::Loaded(M::load(self, index, number, pin)?),
                };
                i = 0;
            }
        }
    }

    /// Like `newest_from`, for the first entry of a block that starts a page of the index, and for as many
    /// pages as the versions of the key continue in.
    #[cold]
    fn newest_in_pages<'g, M: OnMiss>(
        &self,
        mut number: usize,
        at: SeqNo,
        pin: &'g Guard,
    ) -> Result<Option<Found<'g>>, M::Error> {
        let loaded = self.loaded();
        loop {
            let wanted = Wanted::Block(number);
            let index = match loaded.index.touch(wanted, pin) {
                Some(index) => index.to_arc(),
                None => M::load_index(self, loaded, wanted, pin)?,
            };
            let block = match index.load(number, pin) {
                Some(block) => block.to_arc(),
                None => M::load(self, &index, number, pin)?,
            };
            match self.newest_from::<M>(&index, (number, ItemRef::Loaded(block), 0), at, pin)? {
                Newest::Is(found) => return Ok(found.map(Found::owned)),
                Newest::InNextPage(next) => number = next,
            }
        }
    }
}
