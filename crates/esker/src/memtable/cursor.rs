//! A cursor over a memtable at one sequence number.
//!
//! It stops at each key that has a version up to `at` and shows the newest such version. A cursor for values
//! shows a long run of operands as one list (`runs.rs`); a cursor for versions shows every operand.

use std::ops::ControlFlow;

use super::position::Position;
use super::record::RecordRef;
use crate::types::cursor::SourceCursor;
use crate::types::expiry::Expiry;
use crate::types::key::prefix_len;
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// See [`Memtable::cursor`](super::Memtable::cursor). The cursor keeps the entries of the memtable alive.
pub(crate) struct MemtableCursor {
    position: Position,
    at: SeqNo,
    is_for_values: bool,
}

impl MemtableCursor {
    pub(super) fn new(position: Position, at: SeqNo, is_for_values: bool) -> Self {
        MemtableCursor { position, at, is_for_values }
    }

    /// Moves from the current key in the direction of `step` to the first key with a visible version.
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

    /// Passes the keys and values after the current one to `visit`, up to the end of the leaf, while
    /// `is_inside` admits the key and the entry is a plain put. Stops when `visit` breaks. The cursor ends on
    /// the last entry visited.
    #[inline]
    pub(crate) fn visit_leaf(
        &mut self,
        is_inside: impl Fn(&[u8]) -> bool,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let at = self.at;
        let is_shown =
            |version: RecordRef<'_>| version.kind().resolved().is_plain() && is_inside(version.key());
        // All keys within the bounds of a walk belong to one keyspace.
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

    fn stored_ahead(&self, keys: usize) -> Option<Stored<&[u8]>> {
        self.position.ahead(keys).map(|newest| Stored::of(newest.kind(), newest.value()))
    }

    fn older(&mut self) -> Result<bool> {
        Ok(if self.is_for_values { self.position.older_shown() } else { self.position.older_version() })
    }
}
