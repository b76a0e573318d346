//! Decides what a segment file is for, and how large it is. Pure policy.
//!
//! ```text
//!   a sync makes durable:   < 16 KiB --Small     16 KiB and more --Ordinary
//!   missing part of a record > segment size and > 1 MiB --Bulk
//!   data: tables and live log --> at most as much in one file, and as much in spares at rest
//! ```
//!
//! - A file for small syncs has at most [`GROWTH_MAX`] times the size of the file before, because
//!   commits wait while its zeros are written.

use super::active::ROOM_MIN;
use super::format::SEGMENT_HEADER_BYTES;

/// Maximum growth factor of files while syncs are small.
const GROWTH_MAX: u64 = 4;
/// While each sync makes fewer bytes durable than this, files grow in steps.
const SMALL_BYTES: u64 = 16 << 10;
/// If fewer bytes of a record are missing than this, it gets ordinary segments.
const BULK_BYTES_MIN: u64 = 1 << 20;
/// Bytes of a segment that are not payload: its header, the record's header, `End`, padding.
const OVERHEAD_BYTES: u64 = SEGMENT_HEADER_BYTES as u64 + ROOM_MIN;

/// A commit waits while the zeros of a process's first file are written. This fraction (1 / N) of the data
/// decides its size.
pub(super) const FIRST_FILE_PART: u64 = 8;
/// Maximum number of spares kept at rest.
const SPARES_AT_REST: usize = 2;
/// Spares have at least this fraction (1 / N) of the planned size.
const SPARE_MIN_PART: u64 = 4;

/// Sizes that suit a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Size of the next file.
    pub(super) bytes: u64,
    /// Bytes of tables and live log: the maximum total size of spares at rest.
    pub(super) data_bytes: u64,
}

impl Plan {
    /// Returns the plan for a database with `data_bytes` of tables and live log. A file has `max` bytes, or
    /// `first` times a power of two, so that most files can be recycled. It has no more bytes than the data,
    /// so a small database has a small log. While the log grows, its files grow with it.
    pub(super) fn new(data_bytes: u64, first: u64, max: u64) -> Plan {
        let mut bytes = first.min(max);
        loop {
            let next = (bytes * 2).min(max);
            if next == bytes || next > data_bytes {
                return Plan { bytes, data_bytes };
            }
            bytes = next;
        }
    }

    /// Returns whether a spare may stay at rest besides `count` others, if all have these bytes.
    pub(super) fn may_rest(&self, count: usize, total_bytes: u64) -> bool {
        count < SPARES_AT_REST && total_bytes <= self.data_bytes
    }

    /// Returns whether an obsolete file of this size may become a spare.
    pub(super) fn takes(&self, bytes: u64) -> bool {
        bytes >= self.bytes / SPARE_MIN_PART
    }
}

/// What a segment file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilePurpose {
    /// Records of any size.
    Ordinary,
    /// Small records, with a sync for one or a few of them.
    Small,
    /// Part of a single record that fills the file: at least this many bytes, more than a segment (pool.1).
    Bulk(u64),
}

impl FilePurpose {
    /// Returns what the file after a segment is for. `synced` is the average number of bytes that a sync made
    /// durable.
    pub(super) fn after(synced: u64) -> FilePurpose {
        if synced < SMALL_BYTES { FilePurpose::Small } else { FilePurpose::Ordinary }
    }

    /// Returns [`Bulk`](FilePurpose::Bulk) if the missing part of a record is larger than a segment.
    pub(super) fn of_missing(missing: u64, segment_max: u64, bulk_max: u64) -> Option<FilePurpose> {
        let is_bulk = missing > segment_max.max(BULK_BYTES_MIN.min(bulk_max));
        is_bulk.then(|| FilePurpose::Bulk(missing.min(bulk_max.max(segment_max)) + OVERHEAD_BYTES))
    }

    /// Returns the size of the file to make. `next_bytes` is the planned size, `newest_bytes` the size of the
    /// newest file, 0 if there is none.
    pub(super) fn file_bytes(self, next_bytes: u64, newest_bytes: u64) -> u64 {
        match self {
            FilePurpose::Small if newest_bytes > 0 => next_bytes.min(GROWTH_MAX * newest_bytes),
            FilePurpose::Small | FilePurpose::Ordinary | FilePurpose::Bulk(_) => next_bytes,
        }
    }
}
