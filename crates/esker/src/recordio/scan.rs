//! Finding records: is there one here, where is the next, and what is behind the last.
//!
//! ```text
//!   Window | mapping --Source--> check (one place) --damaged--> find_next (resynchronise)
//!                                                          `-none--> Tail
//! ```
//!
//! recordio_scan.1. `find_next` returns only whole records, with header and payload verified.
//! recordio_scan.2. It looks at each byte a bounded number of times, whatever the bytes: behind a header that proves valid it
//!     goes on after the payload, and no payload is checked twice.
//!
//! Bytes: docs/formats/recordio.md

use std::path::Path;

use crate::encoding::bytes::DecodeError;
use crate::types::{Error, Result};

use super::frame::{FRAME_BYTES, Frame, MARKER};
use super::header::{FileHeader, HEADER_BYTES};

/// How much is searched for a marker at once. Half the smallest window: a window then moves at most once a step.
pub(super) const STEP_BYTES: u64 = 4 << 10;

/// The name of a record in error messages.
pub(super) const WHAT: &str = "record";

/// Bytes of a record file, wherever they are.
pub(super) trait Source {
    /// The size of the file in bytes.
    fn size(&self) -> u64;
    /// `len` bytes at `offset`, fewer only where the file ends.
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

/// What stands behind the last record of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing: the file ends with its last record.
    Clean,
    /// Only zeros: space written ahead, as unfinished direct files have it.
    Zeros {
        /// Where they start: the end of the last record.
        offset: u64,
        /// How many there are.
        bytes: u64,
    },
    /// A part of a record, or bytes that are none, and no valid record after them: what a crash leaves of writes
    /// that were not synced. At offset 0 even the file's header is missing.
    Torn {
        /// Where it starts: the end of the last record.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
}

impl Tail {
    /// Where the next record belongs, in a file of `size` bytes.
    pub(super) fn records_end(self, size: u64) -> u64 {
        match self {
            Tail::Clean => size,
            Tail::Zeros { offset, .. } | Tail::Torn { offset, .. } => offset,
        }
    }
}

/// Why there is no valid record at a place.
pub(super) struct Damage {
    /// What is wrong.
    pub(super) error: DecodeError,
    /// The search for the next record may start here.
    pub(super) resume: u64,
}

impl Damage {
    fn new(detail: &str, resume: u64) -> Damage {
        Damage { error: DecodeError::new(0, detail), resume }
    }

    /// As corruption of the file, of a record that should be at `offset`.
    pub(super) fn in_file(self, path: &Path, offset: u64) -> Error {
        self.error.in_file(WHAT, path, offset)
    }
}

/// How closely a record is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// Its header, and that the file does not end inside it.
    Header,
    /// The payload's checksum too.
    Payload,
}

/// Checks the record at `offset`. The outer error is one of reading the file.
pub(super) fn check<S: Source>(
    source: &mut S,
    file: &FileHeader,
    offset: u64,
    depth: Check,
) -> Result<Result<Frame, Damage>> {
    let size = source.size();
    let head = source.at(offset, FRAME_BYTES as u64)?;
    if head.len() < FRAME_BYTES {
        return Ok(Err(Damage::new("the file ends inside the header of a record", size)));
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

/// The record at `offset`, which the caller believes to be there.
pub(super) fn require<S: Source>(
    source: &mut S,
    file: &FileHeader,
    path: &Path,
    offset: u64,
) -> Result<Frame> {
    check(source, file, offset, Check::Payload)?.map_err(|damage| damage.in_file(path, offset))
}

/// The payload of the record at `offset`.
pub(super) fn payload<'a, S: Source>(source: &'a mut S, offset: u64, frame: &Frame) -> Result<&'a [u8]> {
    source.at(offset + FRAME_BYTES as u64, frame.stored_len.into())
}

/// The first valid record at or after `from` (recordio_scan.1).
pub(super) fn find_next<S: Source>(
    source: &mut S,
    file: &FileHeader,
    from: u64,
) -> Result<Option<(u64, Frame)>> {
    let mut at = from.max(HEADER_BYTES as u64);
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

/// What stands from `offset` to the end of the file, where no valid record is left.
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
