//! An open table: finds blocks, caches them, and answers point reads.
//!
//! ```text
//!   get: key, hash --filter--> index --block number--> slot --in memory--> lower_bound --> Found
//!                                                       `--empty--> read, verify, insert
//! ```
//!
//! table.1. Everything read from the file is verified: checksum, structure and position. (See stored.1. The
//!     first and last keys of a block are checked too: an iterator over a block at the wrong position might
//!     never end.)
//! table.5. The entries and range tombstones of an adopted table (engine/writes/adoption.rs) have sequence
//!     number 0 in the file. They all belong to one commit, the base, which is recorded in the manifest.
//! table.6. A table described by the manifest is opened by its first reader. Its index is loaded then, and
//!     the properties of the file are compared with the manifest. Before that, the table uses no memory and
//!     no file descriptor. Exception: a table with range tombstones is loaded immediately.
//!
//! The versions of a key may continue in the next block (`Index::continues`). A cached lookup has two cache
//! misses: the heads of the block, and the entry. A filter is loaded only when it was needed [`FILTER_ASKS`]
//! times: it is larger than the index, and a single lookup is faster without it. An unloaded filter admits
//! every key. While the cache has free space, a miss reads 128 KiB around the block, which takes little
//! longer than 8 KiB. The file of a table marked obsolete is removed when the last reference is dropped.
//!
//! Bytes: docs/formats/sstable.md

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use esker_env::{Env, FsRef, OpenOptions, PageBuf};
use parking_lot::Mutex;

use super::block::Block;
use super::counts::Counts;
use super::cursor::TableCursor;
use super::footer::Footer;
use super::index::Index;
use super::parts::{Parts, has_end, parse_block, read_footer, read_stored};
use super::properties::{Properties, decode_tombstones};
use super::scan::TableScan;
use super::stored::{self, Salt};
use super::{BlockCache, TableMeta};
use crate::cache::{self, BudgetKind, CacheItem, CachedBlocks, Guard, Pinned, Reservation};
use crate::encoding::bloom::BlockedBloom;
use crate::types::descriptors::{Descriptors, ReadFile};
use crate::types::due::Due;
use crate::types::expiry::{Expiry, value_start};
use crate::types::op::Kind;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::stored::Stored;
use crate::types::{Error, Result, SeqNo, Value};

/// Bytes read around a block that is not cached.
const AROUND_BYTES: u64 = 128 << 10;
/// With less free cache space, a block is read alone.
const ROOM_TO_READ_AROUND: u64 = 1 << 20;
/// Number of times a filter is needed before it is loaded.
const FILTER_ASKS: u32 = 8;

impl CacheItem for Block {
    fn size_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn first_bytes(&self) -> *const u8 {
        self.bytes().as_ptr()
    }
}

/// An open table.
pub(crate) struct Table {
    path: PathBuf,
    /// Set once the table is loaded (table.6).
    loaded: OnceLock<Loaded>,
    /// What is needed for loading. The lock makes other threads wait for the loading thread.
    source: Mutex<Source>,
    /// Zero except for an adopted table (table.5). Set before the table is part of a version. Relaxed:
    /// publication of the version orders it.
    base_seq: AtomicU64,
    /// The range tombstones with the base as sequence number, if there are any.
    based_tombstones: OnceLock<RangeTombstones>,
    /// Returned for a table that is not loaded.
    no_tombstones: RangeTombstones,
    /// When its entries are due to be swept.
    due: Due,
    obsolete: Mutex<Option<Remover>>,
}

/// Where a table is loaded from.
struct Source {
    fs: FsRef,
    cache: Arc<BlockCache>,
    /// The description in the manifest, if there is one.
    stated: Option<TableMeta>,
}

/// What a table keeps in memory besides its blocks.
struct Loaded {
    file: Arc<ReadFile>,
    index: Index,
    /// Set once the filter is loaded.
    filter: OnceLock<Filter>,
    /// Position of the filter in the file; empty if there is none.
    filter_extent: Range<u64>,
    /// Number of times the filter was needed before it was loaded. Relaxed: it orders nothing.
    filter_asks: AtomicU32,
    blocks: CachedBlocks<Block>,
    tombstones: RangeTombstones,
    properties: Properties,
    newest_commit: SeqNo,
    salt: Salt,
    file_bytes: u64,
    _memory: Reservation,
}

/// A filter in memory.
struct Filter {
    bloom: BlockedBloom,
    _memory: Reservation,
}

