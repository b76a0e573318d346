//! Entry for fuzzers: any bytes as the last segment of a log.

use std::path::Path;

use super::recovery::{Assembly, replay_segment};
use super::segment::SegmentBytes;

/// Reads the bytes as segment 1; must not panic.
pub fn wal_segment(bytes: &[u8]) {
    let segment = SegmentBytes { bytes, generation: 1 };
    for is_last in [false, true] {
        // The fuzzer looks for panics; that most inputs are refused is expected.
        let _ = replay_segment(segment, Path::new("000001.wal"), is_last, &mut Assembly::new(|_, _| Ok(())));
    }
}
