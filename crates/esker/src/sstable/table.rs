//! An open table.
//!
//! ```text
//!   Table --loading.rs--> properties, range tombstones; caches: index, filter
//!     |--lookup.rs--> index --block number--> blocks.rs: cached block, or read from the file
//!     |--walk.rs----> the same, or from the window of a walk
//!     `--size.rs--> bytes of a range of keys
//! ```
//!
//! - Everything read from the file is verified: checksum, structure and position. (See stored.1. The first
//!   and last keys of a block are checked too: an iterator over a block at the wrong position might never
//!   end.)
//! - The entries and range tombstones of an adopted table (engine/writes/adoption.rs) have sequence
//!   number 0 in the file. They all belong to one commit, the base, which is recorded in the manifest.
//!
//! table.6. A table described by the manifest is opened by its first reader. The properties of the file are
//!     compared with the manifest then. Before that, the table uses no memory and no file descriptor.
//!     Exception: a table with range tombstones is loaded immediately. The index is loaded by the first
//!     reader that needs it, and again after an eviction.
//!
//! The file of a table marked obsolete is removed when the last reference to its `Table` is dropped.
//!
//! Bytes: docs/formats/sstable.md

mod blocks;
mod loading;
mod lookup;
mod size;
mod walk;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use esker_env::Env;
use parking_lot::Mutex;

use self::loading::{Loaded, Source};
pub(crate) use self::lookup::{Found, MemoryOnly, NoAnswer, OnMiss, ReadOnMiss};
use super::block::Block;
use super::counts::Counts;
use super::cursor::TableCursor;
use super::properties::Properties;
use super::scan::TableScan;
use super::{BlockCache, TableMeta};
use crate::cache::Guard;
use crate::types::due::Due;
use crate::types::expiry::Expiry;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Result, SeqNo};

/// An open table.
pub(crate) struct Table {
    path: PathBuf,
    /// When its entries are due to be swept.
    due: Due,
    /// What removes the file when the table is dropped.
    obsolete: Mutex<Option<Remover>>,
    /// Set once the table is loaded (table.6).
    loaded: OnceLock<Loaded>,
    /// What is needed for loading. The lock makes other threads wait for the loading thread.
    source: Mutex<Source>,
    /// Zero except for an adopted table. Set before the table is part of a version. Relaxed:
    /// publication of the version orders it.
    base_seq: AtomicU64,
    /// The range tombstones with the base as sequence number, if there are any.
    based_tombstones: OnceLock<RangeTombstones>,
    /// Returned for a table that is not loaded.
    no_tombstones: RangeTombstones,
}

/// Removes the file of a table, if removal is still allowed.
pub(crate) type Remover = Arc<dyn Fn(&Path) + Send + Sync>;

/// A remover that always removes.
#[cfg(test)]
pub(crate) fn plain_remover(env: &Env) -> Remover {
    let fs = env.fs.clone();
    Arc::new(move |path| fs.remove_file(path).unwrap())
}

impl Table {
    /// Opens a table and verifies everything except its data blocks, which are verified when read.
    pub(crate) fn open(env: &Env, path: &Path, cache: &Arc<BlockCache>) -> Result<Arc<Table>> {
        Self::open_at(env, path, cache, SeqNo::ZERO)
    }

    /// Opens a table with this base.
    pub(crate) fn open_at(
        env: &Env,
        path: &Path,
        cache: &Arc<BlockCache>,
        base_seq: SeqNo,
    ) -> Result<Arc<Table>> {
        let source = Source { env: env.clone(), cache: cache.clone(), stated: None };
        let table = Self::unopened(path, source, base_seq);
        table.load_all()?;
        if let Some(expiry) = first_expiry(&table.loaded().properties.counts) {
            table.due().lower(expiry);
        }
        Ok(Arc::new(table))
    }

    /// Creates a table from its description in the manifest. It is opened by its first reader (table.6).
    pub(crate) fn described(
        env: &Env,
        path: &Path,
        cache: &Arc<BlockCache>,
        meta: &TableMeta,
    ) -> Result<Arc<Table>> {
        let source = Source { env: env.clone(), cache: cache.clone(), stated: Some(meta.clone()) };
        let table = Self::unopened(path, source, meta.base_seq);
        if let Some(expiry) = first_expiry(&meta.counts) {
            table.due().lower(expiry);
        }
        if meta.counts.range_tombstones > 0 {
            table.ready()?;
        }
        Ok(Arc::new(table))
    }

    fn unopened(path: &Path, source: Source, base_seq: SeqNo) -> Table {
        Table {
            path: path.to_owned(),
            due: Due::default(),
            obsolete: Mutex::new(None),
            loaded: OnceLock::new(),
            source: Mutex::new(source),
            base_seq: AtomicU64::new(base_seq.get()),
            based_tombstones: OnceLock::new(),
            no_tombstones: RangeTombstones::default(),
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

    /// Returns whether the table is encrypted with an older key of the database than new tables.
    pub(crate) fn has_old_key(&self) -> Result<bool> {
        let env = self.source.lock().env.clone();
        Ok(self.try_loaded()?.opener.seal.has_old_key(&env))
    }

    /// Number of blocks. The table must be ready.
    #[inline]
    pub(super) fn blocks(&self) -> usize {
        self.loaded().properties.blocks as usize
    }

    /// Returns where the blocks end in the file. The table must be ready.
    pub(super) fn blocks_end(&self) -> u64 {
        self.loaded().footer.blocks_end()
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

    /// Returns the commit of an adopted table; zero for other tables.
    #[inline(always)]
    pub(crate) fn base_seq(&self) -> SeqNo {
        SeqNo::new(self.base_seq.load(Ordering::Relaxed))
    }

    /// Sets the base of a table, before it is added to a version.
    pub(crate) fn set_base(&self, seq: SeqNo) {
        assert!(self.base_seq() == SeqNo::ZERO, "a table is adopted once");
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

    /// Returns whether the table may hold the key with this hash, as far as loaded parts can tell.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64, pin: &Guard) -> bool {
        self.loaded.get().is_none_or(|loaded| loaded.may_contain(hash, pin))
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

/// Returns the first expiry of a table with these statistics.
fn first_expiry(counts: &Counts) -> Option<Expiry> {
    (counts.expiring > 0).then(|| Expiry::at_ms(counts.min_expiry))
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
            Some(Loaded { properties, .. }) => {
                let (entries, blocks) = (properties.counts.entries, properties.blocks);
                write!(f, "Table({}, {entries} entries in {blocks} blocks)", self.path().display())
            }
            None => write!(f, "Table({}, not loaded)", self.path().display()),
        }
    }
}
