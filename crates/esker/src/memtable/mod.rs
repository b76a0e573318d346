//! The memtable: a sorted map in memory, with one writer and any number of readers at the same time.
//!
//! The public part ([`Map`]) works without a database:
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("000001.sst");
//! use esker::memtable::{Entry, Map};
//! use esker::sstable;
//!
//! let map = Map::new();
//! map.put(b"ann", b"1")?;
//! map.put(b"bob", b"2")?;
//! map.delete(b"ann")?;
//! assert_eq!(map.get(b"bob").unwrap(), b"2");
//! assert_eq!(map.entry(b"ann"), Some(Entry::Deleted)); // hides `ann` in older tables
//! assert_eq!(map.entry(b"carl"), None); // older tables decide
//! let keys: Vec<_> = map.entries("a".."c").rev().map(|(key, _)| key).collect();
//! assert_eq!(keys, [b"bob", b"ann"]);
//!
//! map.flush_to(sstable::Writer::create(&path)?)?;
//! assert_eq!(sstable::Reader::open(&path)?.entry(b"ann")?, Some(Entry::Deleted));
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! # In the engine
//! It holds the newest writes of a database.
//!
//! ```text
//!   commit --Applier--> filter bits --> arena B+tree: key --> newest version --> older ...
//!                 `---> range tombstones
//!   get    --may_contain--> get at a sequence number      cursor, scan --> in key order
//! ```
//!
//! memtable.1. One applier inserts, and any number of readers read at the same time without locks. The
//!     committer publishes a sequence number with a release store after the inserts; a reader that loads it
//!     with acquire finds every entry up to that number, complete.
//! memtable.2. The versions of a key are inserted with strictly increasing sequence numbers.
//! memtable.3. `may_contain` returns true for every inserted key. Range tombstones are not in the filter: a
//!     reader that skips `get` because of the filter must still check `range_tombstones`.
//!
//! All memory is freed together, when the last owner (memtable, applier, cursor or scan) is dropped.
//!
//! Files in reading order: `permutation`, `arena`, `record`, `node`, `tree` (how readers and the applier
//! cooperate), `writer`, `position`, `cursor`, `scan`, `size`, `filter`, `runs` (long operand chains of one
//! key). `piece` holds immutable sorted writes of one transaction. A memtable has no file format: a flush
//! writes it as a table.

mod arena;
mod cursor;
mod filter;
mod node;
mod permutation;
mod piece;
mod position;
mod record;
mod runs;
mod scan;
mod size;
mod standalone;
mod tree;
mod writer;

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

pub use self::standalone::{Entries, Map};
pub use crate::types::Entry;

pub(crate) use self::cursor::MemtableCursor;
use self::filter::{Filter, FilterWriter};
pub(crate) use self::piece::{Piece, PieceCursor, PieceScan};
use self::position::Position;
use self::record::RecordRef;
pub(crate) use self::runs::Join;
use self::runs::Runs;
pub(crate) use self::scan::MemtableScan;
use self::tree::{Tree, WARMED};
use self::writer::TreeWriter;
use crate::blob::BlobFile;
use crate::encoding::hash::key_hash;
use crate::encoding::operand::expiries;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::types::SeqNo;
use crate::types::due::Due;
use crate::types::entry::EntryRef;
use crate::types::key_range::KeyRange;
use crate::types::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::types::stored::Stored;

/// The newest writes of the database; see the module documentation.
pub(crate) struct Memtable {
    tree: Arc<Tree>,
    filter: Filter,
    /// `None` once the applier has taken it.
    filter_writer: Mutex<Option<FilterWriter>>,
    range_tombstones: RwLock<Arc<RangeTombstones>>,
    /// Blob files kept open because this memtable may hold the only reference to them (blob_set.1).
    blobs: Mutex<Vec<Arc<BlobFile>>>,
    /// Stored with release after the set is replaced, loaded with acquire: a reader that sees true finds the
    /// tombstones.
    has_range_tombstones: AtomicBool,
    /// This field and those below are statistics, stored only by the applier. Relaxed: they protect no other
    /// data.
    range_tombstone_bytes: AtomicUsize,
    entries: AtomicU64,
    removals: AtomicU64,
    unresolved: AtomicU64,
    expiring: AtomicU64,
    blob_bytes: AtomicU64,
    due: Due,
    /// `u64::MAX` while empty.
    min_seq: AtomicU64,
    max_seq: AtomicU64,
}

/// The exclusive right to insert into one memtable (memtable.1).
pub(crate) struct Applier {
    tree: TreeWriter,
    filter: FilterWriter,
    runs: Runs,
}

impl Applier {
    /// Joins the operands of long runs with `join` from now on; see `runs.rs`.
    pub(crate) fn joining(mut self, join: Box<dyn Join>) -> Self {
        self.runs.join_by(join);
        self
    }
}

