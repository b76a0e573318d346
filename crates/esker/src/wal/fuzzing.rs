//! Entry for fuzzers: any bytes as a segment of a log.
//!
//! ```text
//!   bytes --as they are, and with all checksums made right--> replay_segment
//! ```

use std::path::Path;

use super::format::{self, Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES};
use super::recovery::{Assembly, replay_segment};
use super::segment::SegmentBytes;
use crate::encoding::checksum::crc32c;
use crate::types::SeqNo;

const GENERATION: u64 = 1;
const KINDS: [Kind; 5] = [Kind::Full, Kind::First, Kind::Middle, Kind::Last, Kind::End];

/// Reads the bytes as segment 1; must not panic.
pub fn wal_segment(bytes: &[u8]) {
    replay(bytes);
    let mut bytes = bytes.to_vec();
    repair(&mut bytes);
    replay(&bytes);
}

fn replay(bytes: &[u8]) {
    let segment = SegmentBytes { bytes, generation: GENERATION };
    for is_last in [false, true] {
        // The fuzzer looks for panics; that most inputs are refused is expected.
        let _ = replay_segment(segment, Path::new("000001.wal"), is_last, &mut Assembly::new(|_, _| Ok(())));
    }
}

/// Gives the segment a valid header and each record that its lengths describe valid checksums, so that mutations
/// reach the code behind them. Records whose kind is 7 modulo 8 stay invalid: recovery has to search behind
/// them.
fn repair(bytes: &mut [u8]) {
    if bytes.len() < SEGMENT_HEADER_BYTES {
        return;
    }
    bytes[..SEGMENT_HEADER_BYTES].copy_from_slice(&format::encode_segment_header(GENERATION));
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
            head.copy_from_slice(&header.encode(GENERATION));
        }
        at += format::padded(RECORD_HEADER_BYTES + payload_len as usize);
    }
}

/// Valid segments: ended, torn, with a record in fragments.
pub fn segments() -> Vec<Vec<u8>> {
    let small: &[u8] = b"payload";
    let large = [b'x'; 300];
    let plain = [(Kind::Full, 1, small), (Kind::Full, 2, &[]), (Kind::Full, 9, &large), (Kind::End, 9, &[])];
    let fragments =
        [(Kind::First, 4, small), (Kind::Middle, 4, &large), (Kind::Last, 4, small), (Kind::Full, 5, small)];
    let mut ahead = segment(&fragments);
    ahead.resize(ahead.len() + 1_000, 0);
    let mut torn = segment(&plain[..3]);
    torn.truncate(torn.len() - 100);
    vec![segment(&plain), segment(&fragments), ahead, torn]
}

fn segment(records: &[(Kind, u64, &[u8])]) -> Vec<u8> {
    let mut out = format::encode_segment_header(GENERATION).to_vec();
    for &(kind, seq, payload) in records {
        let header = RecordHeader {
            kind,
            seq: SeqNo::new(seq),
            synced_to: out.len() as u32,
            payload_len: payload.len() as u32,
            payload_crc: crc32c(payload),
        };
        out.extend_from_slice(&header.encode(GENERATION));
        out.extend_from_slice(payload);
        out.resize(format::padded(out.len()), 0);
    }
    out
}