/// Removes the file of a table, if removal is still allowed.
pub(crate) type Remover = Arc<dyn Fn(&Path) + Send + Sync>;

/// A remover that always removes.
#[cfg(test)]
pub(crate) fn plain_remover(env: &Env) -> Remover {
    let fs = env.fs.clone();
    Arc::new(move |path| fs.remove_file(path).unwrap())
}

/// A block used by a read: protected by the caller's pin if it was cached, otherwise owned.
pub(super) enum BlockUse<'g> {
    Pinned(Pinned<'g, Block>),
    Loaded(Arc<Block>),
}

impl std::ops::Deref for BlockUse<'_> {
    type Target = Block;
    #[inline(always)]
    fn deref(&self) -> &Block {
        match self {
            BlockUse::Pinned(block) => block,
            BlockUse::Loaded(block) => block,
        }
    }
}

impl BlockUse<'_> {
    #[inline(always)]
    pub(super) fn into_arc(self) -> Arc<Block> {
        match self {
            BlockUse::Pinned(block) => block.to_arc(),
            BlockUse::Loaded(block) => block,
        }
    }
}

/// What a lookup does if a block is not in memory.
pub(crate) trait OnMiss {
    /// Why there is no answer.
    type Error: From<Error>;
    /// Returns the block.
    fn load(table: &Table, number: usize, pin: &Guard) -> Result<Arc<Block>, Self::Error>;
    /// Loads the parts of a table that is not loaded yet.
    #[expect(private_interfaces, reason = "only tables call it")]
    fn load_parts(table: &Table) -> Result<&Loaded, Self::Error>;
    /// Returns whether the table may hold the key with this hash.
    #[expect(private_interfaces, reason = "only tables call it")]
    fn may_contain(table: &Table, loaded: &Loaded, hash: u64) -> Result<bool, Self::Error>;
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
    fn load(table: &Table, number: usize, pin: &Guard) -> Result<Arc<Block>> {
        table.load(number, true, pin)
    }
    #[expect(private_interfaces, reason = "only tables call it")]
    fn load_parts(table: &Table) -> Result<&Loaded> {
        table.load_parts()
    }
    #[expect(private_interfaces, reason = "only tables call it")]
    #[inline(always)]
    fn may_contain(table: &Table, loaded: &Loaded, hash: u64) -> Result<bool> {
        match loaded.filter.get() {
            Some(filter) => Ok(filter.bloom.may_contain(hash)),
            None => table.ask_filter(loaded, hash),
        }
    }
}

impl OnMiss for MemoryOnly {
    type Error = NoAnswer;
    fn load(_: &Table, _: usize, _: &Guard) -> Result<Arc<Block>, NoAnswer> {
        Err(NoAnswer::NotInMemory)
    }
    #[expect(private_interfaces, reason = "only tables call it")]
    fn load_parts(_: &Table) -> Result<&Loaded, NoAnswer> {
        Err(NoAnswer::NotInMemory)
    }
    #[expect(private_interfaces, reason = "only tables call it")]
    #[inline(always)]
    fn may_contain(_: &Table, loaded: &Loaded, hash: u64) -> Result<bool, NoAnswer> {
        Ok(loaded.may_contain(hash))
    }
}

/// A version found in a table, in place.
pub(crate) struct Found<'g> {
    block: BlockUse<'g>,
    entry: usize,
    seq: SeqNo,
}

impl Found<'_> {
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

    /// Returns when the version expires, if its kind can.
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

impl Table {
    /// Opens a table and verifies everything except its data blocks, which are verified when read.
    pub(crate) fn open(env: &Env, path: &Path, cache: &Arc<BlockCache>) -> Result<Arc<Table>> {
        Self::open_at(env, path, cache, SeqNo::ZERO)
    }

    /// Opens a table with this base (table.5).
    pub(crate) fn open_at(
        env: &Env,
        path: &Path,
        cache: &Arc<BlockCache>,
        base_seq: SeqNo,
    ) -> Result<Arc<Table>> {
        let mut table = Self::unopened(env, path, cache, base_seq, None);
        table.load_all()?;
        table.due = due_of(&table.loaded().properties.counts);
        Ok(Arc::new(table))
    }

    /// Creates a table from its description in the manifest. It is opened by its first reader (table.6).
    pub(crate) fn described(
        env: &Env,
        path: &Path,
        cache: &Arc<BlockCache>,
        meta: &TableMeta,
    ) -> Result<Arc<Table>> {
        let table = Self::unopened(env, path, cache, meta.base_seq, Some(meta.clone()));
        if meta.counts.range_tombstones > 0 {
            table.ready()?;
        }
        Ok(Arc::new(table))
    }

