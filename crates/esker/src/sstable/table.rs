//! An open table: finds blocks, keeps them in the cache, answers point reads.
//!
//! ```text
//!   get: key, hash --filter--> index --block number--> slot --in memory--> lower_bound in the block --> Found
//!                                                       `--empty--> read, verify, insert
//! ```
//!
//! table.1. Whatever is taken from the file was verified: checksum, structure, place (stored.1, and by the ends of a
//!      block: walks over a block that stood in another's place might never end).
//! table.2. A hit reads two cold places: the block's heads, and the entry.
//! table.3. The versions of a key may continue in the next block; `Index::continues` says so, and searches follow.
//! table.4. The file of a table marked obsolete is given to be removed when its last user is gone.
//! table.5. The entries and range tombstones of an adopted table (engine/writes/adoption.rs) have the sequence number 0 in the file, and are all of one
//!      commit, which the manifest names: its base.
//! table.6. A table that the manifest describes is opened by who reads it first: its index is loaded then, and what the file says of itself is
//!      compared with the manifest. Until then nothing of it is in memory, and no descriptor is in use. Exception: a table with range
//!      tombstones is loaded at once.
//! table.7. A filter that is not in memory answers nothing. It is loaded by who asks it for the [`FILTER_ASKS`]th time: it is larger than the index, and
//!      one get is faster without it.
//! table.8. While the cache has room a miss reads what lies around the block, too: 128 KiB take little longer than 8 to read.
//!
//! Bytes: docs/formats/sstable.md

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use esker_env::{Env, File, FsRef, OpenOptions, PageBuf, read_range, read_range_into};
use parking_lot::Mutex;

use super::block::Block;
use super::counts::Counts;
use super::cursor::TableCursor;
use super::footer::{FOOTER_BYTES, FORMAT_VERSION, Footer};
use super::index::Index;
use super::properties::{Properties, decode_tombstones};
use super::scan::TableScan;
use super::stored::{self, Salt};
use super::{BlockCache, TableMeta};
use crate::cache::{self, BudgetKind, CacheItem, CachedBlocks, Guard, Pinned, Reservation};
use crate::encoding::bloom::BlockedBloom;
use crate::encoding::bytes::{DecodeError, Decoded};
use crate::types::descriptors::{Descriptors, ReadFile};
use crate::types::due::Due;
use crate::types::expiry::{Expiry, value_start};
use crate::types::op::Kind;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::stored::Stored;
use crate::types::{Error, Result, SeqNo, Value};

/// What is read around a block (table.8).
const AROUND_BYTES: u64 = 128 << 10;
/// With less room in the cache a block is read alone.
const ROOM_TO_READ_AROUND: u64 = 1 << 20;
/// A filter is loaded when it has been asked so often (table.7).
const FILTER_ASKS: u32 = 8;

impl CacheItem for Block {
    fn size_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn first_bytes(&self) -> *const u8 {
        self.bytes().as_ptr()
    }
}

/// A table.
pub(crate) struct Table {
    path: PathBuf,
    /// Once it has been loaded (table.6).
    loaded: OnceLock<Loaded>,
    /// What loading takes. The lock makes others wait for who loads.
    source: Mutex<Source>,
    /// Zero, but for an adopted table (table.5). Set before anybody finds the table in a version. Relaxed: what makes it found orders it.
    base_seq: AtomicU64,
    /// The range tombstones of that base, if there are any.
    based_tombstones: OnceLock<RangeTombstones>,
    /// Those of a table that has not been loaded.
    no_tombstones: RangeTombstones,
    /// When something of it is due to be swept.
    due: Due,
    obsolete: Mutex<Option<Remover>>,
}

/// Where a table comes from.
struct Source {
    fs: FsRef,
    cache: Arc<BlockCache>,
    /// What the manifest says of it, if it does.
    stated: Option<TableMeta>,
}

