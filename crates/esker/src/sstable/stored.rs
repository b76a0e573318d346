//! The stored form of every part of a table: bytes, perhaps compressed, with a checksum behind them.
//!
//! ```text
//!   payload --seal--> [payload | u32 length, compressed payload] [codec u8] [crc32c u32]
//!           <-open---
//! ```
//!
//! ST1. The checksum covers the stored bytes and the codec; it is verified before anything else is believed.
//! ST2. Only payloads of up to [`COMPRESSED_BYTES_MAX`] are compressed, so that a damaged length cannot make
//!      the reader allocate more.
//! ST3. What does not shrink is stored raw.
//!
//! Bytes: docs/formats/sstable.md

use crate::encoding::Compression;
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded};
use crate::encoding::checksum::{crc32c, crc32c_append};

/// What the checksums of a table's parts add up to: a table is told by it from others that look the same otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint(u32);

impl Fingerprint {
    /// The fingerprint of this number.
    pub(crate) fn new(number: u32) -> Self {
        Fingerprint(number)
    }

    /// Its number.
    pub(crate) fn get(self) -> u32 {
        self.0
    }

    /// That of a table with one more part, whose stored form ends so.
    pub(super) fn with_part(self, stored: &[u8]) -> Self {
        Fingerprint(crc32c_append(self.0, &stored[stored.len().saturating_sub(TRAILER_BYTES)..]))
    }
}

/// Bytes behind the stored payload.
pub(super) const TRAILER_BYTES: usize = 5;
/// Larger payloads are stored raw (ST2).
pub(super) const COMPRESSED_BYTES_MAX: usize = 16 << 20;

/// The bytes to store for `payload`, and the trailer to store behind them. `scratch` is room for the compressed form.
pub(super) fn seal<'a>(
    payload: &'a [u8],
    codec: Compression,
    scratch: &'a mut Vec<u8>,
) -> std::io::Result<(&'a [u8], [u8; TRAILER_BYTES])> {
    let (mut stored, mut used) = (payload, Compression::None);
    if codec != Compression::None && payload.len() <= COMPRESSED_BYTES_MAX {
        scratch.clear();
        scratch.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        codec.compress(payload, scratch)?;
        if scratch.len() < payload.len() {
            (stored, used) = (scratch, codec);
        }
    }
    let crc = crc32c_append(crc32c(stored), &[used.id()]).to_le_bytes();
    Ok((stored, [used.id(), crc[0], crc[1], crc[2], crc[3]]))
}

/// The payload of a stored part, trailer included.
pub(super) fn open(mut stored: Vec<u8>) -> Decoded<Vec<u8>> {
    let Some(len) = stored.len().checked_sub(TRAILER_BYTES) else {
        return Err(DecodeError::new(0, format!("{} bytes: too short for a checksum", stored.len())));
    };
    let mut trailer = ByteReader::new(&stored[len..]);
    let (codec, crc) = (trailer.u8()?, trailer.u32()?);
    let computed = crc32c(&stored[..=len]);
    if crc != computed {
        return Err(DecodeError::new(len + 1, format!("checksum {crc:08x} stored, {computed:08x} computed")));
    }
    let Some(codec) = Compression::from_id(codec) else {
        return Err(DecodeError::new(len, format!("codec {codec}, which this build does not have")));
    };
    stored.truncate(len);
    if codec == Compression::None {
        return Ok(stored);
    }
    let mut reader = ByteReader::new(&stored);
    let raw_len = reader.u32()? as usize;
    if raw_len > COMPRESSED_BYTES_MAX {
        return Err(DecodeError::new(0, format!("{raw_len} bytes after decompression: too many")));
    }
    codec.decompress(reader.rest(), raw_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(payload: &[u8], codec: Compression) -> Vec<u8> {
        let mut scratch = Vec::new();
        let (stored, trailer) = seal(payload, codec, &mut scratch).unwrap();
        [stored, &trailer].concat()
    }

    #[test]
    fn st3_every_codec_comes_back_and_random_bytes_stay_raw() {
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
    fn st1_every_flipped_or_missing_byte_is_noticed() {
        let stored = sealed(&b"hello hello hello hello hello".repeat(3), Compression::Lz4);
        for at in 0..stored.len() {
            let mut bad = stored.clone();
            bad[at] ^= 0x10;
            assert!(open(bad).is_err());
            assert!(open(stored[..at].to_vec()).is_err());
        }
    }

    #[test]
    fn st2_a_large_length_is_refused_before_allocating() {
        let mut bad = u32::MAX.to_le_bytes().to_vec();
        bad.extend_from_slice(b"xyz");
        bad.push(Compression::Lz4.id());
        bad.extend_from_slice(&crc32c(&bad).to_le_bytes());
        assert!(open(bad).unwrap_err().detail.contains("too many"));
    }
}
