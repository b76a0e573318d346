//! Reads what is left of a damaged log.
//!
//! ```text
//!   segment --walk_segment--> records, damage, tail      (dump, check)
//!   log     --salvage-------> whole commits, losses      (repair)
//! ```
//!
//! wal_salvage.2. A commit is returned whole or not at all, and the sequence numbers of returned commits
//!     strictly increase.
//! - What recovery refuses is reported as damage, not as a torn tail. A record is damaged if a later record
//!   header proves that it was durable, even if that later record's payload is invalid.
//!
//! Salvage changes nothing and no input makes it panic. One segment and one commit are in memory at a time.
//! After damage, the search continues for the next record whose header and payload are valid in this segment.
//! No commit is assembled across damage, or across a segment or range that is missing or unreadable, because
//! no checksum covers a commit as a whole.

use std::ops::Range;
use std::path::{Path, PathBuf};

use esker_env::{Env, File, OpenOptions, read_range, read_range_into};

use super::file_name;
use super::files::{LogExtent, LogFiles};
use super::format::{
    self, ALIGN, Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_BYTES_LIMIT, SEGMENT_HEADER_BYTES,
    SegmentHeader,
};
use super::recovery::{CUT, read_segment};
use super::segment::{Found, SegmentBytes};
use crate::encryption::Seal;
use crate::types::{Error, Result, SeqNo};

/// Size of single reads after reading the whole segment has failed.
const PIECE_BYTES: usize = 4 << 10;
/// Error detail for a range that the operating system cannot read.
const UNREADABLE: &str = "it cannot be read";
/// Error detail for the records of an encrypted segment without a valid key header.
const LOST_KEY: &str = "the records are encrypted, and the segment's key cannot be read";
/// Error detail for an encrypted record that does not match its tag.
const FORGED: &str = "the encrypted payload was changed or moved";
/// Error detail for a damaged record that was durable, if no valid record follows.
const WAS_SYNCED: &str = "not a valid record, but a later record header proves that it was synced";

/// A piece of a segment.
#[derive(Debug)]
pub(crate) enum SegmentPiece<'a> {
    /// The segment's header, or why it is invalid.
    Header(Result<SegmentHeader>),
    /// A valid record.
    Record {
        /// Offset of the record.
        offset: u64,
        /// `full`, `first`, `middle` or `last`.
        kind: &'static str,
        /// Number of its commit.
        seq: SeqNo,
        /// Bytes of the segment that were durable when the record was made.
        synced_to: u32,
        /// The part of the commit's payload that this record holds.
        payload: &'a [u8],
    },
    /// Bytes that are not a valid record. Either a valid record follows, or some of the bytes are unreadable,
    /// or a later header proves that they were durable.
    Damage {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// Why they are invalid.
        detail: &'static str,
    },
    /// The last record of a finished segment.
    End {
        /// Offset of the record.
        offset: u64,
    },
    /// No valid record follows.
    Tail {
        /// Offset at which the records end.
        offset: u64,
        /// Bytes of an unfinished record, as far as its header is readable; 0 if there is no sign of one.
        torn_bytes: u64,
        /// Whether the file is shorter than the size in its header.
        cut: bool,
    },
}

