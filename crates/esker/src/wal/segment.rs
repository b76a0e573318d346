//! Reads the records of one segment, and searches for evidence after the first invalid one.
//!
//! ```text
//!   bytes, stamp --at--> Record | End | Invalid --evidence--> torn tail, or damage to durable records
//! ```
//!
//! No input makes these functions panic or allocate.

use super::format::{self, Kind, RECORD_HEADER_BYTES, RecordHeader};
use crate::encoding::checksum::crc32c;

/// A segment in memory.
#[derive(Clone, Copy)]
pub(super) struct SegmentBytes<'a> {
    pub bytes: &'a [u8],
    /// Initial input of its records' checksums (format.2).
    pub stamp: u64,
}

/// What was found at an offset.
pub(super) enum Found<'a> {
    Record {
        header: RecordHeader,
        payload: &'a [u8],
        /// Offset of the next record.
        next: usize,
    },
    End {
        /// Everything before this offset was durable when the `End` record was made.
        synced_to: usize,
    },
    /// No valid record; `header` is set if the record header alone is valid.
    Invalid { header: Option<RecordHeader>, detail: &'static str },
}

/// What follows an invalid record.
pub(super) struct Evidence {
    /// Offset of a later record that was made when the invalid one was already durable.
    pub proof_of_damage: Option<usize>,
    /// Where the last record with a valid header ends; the offset of the invalid record if there is none.
    pub remains_end: usize,
}

impl<'a> SegmentBytes<'a> {
    pub(super) fn at(&self, offset: usize) -> Found<'a> {
        let bytes = self.bytes.get(offset..).unwrap_or(&[]);
        let Some(header) = RecordHeader::decode(bytes, self.stamp) else {
            return Found::Invalid { header: None, detail: "no valid record header" };
        };
        if header.kind == Kind::End {
            return Found::End { synced_to: header.synced_to as usize };
        }
        let end = RECORD_HEADER_BYTES.saturating_add(header.payload_len as usize);
        let Some(payload) = bytes.get(RECORD_HEADER_BYTES..end) else {
            return Found::Invalid { header: Some(header), detail: "the file ends inside the record" };
        };
        if crc32c(payload) != header.payload_crc {
            return Found::Invalid { header: Some(header), detail: "payload checksum mismatch" };
        }
        Found::Record { header, payload, next: offset + format::padded(end) }
    }

    /// Searches after the invalid record at `offset`, whose header is given if it is valid.
    pub(super) fn evidence(&self, offset: usize, header: Option<RecordHeader>) -> Evidence {
        let end_of = |start: usize, header: RecordHeader| {
            let len = format::padded(RECORD_HEADER_BYTES.saturating_add(header.payload_len as usize));
            start.saturating_add(len).min(self.bytes.len())
        };
        // A valid header proves its length (format.1). The payload is user data and is not searched.
        let (mut remains_end, start) = match header {
            Some(header) => (end_of(offset, header), end_of(offset, header)),
            None => (offset, offset + format::ALIGN),
        };
        let mut proof_of_damage = None;
        for at in (start..self.bytes.len()).step_by(format::ALIGN) {
            if let Some(later) = RecordHeader::decode(&self.bytes[at..], self.stamp) {
                remains_end = remains_end.max(end_of(at, later));
                if later.synced_to as usize > offset {
                    proof_of_damage = Some(at);
                }
                // Several records may share a sync, so a record that proves nothing may precede a record that
                // does.
                if proof_of_damage.is_some() {
                    break;
                }
            }
        }
        Evidence { proof_of_damage, remains_end }
    }
}