/// What a table has in memory besides its blocks.
struct Loaded {
    file: Arc<ReadFile>,
    index: Index,
    /// Once it has been loaded (table.7).
    filter: OnceLock<Filter>,
    /// Where it is in the file; empty: there is none.
    filter_extent: Range<u64>,
    /// How often it was asked for in vain. Relaxed: it orders nothing.
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

/// Removes the file of a table, if it still may.
pub(crate) type Remover = Arc<dyn Fn(&Path) + Send + Sync>;

/// One that always may.
#[cfg(test)]
pub(crate) fn plain_remover(env: &Env) -> Remover {
    let fs = env.fs.clone();
    Arc::new(move |path| fs.remove_file(path).unwrap())
}

/// A block that a read uses: under the caller's pin if it was in memory, else a handle of its own.
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

/// What a look-up does about a block that is not in memory.
pub(crate) trait OnMiss {
    /// Why there is no answer.
    type Error: From<Error>;
    /// The block.
    fn load(table: &Table, number: usize, pin: &Guard) -> Result<Arc<Block>, Self::Error>;
    /// What a table has in memory of which nothing is there yet.
    #[expect(private_interfaces, reason = "only tables call it")]
    fn load_parts(table: &Table) -> Result<&Loaded, Self::Error>;
    /// Whether the table may hold the key of this hash.
    #[expect(private_interfaces, reason = "only tables call it")]
    fn may_contain(table: &Table, loaded: &Loaded, hash: u64) -> Result<bool, Self::Error>;
}

/// It reads the block from the file.
pub(crate) struct ReadIt;
/// It gives up.
pub(crate) struct GiveUp;

/// Why memory alone has no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The file would have to be read.
    NotInMemory,
    /// It failed.
    Failed(Error),
}

impl From<Error> for NoAnswer {
    fn from(error: Error) -> Self {
        NoAnswer::Failed(error)
    }
}

impl OnMiss for ReadIt {
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

impl OnMiss for GiveUp {
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

/// A version that was found in a table, where it stands.
pub(crate) struct Found<'g> {
    block: BlockUse<'g>,
    entry: usize,
    seq: SeqNo,
}

impl Found<'_> {
    /// The commit that wrote it.
    #[inline(always)]
    pub(crate) fn seq(&self) -> SeqNo {
        self.seq
    }

    /// What it says about its key.
    #[inline(always)]
    pub(crate) fn kind(&self) -> Kind {
        self.block.kind(self.entry)
    }

    /// When it expires; none if its kind does not.
    #[inline]
    pub(crate) fn expiry(&self) -> Option<Expiry> {
        Expiry::of_version(self.kind(), &self.block.bytes()[self.block.value_range(self.entry)])
    }

    /// Its value, as it is stored: a small one is copied, another one keeps its block.
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
    /// Opens a table and verifies everything but its data blocks, which are verified when they are read.
    pub(crate) fn open(env: &Env, path: &Path, cache: &Arc<BlockCache>) -> Result<Arc<Table>> {
        Self::open_at(env, path, cache, SeqNo::ZERO)
    }

    /// Opens a table of this base (table.5).
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

    /// A table that the manifest describes so, to be opened by who reads it first (table.6).
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

    /// Loads the table, unless it is loaded already: before anything else is asked of it that needs its file (table.6).
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

    /// What is in memory of a table that is [`ready`](Self::ready).
    #[inline(always)]
    fn loaded(&self) -> &Loaded {
        self.loaded.get().expect("table.6: who asks has seen to it that the table is ready")
    }

