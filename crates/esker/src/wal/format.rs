//! The format of a segment: its header, and the header of each record.
//!
//! ```text
//!   segment = header (32 B) [key header] record* End ...     record = header (24 B) payload zeros-to-8
//! ```
//!
//! format.1. A record header's checksum starts with the segment's stamp (wal.4) and covers the payload's
//!     checksum and length. So a valid header can be trusted before the payload is read. A search for a
//!     header reads the same few bytes at each position, whatever they are.
//! format.2. The stamp combines the segment number and the database id, which a client cannot know. So bytes
//!     inside a value pass for a record of this segment only by chance, even if they were copied from another
//!     database's log.
//! - Records start at multiples of 8.
//!
//! Byte tables: docs/formats/wal.md.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use esker_env::Env;

use crate::encoding::bytes::{ByteReader, Decoded};
use crate::encoding::checksum::{crc32c, crc32c_append};
use crate::encryption::{FileKind, KEY_HEADER_BYTES, Seal};
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result, SeqNo};

pub(super) const SEGMENT_HEADER_BYTES: usize = 32;
pub(super) const RECORD_HEADER_BYTES: usize = 24;
/// Records start at multiples of this.
pub(super) const ALIGN: usize = 8;
/// Maximum size of a segment: `synced_to` is a u32, and a reader holds a segment in memory.
pub(super) const SEGMENT_BYTES_LIMIT: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"ESKERWAL";
const VERSION: u32 = 1;
/// The version of an encrypted segment: a key header follows the header, and payloads are sealed.
const SEALED_VERSION: u32 = 2;
const VERSION_AT: Range<usize> = 8..12;
const SEGMENT_CRC_AT: usize = SEGMENT_HEADER_BYTES - 4;
const DATABASE_ID_AT: usize = SEGMENT_CRC_AT - 4;

