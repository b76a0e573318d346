//! The stored form of every part of a table: bytes, possibly compressed, followed by a checksum.
//!
//! ```text
//!   payload --pack, seal, trailer--> [payload | u32 length, compressed payload] [tag] [codec u8] [crc u32]
//!           <--------open-----------                     (the tag if the table is encrypted)
//! ```
//!
//! stored.1. The checksum covers the stored bytes and the codec, and is seeded with the salt of the table and
//!     the offset of the part. A part of another table, or at another offset, does not match. The checksum is
//!     verified before anything else is used.
//!
//! - Only payloads of up to [`COMPRESSED_BYTES_MAX`] are compressed, so that a damaged length cannot
//!   make the reader allocate more.
//!
//! A payload that does not shrink is stored uncompressed.
//!
//! Bytes: docs/formats/sstable.md

use std::path::Path;

use esker_env::PageBuf;

use crate::encoding::Compression;
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded};
use crate::encoding::checksum::{crc32c, crc32c_append};
use crate::encryption::Seal;

/// A combined checksum of the parts of a table. It distinguishes tables that are otherwise alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint(u32);

impl Fingerprint {
    /// Creates a fingerprint from its number.
    pub(crate) fn new(number: u32) -> Self {
        Fingerprint(number)
    }

    /// Returns its number.
    pub(crate) fn get(self) -> u32 {
        self.0
    }

    /// Returns the fingerprint with another part added, given the end of its stored form.
    pub(super) fn with_part(self, stored: &[u8]) -> Self {
        Fingerprint(crc32c_append(self.0, &stored[stored.len().saturating_sub(TRAILER_BYTES)..]))
    }
}

/// The seed of the checksums of a table's parts, besides their offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Salt(u32);

impl Salt {
    /// Creates a salt from its number.
    pub(super) const fn new(number: u32) -> Self {
        Salt(number)
    }

    /// Returns the salt of a table with this file name. The files of a database have different salts.
    pub(super) fn of_file(path: &Path) -> Self {
        Salt::new(crc32c(path.file_name().unwrap_or_default().as_encoded_bytes()))
    }

    /// Returns its number.
    pub(super) fn get(self) -> u32 {
        self.0
    }

    /// Returns the initial checksum for a part at `offset`.
    pub(super) fn at(self, offset: u64) -> u32 {
        crc32c_append(crc32c(&self.0.to_le_bytes()), &offset.to_le_bytes())
    }
}

/// Bytes after the stored payload.
pub(super) const TRAILER_BYTES: usize = 5;
/// Larger payloads are stored uncompressed.
pub(super) const COMPRESSED_BYTES_MAX: usize = 16 << 20;

/// Returns the bytes to store for `payload` and their codec. `scratch` receives the compressed form.
pub(super) fn pack<'a>(
    payload: &'a [u8],
    codec: Compression,
    scratch: &'a mut Vec<u8>,
) -> std::io::Result<(&'a [u8], Compression)> {
    let (mut stored, mut used) = (payload, Compression::None);
    if codec != Compression::None && payload.len() <= COMPRESSED_BYTES_MAX {
        scratch.clear();
        scratch.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        codec.compress(payload, scratch)?;
        if scratch.len() < payload.len() {
            (stored, used) = (scratch, codec);
        }
    }
    Ok((stored, used))
}

/// Returns the trailer of a part at `offset`.
pub(super) fn trailer(stored: &[u8], codec: Compression, salt: Salt, offset: u64) -> [u8; TRAILER_BYTES] {
    let crc = crc32c_append(crc32c_append(salt.at(offset), stored), &[codec.id()]).to_le_bytes();
    [codec.id(), crc[0], crc[1], crc[2], crc[3]]
}

/// What opens the parts of one table.
#[derive(Clone, Debug, Default)]
pub(super) struct PartOpener {
    pub(super) salt: Salt,
    pub(super) seal: Seal,
}

impl PartOpener {
    /// Decodes the part stored at `offset`, including its trailer.
    pub(super) fn open(&self, stored: &[u8], offset: u64) -> Decoded<PageBuf> {
        if self.seal.is_on() {
            return self.open_owned(PageBuf::copy_of(stored), offset);
        }
        let (payload, codec) = verify(stored, self.salt, offset)?;
        unpack(payload, codec)
    }

    /// Like `open`. An uncompressed payload stays in place if it fills its memory.
    pub(super) fn open_owned(&self, mut stored: PageBuf, offset: u64) -> Decoded<PageBuf> {
        let (payload, codec) = verify(&stored, self.salt, offset)?;
        let len = payload.len();
        let len = self.seal.open(offset, &[codec.id()], &mut stored[..len])?;
        if codec == Compression::None && stored.cut(len) {
            return Ok(stored);
        }
        unpack(&stored[..len], codec)
    }
}

/// Returns whether a part is compressed. Offsets in its payload are then not offsets in the file.
pub(super) fn is_packed(stored: &[u8]) -> bool {
    let codec = stored.len().checked_sub(TRAILER_BYTES).map(|len| stored[len]);
    codec.is_some_and(|codec| codec != Compression::None.id())
}

