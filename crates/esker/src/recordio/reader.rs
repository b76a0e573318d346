//! Reading a record file from its first record to its last.
//!
//! ```text
//!   File --> Window --> scan::check --> payload --decompress--> &[u8] lent to the caller
//!                              `-damaged--> find_next: a valid record behind it?  yes: corrupt (or skipped)
//!                                                                                no:  torn tail, the end
//! ```
//!
//! reader.1. A record is returned only if its header and content are what was written.
//! reader.2. Damage with a valid record behind it is corruption; without one it is a torn tail, which a crash explains.
//! reader.3. Records are returned in the order in which they were appended, each once.

use std::path::Path;

use esker_env::{Env, OpenOptions};

use crate::encoding::Compression;
use crate::types::{Error, Result};

use super::frame::{FRAME_BYTES, Frame};
use super::header::{FileHeader, HEADER_BYTES};
use super::scan::{self, Check, Source, Tail, WHAT};
use super::window::Window;

/// How to read a record file.
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
    /// The file system to read from; the operating system's by default.
    pub fn env(mut self, env: &Env) -> Self {
        self.env = env.clone();
        self
    }

    /// How much is read at once, in bytes; 256 KiB by default. A longer record is read whole.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// Report a torn tail as [`Error::Corrupt`] instead of ending before it. Off by default.
    pub fn strict_tail(mut self, on: bool) -> Self {
        self.strict_tail = on;
        self
    }

    /// Skip damage and go on with the next valid record; [`Reader::skipped_bytes`] tells how much was lost. Off by
    /// default: damage with a valid record behind it is an error.
    pub fn resync(mut self, on: bool) -> Self {
        self.resync = on;
        self
    }

    /// Reads a file whose header is damaged, too, as if what is needed of it were right: if it is not, no record proves
    /// valid. [`Reader::header_damage`] tells. What the system does not give is damage, too, 4 KiB at a time; but for the first
    /// 4 KiB, without which the file is not opened. Includes `resync`.
    pub(crate) fn salvage(mut self) -> Self {
        (self.salvage, self.resync) = (true, true);
        self
    }

    /// Takes a compressed record for damage: for files that are written without a codec. So no length in such a file makes the
    /// reader allocate more than its bytes.
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
            window = window.patient();
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
        // Without a codec no header of a compressed record is valid.
        let known = header.unwrap_or_default();
        let codec = if self.uncompressed { Compression::None } else { known.codec };
        let mut reader = Reader {
            header_damage,
            window,
            header: FileHeader { codec, ..known },
            position: HEADER_BYTES as u64,
            record_offset: 0,
            unpacked: Vec::new(),
            tail: None,
            strict_tail: self.strict_tail,
            resync: self.resync,
            skipped_bytes: 0,
        };
        if header.is_none() {
            reader.end_without_header()?;
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
    /// Where the next record should start.
    position: u64,
    record_offset: u64,
    /// The latest record, if it was compressed.
    unpacked: Vec<u8>,
    /// Known once the end was reached.
    tail: Option<Tail>,
    strict_tail: bool,
    resync: bool,
    skipped_bytes: u64,
}

/// The last record of a file that ends in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastRecord {
    pub(super) header: FileHeader,
    /// Where it begins.
    pub(super) offset: u64,
}

impl Reader {
    /// Opens a file with the default options.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
        Self::options().open(path)
    }

    /// Options to open a file with.
    pub fn options() -> ReadOptions {
        ReadOptions::default()
    }

    /// The next record, lent until the next call; `None` at the end, of which [`tail`](Self::tail) then tells more.
    ///
    /// Fails with [`Error::Corrupt`] at damage that has a valid record behind it (unless told to skip it); after
    /// that error the reader does not move on.
    #[expect(clippy::should_implement_trait, reason = "it lends: `records` is the iterator")]
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        let frame = loop {
            let Some(frame) = self.locate(Check::Payload)? else { return Ok(None) };
            if !frame.compressed || self.unpack(&frame)? {
                break frame;
            }
        };
        self.record_offset = self.position;
        self.position += frame.size();
        if frame.compressed {
            return Ok(Some(&self.unpacked));
        }
        scan::payload(&mut self.window, self.record_offset, &frame).map(Some)
    }

    /// The next record as it is stored, header and payload, verified; `None` at the end.
    pub(super) fn next_stored(&mut self) -> Result<Option<(Frame, &[u8])>> {
        let Some(frame) = self.locate(Check::Payload)? else { return Ok(None) };
        self.record_offset = self.position;
        self.position += frame.size();
        let payload = scan::payload(&mut self.window, self.record_offset, &frame)?;
        Ok(Some((frame, payload)))
    }

    /// Passes over the next record without looking at its content; `false` at the end.
    pub fn skip_next(&mut self) -> Result<bool> {
        let Some(frame) = self.locate(Check::Header)? else { return Ok(false) };
        self.record_offset = self.position;
        self.position += frame.size();
        Ok(true)
    }

    /// The remaining records as an iterator; it ends after an error.
    pub fn records(&mut self) -> Records<'_> {
        Records { reader: Some(self) }
    }

    /// The offset of the record returned or passed over last; 0 before the first.
    pub fn record_offset(&self) -> u64 {
        self.record_offset
    }

    /// The offset of that record's bytes, if it is not compressed: they stand behind its header.
    pub(crate) fn content_offset(&self) -> u64 {
        self.record_offset + FRAME_BYTES as u64
    }

    /// The offset at which the next record is looked for.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What stands behind the last record; `None` until the end was reached.
    pub fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// The bytes of damage skipped so far; the tail is not among them.
    pub fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// What is wrong with the file's header, if it was opened for salvage.
    pub(crate) fn header_damage(&mut self) -> Option<Error> {
        self.header_damage.take()
    }

    /// The damage of so many bytes that were skipped. Tells if the system does not give all of them.
    pub(crate) fn skipped_damage(&self, what: &'static str, offset: u64, bytes: u64) -> Error {
        let mut detail = format!("{bytes} bytes are no valid record");
        if let Some(error) = self.window.unreadable(offset..offset + bytes) {
            detail = format!("{detail}, and not all of them can be read: {error}");
        }
        Error::corrupt(what, self.window.path(), offset, detail)
    }

    pub(super) fn header(&self) -> FileHeader {
        self.header
    }

    /// The size that the file had when it was opened.
    pub(super) fn file_size(&self) -> u64 {
        self.window.size()
    }

    /// Where the last record stands, once all were read and nothing is behind them: a writer that gives it again can go on there.
    pub(crate) fn last_record(&self) -> Option<LastRecord> {
        let is_clean = self.tail == Some(Tail::Clean) && self.skipped_bytes == 0 && self.record_offset > 0;
        is_clean.then_some(LastRecord { header: self.header, offset: self.record_offset })
    }

    /// Moves to the next valid record and checks it; `None` at the end.
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
            // Records may have been there, so this is damage, and no tail that a crash explains (reader.2).
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

    /// Decompresses the record at the position. `false`: it was damaged before its checksum was made, and skipped.
    fn unpack(&mut self, frame: &Frame) -> Result<bool> {
        let payload = scan::payload(&mut self.window, self.position, frame)?;
        match frame.unpack(&self.header, payload) {
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

    /// A file whose header was never written is one torn tail; anything but zeros behind it is not ours.
    fn end_without_header(&mut self) -> Result<()> {
        let size = self.window.size();
        let torn = Tail::Torn { offset: 0, bytes: size };
        let is_other = size >= HEADER_BYTES as u64 && scan::tail(&mut self.window, 0)? == torn;
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