    fn unopened(
        env: &Env,
        path: &Path,
        cache: &Arc<BlockCache>,
        base_seq: SeqNo,
        stated: Option<TableMeta>,
    ) -> Table {
        let due = stated.as_ref().map_or_else(Due::default, |meta| due_of(&meta.counts));
        Table {
            path: path.to_owned(),
            loaded: OnceLock::new(),
            source: Mutex::new(Source { fs: env.fs.clone(), cache: cache.clone(), stated }),
            base_seq: AtomicU64::new(base_seq.get()),
            based_tombstones: OnceLock::new(),
            no_tombstones: RangeTombstones::default(),
            due,
            obsolete: Mutex::new(None),
        }
    }

    /// Loads the table unless it is loaded. Must be called before any method that needs the file (table.6).
    #[inline(always)]
    pub(crate) fn ready(&self) -> Result<()> {
        self.try_loaded().map(drop)
    }

    #[inline(always)]
    fn try_loaded(&self) -> Result<&Loaded> {
        match self.loaded.get() {
            Some(loaded) => Ok(loaded),
            None => self.load_parts(),
        }
    }

    /// Returns the loaded parts of a table that is [`ready`](Self::ready).
    #[inline(always)]
    fn loaded(&self) -> &Loaded {
        self.loaded.get().expect("table.6: the caller has made the table ready")
    }

    /// Loads everything except the blocks.
    pub(crate) fn load_all(&self) -> Result<()> {
        self.load_filter(self.try_loaded()?)
    }

    fn load_filter(&self, loaded: &Loaded) -> Result<()> {
        let source = self.source.lock();
        if loaded.filter.get().is_some() || loaded.filter_extent.is_empty() {
            return Ok(());
        }
        let part = Parts { file: &*loaded.file.get()?, path: &self.path, salt: loaded.salt };
        let bloom = part.read("filter", &loaded.filter_extent, BlockedBloom::decode)?;
        let memory = source.cache.budget().reserve(BudgetKind::Table, bloom.size_bytes() as u64);
        let is_first = loaded.filter.set(Filter { bloom, _memory: memory }).is_ok();
        assert!(is_first, "one thread loads the filter");
        Ok(())
    }

    /// Checks a filter that is not loaded, loading it if it is needed often enough.
    #[cold]
    fn ask_filter(&self, loaded: &Loaded, hash: u64) -> Result<bool> {
        if loaded.filter_extent.is_empty() || loaded.filter_asks.fetch_add(1, Ordering::Relaxed) < FILTER_ASKS
        {
            return Ok(true);
        }
        self.load_filter(loaded)?;
        Ok(loaded.may_contain(hash))
    }

    #[cold]
    fn load_parts(&self) -> Result<&Loaded> {
        let source = self.source.lock();
        if self.loaded.get().is_none() {
            let loaded = Loaded::of_file(&source, &self.path, self.base_seq());
            let in_database = source.stated.is_some();
            let loaded = loaded.map_err(|error| if in_database { error.with_remedy() } else { error })?;
            let described = source.stated.as_ref().is_none_or(|stated| *stated == self.meta_of(&loaded));
            // Sequence numbers are never reused, so the manifest identifies the right one of two tables with
            // the same keys.
            if !described {
                let detail = "the file is not the table described by the manifest, perhaps a copy of another one: restore a \
                              backup or run `esker repair`";
                return Err(Error::corrupt("table", &self.path, 0, detail));
            }
            let is_first = self.loaded.set(loaded).is_ok();
            assert!(is_first, "table.6: one thread loads");
        }
        drop(source);
        Ok(self.loaded())
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// When entries of the table are due to be swept.
    pub(crate) fn due(&self) -> &Due {
        &self.due
    }

    /// Size of the file. The table must be ready.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.loaded().file_bytes
    }

    /// Returns how the manifest must describe the table. The table must be ready.
    pub(crate) fn meta(&self) -> TableMeta {
        self.meta_of(self.loaded())
    }

    fn meta_of(&self, loaded: &Loaded) -> TableMeta {
        let Properties { counts, range, fingerprint, blobs, .. } = &loaded.properties;
        let (counts, fingerprint) = (*counts, *fingerprint);
        let meta = TableMeta {
            file_bytes: loaded.file_bytes,
            range: range.clone(),
            counts,
            fingerprint,
            base_seq: SeqNo::ZERO,
            blobs: blobs.clone(),
        };
        meta.based(self.base_seq())
    }

