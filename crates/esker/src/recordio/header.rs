//! The header of a record file.
//!
//! ```text
//!   FileHeader --encode--> 20 bytes --decode--> FileHeader | corrupt | newer version
//! ```
//!
//! If flag 1 is set the file is encrypted, and a key header follows the 20 bytes. If flag 2 is set, too, the
//! file's own keys follow that.
//!
//! The 20 bytes keep their layout in every version, so that every build can tell damage from a
//! newer format.
//!
//! A file whose header was never written (too short, or all zeros) holds no acknowledged record. A
//! crash leaves such files, so they are not corrupt.
//!
//! Bytes: docs/formats/recordio.md

use std::path::Path;

use esker_env::Env;

use super::scan::Source;
use crate::encoding::Compression;
use crate::encoding::bytes::{ByteReader, Decoded};
use crate::encoding::checksum::crc32c;
use crate::encryption::{self, FileKind, KEY_HEADER_BYTES, OWN_KEYS_BYTES, Seal, TAG_BYTES};
use crate::types::{Error, Result};

/// Bytes of the header without a key header.
pub(super) const HEADER_BYTES: usize = 20;
const MAGIC: [u8; 8] = *b"\x89ESKREC\n";
const VERSION: u8 = 1;
/// Flag: the records are encrypted.
const IS_SEALED: u16 = 1;
/// Flag: the file contains its own keys.
const HAS_KEYS: u16 = 2;
const WHAT: &str = "record file header";

/// The header of a record file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// The codec of compressed records.
    pub(super) codec: Compression,
    /// A random number covered by the checksums of all record headers.
    pub(super) salt: u32,
    /// Whether records are encrypted.
    pub(super) is_sealed: bool,
    /// Whether the key of the records follows the key header, wrapped.
    pub(super) has_keys: bool,
}

impl FileHeader {
    /// Returns the offset of the first record.
    pub(super) fn records_at(&self) -> u64 {
        let key_header = if self.is_sealed { KEY_HEADER_BYTES } else { 0 };
        let keys = if self.has_keys { OWN_KEYS_BYTES } else { 0 };
        (HEADER_BYTES + key_header + keys) as u64
    }