impl Memtable {
    /// Creates an empty memtable with a filter sized for `expected_bytes` of entries.
    pub(crate) fn new(expected_bytes: usize) -> Self {
        let (filter, filter_writer) = Filter::new(expected_bytes);
        Memtable {
            tree: Arc::new(Tree::new()),
            filter,
            filter_writer: Mutex::new(Some(filter_writer)),
            blobs: Mutex::default(),
            range_tombstones: RwLock::default(),
            has_range_tombstones: AtomicBool::new(false),
            range_tombstone_bytes: AtomicUsize::new(0),
            entries: AtomicU64::new(0),
            removals: AtomicU64::new(0),
            unresolved: AtomicU64::new(0),
            expiring: AtomicU64::new(0),
            blob_bytes: AtomicU64::new(0),
            due: Due::default(),
            min_seq: AtomicU64::new(u64::MAX),
            max_seq: AtomicU64::new(0),
        }
    }

    /// Returns the applier.
    ///
    /// # Panics
    /// If the applier was already taken (memtable.1).
    pub(crate) fn applier(&self) -> Applier {
        let tree = TreeWriter::new(Arc::clone(&self.tree));
        Applier {
            tree,
            filter: self.filter_writer.lock().take().expect("memtable.1: one applier per memtable"),
            runs: Runs::default(),
        }
    }

    /// Keeps a blob file open because entries are about to reference it.
    pub(crate) fn keep(&self, file: &Arc<BlobFile>) {
        let mut blobs = self.blobs.lock();
        if !blobs.last().is_some_and(|last| Arc::ptr_eq(last, file)) {
            blobs.push(file.clone());
        }
    }

    /// Inserts a version. Inserting in ascending key order is fastest.
    ///
    /// # Panics
    /// If the key already has a version with this or a larger sequence number (memtable.2), or if the applier
    /// belongs to another memtable.
    pub(crate) fn insert(&self, applier: &mut Applier, entry: EntryRef<'_>) {
        assert!(applier.tree.writes_to(&self.tree), "memtable.1");
        let Applier { tree, filter, runs } = applier;
        let hash = key_hash(entry.key);
        self.filter.prefetch(filter, hash);
        let joined = if entry.kind.is_operand() { runs.joined(entry, hash, self) } else { None };
        tree.insert(entry, joined, || self.filter.insert(filter, hash));
        self.entries.store(self.entries() + 1, Ordering::Relaxed);
        if !entry.kind.is_live() {
            self.removals.store(self.removals() + 1, Ordering::Relaxed);
        }
        if entry.kind.is_unresolved() {
            self.unresolved.store(self.unresolved() + 1, Ordering::Relaxed);
        }
        if let Some(expiry) = expiries(entry.kind, entry.value).min() {
            self.expiring.store(self.expiring() + 1, Ordering::Relaxed);
            self.due.lower(expiry);
        }
        if let Stored::Blob(pointer) = Stored::of(entry.kind, entry.value) {
            self.note_blob(pointer);
        }
        self.note_seq(entry.seq);
    }

