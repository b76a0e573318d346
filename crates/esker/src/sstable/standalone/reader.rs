//! Reads a table of plain keys and values.

use std::path::Path;
use std::sync::Arc;

use esker_env::Env;

use super::super::BlockCache;
use super::super::cursor::TableCursor;
use super::super::table::Table;
use crate::cache::{self, MemoryBudget};
use crate::encoding::Compression;
use crate::encoding::hash::key_hash;
use crate::types::cursor::SourceCursor;
use crate::types::cursor_range::CursorRange;
use crate::types::op::Kind;
use crate::types::{Entry, KeyBounds, Result, SeqNo, Value};

/// Default memory for the blocks of a reader.
const CACHE_BYTES: u64 = 64 << 20;

/// An open table. Clones share it, and all methods may be called by several threads at once.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("numbers.sst");
/// # let mut writer = esker::sstable::Writer::create(&path)?;
/// # for n in 0..100u32 { writer.put(&n.to_be_bytes(), format!("{n}").as_bytes())?; }
/// # writer.finish()?;
/// let table = esker::sstable::Reader::open(&path)?;
/// assert_eq!(table.len(), 100);
/// assert!(table.contains(&7u32.to_be_bytes())?);
/// assert_eq!(table.get(b"no such key")?, None::<esker::Value>);
///
/// let mut range = table.range(&10u32.to_be_bytes()[..]..&20u32.to_be_bytes()[..]);
/// let (first_key, first_value) = range.next().unwrap()?;
/// let (_, last_value) = range.next_back().unwrap()?;
/// assert_eq!((&first_key[..], &first_value[..]), (&10u32.to_be_bytes()[..], &b"10"[..]));
/// assert_eq!(&last_value[..], b"19");
/// # Ok::<(), esker::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    table: Arc<Table>,
}

/// Metadata of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// Number of distinct keys.
    pub keys: u64,
    /// Bytes of all keys before compression.
    pub key_bytes: u64,
    /// Bytes of all values before compression.
    pub value_bytes: u64,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Number of data blocks.
    pub blocks: u64,
    /// The codec of compressed blocks.
    pub compression: Compression,
    /// The smallest and the largest key that may be in the table. `None` if there are no keys.
    pub key_range: Option<(Vec<u8>, Vec<u8>)>,
}