/// Calls `each` for every piece of segment `number`, in order. `bytes` is the whole segment, with zeros in
/// the unreadable ranges `holes`. If the segment's header is damaged, the stamp (format.2) comes from the
/// known database id, or from the id in another segment's header.
fn walk_segment(
    bytes: &[u8],
    holes: &[Range<usize>],
    number: u64,
    (known_id, stated_id): (Option<u32>, Option<u32>),
    (env, path): (&Env, &Path),
    each: &mut dyn FnMut(SegmentPiece<'_>),
) {
    let segment_header = match holes.first() {
        Some(hole) if hole.start == 0 => Err(Error::corrupt("WAL segment header", path, 0, UNREADABLE)),
        _ => SegmentHeader::decode(bytes, number, path),
    };
    let cut = segment_header.as_ref().is_ok_and(|header| header.is_cut(bytes.len()));
    let stamp = match &segment_header {
        Ok(header) => header.stamp(),
        Err(_) => stamp_of_damaged(bytes, number, known_id, stated_id),
    };
    let guess = || SegmentHeader::guess(bytes, number, known_id.or(stated_id));
    let (known, seal, segment_header) = find_seal(segment_header, guess, bytes, (env, path));
    let mut offset = known.records_at();
    each(SegmentPiece::Header(segment_header));
    let Some(seal) = seal else {
        let bytes = bytes.len().saturating_sub(offset) as u64;
        return each(SegmentPiece::Damage { offset: offset as u64, bytes, detail: LOST_KEY });
    };
    let segment = SegmentBytes { bytes, stamp };
    loop {
        match segment.at(offset) {
            Found::End { .. } => return each(SegmentPiece::End { offset: offset as u64 }),
            Found::Record { header, payload, next } => {
                let RecordHeader { kind, seq, synced_to, .. } = header;
                let kind = kind_name(kind);
                let start = offset as u64;
                match header.open_payload(&seal, start, payload) {
                    Ok(payload) => {
                        each(SegmentPiece::Record { offset: start, kind, seq, synced_to, payload: &payload });
                    }
                    Err(_) => {
                        let bytes = (next - offset) as u64;
                        each(SegmentPiece::Damage { offset: start, bytes, detail: FORGED });
                    }
                }
                offset = next;
            }
            Found::Invalid { header, detail } => {
                let next = next_valid(segment, offset, header);
                let is_here = |hole: &&Range<usize>| offset < hole.end && next.is_none_or(|n| hole.start < n);
                let hole = holes.iter().rfind(is_here);
                let Some(end) = next.or(hole.map(|hole| hole.end)) else {
                    let evidence = segment.evidence(offset, header);
                    let (offset, bytes) = (offset as u64, evidence.remains_end.saturating_sub(offset) as u64);
                    return each(match evidence.proof_of_damage {
                        Some(_) => SegmentPiece::Damage { offset, bytes, detail: WAS_SYNCED },
                        None => SegmentPiece::Tail { offset, torn_bytes: bytes, cut },
                    });
                };
                let detail = if hole.is_some() { UNREADABLE } else { detail };
                let bytes = (end - offset) as u64;
                each(SegmentPiece::Damage { offset: offset as u64, bytes, detail });
                match next {
                    Some(next) => offset = next,
                    None => return,
                }
            }
        }
    }
}

/// Returns what a segment's header is or was, the seal of its payloads if that is valid, and what is wrong.
fn find_seal(
    header: Result<SegmentHeader>,
    guess: impl FnOnce() -> SegmentHeader,
    bytes: &[u8],
    (env, path): (&Env, &Path),
) -> (SegmentHeader, Option<Seal>, Result<SegmentHeader>) {
    let known = header.as_ref().ok().copied().unwrap_or_else(guess);
    match (known.find_seal(env, bytes, path), header) {
        (Ok(seal), header) => (known, Some(seal), header),
        (Err(error), Ok(_)) => (known, None, Err(error)),
        (Err(error @ Error::Encryption { .. }), Err(_)) => (known, None, Err(error)),
        (Err(_), header) => (known, None, header),
    }
}

/// Returns the stamp of a segment with a damaged header, computed with `known_id`. If that is unknown, uses
/// the id in the header, or `stated_id` if no record is found with it.
fn stamp_of_damaged(bytes: &[u8], number: u64, known_id: Option<u32>, stated_id: Option<u32>) -> u64 {
    let stamp = SegmentHeader::stamp_of_damaged(bytes, number, known_id);
    let finds = || {
        let segment = SegmentBytes { bytes, stamp };
        let is_valid = !matches!(segment.at(SEGMENT_HEADER_BYTES), Found::Invalid { .. });
        is_valid || next_valid(segment, SEGMENT_HEADER_BYTES, None).is_some()
    };
    match stated_id.filter(|_| known_id.is_none()) {
        Some(stated) if !finds() => SegmentHeader::stamp_of_damaged(bytes, number, Some(stated)),
        _ => stamp,
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Full => "full",
        Kind::First => "first",
        Kind::Middle => "middle",
        Kind::Last => "last",
        Kind::End => "end",
    }
}

/// Returns the offset of the next valid record or `End` after the invalid record at `offset`.
fn next_valid(segment: SegmentBytes<'_>, offset: usize, header: Option<RecordHeader>) -> Option<usize> {
    // A valid header proves its length. The payload is user data and is not searched.
    let skipped = header.map_or(ALIGN, |header| {
        format::padded(RECORD_HEADER_BYTES.saturating_add(header.payload_len as usize))
    });
    let mut at = offset.saturating_add(skipped);
    while at < segment.bytes.len() {
        match segment.at(at) {
            Found::Record { .. } | Found::End { .. } => return Some(at),
            // The header is valid, so the search continues after its payload.
            Found::Invalid { header: Some(header), .. } => {
                at += format::padded(RECORD_HEADER_BYTES.saturating_add(header.payload_len as usize));
            }
            Found::Invalid { header: None, .. } => at += ALIGN,
        }
    }
    None
}

/// Returns a segment's bytes, with zeros in the ranges that cannot be read, and these ranges. Fails if the
/// file cannot be opened or is too long.
fn read_in_pieces(env: &Env, path: &Path) -> Result<(Vec<u8>, Vec<Range<usize>>)> {
    match read_segment(env, path) {
        Ok(bytes) => return Ok((bytes, Vec::new())),
        Err(Error::Io { .. }) => {}
        Err(error) => return Err(error),
    }
    let io = |e| Error::io("read", path, e);
    let file = env.fs.open(path, OpenOptions::read()).map_err(io)?;
    let len = file.len().map_err(io)?.min(SEGMENT_BYTES_LIMIT) as usize;
    Ok(read_pieces(&*file, len))
}

/// Returns the first `len` bytes of a file, with zeros in the ranges that cannot be read, and these ranges.
fn read_pieces(file: &dyn File, len: usize) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut bytes = vec![0; len];
    let mut holes: Vec<Range<usize>> = Vec::new();
    for start in (0..len).step_by(PIECE_BYTES) {
        let end = len.min(start + PIECE_BYTES);
        if read_range_into(file, start as u64, &mut bytes[start..end]).is_ok() {
            continue;
        }
        bytes[start..end].fill(0);
        match holes.last_mut() {
            Some(hole) if hole.end == start => hole.end = end,
            _ => holes.push(start..end),
        }
    }
    (bytes, holes)
}

