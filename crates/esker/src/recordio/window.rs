//! A buffered view of a file for readers that mostly move forward.
//!
//! ```text
//!   File --read_at, a buffer at a time--> Window --at(offset, len)--> &[u8]
//! ```
//!
//! window.1. A window allocates no more than the larger of its buffer and the bytes that the file really has there.
//! window.2. A patient window takes what the system does not give for zeros, in pieces of 4 KiB, and remembers which and why. Without
//!     the first piece, where the file's header is, no record could be told from noise: that is an error all the same.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::File;

use crate::types::{Error, Result};

use super::scan::{STEP_BYTES, Source};

/// The smallest buffer; smaller wishes are raised to it.
pub(super) const BUFFER_BYTES_MIN: usize = 2 * STEP_BYTES as usize;

/// Bytes read at a time of a file that cannot be read as a whole (window.2).
const PIECE_BYTES: u64 = 4 << 10;

/// How a window reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// As much as there is room for.
    Strict,
    /// The same, until something cannot be read.
    Patient,
    /// A piece at a time (window.2).
    InPieces,
}

/// Bytes of a file around the place where its reader stands.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn File>,
    path: PathBuf,
    /// The file's size when it was opened; what is appended later is not seen.
    size: u64,
    /// How much is read at once.
    buffer_bytes: usize,
    buf: Vec<u8>,
    /// Where the buffer's first byte stands in the file, and how many bytes are valid.
    base: u64,
    filled: usize,
    reading: Reading,
    /// What could not be read so far, and why (window.2).
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

    /// The same, passing over what cannot be read (window.2).
    pub(super) fn patient(self) -> Window {
        Window { reading: Reading::Patient, ..self }
    }

    /// Why some of these bytes, which were looked at, could not be read; `None` if all could.
    pub(super) fn unreadable(&self, bytes: Range<u64>) -> Option<&io::Error> {
        let overlaps = |hole: &Range<u64>| hole.start < bytes.end && bytes.start < hole.end;
        self.holes.iter().find(|(hole, _)| overlaps(hole)).map(|(_, error)| error)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes `len` bytes at `offset` the front of the buffer.
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
            // One huge record must not keep its memory for the rest of the file.
            self.buf.truncate(want.max(self.filled));
            self.buf.shrink_to_fit();
        }
        while self.filled < len {
            let at = offset + self.filled as u64;
            let end = match self.reading {
                Reading::Strict | Reading::Patient => self.buf.len(),
                Reading::InPieces => {
                    self.buf.len().min(self.filled + (PIECE_BYTES - at % PIECE_BYTES) as usize)
                }
            };
            match self.file.read_at(&mut self.buf[self.filled..end], at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.reading == Reading::Patient => self.reading = Reading::InPieces,
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
            .map_err(|_| Error::Invalid(format!("{len} bytes do not fit this machine's memory")))?;
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
