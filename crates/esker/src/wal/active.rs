//! The active segment, which records are appended to, and the three ways to write to it.
//!
//! ```text
//!   buffer --store--> mapped window --.
//!          --write--> page cache -----+--sync--> disk
//!          --write_durably, past the page cache--^
//! ```
//!
//! wal_writer.1. `synced <= written <= appended <= bytes` of the segment; the buffer holds
//!     `written..appended`.
//!
//! Once a MiB has been written, the disk is asked to start on it. All commits wait for the sync at a
//! segment's end, which then has little left to do.

use std::sync::Arc;

use super::direct::DirectTail;
use super::format::{ALIGN, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use super::pool::WalPool;
use super::purpose::FilePurpose;
use super::spare::Spare;
use super::sync::SegmentFile;
use super::window::LogWindow;
use crate::types::{Error, Result};

/// Free bytes that a record needs to start in a segment: its header, some payload, and the `End` record
/// (wal_writer.2).
pub(super) const ROOM_MIN: u64 = (2 * RECORD_HEADER_BYTES + ALIGN) as u64;
/// Bytes after which writeback is started.
const BEGUN_BYTES: u64 = 1 << 20;
/// A segment with fewer unused bytes than this counts as fully written: its last file system block is.
const BLOCK_BYTES: u64 = 4096;

/// The active segment, and how far it is filled, written and durable.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) segment: Arc<SegmentFile>,
    pub(super) bytes: u64,
    /// All its blocks have been written before (pool.1).
    pub(super) was_written: bool,
    pub(super) appended: u64,
    pub(super) written: u64,
    pub(super) synced: u64,
    /// Whether a record starts in this segment.
    pub(super) has_first: bool,
    /// Number of syncs so far.
    syncs: u64,
    /// Whether the pool has been asked for the next file.
    pub(super) spare_wanted: bool,
    write_path: WritePath,
    window: LogWindow,
    /// Writeback has been started for the bytes before this offset.
    begun: u64,
}

/// How small syncs write (wal_direct.2).
#[derive(Debug)]
enum WritePath {
    /// Only the header has been written so far.
    Unknown,
    /// With direct I/O, past the page cache.
    Direct(DirectTail),
    /// Through the page cache.
    Cached,
}

impl Active {
    /// Returns a segment that contains only its header.
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
            write_path: WritePath::Unknown,
            window,
            begun: 0,
        }
    }

    /// Stores the buffer into the mapped window; returns false if the window cannot be used.
    pub(super) fn store(&mut self, buffer: &[u8]) -> bool {
        let is_stored =
            !buffer.is_empty() && self.window.write(&*self.segment.file, self.bytes, buffer, self.written);
        if is_stored {
            self.write_path = WritePath::Cached;
        }
        is_stored
    }

    /// Writes the buffer to the page cache.
    pub(super) fn write(&mut self, buffer: &[u8]) -> Result<()> {
        assert!(self.written + buffer.len() as u64 == self.appended, "wal_writer.1");
        assert!(self.appended <= self.bytes, "wal_writer.1");
        self.write_path = WritePath::Cached;
        let written = self.segment.file.write_all_at(buffer, self.written);
        written.map_err(|e| Error::io("write", &self.segment.path, e))
    }

    /// Records that the operating system has all appended bytes. Returns how many of them are new to it.
    pub(super) fn note_written(&mut self) -> u64 {
        let bytes = self.appended - self.written;
        self.written = self.appended;
        let whole = self.written / BEGUN_BYTES * BEGUN_BYTES;
        if whole > self.begun.max(self.synced) {
            // Only a hint: the next sync reports every error.
            let _ = self.segment.file.start_writeback(self.begun, whole - self.begun);
            self.begun = whole;
        }
        bytes
    }

    /// Makes all written bytes durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.segment.sync()?;
        self.note_synced(self.written);
        Ok(())
    }

    /// Records that a sync, in this or another thread, made the bytes before `written` durable.
    pub(super) fn note_synced(&mut self, written: u64) {
        self.synced = self.synced.max(written);
        self.syncs += 1;
        self.window.note_sync();
    }

    /// Writes the buffer durably with direct I/O; returns false if this segment cannot use it.
    pub(super) fn write_durably(&mut self, buffer: &[u8], pool: &WalPool) -> Result<bool> {
        // wal_direct.1
        if !self.was_written || self.written != self.synced || buffer.is_empty() {
            return Ok(false);
        }
        let segment = &self.segment;
        if matches!(self.write_path, WritePath::Unknown) {
            let header = pool.header_of(segment.number, self.bytes).encode();
            let tail = DirectTail::open(&pool.env, &segment.path, &header);
            self.write_path = tail.map_or(WritePath::Cached, WritePath::Direct);
        }
        let WritePath::Direct(tail) = &mut self.write_path else { return Ok(false) };
        if !tail.takes(buffer.len(), self.bytes) {
            return Ok(false);
        }
        segment.sync_by(|| tail.write(buffer, &segment.path))?;
        (self.written, self.synced) = (self.appended, self.appended);
        self.syncs += 1;
        Ok(true)
    }

    /// Returns the payload bytes that one record can have here; `None` if no record can start.
    pub(super) fn payload_room(&self) -> Option<u64> {
        payload_room(self.bytes - self.appended)
    }

    /// Returns the segment's file for reuse.
    pub(super) fn spare(&self) -> Spare {
        let SegmentFile { path, file, .. } = &*self.segment;
        let is_written = self.was_written || self.bytes - self.appended < BLOCK_BYTES;
        Spare { path: path.clone(), file: file.clone(), bytes: self.bytes, is_written }
    }

    /// Returns what the next segment is for, given the size of the last record and how many of its bytes did
    /// not fit.
    pub(super) fn next_purpose(&self, bytes: u64, missing: u64) -> FilePurpose {
        FilePurpose::after(self.appended / (self.syncs + 1), bytes, missing)
    }
}

/// Returns the payload bytes that one record can have in an empty segment in this file.
pub(super) fn room_in(spare: &Spare) -> u64 {
    payload_room(spare.bytes - SEGMENT_HEADER_BYTES as u64).expect("the smallest segment has room")
}

/// Returns the payload bytes that one record can have in `free` bytes; `None` if no record can start.
fn payload_room(free: u64) -> Option<u64> {
    (free >= ROOM_MIN).then(|| free - 2 * RECORD_HEADER_BYTES as u64)
}
