//! Reads records at given offsets (from an index, for example) with file reads.
//!
//! ```text
//!   offset --File::read_at--> scan::check --> record    any offset --scan::find_next--> first record there
//! ```
//!
//! Calls share no state, so one reader serves any number of threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, File, OpenOptions};

use crate::encryption::Seal;
use crate::types::{Error, Result};

use super::RecordAt;
use super::frame::Frame;
use super::header::{FileHeader, HEADER_BYTES};
use super::scan::{self, Source, WHAT};
use super::window::{BUFFER_BYTES_MIN, Window};

/// A reader of single records. Share it between threads by reference or in an `Arc`.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("log");
/// use esker::recordio::{SeekableReader, Writer};
///
/// let mut writer = Writer::create(&path)?;
/// writer.append(b"one")?;
/// let two = writer.append(b"two")?;
/// writer.finish()?;
///
/// let reader = SeekableReader::open(&path)?;
/// assert_eq!(reader.read_at(two)?, b"two");
/// let found = reader.seek_next(two - 1)?.expect("a record follows");
/// assert_eq!((found.offset, &found.bytes[..]), (two, &b"two"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SeekableReader {
    file: Arc<dyn File>,
    path: PathBuf,
    size: u64,
    header: FileHeader,
    seal: Seal,
}

impl SeekableReader {
    /// Opens a file of the operating system. Returns [`Error::Corrupt`] if the file has no header, as after a
    /// crash before the first sync. ([`Reader`](super::Reader) treats such a file as empty.)
    pub fn open(path: impl AsRef<Path>) -> Result<SeekableReader> {
        Self::open_in(&Env::real(), path)
    }

    /// Opens a file of the given environment.
    pub fn open_in(env: &Env, path: impl AsRef<Path>) -> Result<SeekableReader> {
        let path = path.as_ref();
        let file = env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let mut window = Window::new(file.clone(), path, BUFFER_BYTES_MIN)?;
        let header = FileHeader::require(window.at(0, HEADER_BYTES as u64)?, path)?;
        let seal = header.find_seal(env, path, &mut window)?;
        Ok(SeekableReader { file, path: path.to_path_buf(), size: window.size(), header, seal })
    }

    /// Returns the record at an offset returned by [`Writer::append`](super::Writer::append). Returns
    /// [`Error::Corrupt`] if no valid record starts there.
    pub fn read_at(&self, offset: u64) -> Result<Vec<u8>> {
        let mut window = self.window();
        let frame = scan::require(&mut window, &self.header, &self.path, offset)?;
        Ok(self.load(&mut window, offset, &frame)?.bytes)
    }

    /// Returns the first valid record that starts at or after `offset`, skipping damage. `None` if there is
    /// none.
    pub fn seek_next(&self, offset: u64) -> Result<Option<RecordAt<Vec<u8>>>> {
        let (mut window, mut from) = (self.window(), offset);
        while let Some((at, frame)) = scan::find_next(&mut window, &self.header, from)? {
            match self.load(&mut window, at, &frame) {
                // The content was damaged before its checksum was computed.
                Err(Error::Corrupt { .. }) => from = at + frame.size(),
                loaded => return loaded.map(Some),
            }
        }
        Ok(None)
    }

    fn load(&self, window: &mut Window, offset: u64, frame: &Frame) -> Result<RecordAt<Vec<u8>>> {
        let payload = scan::payload(window, offset, frame)?;
        let record = frame.unpack(&self.header, &self.seal, offset, payload);
        let record = record.map_err(|e| e.in_file(WHAT, &self.path, offset))?;
        Ok(RecordAt { offset, end: offset + frame.size(), bytes: record.into_owned() })
    }

    fn window(&self) -> Window {
        Window::with_size(self.file.clone(), &self.path, self.size, BUFFER_BYTES_MIN)
    }
}
