//! Follows the log: reads its records in order, from a given commit on, while the log is being written.
//!
//! ```text
//!   Shelf: which segment, how far --> segment files --record by record, in windows--> (seqno, payload)
//! ```
//!
//! follow.1. Each commit is returned once, whole and in order. A hole is an error.
//! follow.2. Only commits that are durable (shelf.1) and not newer than the caller allows are returned.
//!
//! A follower does not keep segments on the shelf. It reports a segment that has left the shelf as gone, even
//! if it has read part of it, and never reports a reused file as damaged. It needs the memory of one window
//! and one record. A large record inside one window is not copied: it shares the window.

use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, File, OpenOptions};

use super::file_name::segment_path;
use super::format::{self, Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use super::shelf::{Reach, Shelf, Shelved};
use crate::encoding::checksum::crc32c;
use crate::encryption::Seal;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result, SeqNo};

/// Smaller records are copied, which costs no more than two updates of a shared reference count.
const SHARED_BYTES_MIN: usize = 1024;
/// Bytes of a segment read at a time.
const WINDOW_BYTES: u64 = 256 << 10;

/// Outcome of [`Follower::next`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    /// The next commit.
    Commit(SeqNo, Record),
    /// The next commit is not available yet.
    Nothing,
    /// The next commit has left the shelf.
    Gone,
}

/// The payload of a commit.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Own(Vec<u8>),
    /// A part of a window.
    Shared(Arc<Vec<u8>>, Range<usize>),
}

impl Deref for Record {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Record::Own(bytes) => bytes,
            Record::Shared(window, range) => &window[range.clone()],
        }
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        **self == **other
    }
}

impl Eq for Record {}

/// Reads the commits of the log in order.
#[derive(Debug)]
pub(crate) struct Follower {
    env: Env,
    dir: PathBuf,
    shelf: Arc<Shelf>,
    /// The commit to return next.
    next: SeqNo,
    /// Offset of the last record of the commit that was returned last.
    found_at: u64,
    reader: Option<SegmentReader>,
    /// The fragments of that commit read so far.
    unfinished: Option<Vec<u8>>,
}

/// A position in a segment.
#[derive(Debug)]
struct SegmentReader {
    segment: u64,
    path: Arc<Path>,
    file: Arc<dyn File>,
    stamp: u64,
    seal: Seal,
    offset: u64,
    /// The segment can be read up to here, and perhaps further.
    limit: u64,
    /// Bytes of the file from `window_at` on.
    window: Arc<Vec<u8>>,
    window_at: u64,
}

/// Outcome of one step.
enum Step {
    Found(Followed),
    On,
    /// The segment has left the shelf.
    Gone,
}

impl Follower {
    /// Returns a follower that starts with commit `next`.
    pub(crate) fn new(env: Env, dir: PathBuf, shelf: Arc<Shelf>, next: SeqNo) -> Follower {
        Follower { env, dir, shelf, next, found_at: 0, reader: None, unfinished: None }
    }

    /// Returns the shelf that it reads from.
    #[cfg(feature = "tokio")]
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// Returns the number of the next commit.
    pub(crate) fn position(&self) -> SeqNo {
        self.next
    }

    /// Returns the file of the commit that was returned last, and the offset of its last record.
    pub(crate) fn found_at(&self) -> (Arc<Path>, u64) {
        let path =
            self.reader.as_ref().map_or_else(|| self.dir.as_path().into(), |reader| reader.path.clone());
        (path, self.found_at)
    }

    /// Returns the next commit if it is durable and not newer than `up_to` (follow.2).
    pub(crate) fn next(&mut self, up_to: SeqNo) -> Result<Followed> {
        let mut is_second = false;
        loop {
            match self.step(up_to) {
                Ok(Step::Found(found)) => return Ok(found),
                Ok(Step::On) => is_second = false,
                Ok(Step::Gone) => {
                    if self.next < self.shelf.oldest() {
                        return Ok(Followed::Gone);
                    }
                    // The follower had read all of the segment that left the shelf.
                    (self.reader, self.unfinished) = (None, None);
                }
                Err(error) => {
                    if let Some(reader) = &mut self.reader
                        && self.shelf.reach(reader.segment) == Reach::Gone
                    {
                        reader.limit = 0;
                        continue;
                    }
                    if std::mem::replace(&mut is_second, true) {
                        return Err(error);
                    }
                    // The window may have been read while the file changed: read again once.
                    self.reader.iter_mut().for_each(|reader| reader.window = Arc::default());
                }
            }
        }
    }

