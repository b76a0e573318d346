//! The frame of a record: a self-checking header followed by the payload.
//!
//! ```text
//!   record --compress if smaller, seal--> [marker flags lengths checksums][payload] --> file
//! ```
//!
//! The checksum of a header covers the salt of the file and the offset of the record, besides the
//! header fields. A header is therefore valid only in the file and at the offset where it was written. No
//! content (markers, other record files, a copy of this file) can pass for a record.
//!
//! The header is verified before its lengths are used, and the payload before it is decompressed.
//!
//! A record that does not shrink is stored uncompressed, so a payload is never longer than its record.
//!
//! Bytes: docs/formats/recordio.md

use std::borrow::Cow;

use crate::encoding::Compression;
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded};
use crate::encoding::checksum::{crc32c, crc32c_append};
use crate::encryption::Seal;

use super::header::FileHeader;

/// Bytes of the header of a record.
pub(super) const FRAME_BYTES: usize = 20;
/// The first bytes of every record, which resynchronization searches for. Not text, not valid UTF-8, not
/// zeros.
pub(super) const MARKER: [u8; 3] = [0xE5, 0x1C, 0xF7];
const FLAG_COMPRESSED: u8 = 1;

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Whether the payload is compressed with the codec of the file.
    pub(super) compressed: bool,
    /// Length of the record in bytes.
    pub(super) raw_len: u32,
    /// Length of the payload in bytes.
    pub(super) stored_len: u32,
    /// CRC-32C of the payload.
    pub(super) payload_crc: u32,
}

impl Frame {
    pub(super) fn encode(&self, file: &FileHeader, offset: u64) -> [u8; FRAME_BYTES] {
        assert!(self.compressed || self.raw_len == self.stored_len - file.tag_bytes());
        let mut out = [0; FRAME_BYTES];
        out[..3].copy_from_slice(&MARKER);
        out[3] = if self.compressed { FLAG_COMPRESSED } else { 0 };
        out[4..8].copy_from_slice(&self.raw_len.to_le_bytes());
        out[8..12].copy_from_slice(&self.stored_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = header_crc(&out[..16], file, offset);
        out[16..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header at `offset` of the file.
    pub(super) fn decode(bytes: &[u8], file: &FileHeader, offset: u64) -> Decoded<Frame> {
        let mut reader = ByteReader::new(bytes);
        if reader.take(3)? != MARKER {
            return Err(DecodeError::new(0, "no record starts here"));
        }
        let flags = reader.u8()?;
        let (raw_len, stored_len, payload_crc) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if reader.u32()? != header_crc(&bytes[..16], file, offset) {
            return Err(DecodeError::new(0, "the checksum of the record's header does not match"));
        }
        if flags & !FLAG_COMPRESSED != 0 {
            return Err(DecodeError::new(3, format!("unknown flags {flags:#x}")));
        }
        let compressed = flags & FLAG_COMPRESSED != 0;
        let Some(packed_len) = stored_len.checked_sub(file.tag_bytes()) else {
            return Err(DecodeError::new(8, "the payload of an encrypted record has a tag"));
        };
        let raw_len_max =
            if compressed { u64::from(packed_len) * expansion_max(file.codec) } else { packed_len.into() };
        if (!compressed && raw_len != packed_len) || u64::from(raw_len) > raw_len_max {
            return Err(DecodeError::new(4, format!("{stored_len} stored bytes cannot expand to {raw_len}")));
        }
        Ok(Frame { compressed, raw_len, stored_len, payload_crc })
    }

    /// Bytes of the whole record in the file.
    pub(super) fn size(&self) -> u64 {
        FRAME_BYTES as u64 + u64::from(self.stored_len)
    }

    /// Returns whether `payload` is the payload that was written.
    pub(super) fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.stored_len as usize && crc32c(payload) == self.payload_crc
    }

    /// Returns the record in a payload that [`matches`](Self::matches) accepted, stored at `offset`.
    pub(super) fn unpack<'a>(
        &self,
        file: &FileHeader,
        seal: &Seal,
        offset: u64,
        payload: &'a [u8],
    ) -> Decoded<Cow<'a, [u8]>> {
        if !seal.is_on() {
            return self.decompress(file, Cow::Borrowed(payload));
        }
        let mut opened = payload.to_vec();
        let len = seal.open(offset, &self.context(), &mut opened)?;
        opened.truncate(len);
        self.decompress(file, Cow::Owned(opened))
    }

    fn decompress<'a>(&self, file: &FileHeader, payload: Cow<'a, [u8]>) -> Decoded<Cow<'a, [u8]>> {
        match self.compressed {
            true => file.codec.decompress(&payload, self.raw_len as usize).map(Cow::Owned),
            false => Ok(payload),
        }
    }

    /// Returns what the tag of the payload authenticates besides it.
    fn context(&self) -> [u8; 5] {
        let [a, b, c, d] = self.raw_len.to_le_bytes();
        [u8::from(self.compressed), a, b, c, d]
    }
}