/// Verifies a part and returns its stored payload and codec (stored.1).
fn verify(stored: &[u8], salt: Salt, offset: u64) -> Decoded<(&[u8], Compression)> {
    let Some(len) = stored.len().checked_sub(TRAILER_BYTES) else {
        return Err(DecodeError::new(0, format!("{} bytes are too short for a checksum", stored.len())));
    };
    let mut trailer = ByteReader::new(&stored[len..]);
    let (codec, crc) = (trailer.u8()?, trailer.u32()?);
    let computed = crc32c_append(salt.at(offset), &stored[..=len]);
    if crc != computed {
        return Err(DecodeError::new(
            len + 1,
            format!("checksum mismatch: {crc:08x} stored, {computed:08x} computed"),
        ));
    }
    let Some(codec) = Compression::from_id(codec) else {
        return Err(DecodeError::new(len, format!("unknown codec {codec}")));
    };
    Ok((&stored[..len], codec))
}

fn unpack(payload: &[u8], codec: Compression) -> Decoded<PageBuf> {
    if codec == Compression::None {
        return Ok(PageBuf::copy_of(payload));
    }
    let mut reader = ByteReader::new(payload);
    let raw_len = reader.u32()? as usize;
    if raw_len > COMPRESSED_BYTES_MAX {
        return Err(DecodeError::new(0, format!("{raw_len} bytes after decompression exceed the maximum")));
    }
    let mut raw = PageBuf::new(raw_len);
    codec.decompress_into(reader.rest(), &mut raw)?;
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt(7);
    const OFFSET: u64 = 4096;

    fn sealed(payload: &[u8], codec: Compression) -> Vec<u8> {
        let mut scratch = Vec::new();
        let (stored, used) = pack(payload, codec, &mut scratch).unwrap();
        [stored, &trailer(stored, used, SALT, OFFSET)].concat()
    }

    /// Opens with both functions, which must agree.
    fn open(stored: Vec<u8>) -> Decoded<Vec<u8>> {
        let opener = PartOpener { salt: SALT, seal: Seal::default() };
        let opened = opener.open(&stored, OFFSET).map(|payload| payload.to_vec());
        let owned = opener.open_owned(PageBuf::copy_of(&stored), OFFSET).map(|payload| payload.to_vec());
        assert_eq!(opened, owned);
        opened
    }

    #[test]
    fn stored_3_every_codec_comes_back_and_random_bytes_stay_raw() {
        let mut rng = fastrand::Rng::with_seed(1);
        let random: Vec<u8> = (0..1000).map(|_| rng.u8(..)).collect();
        for &codec in Compression::ALL {
            let text = b"words and words and words and words ".repeat(20);
            let stored = sealed(&text, codec);
            assert_eq!(stored.len() < text.len(), codec != Compression::None);
            assert_eq!(open(stored).unwrap(), text);
            assert_eq!(sealed(&random, codec).len(), random.len() + TRAILER_BYTES);
            assert_eq!(open(sealed(b"", codec)).unwrap(), b"");
        }
    }

    #[test]
    fn payloads_of_all_sizes_come_back() {
        let mut rng = fastrand::Rng::with_seed(2);
        for len in [0, 1, 2043, 2048, 4090, 4091, 4092, 8187, 8188, 8192, 16_440, 1 << 20, (1 << 20) + 1] {
            let payload: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
            assert!(open(sealed(&payload, Compression::None)).unwrap() == payload, "{len}");
        }
    }

    #[test]
    fn stored_1_every_flipped_or_missing_byte_is_noticed() {
        let stored = sealed(&b"hello hello hello hello hello".repeat(3), Compression::Lz4);
        for at in 0..stored.len() {
            let mut bad = stored.clone();
            bad[at] ^= 0x10;
            assert!(open(bad).is_err());
            assert!(open(stored[..at].to_vec()).is_err());
        }
    }

    #[test]
    fn stored_1_a_part_of_another_table_or_place_is_noticed() {
        let stored = sealed(b"hello", Compression::None);
        let (other, elsewhere) = (Salt::of_file(Path::new("db/000007.sst")), OFFSET + 4096);
        assert_ne!(other, Salt::of_file(Path::new("db/000008.sst")));
        assert_eq!(other, Salt::of_file(Path::new("copied/000007.sst")));
        for (salt, offset) in [(other, OFFSET), (SALT, elsewhere)] {
            assert!(PartOpener { salt, seal: Seal::default() }.open(&stored, offset).is_err());
        }
    }

    #[test]
    fn a_large_length_is_refused_before_allocating() {
        let mut bad = u32::MAX.to_le_bytes().to_vec();
        bad.extend_from_slice(b"xyz");
        bad.push(Compression::Lz4.id());
        bad.extend_from_slice(&crc32c_append(SALT.at(OFFSET), &bad).to_le_bytes());
        assert!(open(bad).unwrap_err().detail.contains("exceed the maximum"));
    }
}
