//! Writes and reads a record file as a stream, without a file that can be searched.
//!
//! ```text
//!   append --frame::pack--> io::Write      io::Read --frame, checksums--> record | cut off | damaged
//! ```
//!
//! A stream has no torn tail: it ends after a record, or it is damaged. Nothing is skipped.

use std::io::{Read, Write};
use std::path::Path;

use crate::encoding::Compression;
use crate::types::{Error, Result};

use super::frame::{self, FRAME_BYTES, Frame};
use super::header::{FileHeader, HEADER_BYTES};
use super::scan::WHAT;

/// What errors name instead of a path.
const NAME: &str = "the stream";

/// Writes records to a stream.
pub(crate) struct StreamWriter<W> {
    out: W,
    header: FileHeader,
    size: u64,
    scratch: Vec<u8>,
}

impl<W: Write> StreamWriter<W> {
    /// Writes the file header. `salt` is a random number.
    pub(crate) fn new(out: W, codec: Compression, salt: u32) -> Result<Self> {
        let header = FileHeader { codec, salt };
        let mut writer = StreamWriter { out, header, size: 0, scratch: Vec::new() };
        writer.write(&header.encode())?;
        Ok(writer)
    }

    /// Appends a record of less than 4 GiB.
    pub(crate) fn append(&mut self, record: &[u8]) -> Result<()> {
        let raw_len = u32::try_from(record.len())
            .map_err(|_| Error::Invalid(format!("a record of {} bytes is too long", record.len())))?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let (frame, payload) = frame::pack(record, raw_len, &self.header, &mut scratch)
            .map_err(|e| Error::io("compress a record for", NAME, e))?;
        let head = frame.encode(&self.header, self.size);
        self.write(&head)?;
        self.write(payload)?;
        self.scratch = scratch;
        Ok(())
    }

    /// Bytes written so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Hands everything to the stream.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|e| Error::io("write", NAME, e))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.size += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|e| Error::io("write", NAME, e))
    }
}

/// Reads records from a stream.
pub(crate) struct StreamReader<R> {
    input: R,
    header: FileHeader,
    /// Offset of the next record.
    position: u64,
    /// Offset of the content of the last record.
    content_offset: u64,
    payload: Vec<u8>,
}

impl<R: Read> StreamReader<R> {
    /// Reads the file header.
    pub(crate) fn new(input: R) -> Result<Self> {
        let mut reader = StreamReader {
            input,
            header: FileHeader::default(),
            position: 0,
            content_offset: 0,
            payload: Vec::new(),
        };
        reader.fill(HEADER_BYTES as u64)?;
        reader.header = FileHeader::require(&reader.payload, Path::new(NAME))?;
        reader.position = HEADER_BYTES as u64;
        Ok(reader)
    }

    /// Returns the next record. `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.fill(FRAME_BYTES as u64)? == 0 {
            return Ok(None);
        }
        let at = self.position;
        let decoded = Frame::decode(&self.payload, &self.header, at);
        let frame = decoded.map_err(|e| e.in_file(WHAT, Path::new(NAME), at))?;
        self.content_offset = at + FRAME_BYTES as u64;
        self.fill(frame.stored_len.into())?;
        if !frame.matches(&self.payload) {
            let detail = "the stream is cut off, or the checksum of the record does not match";
            return Err(self.corrupt(self.content_offset, detail));
        }
        self.position += frame.size();
        let record = frame.unpack(&self.header, &self.payload);
        record.map(|record| Some(record.into_owned())).map_err(|e| e.in_file(WHAT, Path::new(NAME), at))
    }

    /// Offset after the last record.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Offset of the content of the last record.
    pub(crate) fn content_offset(&self) -> u64 {
        self.content_offset
    }

    /// Returns the error for damage at an offset.
    pub(crate) fn corrupt(&self, offset: u64, detail: impl Into<String>) -> Error {
        Error::corrupt(WHAT, NAME, offset, detail)
    }

    /// Reads up to `len` bytes into the buffer, and less only at the end. The buffer grows with what arrives.
    fn fill(&mut self, len: u64) -> Result<usize> {
        self.payload.clear();
        let read = self.input.by_ref().take(len).read_to_end(&mut self.payload);
        read.map_err(|e| Error::io("read", NAME, e))
    }
}