/// Frames `record` for `offset`. Returns the header and the payload to write; the payload is `record` or lies
/// in `scratch`.
pub(super) fn pack<'a>(
    record: &'a [u8],
    raw_len: u32,
    (file, seal): (&FileHeader, &Seal),
    offset: u64,
    scratch: &'a mut Vec<u8>,
) -> std::io::Result<(Frame, &'a [u8])> {
    scratch.clear();
    let can_shrink = can_compress(file.codec, record.len());
    if can_shrink {
        file.codec.compress(record, scratch)?;
    }
    // A reader refuses an expansion beyond `expansion_max`, so such a record is stored uncompressed.
    let compressed = can_shrink
        && scratch.len() < record.len()
        && raw_len as u64 <= scratch.len() as u64 * expansion_max(file.codec);
    let packed_len = if compressed { scratch.len() as u32 } else { raw_len };
    let mut frame = Frame { compressed, raw_len, stored_len: packed_len, payload_crc: 0 };
    if seal.is_on() {
        if !compressed {
            scratch.clear();
            scratch.extend_from_slice(record);
        }
        seal.seal(offset, &frame.context(), scratch);
        frame.stored_len += file.tag_bytes();
    }
    let payload = if compressed || seal.is_on() { &scratch[..] } else { record };
    frame.payload_crc = crc32c(payload);
    Ok((frame, payload))
}

/// Returns whether the codec accepts a record of this length.
fn can_compress(codec: Compression, raw_len: usize) -> bool {
    match codec {
        Compression::None => false,
        // The library refuses inputs that could expand beyond 4 GiB - 1, and reports them as zero.
        Compression::Snappy => snap::raw::max_compress_len(raw_len) > 0,
        Compression::Gzip | Compression::Lz4 | Compression::Zstd => true,
    }
}

/// The maximum expansion of a codec, which bounds what a forged length can make us allocate.
fn expansion_max(codec: Compression) -> u64 {
    match codec {
        // Never used for compressed records.
        Compression::None => 0,
        // Deflate: 258 bytes from two bits, 1032 to 1.
        Compression::Gzip => 1_032,
        // A copy element: 64 bytes from 3.
        Compression::Snappy => 22,
        // A length byte: 255 bytes from 1.
        Compression::Lz4 => 255,
        // A block of one repeated byte: 128 KiB from 4 bytes.
        Compression::Zstd => 32_768,
    }
}

/// Returns the checksum of a header.
fn header_crc(fields: &[u8], file: &FileHeader, offset: u64) -> u32 {
    let mut place = [0; 12];
    place[..4].copy_from_slice(&file.salt.to_le_bytes());
    place[4..].copy_from_slice(&offset.to_le_bytes());
    crc32c_append(crc32c(&place), fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileHeader =
        FileHeader { codec: Compression::Snappy, salt: 7, is_sealed: false, has_keys: false };

    fn pack<'a>(
        record: &'a [u8],
        raw_len: u32,
        file: &FileHeader,
        scratch: &'a mut Vec<u8>,
    ) -> std::io::Result<(Frame, &'a [u8])> {
        super::pack(record, raw_len, (file, &Seal::default()), 20, scratch)
    }

    #[test]
    fn golden_v1() {
        let (frame, payload) =
            pack(b"hello", 5, &FILE, &mut Vec::new()).map(|(f, p)| (f, p.to_vec())).unwrap();
        assert_eq!(payload, b"hello");
        let bytes = frame.encode(&FILE, 20);
        assert_eq!(
            bytes,
            [0xE5, 0x1C, 0xF7, 0, 5, 0, 0, 0, 5, 0, 0, 0, 0x4C, 0xBB, 0x71, 0x9A, 0x2F, 0x8C, 0x2F, 0x63]
        );
        assert_eq!(Frame::decode(&bytes, &FILE, 20), Ok(frame));
    }

    #[test]
    fn frame_1_a_header_is_valid_at_one_place_of_one_file() {
        let frame = Frame { compressed: false, raw_len: 9, stored_len: 9, payload_crc: 1 };
        let bytes = frame.encode(&FILE, 1000);
        for offset in (0..2000).filter(|&o| o != 1000) {
            assert!(Frame::decode(&bytes, &FILE, offset).is_err());
        }
        for salt in (0..2000).filter(|&s| s != FILE.salt) {
            assert!(Frame::decode(&bytes, &FileHeader { salt, ..FILE }, 1000).is_err());
        }
        for bit in 0..FRAME_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(&bad, &FILE, 1000).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn forged_lengths_are_refused() {
        let mut frame = Frame { compressed: true, raw_len: 4_000_000, stored_len: 10, payload_crc: 0 };
        assert!(Frame::decode(&frame.encode(&FILE, 0), &FILE, 0).is_err());
        frame.raw_len = 200;
        assert_eq!(Frame::decode(&frame.encode(&FILE, 0), &FILE, 0), Ok(frame));
    }

    #[test]
    fn what_a_codec_does_not_take_is_stored_as_it_is() {
        let longest = u32::MAX as usize;
        assert!(can_compress(Compression::Snappy, 0) && can_compress(Compression::Snappy, 3_681_400_000));
        assert!(
            !can_compress(Compression::Snappy, 3_681_500_000) && !can_compress(Compression::Snappy, longest)
        );
        assert!(!can_compress(Compression::None, 1));
        for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
            assert!(can_compress(codec, longest), "{}", codec.name());
        }
    }

    #[test]
    fn the_best_case_of_every_codec_stays_below_its_limit() {
        let zeros = vec![0; 3 << 20];
        for &codec in &Compression::ALL[1..] {
            let file = FileHeader { codec, ..FILE };
            let mut scratch = Vec::new();
            let (frame, payload) = pack(&zeros, zeros.len() as u32, &file, &mut scratch).unwrap();
            assert!(frame.compressed, "{}", codec.name());
            assert_eq!(
                frame.unpack(&file, &Seal::default(), 20, payload).unwrap(),
                zeros,
                "{}",
                codec.name()
            );
        }
    }
}
