//! A buffered view of a file for readers that mostly move forward.
//!
//! ```text
//!   File --read_at, a buffer at a time--> Window --at(offset, len)--> &[u8]
//! ```
//!
//! A window allocates no more than the larger of its buffer and the bytes that the file has at the requested
//! offset.
//!
//! A salvaging window reads unreadable parts as zeros, in pieces of 4 KiB, and records which parts and why.
//! The first piece is excepted: it holds the file header, without which no record can be recognized.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::File;

use crate::types::{Error, Result};

use super::scan::{STEP_BYTES, Source};

/// Minimum buffer size. Smaller requests are raised to it.
pub(super) const BUFFER_BYTES_MIN: usize = 2 * STEP_BYTES as usize;

/// Bytes read at a time from a file that cannot be read as a whole.
const PIECE_BYTES: u64 = 4 << 10;

/// How a window reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// As much as the buffer holds.
    Strict,
    /// The same, until a read fails.
    UntilError,
    /// One piece at a time.
    InPieces,
}

/// Bytes of a file around the position of its reader.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn File>,
    path: PathBuf,
    /// Size of the file when it was opened. Data appended later is not seen.
    size: u64,
    /// Bytes read at a time.
    buffer_bytes: usize,
    buf: Vec<u8>,
    /// File offset of the first byte of the buffer, and number of valid bytes.
    base: u64,
    filled: usize,
    reading: Reading,
    /// Unreadable parts found so far, with the error.
    holes: Vec<(Range<u64>, io::Error)>,
}

impl Window {
    pub(super) fn new(file: Arc<dyn File>, path: &Path, buffer_bytes: usize) -> Result<Window> {
        let size = file.len().map_err(|e| Error::io("read the size of", path, e))?;
        Ok(Self::with_size(file, path, size, buffer_bytes))
    }

    pub(super) fn with_size(file: Arc<dyn File>, path: &Path, size: u64, buffer_bytes: usize) -> Window {
        let buffer_bytes = buffer_bytes.max(BUFFER_BYTES_MIN);
        Window {
            file,
            path: path.to_path_buf(),
            size,
            buffer_bytes,
            buf: Vec::new(),
            base: 0,
            filled: 0,
            reading: Reading::Strict,
            holes: Vec::new(),
        }
    }

    /// Reads unreadable parts as zeros from now on.
    pub(super) fn salvaging(self) -> Window {
        Window { reading: Reading::UntilError, ..self }
    }

    /// Returns why some of these bytes could not be read. `None` if all could, as far as they were requested.
    pub(super) fn unreadable(&self, bytes: Range<u64>) -> Option<&io::Error> {
        let overlaps = |hole: &Range<u64>| hole.start < bytes.end && bytes.start < hole.end;
        self.holes.iter().find(|(hole, _)| overlaps(hole)).map(|(_, error)| error)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Refills the buffer so that it starts with `len` bytes at `offset`.
    fn fill(&mut self, offset: u64, len: usize) -> io::Result<()> {
        let keep = match offset.checked_sub(self.base) {
            Some(skip) if skip < self.filled as u64 => skip as usize..self.filled,
            _ => 0..0,
        };
        let left = self.size - offset;
        let want = len.max(usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer_bytes));
        self.filled = keep.len();
        self.buf.copy_within(keep, 0);
        self.base = offset;
        if want > self.buf.len() {
            self.buf.resize(want, 0);
        } else if self.buf.len() > self.buffer_bytes && want <= self.buffer_bytes {
            // Do not keep the memory of one huge record for the rest of the file.
            self.buf.truncate(want.max(self.filled));
            self.buf.shrink_to_fit();
        }
        while self.filled < len {
            let at = offset + self.filled as u64;
            let end = match self.reading {
                Reading::Strict | Reading::UntilError => self.buf.len(),
                Reading::InPieces => {
                    self.buf.len().min(self.filled + (PIECE_BYTES - at % PIECE_BYTES) as usize)
                }
            };
            match self.file.read_at(&mut self.buf[self.filled..end], at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.reading == Reading::UntilError => self.reading = Reading::InPieces,
                Err(e) if self.reading == Reading::InPieces && at > 0 => {
                    self.buf[self.filled..end].fill(0);
                    self.holes.push((at..at + (end - self.filled) as u64, e));
                    self.filled = end;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Source for Window {
    fn size(&self) -> u64 {
        self.size
    }

    fn at(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        let len = len.min(self.size.saturating_sub(offset));
        let len = usize::try_from(len)
            .map_err(|_| Error::Invalid(format!("{len} bytes exceed the address space of this machine")))?;
        if len == 0 {
            return Ok(&[]);
        }
        let inside = offset >= self.base && offset + len as u64 <= self.base + self.filled as u64;
        if !inside {
            self.fill(offset, len).map_err(|e| Error::read(&self.path, offset, len, &e))?;
        }
        let start = (offset - self.base) as usize;
        Ok(&self.buf[start..start + len])
    }
}
