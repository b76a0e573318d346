//! Where a value lies: what stands beside the key in its place.
//!
//! Bytes: docs/formats/blob.md, "Pointer"

use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::types::FileId;

/// How the bytes of a value are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Plain = 0,
    /// As one LZ4 block.
    Lz4 = 1,
    /// In chunks, with a table of them behind the last (stored.rs).
    Chunks = 2,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlobPointer {
    /// How it is stored.
    pub form: Form,
    /// The number of the file that it was written to (blob.1).
    pub file: FileId,
    /// Where it began there.
    pub offset: u64,
    /// Bytes of the value.
    pub len: u32,
    /// Bytes that it takes in the file.
    pub stored: u64,
    /// The CRC-32C of these; of chunks, that of their table.
    pub crc: u32,
}

impl BlobPointer {
    /// Appends it.
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
                return Err(reader.error(format!("form {other} of a blob, which this build does not have")));
            }
        };
        let (file, offset, len) = (FileId::new(reader.varint()?), reader.varint()?, reader.varint()?);
        let len = u32::try_from(len).map_err(|_| reader.error("a blob of more than 32 bits"))?;
        let stored = if form == Form::Plain { u64::from(len) } else { reader.varint()? };
        let crc = reader.u32()?;
        reader.finish()?;
        Ok(BlobPointer { form, file, offset, len, stored, crc })
    }
}

#[cfg(test)]
impl BlobPointer {
    /// To a value that is stored as it is.
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
