//! Writes and reads a record file as a stream, without a file that can be searched.
//!
//! ```text
//!   append --frame::pack--> io::Write      io::Read --frame, checksums--> record | cut off | damaged
//! ```
//!
//! A stream has no torn tail: it ends after a record, or it is damaged. Nothing is skipped.

use std::io::{Read, Write};
use std::path::Path;

use esker_env::Env;

use crate::encoding::Compression;
use crate::encryption::{self, FileKind, Seal};
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
    seal: Seal,
    size: u64,
    scratch: Vec<u8>,
}

impl<W: Write> StreamWriter<W> {
    /// Writes the file header. The environment has the keys, if the stream is to be encrypted.
    pub(crate) fn new(out: W, codec: Compression, env: &Env) -> Result<Self> {
        let seal = Seal::create(env, FileKind::Records)?;
        let own_keys = encryption::own_keys(env)?;
        let salt = env.random.next_u64() as u32;
        let (is_sealed, has_keys) = (seal.is_on(), own_keys.is_some());
        let header = FileHeader { codec, salt, is_sealed, has_keys };
        let mut writer = StreamWriter { out, header, seal, size: 0, scratch: Vec::new() };
        let bytes = header.encode();
        writer.write(&[&bytes[..], &writer.seal.header(&bytes), &own_keys.unwrap_or_default()].concat())?;
        Ok(writer)
    }

    /// Appends a record of less than 4 GiB.
    pub(crate) fn append(&mut self, record: &[u8]) -> Result<()> {
        let raw_len = u32::try_from(record.len())
            .map_err(|_| Error::Invalid(format!("a record of {} bytes is too long", record.len())))?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let (frame, payload) =
            frame::pack(record, raw_len, (&self.header, &self.seal), self.size, &mut scratch)
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
    seal: Seal,
    /// Offset of the next record.
    position: u64,
    /// Offset of the content of the last record.
    content_offset: u64,
    payload: Vec<u8>,
}

impl<R: Read> StreamReader<R> {
    /// Reads the file header. The environment has the keys of an encrypted stream.
    pub(crate) fn new(input: R, env: &Env) -> Result<Self> {
        let mut reader = StreamReader {
            input,
            header: FileHeader::default(),
            seal: Seal::default(),
            position: 0,
            content_offset: 0,
            payload: Vec::new(),
        };
        reader.fill(HEADER_BYTES as u64)?;
        let (header, mut head) = (FileHeader::require(&reader.payload, Path::new(NAME))?, reader.payload);
        reader.payload = Vec::new();
        reader.fill(header.records_at() - HEADER_BYTES as u64)?;
        head.extend_from_slice(&reader.payload);
        if (head.len() as u64) < header.records_at() {
            return Err(reader.corrupt(head.len() as u64, "the stream is cut off"));
        }
        reader.seal = header.find_seal(env, Path::new(NAME), &mut &head[..])?;
        reader.header = header;
        reader.position = header.records_at();
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
        let record = frame.unpack(&self.header, &self.seal, at, &self.payload);
        record.map(|record| Some(record.into_owned())).map_err(|e| e.in_file(WHAT, Path::new(NAME), at))
    }

    /// Returns whether the records are encrypted.
    pub(crate) fn is_sealed(&self) -> bool {
        self.header.is_sealed
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
