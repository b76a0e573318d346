//! A memtable without a database: the public interface of this module.
//!
//! ```text
//!   put, delete --Map--> get, entries      Map --flush_to--> sstable::Writer
//! ```

use std::sync::Arc;

use parking_lot::Mutex;

use super::position::Position;
use super::tree::Tree;
use super::{Applier, Memtable, MemtableCursor};
use crate::encoding::hash::key_hash;
use crate::sstable::Writer;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::types::cursor::SourceCursor;
use crate::types::cursor_range::CursorRange;
use crate::types::entry::EntryRef;
use crate::types::op::Kind;
use crate::types::{Entry, Error, KeyBounds, Result, SeqNo, Value};
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The size for which the filter of a map is laid out.
const EXPECTED_BYTES: usize = 64 << 20;

/// A sorted map in memory. The newest write of a key wins, and deletions stay as tombstones.
///
/// Threads may share it. Writes wait for one another, reads wait for nothing. All memory is freed together,
/// when the map and its iterators are dropped: an overwritten value is freed then, too.
pub struct Map {
    table: Memtable,
    applier: Mutex<Applier>,
    /// Number of the newest write. Stored with release after the write was inserted, loaded with acquire: a
    /// reader finds every write up to it (memtable.1).
    newest: AtomicU64,
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl Map {
    /// Creates an empty map.
    pub fn new() -> Self {
        let table = Memtable::new(EXPECTED_BYTES);
        let applier = Mutex::new(table.applier());
        Map { table, applier, newest: AtomicU64::new(0) }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(key, Kind::PUT, value)
    }

    /// Writes a tombstone of a key, whether the map holds the key or not.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.insert(key, Kind::REMOVE, b"")
    }

    fn insert(&self, key: &[u8], kind: Kind, value: &[u8]) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong { len: key.len() });
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { len: value.len() });
        }
        let mut applier = self.applier.lock();
        let seq = SeqNo::new(self.newest.load(Ordering::Relaxed) + 1);
        self.table.insert(&mut applier, EntryRef { key, seq, kind, value });
        self.newest.store(seq.get(), Ordering::Release);
        Ok(())
    }

    fn newest(&self) -> SeqNo {
        SeqNo::new(self.newest.load(Ordering::Acquire))
    }

    /// Returns the value of a key. `None` for a key that is missing or deleted.
    pub fn get(&self, key: &[u8]) -> Option<Value> {
        self.entry(key).and_then(Entry::into_value)
    }

    /// Returns the value or the tombstone of a key.
    pub fn entry(&self, key: &[u8]) -> Option<Entry> {
        let at = self.newest();
        if !self.table.may_contain(key_hash(key)) {
            return None;
        }
        self.table.get(key, at).map(|found| entry_of(found.kind, || Value::copy_of(found.value)))
    }

    /// Iterates over the keys in a range with their values and tombstones, from either end. Shows the map as
    /// of this call.
    pub fn entries(&self, bounds: impl KeyBounds) -> Entries {
        Entries { tree: self.table.tree.clone(), at: self.newest(), range: CursorRange::new(&bounds) }
    }

    /// Returns whether the map holds neither values nor tombstones.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Bytes of memory in use.
    pub fn size_bytes(&self) -> usize {
        self.table.bytes_used()
    }

    /// Writes the map as a table, with its tombstones, and finishes the table durably. Returns the size of
    /// the file. Does not wait for writers: stop writing first if the table must hold everything.
    ///
    /// # Errors
    /// Those of [`Writer::put`] and [`Writer::finish`].
    pub fn flush_to(&self, mut table: Writer) -> Result<u64> {
        let mut cursor = self.table.cursor(self.newest());
        cursor.seek_first()?;
        while cursor.valid() {
            table.add(cursor.key(), cursor.kind(), cursor.stored().beside())?;
            cursor.next()?;
        }
        table.finish()
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Map({} bytes)", self.size_bytes())
    }
}

fn entry_of(kind: Kind, value: impl FnOnce() -> Value) -> Entry {
    if kind.is_live() { Entry::Value(value()) } else { Entry::Deleted }
}

/// An iterator over keys with their values and tombstones. Keeps the memory of the map.
pub struct Entries {
    tree: Arc<Tree>,
    at: SeqNo,
    range: CursorRange<MemtableCursor>,
}

impl Entries {
    fn cursor(tree: &Arc<Tree>, at: SeqNo) -> MemtableCursor {
        MemtableCursor::new(Position::new(tree.clone()), at, true)
    }

    fn item(cursor: Result<&MemtableCursor>) -> (Vec<u8>, Entry) {
        let cursor = cursor.expect("memory does not fail");
        (cursor.key().to_vec(), entry_of(cursor.kind(), || cursor.share().beside()))
    }
}

impl Iterator for Entries {
    type Item = (Vec<u8>, Entry);

    fn next(&mut self) -> Option<Self::Item> {
        self.range.next(|| Self::cursor(&self.tree, self.at)).map(Self::item)
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.next_back(|| Self::cursor(&self.tree, self.at)).map(Self::item)
    }
}

#[cfg(test)]
mod tests;
