//! The footer: the last bytes of a table, which give the positions of its parts.
//!
//! ```text
//!   data blocks | range tombstones | filter | index pages | index | properties | [key header] | footer
//! ```
//!
//! The parts are contiguous in this order, and the footer ends the file. A truncated or extended
//! file is refused.
//!
//! - The footer has the features of the table's entries (types/op.rs): what a reader has to
//!   understand. A table with unknown features is refused.
//!
//! Bytes: docs/formats/sstable.md

use std::ops::Range;

use super::stored::Salt;
use crate::encoding::bytes::{ByteReader, DecodeError};
use crate::encoding::checksum::crc32c;
use crate::encryption::KEY_HEADER_BYTES;
use crate::types::SeqNo;
use crate::types::op::Kind;

/// Bytes of the footer.
pub(super) const FOOTER_BYTES: usize = 80;
/// The last 8 bytes of a table.
pub(super) const MAGIC: [u8; 8] = *b"eskerSST";
/// The version that this build writes, and the newest that it reads.
pub(super) const FORMAT_VERSION: u32 = 1;
/// Offset of the length of the index pages.
const PAGES_AT: usize = 56;
/// Offset of the version.
const VERSION_AT: usize = 64;

/// Flag beside the features: the parts are encrypted, and a key header precedes the footer.
const IS_SEALED: u32 = 1 << 31;

/// Positions of the parts of a table in the file. A missing part is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub tombstones: Range<u64>,
    pub filter: Range<u64>,
    /// All pages of the index. If there are any, the index is their root.
    pub pages: Range<u64>,
    pub index: Range<u64>,
    pub properties: Range<u64>,
    /// The initial value of the checksums of the parts.
    pub salt: Salt,
    /// The newest commit in the table, even if its sequence number was cleared or its entries were dropped.
    pub newest_commit: SeqNo,
    /// The features of its entries.
    pub features: u32,
    /// Whether the parts are encrypted.
    pub is_sealed: bool,
}

/// Why a footer could not be decoded.
#[derive(Debug)]
pub(super) enum FooterError {
    Damaged(DecodeError),
    /// A different version.
    Version(u32),
    /// This version with unknown features.
    Features,
}

impl From<DecodeError> for FooterError {
    fn from(error: DecodeError) -> Self {
        FooterError::Damaged(error)
    }
}

impl FooterError {
    /// Returns what is not supported, and its version. Returns the error of a damaged footer.
    pub(super) fn unread(self) -> Result<(&'static str, u32), DecodeError> {
        match self {
            FooterError::Damaged(error) => Err(error),
            FooterError::Version(found) => Ok(("table", found)),
            FooterError::Features => Ok(("table with unknown kinds of entries", FORMAT_VERSION)),
        }
    }
}

/// Bytes after the properties.
fn end_bytes(is_sealed: bool) -> u64 {
    (FOOTER_BYTES + if is_sealed { KEY_HEADER_BYTES } else { 0 }) as u64
}

impl Footer {
    /// Returns where the file ends.
    pub(super) fn end(&self) -> u64 {
        self.properties.end + end_bytes(self.is_sealed)
    }

    /// Returns where the data blocks end.
    pub(super) fn blocks_end(&self) -> u64 {
        self.tombstones.start
    }

