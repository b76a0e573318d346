//! The blob files of a version: finds the value of a pointer.
//!
//! blob_set.1. A set contains every file that a table of its version references. A memtable may be newer than
//!     its view and reference a newer file. Such files are in the list of recent files, and memtables keep
//!     them open.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use esker_env::{Env, OpenOptions};
use parking_lot::RwLock;

use super::stored::StoredValue;
use super::{BlobCache, BlobFile, BlobPointer, Moves, blob_path};
use crate::types::{Error, FileId, Result, Value};

/// Maximum number of bytes of a value that are read ahead.
const READ_AHEAD_BYTES_MAX: u64 = 256 << 10;

/// The file that holds the values of one file number in pointers (blob.1).
#[derive(Clone, Debug)]
pub(crate) struct BlobSource {
    /// The file.
    pub file: Arc<BlobFile>,
    /// The map of moved values, if the values were written to another file.
    pub moves: Option<Arc<Moves>>,
}

impl BlobSource {
    /// Opens `file` as the source of pointers that name the file number `named`.
    pub(crate) fn new(named: FileId, file: Arc<BlobFile>) -> Result<BlobSource> {
        let moves = if file.id() == named { None } else { Some(Arc::new(file.moves()?)) };
        Ok(BlobSource { file, moves })
    }

    /// Bytes of values, live or not, without what a collection would write again: the header, the map, and
    /// the tags of encrypted values, as far as the map tells how many there are.
    pub(crate) fn value_bytes(&self) -> u64 {
        let again = |moves: &Arc<Moves>| moves.bytes() + moves.len() * self.file.tag_bytes();
        let again = self.moves.as_ref().map_or(0, again);
        self.file.used().saturating_sub(self.file.start() + again)
    }

    /// Returns the offset of a value in the file.
    pub(super) fn offset(&self, pointer: &BlobPointer) -> Result<u64> {
        match &self.moves {
            None => Ok(pointer.offset),
            Some(moves) => moves.find(pointer.offset).ok_or_else(|| {
                let detail = format!(
                    "the value from offset {} of file {} is not in the map",
                    pointer.offset, pointer.file
                );
                Error::corrupt("blob map", self.file.path(), 0, detail)
            }),
        }
    }

    /// Opens a value for reading, whole or in parts. Reads are verified (blob.2).
    pub(crate) fn open(&self, pointer: &BlobPointer) -> Result<StoredValue> {
        StoredValue::open(self.clone(), *pointer)
    }

    /// Verifies a value.
    pub(crate) fn check(&self, pointer: &BlobPointer) -> Result<()> {
        self.open(pointer)?.copy(|_, _| Ok(()))
    }

    /// Appends the stored form of a value to another file. Returns its offset there.
    pub(crate) fn copy(&self, pointer: &BlobPointer, to: &BlobFile) -> Result<u64> {
        let begins = to.len();
        let mut sealed = Vec::new();
        self.open(pointer)?.copy(|start, unit| {
            sealed.clear();
            sealed.extend_from_slice(unit);
            to.seal(to.len(), (pointer.file, pointer.offset + start), &mut sealed);
            to.append(&sealed).map(drop)
        })?;
        Ok(begins)
    }

    /// Makes values durable that may have been read from the page cache only. The same bytes are written
    /// again at the same offset, because the system may consider the pages of a failed sync clean (recovery.4
    /// of wal/recovery.rs).
    pub(crate) fn store_again(&self, env: &Env, pointers: &[BlobPointer]) -> Result<()> {
        let path = self.file.path();
        let io = |e| Error::io("make durable", path, e);
        let file = env.fs.open(path, OpenOptions::write()).map_err(io)?;
        for pointer in pointers {
            let value = self.open(pointer)?;
            value.copy(|start, unit| {
                let at = value.offset() + start;
                let bytes = self.file.bytes_at(at, unit.len() as u64 + self.file.tag_bytes())?;
                file.write_all_at(&bytes, at).map_err(io)
            })?;
        }
        file.sync_data().map_err(io)
    }
}

/// Files that memtables may reference although no version contains them yet.
type Recent = RwLock<Vec<(FileId, Weak<BlobFile>)>>;

/// The blob files of a version, by the file numbers in pointers.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlobSet(Option<Arc<Files>>);

#[derive(Clone, Debug, Default)]
struct Files {
    /// The directory, for errors.
    dir: PathBuf,
    named: BTreeMap<FileId, BlobSource>,
    recent: Arc<Recent>,
    /// `None` disables caching.
    cache: Option<Arc<BlobCache>>,
}

impl BlobSet {
    /// Creates a set of files in a directory.
    pub(crate) fn new(dir: &Path, named: BTreeMap<FileId, BlobSource>) -> Self {
        BlobSet(Some(Arc::new(Files { dir: dir.to_owned(), named, recent: Arc::default(), cache: None })))
    }

    /// Returns this set with a cache.
    pub(crate) fn cached_in(self, dir: &Path, cache: Arc<BlobCache>) -> Self {
        let files = self.0.as_deref().cloned().unwrap_or_default();
        BlobSet(Some(Arc::new(Files { dir: dir.to_owned(), cache: Some(cache), ..files })))
    }