/// Reads a segment and calls `each` for every piece of it.
pub(crate) fn walk_segment_file(
    env: &Env,
    path: &Path,
    number: u64,
    database_id: Option<u32>,
    each: &mut dyn FnMut(SegmentPiece<'_>),
) -> Result<()> {
    let bytes = read_segment(env, path)?;
    walk_segment(&bytes, &[], number, (database_id, None), (env, path), each);
    Ok(())
}

/// A piece of a damaged log.
#[derive(Debug)]
pub(crate) enum LogPiece<'a> {
    /// A whole commit.
    Commit {
        /// Its sequence number.
        seq: SeqNo,
        /// Its bytes.
        payload: &'a [u8],
        /// The segment in which it starts.
        path: &'a Path,
        /// Its offset in that segment.
        offset: u64,
    },
    /// Bytes that cannot be read, or a commit with missing fragments.
    Lost {
        /// What is wrong, with file and offset.
        error: Error,
        /// Number of bytes lost; 0 if unknown.
        bytes: u64,
    },
    /// An unfinished commit at the log's end, which was never acknowledged.
    Torn {
        /// The last segment.
        path: &'a Path,
        /// Offset at which it starts.
        offset: u64,
        /// Its size, as far as it is known.
        bytes: u64,
    },
}

/// Returns the database id from the first segment with a valid header.
fn stated_id(env: &Env, dir: &Path, segments: &[u64]) -> Option<u32> {
    segments.iter().find_map(|&number| {
        let path = file_name::segment_path(dir, number);
        let file = env.fs.open(&path, OpenOptions::read()).ok()?;
        let bytes = read_range(&*file, 0, SEGMENT_HEADER_BYTES).ok()?;
        Some(SegmentHeader::decode(&bytes, number, &path).ok()?.database_id)
    })
}