    /// Bytes that sealing adds to a payload.
    pub(super) fn tag_bytes(&self) -> u32 {
        if self.is_sealed { TAG_BYTES as u32 } else { 0 }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8] = VERSION;
        out[9] = self.codec.id();
        out[10] = u8::from(self.is_sealed) | u8::from(self.has_keys) << 1;
        out[12..16].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c(&out[..16]);
        out[16..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a header that must exist, for readers at arbitrary offsets.
    pub(super) fn require(bytes: &[u8], path: &Path) -> Result<FileHeader> {
        Self::decode(bytes, path)?
            .ok_or_else(|| Error::corrupt(WHAT, path, 0, "the file header was never written"))
    }

    /// Decodes the first bytes of the file at `path`. `None` if the header was never written.
    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Option<FileHeader>> {
        if never_written(bytes) {
            return Ok(None);
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(Error::corrupt(WHAT, path, 0, "not a record file"));
        }
        let mut reader = ByteReader::new(bytes);
        let fields = (|| -> Decoded<_> {
            reader.take(MAGIC.len() as u64)?;
            Ok((reader.u8()?, reader.u8()?, reader.u16()?, reader.u32()?, reader.u32()?))
        })();
        let (version, codec, flags, salt, crc) = fields.map_err(|e| e.in_file(WHAT, path, 0))?;
        if crc != crc32c(&bytes[..16]) {
            return Err(Error::corrupt(WHAT, path, 16, "checksum mismatch"));
        }
        if version != VERSION || flags & !(IS_SEALED | HAS_KEYS) != 0 || flags == HAS_KEYS {
            return Err(Error::UnsupportedVersion {
                what: "record file",
                path: path.to_path_buf(),
                found: version.into(),
                supported: VERSION.into(),
            });
        }
        let codec = Compression::from_id(codec).ok_or_else(|| {
            Error::Invalid(format!(
                "record file {} uses codec {codec}, which this build lacks",
                path.display()
            ))
        })?;
        let (is_sealed, has_keys) = (flags & IS_SEALED != 0, flags & HAS_KEYS != 0);
        Ok(Some(FileHeader { codec, salt, is_sealed, has_keys }))
    }

    /// Returns the seal of the records of a file with this header.
    pub(super) fn find_seal<S: Source>(&self, env: &Env, path: &Path, source: &mut S) -> Result<Seal> {
        let at = HEADER_BYTES as u64;
        let own;
        let env = if self.has_keys {
            let keys_at = at + KEY_HEADER_BYTES as u64;
            let keys = source.at(keys_at, OWN_KEYS_BYTES as u64)?;
            own = encryption::with_own_keys(env, (path, keys_at), keys)?;
            &own
        } else {
            env
        };
        let key = match self.is_sealed {
            true => Some(source.at(at, KEY_HEADER_BYTES as u64)?),
            false => None,
        };
        Seal::find(env, (path, at), FileKind::Records, key, &self.encode())
    }

    /// Returns the fields of a damaged header, if its codec is known.
    pub(super) fn guess(bytes: &[u8]) -> Option<FileHeader> {
        let salt = bytes.get(12..HEADER_BYTES)?.first_chunk::<4>()?;
        let salt = u32::from_le_bytes(*salt);
        let (is_sealed, has_keys) = (bytes[10] & 1 != 0, bytes[10] & 3 == 3);
        Some(FileHeader { codec: Compression::from_id(bytes[9])?, salt, is_sealed, has_keys })
    }
}

fn never_written(bytes: &[u8]) -> bool {
    let magic = bytes.len().min(MAGIC.len());
    bytes.iter().all(|&b| b == 0) || (bytes.len() < HEADER_BYTES && bytes[..magic] == MAGIC[..magic])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: FileHeader =
        FileHeader { codec: Compression::Lz4, salt: 0x0403_0201, is_sealed: false, has_keys: false };

    fn decode(bytes: &[u8]) -> Result<Option<FileHeader>> {
        FileHeader::decode(bytes, Path::new("f"))
    }

    #[test]
    fn golden_v1() {
        let bytes = HEADER.encode();
        assert_eq!(bytes, *b"\x89ESKREC\n\x01\x03\0\0\x01\x02\x03\x04\x2D\x8F\x07\xD3");
        assert_eq!(decode(&bytes).unwrap(), Some(HEADER));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = HEADER.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).unwrap_err().is_corrupt(), "bit {bit}");
        }
    }

    #[test]
    fn header_1_a_newer_version_and_an_unknown_codec_are_not_corruption() {
        let reseal = |at: usize, value: u8| {
            let mut bytes = HEADER.encode();
            bytes[at] = value;
            let crc = crc32c(&bytes[..16]);
            bytes[16..].copy_from_slice(&crc.to_le_bytes());
            bytes
        };
        let newer = decode(&reseal(8, 2)).unwrap_err();
        assert!(matches!(newer, Error::UnsupportedVersion { found: 2, supported: 1, .. }), "{newer}");
        assert!(newer.to_string().contains("version 2; this build reads up to 1"), "{newer}");
        // Flags are those of a newer version, too: that repair must not pass the file by as damaged.
        for (at, flag) in [(10, 2), (11, 1)] {
            let flags = decode(&reseal(at, flag)).unwrap_err();
            assert!(matches!(flags, Error::UnsupportedVersion { found: 1, supported: 1, .. }), "{flags}");
            let text = flags.to_string();
            assert!(text.contains("does not know") && !text.contains("reads up to"), "{text}");
        }
        assert!(matches!(decode(&reseal(9, 99)), Err(Error::Invalid(_))));
    }

    #[test]
    fn header_2_a_header_that_was_never_written() {
        for len in 0..HEADER_BYTES {
            assert_eq!(decode(&HEADER.encode()[..len]).unwrap(), None);
            assert_eq!(decode(&vec![0; len]).unwrap(), None);
        }
        assert_eq!(decode(&[0; HEADER_BYTES]).unwrap(), None);
        assert!(decode(b"hello").unwrap_err().is_corrupt());
        assert!(decode(b"hello, I am another file").unwrap_err().is_corrupt());
    }
}
