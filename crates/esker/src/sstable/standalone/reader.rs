//! Reads a table of plain keys and values.

use std::ops::Bound;
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
use crate::types::op::Kind;
use crate::types::{KeyBounds, Result, SeqNo, Value};

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
/// assert_eq!((&first_key[..], &first_value[..], &last_value[..]), (&10u32.to_be_bytes()[..], &b"10"[..], &b"19"[..]));
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
        let cache: Arc<BlockCache> = BlockCache::new(MemoryBudget::new(cache_bytes));
        Ok(Reader { table: Table::open(env, path.as_ref(), &cache)? })
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let pin = cache::pin();
        let found = self.table.get(key, key_hash(key), SeqNo::MAX, false, &pin)?;
        Ok(found.filter(|f| self.is_live(key, f.seq(), f.kind())).map(|f| f.share().beside()))
    }

    /// Returns whether a key exists. Cheaper than `get`, because no [`Value`] is created; the block is still
    /// read and verified as a whole.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        let pin = cache::pin();
        let found = self.table.get(key, key_hash(key), SeqNo::MAX, true, &pin)?;
        Ok(found.is_some_and(|f| self.is_live(key, f.seq(), f.kind())))
    }

    /// Tables made by a [`Writer`](super::Writer) have no tombstones, but tables of a database do.
    fn is_live(&self, key: &[u8], seq: SeqNo, kind: Kind) -> bool {
        let tombstones = self.table.range_tombstones();
        kind.is_live() && (tombstones.is_empty() || tombstones.cover(key, SeqNo::MAX) <= seq)
    }

    /// Number of keys. In a table of a database, removed keys count too.
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
        let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        Range {
            reader: self.clone(),
            low: owned(bounds.lower()),
            high: owned(bounds.upper()),
            front: None,
            back: None,
            done: false,
        }
    }

    /// Reads the whole file and verifies checksums, order, index, filter and counts.
    pub fn verify(&self) -> Result<()> {
        self.table.verify().map(|_| ())
    }

    /// Returns whether the table holds removals, as tables of a database do.
    pub(super) fn has_removals(&self) -> bool {
        let properties = self.table.properties();
        properties.counts.tombstones + properties.counts.range_tombstones > 0
    }

    pub(super) fn cursor(&self) -> TableCursor {
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
    reader: Reader,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    /// On the last key returned from the front; the back ends before it.
    front: Option<TableCursor>,
    /// On the last key returned from the back; the front ends before it.
    back: Option<TableCursor>,
    done: bool,
}

impl Range {
    /// Moves the front cursor to the next key of the range. Returns false if there is none.
    fn step_front(&mut self) -> Result<bool> {
        let started = self.front.is_some();
        let cursor = self.front.get_or_insert_with(|| self.reader.cursor());
        match &self.low {
            _ if started => cursor.next()?,
            Bound::Unbounded => cursor.seek_first()?,
            Bound::Included(key) => cursor.seek(key)?,
            Bound::Excluded(key) => {
                cursor.seek(key)?;
                if cursor.valid() && cursor.key() == &**key {
                    cursor.next()?;
                }
            }
        }
        while cursor.valid() && !self.reader.stands_on_live(cursor) {
            cursor.next()?;
        }
        Ok(cursor.valid()
            && match (&self.back, &self.high) {
                (Some(back), _) => cursor.key() < back.key(),
                (None, Bound::Unbounded) => true,
                (None, Bound::Included(end)) => cursor.key() <= &**end,
                (None, Bound::Excluded(end)) => cursor.key() < &**end,
            })
    }

    /// Moves the back cursor to the previous key of the range. Returns false if there is none.
    fn step_back(&mut self) -> Result<bool> {
        let started = self.back.is_some();
        let cursor = self.back.get_or_insert_with(|| self.reader.cursor());
        match &self.high {
            _ if started => cursor.prev()?,
            Bound::Unbounded => cursor.seek_last()?,
            Bound::Excluded(key) => cursor.seek_before(key)?,
            Bound::Included(key) => {
                cursor.seek(key)?;
                if !cursor.valid() || cursor.key() != &**key {
                    cursor.seek_before(key)?;
                }
            }
        }
        while cursor.valid() && !self.reader.stands_on_live(cursor) {
            cursor.prev()?;
        }
        Ok(cursor.valid()
            && match (&self.front, &self.low) {
                (Some(front), _) => cursor.key() > front.key(),
                (None, Bound::Unbounded) => true,
                (None, Bound::Included(start)) => cursor.key() >= &**start,
                (None, Bound::Excluded(start)) => cursor.key() > &**start,
            })
    }

    fn item(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<bool>,
        cursor: impl FnOnce(&Self) -> Option<&TableCursor>,
    ) -> Option<Result<(Vec<u8>, Value)>> {
        if self.done {
            return None;
        }
        match step(self) {
            Ok(true) => cursor(self).map(|c| Ok((c.key().to_vec(), c.share().beside()))),
            Ok(false) => {
                self.done = true;
                None
            }
            Err(e) => {
                self.done = true;
                Some(Err(e))
            }
        }
    }
}

impl Iterator for Range {
    type Item = Result<(Vec<u8>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(Self::step_front, |range| range.front.as_ref())
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(Self::step_back, |range| range.back.as_ref())
    }
}