/// Returns the numbers of the log's segments from `from` on, in order.
pub(crate) fn segments(env: &Env, dir: &Path, from: u64) -> Result<Vec<u64>> {
    Ok(LogFiles::list(env, dir, from)?.segments)
}

/// Returns whether a segment that recovery needs is missing (recovery.6).
pub(crate) fn lacks_segments(env: &Env, dir: &Path, extent: LogExtent) -> Result<bool> {
    Ok(LogFiles::list(env, dir, extent.from)?.first_missing(extent).is_some())
}

/// Calls `each` for every piece of the log and stops at its first error. Returns the number of segments.
pub(crate) fn salvage(
    env: &Env,
    dir: &Path,
    extent: LogExtent,
    each: &mut dyn FnMut(LogPiece<'_>) -> Result<()>,
) -> Result<u64> {
    let LogExtent { from, named_to, database_id, .. } = extent;
    let files = LogFiles::list(env, dir, from)?;
    let numbers = &files.segments;
    let stated_id = database_id.is_none().then(|| stated_id(env, dir, &files.segments)).flatten();
    let mut log =
        Salvage { each, database_id, foreign: false, unfinished: None, last_seq: SeqNo::ZERO, failed: None };
    if let Some(error) = files.renamed(env, dir, from) {
        log.lost(error, 0);
    }
    let mut expected = match named_to {
        Some(_) => from,
        // The number of the first segment is unknown.
        None => numbers.first().copied().unwrap_or(from),
    };
    for (i, &number) in numbers.iter().enumerate() {
        if number != expected {
            log.missing(dir, expected, number - 1);
        }
        expected = number.saturating_add(1);
        let path = file_name::segment_path(dir, number);
        let is_last = i + 1 == numbers.len();
        match read_in_pieces(env, &path) {
            Ok((bytes, holes)) => {
                let ids = (database_id, stated_id);
                walk_segment(&bytes, &holes, number, ids, (env, &path), &mut |piece| {
                    log.take(piece, &path, is_last)
                });
            }
            Err(error) => {
                log.drop_unfinished("the segment after its beginning cannot be read");
                log.lost(error, 0);
            }
        }
        if let Some(error) = log.failed {
            return Err(error);
        }
    }
    if let Some(first) = files.first_lost(expected, named_to) {
        log.missing(dir, first, named_to.unwrap_or(first));
        log.failed.take().map_or(Ok(()), Err)?;
    }
    if let Some(Unfinished { path, offset, payload, .. }) = log.unfinished.take() {
        (log.each)(LogPiece::Torn { path: &path, offset, bytes: payload.len() as u64 })?;
    }
    Ok(numbers.len() as u64)
}

/// A commit whose last fragment has not been read yet.
struct Unfinished {
    seq: SeqNo,
    payload: Vec<u8>,
    path: PathBuf,
    offset: u64,
}

struct Salvage<'a> {
    each: &'a mut dyn FnMut(LogPiece<'_>) -> Result<()>,
    database_id: Option<u32>,
    /// Whether the current segment belongs to another database and is skipped.
    foreign: bool,
    unfinished: Option<Unfinished>,
    last_seq: SeqNo,
    /// The first error of `each`.
    failed: Option<Error>,
}

