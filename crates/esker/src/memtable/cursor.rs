//! A reader's walk over a memtable at one sequence number.
//!
//! memtable_cursor.1. The cursor stands on each key that has a version not newer than `at`, and shows the newest such version.
//! memtable_cursor.2. A cursor for values shows a long run of operands as one list (runs.rs); one for versions shows each.

use std::ops::ControlFlow;

use super::position::Position;
use super::record::RecordRef;
use crate::types::cursor::SourceCursor;
use crate::types::expiry::Expiry;
use crate::types::key::prefix_len;
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// See [`Memtable::cursor`](super::Memtable::cursor). It keeps the memtable's entries alive.
pub(crate) struct MemtableCursor {
    position: Position,
    at: SeqNo,
    /// memtable_cursor.2
    is_for_values: bool,
}

impl MemtableCursor {
    pub(super) fn new(position: Position, at: SeqNo, is_for_values: bool) -> Self {
        MemtableCursor { position, at, is_for_values }
    }

    /// From the key where the position stands, goes to the first one with a version to show (memtable_cursor.1).
    #[inline]
    fn settle(&mut self, step: impl Fn(&mut Position)) -> Result<()> {
        while self.position.version().is_some() && !self.show() {
            step(&mut self.position);
        }
        Ok(())
    }

    #[inline]
    fn show(&mut self) -> bool {
        if self.is_for_values {
            self.position.show_joined_at(self.at)
        } else {
            self.position.show_at(self.at)
        }
    }

    /// Shows the user keys and values behind the one at hand, up to the end of its leaf, while `visit` wants more, `is_inside` admits their keys, and
    /// each is a put that says all by itself. Stands on the one that was shown last.
    #[inline]
    pub(crate) fn visit_leaf(
        &mut self,
        is_inside: impl Fn(&[u8]) -> bool,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let at = self.at;
        let is_shown =
            |version: RecordRef<'_>| version.kind().resolved().is_plain() && is_inside(version.key());
        // All keys inside the bounds of a walk are of one keyspace.
        let prefix_len = prefix_len(self.version().key());
        while self.position.next_in_leaf(at, is_shown) {
            self.position.prefetch_value();
            let version = self.version();
            visit(&version.key()[prefix_len..], version.value())?;
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn version(&self) -> RecordRef<'_> {
        self.position.version().expect("the cursor is valid")
    }
}

impl SourceCursor for MemtableCursor {
    #[inline]
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.position.seek(key);
        self.settle(Position::next)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.position.seek_before(key);
        self.settle(Position::prev)
    }

    fn seek_first(&mut self) -> Result<()> {
        self.position.first();
        self.settle(Position::next)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.position.last();
        self.settle(Position::prev)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.position.next();
        self.settle(Position::next)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.position.prev();
        self.settle(Position::prev)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.position.version().is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.version().key()
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        self.version().seq()
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.version().kind()
    }

    #[inline]
    fn stored(&self) -> Stored<&[u8]> {
        Stored::of(self.kind(), self.version().value())
    }

    #[inline]
    fn expiry(&self) -> Option<Expiry> {
        Expiry::of_version(self.kind(), self.version().value())
    }

    #[inline]
    fn share(&self) -> Stored<Value> {
        self.position.prefetch_value();
        self.stored().to_value()
    }

    fn older(&mut self) -> Result<bool> {
        Ok(if self.is_for_values { self.position.older_shown() } else { self.position.older_version() })
    }
}
