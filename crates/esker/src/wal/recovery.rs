//! Recovery: replays the log after a crash or a clean close, and leaves it ready for a new writer.
//!
//! ```text
//!   000007.wal 000008.wal --records, in order--> caller
//!        last one without End? --> evidence: torn tail --> cut and finished with an End record
//!                                            damage    --> Error::Corrupt, nothing is changed
//! ```
//!
//! R1. Every record that was acknowledged as durable is replayed, or recovery fails; the one exception is damage to
//!     the very last synced records of the log, which looks like a torn write (docs/formats/wal.md).
//! R2. What is replayed is a prefix of what was appended.
//! R3. When `recover` returns, every segment ends in an `End` record, durably: a later recovery, with newer segments
//!     behind, does not take the old tear for damage. Stopped half-way, it can be run again.
//! R4. What was replayed is durable when `recover` returns, and before an `End` says so. A killed process leaves
//!     records that can be read and were never synced: a power loss may still take them.
//! R5. Nothing is deleted on the word of a manifest that was only read: its last edit, too, may not be durable.
//!     `remove_obsolete` is for the time after the next manifest is in force.

use std::path::Path;

use esker_env::{Env, OpenOptions, read_range};

use super::file_name;
use super::format::{self, Kind, RecordHeader, SEGMENT_BYTES_LIMIT, SEGMENT_HEADER_BYTES};
use super::segment::{Found, SegmentBytes};
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result, SeqNo};

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Records replayed.
    pub records: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Bytes of unfinished, never acknowledged records at the log's end, as far as their headers are left.
    pub trimmed_bytes: u64,
    /// The sequence number of the last record; zero if there is none.
    pub last_seq: SeqNo,
    /// The number for the writer's first segment.
    pub next_segment: u64,
    /// The segments that hold the records: give them to the writer, which deletes them when they are obsolete.
    pub segments: Vec<u64>,
}

/// Replays the log from `from_segment` on, then makes it ready for a writer: syncs what is there (R4) and finishes a
/// torn tail (R3). If the log has segments from `from_segment` on, `from_segment` must be there. What `on_record` finds
/// wrong with a record becomes an [`Error::Corrupt`] at its place.
pub(crate) fn recover(
    env: &Env,
    dir: &Path,
    from_segment: u64,
    on_record: impl FnMut(SeqNo, &[u8]) -> Result<(), String>,
) -> Result<Recovered> {
    let replay = replay(env, dir, from_segment, on_record)?;
    // W3: the segments before the last were synced when it got its name.
    let last = replay.recovered.segments.last().filter(|_| !canary::is_set(Canary::WalTailNotSynced));
    if let Some(&last) = last {
        let path = file_name::segment_path(dir, last);
        let sync = || env.fs.open(&path, OpenOptions::write())?.sync_data();
        sync().map_err(|e| Error::io("sync", &path, e))?;
    }
    if let Some(cut) = &replay.cut {
        apply_cut(env, dir, cut)?;
    }
    Ok(replay.recovered)
}

/// Deletes the segments before `from_segment`, which must be obsolete, durably (R5), and the spares.
pub(crate) fn remove_obsolete(env: &Env, dir: &Path, from_segment: u64) -> Result<()> {
    for name in list(env, dir)? {
        let obsolete = file_name::parse_segment(&name).is_some_and(|number| number < from_segment);
        if obsolete || file_name::is_spare(&name) {
            let path = dir.join(name);
            env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
    }
    Ok(())
}

/// The same without changing anything.
pub(crate) fn verify(
    env: &Env,
    dir: &Path,
    from_segment: u64,
    on_record: impl FnMut(SeqNo, &[u8]) -> Result<(), String>,
) -> Result<Recovered> {
    Ok(replay(env, dir, from_segment, on_record)?.recovered)
}

/// Where the log is to end.
struct Cut {
    segment: u64,
    offset: usize,
    last_seq: SeqNo,
    /// Segments behind it, which hold nothing but rests of the record that is dropped.
    dropped: Vec<u64>,
}

struct Replay {
    recovered: Recovered,
    cut: Option<Cut>,
}

fn list(env: &Env, dir: &Path) -> Result<Vec<String>> {
    env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))
}

fn replay(
    env: &Env,
    dir: &Path,
    from_segment: u64,
    on_record: impl FnMut(SeqNo, &[u8]) -> Result<(), String>,
) -> Result<Replay> {
    let mut segments: Vec<u64> = list(env, dir)?
        .iter()
        .filter_map(|name| file_name::parse_segment(name))
        .filter(|number| *number >= from_segment)
        .collect();
    segments.sort_unstable();
    if let Some((missing, _)) = (from_segment..).zip(&segments).find(|(expected, found)| expected != *found) {
        let path = file_name::segment_path(dir, missing);
        let detail =
            "the segment is missing, and newer ones are there; restore a backup or run `esker repair`";
        return Err(Error::corrupt("WAL", path, 0, detail));
    }

    let mut assembly = Assembly::new(on_record);
    let mut cut_at = None;
    for (i, &number) in segments.iter().enumerate() {
        let path = file_name::segment_path(dir, number);
        let bytes = read_segment(env, &path)?;
        let segment = SegmentBytes { bytes: &bytes, generation: number };
        let is_last = i + 1 == segments.len();
        if let Some(offset) = replay_segment(segment, &path, is_last, &mut assembly)? {
            cut_at = Some((number, offset));
        }
    }
    if let Some(unfinished) = &assembly.unfinished {
        assembly.recovered.trimmed_bytes += unfinished.payload.len() as u64;
        cut_at = Some((unfinished.segment, unfinished.offset));
    }

    let mut recovered = assembly.recovered;
    let dropped = match cut_at {
        Some((number, _)) => segments.split_off(segments.partition_point(|n| *n <= number)),
        None => Vec::new(),
    };
    recovered.next_segment = segments.last().map_or(from_segment, |last| last + 1);
    recovered.segments = segments;
    let cut = cut_at.map(|(segment, offset)| Cut { segment, offset, last_seq: recovered.last_seq, dropped });
    Ok(Replay { recovered, cut })
}

