//! Recovery: replays the log after a crash or a clean close, and prepares it for a new writer.
//!
//! ```text
//!   000007.wal 000008.wal --records, in order--> caller
//!        last one without End? --> evidence: torn tail --> cut and finished with an End record
//!                                            damage    --> Error::Corrupt, nothing is changed
//! ```
//!
//! recovery.1. Recovery replays every record that was acknowledged as durable, or fails. Exception: damage to
//!     the last synced records of a log that was not closed looks like a torn write (docs/formats/wal.md).
//! recovery.2. The replayed records are a prefix of the appended ones.
//! recovery.3. When `Recovered::finish` returns, every segment durably ends in an `End` record. A later
//!     recovery, which finds newer segments, then does not take the old tear for damage. If recovery is
//!     interrupted, it can be run again.
//! recovery.4. Replayed records are durable when `recover` returns, and before an `End` record says so. A
//!     killed process leaves readable records that were never synced. After a failed sync the system may even
//!     regard them as written, so that another sync does nothing. Recovery therefore writes the same bytes
//!     again, except those that a later record or `End` proves durable. If only an `End` may not be durable,
//!     the writer writes it again before its first segment gets a name (wal.3).
//! recovery.5. Nothing is deleted because of a manifest edit that may not be durable. `finish`,
//!     `remove_obsolete` and `remove_unused` are called only after the manifest is durable.
//! recovery.6. Each segment that the manifest names exists, or its prepared file does (pool.4); otherwise
//!     recovery fails. The current manifest does not name what recovery.5 deletes.
//! recovery.7. Recovery refuses a log that ends before a commit that the manifest records as durable, a
//!     truncated and unfinished last segment, and a segment of another database (wal.8).
//! recovery.8. An obsolete segment that cannot be deleted does not fail recovery; the writer tries again
//!     after each flush. It is never taken for a live one: recovery reads no segment before the first needed
//!     one, and that number never decreases. Its number is not reused. Its file is not recycled, and its
//!     records are valid under its own number only (wal.4). Spares and prepared files must be deleted,
//!     because their names are reused. Exception: a prepared file that the writer may put to use (pool.10).
//! recovery.9. A record that points to incomplete data and is not known to be durable ends the log like a
//!     torn record. That data is synced with or before the record (sync.3), so neither this record nor a
//!     later one was acknowledged as durable.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use esker_env::{Env, OpenOptions, read_range};

use super::assembly::Assembly;
use super::file_name;
use super::files::{LogExtent, LogFiles, next_number};
use super::format::{Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_BYTES_LIMIT, SegmentHeader};
use super::segment::{Found, SegmentBytes};
use crate::encryption::Seal;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result, SeqNo};

/// Result of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Number of records replayed.
    pub records: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Bytes of unfinished, never acknowledged records at the log's end, if their headers are readable.
    pub trimmed_bytes: u64,
    /// The sequence number of the last record; zero if there is none.
    pub last_seq: SeqNo,
    /// Number for the writer's first segment.
    pub next_segment: u64,
    /// The segments that hold the records. The writer deletes them when they are obsolete.
    pub segments: Vec<u64>,
    /// Where to cut the log, if it is torn.
    cut: Option<Cut>,
    /// The `End` of a log whose records are all durable, for the writer to write again (recovery.4).
    pub(super) end: Option<EndOfLog>,
}

/// Bytes at the end of the log's last segment that may not be durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndOfLog {
    /// Its segment.
    pub(super) segment: u64,
    path: PathBuf,
    offset: usize,
    bytes: Vec<u8>,
}

impl EndOfLog {
    /// Writes the bytes again and syncs them. Each retry writes them again, too.
    pub(super) fn store(&self, env: &Env) -> Result<()> {
        let store = || {
            let file = env.fs.open(&self.path, OpenOptions::write())?;
            file.write_all_at(&self.bytes, self.offset as u64)?;
            file.sync_data()
        };
        store().map_err(|e| Error::io("make durable", &self.path, e))
    }
}

/// Error detail for a last segment that [`SegmentHeader::is_cut`].
pub(crate) const CUT: &str = "no record follows, and the file is shorter than when it was made: it was cut";
/// Advice for a log that has lost data.
const ADVICE: &str = "restore a backup or run `esker repair`";

