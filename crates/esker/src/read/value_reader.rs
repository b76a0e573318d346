//! Reads a value in parts. Memory use is bounded by the size of a chunk.
//!
//! ```text
//!   Stored::Inline --> completely in memory     Stored::Blob --> chunk by chunk, verified (blob/stored.rs)
//! ```

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use super::fold::{FoldContext, Folded};
use super::point::PointQuery;
use crate::blob::{BlobSet, StoredValue};
use crate::sstable::Found;
use crate::types::stored::Stored;
use crate::types::{Error, Result, Value};

/// Reads a value in parts, with [`Read`] and [`Seek`]. Created by [`Reads::reader`](crate::Reads::reader).
/// The value does not change while it is read, and takes about 256 KiB of memory.
///
/// ```
/// # use std::io::{Read, Seek, SeekFrom};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = esker::Db::in_memory()?;
/// let films = db.keyspace("films")?;
/// films.put_from("heat", &mut std::io::repeat(7), 5_000_000)?;
/// let mut film = films.reader("heat")?.ok_or("no such film")?;
/// film.seek(SeekFrom::End(-10))?;
/// let mut end = Vec::new();
/// film.read_to_end(&mut end)?;
/// assert_eq!(end, [7; 10]);
/// assert_eq!(film.read_range(1_000_000..1_000_003)?, [7; 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ValueReader {
    value: Whole,
    at: u64,
    /// The chunk read last, and its offset.
    chunk: (u64, Vec<u8>),
}

#[derive(Debug)]
enum Whole {
    Here(Value),
    Blob(StoredValue),
}

impl ValueReader {
    fn new(value: Whole) -> Self {
        ValueReader { value, at: 0, chunk: (0, Vec::new()) }
    }

    /// Length of the value in bytes.
    pub fn len(&self) -> u64 {
        match &self.value {
            Whole::Here(value) => value.len() as u64,
            Whole::Blob(blob) => blob.len(),
        }
    }

    /// Returns whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads a range, truncated at the end of the value.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) if the bytes are damaged, [`Io`](crate::Error::Io) if they cannot
    /// be read.
    pub fn read_range(&mut self, range: Range<u64>) -> Result<Vec<u8>> {
        let end = range.end.min(self.len());
        let mut at = range.start.min(end);
        let mut bytes = Vec::with_capacity((end - at) as usize);
        while at < end {
            let more = self.bytes_from(at)?;
            let more = &more[..more.len().min((end - at) as usize)];
            bytes.extend_from_slice(more);
            at += more.len() as u64;
        }
        Ok(bytes)
    }

    /// Returns some bytes from an offset on. Empty past the end.
    fn bytes_from(&mut self, at: u64) -> Result<&[u8]> {
        if at >= self.len() {
            return Ok(&[]);
        }
        match &self.value {
            Whole::Here(value) => Ok(&value[at as usize..]),
            Whole::Blob(blob) => {
                let (start, bytes) = &self.chunk;
                if !(*start..start + bytes.len() as u64).contains(&at) {
                    self.chunk = blob.chunk_at(at)?;
                }
                Ok(&self.chunk.1[(at - self.chunk.0) as usize..])
            }
        }
    }
}

fn io_error(error: Error) -> io::Error {
    let kind = match &error {
        Error::Corrupt { .. } => io::ErrorKind::InvalidData,
        Error::Io { source, .. } => source.kind(),
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl Read for ValueReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self.bytes_from(self.at).map_err(io_error)?;
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "seek before the start of the value");
        self.at = at.ok_or_else(before)?;
        Ok(self.at)
    }
}

/// A reader of the value.
pub(crate) struct ReaderOf;

impl PointQuery for ReaderOf {
    type Out = ValueReader;
    const EXPECTS_NONE: bool = false;
    fn of_memtable(stored: Stored<&[u8]>, blobs: &BlobSet) -> Result<ValueReader> {
        let value = match stored {
            Stored::Inline(bytes) => Whole::Here(Value::copy_of(bytes)),
            Stored::Blob(pointer) => Whole::Blob(blobs.open(pointer)?),
        };
        Ok(ValueReader::new(value))
    }
    fn of_table(found: Found<'_>, blobs: &BlobSet) -> Result<ValueReader> {
        let value = match found.share() {
            Stored::Inline(value) => Whole::Here(value),
            Stored::Blob(pointer) => Whole::Blob(blobs.open(&pointer)?),
        };
        Ok(ValueReader::new(value))
    }
    fn of_folded(folded: &Folded, key: &[u8], fold_context: FoldContext<'_>) -> Result<ValueReader> {
        Ok(ValueReader::new(Whole::Here(folded.value(key, fold_context)?)))
    }
}
