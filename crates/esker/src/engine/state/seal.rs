//! Sealed memtables, and the log that is kept until they are flushed.

use super::State;
use crate::txn::flush_reason::{MemtableFacts, Moment, flush_reason};
use crate::types::Result;

impl State {
    /// Runs steps until the memtables that are sealed now have been flushed. Later ones are not waited for.
    pub(in crate::engine) fn flush_sealed(&self, mut step: impl FnMut() -> Result<bool>) -> Result<()> {
        let Some(newest) = self.pipeline.newest_sealed() else { return Ok(()) };
        while self.pipeline.has_sealed(newest) && step()? {}
        Ok(())
    }

    /// Seals the replayed memtable if it came from many segments, so that it is flushed soon.
    pub(crate) fn seal_long_log(&self) -> Result<()> {
        let segments = self.segments_to_replay()?;
        let reason = flush_reason(MemtableFacts::default(), Moment::Open { segments });
        reason.map_or(Ok(()), |_| self.pipeline.seal())
    }

    /// Number of finished segments that the next opening would read. Obsolete ones that cannot be removed do
    /// not count.
    pub(in crate::engine) fn segments_to_replay(&self) -> Result<u64> {
        let current = self.pipeline.current_segment()?;
        let first = self.tables.manifest().state().log_extent().from;
        Ok(current.saturating_sub(first))
    }
}