    pub(super) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.tombstones.start.to_le_bytes());
        for part in [&self.tombstones, &self.filter, &self.index, &self.properties] {
            out.extend_from_slice(&(part.end - part.start).to_le_bytes());
        }
        out.extend_from_slice(&self.salt.get().to_le_bytes());
        out.extend_from_slice(&self.newest_commit.get().to_le_bytes());
        let sealed = if self.is_sealed { IS_SEALED } else { 0 };
        out.extend_from_slice(&(self.features | sealed).to_le_bytes());
        out.extend_from_slice(&(self.pages.end - self.pages.start).to_le_bytes());
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out.try_into().expect("the footer's fields take 80 bytes")
    }

    /// Decodes the footer of a file of `file_len` bytes.
    pub(super) fn decode(bytes: &[u8; FOOTER_BYTES], file_len: u64) -> Result<Footer, FooterError> {
        let mut end = ByteReader::new(&bytes[VERSION_AT..]);
        let (version, crc) = (end.u32()?, end.u32()?);
        if end.rest() != MAGIC {
            return Err(DecodeError::new(72, "no magic number: not a table, or truncated").into());
        }
        let computed = crc32c(&bytes[..68]);
        if crc != computed {
            let detail = format!("checksum mismatch: {crc:08x} stored, {computed:08x} computed");
            return Err(DecodeError::new(68, detail).into());
        }
        if version != FORMAT_VERSION {
            return Err(FooterError::Version(version));
        }
        let mut reader = ByteReader::new(&bytes[..VERSION_AT]);
        let start = reader.u64()?;
        let mut end = start;
        let pages_len = ByteReader::new(&bytes[PAGES_AT..]).u64()?;
        let mut part = |len: u64| -> Result<Range<u64>, FooterError> {
            let start = end;
            let Some(part_end) = start.checked_add(len) else {
                return Err(DecodeError::new(0, "the parts are longer than any file").into());
            };
            end = part_end;
            Ok(start..end)
        };
        let (tombstones, filter) = (part(reader.u64()?)?, part(reader.u64()?)?);
        let (pages, index, properties) = (part(pages_len)?, part(reader.u64()?)?, part(reader.u64()?)?);
        let salt = Salt::new(reader.u32()?);
        let Some(newest_commit) = SeqNo::try_new(reader.u64()?) else {
            return Err(DecodeError::new(44, "the newest commit exceeds 56 bits").into());
        };
        let flags = reader.u32()?;
        let (features, is_sealed) = (flags & !IS_SEALED, flags & IS_SEALED != 0);
        if features & !Kind::KNOWN_FEATURES != 0 {
            return Err(FooterError::Features);
        }
        if properties.end.checked_add(end_bytes(is_sealed)) != Some(file_len) {
            let detail = format!("the parts end at {} in a file of {file_len} bytes", properties.end);
            return Err(DecodeError::new(0, detail).into());
        }
        Ok(Footer { tombstones, filter, pages, index, properties, salt, newest_commit, features, is_sealed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> Footer {
        Footer {
            tombstones: 100..100,
            filter: 100..165,
            pages: 165..170,
            index: 170..200,
            properties: 200..260,
            salt: Salt::new(0x0102_0304),
            newest_commit: SeqNo::MAX,
            features: 0,
            is_sealed: false,
        }
    }

    /// Decodes a footer with these bytes at `at` and a valid checksum.
    fn with(at: usize, field: &[u8]) -> Result<Footer, FooterError> {
        let mut bytes = footer().encode();
        bytes[at..at + field.len()].copy_from_slice(field);
        let crc = crc32c(&bytes[..68]);
        bytes[68..72].copy_from_slice(&crc.to_le_bytes());
        Footer::decode(&bytes, 340)
    }

    #[test]
    fn footer_1_the_footer_fits_its_file_only() {
        let bytes = footer().encode();
        assert_eq!(Footer::decode(&bytes, 340).unwrap(), footer());
        assert!(Footer::decode(&bytes, 339).is_err() && Footer::decode(&bytes, 341).is_err());
        for at in 0..FOOTER_BYTES {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert!(matches!(Footer::decode(&bad, 340), Err(FooterError::Damaged(_))), "byte {at}");
        }
        for at in [0, 8, 16, 24, 32, PAGES_AT] {
            assert!(matches!(with(at, &u64::MAX.to_le_bytes()), Err(FooterError::Damaged(_))), "byte {at}");
        }
    }

    #[test]
    fn another_version_is_named() {
        for version in [0, FORMAT_VERSION + 1, u32::MAX] {
            let unread = with(VERSION_AT, &version.to_le_bytes()).unwrap_err().unread();
            assert_eq!(unread.unwrap(), ("table", version));
        }
    }

    #[test]
    fn a_table_with_unknown_features_is_refused() {
        for bit in (0..31).filter(|bit| Kind::KNOWN_FEATURES & 1 << bit == 0) {
            let unread = with(52, &(1_u32 << bit).to_le_bytes()).unwrap_err().unread();
            let (what, found) = unread.expect("not damaged");
            assert!(what.starts_with("table") && found == FORMAT_VERSION, "{what}");
        }
        let all = with(52, &Kind::KNOWN_FEATURES.to_le_bytes()).unwrap();
        assert_eq!(all.features, Kind::KNOWN_FEATURES);
        assert!(matches!(with(63, &[1]), Err(FooterError::Damaged(_))));
    }

    #[test]
    fn a_newest_commit_is_of_56_bits() {
        assert_eq!(with(44, &[0; 8]).unwrap().newest_commit, SeqNo::ZERO);
        assert!(with(44, &(SeqNo::MAX.get() + 1).to_le_bytes()).is_err());
    }
}
