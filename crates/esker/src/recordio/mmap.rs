//! Reads records at given offsets from a memory mapping, without copying uncompressed records.
//!
//! ```text
//!   offset --> mapping --scan::check--> Cow::Borrowed | decompressed: Cow::Owned
//! ```
//!
//! mmap.1. The file is neither written nor truncated while a reader exists. The opener guarantees this.
#![expect(unsafe_code, reason = "mapping a file")]

use std::borrow::Cow;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use esker_env::{Env, OpenOptions, read_range};

use crate::encryption::Seal;
use crate::types::{Error, Result};

use super::RecordAt;
use super::frame::{FRAME_BYTES, Frame};
use super::header::{FileHeader, HEADER_BYTES};
use super::scan::{self, Source, WHAT};

/// A reader of single records from a memory mapping. Share it between threads by reference or in an `Arc`.
///
/// [`SeekableReader`](super::SeekableReader) does the same with file reads.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("log");
/// use std::borrow::Cow;
/// use esker::recordio::{MmapReader, Writer};
///
/// let mut writer = Writer::create(&path)?;
/// let one = writer.append(b"one")?;
/// writer.finish()?;
///
/// // SAFETY: only this program uses the directory, and it no longer writes the file.
/// let reader = unsafe { MmapReader::open(&path)? };
/// assert!(matches!(reader.read_at(one)?, Cow::Borrowed(b"one")));
/// # Ok(())
/// # }
/// ```
pub struct MmapReader {
    map: Box<dyn Deref<Target = [u8]> + Send + Sync>,
    path: PathBuf,
    header: FileHeader,
    seal: Seal,
}

impl MmapReader {
    /// Maps a file of the operating system. Returns [`Error::Corrupt`] if the file has no header, as after a
    /// crash before the first sync. ([`Reader`](super::Reader) treats such a file as empty.)
    ///
    /// # Safety
    /// The file must not be written or truncated while the reader exists, by this process or another. The
    /// mapping would change although Rust assumes it constant, and the operating system kills a process that
    /// reads a mapping past the end of its file.
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<MmapReader> {
        // SAFETY: mmap.1 is guaranteed by the caller.
        unsafe { Self::open_in(&Env::real(), path) }
    }

    /// Maps a file of the given environment. Reads the whole file if it is not a file of the operating
    /// system.
    ///
    /// # Safety
    /// See [`open`](Self::open).
    pub unsafe fn open_in(env: &Env, path: impl AsRef<Path>) -> Result<MmapReader> {
        let path = path.as_ref();
        let file = env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let len = file.len().map_err(|e| Error::io("measure", path, e))?;
        let len = usize::try_from(len)
            .map_err(|_| Error::io("map", path, std::io::ErrorKind::OutOfMemory.into()))?;
        let map: Box<dyn Deref<Target = [u8]> + Send + Sync> = match file.as_std().filter(|_| len > 0) {
            Some(file) => {
                // SAFETY: mmap.1. The mapping is read-only.
                let map = unsafe { memmap2::Mmap::map(file) };
                Box::new(map.map_err(|e| Error::io("map", path, e))?)
            }
            None => Box::new(read_range(&*file, 0, len).map_err(|e| Error::io("read", path, e))?),
        };
        let header = FileHeader::require((&**map).at(0, HEADER_BYTES as u64)?, path)?;
        let seal = header.find_seal(env, path, &mut &**map)?;
        Ok(MmapReader { map, path: path.to_path_buf(), header, seal })
    }

    /// Returns the record at an offset returned by [`Writer::append`](super::Writer::append). Returns
    /// [`Error::Corrupt`] if no valid record starts there.
    pub fn read_at(&self, offset: u64) -> Result<Cow<'_, [u8]>> {
        let frame = scan::require(&mut &**self.map, &self.header, &self.path, offset)?;
        Ok(self.load(offset, &frame)?.bytes)
    }

    /// Returns the first valid record that starts at or after `offset`, skipping damage. `None` if there is
    /// none.
    pub fn seek_next(&self, offset: u64) -> Result<Option<RecordAt<Cow<'_, [u8]>>>> {
        let mut from = offset;
        while let Some((at, frame)) = scan::find_next(&mut &**self.map, &self.header, from)? {
            match self.load(at, &frame) {
                // The content was damaged before its checksum was computed.
                Err(Error::Corrupt { .. }) => from = at + frame.size(),
                loaded => return loaded.map(Some),
            }
        }
        Ok(None)
    }

    /// Returns a record that was verified before.
    fn load(&self, offset: u64, frame: &Frame) -> Result<RecordAt<Cow<'_, [u8]>>> {
        let end = offset + frame.size();
        let payload = &self.map[offset as usize + FRAME_BYTES..end as usize];
        let bytes = frame.unpack(&self.header, &self.seal, offset, payload);
        let bytes = bytes.map_err(|e| e.in_file(WHAT, &self.path, offset))?;
        Ok(RecordAt { offset, end, bytes })
    }
}

impl std::fmt::Debug for MmapReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MmapReader({}, {} bytes)", self.path.display(), self.map.len())
    }
}
