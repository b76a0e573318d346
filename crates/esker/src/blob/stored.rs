//! The stored form of a value: uncompressed, compressed if it shrinks enough, or in chunks if it is long.
//!
//! ```text
//!   up to 256 KiB:  value                                              checksum in the pointer
//!   longer:         chunk | chunk | ... | table: length, checksum each  checksum of the table in the pointer
//! ```
//!
//! All bytes read are verified. Reading a part of a long value reads the chunks that contain
//! it, and the table.
//!
//! In an encrypted file each of these units is followed by its tag. Pointers and tables do not count the
//! tags, and have the checksums of the units before their encryption.
//!
//! A chunk is compressed if samples from three parts of it, and then the chunk itself, shrink by an eighth. A
//! stored chunk is therefore never longer than the chunk.

use super::file::BlobFile;
use super::pointer::{BlobPointer, Form};
use super::set::BlobSource;
use crate::encoding::bytes::{ByteReader, DecodeError};
use crate::encoding::checksum::crc32c;
use crate::encoding::compression::Compression;
use crate::encryption::TAG_BYTES;
use crate::types::{Error, FileId, Result};

/// Bytes of a value in each chunk. The last chunk may be shorter.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Bytes per chunk in the table.
const ROW_BYTES: usize = 8;
/// Bit in the stored length of a compressed chunk.
const COMPRESSED: u32 = 1 << 31;
/// Bytes of the trial compression, taken from the start, the middle and the end, since repetitions may be far
/// apart.
const SAMPLE_BYTES: usize = 2 << 10;
const PLACES: usize = 3;

/// Receives stored values as a sequence of units.
pub(crate) trait Sink {
    /// Appends a unit: a chunk or a table.
    fn take(&mut self, unit: &[u8]) -> Result<()>;
}

/// Stored values in memory, which will be written to a place that is not known yet.
#[derive(Debug, Default)]
pub(crate) struct Units {
    bytes: Vec<u8>,
    /// The ends of the units, if they are to be sealed.
    ends: Option<Vec<usize>>,
}

impl Units {
    /// Creates a collection for values of these bytes.
    pub(crate) fn new(bytes: u64, is_sealed: bool) -> Units {
        Units { bytes: Vec::with_capacity(bytes as usize), ends: is_sealed.then(Vec::new) }
    }

    /// Bytes that they take in a file.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the bytes to write at this offset of a file.
    pub(crate) fn at(self, file: &BlobFile, base: u64) -> Vec<u8> {
        let Some(ends) = self.ends else { return self.bytes };
        let mut sealed = Vec::with_capacity(self.bytes.len());
        let (mut unit, mut start) = (Vec::new(), 0);
        for end in ends {
            let at = base + start as u64;
            unit.clear();
            unit.extend_from_slice(&self.bytes[start..end - TAG_BYTES]);
            file.seal(at, (file.id(), at), &mut unit);
            sealed.extend_from_slice(&unit);
            start = end;
        }
        sealed
    }
}

impl Sink for Units {
    fn take(&mut self, unit: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(unit);
        if let Some(ends) = &mut self.ends {
            self.bytes.extend_from_slice(&[0; TAG_BYTES]);
            ends.push(self.bytes.len());
        }
        Ok(())
    }
}

/// Maximum number of bytes that a value of `len` bytes uses in a file.
pub(crate) fn stored_bytes_max(len: usize, is_sealed: bool) -> u64 {
    let chunks = if len <= CHUNK_BYTES { 0 } else { len.div_ceil(CHUNK_BYTES) };
    let tags = if is_sealed { (chunks + 1) * TAG_BYTES } else { 0 };
    (len + chunks * ROW_BYTES + tags) as u64
}

/// Compresses chunks that shrink enough.
#[derive(Debug, Default)]
pub(crate) struct ChunkCompressor {
    is_on: bool,
    out: Vec<u8>,
    sample: Vec<u8>,
}

impl ChunkCompressor {
    /// Creates a compressor. If `is_on` is false, nothing is compressed.
    pub(crate) fn new(is_on: bool) -> Self {
        ChunkCompressor { is_on, ..ChunkCompressor::default() }
    }

    /// Returns the compressed chunk if it shrinks enough.
    fn compress(&mut self, chunk: &[u8]) -> Option<&[u8]> {
        let mut pays = |bytes: &[u8]| {
            self.out.clear();
            Compression::Lz4.compress(bytes, &mut self.out).is_ok() && self.out.len() < bytes.len() / 8 * 7
        };
        let may_pay = self.is_on && (chunk.len() <= SAMPLE_BYTES || pays(sample(chunk, &mut self.sample)));
        (may_pay && pays(chunk)).then_some(&self.out)
    }
}