/// Replays the log and makes its records durable (recovery.4). If there are segments, the first needed one
/// must exist. An error from `on_record` becomes [`Error::Corrupt`]. Call [`Recovered::finish`] afterwards.
pub(crate) fn recover(
    env: &Env,
    dir: &Path,
    extent: LogExtent,
    on_record: impl FnMut(SeqNo, Cow<'_, [u8]>) -> Result<(), String>,
) -> Result<Recovered> {
    let (mut recovered, tail) = read_log(env, dir, extent, on_record)?;
    // wal.3: the segments before the last one are durable.
    if let Some(tail) = tail.filter(|_| !canary::is_set(Canary::WalTailNotSynced)) {
        let (records_end, synced_to) = (tail.records_end, tail.synced_to.min(tail.records_end));
        if tail.synced_to == 0 {
            // No record proves that the segment's name is durable (wal.1).
            env.fs.sync_dir(dir).map_err(|e| Error::io("sync directory", dir, e))?;
        }
        let end = EndOfLog {
            segment: tail.segment,
            path: tail.path,
            offset: synced_to,
            bytes: tail.bytes[synced_to..].to_vec(),
        };
        if synced_to < records_end {
            end.store(env)?;
        } else if !end.bytes.is_empty() {
            recovered.end = Some(end);
        }
    }
    Ok(recovered)
}

/// The last segment as it was read.
struct Tail {
    segment: u64,
    path: PathBuf,
    /// Its bytes up to its end, including its `End`.
    bytes: Vec<u8>,
    /// Where its last record ends.
    records_end: usize,
    /// Its records state that everything before this offset is durable.
    synced_to: usize,
}

impl Recovered {
    /// Returns whether the log must be changed before a writer can follow.
    pub(crate) fn is_torn(&self) -> bool {
        self.cut.is_some()
    }

    /// Returns the newest segment that is kept, which the next manifest must name.
    pub(crate) fn named_to(&self) -> Option<u64> {
        self.segments.last().copied()
    }

    /// Finishes a torn tail (recovery.3). Call it once a manifest that names [`named_to`](Self::named_to) is
    /// current. Deletes segments after the cut, which hold only fragments of the dropped record.
    pub(crate) fn finish(&self, env: &Env, dir: &Path) -> Result<()> {
        self.cut.as_ref().map_or(Ok(()), |cut| apply_cut(env, dir, cut))
    }
}

/// Where to end a torn log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    segment: u64,
    /// Initial input of its records' checksums.
    stamp: u64,
    offset: usize,
    last_seq: SeqNo,
    /// Later segments, which hold only fragments of the dropped record.
    dropped: Vec<u64>,
}

