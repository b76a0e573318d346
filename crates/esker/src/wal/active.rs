//! The active segment, which records are appended to, and the two ways to write to it.
//!
//! ```text
//!   buffer --store--> mapped window --.
//!          --write--------------------+--> page cache --sync--> disk
//! ```
//!
//! wal_writer.1. `synced <= written <= appended <= bytes` of the segment; the buffer holds
//!     `written..appended`.
//!
//! Once a MiB has been written, the disk is asked to start on it. All commits wait for the sync at a
//! segment's end, which then has little left to do.

use std::sync::Arc;

use esker_env::Env;

use super::format::{self, ALIGN, RECORD_HEADER_BYTES};
use super::prepared::Prepared;
use super::purpose::FilePurpose;
use super::spare::Spare;
use super::sync::SegmentFile;
use super::window::LogWindow;
use crate::encryption::{self, KEY_HEADER_BYTES, Seal, TAG_BYTES};
use crate::types::{Error, Result};

/// Free bytes that a record needs to start in a segment: its header, some payload, and the `End` record
/// (wal_writer.2).
pub(super) const ROOM_MIN: u64 = (2 * RECORD_HEADER_BYTES + ALIGN) as u64;
/// Bytes after which writeback is started.
const BEGUN_BYTES: u64 = 1 << 20;

/// The active segment, and how far it is filled, written and durable.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) segment: Arc<SegmentFile>,
    pub(super) seal: Seal,
    pub(super) bytes: u64,
    pub(super) appended: u64,
    pub(super) written: u64,
    pub(super) synced: u64,
    /// Whether a record starts in this segment.
    pub(super) has_first: bool,
    /// Number of syncs so far.
    syncs: u64,
    /// Whether the pool has been asked for the next file.
    pub(super) spare_wanted: bool,
    window: LogWindow,
    /// Writeback has been started for the bytes before this offset.
    begun: u64,
}

impl Active {
    /// Returns a segment that contains only its header.
    pub(super) fn new(segment: SegmentFile, seal: Seal, bytes: u64, window: LogWindow) -> Active {
        let used = format::records_at(seal.is_on()) as u64;
        Active {
            segment: Arc::new(segment),
            seal,
            bytes,
            appended: used,
            written: used,
            synced: used,
            has_first: false,
            syncs: 0,
            spare_wanted: false,
            window,
            begun: 0,
        }
    }

    /// Stores the buffer into the mapped window; returns false if the window cannot be used.
    pub(super) fn store(&mut self, buffer: &[u8]) -> bool {
        !buffer.is_empty() && self.window.write(&*self.segment.file, self.bytes, buffer, self.written)
    }

    /// Writes the buffer to the page cache.
    pub(super) fn write(&mut self, buffer: &[u8]) -> Result<()> {
        assert!(self.written + buffer.len() as u64 == self.appended, "wal_writer.1");
        assert!(self.appended <= self.bytes, "wal_writer.1");
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

    /// Returns the payload bytes that one record can have here; `None` if no record can start.
    pub(super) fn payload_room(&self) -> Option<u64> {
        payload_room(self.bytes - self.appended, &self.seal)
    }

    /// Returns whether the segment has a record.
    pub(super) fn has_records(&self) -> bool {
        self.appended > format::records_at(self.seal.is_on()) as u64
    }

    /// Returns the segment's file for reuse.
    pub(super) fn spare(&self) -> Spare {
        let SegmentFile { path, file, .. } = &*self.segment;
        Spare { path: path.clone(), file: file.clone(), bytes: self.bytes }
    }

    /// Returns what the next segment is for.
    pub(super) fn next_purpose(&self) -> FilePurpose {
        FilePurpose::after(self.appended / (self.syncs + 1))
    }
}

/// Returns the payload bytes that one record can have in an empty segment in this file.
pub(super) fn room_in(prepared: &Prepared) -> u64 {
    let Prepared { spare, seal, .. } = prepared;
    let free = spare.bytes - format::records_at(seal.is_on()) as u64;
    payload_room(free, seal).expect("the smallest segment has room")
}

/// Returns the payload bytes that one record can have in `free` bytes; `None` if no record can start.
fn payload_room(free: u64, seal: &Seal) -> Option<u64> {
    let tag = seal.tag_bytes() as u64;
    (free >= ROOM_MIN + tag).then(|| free - 2 * RECORD_HEADER_BYTES as u64 - tag)
}

/// Returns the bytes that a segment with one record has for its encryption.
pub(super) fn sealed_more_bytes(env: &Env) -> u64 {
    if encryption::is_on(env) { (KEY_HEADER_BYTES + TAG_BYTES) as u64 } else { 0 }
}