/// Collects samples from three parts of a longer chunk.
fn sample<'s>(chunk: &[u8], sample: &'s mut Vec<u8>) -> &'s [u8] {
    let piece = SAMPLE_BYTES / PLACES;
    sample.clear();
    for nth in 0..PLACES {
        let start = (chunk.len() - piece) * nth / (PLACES - 1);
        sample.extend_from_slice(&chunk[start..start + piece]);
    }
    sample
}

/// Writes a value, passed in chunks of [`CHUNK_BYTES`] the last of them possibly shorter.
pub(crate) struct ValueEncoder {
    form: Form,
    len: u64,
    stored: u64,
    crc: u32,
    /// `None` for a value of one chunk.
    table: Option<Vec<u8>>,
}

impl ValueEncoder {
    /// Creates an encoder of a value of `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        let table = (len > CHUNK_BYTES).then(Vec::new);
        ValueEncoder { form: Form::Plain, len: 0, stored: 0, crc: 0, table }
    }

    /// Writes the next chunk.
    pub(crate) fn chunk(
        &mut self,
        chunk: &[u8],
        compressor: &mut ChunkCompressor,
        sink: &mut impl Sink,
    ) -> Result<()> {
        debug_assert!(chunk.len() <= CHUNK_BYTES && self.len.is_multiple_of(CHUNK_BYTES as u64));
        let compressed = compressor.compress(chunk);
        let (bytes, flag) = compressed.map_or((chunk, 0), |bytes| (bytes, COMPRESSED));
        let crc = crc32c(bytes);
        sink.take(bytes)?;
        match &mut self.table {
            Some(table) => {
                table.extend_from_slice(&(bytes.len() as u32 | flag).to_le_bytes());
                table.extend_from_slice(&crc.to_le_bytes());
            }
            None => {
                self.form = if flag == 0 { Form::Plain } else { Form::Lz4 };
                self.crc = crc;
            }
        }
        self.len += chunk.len() as u64;
        self.stored += bytes.len() as u64;
        Ok(())
    }

    /// Finishes the value, whose first byte was written at `offset` of `file`.
    pub(crate) fn finish(mut self, file: FileId, offset: u64, sink: &mut impl Sink) -> Result<BlobPointer> {
        if let Some(table) = &self.table {
            sink.take(table)?;
            self.stored += table.len() as u64;
            (self.form, self.crc) = (Form::Chunks, crc32c(table));
        } else if self.len == 0 {
            self.crc = crc32c(&[]);
        }
        let len = u32::try_from(self.len).expect("values have 32-bit lengths");
        Ok(BlobPointer { form: self.form, file, offset, len, stored: self.stored, crc: self.crc })
    }
}

/// Writes a whole value.
pub(crate) fn put_value(
    value: &[u8],
    (file, offset): (FileId, u64),
    compressor: &mut ChunkCompressor,
    sink: &mut impl Sink,
) -> Result<BlobPointer> {
    let mut encoder = ValueEncoder::new(value.len());
    for chunk in value.chunks(CHUNK_BYTES) {
        encoder.chunk(chunk, compressor, sink)?;
    }
    encoder.finish(file, offset, sink)
}

/// A chunk: its offset from the start of the value, and its entry in the table.
#[derive(Clone, Copy, Debug)]
struct Row {
    start: u64,
    stored: u32,
    is_compressed: bool,
    crc: u32,
    len: usize,
}

/// A stored value, to be read whole or in parts.
#[derive(Clone, Debug)]
pub(crate) struct StoredValue {
    source: BlobSource,
    pointer: BlobPointer,
    /// Offset in the file of the source.
    offset: u64,
    rows: Vec<Row>,
}

impl StoredValue {
    /// Opens the value of a pointer in this source.
    pub(super) fn open(source: BlobSource, pointer: BlobPointer) -> Result<StoredValue> {
        let offset = source.offset(&pointer)?;
        let mut value = StoredValue { source, pointer, offset, rows: Vec::new() };
        value.rows = value.rows_of(&value.table()?)?;
        Ok(value)
    }