    /// Loads all that belongs in memory besides blocks.
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
        assert!(is_first, "table.7: one thread loads");
        Ok(())
    }

    /// Whether the table may hold the key of this hash, by a filter that is not in memory (table.7).
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
            // Sequence numbers are given out once: of two tables that hold the same keys, only one is the right one.
            if !described {
                let detail = "it is not the table that the manifest describes, but perhaps another one's copy: restore a \
                              backup or run `esker repair`";
                return Err(Error::corrupt("table", &self.path, 0, detail));
            }
            let is_first = self.loaded.set(loaded).is_ok();
            assert!(is_first, "table.6: one thread loads");
        }
        drop(source);
        Ok(self.loaded())
    }

    /// Where the table is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// When something of it is due to be swept.
    pub(crate) fn due(&self) -> &Due {
        &self.due
    }

    /// The length of the file of a table that is ready.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.loaded().file_bytes
    }

    /// What the manifest must say of a table that is ready.
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

    /// The commit that all of it is of, if it was adopted; else zero (table.5).
    #[inline(always)]
    pub(crate) fn base_seq(&self) -> SeqNo {
        SeqNo::new(self.base_seq.load(Ordering::Relaxed))
    }

    /// Gives a table that has none its base (table.5), before it joins a version.
    pub(crate) fn set_base(&self, seq: SeqNo) {
        assert!(self.base_seq() == SeqNo::ZERO, "table.5: a table is adopted once");
        let tombstones = self.range_tombstones();
        if !tombstones.is_empty() {
            let _ = self.based_tombstones.set(tombstones.clone().based(seq));
        }
        self.base_seq.store(seq.get(), Ordering::Relaxed);
    }

    /// The sequence number of an entry of one of its blocks.
    #[inline(always)]
    pub(super) fn seq_of(&self, block: &Block, entry: usize) -> SeqNo {
        block.seq(entry).max(self.base_seq())
    }

    /// About how many bytes of its file stand before `key`: right to a block, with index and filter shared out over the blocks. Of one that
    /// cannot be read none do.
    pub(crate) fn bytes_before(&self, key: &[u8]) -> u64 {
        let Ok(Loaded { index, properties, file_bytes, .. }) = self.try_loaded() else { return 0 };
        if !properties.range.end.admits(key) {
            return *file_bytes;
        }
        let (number, end) = (index.find(key), index.blocks_end());
        let before = if number < index.len() { index.extent(number).start } else { end };
        (u128::from(before) * u128::from(*file_bytes) / u128::from(end.max(1))) as u64
    }

    /// The counts and limits of a table that is ready.
    pub(crate) fn properties(&self) -> &Properties {
        &self.loaded().properties
    }

    /// The newest commit that went into it, also if nothing tells of it any more: its number was forgotten, or it was left out.
    pub(crate) fn newest_commit(&self) -> Result<SeqNo> {
        Ok(self.try_loaded()?.newest_commit.max(self.base_seq()))
    }

    /// Its range tombstones.
    #[inline]
    pub(crate) fn range_tombstones(&self) -> &RangeTombstones {
        // table.6: one that has not been loaded has none.
        let tombstones = self.loaded.get().map_or(&self.no_tombstones, |loaded| &loaded.tombstones);
        if tombstones.is_empty() {
            return tombstones;
        }
        self.based_tombstones.get().unwrap_or(tombstones)
    }

    /// The file is to be removed when the last user of the table is gone (table.4).
    pub(crate) fn mark_obsolete(&self, remover: Remover) {
        *self.obsolete.lock() = Some(remover);
    }

    /// The file stays, whatever was said before.
    pub(crate) fn keep_file(&self) {
        self.obsolete.lock().take();
    }

    /// About how many bytes of its blocks hold keys from `start` up to `end`, blocks at the ends left out. Of one that cannot be read none do.
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

    /// The index of a table that is ready.
    #[inline(always)]
    pub(super) fn index(&self) -> &Index {
        &self.loaded().index
    }

    /// The filter of a table that is ready, if it has one and that is in memory.
    pub(super) fn filter(&self) -> Option<&BlockedBloom> {
        self.loaded().filter.get().map(|filter| &filter.bloom)
    }

    /// Whether the table may hold the key of this hash, as far as its filter is in memory and knows.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.loaded.get().is_none_or(|loaded| loaded.may_contain(hash))
    }

    /// The newest version of `key` that a reader at `at` sees; a tombstone is found like a value. Range tombstones are
    /// the caller's business. `hash` is the key's.
    ///
    /// A look at the filter costs a cache miss, about as much as a look at a block in memory. `filter_first` asks it
    /// before anything else, which pays where the key is likely absent; otherwise it is asked only before a
    /// block is read from the file.
    #[inline]
    pub(crate) fn get<'g>(
        &'g self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        filter_first: bool,
        pin: &'g Guard,
    ) -> Result<Option<Found<'g>>> {
        self.get_by::<ReadIt>(key, hash, at, filter_first, pin)
    }

    /// The same, by what is done about a block that is not in memory.
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

    /// The sequence number of the newest version of `key`, whatever it is.
    pub(crate) fn newest_seq(&self, key: &[u8], hash: u64, pin: &Guard) -> Result<Option<SeqNo>> {
        Ok(self.get(key, hash, SeqNo::MAX, true, pin)?.map(|found| found.seq()))
    }

    /// The newest version of a key that a user wrote, not a sweep (conflict.3); none if it is not newer than `since`.
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

    /// The entry of the newest version of `key` not newer than `at`.
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

    /// A data block, from memory or from the file.
    #[inline(always)]
    pub(super) fn block<'g>(&'g self, number: usize, fill: bool, pin: &'g Guard) -> Result<BlockUse<'g>> {
        match self.loaded().blocks.load(number, pin) {
            Some(block) => Ok(BlockUse::Pinned(block)),
            None => Ok(BlockUse::Loaded(self.load(number, fill, pin)?)),
        }
    }

    /// A data block if it is in memory; a glance does not make it look used.
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
        // One of another place would be a wrong answer, or keep a walk where it is for ever.
        self.check_place(number, &block, None)?;
        if fill {
            blocks.insert(number, &block, true, pin);
        }
        Ok(block)
    }

    /// Puts a block and those around it into the cache, while that has room for them: a database that fits it is soon in memory whole (table.8).
    /// What cannot be read is told to whoever wants it.
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

    /// Where its parts are, read anew.
    pub(super) fn read_footer(&self) -> Result<Footer> {
        read_footer(&*self.loaded().file.get()?, &self.path, self.file_bytes())
    }

    /// Checks the stored form of the block at `offset`.
    pub(super) fn decode_block(&self, stored: &[u8], offset: u64) -> Result<Block> {
        let block = parse_block(stored::open(stored, self.loaded().salt, offset), stored::is_packed(stored));
        block.map_err(|e| e.in_file("block", &self.path, offset))
    }

    /// Reads a stretch of the file; `extent` comes from the verified index, so it lies inside the file.
    pub(super) fn read_extent(&self, extent: Range<u64>) -> Result<PageBuf> {
        read_stored(&*self.loaded().file.get()?, &self.path, extent)
    }

    /// Puts blocks that the writer kept, from the first on, into the cache.
    pub(super) fn warm(&self, blocks: Vec<Arc<Block>>) {
        let pin = cache::pin();
        for (number, block) in blocks.iter().enumerate().take(self.index().len()) {
            self.loaded().blocks.insert(number, block, false, &pin);
        }
    }

    /// A cursor for a reader at `at`. `fill_cache`: blocks that it reads from the file stay in memory.
    pub(crate) fn cursor(self: &Arc<Self>, at: SeqNo, fill_cache: bool) -> TableCursor {
        TableCursor::new(self.clone(), at, fill_cache)
    }

    /// All versions in order, read in large steps past the cache: for compactions.
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
            let detail = "the footer and the properties differ about what is in the table";
            return Err(Error::corrupt("properties", path, footer.properties.start, detail));
        }
        let index = part.read("index", &footer.index, Index::decode)?;
        if index.blocks_end() != footer.tombstones.start || index.len() as u64 != properties.blocks {
            let detail = format!("{} blocks that end at {}", index.len(), index.blocks_end());
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

/// When something is due of a table with these counts.
fn due_of(counts: &Counts) -> Due {
    Due::at_ms(if counts.expiring > 0 { counts.min_expiry } else { u64::MAX })
}

impl Drop for Table {
    fn drop(&mut self) {
        if let Some(remove) = self.obsolete.get_mut().take() {
            // A panic of the file system's ends here: tables are freed wherever epochs end, in the middle of others' reads and commits.
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

/// The newest commit that went into the table in this file, as it states itself; none if it is not finished, is damaged, or is not
/// there. Fails if it is of a newer format, or cannot be read.
pub(crate) fn stated_newest_commit(env: &Env, path: &Path) -> Result<Option<SeqNo>> {
    let stated = || {
        let file = env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let file_bytes = file.len().map_err(|e| Error::io("measure", path, e))?;
        Ok(read_footer(&*file, path, file_bytes)?.newest_commit)
    };
    match stated() {
        Ok(newest) => Ok(Some(newest)),
        Err(Error::Corrupt { .. }) => Ok(None),
        // A reader that outlived the handle that was closed before has let it go just now.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn read_footer(file: &dyn File, path: &Path, file_bytes: u64) -> Result<Footer> {
    let Some(offset) = file_bytes.checked_sub(FOOTER_BYTES as u64) else {
        return Err(Error::corrupt("footer", path, 0, format!("a file of {file_bytes} bytes is no table")));
    };
    let bytes = read_stored(file, path, offset..file_bytes)?;
    let bytes = bytes[..].try_into().expect("the footer's length was asked for");
    Footer::decode(&bytes, file_bytes).map_err(|e| match e.unread() {
        Err(e) => e.in_file("footer", path, offset),
        Ok((what, found)) => {
            Error::UnsupportedVersion { what, path: path.to_owned(), found, supported: FORMAT_VERSION }
        }
    })
}

/// The block of this payload. What is wrong in one that was packed is told at the start of the block.
pub(super) fn parse_block(payload: Decoded<PageBuf>, packed: bool) -> Decoded<Block> {
    let in_file = |error: DecodeError| if packed { DecodeError { offset: 0, ..error } } else { error };
    Block::parse(payload?).map_err(in_file)
}

/// Reads the parts of a table besides its blocks.
struct Parts<'a> {
    file: &'a dyn File,
    path: &'a Path,
    salt: Salt,
}

impl Parts<'_> {
    fn read<T>(
        &self,
        what: &'static str,
        extent: &Range<u64>,
        decode: impl FnOnce(&[u8]) -> Decoded<T>,
    ) -> Result<T> {
        let stored = read_stored(self.file, self.path, extent.clone())?;
        let decoded = stored::open(&stored, self.salt, extent.start).and_then(|payload| decode(&payload));
        decoded.map_err(|e| e.in_file(what, self.path, extent.start))
    }
}

/// Whether a file ends in these bytes (descriptors.1).
fn has_end(path: &Path, start: u64, end: Vec<u8>) -> impl Fn(&dyn File) -> Result<()> + use<> {
    let path = path.to_owned();
    move |file| {
        let len = file.len().map_err(|e| Error::io("measure", &path, e))?;
        let is_as_long = len == start + end.len() as u64;
        let found = read_range(file, start, if is_as_long { end.len() } else { 0 });
        if found.map_err(|e| Error::read(&path, start, end.len(), &e))? != end {
            let detail = "another file has taken the place of the one that was open: restore a backup or run `esker repair`";
            return Err(Error::corrupt("table", &path, start, detail));
        }
        Ok(())
    }
}

fn read_stored(file: &dyn File, path: &Path, extent: Range<u64>) -> Result<PageBuf> {
    let Ok(len) = usize::try_from(extent.end - extent.start) else {
        return Err(Error::corrupt("table", path, extent.start, "a part larger than the address space"));
    };
    let mut bytes = PageBuf::new(len);
    read_range_into(file, extent.start, &mut bytes).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::corrupt("table", path, extent.start, "the file ends before this part does")
        }
        _ => Error::read(path, extent.start, len, &e),
    })?;
    Ok(bytes)
}
