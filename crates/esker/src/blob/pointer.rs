//! Where a value lies: what stands beside the key in its place.
//!
//! Bytes: docs/formats/blob.md, "Pointer"

use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::encoding::checksum::crc32c;
use crate::types::FileId;

/// The value as it is; others are for values that are compressed.
const CODEC_NONE: u8 = 0;

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlobPointer {
    /// The number of the file that it was written to (blob.1).
    pub file: FileId,
    /// Where it began there.
    pub offset: u64,
    /// Its bytes.
    pub len: u32,
    /// Their CRC-32C.
    pub crc: u32,
}

impl BlobPointer {
    /// To a value at this place.
    pub(crate) fn new(file: FileId, offset: u64, value: &[u8]) -> Self {
        let len = u32::try_from(value.len()).expect("values have 32-bit lengths");
        BlobPointer { file, offset, len, crc: crc32c(value) }
    }

    /// Appends it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(CODEC_NONE);
        put_varint(out, self.file.get());
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.len));
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    /// The inverse of [`encode`](Self::encode).
    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = ByteReader::new(bytes);
        let codec = reader.u8()?;
        if codec != CODEC_NONE {
            return Err(reader.error(format!("codec {codec} of a blob, which this build does not have")));
        }
        let (file, offset, len) = (FileId::new(reader.varint()?), reader.varint()?, reader.varint()?);
        let len = u32::try_from(len).map_err(|_| reader.error("a blob of more than 32 bits"))?;
        let crc = reader.u32()?;
        reader.finish()?;
        Ok(BlobPointer { file, offset, len, crc })
    }

    /// Whether these are the bytes of the value (blob.2).
    pub(crate) fn is_of(&self, value: &[u8]) -> bool {
        value.len() as u64 == u64::from(self.len) && crc32c(value) == self.crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_damage() {
        let pointer = BlobPointer::new(FileId::new(7), 300, b"abc");
        let mut bytes = Vec::new();
        pointer.encode(&mut bytes);
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "0007ac0203b73f4b36");
        assert_eq!(BlobPointer::decode(&bytes), Ok(pointer));
        assert!((0..bytes.len()).all(|len| BlobPointer::decode(&bytes[..len]).is_err()));
        bytes[0] = 1;
        assert!(BlobPointer::decode(&bytes).is_err());
        assert!(pointer.is_of(b"abc") && !pointer.is_of(b"abd") && !pointer.is_of(b"ab"));
    }
}
