//! Loads the parts of a table besides its blocks.
//!
//! ```text
//!   first use          --> footer, properties, range tombstones: stay in memory
//!   lookup, no index   --> index, or its root and one page: into their cache
//!   many asks          --> filter: into its cache
//! ```
//!
//! A filter is larger than the index, and a single lookup is faster without it. A filter that is not loaded
//! admits every key. It is loaded when it was needed [`FILTER_ASKS`] times. If it has to displace others, it
//! is loaded only after lookups have read [`FILTER_PRICE`] times its bytes of blocks. So a memory that is too
//! small for the filters costs little more than having none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_env::{Env, File, OpenOptions};

use super::Table;
use super::blocks::ItemRef;
use crate::cache::{BudgetKind, CacheItem, CachedBlocks, Guard, Pinned, Reservation, pin};
use crate::encoding::bloom::BlockedBloom;
use crate::sstable::caches::{BlockIndex, Filter, IndexSlot, PagedIndex, Wanted};
use crate::sstable::footer::Footer;
use crate::sstable::index::Index;
use crate::sstable::parts::{Parts, has_end, read_footer, read_stored};
use crate::sstable::properties::{Properties, decode_tombstones};
use crate::sstable::root::{Root, StoredIndex};
use crate::sstable::stored::PartOpener;
use crate::sstable::{BlockCache, TableMeta};
use crate::types::descriptors::{Descriptors, ReadFile};
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Error, Result, SeqNo, memory_only};

/// Number of times a filter is needed before it is loaded into free memory.
const FILTER_ASKS: u64 = 8;
/// Bytes of blocks read per byte of a filter before it displaces other filters.
const FILTER_PRICE: u64 = 8;

/// Where a table is loaded from.
pub(super) struct Source {
    pub(super) env: Env,
    pub(super) cache: Arc<BlockCache>,
    /// The description in the manifest, if there is one.
    pub(super) stated: Option<TableMeta>,
}

/// What a table keeps in memory besides its blocks, and the slots of its index and filter.
pub(crate) struct Loaded {
    pub(super) file: Arc<ReadFile>,
    pub(super) index: IndexSlot,
    pub(super) filter: CachedBlocks<Filter>,
    pub(super) footer: Footer,
    /// Number of times the filter was needed since it was last loaded. Relaxed: it orders nothing.
    filter_asks: AtomicU64,
    pub(super) tombstones: RangeTombstones,
    pub(super) properties: Properties,
    pub(super) newest_commit: SeqNo,
    pub(super) opener: PartOpener,
    pub(super) file_bytes: u64,
    _memory: Reservation,
}

impl Loaded {
    /// Reads everything except the blocks, the index and the filter.
    fn of_file(source: &Source, path: &Path, base_seq: SeqNo) -> Result<Loaded> {
        let Source { env, cache, .. } = source;
        let file = env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let file_bytes = file.len().map_err(|e| Error::io("measure", path, e))?;
        let (footer, opener) = read_footer(env, (&*file, path), file_bytes)?;
        let part = Parts { file: &*file, path, opener: &opener };
        let mut properties = part.read("properties", &footer.properties, Properties::decode)?;
        properties.features = footer.features;
        let tombstones = match footer.tombstones.is_empty() {
            true => RangeTombstones::default(),
            false => part.read("range tombstones", &footer.tombstones, decode_tombstones)?,
        };
        let memory = cache.budget().reserve(BudgetKind::Table, tombstones.size_bytes() as u64);
        let end = read_stored(&*file, path, footer.properties.start..file_bytes)?;
        let check = has_end(path, footer.properties.start, end.to_vec());
        let file = ReadFile::open(&env.fs, path, file, Box::new(check), Descriptors::of_process());
        let (index, filter) = cache.slots(!footer.pages.is_empty());
        Ok(Loaded {
            newest_commit: footer.newest_commit.max(properties.counts.max_seq),
            file,
            index,
            filter,
            footer,
            filter_asks: AtomicU64::new(0),
            tombstones: tombstones.based(base_seq),
            properties,
            opener,
            file_bytes,
            _memory: memory,
        })
    }

    /// Returns whether the table may hold the key with this hash, as far as the filter is loaded.
    #[inline(always)]
    pub(super) fn may_contain(&self, hash: u64, pin: &Guard) -> bool {
        self.filter.touch(0, pin).is_none_or(|filter| filter.0.may_contain(hash))
    }

