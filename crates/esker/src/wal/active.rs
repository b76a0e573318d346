//! The segment that records go to, and the three ways to write to it.
//!
//! ```text
//!   buffer --store--> mapped window --.
//!          --write--> page cache -----+--sync--> disk
//!          --write_durably, past the page cache--^
//! ```
//!
//! wal_writer.1. `synced <= written <= appended <= bytes` of the segment; the buffer holds
//!     `written..appended`.
//! wal_writer.7. The disk is asked to begin with each MiB as soon as the system has it. The sync at a
//!     segment's end, for which all commits wait, then has little left to do.

use std::sync::Arc;

use super::direct::DirectTail;
use super::format::{ALIGN, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use super::pool::WalPool;
use super::purpose::Use;
use super::spare::Spare;
use super::sync::SegmentFile;
use super::window::LogWindow;
use crate::types::{Error, Result};

/// Room that a record needs to start in a segment: its header, some payload, and the `End` record
/// (wal_writer.2).
pub(super) const ROOM_MIN: u64 = (2 * RECORD_HEADER_BYTES + ALIGN) as u64;
/// wal_writer.7
const BEGUN_BYTES: u64 = 1 << 20;
/// A segment with fewer unused bytes than this was written whole, for the file system.
const BLOCK_BYTES: u64 = 4096;

/// The segment that records go to, and how far it is filled, written and durable.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) segment: Arc<SegmentFile>,
    pub(super) bytes: u64,
    /// All its blocks were written before (pool.1).
    pub(super) was_written: bool,
    pub(super) appended: u64,
    pub(super) written: u64,
    pub(super) synced: u64,
    /// A record begins in it.
    pub(super) has_first: bool,
    /// Syncs so far.
    syncs: u64,
    /// The pool has been asked for the next file.
    pub(super) spare_wanted: bool,
    way: Way,
    window: LogWindow,
    /// The disk was asked to begin with what is before this offset (wal_writer.7).
    begun: u64,
}

/// How small syncs write (wal_direct.2).
#[derive(Debug)]
enum Way {
    /// Nothing was written yet but the header.
    Unknown,
    /// Past the page cache.
    Direct(DirectTail),
    /// Through it.
    Cached,
}

impl Active {
    /// A segment that has its header alone.
    pub(super) fn new(segment: SegmentFile, bytes: u64, was_written: bool, window: LogWindow) -> Active {
        let used = SEGMENT_HEADER_BYTES as u64;
        Active {
            segment: Arc::new(segment),
            bytes,
            was_written,
            appended: used,
            written: used,
            synced: used,
            has_first: false,
            syncs: 0,
            spare_wanted: false,
            way: Way::Unknown,
            window,
            begun: 0,
        }
    }

    /// Hands the buffer to the system without a call, where that is the way; false if it is not.
    pub(super) fn store(&mut self, buffer: &[u8]) -> bool {
        let is_stored =
            !buffer.is_empty() && self.window.write(&*self.segment.file, self.bytes, buffer, self.written);
        if is_stored {
            self.way = Way::Cached;
        }
        is_stored
    }

    /// Hands the buffer to the system.
    pub(super) fn write(&mut self, buffer: &[u8]) -> Result<()> {
        assert!(self.written + buffer.len() as u64 == self.appended, "wal_writer.1");
        assert!(self.appended <= self.bytes, "wal_writer.1");
        self.way = Way::Cached;
        let written = self.segment.file.write_all_at(buffer, self.written);
        written.map_err(|e| Error::io("write", &self.segment.path, e))
    }

    /// The system has all that was appended. Returns how many bytes it has been given.
    pub(super) fn note_written(&mut self) -> u64 {
        let bytes = self.appended - self.written;
        self.written = self.appended;
        // wal_writer.7
        let whole = self.written / BEGUN_BYTES * BEGUN_BYTES;
        if whole > self.begun.max(self.synced) {
            // Only a hint: the sync that follows sees every error.
            let _ = self.segment.file.start_writeback(self.begun, whole - self.begun);
            self.begun = whole;
        }
        bytes
    }

    /// Makes what the system has durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.segment.sync()?;
        self.note_synced(self.written);
        Ok(())
    }

    /// A sync, here or in another thread, has made this much durable.
    pub(super) fn note_synced(&mut self, written: u64) {
        self.synced = self.synced.max(written);
        self.syncs += 1;
        self.window.note_sync();
    }

    /// Writes the buffer, durably, past the page cache; false if that is not the way here.
    pub(super) fn write_durably(&mut self, buffer: &[u8], pool: &WalPool) -> Result<bool> {
        // wal_direct.1
        if !self.was_written || self.written != self.synced || buffer.is_empty() {
            return Ok(false);
        }
        let segment = &self.segment;
        if matches!(self.way, Way::Unknown) {
            let header = pool.header_of(segment.number, self.bytes).encode();
            let tail = DirectTail::open(&pool.env, &segment.path, &header);
            self.way = tail.map_or(Way::Cached, Way::Direct);
        }
        let Way::Direct(tail) = &mut self.way else { return Ok(false) };
        if !tail.takes(buffer.len(), self.bytes) {
            return Ok(false);
        }
        segment.sync_by(|| tail.write(buffer, &segment.path))?;
        (self.written, self.synced) = (self.appended, self.appended);
        self.syncs += 1;
        Ok(true)
    }

    /// Payload that one record can have here; `None` if none can start.
    pub(super) fn payload_room(&self) -> Option<u64> {
        payload_room(self.bytes - self.appended)
    }

    /// Its file, for another use.
    pub(super) fn spare(&self) -> Spare {
        let SegmentFile { path, file, .. } = &*self.segment;
        let is_written = self.was_written || self.bytes - self.appended < BLOCK_BYTES;
        Spare { path: path.clone(), file: file.clone(), bytes: self.bytes, is_written }
    }

    /// What the next segment is for, given the size of the last record and how many of its bytes did not fit.
    pub(super) fn next_use(&self, bytes: u64, missing: u64) -> Use {
        Use::after(self.appended / (self.syncs + 1), bytes, missing)
    }
}

/// The same of a file without records.
pub(super) fn room_in(spare: &Spare) -> u64 {
    payload_room(spare.bytes - SEGMENT_HEADER_BYTES as u64).expect("the smallest segment has room")
}

/// The same of a segment with `free` bytes left.
fn payload_room(free: u64) -> Option<u64> {
    (free >= ROOM_MIN).then(|| free - 2 * RECORD_HEADER_BYTES as u64)
}