    /// Returns the commit of an adopted table; zero for other tables (table.5).
    #[inline(always)]
    pub(crate) fn base_seq(&self) -> SeqNo {
        SeqNo::new(self.base_seq.load(Ordering::Relaxed))
    }

    /// Sets the base of a table (table.5), before it is added to a version.
    pub(crate) fn set_base(&self, seq: SeqNo) {
        assert!(self.base_seq() == SeqNo::ZERO, "table.5: a table is adopted once");
        let tombstones = self.range_tombstones();
        if !tombstones.is_empty() {
            let _ = self.based_tombstones.set(tombstones.clone().based(seq));
        }
        self.base_seq.store(seq.get(), Ordering::Relaxed);
    }

    /// Returns the sequence number of an entry.
    #[inline(always)]
    pub(super) fn seq_of(&self, block: &Block, entry: usize) -> SeqNo {
        block.seq(entry).max(self.base_seq())
    }

    /// Returns approximately how many bytes of the file precede `key`, with the resolution of a block. Index
    /// and filter are distributed evenly over the blocks. Returns 0 if the table cannot be read.
    pub(crate) fn bytes_before(&self, key: &[u8]) -> u64 {
        let Ok(Loaded { index, properties, file_bytes, .. }) = self.try_loaded() else { return 0 };
        if !properties.range.end.admits(key) {
            return *file_bytes;
        }
        let (number, end) = (index.find(key), index.blocks_end());
        let before = if number < index.len() { index.extent(number).start } else { end };
        (u128::from(before) * u128::from(*file_bytes) / u128::from(end.max(1))) as u64
    }

    /// Returns the properties. The table must be ready.
    pub(crate) fn properties(&self) -> &Properties {
        &self.loaded().properties
    }

    /// Returns the newest commit in the table, even if its sequence number was cleared or its entries were
    /// dropped.
    pub(crate) fn newest_commit(&self) -> Result<SeqNo> {
        Ok(self.try_loaded()?.newest_commit.max(self.base_seq()))
    }

    /// Returns the range tombstones.
    #[inline]
    pub(crate) fn range_tombstones(&self) -> &RangeTombstones {
        // table.6: a table that is not loaded has none.
        let tombstones = self.loaded.get().map_or(&self.no_tombstones, |loaded| &loaded.tombstones);
        if tombstones.is_empty() {
            return tombstones;
        }
        self.based_tombstones.get().unwrap_or(tombstones)
    }

    /// Removes the file when the last reference to the table is dropped.
    pub(crate) fn mark_obsolete(&self, remover: Remover) {
        *self.obsolete.lock() = Some(remover);
    }

    /// Keeps the file, even after `mark_obsolete`.
    pub(crate) fn keep_file(&self) {
        self.obsolete.lock().take();
    }

    /// Returns approximately how many bytes of blocks hold keys in `start..end`, without the blocks at both
    /// ends. Returns 0 if the table cannot be read.
    pub(crate) fn bytes_between(&self, start: &[u8], end: &[u8]) -> u64 {
        let Ok(Loaded { index, properties, .. }) = self.try_loaded() else { return 0 };
        if index.len() == 0 || start >= end {
            return 0;
        }
        let from = match start <= properties.range.start.as_slice() {
            true => 0,
            false => index.extent(index.find(start)).end,
        };
        let to = match properties.range.end.admits(end) {
            true => index.extent(index.find(end)).start,
            false => index.blocks_end(),
        };
        to.saturating_sub(from)
    }

    /// Returns the index. The table must be ready.
    #[inline(always)]
    pub(super) fn index(&self) -> &Index {
        &self.loaded().index
    }

    /// Returns the filter if it is loaded. The table must be ready.
    pub(super) fn filter(&self) -> Option<&BlockedBloom> {
        self.loaded().filter.get().map(|filter| &filter.bloom)
    }

