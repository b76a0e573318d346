//! The footer: the last bytes of a table, which say where everything else is.
//!
//! ```text
//!   data blocks | range tombstones | filter | index | properties | footer, 80 bytes
//! ```
//!
//! FO1. The parts lie back to back in this order, and the footer ends the file: a file that was cut, or has bytes
//!      added, is refused.
//!
//! Bytes: docs/formats/sstable.md

use std::ops::Range;

use super::stored::Salt;
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded};
use crate::encoding::checksum::crc32c;
use crate::types::SeqNo;

/// The length of the footer.
pub(super) const FOOTER_BYTES: usize = 80;
/// The last 8 bytes of a table.
pub(super) const MAGIC: [u8; 8] = *b"eskerSST";
/// The format that this build writes, and the newest one that it reads. Version 1 has no fingerprint, version 2 no salt, version 3 no
/// newest commit.
pub(super) const FORMAT_VERSION: u32 = 4;
/// The newest format whose footer has an offset for each part.
const OFFSETS_VERSION_MAX: u32 = 2;
/// The oldest format whose footer says which commit is the newest.
const NEWEST_COMMIT_VERSION_MIN: u32 = 4;
/// Where the version stands.
const VERSION_AT: usize = 64;

/// Where the parts of a table lie in the file. Empty parts are absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub tombstones: Range<u64>,
    pub filter: Range<u64>,
    pub index: Range<u64>,
    pub properties: Range<u64>,
    /// What the checksums of the parts begin with.
    pub salt: Salt,
    /// The newest commit that went into the table, under whatever number, or as what was left out; absent before version 4.
    pub newest_commit: Option<SeqNo>,
    /// The format of the table.
    pub version: u32,
}

/// Why a footer was not read.
#[derive(Debug)]
pub(super) enum FooterError {
    Damaged(DecodeError),
    Newer(u32),
}

impl From<DecodeError> for FooterError {
    fn from(error: DecodeError) -> Self {
        FooterError::Damaged(error)
    }
}

/// Offset and length of each part.
type Parts = [(u64, u64); 4];