/// The header of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The segment's number.
    pub number: u64,
    /// Size of the file when it was made. An unfinished segment in a shorter file was truncated.
    pub made_bytes: u32,
    /// The database id.
    pub database_id: u32,
    /// Whether the payloads are encrypted.
    pub is_sealed: bool,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        let version = if self.is_sealed { SEALED_VERSION } else { VERSION };
        out[VERSION_AT].copy_from_slice(&version.to_le_bytes());
        out[12..16].copy_from_slice(&self.made_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[DATABASE_ID_AT..SEGMENT_CRC_AT].copy_from_slice(&self.database_id.to_le_bytes());
        let crc = crc32c(&out[..SEGMENT_CRC_AT]);
        out[SEGMENT_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Returns the offset of the first record.
    pub(super) fn records_at(&self) -> usize {
        records_at(self.is_sealed)
    }

    /// Returns the seal of the payloads of `segment`, which has this header.
    pub(super) fn find_seal(&self, env: &Env, segment: &[u8], path: &Path) -> Result<Seal> {
        const AT: usize = SEGMENT_HEADER_BYTES;
        let header = segment.get(AT..AT + KEY_HEADER_BYTES).unwrap_or_default();
        Seal::find(
            env,
            (path, AT as u64),
            FileKind::Segment,
            self.is_sealed.then_some(header),
            &self.encode(),
        )
    }

    /// Returns the initial input of its records' checksums (format.2).
    pub(super) fn stamp(&self) -> u64 {
        stamp(self.number, self.database_id)
    }

    /// Decodes the header at the start of `segment`, which must be that of segment `number`.
    pub(super) fn decode(segment: &[u8], number: u64, path: &Path) -> Result<SegmentHeader> {
        let corrupt = |detail: String| Err(Error::corrupt("WAL segment header", path, 0, detail));
        let fields = || -> Decoded<([u8; 8], u32, SegmentHeader, u32)> {
            let mut reader = ByteReader::new(segment);
            let magic = reader.u64()?.to_le_bytes();
            let version = reader.u32()?;
            let made_bytes = reader.u32()?;
            let number = reader.u64()?;
            let database_id = reader.u32()?;
            let is_sealed = version == SEALED_VERSION;
            Ok((magic, version, SegmentHeader { number, made_bytes, database_id, is_sealed }, reader.u32()?))
        };
        let (magic, version, header, crc) = fields().map_err(|e| e.in_file("WAL segment header", path, 0))?;
        if magic != MAGIC {
            return corrupt("not a WAL segment: the magic number is missing".into());
        }
        if crc != crc32c(&segment[..SEGMENT_CRC_AT]) {
            return corrupt("checksum mismatch".into());
        }
        // Checked after the checksum, which has the same position in every version, so that damage does not
        // look like a newer format.
        if version != VERSION && version != SEALED_VERSION {
            let path = path.to_owned();
            return Err(Error::UnsupportedVersion {
                what: "WAL segment",
                path,
                found: version,
                supported: SEALED_VERSION,
            });
        }
        if header.number != number {
            let found = header.number;
            return corrupt(format!(
                "the header is that of segment {found}, the file name that of segment {number}"
            ));
        }
        Ok(header)
    }

    /// Returns what the damaged header of a segment was, if its size and the database id are intact.
    pub(super) fn guess(segment: &[u8], number: u64, database_id: Option<u32>) -> SegmentHeader {
        let field = |at: usize| Some(u32::from_le_bytes(*segment.get(at..)?.first_chunk()?));
        SegmentHeader {
            number,
            made_bytes: field(12).unwrap_or_default(),
            database_id: database_id.or_else(|| field(DATABASE_ID_AT)).unwrap_or_default(),
            is_sealed: Seal::has_header(segment.get(SEGMENT_HEADER_BYTES..).unwrap_or_default()),
        }
    }

    /// Returns the stamp of a segment whose header is damaged: from `database_id` if it is known, otherwise
    /// from the id in the damaged header.
    pub(super) fn stamp_of_damaged(segment: &[u8], number: u64, database_id: Option<u32>) -> u64 {
        let read = || Some(u32::from_le_bytes(*segment.get(DATABASE_ID_AT..)?.first_chunk()?));
        stamp(number, database_id.or_else(read).unwrap_or_default())
    }

    /// Returns whether the segment belongs to another database. False if the own id is unknown.
    pub(crate) fn is_foreign(&self, database_id: Option<u32>) -> bool {
        database_id.is_some_and(|own| own != self.database_id)
    }

    /// Returns whether an unfinished segment in a file of `bytes` was truncated.
    pub(super) fn is_cut(&self, bytes: usize) -> bool {
        bytes < self.made_bytes as usize
    }
}

/// Returns the offset of the first record of a segment.
pub(super) fn records_at(is_sealed: bool) -> usize {
    SEGMENT_HEADER_BYTES + if is_sealed { KEY_HEADER_BYTES } else { 0 }
}

/// Returns the initial input of record checksums (format.2). The segments of one database have different
/// stamps.
fn stamp(number: u64, database_id: u32) -> u64 {
    number ^ u64::from(database_id) << 32
}

/// Which part of a logical record a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A whole logical record.
    Full = 1,
    /// The first fragment of a logical record.
    First = 2,
    /// A fragment between the first and the last.
    Middle = 3,
    /// The last fragment.
    Last = 4,
    /// Ends the segment. No payload.
    End = 5,
}

impl Kind {
    /// Returns the kind of a fragment.
    pub(super) fn of_fragment(is_first: bool, is_last: bool) -> Kind {
        match (is_first, is_last) {
            (true, true) => Kind::Full,
            (true, false) => Kind::First,
            (false, false) => Kind::Middle,
            (false, true) => Kind::Last,
        }
    }

    fn from_byte(byte: u8) -> Option<Kind> {
        [Kind::Full, Kind::First, Kind::Middle, Kind::Last, Kind::End].into_iter().find(|k| *k as u8 == byte)
    }
}