pub(super) fn read_segment(env: &Env, path: &Path) -> Result<Vec<u8>> {
    let read = || {
        let file = env.fs.open(path, OpenOptions::read())?;
        let len = file.len()?;
        if len > SEGMENT_BYTES_LIMIT { Ok(None) } else { read_range(&*file, 0, len as usize).map(Some) }
    };
    match read().map_err(|e| Error::io("read", path, e))? {
        Some(bytes) => Ok(bytes),
        None => Err(Error::corrupt("WAL segment", path, SEGMENT_BYTES_LIMIT, "no segment is that long")),
    }
}

/// Replays one segment; returns the offset where the log ends if the segment has no `End`.
pub(super) fn replay_segment<F: FnMut(SeqNo, &[u8]) -> Result<(), String>>(
    segment: SegmentBytes<'_>,
    path: &Path,
    is_last: bool,
    assembly: &mut Assembly<F>,
) -> Result<Option<usize>> {
    format::check_segment_header(segment.bytes, segment.generation, path)?;
    let corrupt = |offset: usize, detail: &str| {
        let advice = "acknowledged commits are damaged: restore a backup or run `esker repair`";
        Error::corrupt("WAL record", path, offset as u64, format!("{detail}; {advice}"))
    };
    let mut offset = SEGMENT_HEADER_BYTES;
    loop {
        match segment.at(offset) {
            Found::End => return Ok(None),
            Found::Record { header, payload, next } => {
                assembly
                    .add(header, payload, (segment.generation, offset))
                    .map_err(|detail| corrupt(offset, &detail))?;
                offset = next;
            }
            Found::Invalid { detail, .. } if !is_last => {
                return Err(corrupt(offset, &format!("{detail}, and a newer segment follows")));
            }
            Found::Invalid { header, detail } => {
                let evidence = segment.evidence(offset, header);
                if let Some(proof) = evidence.proof_of_damage {
                    let detail =
                        format!("{detail}, but the record at offset {proof} was written after it was synced");
                    return Err(corrupt(offset, &detail));
                }
                assembly.recovered.trimmed_bytes += (evidence.remains_end - offset) as u64;
                return Ok(Some(offset));
            }
        }
    }
}

/// Finishes the log at the cut, durably (R3).
fn apply_cut(env: &Env, dir: &Path, cut: &Cut) -> Result<()> {
    // The newest first, each durably: what a crash leaves has no hole.
    for &number in cut.dropped.iter().rev() {
        let path = file_name::segment_path(dir, number);
        env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        env.fs.sync_dir(dir).map_err(|e| Error::io("sync directory", dir, e))?;
    }
    let path = file_name::segment_path(dir, cut.segment);
    let end = RecordHeader::end(cut.last_seq, cut.offset as u32).encode(cut.segment);
    let finish = || {
        let file = env.fs.open(&path, OpenOptions::write())?;
        file.write_all_at(&end, cut.offset as u64)?;
        file.set_len((cut.offset + end.len()) as u64)?;
        file.sync_data()
    };
    finish().map_err(|e| Error::io("finish a torn tail in", &path, e))
}

/// Puts logical records together from their fragments, and hands them on.
pub(super) struct Assembly<F> {
    on_record: F,
    unfinished: Option<Unfinished>,
    recovered: Recovered,
}

/// A logical record of which fragments are missing so far.
struct Unfinished {
    seq: SeqNo,
    payload: Vec<u8>,
    segment: u64,
    offset: usize,
}

impl<F: FnMut(SeqNo, &[u8]) -> Result<(), String>> Assembly<F> {
    pub(super) fn new(on_record: F) -> Self {
        Assembly { on_record, unfinished: None, recovered: Recovered::default() }
    }

    /// Takes a fragment; an error says why it, or the record that it completes, does not belong here.
    fn add(&mut self, header: RecordHeader, payload: &[u8], at: (u64, usize)) -> Result<(), String> {
        let starts = matches!(header.kind, Kind::Full | Kind::First);
        match self.unfinished.take() {
            None if !starts => Err("a fragment without its beginning".to_owned()),
            Some(_) if starts => Err("the record before is not finished".to_owned()),
            Some(record) if record.seq != header.seq => Err("a fragment of another record".to_owned()),
            _ if starts && header.seq <= self.recovered.last_seq => {
                Err("sequence numbers do not increase".to_owned())
            }
            None if header.kind == Kind::Full => self.deliver(header.seq, payload),
            None => {
                let (segment, offset) = at;
                let payload = payload.to_vec();
                self.unfinished = Some(Unfinished { seq: header.seq, payload, segment, offset });
                Ok(())
            }
            Some(mut record) => {
                record.payload.extend_from_slice(payload);
                if header.kind == Kind::Last {
                    return self.deliver(record.seq, &record.payload);
                }
                self.unfinished = Some(record);
                Ok(())
            }
        }
    }

    fn deliver(&mut self, seq: SeqNo, payload: &[u8]) -> Result<(), String> {
        (self.on_record)(seq, payload)?;
        self.recovered.records += 1;
        self.recovered.bytes += payload.len() as u64;
        self.recovered.last_seq = seq;
        Ok(())
    }
}