impl Footer {
    pub(super) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        let parts = [&self.tombstones, &self.filter, &self.index, &self.properties];
        match self.salt.get() {
            None => parts.iter().for_each(|part| {
                out.extend_from_slice(&part.start.to_le_bytes());
                out.extend_from_slice(&(part.end - part.start).to_le_bytes());
            }),
            Some(salt) => {
                out.extend_from_slice(&self.tombstones.start.to_le_bytes());
                for part in parts {
                    out.extend_from_slice(&(part.end - part.start).to_le_bytes());
                }
                out.extend_from_slice(&salt.to_le_bytes());
                let newest_commit = self.newest_commit.unwrap_or_default();
                out.extend_from_slice(&newest_commit.get().to_le_bytes());
                out.resize(VERSION_AT, 0);
            }
        }
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out.try_into().expect("the footer's fields take 80 bytes")
    }

    /// Reads the footer of a file of `file_len` bytes.
    pub(super) fn decode(bytes: &[u8; FOOTER_BYTES], file_len: u64) -> Result<Footer, FooterError> {
        let mut end = ByteReader::new(&bytes[VERSION_AT..]);
        let (version, crc) = (end.u32()?, end.u32()?);
        if end.rest() != MAGIC {
            return Err(DecodeError::new(72, "no magic: not a table, or a table cut short").into());
        }
        let computed = crc32c(&bytes[..68]);
        if crc != computed {
            let detail = format!("checksum {crc:08x} stored, {computed:08x} computed");
            return Err(DecodeError::new(68, detail).into());
        }
        if version == 0 || version > FORMAT_VERSION {
            return Err(FooterError::Newer(version));
        }
        let (parts, salt, newest_commit) = if version <= OFFSETS_VERSION_MAX {
            (Self::decode_offsets(bytes)?, Salt::NONE, None)
        } else {
            Self::decode_lengths(bytes, version)?
        };
        let mut ends = Vec::with_capacity(parts.len());
        let mut expected = parts[0].0;
        for (start, len) in parts {
            match start.checked_add(len) {
                Some(end) if start == expected => expected = end,
                _ => return Err(DecodeError::new(0, "the parts do not lie back to back").into()),
            }
            ends.push(start..expected);
        }
        if expected.checked_add(FOOTER_BYTES as u64) != Some(file_len) {
            let detail = format!("the parts end at {expected} in a file of {file_len} bytes");
            return Err(DecodeError::new(0, detail).into());
        }
        let [tombstones, filter, index, properties] = ends.try_into().expect("four parts");
        Ok(Footer { tombstones, filter, index, properties, salt, newest_commit, version })
    }

    /// Offset and length of each part: versions 1 and 2.
    fn decode_offsets(bytes: &[u8]) -> Decoded<Parts> {
        let mut reader = ByteReader::new(bytes);
        let mut part = || -> Decoded<(u64, u64)> { Ok((reader.u64()?, reader.u64()?)) };
        Ok([part()?, part()?, part()?, part()?])
    }

    /// The same from the offset of the first and the lengths of all, the salt, and the newest commit.
    fn decode_lengths(bytes: &[u8], version: u32) -> Decoded<(Parts, Salt, Option<SeqNo>)> {
        let mut reader = ByteReader::new(&bytes[..VERSION_AT]);
        let mut start = reader.u64()?;
        let mut part = || -> Decoded<(u64, u64)> {
            let (at, len) = (start, reader.u64()?);
            start = start.wrapping_add(len);
            Ok((at, len))
        };
        let parts = [part()?, part()?, part()?, part()?];
        let salt = Salt::new(reader.u32()?);
        let newest_commit = if version < NEWEST_COMMIT_VERSION_MIN {
            None
        } else {
            let Some(commit) = SeqNo::try_new(reader.u64()?) else {
                return Err(DecodeError::new(44, "a newest commit of more than 56 bits"));
            };
            Some(commit)
        };
        if reader.rest().iter().any(|byte| *byte != 0) {
            return Err(DecodeError::new(44, "bytes that this version does not use are not zero"));
        }
        Ok((parts, salt, newest_commit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fo1_the_footer_fits_its_file_only() {
        let footer = Footer {
            tombstones: 100..100,
            filter: 100..165,
            index: 165..200,
            properties: 200..260,
            salt: Salt::new(0x0102_0304),
            newest_commit: Some(SeqNo::MAX),
            version: FORMAT_VERSION,
        };
        let version_3 = Footer { newest_commit: None, version: 3, ..footer.clone() };
        let unsalted = Footer { salt: Salt::NONE, version: OFFSETS_VERSION_MAX, ..version_3.clone() };
        for footer in [footer, version_3, unsalted] {
            let bytes = footer.encode();
            assert_eq!(Footer::decode(&bytes, 340).unwrap(), footer);
            assert!(Footer::decode(&bytes, 339).is_err() && Footer::decode(&bytes, 341).is_err());
            for at in 0..FOOTER_BYTES {
                let mut bad = bytes;
                bad[at] ^= 1;
                assert!(Footer::decode(&bad, 340).is_err());
            }
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let of_version = |version| {
            let salt = if version <= OFFSETS_VERSION_MAX { Salt::NONE } else { Salt::new(7) };
            Footer {
                tombstones: 0..0,
                filter: 0..0,
                index: 0..0,
                properties: 0..0,
                salt,
                newest_commit: None,
                version,
            }
            .encode()
        };
        assert!(matches!(Footer::decode(&of_version(5), 80), Err(FooterError::Newer(5))));
        for version in [1, 2, 3, FORMAT_VERSION] {
            assert_eq!(Footer::decode(&of_version(version), 80).unwrap().version, version);
        }
    }

    #[test]
    fn a_newest_commit_is_of_56_bits_and_of_version_4() {
        let decoded = |version: u32, commit: u64| {
            let mut bytes = [0; FOOTER_BYTES];
            bytes[44..52].copy_from_slice(&commit.to_le_bytes());
            bytes[VERSION_AT..68].copy_from_slice(&version.to_le_bytes());
            let crc = crc32c(&bytes[..68]);
            bytes[68..72].copy_from_slice(&crc.to_le_bytes());
            bytes[72..].copy_from_slice(&MAGIC);
            Footer::decode(&bytes, 80).map(|footer| footer.newest_commit)
        };
        assert_eq!(decoded(4, 0).unwrap(), Some(SeqNo::ZERO));
        assert_eq!(decoded(4, SeqNo::MAX.get()).unwrap(), Some(SeqNo::MAX));
        assert_eq!(decoded(3, 0).unwrap(), None);
        assert!(decoded(4, SeqNo::MAX.get() + 1).is_err() && decoded(3, 1).is_err());
    }
}
