//! A cursor over a sorted run, table after table.
//!
//! At most one table is open in the cursor. The tables of a run are in key order and do not overlap
//! (version.2). Tables without keys inside the bounds are not read, so damage in them is not noticed.

use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

use crate::manifest::version::Run;
use crate::sstable::TableCursor;
use crate::types::bounds::{BoundKey, Bounds};
use crate::types::cursor::SourceCursor;
use crate::types::expiry::Expiry;
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// A cursor over a run.
pub struct RunCursor {
    run: Arc<Run>,
    /// Tables that may hold keys inside the bounds.
    tables: Range<usize>,
    at: SeqNo,
    /// The open table: its index and a cursor on it.
    table: Option<(usize, TableCursor)>,
}

impl RunCursor {
    /// Creates a cursor at a sequence number within bounds. `None` if the run holds nothing there.
    pub fn new(run: &Arc<Run>, at: SeqNo, bounds: &Bounds) -> Option<Self> {
        let tables = run.within(&bounds.lower, &bounds.upper);
        (!tables.is_empty()).then(|| RunCursor { run: run.clone(), tables, at, table: None })
    }

    /// Opens table `index` unless it is open already, and returns its cursor. `None` past either end.
    #[inline]
    fn open(&mut self, index: Option<usize>) -> Option<&mut TableCursor> {
        let index = index.filter(|i| self.tables.contains(i));
        match (&self.table, index) {
            (_, None) => self.table = None,
            (Some((open, _)), Some(i)) if *open == i => {}
            (_, Some(i)) => self.table = Some((i, self.run.tables()[i].table.cursor(self.at, true))),
        }
        self.table.as_mut().map(|(_, cursor)| cursor)
    }

    /// Moves to the following tables while the open one has no more keys.
    #[inline]
    fn settle_forward(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.table {
            if cursor.valid() {
                return Ok(());
            }
            let next = index + 1;
            if let Some(cursor) = self.open(Some(next)) {
                cursor.seek_first()?;
            }
        }
        Ok(())
    }

    fn settle_backward(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.table {
            if cursor.valid() {
                return Ok(());
            }
            let previous = index.checked_sub(1);
            if let Some(cursor) = self.open(previous) {
                cursor.seek_last()?;
            }
        }
        Ok(())
    }

    /// Passes the next `count` user keys and their values to `visit`; see [`TableCursor::visit_plain`].
    #[inline]
    pub fn visit_plain(
        &mut self,
        count: usize,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.table.as_mut().expect("a valid cursor").1.visit_plain(count, visit)
    }

    #[inline]
    fn cursor(&self) -> &TableCursor {
        &self.table.as_ref().expect("a valid cursor").1
    }
}

impl SourceCursor for RunCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let first = self.run.first_from(key).max(self.tables.start);
        if let Some(cursor) = self.open(Some(first)) {
            cursor.seek(key)?;
        }
        self.settle_forward()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let last = self.run.count_before(key).min(self.tables.end).checked_sub(1);
        if let Some(cursor) = self.open(last) {
            cursor.seek_before(key)?;
        }
        self.settle_backward()
    }

    fn seek_first(&mut self) -> Result<()> {
        if let Some(cursor) = self.open(Some(self.tables.start)) {
            cursor.seek_first()?;
        }
        self.settle_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        let last = self.tables.end.checked_sub(1);
        if let Some(cursor) = self.open(last) {
            cursor.seek_last()?;
        }
        self.settle_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.table.as_mut().expect("a valid cursor").1.next()?;
        self.settle_forward()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.table.as_mut().expect("a valid cursor").1.prev()?;
        self.settle_backward()
    }

    fn stored_ahead(&self, keys: usize) -> Option<Stored<&[u8]>> {
        self.table.as_ref()?.1.stored_ahead(keys)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.table.as_ref().is_some_and(|(_, cursor)| cursor.valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor().key()
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        self.cursor().seq()
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.cursor().kind()
    }

    #[inline]
    fn stored(&self) -> Stored<&[u8]> {
        self.cursor().stored()
    }

    #[inline]
    fn expiry(&self) -> Option<Expiry> {
        self.cursor().expiry()
    }

    #[inline]
    fn share(&self) -> Stored<Value> {
        self.cursor().share()
    }

    fn older(&mut self) -> Result<bool> {
        // All versions of a key are in one table (compaction_output.2).
        self.table.as_mut().expect("a valid cursor").1.older()
    }

    fn plain_before(&self, rival: Option<&[u8]>, upper: &Bound<BoundKey>) -> usize {
        self.cursor().plain_before(rival, upper)
    }

    #[inline]
    fn step(&mut self) {
        self.table.as_mut().expect("a valid cursor").1.step();
    }
}