    /// Length of the value in bytes.
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.pointer.len)
    }

    fn corrupt(&self, at: u64, detail: &str) -> Error {
        Error::corrupt("blob", self.source.file.path(), self.offset + at, detail)
    }

    /// Number of chunks of a value that has a table.
    fn chunks(&self) -> usize {
        (self.pointer.len as usize).div_ceil(CHUNK_BYTES)
    }

    /// Offset of the table from the start of the value.
    fn table_start(&self) -> Result<u64> {
        let start = self.pointer.stored.checked_sub((self.chunks() * ROW_BYTES) as u64);
        let tags = self.chunks() as u64 * self.source.file.tag_bytes();
        start.and_then(|start| start.checked_add(tags)).ok_or_else(|| {
            self.corrupt(0, "the pointer has fewer stored bytes than the chunk table of the value")
        })
    }

    /// Offset of the value in the file of its source.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads a unit of `len` bytes at `start` from the start of the value.
    fn unit(&self, start: u64, len: u64) -> Result<Vec<u8>> {
        let name = (self.pointer.file, self.pointer.offset.saturating_add(start));
        self.source.file.unit_at(self.offset.saturating_add(start), len, name)
    }

    /// Reads and verifies the table. Empty for a value of one chunk.
    fn table(&self) -> Result<Vec<u8>> {
        if self.pointer.form != Form::Chunks {
            return Ok(Vec::new());
        }
        let start = self.table_start()?;
        let table = self.unit(start, (self.chunks() * ROW_BYTES) as u64)?;
        match crc32c(&table) == self.pointer.crc {
            true => Ok(table),
            false => Err(self.corrupt(start, "the checksum of the chunk table does not match")),
        }
    }

    fn rows_of(&self, table: &[u8]) -> Result<Vec<Row>> {
        let BlobPointer { form, len, stored, crc, .. } = self.pointer;
        if form != Form::Chunks {
            let stored = u32::try_from(stored)
                .map_err(|_| self.corrupt(0, "the length of a chunk exceeds 32 bits"))?;
            return Ok(vec![Row {
                start: 0,
                stored,
                is_compressed: form == Form::Lz4,
                crc,
                len: len as usize,
            }]);
        }
        let (mut rows, mut start, mut left) = (Vec::new(), 0, len as usize);
        let mut reader = ByteReader::new(table);
        while left > 0 {
            let wrong = |e: DecodeError| e.in_file("blob", self.source.file.path(), self.offset);
            let (length, crc) = (reader.u32().map_err(wrong)?, reader.u32().map_err(wrong)?);
            let (stored, is_compressed) = (length & !COMPRESSED, length & COMPRESSED != 0);
            let len = left.min(CHUNK_BYTES);
            rows.push(Row { start, stored, is_compressed, crc, len });
            start += u64::from(stored) + self.source.file.tag_bytes();
            left -= len;
        }
        if start != self.table_start()? {
            return Err(self.corrupt(start, "the chunks of the value do not have the length in their table"));
        }
        Ok(rows)
    }

    /// Reads and verifies the stored bytes of a chunk.
    fn stored_chunk(&self, row: &Row) -> Result<Vec<u8>> {
        let bytes = self.unit(row.start, u64::from(row.stored))?;
        match crc32c(&bytes) == row.crc {
            true => Ok(bytes),
            false => Err(self.corrupt(row.start, "the checksum of the value does not match")),
        }
    }

    fn plain_chunk(&self, row: &Row) -> Result<Vec<u8>> {
        let bytes = self.stored_chunk(row)?;
        if !row.is_compressed {
            return match bytes.len() == row.len {
                true => Ok(bytes),
                false => Err(self.corrupt(row.start, "the length of a chunk does not match the value")),
            };
        }
        let plain = Compression::Lz4.decompress(&bytes, row.len);
        plain.map_err(|e| e.in_file("blob", self.source.file.path(), self.offset + row.start))
    }

    /// Returns the chunk that contains byte `at` of the value, and the offset where it starts.
    pub(crate) fn chunk_at(&self, at: u64) -> Result<(u64, Vec<u8>)> {
        let n = (at / CHUNK_BYTES as u64) as usize;
        match self.rows.get(n) {
            Some(row) => Ok((n as u64 * CHUNK_BYTES as u64, self.plain_chunk(row)?)),
            None => Ok((at, Vec::new())),
        }
    }

    /// Reads the whole value.
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        if let [only] = &self.rows[..] {
            return self.plain_chunk(only);
        }
        let mut value = Vec::with_capacity(self.pointer.len as usize);
        for row in &self.rows {
            value.extend_from_slice(&self.plain_chunk(row)?);
        }
        Ok(value)
    }

    /// Passes the verified units to `take`, decrypted, with their offsets from the start of the value.
    pub(super) fn copy(&self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        for row in &self.rows {
            take(row.start, &self.stored_chunk(row)?)?;
        }
        if self.pointer.form == Form::Chunks {
            take(self.table_start()?, &self.table()?)?;
        }
        Ok(())
    }
}
