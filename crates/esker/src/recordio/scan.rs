//! Finds records: whether one starts at an offset, where the next one is, and what follows the last one.
//!
//! ```text
//!   Window | mapping --Source--> check (one offset) --damaged--> find_next (resynchronize)
//!                                                             `-none--> Tail
//! ```
//!
//! `find_next` returns only complete records with verified header and payload.
//!
//! `find_next` reads each byte a bounded number of times, for any input: after a valid header it continues
//! after the payload, and it verifies no payload twice.
//!
//! Bytes: docs/formats/recordio.md

use std::path::Path;

use crate::encoding::bytes::DecodeError;
use crate::types::{Error, Result};

use super::frame::{FRAME_BYTES, Frame, MARKER};
use super::header::FileHeader;

/// Bytes searched for a marker at a time. Half of the smallest window, so that a window moves at most once
/// per step.
pub(super) const STEP_BYTES: u64 = 4 << 10;

/// Name of a record in error messages.
pub(super) const WHAT: &str = "record";

/// The bytes of a record file.
pub(super) trait Source {
    /// Size of the file in bytes.
    fn size(&self) -> u64;
    /// Returns `len` bytes at `offset`, or fewer at the end of the file.
    fn at(&mut self, offset: u64, len: u64) -> Result<&[u8]>;
}

impl Source for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }
    fn at(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        let start = offset.min(self.size());
        let end = offset.saturating_add(len).min(self.size());
        Ok(&self[start as usize..end as usize])
    }
}

/// What follows the last record of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing: the file ends with its last record.
    Clean,
    /// Only zeros: space allocated in advance, as in unfinished direct files.
    Zeros {
        /// Offset of the zeros: the end of the last record.
        offset: u64,
        /// Number of zeros.
        bytes: u64,
    },
    /// A partial record or garbage without a valid record after it, as a crash leaves it after unsynced
    /// writes. At offset 0 even the file header is missing.
    Torn {
        /// Offset of the tail: the end of the last record.
        offset: u64,
        /// Length of the tail in bytes.
        bytes: u64,
    },
}

impl Tail {
    /// Offset where the next record belongs, in a file of `size` bytes.
    pub(super) fn records_end(self, size: u64) -> u64 {
        match self {
            Tail::Clean => size,
            Tail::Zeros { offset, .. } | Tail::Torn { offset, .. } => offset,
        }
    }
}

/// Why there is no valid record at an offset.
pub(super) struct Damage {
    /// The error.
    pub(super) error: DecodeError,
    /// Offset from which to search for the next record.
    pub(super) resume: u64,
}

impl Damage {
    fn new(detail: &str, resume: u64) -> Damage {
        Damage { error: DecodeError::new(0, detail), resume }
    }

    /// Converts to a corruption error of the record expected at `offset`.
    pub(super) fn in_file(self, path: &Path, offset: u64) -> Error {
        self.error.in_file(WHAT, path, offset)
    }
}

/// How thoroughly a record is verified.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// The header, and that the file does not end inside the record.
    Header,
    /// The header and the checksum of the payload.
    Payload,
}

/// Verifies the record at `offset`. The outer error is a failure to read the file.
pub(super) fn check<S: Source>(
    source: &mut S,
    file: &FileHeader,
    offset: u64,
    depth: Check,
) -> Result<Result<Frame, Damage>> {
    let size = source.size();
    let head = source.at(offset, FRAME_BYTES as u64)?;
    if head.len() < FRAME_BYTES {
        return Ok(Err(Damage::new("the file ends inside a record header", size)));
    }
    let frame = match Frame::decode(head, file, offset) {
        Ok(frame) => frame,
        Err(error) => return Ok(Err(Damage { error, resume: offset + 1 })),
    };
    if frame.size() > size - offset {
        return Ok(Err(Damage::new("the file ends inside the record", offset + FRAME_BYTES as u64)));
    }
    if depth == Check::Payload && !frame.matches(payload(source, offset, &frame)?) {
        let damage =
            Damage::new("the checksum of the record's content does not match", offset + frame.size());
        return Ok(Err(damage));
    }
    Ok(Ok(frame))
}

/// Verifies a record that must be at `offset`.
pub(super) fn require<S: Source>(
    source: &mut S,
    file: &FileHeader,
    path: &Path,
    offset: u64,
) -> Result<Frame> {
    check(source, file, offset, Check::Payload)?.map_err(|damage| damage.in_file(path, offset))
}

/// Returns the payload of the record at `offset`.
pub(super) fn payload<'a, S: Source>(source: &'a mut S, offset: u64, frame: &Frame) -> Result<&'a [u8]> {
    source.at(offset + FRAME_BYTES as u64, frame.stored_len.into())
}

/// Returns the first valid record at or after `from`.
pub(super) fn find_next<S: Source>(
    source: &mut S,
    file: &FileHeader,
    from: u64,
) -> Result<Option<(u64, Frame)>> {
    let mut at = from.max(file.records_at());
    loop {
        let bytes = source.at(at, STEP_BYTES)?;
        if bytes.len() < FRAME_BYTES {
            return Ok(None);
        }
        let Some(skip) = bytes.windows(MARKER.len()).position(|window| window == MARKER) else {
            at += (bytes.len() - (MARKER.len() - 1)) as u64;
            continue;
        };
        at += skip as u64;
        match check(source, file, at, Check::Payload)? {
            Ok(frame) => return Ok(Some((at, frame))),
            Err(damage) => at = damage.resume,
        }
    }
}

/// Classifies the bytes from `offset` to the end of the file, which hold no valid record.
pub(super) fn tail<S: Source>(source: &mut S, offset: u64) -> Result<Tail> {
    let bytes = source.size() - offset;
    let mut at = offset;
    while at < source.size() {
        let step = source.at(at, STEP_BYTES)?;
        if step.iter().any(|&b| b != 0) {
            return Ok(Tail::Torn { offset, bytes });
        }
        at += step.len() as u64;
    }
    Ok(Tail::Zeros { offset, bytes })
}
