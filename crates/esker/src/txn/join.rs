//! Intersects two sorted cursors. Large transactions compare their writes with committed data this way.
//!
//! ```text
//!   writes     a   c   e e e e ...... x        each cursor steps to the other's key, or seeks if it is far:
//!   committed    b c d         ...... x y      the cost is that of the smaller one, at most that of a merge
//! ```

use crate::read::source::{Nothing, Source};
use crate::read::visible::VisibleCursor;
use crate::types::Result;
use crate::types::cursor::SourceCursor;

/// Number of steps before a seek.
const STEPS_MAX: usize = 8;

/// A cursor over keys in order.
pub(super) trait Sorted {
    fn valid(&self) -> bool;
    fn key(&self) -> &[u8];
    fn next(&mut self) -> Result<()>;
    fn seek(&mut self, key: &[u8]) -> Result<()>;
}

impl<T: SourceCursor> Sorted for T {
    fn valid(&self) -> bool {
        SourceCursor::valid(self)
    }
    fn key(&self) -> &[u8] {
        SourceCursor::key(self)
    }
    fn next(&mut self) -> Result<()> {
        SourceCursor::next(self)
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        SourceCursor::seek(self, key)
    }
}

/// A cursor over the live keys of a view.
pub(super) struct Live(pub(super) VisibleCursor<Source<Nothing>>);

impl Sorted for Live {
    fn valid(&self) -> bool {
        self.0.valid()
    }
    fn key(&self) -> &[u8] {
        self.0.key()
    }
    fn next(&mut self) -> Result<()> {
        self.0.next()
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.0.seek(key)
    }
}

/// Moves two cursors forward to the next common key. Returns false if there is none.
pub(super) fn meet(a: &mut impl Sorted, b: &mut impl Sorted) -> Result<bool> {
    while a.valid() && b.valid() {
        match a.key().cmp(b.key()) {
            std::cmp::Ordering::Equal => return Ok(true),
            std::cmp::Ordering::Less => catch_up(a, b.key())?,
            std::cmp::Ordering::Greater => catch_up(b, a.key())?,
        }
    }
    Ok(false)
}

/// Moves a cursor forward to the first key `>= key`.
fn catch_up(walk: &mut impl Sorted, key: &[u8]) -> Result<()> {
    for _ in 0..STEPS_MAX {
        walk.next()?;
        if !walk.valid() || walk.key() >= key {
            return Ok(());
        }
    }
    walk.seek(key)
}
