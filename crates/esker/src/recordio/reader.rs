//! Reads a record file sequentially.
//!
//! ```text
//!   File --> Window --> scan::check --> payload --decompress--> &[u8] lent to the caller
//!                              `-damaged--> find_next: valid record after it?  yes: corrupt (or skipped)
//!                                                                              no:  torn tail, end of file
//! ```
//!
//! A record is returned only if its header and content match their checksums.
//!
//! Damage followed by a valid record is corruption. Damage without one is a torn tail, as a crash
//! leaves it.
//!
//! Records are returned in append order, each once.

use std::path::Path;

use esker_env::{Env, OpenOptions};

use crate::encoding::Compression;
use crate::encryption::Seal;
use crate::types::{Error, Result};

use super::frame::{FRAME_BYTES, Frame};
use super::header::{FileHeader, HEADER_BYTES};
use super::scan::{self, Check, Source, Tail, WHAT};
use super::window::Window;

/// Options for reading a record file.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    env: Env,
    buffer_bytes: usize,
    strict_tail: bool,
    resync: bool,
    salvage: bool,
    uncompressed: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            env: Env::real(),
            buffer_bytes: 256 << 10,
            strict_tail: false,
            resync: false,
            salvage: false,
            uncompressed: false,
        }
    }
}

impl ReadOptions {
    /// Sets the environment; the operating system's files by default.
    pub fn env(mut self, env: &Env) -> Self {
        self.env = env.clone();
        self
    }

    /// Sets the bytes read at a time; 256 KiB by default. A longer record is read whole.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// Reports a torn tail as [`Error::Corrupt`] instead of ending before it. Off by default.
    pub fn strict_tail(mut self, on: bool) -> Self {
        self.strict_tail = on;
        self
    }

    /// Skips damage and continues with the next valid record; [`Reader::skipped_bytes`] returns how much was
    /// skipped. Off by default: damage followed by a valid record is an error.
    pub fn resync(mut self, on: bool) -> Self {
        self.resync = on;
        self
    }

    /// Also reads a file with a damaged header, assuming that the needed header fields are intact; if they
    /// are not, no record is valid. [`Reader::header_damage`] returns the damage. Parts that the system
    /// cannot read count as damage, in units of 4 KiB, but the first 4 KiB must be readable. Implies
    /// `resync`.
    pub(crate) fn salvage(mut self) -> Self {
        (self.salvage, self.resync) = (true, true);
        self
    }

    /// Treats a compressed record as damage, for files written without a codec. A length in such a file can
    /// then never make the reader allocate more than the size of the file.
    pub(crate) fn uncompressed(mut self) -> Self {
        self.uncompressed = true;
        self
    }

    /// Opens the file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Reader> {
        let path = path.as_ref();
        let file = self.env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let mut window = Window::new(file, path, self.buffer_bytes)?;
        if self.salvage {
            window = window.salvaging();
        }
        let bytes = window.at(0, HEADER_BYTES as u64)?;
        let mut header_damage = None;
        let header = match (FileHeader::decode(bytes, path), FileHeader::guess(bytes)) {
            (Err(error), Some(guess)) if self.salvage && error.is_corrupt() => {
                header_damage = Some(error);
                Some(guess)
            }
            (decoded, _) => decoded?,
        };
        // A crash before the first sync can leave less than all of it: both headers, and keys.
        let is_cut = header.is_some_and(|header| window.size() < header.records_at());
        let header = header.filter(|_| !is_cut);
        let seal = match header.unwrap_or_default().find_seal(&self.env, path, &mut window) {
            Err(error) if self.salvage && error.is_corrupt() => {
                header_damage.get_or_insert(error);
                None
            }
            found => Some(found?),
        };
        // Without a codec, no header of a compressed record is valid.
        let known = header.unwrap_or_default();
        let codec = if self.uncompressed { Compression::None } else { known.codec };
        let mut reader = Reader {
            header_damage,
            window,
            header: FileHeader { codec, ..known },
            position: known.records_at(),
            seal: seal.clone().unwrap_or_default(),
            record_offset: 0,
            unpacked: Vec::new(),
            tail: None,
            strict_tail: self.strict_tail,
            resync: self.resync,
            skipped_bytes: 0,
        };
        if header.is_none() {
            reader.end_without_header(is_cut)?;
        } else if seal.is_none() {
            // Without the key nothing can be read.
            let size = reader.window.size();
            (reader.skipped_bytes, reader.position) = (size - reader.position, size);
        }
        Ok(reader)
    }
}

