//! Following the log: its records in order, from a commit on, for as long as it is written.
//!
//! ```text
//!   Shelf: which segment, how far --> segment files --record by record, in windows--> (number, payload)
//! ```
//!
//! follow.1. Each commit comes once, in order, whole; a hole is an error.
//! follow.2. Nothing comes that is not durable (shelf.1), nor newer than the caller allows.
//! follow.3. A follower holds no segment: one that has left the shelf is gone for it, whatever it had read of it before, and a file that has got
//!      another use in the meantime is not taken for a damaged one.
//! follow.4. It takes the memory of a window, and that of one record. A large record that lies in one window is not copied: it keeps the window.

use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, File, OpenOptions};

use super::file_name::segment_path;
use super::format::{self, Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use super::shelf::{Reach, Shelf, Shelved};
use crate::encoding::checksum::crc32c;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result, SeqNo};

/// Smaller records are copied: that costs no more than two turns of a shared count.
const SHARED_BYTES_MIN: usize = 1024;
/// So much of a segment is read at once.
const WINDOW_BYTES: u64 = 256 << 10;

/// What a follower finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    /// The next commit.
    Commit(SeqNo, Record),
    /// Nothing yet.
    Nothing,
    /// The next commit is not on the shelf any more.
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
            Record::Shared(window, place) => &window[place.clone()],
        }
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        **self == **other
    }
}

impl Eq for Record {}

/// Reads the log.
#[derive(Debug)]
pub(crate) struct Follower {
    env: Env,
    dir: PathBuf,
    shelf: Arc<Shelf>,
    /// The commit to come.
    next: SeqNo,
    place: Option<Place>,
    /// Fragments of it.
    unfinished: Option<Vec<u8>>,
}

/// A position in a segment.
#[derive(Debug)]
struct Place {
    segment: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    stamp: u64,
    offset: u64,
    /// It can be read up to here, and perhaps further by now.
    limit: u64,
    /// Bytes of the file from `window_at` on.
    window: Arc<Vec<u8>>,
    window_at: u64,
}

/// Where a step leads.
enum Step {
    Found(Followed),
    On,
    /// The segment has left the shelf.
    Gone,
}

impl Follower {
    /// Begins with this commit.
    pub(crate) fn new(env: Env, dir: PathBuf, shelf: Arc<Shelf>, next: SeqNo) -> Follower {
        Follower { env, dir, shelf, next, place: None, unfinished: None }
    }

    /// What it reads from.
    #[cfg(feature = "tokio")]
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// The commit that comes next.
    pub(crate) fn position(&self) -> SeqNo {
        self.next
    }

