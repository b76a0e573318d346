//! The memtable: the newest writes, sorted, in memory.
//!
//! ```text
//!   commit --Applier--> filter bits --> arena B+tree: key --> newest version --> older ...
//!                 `---> range tombstones
//!   get    --may_contain--> get at a sequence number      cursor, scan --> in key order
//! ```
//!
//! memtable.1. One applier inserts; any number of readers read meanwhile, without locks. A reader that takes its sequence number by
//!     an acquire load, from where the applier's side stored it with release after inserting, finds everything up
//!     to that number, and never half an entry.
//! memtable.2. A key's versions come with strictly increasing sequence numbers.
//! memtable.3. A key that was inserted is never denied by `may_contain`. Range tombstones are not in the filter: whoever skips
//!     `get` because of it still looks at `range_tombstones`.
//! memtable.4. Memory is given back as a whole, when the last owner (memtable, applier, cursor, scan) is gone.
//!
//! The files, in reading order: `permutation`, `arena`, `record`, `node`, `tree` (how readers and the applier work
//! together), `writer`, `position`, `cursor`, `scan`, `filter`, `runs` (many operands of one key). `piece` holds sorted writes of one transaction, which never change. There is no file format here: tables have one.

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
mod tree;
mod writer;

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

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

/// See the module's documentation.
pub(crate) struct Memtable {
    tree: Arc<Tree>,
    filter: Filter,
    /// Until the applier takes it.
    filter_writer: Mutex<Option<FilterWriter>>,
    range_tombstones: RwLock<Arc<RangeTombstones>>,
    /// The blob files that it may be the only one to know (blob_set.1 in blob/set.rs).
    blobs: Mutex<Vec<Arc<BlobFile>>>,
    /// Release store after the set is replaced, acquire load: who sees true finds the tombstones.
    has_range_tombstones: AtomicBool,
    /// The rest are statistics, stored by the applier alone. Relaxed: they protect nothing.
    range_tombstone_bytes: AtomicUsize,
    entries: AtomicU64,
    removals: AtomicU64,
    unresolved: AtomicU64,
    expiring: AtomicU64,
    due: Due,
    /// `u64::MAX` while empty.
    min_seq: AtomicU64,
    max_seq: AtomicU64,
}

/// The right to write to one memtable (memtable.1).
pub(crate) struct Applier {
    tree: TreeWriter,
    filter: FilterWriter,
    runs: Runs,
}

impl Applier {
    /// From here on it joins the operands of long runs (runs.rs).
    pub(crate) fn joining(mut self, join: Box<dyn Join>) -> Self {
        self.runs.join_by(join);
        self
    }
}

