//! Sealed memtables, and the log that stays until they are flushed.

use super::State;
use crate::types::Result;

/// A log of more segments than these, beside the one in use, is flushed, however little is in it (flush.2).
const SEGMENTS_MAX: u64 = 32;

impl State {
    /// Takes steps until what is sealed now has been flushed: what others seal meanwhile may be without end.
    pub(in crate::engine) fn flush_sealed(&self, mut step: impl FnMut() -> Result<bool>) -> Result<()> {
        let Some(newest) = self.pipeline.newest_sealed() else { return Ok(()) };
        while self.pipeline.has_sealed(newest) && step()? {}
        Ok(())
    }

    /// Has what was replayed flushed soon if it came from many segments. For opening, before anything is written (flush.2).
    pub(crate) fn seal_long_log(&self) -> Result<()> {
        if self.has_many_segments()? { self.pipeline.seal() } else { Ok(()) }
    }

    /// Whether the log has many segments that the next opening would read. Those that are obsolete and cannot be removed do not count.
    pub(in crate::engine) fn has_many_segments(&self) -> Result<bool> {
        let current = self.pipeline.current_segment()?;
        let first = self.tables.manifest().state().log_extent().from;
        Ok(current.saturating_sub(first) > SEGMENTS_MAX)
    }
}
