//! Decides what a file for a segment is for, and how large it is. Pure policy.
//!
//! ```text
//!   a sync makes durable:   < 16 KiB --Small     16 KiB to 1 MiB --Ordinary     1 MiB and more --Large
//!   a record that misses more than a segment, and more than 1 MiB --Bulk
//! ```
//!
//! pool.9. A file for small syncs has at most [`GROWTH_MAX`] times the size of the file before it: these
//!     syncs wait while the disk writes its zeros.

use super::active::ROOM_MIN;
use super::format::SEGMENT_HEADER_BYTES;
use super::spare::SEGMENT_BYTES_UNIT;

/// How fast sizes grow where syncs are small (pool.9).
const GROWTH_MAX: u64 = 4;
/// If a record or a sync has this size or more, new files for segments are not filled with zeros (pool.1).
pub(super) const LARGE_BYTES: u64 = 1 << 20;
/// Where each sync makes less durable, files grow step by step (pool.9).
const SMALL_BYTES: u64 = 16 << 10;
/// Records that miss less room than this get ordinary segments.
const BULK_BYTES_MIN: u64 = 1 << 20;
/// What a segment holds beside payload: its header, the record's, `End`, padding.
const OVERHEAD_BYTES: u64 = SEGMENT_HEADER_BYTES as u64 + ROOM_MIN;

/// What a file is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// For records as they come.
    Ordinary,
    /// For small ones, with a sync for each or for a few.
    Small,
    /// For large records, or for few syncs. The record needs this number of bytes.
    Large(u64),
    /// For a part of a record that fills the file. It has at least this number of bytes.
    Bulk(u64),
}

impl Use {
    /// Returns the use of the next file, after a segment whose syncs each made `synced` bytes durable. The
    /// last record has `bytes`; `missing` bytes did not fit.
    pub(super) fn after(synced: u64, bytes: u64, missing: u64) -> Use {
        match bytes.max(synced) {
            LARGE_BYTES.. => Use::Large(missing + OVERHEAD_BYTES),
            _ if synced < SMALL_BYTES => Use::Small,
            _ => Use::Ordinary,
        }
    }

    /// Returns the use of the first file, for a record of `bytes`.
    pub(super) fn first(bytes: u64, missing: u64) -> Use {
        if bytes >= LARGE_BYTES { Use::Large(missing + OVERHEAD_BYTES) } else { Use::Ordinary }
    }

    /// Returns the use of a file for the missing part of a record alone, if that is larger than a segment.
    pub(super) fn of_missing(missing: u64, segment_max: u64, bulk_max: u64) -> Option<Use> {
        let is_bulk = missing > segment_max.max(BULK_BYTES_MIN.min(bulk_max));
        is_bulk.then(|| Use::Bulk(missing.min(bulk_max) + OVERHEAD_BYTES))
    }

    /// Returns the size of a file to make, where `next_bytes` are due. The newest file has `newest_bytes`;
    /// zero if there was none.
    pub(super) fn file_bytes(self, next_bytes: u64, newest_bytes: u64, segment_max: u64) -> u64 {
        match self {
            // pool.9
            Use::Small if newest_bytes > 0 => next_bytes.min(GROWTH_MAX * newest_bytes),
            Use::Small | Use::Ordinary | Use::Bulk(_) => next_bytes,
            Use::Large(bytes) => bytes.next_multiple_of(SEGMENT_BYTES_UNIT).min(segment_max).max(next_bytes),
        }
    }
}