/// Replays the log without changing anything.
pub(crate) fn verify(
    env: &Env,
    dir: &Path,
    extent: LogExtent,
    on_record: impl FnMut(SeqNo, Cow<'_, [u8]>) -> Result<(), String>,
) -> Result<Recovered> {
    Ok(read_log(env, dir, extent, on_record)?.0)
}

fn read_log(
    env: &Env,
    dir: &Path,
    extent: LogExtent,
    on_record: impl FnMut(SeqNo, Cow<'_, [u8]>) -> Result<(), String>,
) -> Result<(Recovered, Option<Tail>)> {
    let files = LogFiles::list(env, dir, extent.from)?;
    if let Some(error) = files.renamed(env, dir, extent.from) {
        return Err(error);
    }
    if let Some((number, why)) = files.first_missing(extent) {
        let detail = format!("the segment is missing, and {why}; {ADVICE}");
        return Err(Error::corrupt("WAL", file_name::segment_path(dir, number), 0, detail));
    }
    let mut segments = files.segments;
    let mut assembly = Assembly::new(on_record);
    let (mut cut_at, mut tail, mut stamps) = (None, None, BTreeMap::new());
    for (i, &number) in segments.iter().enumerate() {
        let path = file_name::segment_path(dir, number);
        let mut bytes = read_segment(env, &path)?;
        (assembly.end_at, assembly.synced_to) = (None, 0);
        let is_last = i + 1 == segments.len();
        let header = SegmentHeader::decode(&bytes, number, &path)?;
        stamps.insert(number, header.stamp());
        let seal = header.find_seal(env, &bytes, &path)?;
        let segment = Replayed { bytes: &bytes, header, seal, path: &path };
        let replayed = replay_segment(&segment, extent, is_last, &mut assembly)?;
        if let Some(offset) = replayed {
            cut_at = Some((number, offset));
            bytes.truncate(offset);
        }
        if let Some(end) = assembly.end_at {
            bytes.truncate(end + RECORD_HEADER_BYTES);
        }
        let records_end = assembly.end_at.unwrap_or(bytes.len());
        tail = Some(Tail { segment: number, path, bytes, records_end, synced_to: assembly.synced_to });
    }
    check_end(dir, extent, assembly.recovered.last_seq, tail.as_ref())?;
    if let Some(unfinished) = &assembly.unfinished {
        assembly.recovered.trimmed_bytes += unfinished.payload.len() as u64;
        cut_at = Some((unfinished.segment, unfinished.offset));
    }

    let mut recovered = assembly.recovered;
    let dropped = match cut_at {
        Some((number, _)) => segments.split_off(segments.partition_point(|n| *n <= number)),
        None => Vec::new(),
    };
    recovered.next_segment = next_number(&segments, extent.from);
    recovered.segments = segments;
    let last_seq = recovered.last_seq;
    recovered.cut = cut_at.map(|(segment, offset)| {
        let stamp = stamps[&segment];
        Cut { segment, stamp, offset, last_seq, dropped }
    });
    Ok((recovered, tail))
}

/// Fails if the log ends before a commit that was durable (recovery.7).
fn check_end(dir: &Path, extent: LogExtent, last: SeqNo, tail: Option<&Tail>) -> Result<()> {
    let Some(durable) = extent.durable_to.filter(|durable| last < *durable) else { return Ok(()) };
    let (path, offset) = match tail {
        Some(tail) => (tail.path.clone(), tail.bytes.len()),
        None => (file_name::segment_path(dir, extent.from), 0),
    };
    let detail = format!(
        "the log ends after commit {last}, but commit {durable} was durable when the manifest was written: its end is \
         lost; {ADVICE}"
    );
    Err(Error::corrupt("WAL", path, offset as u64, detail))
}

/// Reads a whole segment.
pub(crate) fn read_segment(env: &Env, path: &Path) -> Result<Vec<u8>> {
    let read = || {
        let file = env.fs.open(path, OpenOptions::read())?;
        let len = file.len()?;
        if len > SEGMENT_BYTES_LIMIT { Ok(None) } else { read_range(&*file, 0, len as usize).map(Some) }
    };
    match read().map_err(|e| Error::io("read", path, e))? {
        Some(bytes) => Ok(bytes),
        None => Err(Error::corrupt(
            "WAL segment",
            path,
            SEGMENT_BYTES_LIMIT,
            "the file is larger than any segment",
        )),
    }
}

/// A segment to be replayed.
pub(super) struct Replayed<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) header: SegmentHeader,
    pub(super) seal: Seal,
    pub(super) path: &'a Path,
}

/// Replays one segment. If it has no `End`, returns the offset where the log ends.
pub(super) fn replay_segment<F: FnMut(SeqNo, Cow<'_, [u8]>) -> Result<(), String>>(
    replayed: &Replayed<'_>,
    extent: LogExtent,
    is_last: bool,
    assembly: &mut Assembly<F>,
) -> Result<Option<usize>> {
    let &Replayed { bytes, header: segment_header, ref seal, path } = replayed;
    let segment = SegmentBytes { bytes, stamp: segment_header.stamp() };
    if segment_header.is_foreign(extent.database_id) {
        let detail = format!("the segment is part of the log of another database; {ADVICE}");
        return Err(Error::corrupt("WAL segment header", path, 0, detail));
    }
    let corrupt = |offset: usize, detail: &str| {
        let detail = format!("{detail}; acknowledged commits are damaged: {ADVICE}");
        Error::corrupt("WAL record", path, offset as u64, detail)
    };
    let mut offset = segment_header.records_at();
    loop {
        match segment.at(offset) {
            Found::End { synced_to } => {
                (assembly.end_at, assembly.synced_to) = (Some(offset), synced_to);
                return Ok(None);
            }
            // recovery.9
            Found::Record { header, .. } if is_last && extent.ends_before == Some(header.seq) => {
                let end = segment.evidence(offset, Some(header)).remains_end;
                assembly.recovered.trimmed_bytes += (end - offset) as u64;
                return Ok(Some(offset));
            }
            Found::Record { header, payload, next } => {
                header
                    .open_payload(seal, offset as u64, payload)
                    .and_then(|payload| assembly.add(header, &payload, (segment_header.number, offset)))
                    .map_err(|detail| corrupt(offset, &detail))?;
                assembly.synced_to = assembly.synced_to.max(header.synced_to as usize);
                offset = next;
            }
            Found::Invalid { detail, .. } if !is_last => {
                return Err(corrupt(offset, &format!("{detail}, and a newer segment follows")));
            }
            Found::Invalid { header, detail } => {
                let evidence = segment.evidence(offset, header);
                if let Some(proof) = evidence.proof_of_damage {
                    let detail = format!(
                        "{detail}, but the record at offset {proof} was written after this one was synced"
                    );
                    return Err(corrupt(offset, &detail));
                }
                if segment_header.is_cut(segment.bytes.len()) {
                    let detail = format!("{CUT}; {ADVICE}");
                    return Err(Error::corrupt("WAL segment", path, offset as u64, detail));
                }
                assembly.recovered.trimmed_bytes += (evidence.remains_end - offset) as u64;
                return Ok(Some(offset));
            }
        }
    }
}

