//! Sealed memtables, and the log that is kept until they are flushed.

use super::State;
use crate::types::Result;

/// A log with more finished segments is flushed, however little is in it (flush.2).
const SEGMENTS_MAX: u64 = 32;

impl State {
    /// Runs steps until the memtables that are sealed now have been flushed. Later ones are not waited for.
    pub(in crate::engine) fn flush_sealed(&self, mut step: impl FnMut() -> Result<bool>) -> Result<()> {
        let Some(newest) = self.pipeline.newest_sealed() else { return Ok(()) };
        while self.pipeline.has_sealed(newest) && step()? {}
        Ok(())
    }

    /// Seals the replayed memtable if it came from many segments, so that it is flushed soon (flush.2).
    pub(crate) fn seal_long_log(&self) -> Result<()> {
        if self.has_many_segments()? { self.pipeline.seal() } else { Ok(()) }
    }

    /// Returns whether the next opening would read many segments. Obsolete ones that cannot be removed do not
    /// count.
    pub(in crate::engine) fn has_many_segments(&self) -> Result<bool> {
        let current = self.pipeline.current_segment()?;
        let first = self.tables.manifest().state().log_extent().from;
        Ok(current.saturating_sub(first) > SEGMENTS_MAX)
    }
}