impl Memtable {
    /// An empty memtable; the filter is sized for `expected_bytes` of entries.
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
            due: Due::default(),
            min_seq: AtomicU64::new(u64::MAX),
            max_seq: AtomicU64::new(0),
        }
    }

    /// The applier.
    ///
    /// # Panics
    /// On the second call (memtable.1).
    pub(crate) fn applier(&self) -> Applier {
        let tree = TreeWriter::new(Arc::clone(&self.tree));
        Applier {
            tree,
            filter: self.filter_writer.lock().take().expect("memtable.1: one applier per memtable"),
            runs: Runs::default(),
        }
    }

    /// Keeps a blob file open that its entries are about to reference.
    pub(crate) fn keep(&self, file: &Arc<BlobFile>) {
        let mut blobs = self.blobs.lock();
        if !blobs.last().is_some_and(|last| Arc::ptr_eq(last, file)) {
            blobs.push(file.clone());
        }
    }

    /// Inserts a version. Ascending keys are inserted fastest.
    ///
    /// # Panics
    /// If the key has a version of this or a newer sequence number (memtable.2), or the applier is another memtable's.
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
        self.note_seq(entry.seq);
    }

    /// Inserts versions in ascending order of their keys.
    ///
    /// # Panics
    /// As `insert`.
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

    /// Asks the processor for what look-ups of these keys will need, as far as it goes at once.
    pub(crate) fn warm<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.tree.warm(keys);
    }

    /// Adds a range tombstone. Costs time in proportion to the fragments that it covers, and a little for the others
    /// (range_tombstone.3).
    ///
    /// # Panics
    /// If the applier is another memtable's.
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
        // Freed only now, so that no reader waits for it.
        drop(old);
    }

    fn note_seq(&self, seq: SeqNo) {
        let (min, max) = (self.min_seq.load(Ordering::Relaxed), self.max_seq.load(Ordering::Relaxed));
        self.min_seq.store(min.min(seq.get()), Ordering::Relaxed);
        self.max_seq.store(max.max(seq.get()), Ordering::Relaxed);
    }

    /// False if the key with this hash certainly has no entry. Says nothing about range tombstones (memtable.3).
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The newest version of a key not newer than `at`, tombstones included. Does not probe the filter.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], at: SeqNo) -> Option<EntryRef<'_>> {
        Some(self.tree.find(key)?.visible(at)?.entry())
    }

    /// The versions of a key not newer than `at`, newest first; a long run of operands may come as one list (runs.rs). Does not probe
    /// the filter.
    #[inline]
    pub(crate) fn versions(&self, key: &[u8], at: SeqNo) -> impl Iterator<Item = EntryRef<'_>> {
        let newest = self.tree.find(key).and_then(|newest| newest.visible(at));
        let shown = std::iter::successors(newest.map(RecordRef::shown), |version| {
            version.previous().map(RecordRef::shown)
        });
        shown.map(RecordRef::entry)
    }

    /// The newest version of a key that somebody wrote, not a sweep (conflict.3); none if it is not newer than `since`.
    pub(crate) fn newest_written(&self, key: &[u8], since: SeqNo) -> Option<SeqNo> {
        let mut newer = self.versions(key, SeqNo::MAX).take_while(|entry| entry.seq > since);
        newer.find(|entry| !entry.kind.is_sweep()).map(|entry| entry.seq)
    }

    /// Whether there are range tombstones.
    #[inline]
    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.has_range_tombstones.load(Ordering::Acquire)
    }

    /// The range tombstones as they are now.
    pub(crate) fn range_tombstones(&self) -> Arc<RangeTombstones> {
        Arc::clone(&self.range_tombstones.read())
    }

    /// A cursor for a reader of values at `at` (memtable_cursor.2).
    pub(crate) fn cursor(&self, at: SeqNo) -> MemtableCursor {
        MemtableCursor::new(Position::new(Arc::clone(&self.tree)), at, true)
    }

    /// A cursor for a reader of all versions up to `at` (memtable_cursor.2).
    pub(crate) fn version_cursor(&self, at: SeqNo) -> MemtableCursor {
        MemtableCursor::new(Position::new(Arc::clone(&self.tree)), at, false)
    }

    /// All versions, from the first key on.
    pub(crate) fn scan(&self) -> MemtableScan {
        MemtableScan::new(Position::new(Arc::clone(&self.tree)))
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes_used(&self) -> usize {
        self.content_bytes() + self.filter.size_bytes()
    }

    /// The same without the filter, whose size is the same from the beginning.
    pub(crate) fn content_bytes(&self) -> usize {
        self.tree.arena.used() + self.range_tombstone_bytes.load(Ordering::Relaxed)
    }

    /// Versions of keys.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Those of them that remove their key.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Relaxed)
    }

    /// Those of them that are unresolved. Who has learned from the published counts of a commit finds those of its versions counted.
    #[inline]
    pub(crate) fn unresolved(&self) -> u64 {
        self.unresolved.load(Ordering::Relaxed)
    }

    /// Those of them that expire, or whose operands may begin a value that does.
    #[inline]
    pub(crate) fn expiring(&self) -> u64 {
        self.expiring.load(Ordering::Relaxed)
    }

    /// When something of it is due to be swept.
    pub(crate) fn due(&self) -> &Due {
        &self.due
    }

    /// Whether a version in a range of keys is unresolved.
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

    /// Whether there are neither versions nor range tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_range_tombstones()
    }

    /// The smallest sequence number, range tombstones included; none while empty.
    pub(crate) fn min_seq(&self) -> Option<SeqNo> {
        SeqNo::try_new(self.min_seq.load(Ordering::Relaxed))
    }

    /// The largest sequence number, range tombstones included; none while empty.
    pub(crate) fn max_seq(&self) -> Option<SeqNo> {
        self.min_seq().map(|_| SeqNo::new(self.max_seq.load(Ordering::Relaxed)))
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memtable({} entries, {} bytes)", self.entries(), self.bytes_used())
    }
}