    fn step(&mut self, up_to: SeqNo) -> Result<Step> {
        let Some(reader) = &mut self.reader else {
            let Some(segment) = self.shelf.find(self.next) else {
                let is_gone = self.next < self.shelf.oldest();
                return Ok(if is_gone { Step::Gone } else { Step::Found(Followed::Nothing) });
            };
            self.reader = Some(SegmentReader::open(&self.env, &self.dir, segment)?.0);
            return Ok(Step::On);
        };
        let header_end = reader.offset + RECORD_HEADER_BYTES as u64;
        if reader.limit < header_end {
            reader.limit = match self.shelf.reach(reader.segment) {
                Reach::Gone => return Ok(Step::Gone),
                Reach::To(offset) => offset,
                Reach::End => u64::MAX,
            };
            if reader.limit < header_end {
                return Ok(Step::Found(Followed::Nothing));
            }
        }
        let (stamp, limit) = (reader.stamp, reader.limit);
        let header = RecordHeader::decode(reader.read(0, RECORD_HEADER_BYTES, limit)?, stamp);
        let Some(header) = header else { return Err(reader.damaged("no valid record header")) };
        if header.kind == Kind::End {
            if self.shelf.reach(reader.segment + 1) == Reach::To(0) {
                return Ok(Step::Found(Followed::Nothing));
            }
            self.reader = Some(SegmentReader::open(&self.env, &self.dir, reader.segment + 1)?.0);
            return Ok(Step::On);
        }
        let starts = matches!(header.kind, Kind::Full | Kind::First);
        if starts && header.seq > up_to {
            return Ok(Step::Found(Followed::Nothing));
        }
        let len = header.payload_len as usize;
        let next_offset = reader.offset + format::padded(RECORD_HEADER_BYTES + len) as u64;
        if header.seq < self.next {
            reader.offset = next_offset;
            return Ok(Step::On);
        }
        // follow.1
        if header.seq != self.next || starts == self.unfinished.is_some() {
            let detail = format!("found a fragment of commit {}, expected commit {}", header.seq, self.next);
            return Err(reader.damaged(&detail));
        }
        let opened = reader.open_payload(header, limit)?;
        if header.kind != Kind::Full {
            let payload = match &opened {
                Some(payload) => payload,
                None => reader.read(RECORD_HEADER_BYTES as u64, len, limit)?,
            };
            self.unfinished.get_or_insert_default().extend_from_slice(payload);
        }
        let whole = match header.kind {
            Kind::Full if opened.is_some() => opened.map(Record::Own),
            Kind::Full => Some(reader.record(RECORD_HEADER_BYTES as u64, len)),
            Kind::Last => self.unfinished.take().map(Record::Own),
            _ => None,
        };
        self.found_at = std::mem::replace(&mut reader.offset, next_offset);
        if let Some(whole) = whole {
            self.next = header.seq.next();
            if canary::is_set(Canary::FeedSkips) && header.seq.get().is_multiple_of(5) {
                return Ok(Step::On);
            }
            return Ok(Step::Found(Followed::Commit(header.seq, whole)));
        }
        Ok(Step::On)
    }
}

impl SegmentReader {
    /// Opens a segment and stands before its first record.
    fn open(env: &Env, dir: &Path, segment: u64) -> Result<(SegmentReader, SegmentHeader)> {
        let path = segment_path(dir, segment);
        let file = env.fs.open(&path, OpenOptions::read()).map_err(|e| Error::io("open", &path, e))?;
        let mut reader = SegmentReader {
            segment,
            path: path.into(),
            file,
            stamp: 0,
            seal: Seal::default(),
            offset: 0,
            limit: 0,
            window: Arc::default(),
            window_at: 0,
        };
        let bytes = reader.read(0, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES as u64)?.to_vec();
        let header = SegmentHeader::decode(&bytes, segment, &reader.path)?;
        let records_at = header.records_at();
        let bytes = reader.read(0, records_at, records_at as u64)?.to_vec();
        reader.seal = header.find_seal(env, &bytes, &reader.path)?;
        reader.stamp = header.stamp();
        reader.offset = records_at as u64;
        Ok((reader, header))
    }