/// The fixed part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub kind: Kind,
    /// Number of the logical record; for `End`, that of the last record.
    pub seq: SeqNo,
    /// Bytes of the segment that were known to be durable when this record was made.
    pub synced_to: u32,
    pub payload_len: u32,
    pub payload_crc: u32,
}

impl RecordHeader {
    /// Returns an `End` record.
    pub(super) fn end(seq: SeqNo, synced_to: u32) -> RecordHeader {
        RecordHeader { kind: Kind::End, seq, synced_to, payload_len: 0, payload_crc: 0 }
    }

    pub(super) fn encode(&self, stamp: u64) -> [u8; RECORD_HEADER_BYTES] {
        let mut out = [0; RECORD_HEADER_BYTES];
        out[4..8].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[8..12].copy_from_slice(&self.payload_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.synced_to.to_le_bytes());
        out[16..].copy_from_slice(&(self.seq.get() | (self.kind as u64) << 56).to_le_bytes());
        let crc = header_crc(stamp, &out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Returns what the tag of a sealed payload authenticates besides it.
    fn context(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&(self.seq.get() | (self.kind as u64) << 56).to_le_bytes());
        out[8..12].copy_from_slice(&self.synced_to.to_le_bytes());
        out[12..].copy_from_slice(&self.payload_len.to_le_bytes());
        out
    }

    /// Encrypts the payload of the record at `offset`, whose length with the tag the header has.
    pub(super) fn seal_payload(&self, seal: &Seal, offset: u64, payload: &mut Vec<u8>) {
        seal.seal(offset, &self.context(), payload);
    }

    /// Returns the payload of the record at `offset`, decrypted. Its checksum matches.
    pub(super) fn open_payload<'a>(
        &self,
        seal: &Seal,
        offset: u64,
        stored: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, String> {
        if !seal.is_on() {
            return Ok(Cow::Borrowed(stored));
        }
        let mut payload = stored.to_vec();
        let len = seal.open(offset, &self.context(), &mut payload).map_err(|e| e.detail)?;
        payload.truncate(len);
        Ok(Cow::Owned(payload))
    }

    /// Decodes the header at the start of `bytes`; `None` if there is no valid one with this stamp.
    pub(super) fn decode(bytes: &[u8], stamp: u64) -> Option<RecordHeader> {
        let bytes = bytes.get(..RECORD_HEADER_BYTES)?;
        // The kind first: most searching happens in zeros, where no other byte is read.
        let kind = Kind::from_byte(bytes[RECORD_HEADER_BYTES - 1])?;
        let mut reader = ByteReader::new(bytes);
        let mut fields = || -> Decoded<(u32, u32, u32, u32, u64)> {
            Ok((reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?, reader.u64()?))
        };
        let (crc, payload_crc, payload_len, synced_to, tag) = fields().ok()?;
        let seq = SeqNo::try_new(tag & SeqNo::MAX.get())?;
        (crc == header_crc(stamp, &bytes[4..])).then_some(RecordHeader {
            kind,
            seq,
            synced_to,
            payload_len,
            payload_crc,
        })
    }
}

fn header_crc(stamp: u64, rest: &[u8]) -> u32 {
    let stamp = if canary::is_set(Canary::WalGenerationIgnored) { 0 } else { stamp };
    crc32c_append(crc32c(&stamp.to_le_bytes()), rest)
}

/// Rounds `n` up to the alignment of records.
pub(super) fn padded(n: usize) -> usize {
    n.next_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let header =
            SegmentHeader { number: 7, made_bytes: 0x0102_0304, database_id: 0x0506_0708, is_sealed: false };
        assert_eq!(hex(&header.encode()), "45534b455257414c01000000040302010700000000000000080706056ee43d05");
        assert_eq!(header.stamp(), 0x0506_0708_0000_0007);
        let record = RecordHeader {
            kind: Kind::Full,
            seq: SeqNo::new(0x0102_0304),
            synced_to: 4096,
            payload_len: 3,
            payload_crc: crc32c(b"abc"),
        };
        assert_eq!(hex(&record.encode(header.stamp())), "58e5de9fb73f4b3603000000001000000403020100000001");
    }