impl Reader {
    /// Opens a table, with 64 MiB of memory for its blocks.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_in(&Env::real(), path, CACHE_BYTES)
    }

    /// Opens a table, with `cache_bytes` of memory for index, filter and blocks.
    pub fn open_with(path: impl AsRef<Path>, cache_bytes: u64) -> Result<Self> {
        Self::open_in(&Env::real(), path, cache_bytes)
    }

    /// Opens a table of another environment, for example in memory.
    pub fn open_in(env: &Env, path: impl AsRef<Path>, cache_bytes: u64) -> Result<Self> {
        let cache = BlockCache::new(MemoryBudget::new(u64::MAX));
        let table = Table::open(env, path.as_ref(), &cache)?;
        // The filter fits, and the index, or its root and a page.
        cache.budget().set_capacity(cache_bytes.max(cache.capacity_needed()));
        Ok(Reader { table })
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.entry(key)?.and_then(Entry::into_value))
    }

    /// Returns the value or the tombstone of a key. A tombstone hides values in older tables.
    pub fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        let pin = cache::pin();
        let found = self.table.get(key, key_hash(key), SeqNo::MAX, false, &pin)?;
        Ok(found.map(|f| match self.is_live(key, f.seq(), f.kind()) {
            true => Entry::Value(f.share().beside()),
            false => Entry::Deleted,
        }))
    }

    /// Returns whether a key exists. Cheaper than `get`, because no [`Value`] is created; the block is still
    /// read and verified as a whole.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        let pin = cache::pin();
        let found = self.table.get(key, key_hash(key), SeqNo::MAX, true, &pin)?;
        Ok(found.is_some_and(|f| self.is_live(key, f.seq(), f.kind())))
    }

    /// Tables made by a [`Writer`](super::Writer) have no range tombstones, but tables of a database do.
    fn is_live(&self, key: &[u8], seq: SeqNo, kind: Kind) -> bool {
        let tombstones = self.table.range_tombstones();
        kind.is_live() && (tombstones.is_empty() || tombstones.cover(key, SeqNo::MAX) <= seq)
    }

    /// Number of keys, including deleted ones.
    pub fn len(&self) -> u64 {
        self.table.properties().counts.keys
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the metadata of the table.
    pub fn metadata(&self) -> Metadata {
        let p = self.table.properties();
        Metadata {
            keys: p.counts.keys,
            key_bytes: p.counts.key_bytes,
            value_bytes: p.counts.value_bytes,
            file_bytes: self.table.file_bytes(),
            blocks: p.blocks,
            compression: p.compression,
            key_range: (p.counts.keys > 0).then(|| (p.range.start.clone(), p.range.end.key().to_vec())),
        }
    }

    /// Iterates over all keys and values, from either end.
    pub fn iter(&self) -> Range {
        self.range(..)
    }

    /// Iterates over the keys and values in a range, from either end.
    pub fn range(&self, bounds: impl KeyBounds) -> Range {
        Range { entries: self.entries(bounds) }
    }

    /// Iterates over the keys in a range with their values and tombstones, from either end.
    pub fn entries(&self, bounds: impl KeyBounds) -> Entries {
        Entries { reader: self.clone(), range: CursorRange::new(&bounds) }
    }

    /// Reads the whole file and verifies checksums, order, index, filter and counts.
    pub fn verify(&self) -> Result<()> {
        self.table.verify().map(|_| ())
    }

    /// Returns whether the table holds removals of a database.
    pub(super) fn has_removals_of_database(&self) -> bool {
        let counts = &self.table.properties().counts;
        counts.tombstones + counts.range_tombstones > 0 && counts.max_seq > SeqNo::ZERO
    }

    fn cursor(&self) -> TableCursor {
        self.table.cursor(SeqNo::MAX, true)
    }

    /// Returns a cursor for one pass, which caches nothing.
    pub(super) fn passing_cursor(&self) -> TableCursor {
        self.table.cursor(SeqNo::MAX, false)
    }

    pub(super) fn stands_on_live(&self, cursor: &TableCursor) -> bool {
        self.is_live(cursor.key(), cursor.seq(), cursor.kind())
    }
}

/// An iterator over keys and values. Ends after an error.
pub struct Range {
    entries: Entries,
}

/// An iterator over keys with their values and tombstones. Ends after an error.
pub struct Entries {
    reader: Reader,
    range: CursorRange<TableCursor>,
}

impl Entries {
    fn item(reader: &Reader, cursor: Result<&TableCursor>) -> Result<(Vec<u8>, Entry)> {
        cursor.map(|cursor| match reader.stands_on_live(cursor) {
            true => (cursor.key().to_vec(), Entry::Value(cursor.share().beside())),
            false => (cursor.key().to_vec(), Entry::Deleted),
        })
    }
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        let cursor = self.range.next(|| self.reader.cursor())?;
        Some(Self::item(&self.reader, cursor))
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Self::Item> {
        let cursor = self.range.next_back(|| self.reader.cursor())?;
        Some(Self::item(&self.reader, cursor))
    }
}

/// Leaves out tombstones.
fn live(entry: Result<(Vec<u8>, Entry)>) -> Option<Result<(Vec<u8>, Value)>> {
    entry.map(|(key, entry)| entry.into_value().map(|value| (key, value))).transpose()
}

impl Iterator for Range {
    type Item = Result<(Vec<u8>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.find_map(live)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entries.by_ref().rev().find_map(live)
    }
}