/// Returns the first commit at the log's end that is not known to be durable and for which `is_whole` returns
/// false: the data it points to is incomplete. Such a commit ends the log like a torn record (recovery.9).
/// Fails if a later record proves that it was durable.
pub(crate) fn first_torn(
    env: &Env,
    dir: &Path,
    extent: LogExtent,
    mut is_whole: impl FnMut(SeqNo, &[u8]) -> Result<bool>,
) -> Result<Option<SeqNo>> {
    let files = LogFiles::list(env, dir, extent.from)?;
    let Some(&number) = files.segments.last() else { return Ok(None) };
    let path = file_name::segment_path(dir, number);
    let bytes = read_segment(env, &path)?;
    // The replay reports a bad header.
    let Ok(header) = SegmentHeader::decode(&bytes, number, &path) else { return Ok(None) };
    let seal = header.find_seal(env, &bytes, &path)?;
    let segment = SegmentBytes { bytes: &bytes, stamp: header.stamp() };
    let (mut offset, mut durable_to) = (header.records_at(), 0);
    loop {
        match segment.at(offset) {
            // The system may have an `End` before the bytes in front of it are durable.
            Found::End { synced_to } => {
                durable_to = durable_to.max(synced_to);
                break;
            }
            Found::Record { header, next, .. } => {
                durable_to = durable_to.max(header.synced_to as usize);
                offset = next;
            }
            Found::Invalid { .. } => break,
        }
    }
    offset = header.records_at();
    while let Found::Record { header, payload, next } = segment.at(offset) {
        // The data of a record that starts in an earlier segment was synced with that segment.
        let is_known = next <= durable_to || extent.durable_to.is_some_and(|durable| header.seq <= durable);
        // The replay reports a payload that was forged.
        let opened = || header.open_payload(&seal, offset as u64, payload);
        if !is_known
            && header.kind == Kind::Full
            && let Ok(payload) = opened()
            && !is_whole(header.seq, &payload)?
        {
            if let Some(proof) = segment.evidence(offset, Some(header)).proof_of_damage {
                let detail = format!(
                    "a blob of the commit is damaged, but the record at offset {proof} was written after it was synced; \
                     acknowledged commits are damaged: {ADVICE}"
                );
                return Err(Error::corrupt("WAL record", path, offset as u64, detail));
            }
            return Ok(Some(header.seq));
        }
        offset = next;
    }
    Ok(None)
}

/// Finishes the log at the cut, durably (recovery.3).
fn apply_cut(env: &Env, dir: &Path, cut: &Cut) -> Result<()> {
    // Newest first and each durably, so that a crash leaves no hole.
    for &number in cut.dropped.iter().rev() {
        let path = file_name::segment_path(dir, number);
        env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        env.fs.sync_dir(dir).map_err(|e| Error::io("sync directory", dir, e))?;
    }
    let path = file_name::segment_path(dir, cut.segment);
    let end = RecordHeader::end(cut.last_seq, cut.offset as u32).encode(cut.stamp);
    let finish = || {
        let file = env.fs.open(&path, OpenOptions::write())?;
        file.write_all_at(&end, cut.offset as u64)?;
        // The `End` must be durable before the file shrinks. A shorter file would look truncated
        // (recovery.7).
        file.sync_data()?;
        // Not synced: a longer file also ends at its `End`.
        file.set_len((cut.offset + end.len()) as u64)
    };
    finish().map_err(|e| Error::io("finish a torn tail in", &path, e))
}
