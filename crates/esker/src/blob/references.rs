//! Counts the references of a table to blob files.
//!
//! The live bytes of a blob file are the sum over the tables of a version. They are not counted
//! anywhere else, so counts cannot disagree.

use std::collections::BTreeMap;

use super::BlobPointer;
use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::types::FileId;

/// Number of values and their bytes, per file number named by pointers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlobReferences(BTreeMap<FileId, (u64, u64)>);

impl BlobReferences {
    /// Returns whether there are no references.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a reference.
    pub(crate) fn add(&mut self, pointer: &BlobPointer) {
        let (values, bytes) = self.0.entry(pointer.file).or_default();
        *values += 1;
        *bytes += pointer.stored;
    }

    /// Iterates over the files: number, values, bytes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FileId, u64, u64)> {
        self.0.iter().map(|(&file, &(values, bytes))| (file, values, bytes))
    }

    /// Bytes of all values.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.values().map(|(_, bytes)| bytes).sum()
    }

    /// Returns whether the file is referenced.
    pub(crate) fn has(&self, file: FileId) -> bool {
        self.0.contains_key(&file)
    }

    /// Appends the encoded references.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        for (file, values, bytes) in self.iter() {
            [file.get(), values, bytes].into_iter().for_each(|n| put_varint(out, n));
        }
    }

    /// The inverse of [`encode`](Self::encode).
    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Decoded<Self> {
        let mut all = BTreeMap::new();
        for _ in 0..reader.varint()? {
            let (file, of_file) = (FileId::new(reader.varint()?), (reader.varint()?, reader.varint()?));
            if all.last_key_value().is_some_and(|(last, _)| *last >= file) {
                return Err(reader.error("the blob files are not in ascending order"));
            }
            all.insert(file, of_file);
        }
        Ok(BlobReferences(all))
    }
}
