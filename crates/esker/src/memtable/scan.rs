//! All versions of all keys of a memtable, in the order of tables: key ascending, sequence number descending.
//!
//! It is meant for a memtable that is not written any more (a flush); of entries inserted meanwhile it may show some.

use super::position::Position;
use crate::types::entry::EntryRef;

/// See [`Memtable::scan`](super::Memtable::scan). It keeps the memtable's entries alive.
pub(crate) struct MemtableScan {
    position: Position,
    /// The position's version was not returned yet.
    pending: bool,
}

impl MemtableScan {
    pub(super) fn new(mut position: Position) -> Self {
        position.first();
        MemtableScan { position, pending: true }
    }

    /// The next entry. Not an `Iterator`, since an entry borrows the scan.
    pub(crate) fn next(&mut self) -> Option<EntryRef<'_>> {
        if !self.pending && self.position.version().is_some() && !self.position.older_version() {
            self.position.next();
        }
        self.pending = false;
        Some(self.position.version()?.entry())
    }

    /// The entry that `next` returned last.
    ///
    /// # Panics
    /// Before the first entry and after the last.
    #[inline]
    pub(crate) fn current(&self) -> EntryRef<'_> {
        self.position.version().expect("the scan stands on an entry").entry()
    }

    /// Goes on at the newest version of the first key `>= key`.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.position.seek(key);
        self.pending = true;
    }
}
