//! Loads the parts of a table that stay in memory: properties, index, range tombstones and filter.
//!
//! The filter is loaded only when it was needed [`FILTER_ASKS`] times: it is larger than the index, and a
//! single lookup is faster without it. An unloaded filter admits every key.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use esker_env::{Env, OpenOptions};

use super::Table;
use crate::cache::{BudgetKind, CachedBlocks, Reservation};
use crate::encoding::bloom::BlockedBloom;
use crate::sstable::block::Block;
use crate::sstable::index::Index;
use crate::sstable::parts::{Parts, has_end, read_footer, read_stored};
use crate::sstable::properties::{Properties, decode_tombstones};
use crate::sstable::stored::PartOpener;
use crate::sstable::{BlockCache, TableMeta};
use crate::types::descriptors::{Descriptors, ReadFile};
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Error, Result, SeqNo};

/// Number of times a filter is needed before it is loaded.
const FILTER_ASKS: u32 = 8;

/// Where a table is loaded from.
pub(super) struct Source {
    pub(super) env: Env,
    pub(super) cache: Arc<BlockCache>,
    /// The description in the manifest, if there is one.
    pub(super) stated: Option<TableMeta>,
}

/// What a table keeps in memory besides its blocks.
pub(crate) struct Loaded {
    pub(super) file: Arc<ReadFile>,
    pub(super) index: Index,
    /// Set once the filter is loaded.
    pub(super) filter: OnceLock<Filter>,
    /// Position of the filter in the file; empty if there is none.
    filter_extent: Range<u64>,
    /// Number of times the filter was needed before it was loaded. Relaxed: it orders nothing.
    filter_asks: AtomicU32,
    pub(super) blocks: CachedBlocks<Block>,
    pub(super) tombstones: RangeTombstones,
    pub(super) properties: Properties,
    pub(super) newest_commit: SeqNo,
    pub(super) opener: PartOpener,
    pub(super) file_bytes: u64,
    /// Reads of blocks from the file, less what [`Loaded::usage`] forgets. Relaxed: it orders nothing.
    pub(super) reads: AtomicU32,
    memory: Reservation,
}

/// A filter in memory.
pub(super) struct Filter {
    pub(super) bloom: BlockedBloom,
    memory: Reservation,
}

/// How much a loaded table is used.
pub(crate) struct Usage {
    /// Bytes of its index, filter and directory of blocks.
    pub(crate) bytes: u64,
    /// Blocks that are cached, and recent reads of blocks from the file.
    pub(crate) uses: u64,
}

impl Loaded {
    /// Reads everything except the blocks and the filter.
    fn of_file(source: &Source, path: &Path, base_seq: SeqNo) -> Result<Loaded> {
        let Source { env, cache, .. } = source;
        let file = env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let file_bytes = file.len().map_err(|e| Error::io("measure", path, e))?;
        let (footer, opener) = read_footer(env, (&*file, path), file_bytes)?;
        let part = Parts { file: &*file, path, opener: &opener };
        let mut properties = part.read("properties", &footer.properties, Properties::decode)?;
        properties.features = footer.features;
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
        let file = ReadFile::open(&env.fs, path, file, Box::new(check), Descriptors::of_process());
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
            opener,
            file_bytes,
            reads: AtomicU32::new(0),
            memory,
        })
    }

    pub(super) fn usage(&self) -> Usage {
        let filter = self.filter.get().map_or(0, |filter| filter.memory.bytes());
        let reads = self.reads.load(Ordering::Relaxed);
        self.reads.fetch_sub(reads.div_ceil(2), Ordering::Relaxed);
        Usage { bytes: self.memory.bytes() + filter, uses: u64::from(reads) + self.blocks.cached() as u64 }
    }

    /// Returns whether the table may hold the key with this hash, as far as the filter is loaded.
    #[inline(always)]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.filter.get().is_none_or(|filter| filter.bloom.may_contain(hash))
    }
}

impl Table {
    /// Loads everything except the blocks and the filter, unless that is done.
    #[cold]
    pub(super) fn load_parts(&self) -> Result<&Loaded> {
        let source = self.source.lock();
        if self.loaded.get().is_none() {
            let loaded = Loaded::of_file(&source, self.path(), self.base_seq());
            let in_database = source.stated.is_some();
            let loaded = loaded.map_err(|error| if in_database { error.with_remedy() } else { error })?;
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

    pub(super) fn load_filter(&self, loaded: &Loaded) -> Result<()> {
        let source = self.source.lock();
        if loaded.filter.get().is_some() || loaded.filter_extent.is_empty() {
            return Ok(());
        }
        let part = Parts { file: &*loaded.file.get()?, path: self.path(), opener: &loaded.opener };
        let bloom = part.read("filter", &loaded.filter_extent, BlockedBloom::decode)?;
        let memory = source.cache.budget().reserve(BudgetKind::Table, bloom.size_bytes() as u64);
        let is_first = loaded.filter.set(Filter { bloom, memory }).is_ok();
        assert!(is_first, "one thread loads the filter");
        Ok(())
    }

    /// Checks a filter that is not loaded, loading it if it is needed often enough.
    #[cold]
    pub(super) fn ask_filter(&self, loaded: &Loaded, hash: u64) -> Result<bool> {
        if loaded.filter_extent.is_empty() || loaded.filter_asks.fetch_add(1, Ordering::Relaxed) < FILTER_ASKS
        {
            return Ok(true);
        }
        self.load_filter(loaded)?;
        Ok(loaded.may_contain(hash))
    }
}