impl Salvage<'_> {
    fn give(&mut self, piece: LogPiece<'_>) {
        if self.failed.is_none() {
            self.failed = (self.each)(piece).err();
        }
    }

    fn lost(&mut self, error: Error, bytes: u64) {
        self.give(LogPiece::Lost { error, bytes });
    }

    fn missing(&mut self, dir: &Path, first: u64, last: u64) {
        let detail = match first == last {
            true => format!("segment {first} is missing"),
            false => format!("segments {first} to {last} are missing"),
        };
        self.lost(Error::corrupt("WAL", file_name::segment_path(dir, first), 0, detail), 0);
        self.drop_unfinished("the segments with its other parts are missing");
    }

    fn drop_unfinished(&mut self, detail: &str) {
        if let Some(Unfinished { seq, payload, path, offset }) = self.unfinished.take() {
            let error =
                Error::corrupt("WAL record", path, offset, format!("commit {seq} is incomplete: {detail}"));
            self.lost(error, payload.len() as u64);
        }
    }

    fn take(&mut self, piece: SegmentPiece<'_>, path: &Path, is_last: bool) {
        match piece {
            SegmentPiece::Header(header) => self.begin_segment(header, path),
            _ if self.foreign => {}
            SegmentPiece::End { .. } => {}
            SegmentPiece::Damage { offset, bytes, detail } => {
                self.drop_unfinished("damage follows its beginning");
                self.lost(Error::corrupt("WAL record", path, offset, detail), bytes);
            }
            SegmentPiece::Tail { offset, cut: true, .. } if is_last => {
                self.drop_unfinished("its segment was cut");
                self.lost(Error::corrupt("WAL segment", path, offset, CUT), 0);
            }
            SegmentPiece::Tail { offset, torn_bytes, .. } if is_last => {
                if torn_bytes > 0 {
                    self.give(LogPiece::Torn { path, offset, bytes: torn_bytes });
                }
            }
            SegmentPiece::Tail { offset, torn_bytes, .. } => {
                let detail = "no valid record and no end record follow, but a newer segment does";
                self.drop_unfinished("its segment ends in damage");
                self.lost(Error::corrupt("WAL record", path, offset, detail), torn_bytes);
            }
            SegmentPiece::Record { offset, kind, seq, payload, .. } => {
                self.fragment((offset, kind, seq, payload), path);
            }
        }
    }

    fn begin_segment(&mut self, header: Result<SegmentHeader>, path: &Path) {
        self.foreign = false;
        match header {
            Ok(header) if header.is_foreign(self.database_id) => {
                self.foreign = true;
                self.drop_unfinished("a segment of another database follows its beginning");
                let detail = "the segment is part of the log of another database and is skipped";
                self.lost(Error::corrupt("WAL segment header", path, 0, detail), 0);
            }
            Ok(_) => {}
            // A newer version wrote the segment, or its key is not here. Its records cannot be read.
            Err(error @ (Error::UnsupportedVersion { .. } | Error::Encryption { .. })) => {
                self.failed.get_or_insert(error);
            }
            Err(error) => self.lost(error, SEGMENT_HEADER_BYTES as u64),
        }
    }

    fn fragment(&mut self, (offset, kind, seq, payload): (u64, &str, SeqNo, &[u8]), path: &Path) {
        let starts = matches!(kind, "full" | "first");
        if starts || self.unfinished.as_ref().is_some_and(|record| record.seq != seq) {
            self.drop_unfinished("another commit follows its beginning");
        }
        if seq <= self.last_seq {
            let detail = format!("commit {seq} follows commit {}", self.last_seq);
            return self.lost(Error::corrupt("WAL record", path, offset, detail), payload.len() as u64);
        }
        match (kind, &mut self.unfinished) {
            ("full", _) => {
                self.last_seq = seq;
                self.give(LogPiece::Commit { seq, payload, path, offset });
            }
            ("first", _) => {
                let (payload, path) = (payload.to_vec(), path.to_path_buf());
                self.unfinished = Some(Unfinished { seq, payload, path, offset });
            }
            (_, None) => {
                let detail = format!("commit {seq} is incomplete: its beginning is missing");
                self.lost(Error::corrupt("WAL record", path, offset, detail), payload.len() as u64);
            }
            (_, Some(record)) => {
                record.payload.extend_from_slice(payload);
                if kind == "last"
                    && let Some(record) = self.unfinished.take()
                {
                    self.last_seq = seq;
                    let Unfinished { payload, path, offset, .. } = &record;
                    self.give(LogPiece::Commit { seq, payload, path, offset: *offset });
                }
            }
        }
    }
}