    /// Returns whether the table may hold the key with this hash, as far as loaded parts can tell.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.loaded.get().is_none_or(|loaded| loaded.may_contain(hash))
    }

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
        if filter_first && !M::may_contain(self, loaded, hash)? {
            return Ok(None);
        }
        self.find::<M>(loaded, key, hash, at, pin)
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
        &'g self,
        loaded: &'g Loaded,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        pin: &'g Guard,
    ) -> Result<Option<Found<'g>>, M::Error> {
        let mut number = loaded.index.find(key);
        if number >= loaded.index.len() {
            return Ok(None);
        }
        let mut block = match loaded.blocks.load(number, pin) {
            Some(block) => BlockUse::Pinned(block),
            None if !M::may_contain(self, loaded, hash)? => return Ok(None),
            None => BlockUse::Loaded(M::load(self, number, pin)?),
        };
        let (mut i, found) = block.lower_bound(key, loaded.index.simd());
        if !found {
            return Ok(None);
        }
        loop {
            let seq = self.seq_of(&block, i);
            if seq <= at {
                return Ok(Some(Found { block, entry: i, seq }));
            }
            if i + 1 < block.count() {
                if !block.same_key_as_next(i) {
                    return Ok(None);
                }
                i += 1;
            } else {
                number += 1;
                if number == loaded.index.len() || !loaded.index.continues(number) {
                    return Ok(None);
                }
                block = match loaded.blocks.load(number, pin) {
                    Some(block) => BlockUse::Pinned(block),
                    None => BlockUse::Loaded(M::load(self, number, pin)?),
                };
                i = 0;
            }
        }
    }

    /// Returns a data block, from memory or from the file.
    #[inline(always)]
    pub(super) fn block<'g>(&'g self, number: usize, fill: bool, pin: &'g Guard) -> Result<BlockUse<'g>> {
        match self.loaded().blocks.load(number, pin) {
            Some(block) => Ok(BlockUse::Pinned(block)),
            None => Ok(BlockUse::Loaded(self.load(number, fill, pin)?)),
        }
    }

    /// Returns a data block if it is in memory, without counting a use.
    pub(super) fn resident(&self, number: usize) -> Option<Arc<Block>> {
        let pin = cache::pin();
        self.loaded().blocks.peek(number, &pin).map(Pinned::to_arc)
    }

    #[cold]
    fn load(&self, number: usize, fill: bool, pin: &Guard) -> Result<Arc<Block>> {
        let Loaded { file, index, blocks, salt, .. } = self.loaded();
        blocks.note_miss();
        if fill && blocks.room_bytes() >= ROOM_TO_READ_AROUND {
            self.load_around(number, pin);
            if let Some(block) = blocks.peek(number, pin) {
                return Ok(block.to_arc());
            }
        }
        let extent = index.extent(number);
        let stored = read_stored(&*file.get()?, &self.path, extent.clone())?;
        let packed = stored::is_packed(&stored);
        let block = parse_block(stored::open_owned(stored, *salt, extent.start), packed);
        let block = Arc::new(block.map_err(|e| e.in_file("block", &self.path, extent.start))?);
        // A block of another position would give wrong answers, or keep an iterator in place forever.
        self.check_place(number, &block, None)?;
        if fill {
            blocks.insert(number, &block, true, pin);
        }
        Ok(block)
    }

    /// Caches a block and the blocks around it while the cache has free space, so that a database that fits
    /// is soon cached completely. Errors are ignored here; a reader of the block gets them.
    fn load_around(&self, number: usize, pin: &Guard) {
        let Loaded { file, index, blocks, .. } = self.loaded();
        let window = |number: usize| index.extent(number).start / AROUND_BYTES;
        let is_near = |other: &usize| window(*other) == window(number);
        let first = (0..number).rev().take_while(is_near).last().unwrap_or(number);
        let last = (number..index.len()).take_while(is_near).last().unwrap_or(number);
        let start = index.extent(first).start;
        let Ok(file) = file.get() else { return };
        let Ok(bytes) = read_stored(&*file, &self.path, start..index.extent(last).end) else { return };
        for near in (first..=last).filter(|near| blocks.peek(*near, pin).is_none()) {
            let extent = index.extent(near);
            let stored = &bytes[(extent.start - start) as usize..(extent.end - start) as usize];
            if let Ok(block) = self.decode_block(stored, extent.start)
                && self.check_place(near, &block, None).is_ok()
            {
                blocks.insert(near, &Arc::new(block), near == number, pin);
            }
        }
    }

    /// Reads the footer again.
    pub(super) fn read_footer(&self) -> Result<Footer> {
        read_footer(&*self.loaded().file.get()?, &self.path, self.file_bytes())
    }

    /// Verifies and decodes the stored form of the block at `offset`.
    pub(super) fn decode_block(&self, stored: &[u8], offset: u64) -> Result<Block> {
        let block = parse_block(stored::open(stored, self.loaded().salt, offset), stored::is_packed(stored));
        block.map_err(|e| e.in_file("block", &self.path, offset))
    }

    /// Reads a range of the file. `extent` comes from the verified index, so it lies inside the file.
    pub(super) fn read_extent(&self, extent: Range<u64>) -> Result<PageBuf> {
        read_stored(&*self.loaded().file.get()?, &self.path, extent)
    }

    /// Caches blocks that the writer kept, starting with the first.
    pub(super) fn warm(&self, blocks: Vec<Arc<Block>>) {
        let pin = cache::pin();
        for (number, block) in blocks.iter().enumerate().take(self.index().len()) {
            self.loaded().blocks.insert(number, block, false, &pin);
        }
    }

    /// Returns a cursor for a reader at `at`. With `fill_cache`, blocks read from the file are cached.
    pub(crate) fn cursor(self: &Arc<Self>, at: SeqNo, fill_cache: bool) -> TableCursor {
        TableCursor::new(self.clone(), at, fill_cache)
    }

    /// Returns a scan of all versions, with large reads that bypass the cache, for compactions.
    pub(crate) fn scan(self: &Arc<Self>) -> TableScan {
        TableScan::new(self.clone(), true)
    }
}