    /// The next commit, if it is durable and not newer than `up_to` (follow.2).
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
                    // It had read all of a segment that has left.
                    (self.place, self.unfinished) = (None, None);
                }
                Err(error) => {
                    if let Some(place) = &mut self.place
                        && self.shelf.reach(place.segment) == Reach::Gone
                    {
                        place.limit = 0;
                        continue;
                    }
                    if std::mem::replace(&mut is_second, true) {
                        return Err(error);
                    }
                    // follow.3: it was read while it changed.
                    self.place.iter_mut().for_each(|place| place.window = Arc::default());
                }
            }
        }
    }

    fn step(&mut self, up_to: SeqNo) -> Result<Step> {
        let Some(place) = &mut self.place else {
            let Some(segment) = self.shelf.find(self.next) else {
                let is_gone = self.next < self.shelf.oldest();
                return Ok(if is_gone { Step::Gone } else { Step::Found(Followed::Nothing) });
            };
            self.place = Some(Place::open(&self.env, &self.dir, segment)?.0);
            return Ok(Step::On);
        };
        let header_end = place.offset + RECORD_HEADER_BYTES as u64;
        if place.limit < header_end {
            place.limit = match self.shelf.reach(place.segment) {
                Reach::Gone => return Ok(Step::Gone),
                Reach::To(offset) => offset,
                Reach::End => u64::MAX,
            };
            if place.limit < header_end {
                return Ok(Step::Found(Followed::Nothing));
            }
        }
        let (stamp, limit) = (place.stamp, place.limit);
        let header = RecordHeader::decode(place.read(0, RECORD_HEADER_BYTES, limit)?, stamp);
        let Some(header) = header else { return Err(place.damaged("no valid record header")) };
        if header.kind == Kind::End {
            if self.shelf.reach(place.segment + 1) == Reach::To(0) {
                return Ok(Step::Found(Followed::Nothing));
            }
            self.place = Some(Place::open(&self.env, &self.dir, place.segment + 1)?.0);
            return Ok(Step::On);
        }
        let starts = matches!(header.kind, Kind::Full | Kind::First);
        if starts && header.seq > up_to {
            return Ok(Step::Found(Followed::Nothing));
        }
        let len = header.payload_len as usize;
        let behind = place.offset + format::padded(RECORD_HEADER_BYTES + len) as u64;
        if header.seq < self.next {
            place.offset = behind;
            return Ok(Step::On);
        }
        // follow.1
        if header.seq != self.next || starts == self.unfinished.is_some() {
            let detail = format!("a fragment of commit {} where commit {} is to be", header.seq, self.next);
            return Err(place.damaged(&detail));
        }
        let payload = place.read(RECORD_HEADER_BYTES as u64, len, limit)?;
        if crc32c(payload) != header.payload_crc {
            return Err(place.damaged("payload checksum mismatch"));
        }
        if header.kind != Kind::Full {
            self.unfinished.get_or_insert_default().extend_from_slice(payload);
        }
        let whole = match header.kind {
            Kind::Full => Some(place.record(RECORD_HEADER_BYTES as u64, len)),
            Kind::Last => self.unfinished.take().map(Record::Own),
            _ => None,
        };
        place.offset = behind;
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

impl Place {
    /// At the first record.
    fn open(env: &Env, dir: &Path, segment: u64) -> Result<(Place, SegmentHeader)> {
        let path = segment_path(dir, segment);
        let file = env.fs.open(&path, OpenOptions::read()).map_err(|e| Error::io("open", &path, e))?;
        let mut place = Place {
            segment,
            path,
            file,
            stamp: 0,
            offset: 0,
            limit: 0,
            window: Arc::default(),
            window_at: 0,
        };
        let bytes = place.read(0, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES as u64)?.to_vec();
        let header = SegmentHeader::decode(&bytes, segment, &place.path)?;
        place.stamp = header.stamp();
        place.offset = SEGMENT_HEADER_BYTES as u64;
        Ok((place, header))
    }

    /// So many bytes, which begin so far behind the offset. Nothing from `limit` on is looked at.
    fn read(&mut self, behind: u64, len: usize, limit: u64) -> Result<&[u8]> {
        let (start, end) = (self.offset + behind, self.offset + behind + len as u64);
        if end > limit {
            return Err(self.damaged("the record goes on behind what is durable"));
        }
        if start < self.window_at || end > self.window_at + self.window.len() as u64 {
            let bytes = (end - start).max(WINDOW_BYTES.min(limit - start)) as usize;
            self.window_at = start;
            // Those who have records of the old one keep it.
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

    /// What was read last, so far behind the offset.
    fn record(&self, behind: u64, len: usize) -> Record {
        let from = (self.offset + behind - self.window_at) as usize;
        let place = from..from + len;
        if len < SHARED_BYTES_MIN {
            return Record::Own(self.window[place].to_vec());
        }
        Record::Shared(self.window.clone(), place)
    }

    #[cold]
    fn damaged(&self, detail: &str) -> Error {
        Error::corrupt("WAL record", &self.path, self.offset, detail)
    }
}

/// What was read; none if it is damaged.
fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a segment has to offer that an earlier process has finished; none if it is not one of this log. Fails if it cannot be read now: who took
/// that for damage would give up commits that are there.
pub(crate) fn look_at(
    env: &Env,
    dir: &Path,
    segment: u64,
    database_id: Option<u32>,
) -> Result<Option<Shelved>> {
    let Some((mut place, header_of)) = unless_damaged(Place::open(env, dir, segment))? else {
        return Ok(None);
    };
    let bytes = place.file.len().map_err(|e| Error::io("measure", &place.path, e))?;
    if header_of.is_foreign(database_id) {
        return Ok(None);
    }
    loop {
        let header = unless_damaged(place.read(0, RECORD_HEADER_BYTES, u64::MAX))?;
        match header.and_then(|bytes| RecordHeader::decode(bytes, header_of.stamp())) {
            Some(RecordHeader { kind: Kind::Full | Kind::First, seq, .. }) => {
                return Ok(Some(Shelved { first: Some(seq), bytes }));
            }
            Some(RecordHeader { kind: Kind::Middle | Kind::Last, payload_len, .. }) => {
                place.offset += format::padded(RECORD_HEADER_BYTES + payload_len as usize) as u64;
            }
            Some(RecordHeader { kind: Kind::End, .. }) | None => {
                return Ok(Some(Shelved { first: None, bytes }));
            }
        }
    }
}
