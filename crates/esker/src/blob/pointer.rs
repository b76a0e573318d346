//! A pointer to a value in a blob file, stored with the key instead of the value.
//!
//! Bytes: docs/formats/blob.md, "Pointer"

use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::types::FileId;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Uncompressed.
    Plain = 0,
    /// As one LZ4 block.
    Lz4 = 1,
    /// In chunks, followed by a table of them (`stored.rs`).
    Chunks = 2,
}

/// A pointer to a value in a blob file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlobPointer {
    /// How the value is stored.
    pub form: Form,
    /// Number of the file that the value was written to (blob.1).
    pub file: FileId,
    /// Offset in that file.
    pub offset: u64,
    /// Length of the value in bytes.
    pub len: u32,
    /// Bytes of the stored form.
    pub stored: u64,
    /// CRC-32C of the stored bytes; for chunks, of their table.
    pub crc: u32,
}

impl BlobPointer {
    /// Appends the encoded pointer.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.form as u8);
        put_varint(out, self.file.get());
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.len));
        if self.form != Form::Plain {
            put_varint(out, self.stored);
        }
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    /// The inverse of [`encode`](Self::encode).
    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = ByteReader::new(bytes);
        let form = match reader.u8()? {
            0 => Form::Plain,
            1 => Form::Lz4,
            2 => Form::Chunks,
            other => {
                return Err(reader.error(format!("unknown blob form {other}")));
            }
        };
        let (file, offset, len) = (FileId::new(reader.varint()?), reader.varint()?, reader.varint()?);
        let len = u32::try_from(len).map_err(|_| reader.error("the length of a blob exceeds 32 bits"))?;
        let stored = if form == Form::Plain { u64::from(len) } else { reader.varint()? };
        let crc = reader.u32()?;
        reader.finish()?;
        Ok(BlobPointer { form, file, offset, len, stored, crc })
    }
}

#[cfg(test)]
impl BlobPointer {
    /// A pointer to a value that is stored uncompressed.
    pub(crate) fn new(file: FileId, offset: u64, value: &[u8]) -> Self {
        let (len, crc) = (value.len() as u32, crate::encoding::checksum::crc32c(value));
        BlobPointer { form: Form::Plain, file, offset, len, stored: len.into(), crc }
    }

    fn is_of(&self, value: &[u8]) -> bool {
        *self == Self::new(self.file, self.offset, value)
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

    #[test]
    fn golden_bytes_of_other_forms() {
        let plain = BlobPointer::new(FileId::new(7), 300, b"abc");
        for (form, golden) in
            [(Form::Lz4, "0107ac0203c801b73f4b36"), (Form::Chunks, "0207ac0203c801b73f4b36")]
        {
            let pointer = BlobPointer { form, stored: 200, ..plain };
            let mut bytes = Vec::new();
            pointer.encode(&mut bytes);
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hex, golden);
            assert_eq!(BlobPointer::decode(&bytes), Ok(pointer));
            assert!((0..bytes.len()).all(|len| BlobPointer::decode(&bytes[..len]).is_err()));
        }
    }
}