    /// Numbers that do not fit into four bytes, up to the largest.
    #[test]
    fn large_numbers_come_back_whole() {
        let path = Path::new("large.wal");
        for n in [1_u64 << 32, (1 << 32) + 7, 1 << 40, SeqNo::MAX.get()] {
            let header = SegmentHeader { number: n, made_bytes: 4096, database_id: 9, is_sealed: false };
            assert_eq!(SegmentHeader::decode(&header.encode(), n, path).unwrap(), header);
            let stamp = n ^ 0x0000_0009_0000_0000;
            assert_eq!(header.stamp(), stamp);
            for kind in [Kind::Full, Kind::First, Kind::Middle, Kind::Last, Kind::End] {
                let seq = SeqNo::new(n);
                let record = RecordHeader { kind, seq, synced_to: 4096, payload_len: 3, payload_crc: 5 };
                assert_eq!(RecordHeader::decode(&record.encode(stamp), stamp), Some(record), "{n:#x}");
            }
        }
    }

    #[test]
    fn format_2_no_database_shares_a_stamp_with_another_nor_a_segment_with_another() {
        let stamps = |id: u32| (1..100).map(move |number| stamp(number, id));
        let all: std::collections::BTreeSet<_> = [0, 1, 2, u32::MAX].into_iter().flat_map(stamps).collect();
        assert_eq!(all.len(), 4 * 99);
    }

    #[test]
    fn wal_4_a_header_is_of_one_generation_and_any_flip_is_seen() {
        let end = RecordHeader::end(SeqNo::new(9), 40);
        let bytes = end.encode(3);
        assert_eq!(RecordHeader::decode(&bytes, 3), Some(end));
        assert_eq!(RecordHeader::decode(&bytes, 4), None);
        assert_eq!(RecordHeader::decode(&[0; RECORD_HEADER_BYTES], 3), None);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&bad, 3), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(RecordHeader::decode(&bytes[..len], 3), None);
        }
    }

    #[test]
    fn a_bad_segment_header_is_named() {
        let path = Path::new("000007.wal");
        let header = SegmentHeader { number: 7, made_bytes: 4096, database_id: 9, is_sealed: false };
        let good = header.encode();
        let decode = |bytes: &[u8], number| SegmentHeader::decode(bytes, number, path);
        assert_eq!(decode(&good, 7).unwrap(), header);
        assert!(decode(&good, 8).unwrap_err().is_corrupt());
        for at in 0..good.len() {
            let mut bad = good;
            bad[at] ^= 1;
            assert!(decode(&bad, 7).unwrap_err().is_corrupt(), "byte {at}");
            // The records are found, whichever byte of the header is damaged.
            assert_eq!(SegmentHeader::stamp_of_damaged(&bad, 7, Some(9)), header.stamp(), "byte {at}");
            let by_itself = SegmentHeader::stamp_of_damaged(&bad, 7, None) == header.stamp();
            assert_eq!(by_itself, !(DATABASE_ID_AT..SEGMENT_CRC_AT).contains(&at), "byte {at}");
        }
        for version in [0_u32, 3] {
            let mut other = good;
            other[VERSION_AT].copy_from_slice(&version.to_le_bytes());
            let crc = crc32c(&other[..SEGMENT_CRC_AT]).to_le_bytes();
            other[SEGMENT_CRC_AT..].copy_from_slice(&crc);
            match decode(&other, 7) {
                Err(Error::UnsupportedVersion { found, supported: SEALED_VERSION, .. }) => {
                    assert_eq!(found, version);
                }
                outcome => panic!("{version}: {outcome:?}"),
            }
        }
        assert!(decode(&good[..31], 7).unwrap_err().is_corrupt());
        assert!(header.is_foreign(Some(8)) && !header.is_foreign(Some(9)) && !header.is_foreign(None));
        assert!(header.is_cut(4095) && !header.is_cut(4096));
    }
}