    fn dir(&self) -> &Path {
        self.0.as_ref().map_or(Path::new(""), |files| &files.dir)
    }

    fn decode(&self, pointer: &[u8]) -> Result<BlobPointer> {
        BlobPointer::decode(pointer).map_err(|e| e.in_file("blob pointer", self.dir(), 0))
    }

    /// Returns whether the set has no files.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|files| files.named.is_empty())
    }

    /// Iterates over the files.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FileId, &BlobSource)> {
        self.0.iter().flat_map(|files| &files.named).map(|(&named, source)| (named, source))
    }

    /// Returns this set without the `removed` files and with the `added` ones.
    pub(crate) fn changed(&self, removed: &[FileId], added: Vec<(FileId, BlobSource)>) -> Self {
        if removed.is_empty() && added.is_empty() {
            return self.clone();
        }
        let mut files = self.0.as_deref().cloned().unwrap_or_default();
        removed.iter().for_each(|named| drop(files.named.remove(named)));
        files.named.extend(added);
        BlobSet(Some(Arc::new(files)))
    }

    /// Adds a file that commits write to from now on (blob_set.1).
    pub(crate) fn note_recent(&self, file: &Arc<BlobFile>) {
        let Some(files) = &self.0 else { return };
        let mut recent = files.recent.write();
        recent.retain(|(_, file)| file.strong_count() > 0);
        recent.push((file.id(), Arc::downgrade(file)));
    }

    /// Returns the source of the values of a file number.
    pub(crate) fn find(&self, named: FileId) -> Option<BlobSource> {
        let files = self.0.as_ref()?;
        if let Some(source) = files.named.get(&named) {
            return Some(source.clone());
        }
        let recent = files.recent.read();
        let file = recent.iter().find(|(id, _)| *id == named)?.1.upgrade()?;
        Some(BlobSource { file, moves: None })
    }

    /// Reads the value of a pointer.
    #[cold]
    pub(crate) fn read(&self, pointer: &[u8]) -> Result<Value> {
        self.read_and(pointer, BlobCache::was_read)
    }

    /// Reads the value of a pointer for a scan, which should not displace cached values.
    #[cold]
    pub(crate) fn read_in_passing(&self, pointer: &[u8]) -> Result<Value> {
        self.read_and(pointer, BlobCache::was_passed)
    }

    fn read_and(&self, pointer: &[u8], note: fn(&BlobCache, &BlobPointer, &Value)) -> Result<Value> {
        let Some(cache) = self.cache() else {
            return self.open(pointer)?.read().map(Value::from);
        };
        let pointer = self.decode(pointer)?;
        if let Some(value) = cache.get(&pointer) {
            return Ok(value);
        }
        let value = Value::from(self.open_decoded(pointer)?.read()?);
        note(cache, &pointer, &value);
        Ok(value)
    }

    fn cache(&self) -> Option<&Arc<BlobCache>> {
        self.0.as_ref()?.cache.as_ref()
    }

    /// Prefetches what finds the value of a pointer in the cache.
    pub(crate) fn prefetch_slot(&self, pointer: &[u8]) {
        if let (Some(cache), Ok(pointer)) = (self.cache(), BlobPointer::decode(pointer)) {
            cache.prefetch_slot(&pointer);
        }
    }

    /// Prefetches the value of a pointer into the processor's cache, or `from_file` into the page cache.
    /// Returns whether it is cached.
    pub(crate) fn prefetch(&self, pointer: &[u8], from_file: bool) -> bool {
        let Ok(pointer) = BlobPointer::decode(pointer) else { return false };
        if self.cache().is_some_and(|cache| cache.prefetch(&pointer)) {
            return true;
        }
        if from_file
            && let Some(source) = self.find(pointer.file)
            && let Ok(offset) = source.offset(&pointer)
        {
            source.file.will_need(offset, pointer.stored.min(READ_AHEAD_BYTES_MAX));
        }
        false
    }

    /// Opens the value of a pointer for reading in parts.
    pub(crate) fn open(&self, pointer: &[u8]) -> Result<StoredValue> {
        self.open_decoded(self.decode(pointer)?)
    }

    fn open_decoded(&self, pointer: BlobPointer) -> Result<StoredValue> {
        match self.find(pointer.file) {
            Some(source) => source.open(&pointer),
            None => {
                let detail =
                    "a key points to it, but it does not exist: restore a backup or run `esker repair`";
                Err(Error::corrupt("blob file", blob_path(self.dir(), pointer.file), pointer.offset, detail))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::pointer::Form;

    #[test]
    fn damage_is_reported_with_a_file_or_the_directory() {
        let set = BlobSet::new(Path::new("db"), BTreeMap::new());
        let pointer =
            BlobPointer { form: Form::Plain, file: FileId::new(7), offset: 32, len: 1, stored: 1, crc: 0 };
        let mut encoded = Vec::new();
        pointer.encode(&mut encoded);
        for (pointer, expected) in [(&encoded[..], "db/000007.blob"), (b"\xff", "db")] {
            let Err(Error::Corrupt { path, .. }) = set.read(pointer) else { panic!("nothing is there") };
            assert_eq!(path, Path::new(expected));
        }
    }
}