    /// Number of times that the filter has to be needed before it is loaded. `None` if it would not fit.
    fn asks_before_load(&self) -> Option<u64> {
        let bytes = self.footer.filter.end - self.footer.filter.start;
        if self.filter.room_bytes() >= bytes {
            return Some(FILTER_ASKS);
        }
        let block_bytes = self.footer.blocks_end() / self.properties.blocks.max(1);
        let price = FILTER_PRICE * bytes / block_bytes.max(1);
        (self.filter.bytes_max() >= bytes).then(|| price.max(FILTER_ASKS))
    }
}

impl Table {
    /// Loads everything except the blocks, the index and the filter, unless that is done.
    #[cold]
    pub(super) fn load_parts(&self) -> Result<&Loaded> {
        memory_only::check(self.path())?;
        let source = self.source.lock();
        if self.loaded.get().is_none() {
            let loaded = Loaded::of_file(&source, self.path(), self.base_seq());
            let loaded = loaded.map_err(|error| source.with_remedy(error))?;
            let described = source.stated.as_ref().is_none_or(|stated| *stated == self.meta_of(&loaded));
            // Sequence numbers are never reused, so the manifest identifies the right one of two tables with
            // the same keys.
            if !described {
                let detail = "the file is not the table described by the manifest, perhaps a copy of another one: restore a \
                              backup or run `esker repair`";
                return Err(Error::corrupt("table", self.path(), 0, detail));
            }
            let is_first = self.loaded.set(loaded).is_ok();
            assert!(is_first, "table.6: one thread loads");
        }
        drop(source);
        Ok(self.loaded())
    }

