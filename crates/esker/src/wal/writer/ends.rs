//! The ends of segments: finished durably, given up by recovery, and released.
//!
//! ```text
//!   active --finish--> needed by recovery --manifest gives it up--> kept for readers --release--> spare
//! ```
//!
//! - `close` succeeds once the whole log is durable and finished. It ignores errors of deleting unused files:
//!   the next opening deletes them.

use super::WalWriter;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result};
use crate::wal::active::Active;
use crate::wal::format::RecordHeader;

impl WalWriter {
    /// Finishes the active segment durably, so that later records can become obsolete independently. Returns
    /// the number of the segment that the next record goes to. A segment without records stays active.
    pub(crate) fn rotate(&mut self) -> Result<u64> {
        self.guard(|writer| {
            if writer.active.as_ref().is_some_and(Active::has_records) {
                writer.finish_active()?;
            }
            Ok(writer.current_segment())
        })
    }

    /// Makes everything durable, finishes the active segment and truncates it, unless it has no records.
    pub(crate) fn cut(&mut self) -> Result<()> {
        let cut = self.guard(|writer| {
            writer.sync_active()?;
            let Some(active) = writer.active.as_ref().filter(|active| active.has_records()) else {
                return Ok(None);
            };
            let segment = active.segment.clone();
            let used = writer.finish_active()?;
            // A truncated file cannot be recycled.
            writer.old.forbid_reuse_of_newest();
            Ok(Some((segment, used)))
        })?;
        if let Some((segment, used)) = cut {
            // A failure only wastes space until the segment is deleted.
            let _ = segment.file.set_len(used);
        }
        Ok(())
    }

    /// Makes the end of the recovered log durable (wal.3, wal.9). A failed call can be repeated.
    pub(super) fn store_end(&mut self) -> Result<()> {
        if let Some(end) = &self.end_before {
            end.store(&self.pool.env)?;
            self.end_before = None;
        }
        Ok(())
    }

    /// Prepares for recovery to need no segment below the current one (wal.9).
    pub(crate) fn prepare_to_give_up(&mut self) -> Result<()> {
        if self.pool.shelf().is_some() { self.store_end() } else { Ok(()) }
    }

    /// Records that recovery needs no segment below `segment`. Readers may still need them.
    pub(crate) fn note_obsolete(&mut self, segment: u64) {
        self.old.note_obsolete(segment);
        self.update_meter(0);
    }

    /// Recycles or deletes the files of segments below `segment`, which must be durably obsolete, except
    /// those on the shelf (shelf.2). After an error the next call retries the rest.
    pub(crate) fn release_below(&mut self, segment: u64) -> Result<()> {
        let (first_kept, released) = self.old.release_below(segment);
        // The end of a segment that nothing needs has no use.
        self.end_before = self.end_before.take().filter(|end| end.segment >= first_kept);
        self.update_meter(0);
        released
    }

    /// Makes everything durable, truncates the last segment, and deletes unused files. A small prepared
    /// file may stay for the next process (pool.10).
    pub(crate) fn close(mut self) -> Result<()> {
        self.guard(|writer| {
            // Synced first, so that `End` states that all records are durable.
            writer.sync_active()?;
            if let Some(active) = &writer.active {
                let segment = active.segment.clone();
                let used = writer.finish_active()?;
                // Not synced: a crash that loses the cut leaves a longer file, which also ends at its `End`.
                segment.file.set_len(used).map_err(|e| Error::io("cut", &segment.path, e))?;
            }
            Ok(())
        })?;
        let _ = self.pool.end(&mut self.ready);
        Ok(())
    }

    /// Ends the active segment durably (wal.3). Returns how many of its bytes are used.
    pub(super) fn finish_active(&mut self) -> Result<u64> {
        self.reserved = None;
        let active = self.active.as_ref().expect("only an active segment is finished");
        let end = RecordHeader::end(self.last_seq, active.synced as u32).encode(active.segment.stamp);
        self.put(&end)?;
        if canary::is_set(Canary::WalEndNotSynced) {
            self.write_out()?;
        } else {
            self.sync_active()?;
        }
        let active = self.active.take().expect("it was there above");
        let number = active.segment.number;
        if let Some(shelf) = self.pool.shelf() {
            shelf.finish(number, active.appended, self.last_seq);
        }
        self.old.push(number, active.spare(), active.appended);
        self.update_meter(0);
        Ok(active.appended)
    }
}