    /// Inserts versions in ascending key order.
    ///
    /// # Panics
    /// Like `insert`.
    pub(crate) fn insert_all<'e>(
        &self,
        applier: &mut Applier,
        entries: impl Iterator<Item = EntryRef<'e>> + Clone,
    ) {
        let mut entries = entries;
        loop {
            let ahead = entries.clone();
            let Some(first) = entries.next() else { return };
            let mut rest = entries.by_ref().take(WARMED - 1).peekable();
            if rest.peek().is_some() {
                applier.tree.warm(ahead.map(|entry| entry.key));
            }
            self.insert(applier, first);
            rest.for_each(|entry| self.insert(applier, entry));
        }
    }

    /// Prefetches the memory that lookups of these keys will read, for a limited number of keys.
    pub(crate) fn warm<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.tree.warm(keys);
    }

    /// Adds a range tombstone. The cost is proportional to the number of fragments it overlaps.
    ///
    /// # Panics
    /// If the applier belongs to another memtable.
    pub(crate) fn add_range_tombstone(&self, applier: &mut Applier, tombstone: RangeTombstone) {
        assert!(applier.tree.writes_to(&self.tree), "memtable.1");
        if tombstone.start >= tombstone.end {
            return;
        }
        self.note_seq(tombstone.seq);
        let mut set = RangeTombstones::clone(&self.range_tombstones());
        set.insert(tombstone);
        self.range_tombstone_bytes.store(set.size_bytes(), Ordering::Relaxed);
        let old = std::mem::replace(&mut *self.range_tombstones.write(), Arc::new(set));
        self.has_range_tombstones.store(true, Ordering::Release);
        // Freed after the lock is released, so that readers do not wait for it.
        drop(old);
    }

    fn note_seq(&self, seq: SeqNo) {
        let (min, max) = (self.min_seq.load(Ordering::Relaxed), self.max_seq.load(Ordering::Relaxed));
        self.min_seq.store(min.min(seq.get()), Ordering::Relaxed);
        self.max_seq.store(max.max(seq.get()), Ordering::Relaxed);
    }

    /// Returns false if no key with this hash was inserted. Ignores range tombstones (memtable.3).
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// Returns the newest version of a key with a sequence number up to `at`, including tombstones. Does not
    /// probe the filter.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], at: SeqNo) -> Option<EntryRef<'_>> {
        Some(self.tree.find(key)?.visible(at)?.entry())
    }

    /// Returns the versions of a key up to `at`, newest first. A long run of operands may be returned as one
    /// list (`runs.rs`). Does not probe the filter.
    #[inline]
    pub(crate) fn versions(&self, key: &[u8], at: SeqNo) -> impl Iterator<Item = EntryRef<'_>> {
        let newest = self.tree.find(key).and_then(|newest| newest.visible(at));
        let shown = std::iter::successors(newest.map(RecordRef::shown), |version| {
            version.previous().map(RecordRef::shown)
        });
        shown.map(RecordRef::entry)
    }

    /// Returns the sequence number of the newest version of `key` above `since`, ignoring versions written by
    /// the expiry sweep (conflict.3).
    pub(crate) fn newest_written(&self, key: &[u8], since: SeqNo) -> Option<SeqNo> {
        let mut newer = self.versions(key, SeqNo::MAX).take_while(|entry| entry.seq > since);
        newer.find(|entry| !entry.kind.is_sweep()).map(|entry| entry.seq)
    }

    /// Whether there are range tombstones.
    #[inline]
    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.has_range_tombstones.load(Ordering::Acquire)
    }

    /// Returns the current set of range tombstones.
    pub(crate) fn range_tombstones(&self) -> Arc<RangeTombstones> {
        Arc::clone(&self.range_tombstones.read())
    }

    /// Returns a cursor over values at `at`. It shows a long run of operands as one list (`runs.rs`).
    pub(crate) fn cursor(&self, at: SeqNo) -> MemtableCursor {
        MemtableCursor::new(Position::new(Arc::clone(&self.tree)), at, true)
    }

    /// Returns a cursor over all versions up to `at`. It shows every operand.
    pub(crate) fn version_cursor(&self, at: SeqNo) -> MemtableCursor {
        MemtableCursor::new(Position::new(Arc::clone(&self.tree)), at, false)
    }

    /// Returns a scan over all versions of all keys, starting at the first key.
    pub(crate) fn scan(&self) -> MemtableScan {
        MemtableScan::new(Position::new(Arc::clone(&self.tree)))
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes_used(&self) -> usize {
        self.content_bytes() + self.filter.size_bytes()
    }

    /// Bytes in use without the filter, whose initial size does not depend on the contents.
    pub(crate) fn content_bytes(&self) -> usize {
        self.tree.arena.used() + self.range_tombstone_bytes.load(Ordering::Relaxed)
    }

    /// Number of versions.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Number of versions that remove their key.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Relaxed)
    }

    /// Number of unresolved versions. A reader that has seen the published counts of a commit finds the
    /// versions of that commit included.
    #[inline]
    pub(crate) fn unresolved(&self) -> u64 {
        self.unresolved.load(Ordering::Relaxed)
    }

    /// Number of versions that expire, or whose operands may create a value that expires.
    #[inline]
    pub(crate) fn expiring(&self) -> u64 {
        self.expiring.load(Ordering::Relaxed)
    }

    /// When the entries of this memtable are due to be swept.
    pub(crate) fn due(&self) -> &Due {
        &self.due
    }

    /// Returns whether any version in a range of keys is unresolved.
    pub(crate) fn is_unresolved_in(&self, range: &KeyRange) -> bool {
        let mut scan = self.scan();
        scan.seek(&range.start);
        while let Some(entry) = scan.next().filter(|entry| range.end.admits(entry.key)) {
            if entry.kind.is_unresolved() {
                return true;
            }
        }
        false
    }

    /// Returns whether the memtable has neither versions nor range tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_range_tombstones()
    }

    /// Smallest sequence number, including range tombstones. `None` while empty.
    pub(crate) fn min_seq(&self) -> Option<SeqNo> {
        SeqNo::try_new(self.min_seq.load(Ordering::Relaxed))
    }

    /// Largest sequence number, including range tombstones. `None` while empty.
    pub(crate) fn max_seq(&self) -> Option<SeqNo> {
        self.min_seq().map(|_| SeqNo::new(self.max_seq.load(Ordering::Relaxed)))
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memtable({} entries, {} bytes)", self.entries(), self.bytes_used())
    }
}
