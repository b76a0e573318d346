//! Fuzzing entry points: any bytes as a segment, and as a log of several segments.
//!
//! ```text
//!   bytes --as they are, and with all checksums made right--> replay_segment
//!   bytes --split--> segments --as they are, and with all checksums made right--> verify, salvage
//! ```
//!
//! What recovery replays, repair must find.

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, MemFs, OpenOptions};

use super::assembly::Assembly;
use super::file_name;
use super::files::LogExtent;
use super::format::{self, Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use super::recovery::{Replayed, replay_segment, verify};
use super::salvage::{LogPiece, salvage};
use crate::encoding::bytes::ByteReader;
use crate::encoding::checksum::crc32c;
use crate::encryption::Seal;
use crate::types::{Error, SeqNo};

/// Number of the log's first segment.
const GENERATION: u64 = 1;
/// Logs have at most eight segments: the choices byte can leave out any of the first seven.
const SEGMENTS_MAX: usize = 8;
const KINDS: [Kind; 5] = [Kind::Full, Kind::First, Kind::Middle, Kind::Last, Kind::End];

/// Reads the bytes as segment 1. Must not panic.
pub fn wal_segment(bytes: &[u8]) {
    replay(bytes);
    let mut bytes = bytes.to_vec();
    repair(&mut bytes, GENERATION);
    replay(&bytes);
}

fn replay(bytes: &[u8]) {
    let path = Path::new("000001.wal");
    let Ok(header) = SegmentHeader::decode(bytes, GENERATION, path) else { return };
    for is_last in [false, true] {
        // The fuzzer looks for panics; most inputs are refused.
        let _ = replay_segment(
            &Replayed { bytes, header, seal: Seal::default(), path },
            LogExtent { database_id: Some(1), ..LogExtent::default() },
            is_last,
            &mut Assembly::new(|_, _| Ok(())),
        );
    }
}

/// Input: a byte of choices, then segments, each after its length in two bytes; the last segment takes the
/// rest. Recovery and repair read them as a log. The choices select:
///
/// ```text
///   bits 0 to 2   the missing segment; 0: none
///   bits 3 and 4  the last segment that the manifest names: 0 unknown; 1 the second to last; 2 the last;
///                 3 a missing one
///   bit 5         whether the log is needed from segment 2 on, not 1
///   bit 6         whether the database has an id: 1
///   bit 7         whether commit 3 was durable
/// ```
pub fn salvage_log(bytes: &[u8]) {
    let Some((&choices, rest)) = bytes.split_first() else { return };
    let mut segments = split(rest);
    read_log(choices, &segments);
    for (number, segment) in (GENERATION..).zip(&mut segments) {
        repair(segment, number);
    }
    read_log(choices, &segments);
}

fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = ByteReader::new(bytes);
    let mut segments = Vec::new();
    while let Ok(len) = reader.u16() {
        let len = u64::from(len).min(reader.remaining() as u64);
        segments.push(reader.take(len).expect("as many as remain").to_vec());
        if segments.len() == SEGMENTS_MAX {
            break;
        }
    }
    if let Some(last) = segments.last_mut() {
        last.extend_from_slice(reader.rest());
    }
    segments
}

/// The commits of a log with their numbers.
type Commits = Vec<(SeqNo, Vec<u8>)>;

fn read_log(choices: u8, segments: &[Vec<u8>]) {
    let (env, dir) = (Env::simulated(Arc::new(MemFs::new()), 1), Path::new("db"));
    env.fs.create_dir_all(dir).expect("memory does not fail");
    for (number, bytes) in (GENERATION..).zip(segments) {
        if number != u64::from(choices & 7) {
            let path = file_name::segment_path(dir, number);
            let file = env.fs.open(&path, OpenOptions::create_new()).expect("memory does not fail");
            file.write_all_at(bytes, 0).expect("memory does not fail");
        }
    }
    let named_to = u64::from(choices >> 3 & 3).checked_sub(1).map(|n| (segments.len() as u64 + n).max(1) - 1);
    let extent = LogExtent {
        from: 1 + u64::from(choices >> 5 & 1),
        named_to,
        durable_to: (choices >> 7 == 1).then_some(SeqNo::new(3)),
        database_id: (choices >> 6 & 1 == 1).then_some(1),
        ends_before: None,
    };

    let mut replayed = Commits::new();
    let recovered = verify(&env, dir, extent, |seq, payload| {
        replayed.push((seq, payload.to_vec()));
        Ok(())
    });
    let (mut found, mut losses) = (Commits::new(), 0);
    let salvaged = salvage(&env, dir, extent, &mut |piece| {
        match piece {
            LogPiece::Commit { seq, payload, .. } => {
                assert!(found.last().is_none_or(|last| last.0 < seq), "wal_salvage.2");
                found.push((seq, payload.to_vec()));
            }
            LogPiece::Lost { .. } => losses += 1,
            LogPiece::Torn { .. } => {}
        }
        Ok(())
    });
    if let Err(error) = salvaged {
        assert!(matches!(error, Error::UnsupportedVersion { .. }), "repair goes on: {error}");
    }
    assert!(found.starts_with(&replayed), "repair finds what recovery replays");
    let Ok(recovered) = recovered else { return };
    assert!(recovered.records == replayed.len() as u64);
    if recovered.trimmed_bytes == 0 {
        assert_eq!((losses, found.len()), (0, replayed.len()), "nothing is damaged");
    }
    // recovery.3: the log that `finish` has written ends at the cut, with an `End` record.
    recovered.finish(&env, dir).expect("memory does not fail");
    let extent = LogExtent { named_to: recovered.named_to(), ..extent };
    let mut again = Commits::new();
    let finished = verify(&env, dir, extent, |seq, payload| {
        again.push((seq, payload.to_vec()));
        Ok(())
    });
    let finished = finished.expect("recovery.3");
    assert_eq!((finished.trimmed_bytes, again), (0, replayed), "recovery.3");
}

