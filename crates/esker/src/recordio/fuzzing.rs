//! Fuzzing entry point: reads arbitrary bytes as a record file.
//!
//! ```text
//!   bytes --unchanged, and with valid checksums--> every reader
//! ```
#![expect(unsafe_code, reason = "maps files that are not truncated")]

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, Fs, MemFs, OpenOptions};

use crate::encoding::Compression;
use crate::encoding::checksum::crc32c;

use super::frame::{FRAME_BYTES, Frame};
use super::header::{FileHeader, HEADER_BYTES};
use super::{MmapReader, Reader, SeekableReader};

/// Reads `bytes` with every reader. Panics if a reader panics or if the readers disagree.
pub fn record_file(bytes: &[u8]) {
    read_all(bytes);
    let mut bytes = bytes.to_vec();
    repair(&mut bytes);
    read_all(&bytes);
}

fn read_all(bytes: &[u8]) {
    let fs = MemFs::new();
    let path = Path::new("f");
    let file = fs.open(path, OpenOptions::create_new()).expect("memory does not fail");
    file.write_all_at(bytes, 0).expect("memory does not fail");
    let env = Env::simulated(Arc::new(fs), 1);

    let Ok(mut reader) = Reader::options().env(&env).resync(true).open(path) else { return };
    let mut records = Vec::new();
    while let Ok(Some(record)) = reader.next() {
        let record = record.to_vec();
        records.push((reader.record_offset(), record));
    }
    assert!(reader.tail().is_some(), "with resync, only the end stops a reader");

    if let Ok(mut reader) = Reader::options().env(&env).open(path) {
        let strict = reader.records().map_while(Result::ok).count();
        assert!(strict <= records.len());
    }
    if let Ok(mut reader) = Reader::options().env(&env).open(path) {
        while let Ok(true) = reader.skip_next() {}
    }
    // SAFETY: mmap.1 of mmap.rs: the file is complete and no longer written.
    let mapped = unsafe { MmapReader::open_in(&env, path) };
    let (Ok(seekable), Ok(mapped)) = (SeekableReader::open_in(&env, path), mapped) else {
        assert!(records.is_empty());
        return;
    };
    for (offset, record) in &records {
        assert_eq!(seekable.read_at(*offset).ok().as_ref(), Some(record));
        assert_eq!(mapped.read_at(*offset).ok().as_deref(), Some(&record[..]));
    }
    let size = bytes.len() as u64;
    for offset in [0, 1, size / 3, size / 2, size.saturating_sub(FRAME_BYTES as u64), size, u64::MAX] {
        let found = seekable.seek_next(offset).ok().flatten();
        let mapped = mapped.seek_next(offset).ok().flatten();
        assert_eq!(found.as_ref().map(|r| (r.offset, r.end)), mapped.map(|r| (r.offset, r.end)));
        let _ = seekable.read_at(offset);
    }
}

/// Writes a valid file header and valid checksums for each frame that the lengths describe, so that mutations
/// reach the code after the checks. Frames with flags of 128 and above stay invalid, so that readers search
/// past them.
pub(crate) fn repair(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let codecs = Compression::ALL;
    let header = FileHeader {
        codec: codecs[usize::from(bytes[9]) % codecs.len()],
        salt: u32::from(bytes[12]),
        is_sealed: false,
        has_keys: false,
    };
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    let mut at = HEADER_BYTES;
    while at + FRAME_BYTES < bytes.len() {
        let (head, rest) = bytes[at..].split_at_mut(FRAME_BYTES);
        let number = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let stored_len = number(8) % (rest.len() as u32 + 1);
        let compressed = head[3] & 1 == 1;
        let raw_len = if compressed { number(4) } else { stored_len };
        let payload_crc = crc32c(&rest[..stored_len as usize]);
        let frame = Frame { compressed, raw_len, stored_len, payload_crc };
        if head[3] < 128 {
            head.copy_from_slice(&frame.encode(&header, at as u64));
        }
        at += frame.size() as usize;
    }
}
