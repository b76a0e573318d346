//! What a table references in blob files.
//!
//! references.1. The live bytes of a blob file are the sum over the tables of the version: there is no other counter, which could differ.

use std::collections::BTreeMap;

use super::BlobPointer;
use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::types::FileId;

/// Per file, under the number that pointers name: values, and their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlobReferences(BTreeMap<FileId, (u64, u64)>);

impl BlobReferences {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes one more.
    pub(crate) fn add(&mut self, pointer: &BlobPointer) {
        let (values, bytes) = self.0.entry(pointer.file).or_default();
        *values += 1;
        *bytes += pointer.stored;
    }

    /// All of them: file, values, bytes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FileId, u64, u64)> {
        self.0.iter().map(|(&file, &(values, bytes))| (file, values, bytes))
    }

    /// Whether it references this file.
    pub(crate) fn has(&self, file: FileId) -> bool {
        self.0.contains_key(&file)
    }

    /// Appends them.
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
                return Err(reader.error("blob files that do not ascend"));
            }
            all.insert(file, of_file);
        }
        Ok(BlobReferences(all))
    }
}