    /// Returns the index, or the page of it, that finds what is wanted: from memory or from the file. With
    /// `fill`, a page that was read is cached.
    #[inline]
    pub(in crate::sstable) fn index_in<'g>(
        &'g self,
        wanted: Wanted<'_>,
        fill: bool,
        pin: &'g Guard,
    ) -> Result<ItemRef<'g, BlockIndex>> {
        let loaded = self.try_loaded()?;
        match loaded.index.touch(wanted, pin) {
            Some(index) => Ok(ItemRef::Pinned(index)),
            None => Ok(ItemRef::Loaded(self.load_index(loaded, wanted, fill, pin)?)),
        }
    }

    /// Like `index_in`, independent of a pin.
    pub(in crate::sstable) fn index(&self, wanted: Wanted<'_>, fill: bool) -> Result<Arc<BlockIndex>> {
        Ok(self.index_in(wanted, fill, &pin())?.into_arc())
    }

    /// Reads the index, or its root and a page, unless they are cached, and caches them.
    #[cold]
    pub(super) fn load_index(
        &self,
        loaded: &Loaded,
        wanted: Wanted<'_>,
        fill: bool,
        pin: &Guard,
    ) -> Result<Arc<BlockIndex>> {
        memory_only::check(self.path())?;
        match &loaded.index {
            IndexSlot::Blocks(slot) => {
                let read = || {
                    let index = Index::read(&self.parts(loaded, &*loaded.file.get()?), &loaded.footer)?;
                    self.check_blocks(loaded, index.range().len())?;
                    Ok(index)
                };
                self.load_top(slot, read, BlockCache::with_blocks, pin)
            }
            IndexSlot::Paged(slot) => {
                let read = || {
                    let root = Root::read(&self.parts(loaded, &*loaded.file.get()?), &loaded.footer)?;
                    self.check_blocks(loaded, root.blocks())?;
                    Ok(root)
                };
                let top = self.load_top(slot, read, BlockCache::with_pages, pin)?;
                self.load_page(loaded, &top, top.page(wanted), fill, pin)
            }
        }
    }

    fn check_blocks(&self, loaded: &Loaded, blocks: usize) -> Result<()> {
        let stated = loaded.properties.blocks;
        if stated == blocks as u64 {
            return Ok(());
        }
        let detail = format!("{blocks} blocks, but the properties say {stated}");
        Err(Error::corrupt("index", self.path(), loaded.footer.index.start, detail))
    }

    fn parts<'a>(&'a self, loaded: &'a Loaded, file: &'a dyn File) -> Parts<'a> {
        Parts { file, path: self.path(), opener: &loaded.opener }
    }

    /// Reads an index or a root and caches it. The lock makes other threads wait for the loading thread.
    fn load_top<T, C: CacheItem>(
        &self,
        slot: &CachedBlocks<C>,
        read: impl FnOnce() -> Result<T>,
        add_slots: impl FnOnce(&BlockCache, T) -> Arc<C>,
        pin: &Guard,
    ) -> Result<Arc<C>> {
        let source = self.source.lock();
        if let Some(top) = slot.touch(0, pin) {
            return Ok(top.to_arc());
        }
        let top = add_slots(&source.cache, read().map_err(|error| source.with_remedy(error))?);
        slot.insert(0, &top, true, pin);
        source.cache.shrink(pin);
        Ok(top)
    }

    /// Reads a page of the index, unless it is cached. Several threads may read it at once.
    fn load_page(
        &self,
        loaded: &Loaded,
        top: &PagedIndex,
        number: usize,
        fill: bool,
        pin: &Guard,
    ) -> Result<Arc<BlockIndex>> {
        if let Some(page) = top.pages.touch(number, pin) {
            return Ok(page.to_arc());
        }
        let file = loaded.file.get()?;
        let read = top.root.read_page(&self.parts(loaded, &*file), number);
        let page = read.map_err(|error| self.source.lock().with_remedy(error))?;
        let cache = self.source.lock().cache.clone();
        let page = cache.with_blocks(page);
        if fill {
            top.pages.insert(number, &page, true, pin);
            cache.shrink(pin);
        }
        // The page of another thread has the slots in which other readers find blocks.
        Ok(top.pages.peek(number, pin).map_or(page, Pinned::to_arc))
    }

    /// Reads the index, or its root, from the file.
    pub(in crate::sstable) fn read_index(&self) -> Result<StoredIndex> {
        let loaded = self.try_loaded()?;
        let file = loaded.file.get()?;
        let index = StoredIndex::read(&self.parts(loaded, &*file), &loaded.footer)?;
        self.check_blocks(loaded, index.blocks())?;
        Ok(index)
    }

    /// Reads a page of the index from the file.
    pub(in crate::sstable) fn read_index_page(&self, index: &StoredIndex, page: usize) -> Result<Arc<Index>> {
        let loaded = self.try_loaded()?;
        let file = loaded.file.get()?;
        index.page(&self.parts(loaded, &*file), page)
    }

    /// Reads the filter. `None` if the table has none.
    pub(in crate::sstable) fn read_filter(&self) -> Result<Option<BlockedBloom>> {
        let loaded = self.try_loaded()?;
        if loaded.footer.filter.is_empty() {
            return Ok(None);
        }
        let file = loaded.file.get()?;
        self.parts(loaded, &*file).read("filter", &loaded.footer.filter, BlockedBloom::decode).map(Some)
    }

    /// Reads index and filter, and caches them. The filter displaces no other.
    pub(crate) fn load_all(&self) -> Result<()> {
        let (loaded, pin) = (self.try_loaded()?, pin());
        self.index_in(Wanted::Key(&[]), true, &pin)?;
        if loaded.filter.peek(0, &pin).is_some() {
            return Ok(());
        }
        if let Some(filter) = self.read_filter()?
            && loaded.filter.room_bytes() >= filter.size_bytes() as u64
        {
            self.keep_filter(loaded, filter, &pin);
        }
        Ok(())
    }

    fn keep_filter(&self, loaded: &Loaded, filter: BlockedBloom, pin: &Guard) {
        loaded.filter.insert(0, &Arc::new(Filter(filter)), true, pin);
        self.source.lock().cache.shrink(pin);
    }

    /// Checks a filter that is not loaded, loading it if it is needed often enough.
    #[cold]
    pub(super) fn ask_filter(&self, loaded: &Loaded, hash: u64, pin: &Guard) -> Result<bool> {
        let asks = loaded.filter_asks.fetch_add(1, Ordering::Relaxed);
        if asks < FILTER_ASKS || loaded.asks_before_load().is_none_or(|needed| asks < needed) {
            return Ok(true);
        }
        if memory_only::is_on() {
            return Ok(true);
        }
        // Other threads go on without the filter meanwhile.
        loaded.filter_asks.store(0, Ordering::Relaxed);
        let Some(filter) = self.read_filter()? else { return Ok(true) };
        let may_contain = filter.may_contain(hash);
        self.keep_filter(loaded, filter, pin);
        Ok(may_contain)
    }
}

impl Source {
    fn with_remedy(&self, error: Error) -> Error {
        if self.stated.is_some() { error.with_remedy() } else { error }
    }
}
