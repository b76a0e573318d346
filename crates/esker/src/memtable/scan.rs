//! Iterates over all versions of all keys of a memtable in table order: key ascending, sequence number
//! descending.
//!
//! Meant for a memtable that receives no more writes, as in a flush. Entries inserted during the scan may or
//! may not be returned.

use super::position::Position;
use crate::types::entry::EntryRef;

/// A scan of all versions; see [`Memtable::scan`](super::Memtable::scan). It keeps the entries of the
/// memtable alive.
pub(crate) struct MemtableScan {
    position: Position,
    /// Whether the current version has not been returned yet.
    pending: bool,
}

impl MemtableScan {
    pub(super) fn new(mut position: Position) -> Self {
        position.first();
        MemtableScan { position, pending: true }
    }

    /// Returns the next entry. Not an `Iterator`, because an entry borrows the scan.
    pub(crate) fn next(&mut self) -> Option<EntryRef<'_>> {
        if !self.pending && self.position.version().is_some() && !self.position.older_version() {
            self.position.next();
        }
        self.pending = false;
        Some(self.position.version()?.entry())
    }

    /// Returns the entry that `next` returned last.
    ///
    /// # Panics
    /// Before the first entry and after the last.
    #[inline]
    pub(crate) fn current(&self) -> EntryRef<'_> {
        self.position.version().expect("the scan stands on an entry").entry()
    }

    /// Continues at the newest version of the first key `>= key`.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.position.seek(key);
        self.pending = true;
    }
}