    /// Reads `len` bytes at `ahead` bytes after the current offset. Reads nothing from `limit` on.
    fn read(&mut self, ahead: u64, len: usize, limit: u64) -> Result<&[u8]> {
        let (start, end) = (self.offset + ahead, self.offset + ahead + len as u64);
        if end > limit {
            return Err(self.damaged("the record extends past the durable end"));
        }
        if start < self.window_at || end > self.window_at + self.window.len() as u64 {
            let bytes = (end - start).max(WINDOW_BYTES.min(limit - start)) as usize;
            self.window_at = start;
            // Records that share the old window keep it.
            if Arc::get_mut(&mut self.window).is_none() {
                self.window = Arc::default();
            }
            let window = Arc::make_mut(&mut self.window);
            window.clear();
            window.resize(bytes, 0);
            let mut filled = 0;
            while filled < bytes {
                let read = self.file.read_at(&mut window[filled..], start + filled as u64);
                match read.map_err(|e| Error::io("read", &self.path, e))? {
                    0 => break,
                    n => filled += n,
                }
            }
            window.truncate(filled);
            if filled < len {
                return Err(self.damaged("the file ends inside the record"));
            }
        }
        let from = (start - self.window_at) as usize;
        Ok(&self.window[from..from + len])
    }

    /// Verifies the payload of the record at the offset. Returns it if it had to be decrypted.
    fn open_payload(&mut self, header: RecordHeader, limit: u64) -> Result<Option<Vec<u8>>> {
        let (seal, offset) = (self.seal.clone(), self.offset);
        let payload = self.read(RECORD_HEADER_BYTES as u64, header.payload_len as usize, limit)?;
        if crc32c(payload) != header.payload_crc {
            return Err(self.damaged("payload checksum mismatch"));
        }
        if !seal.is_on() {
            return Ok(None);
        }
        let opened = header.open_payload(&seal, offset, payload).map(Cow::into_owned);
        opened.map(Some).map_err(|detail| self.damaged(&detail))
    }

    /// Returns bytes of the current window, at `ahead` bytes after the current offset, as a record.
    fn record(&self, ahead: u64, len: usize) -> Record {
        let from = (self.offset + ahead - self.window_at) as usize;
        let range = from..from + len;
        if len < SHARED_BYTES_MIN {
            return Record::Own(self.window[range].to_vec());
        }
        Record::Shared(self.window.clone(), range)
    }

    #[cold]
    fn damaged(&self, detail: &str) -> Error {
        Error::corrupt("WAL record", &self.path, self.offset, detail)
    }
}

/// Turns damage into `None`.
fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns what a segment that an earlier process finished offers to readers; `None` if it is not part of
/// this log. Fails if the segment cannot be read now, because treating that as damage would give up its
/// commits.
pub(crate) fn look_at(
    env: &Env,
    dir: &Path,
    segment: u64,
    database_id: Option<u32>,
) -> Result<Option<Shelved>> {
    let Some((mut reader, header_of)) = unless_damaged(SegmentReader::open(env, dir, segment))? else {
        return Ok(None);
    };
    let bytes = reader.file.len().map_err(|e| Error::io("measure", &reader.path, e))?;
    if header_of.is_foreign(database_id) {
        return Ok(None);
    }
    loop {
        let header = unless_damaged(reader.read(0, RECORD_HEADER_BYTES, u64::MAX))?;
        match header.and_then(|bytes| RecordHeader::decode(bytes, header_of.stamp())) {
            Some(RecordHeader { kind: Kind::Full | Kind::First, seq, .. }) => {
                return Ok(Some(Shelved { first: Some(seq), bytes }));
            }
            Some(RecordHeader { kind: Kind::Middle | Kind::Last, payload_len, .. }) => {
                reader.offset += format::padded(RECORD_HEADER_BYTES + payload_len as usize) as u64;
            }
            Some(RecordHeader { kind: Kind::End, .. }) | None => {
                return Ok(Some(Shelved { first: None, bytes }));
            }
        }
    }
}