/// Gives the segment a valid header, and valid checksums to each record that the length fields describe, so
/// that mutations reach the code after these checks. Records whose kind is 7 modulo 8 stay invalid, so that
/// recovery has to search after them.
fn repair(bytes: &mut [u8], generation: u64) {
    if bytes.len() < SEGMENT_HEADER_BYTES {
        return;
    }
    let made_bytes = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    let header = SegmentHeader {
        number: generation,
        made_bytes: made_bytes % (2 * bytes.len() as u32),
        database_id: u32::from(bytes[24] % 3),
        is_sealed: false,
    };
    bytes[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
    let stamp = header.stamp();
    let mut at = SEGMENT_HEADER_BYTES;
    while at + RECORD_HEADER_BYTES <= bytes.len() {
        let (head, rest) = bytes[at..].split_at_mut(RECORD_HEADER_BYTES);
        let number = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let payload_len = number(8) % (rest.len() as u32 + 1);
        let byte = usize::from(head[RECORD_HEADER_BYTES - 1]);
        let kind = KINDS[(byte + KINDS.len() - 1) % KINDS.len()];
        let header = RecordHeader {
            kind,
            seq: SeqNo::new(u64::from(number(16))),
            synced_to: number(12),
            payload_len,
            payload_crc: crc32c(&rest[..payload_len as usize]),
        };
        if byte % 8 != 7 {
            head.copy_from_slice(&header.encode(stamp));
        }
        at += format::padded(RECORD_HEADER_BYTES + payload_len as usize);
    }
}

/// Returns valid segments: finished, torn, and with a record in fragments.
pub fn segments() -> Vec<Vec<u8>> {
    let small: &[u8] = b"payload";
    let large = [b'x'; 300];
    let plain = [(Kind::Full, 1, small), (Kind::Full, 2, &[]), (Kind::Full, 9, &large), (Kind::End, 9, &[])];
    let fragments =
        [(Kind::First, 4, small), (Kind::Middle, 4, &large), (Kind::Last, 4, small), (Kind::Full, 5, small)];
    let mut ahead = segment(GENERATION, &fragments);
    ahead.resize(ahead.len() + 1_000, 0);
    let mut torn = segment(GENERATION, &plain[..3]);
    torn.truncate(torn.len() - 100);
    let cut = made_with(4096, &torn);
    let closed = made_with(4096, &segment(GENERATION, &plain));
    vec![segment(GENERATION, &plain), segment(GENERATION, &fragments), ahead, torn, cut, closed]
}

/// Returns valid logs in the format of [`salvage_log`]: a commit over three segments, a torn end, a hole, a
/// lost segment, and a lost end.
pub fn logs() -> Vec<Vec<u8>> {
    let small: &[u8] = b"payload";
    let large = [b'x'; 90];
    let first = segment(1, &[(Kind::Full, 1, small), (Kind::First, 2, &large), (Kind::End, 1, &[])]);
    let second = segment(2, &[(Kind::Middle, 2, &large), (Kind::End, 1, &[])]);
    let third = segment(3, &[(Kind::Last, 2, small), (Kind::Full, 3, small), (Kind::Full, 7, &large)]);
    let ended = segment(3, &[(Kind::Last, 2, small), (Kind::End, 2, &[])]);
    let alone = segment(2, &[(Kind::Full, 3, small), (Kind::Full, 4, &large), (Kind::End, 4, &[])]);
    let torn = &third[..third.len() - 30];
    vec![
        log(0, &[&first, &second, &third]),
        log(2 << 3, &[&first, &second, &ended]),
        log(2 << 3, &[&first, &second, torn]),
        log(0, &[&first, &second]),
        log(2, &[&first, &second, &third]),
        log(3 << 3, &[&first, &second, &ended]),
        log(1 << 5 | 2 << 3, &[&first, &alone]),
        log(1 << 7 | 1 << 6 | 2 << 3, &[&first, &second, &ended]),
        log(1 << 7 | 1 << 6 | 2 << 3, &[&first, &second, &third]),
        log(2 << 3, &[&first, &second, &made_with(4096, torn)]),
    ]
}

fn log(choices: u8, segments: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![choices];
    for segment in segments {
        out.extend_from_slice(&(segment.len() as u16).to_le_bytes());
        out.extend_from_slice(segment);
    }
    out
}

/// Returns the segment with a header that says its file was made with `made_bytes`.
fn made_with(made_bytes: u32, segment: &[u8]) -> Vec<u8> {
    let number = u64::from_le_bytes(*segment[16..].first_chunk().expect("a header"));
    let header = SegmentHeader { number, made_bytes, database_id: 1, is_sealed: false };
    [&header.encode(), &segment[SEGMENT_HEADER_BYTES..]].concat()
}

fn segment(generation: u64, records: &[(Kind, u64, &[u8])]) -> Vec<u8> {
    let header = SegmentHeader { number: generation, made_bytes: 0, database_id: 1, is_sealed: false };
    let (mut out, stamp) = (header.encode().to_vec(), header.stamp());
    for &(kind, seq, payload) in records {
        let header = RecordHeader {
            kind,
            seq: SeqNo::new(seq),
            synced_to: out.len() as u32,
            payload_len: payload.len() as u32,
            payload_crc: crc32c(payload),
        };
        out.extend_from_slice(&header.encode(stamp));
        out.extend_from_slice(payload);
        out.resize(format::padded(out.len()), 0);
    }
    out
}