impl Loaded {
    fn of_file(source: &Source, path: &Path, base_seq: SeqNo) -> Result<Loaded> {
        let Source { fs, cache, .. } = source;
        let file = fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let file_bytes = file.len().map_err(|e| Error::io("measure", path, e))?;
        let footer = read_footer(&*file, path, file_bytes)?;
        let part = Parts { file: &*file, path, salt: footer.salt };
        let properties = part.read("properties", &footer.properties, Properties::decode)?;
        if footer.has_blobs == properties.blobs.is_empty()
            || footer.has_unresolved != (properties.counts.unresolved > 0)
            || footer.has_expiry != (properties.counts.expiring > 0)
        {
            let detail = "the footer and the properties disagree about the contents";
            return Err(Error::corrupt("properties", path, footer.properties.start, detail));
        }
        let index = part.read("index", &footer.index, Index::decode)?;
        if index.blocks_end() != footer.tombstones.start || index.len() as u64 != properties.blocks {
            let detail = format!("the index has {} blocks that end at {}", index.len(), index.blocks_end());
            return Err(Error::corrupt("index", path, footer.index.start, detail));
        }
        let tombstones = match footer.tombstones.is_empty() {
            true => RangeTombstones::default(),
            false => part.read("range tombstones", &footer.tombstones, decode_tombstones)?,
        };
        let blocks = cache.register(index.len());
        let resident = index.size_bytes() + tombstones.size_bytes() + index.len() * 2 * size_of::<usize>();
        let memory = cache.budget().reserve(BudgetKind::Table, resident as u64);
        let end = read_stored(&*file, path, footer.properties.start..file_bytes)?;
        let check = has_end(path, footer.properties.start, end.to_vec());
        let file = ReadFile::open(fs, path, file, Box::new(check), Descriptors::of_process());
        Ok(Loaded {
            newest_commit: footer.newest_commit.max(properties.counts.max_seq),
            file,
            index,
            filter: OnceLock::new(),
            filter_extent: footer.filter,
            filter_asks: AtomicU32::new(0),
            blocks,
            tombstones: tombstones.based(base_seq),
            properties,
            salt: footer.salt,
            file_bytes,
            _memory: memory,
        })
    }

    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        self.filter.get().is_none_or(|filter| filter.bloom.may_contain(hash))
    }
}

/// Returns when the entries of a table with these statistics are due to be swept.
fn due_of(counts: &Counts) -> Due {
    Due::at_ms(if counts.expiring > 0 { counts.min_expiry } else { u64::MAX })
}

impl Drop for Table {
    fn drop(&mut self) {
        if let Some(remove) = self.obsolete.get_mut().take() {
            // A panic of the file system is contained here: a table may be freed inside a read or a commit of
            // another thread.
            let _ = catch_unwind(AssertUnwindSafe(|| remove(&self.path)));
        }
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.loaded.get() {
            Some(Loaded { properties, index, .. }) => {
                let entries = properties.counts.entries;
                write!(f, "Table({}, {entries} entries, {index:?})", self.path.display())
            }
            None => write!(f, "Table({}, not loaded)", self.path.display()),
        }
    }
}