/// A sequential reader.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("log");
/// use esker::recordio::{Reader, Tail, Writer};
///
/// let mut writer = Writer::create(&path)?;
/// writer.append(b"one")?;
/// writer.append(b"two")?;
/// writer.finish()?;
///
/// let mut reader = Reader::open(&path)?;
/// while let Some(record) = reader.next()? {
///     println!("{}", record.escape_ascii());
/// }
/// assert_eq!(reader.tail(), Some(Tail::Clean));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reader {
    header_damage: Option<Error>,
    window: Window,
    header: FileHeader,
    seal: Seal,
    /// Offset where the next record should start.
    position: u64,
    record_offset: u64,
    /// The latest record, if it was compressed or encrypted.
    unpacked: Vec<u8>,
    /// Set once the end is reached.
    tail: Option<Tail>,
    strict_tail: bool,
    resync: bool,
    skipped_bytes: u64,
}

/// The last record of a file with a clean tail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastRecord {
    pub(super) header: FileHeader,
    /// Offset of the record.
    pub(super) offset: u64,
}

impl LastRecord {
    /// Returns whether another writer can continue the file (seal.1).
    pub(crate) fn may_be_followed(&self) -> bool {
        !self.header.is_sealed
    }
}

impl Reader {
    /// Opens a file with the default options.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
        Self::options().open(path)
    }

    /// Returns the default options.
    pub fn options() -> ReadOptions {
        ReadOptions::default()
    }

    /// Returns the next record, borrowed until the next call. `None` at the end; [`tail`](Self::tail) then
    /// describes it.
    ///
    /// Fails with [`Error::Corrupt`] at damage followed by a valid record, unless damage is skipped. After
    /// that error the reader does not advance.
    #[expect(clippy::should_implement_trait, reason = "it lends: `records` is the iterator")]
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        let frame = loop {
            let Some(frame) = self.locate(Check::Payload)? else { return Ok(None) };
            if !self.is_packed(&frame) || self.unpack(&frame)? {
                break frame;
            }
        };
        self.record_offset = self.position;
        self.position += frame.size();
        if self.is_packed(&frame) {
            return Ok(Some(&self.unpacked));
        }
        scan::payload(&mut self.window, self.record_offset, &frame).map(Some)
    }

    /// Returns the next record as stored, header and payload, verified. `None` at the end.
    pub(super) fn next_stored(&mut self) -> Result<Option<(Frame, &[u8])>> {
        let Some(frame) = self.locate(Check::Payload)? else { return Ok(None) };
        self.record_offset = self.position;
        self.position += frame.size();
        let payload = scan::payload(&mut self.window, self.record_offset, &frame)?;
        Ok(Some((frame, payload)))
    }

    /// Skips the next record without verifying its content. Returns false at the end.
    pub fn skip_next(&mut self) -> Result<bool> {
        let Some(frame) = self.locate(Check::Header)? else { return Ok(false) };
        self.record_offset = self.position;
        self.position += frame.size();
        Ok(true)
    }

    /// Returns an iterator over the remaining records. It ends after an error.
    pub fn records(&mut self) -> Records<'_> {
        Records { reader: Some(self) }
    }

    /// Offset of the record last returned or skipped; 0 before the first.
    pub fn record_offset(&self) -> u64 {
        self.record_offset
    }

    /// Offset of the content of that record, if it is not compressed.
    pub(crate) fn content_offset(&self) -> u64 {
        self.record_offset + FRAME_BYTES as u64
    }

    /// Offset where the next record is expected.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What follows the last record. `None` until the end is reached.
    pub fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// Bytes of damage skipped so far, without the tail.
    pub fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// Returns the damage of the file header, if the file was opened for salvage.
    pub(crate) fn header_damage(&mut self) -> Option<Error> {
        self.header_damage.take()
    }

    /// Returns an error for `bytes` skipped bytes at `offset`. It says whether some of them could not be
    /// read.
    pub(crate) fn skipped_damage(&self, what: &'static str, offset: u64, bytes: u64) -> Error {
        let mut detail = format!("{bytes} bytes hold no valid record");
        if let Some(error) = self.window.unreadable(offset..offset + bytes) {
            detail = format!("{detail}, and not all of them can be read: {error}");
        }
        Error::corrupt(what, self.window.path(), offset, detail)
    }

    pub(super) fn header(&self) -> FileHeader {
        self.header
    }

    /// Size of the file when it was opened.
    pub(super) fn file_size(&self) -> u64 {
        self.window.size()
    }

    /// Returns the position of the last record once all were read and nothing follows it. A writer can
    /// continue there by writing that record again.
    pub(crate) fn last_record(&self) -> Option<LastRecord> {
        let is_clean = self.tail == Some(Tail::Clean) && self.skipped_bytes == 0 && self.record_offset > 0;
        is_clean.then_some(LastRecord { header: self.header, offset: self.record_offset })
    }

    /// Moves to the next valid record and verifies it. `None` at the end.
    fn locate(&mut self, depth: Check) -> Result<Option<Frame>> {
        if self.tail.is_some() {
            return Ok(None);
        }
        if self.position == self.window.size() {
            self.tail = Some(Tail::Clean);
            return Ok(None);
        }
        let damage = match scan::check(&mut self.window, &self.header, self.position, depth)? {
            Ok(frame) => return Ok(Some(frame)),
            Err(damage) => damage,
        };
        match scan::find_next(&mut self.window, &self.header, damage.resume)? {
            Some((next, frame)) if self.resync => {
                self.skipped_bytes += next - self.position;
                self.position = next;
                Ok(Some(frame))
            }
            Some(_) => Err(damage.in_file(self.window.path(), self.position)),
            // The unreadable part may have held records, so this is damage and not a torn tail.
            None if self.window.unreadable(self.position..self.window.size()).is_some() => {
                self.skipped_bytes += self.window.size() - self.position;
                self.position = self.window.size();
                self.tail = Some(Tail::Clean);
                Ok(None)
            }
            None => {
                let tail = scan::tail(&mut self.window, self.position)?;
                if self.strict_tail && matches!(tail, Tail::Torn { .. }) {
                    return Err(damage.in_file(self.window.path(), self.position));
                }
                self.tail = Some(tail);
                Ok(None)
            }
        }
    }

    fn is_packed(&self, frame: &Frame) -> bool {
        frame.compressed || self.seal.is_on()
    }

    /// Decrypts and decompresses the record at the position. Returns false if it was damaged before its
    /// checksum was computed, and skips it.
    fn unpack(&mut self, frame: &Frame) -> Result<bool> {
        let payload = scan::payload(&mut self.window, self.position, frame)?;
        match frame.unpack(&self.header, &self.seal, self.position, payload) {
            Ok(record) => {
                self.unpacked = record.into_owned();
                Ok(true)
            }
            Err(_) if self.resync => {
                self.skipped_bytes += frame.size();
                self.position += frame.size();
                Ok(false)
            }
            Err(e) => Err(e.in_file(WHAT, self.window.path(), self.position)),
        }
    }

    /// Handles a file whose header was never written: it is one torn tail. Anything except zeros after the
    /// header makes it corrupt, unless the file ends (`is_cut`) within a header that starts well.
    fn end_without_header(&mut self, is_cut: bool) -> Result<()> {
        let size = self.window.size();
        let torn = Tail::Torn { offset: 0, bytes: size };
        let is_other = !is_cut && size >= HEADER_BYTES as u64 && scan::tail(&mut self.window, 0)? == torn;
        let foreign = is_other || self.window.unreadable(0..size).is_some();
        if foreign || self.strict_tail {
            return FileHeader::require(&[], self.window.path()).map(drop);
        }
        self.position = 0;
        self.tail = Some(torn);
        Ok(())
    }
}

/// Iterator over the records of a [`Reader`].
#[derive(Debug)]
pub struct Records<'a> {
    reader: Option<&'a mut Reader>,
}

impl Iterator for Records<'_> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.reader.as_mut()?.next().map(|record| record.map(<[u8]>::to_vec)).transpose();
        if !matches!(item, Some(Ok(_))) {
            self.reader = None;
        }
        item
    }
}

impl std::iter::FusedIterator for Records<'_> {}
