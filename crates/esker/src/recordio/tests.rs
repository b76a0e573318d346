//! Tests of whole record files: round trips, damage and crashes.
#![expect(unsafe_code, reason = "maps files that are not truncated")]

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions, RealFs, read_range};
use fastrand::Rng;

use super::frame::{FRAME_BYTES, Frame, MARKER};
use super::header::{FileHeader, HEADER_BYTES};
use super::window::BUFFER_BYTES_MIN;
use super::*;
use crate::Compression;
use crate::encoding::checksum::crc32c;
use crate::types::{Error, Result};

const PATH: &str = "f";

fn memory() -> (MemFs, Env) {
    let fs = MemFs::new();
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    (fs, env)
}

fn bytes_of(fs: &MemFs) -> Vec<u8> {
    let file = fs.open(Path::new(PATH), OpenOptions::read()).unwrap();
    read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
}

/// An environment with a file that holds `bytes`.
fn env_of(bytes: &[u8]) -> Env {
    let (fs, env) = memory();
    fs.open(Path::new(PATH), OpenOptions::create_new()).unwrap().write_all_at(bytes, 0).unwrap();
    env
}

fn map_in(env: &Env) -> MmapReader {
    // SAFETY: mmap.1 of mmap.rs: these tests map files only when they are complete.
    unsafe { MmapReader::open_in(env, PATH) }.unwrap()
}

/// A file of these records, and their offsets.
fn file_of<R: AsRef<[u8]>>(codec: Compression, records: &[R]) -> (Vec<u8>, Vec<u64>) {
    let (fs, env) = memory();
    let mut writer = Writer::options().env(&env).compression(codec).create_new(PATH).unwrap();
    let offsets = records.iter().map(|r| writer.append(r.as_ref()).unwrap()).collect();
    assert_eq!(writer.len(), records.len() as u64);
    let size = writer.size();
    assert_eq!(writer.finish().unwrap(), size);
    let bytes = bytes_of(&fs);
    assert_eq!(bytes.len() as u64, size);
    (bytes, offsets)
}

/// The result of reading a file: the records, then the tail and the bytes skipped, or the error.
type Found = (Vec<Vec<u8>>, Result<(Tail, u64)>);

fn read(env: &Env, options: &ReadOptions) -> Found {
    let mut reader = match options.clone().env(env).open(PATH) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Err(e)),
    };
    let mut records = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(record)) => records.push(record.to_vec()),
            Ok(None) => return (records, Ok((reader.tail().unwrap(), reader.skipped_bytes()))),
            Err(e) => return (records, Err(e)),
        }
    }
}

/// Records of edge sizes: empty, one byte, the buffer size and twice that.
fn edge_records() -> Vec<Vec<u8>> {
    let mut rng = Rng::with_seed(1);
    let mut records = vec![Vec::new(), vec![0], b"hello hello hello hello hello hello".to_vec(), Vec::new()];
    let edge = BUFFER_BYTES_MIN;
    for size in [1, 2, 3, edge / 2, edge, 2 * edge, 4096, 300_000] {
        for size in size.max(FRAME_BYTES + 2) - FRAME_BYTES - 2..=size.max(FRAME_BYTES + 2) - FRAME_BYTES + 2
        {
            let random = rng.bool();
            records.push((0..size).map(|i| if random { rng.u8(..) } else { (i / 50) as u8 }).collect());
        }
    }
    records
}

#[test]
fn reader_3_records_come_back_in_order_for_every_codec_and_buffer() {
    let records = edge_records();
    for &codec in Compression::ALL {
        let (bytes, offsets) = file_of(codec, &records);
        let env = env_of(&bytes);
        for buffer_bytes in [0, BUFFER_BYTES_MIN + 1, 256 << 10, 16 << 20] {
            let (found, end) = read(&env, &Reader::options().buffer_bytes(buffer_bytes).strict_tail(true));
            assert!(found == records, "{} {buffer_bytes}", codec.name());
            assert_eq!(end.unwrap(), (Tail::Clean, 0));
        }
        let seekable = SeekableReader::open_in(&env, PATH).unwrap();
        let mapped = map_in(&env);
        let ends = offsets[1..].iter().copied().chain([bytes.len() as u64]);
        for ((record, &offset), end) in records.iter().zip(&offsets).zip(ends) {
            assert_eq!(&seekable.read_at(offset).unwrap(), record);
            let view = mapped.read_at(offset).unwrap();
            assert_eq!(&*view, record);
            assert_eq!(matches!(view, Cow::Borrowed(_)), end - offset == (FRAME_BYTES + record.len()) as u64);
            assert!(end - offset <= (FRAME_BYTES + record.len()) as u64);
            let found = seekable.seek_next(offset).unwrap().unwrap();
            assert_eq!((found.offset, found.end), (offset, end));
        }
    }
}

#[test]
fn a_forged_length_is_refused_before_it_is_believed_where_nothing_is_compressed() {
    // A reader must assume that 128 KiB of Zstandard can hold 4 GiB; the other codecs expand less.
    let codec = *Compression::ALL.last().unwrap();
    let raw_len = if codec == Compression::Zstd { u32::MAX } else { 30 << 20 };
    let (mut bytes, offsets) = file_of(codec, &[&b"first"[..], &[7; 128 << 10]]);
    let at = offsets[1] as usize;
    bytes.truncate(at);
    bytes.extend_from_slice(&[7; FRAME_BYTES + (128 << 10)]);
    let file = FileHeader::require(&bytes[..HEADER_BYTES], Path::new(PATH)).unwrap();
    let payload = &bytes[at + FRAME_BYTES..];
    let frame =
        Frame { compressed: true, raw_len, stored_len: payload.len() as u32, payload_crc: crc32c(payload) };
    let head = frame.encode(&file, at as u64);
    bytes[at..at + FRAME_BYTES].copy_from_slice(&head);
    let tail = Tail::Torn { offset: at as u64, bytes: (bytes.len() - at) as u64 };
    let env = env_of(&bytes);
    for resync in [false, true] {
        let (found, end) = read(&env, &Reader::options().uncompressed().resync(resync));
        assert_eq!((found, end.unwrap()), (vec![b"first".to_vec()], (tail, 0)));
    }
    let (found, end) = read(&env, &Reader::options().uncompressed().strict_tail(true));
    let error = end.unwrap_err();
    assert!(found.len() == 1 && error.to_string().contains("cannot expand to"), "{error}");
}

#[test]
fn the_search_for_the_next_record_skips_an_unreadable_record() {
    let codec = *Compression::ALL.last().unwrap();
    if codec == Compression::None {
        return;
    }
    let (mut bytes, offsets) = file_of(codec, &[&b"first"[..], &[7; 1000], b"third"]);
    let at = offsets[1] as usize;
    let file = FileHeader::require(&bytes[..HEADER_BYTES], Path::new(PATH)).unwrap();
    let payload = at + FRAME_BYTES..offsets[2] as usize;
    let stored_len = payload.len() as u32;
    bytes[payload.clone()].fill(0xff);
    let frame = Frame { compressed: true, raw_len: 1000, stored_len, payload_crc: crc32c(&bytes[payload]) };
    bytes[at..at + FRAME_BYTES].copy_from_slice(&frame.encode(&file, at as u64));
    let env = env_of(&bytes);
    let seekable = SeekableReader::open_in(&env, PATH).unwrap();
    let mapped = map_in(&env);
    assert!(seekable.read_at(at as u64).is_err() && mapped.read_at(at as u64).is_err());
    assert_eq!(seekable.seek_next(at as u64).unwrap().map(|r| r.bytes), Some(b"third".to_vec()));
    assert_eq!(mapped.seek_next(at as u64).unwrap().map(|r| r.bytes.to_vec()), Some(b"third".to_vec()));
}

#[test]
fn short_and_interrupted_reads_change_nothing() {
    let records = edge_records();
    let (bytes, offsets) = file_of(Compression::Lz4, &records);
    let fs = MemFs::new();
    fs.open(Path::new(PATH), OpenOptions::create_new()).unwrap().write_all_at(&bytes, 0).unwrap();
    let faulty = FaultFs::new(Arc::new(fs));
    let env = Env::simulated(Arc::new(faulty.clone()), 1);
    let interrupted = FaultAction::Fail(std::io::ErrorKind::Interrupted);
    for (action, times) in [(interrupted, 50), (FaultAction::ShortRead { keep: 1_001 }, u64::MAX)] {
        faulty.clear();
        faulty.add(FaultRule { times, ..FaultRule::new(&[OpKind::Read], action) });
        let before = faulty.fired();
        let (found, end) = read(&env, &Reader::options().strict_tail(true));
        assert!(found == records, "{action:?}");
        assert_eq!(end.unwrap(), (Tail::Clean, 0), "{action:?}");
        assert!(faulty.fired() - before >= 50, "{action:?}");
        let seekable = SeekableReader::open_in(&env, PATH).unwrap();
        for (record, &offset) in records.iter().zip(&offsets) {
            assert_eq!(&seekable.read_at(offset).unwrap(), record, "{action:?}");
        }
    }
}

#[test]
fn salvage_passes_over_the_pieces_that_cannot_be_read() {
    let records: Vec<Vec<u8>> = (0..100).map(|i| vec![i; 300]).collect();
    let (bytes, offsets) = file_of(Compression::None, &records);
    let (size, record_size) = (bytes.len() as u64, 300 + FRAME_BYTES as u64);
    let faulty = FaultFs::new(env_of(&bytes).fs);
    let env = Env::simulated(Arc::new(faulty.clone()), 1);
    for bad in [10_000, size - 1] {
        faulty.clear();
        let fails = FaultAction::Fail(std::io::ErrorKind::Other);
        faulty.add(FaultRule::new(&[OpKind::Read], fails).on_bytes(bad..bad + 1).forever());
        let before = faulty.fired();
        let (found, end) = read(&env, &Reader::options().salvage());
        assert_eq!(faulty.fired() - before, 2, "within a larger read, and as a piece");
        let piece = bad / 4096 * 4096..(bad + 1).next_multiple_of(4096);
        let is_kept = |at: u64| at + record_size <= piece.start || at >= piece.end;
        let kept = records.iter().zip(&offsets).filter(|(_, at)| is_kept(**at));
        assert!(found.iter().eq(kept.map(|(record, _)| record)), "{bad}");
        let skipped = size - HEADER_BYTES as u64 - found.len() as u64 * record_size;
        assert_eq!(end.unwrap(), (Tail::Clean, skipped), "{bad}");
        for strict in [Reader::options(), Reader::options().resync(true)] {
            let error = read(&env, &strict).1.unwrap_err();
            assert!(matches!(error, Error::Io { .. }), "{bad}: {error}");
            assert!(error.to_string().contains("bytes at offset"), "{bad}: {error}");
        }
    }
    faulty.clear();
    let fails = FaultAction::Fail(std::io::ErrorKind::Other);
    faulty.add(FaultRule::new(&[OpKind::Read], fails).on_bytes(0..1).forever());
    assert!(matches!(read(&env, &Reader::options().salvage()).1, Err(Error::Io { .. })));
}

#[test]
fn writers_of_every_buffer_and_direct_io_make_the_same_file() {
    let records = edge_records();
    let (expected, _) = file_of(Compression::None, &records);
    for buffer_bytes in [0, 1, 4096, 5000, 1 << 20] {
        for direct in [false, true] {
            let (fs, env) = memory();
            let options = Writer::options().env(&env).buffer_bytes(buffer_bytes).direct(direct);
            let mut writer = options.create(PATH).unwrap();
            for (i, record) in records.iter().enumerate() {
                if i % 5 == 0 { writer.append_sync(record) } else { writer.append(record) }.unwrap();
                if i == records.len() / 2 {
                    drop(writer);
                    // The end of the last unsynced record may be missing: continue where the file ends.
                    writer = options.open_append(PATH).unwrap();
                    for lost in &records[writer.len() as usize..=i] {
                        writer.append(lost).unwrap();
                    }
                }
            }
            writer.finish().unwrap();
            assert!(bytes_of(&fs) == expected, "{buffer_bytes} {direct}");
        }
    }
}

#[test]
fn the_real_file_system_serves_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(PATH);
    let env = Env::with_fs(Arc::new(RealFs::new()));
    for direct in [false, true] {
        let options = Writer::options().env(&env).direct(direct).compression(Compression::Snappy);
        let mut writer = options.create(&path).unwrap();
        assert!(writer.is_empty());
        for i in 0..100u32 {
            writer.append(&i.to_le_bytes().repeat(100)).unwrap();
        }
        writer.append_sync(b"synced").unwrap();
        drop(writer);
        let mut writer = options.open_append(&path).unwrap();
        assert_eq!(writer.len(), 101);
        writer.append(b"last").unwrap();
        writer.finish().unwrap();
        let mut reader = Reader::open(&path).unwrap();
        assert_eq!(reader.records().map(|r| r.unwrap().len()).sum::<usize>(), 100 * 400 + 10);
        assert_eq!(reader.tail(), Some(Tail::Clean));
        // SAFETY: mmap.1 of mmap.rs: the file is complete.
        let mapped = unsafe { MmapReader::open(&path) }.unwrap();
        assert_eq!(*mapped.read_at(reader.record_offset()).unwrap(), *b"last");
        assert!(matches!(options.create_new(&path), Err(Error::AlreadyExists(_))));
    }
}

/// Three records. The codec compresses one of them.
fn small_file(codec: Compression) -> (Vec<u8>, Vec<u64>, [Vec<u8>; 3]) {
    let records = [b"first".to_vec(), vec![7; 90], Vec::new()];
    let (bytes, offsets) = file_of(codec, &records);
    (bytes, offsets, records)
}

#[test]
fn golden_v1() {
    // This file must stay readable, however writers and codecs change.
    let hex = |i: usize| u8::from_str_radix(&GOLDEN_V1[i..i + 2], 16).unwrap();
    let golden: Vec<u8> = (0..GOLDEN_V1.len()).step_by(2).map(hex).collect();
    let (found, end) = read(&env_of(&golden), &Reader::options().strict_tail(true));
    let (written, offsets, records) = small_file(Compression::Snappy);
    assert_eq!(found, records);
    assert_eq!(end.unwrap(), (Tail::Clean, 0));
    // Bytes that do not depend on the compressor of a library are also compared.
    let head = offsets[1] as usize;
    assert_eq!(written[..head], golden[..head]);
}

/// A file of `small_file` with Snappy. Append-only: add new versions beside it.
const GOLDEN_V1: &str = "8945534b5245430a01020000b1bed1b6c25bd124\
e51cf700050000000500000050a13e8a0acbedf56669727374\
e51cf7015a00000009000000b0c15d4b17e642bf5a0007fe0100620100\
e51cf7000000000000000000000000000d867372";

#[test]
fn reader_2_every_truncation_is_a_torn_tail() {
    for codec in [Compression::None, Compression::Lz4] {
        let (bytes, offsets, records) = small_file(codec);
        for len in 0..bytes.len() {
            let whole = offsets[1..].iter().filter(|&&end| end <= len as u64).count();
            let end = offsets[whole];
            let env = env_of(&bytes[..len]);
            let (found, tail) = read(&env, &Reader::options());
            assert_eq!(found, records[..whole], "{len}");
            let expected = match len as u64 {
                n if n < HEADER_BYTES as u64 => Tail::Torn { offset: 0, bytes: n },
                n if n == end => Tail::Clean,
                n => Tail::Torn { offset: end, bytes: n - end },
            };
            assert_eq!(tail.unwrap(), (expected, 0), "{len}");
            let strict = read(&env, &Reader::options().strict_tail(true)).1;
            assert_eq!(strict.is_ok(), expected == Tail::Clean, "{len}");

            let mut writer = Writer::options().env(&env).compression(codec).open_append(PATH).unwrap();
            assert_eq!((writer.len(), writer.cut_tail()), (whole as u64, expected));
            writer.append(b"more").unwrap();
            writer.finish().unwrap();
            let (found, tail) = read(&env, &Reader::options());
            assert_eq!(found[..whole], records[..whole]);
            assert_eq!(found[whole..], [b"more"]);
            assert_eq!(tail.unwrap(), (Tail::Clean, 0));
        }
    }
}

#[test]
fn zeros_behind_the_last_record_are_distinguished() {
    let (mut bytes, _, records) = small_file(Compression::None);
    let offset = bytes.len() as u64;
    bytes.resize(bytes.len() + 70_000, 0);
    let env = env_of(&bytes);
    let expected = Tail::Zeros { offset, bytes: 70_000 };
    let (found, end) = read(&env, &Reader::options().strict_tail(true));
    assert_eq!((found.as_slice(), end.unwrap()), (&records[..], (expected, 0)));
    let writer = Writer::options().env(&env).open_append(PATH).unwrap();
    assert_eq!((writer.cut_tail(), writer.size()), (expected, offset));
    *bytes.last_mut().unwrap() = 1;
    let (_, end) = read(&env_of(&bytes), &Reader::options());
    assert_eq!(end.unwrap(), (Tail::Torn { offset, bytes: 70_000 }, 0));
    // No header, but data after it: no crash leaves such a file.
    bytes[..HEADER_BYTES].fill(0);
    assert!(read(&env_of(&bytes), &Reader::options()).1.unwrap_err().is_corrupt());
}

#[test]
fn reader_1_every_flipped_byte_is_found() {
    for codec in [Compression::None, Compression::Lz4] {
        let (bytes, offsets, records) = small_file(codec);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (at % 8);
            let env = env_of(&bad);
            let (found, end) = read(&env, &Reader::options());
            let (salvaged, resynced) = read(&env, &Reader::options().resync(true));
            if at < HEADER_BYTES {
                assert!(end.unwrap_err().is_corrupt() && resynced.unwrap_err().is_corrupt());
                continue;
            }
            let hit = offsets.iter().rposition(|&start| start <= at as u64).unwrap();
            assert_eq!(found, records[..hit], "{at}");
            let mut rest = records.to_vec();
            rest.remove(hit);
            assert_eq!(salvaged, rest, "{at}");
            let offset = offsets[hit];
            if hit == 2 {
                let tail = Tail::Torn { offset, bytes: FRAME_BYTES as u64 };
                assert_eq!(end.unwrap(), (tail, 0));
                assert_eq!(resynced.unwrap(), (tail, 0));
            } else {
                let Err(Error::Corrupt { path, offset: named, .. }) = end else { panic!("{at}: {end:?}") };
                assert_eq!((&*path, named), (Path::new(PATH), offset), "{at}");
                assert_eq!(resynced.unwrap(), (Tail::Clean, offsets[hit + 1] - offset));
                let refused = Writer::options().env(&env).open_append(PATH).unwrap_err();
                assert!(refused.is_corrupt());
                assert_eq!(bytes_of_env(&env), bad, "nothing is changed");
            }
        }
    }
}

fn bytes_of_env(env: &Env) -> Vec<u8> {
    let file = env.fs.open(Path::new(PATH), OpenOptions::read()).unwrap();
    read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
}

#[test]
fn frame_1_content_never_passes_for_a_record() {
    // Markers, another record file, and copies of earlier parts of this file.
    let (other, _) = file_of(Compression::None, &[b"inner one".to_vec(), b"inner two".to_vec()]);
    let mut records = vec![MARKER.repeat(5_000), other.clone(), [&other[..], &MARKER].concat().repeat(20)];
    for _ in 0..3 {
        let (so_far, _) = file_of(Compression::None, &records);
        records.push(so_far);
    }
    records.push(b"the last".to_vec());
    let (bytes, offsets) = file_of(Compression::None, &records);

    let env = env_of(&bytes);
    let (seekable, mapped) = (SeekableReader::open_in(&env, PATH).unwrap(), map_in(&env));
    let mut rng = Rng::with_seed(2);
    for _ in 0..2_000 {
        let from = rng.u64(..bytes.len() as u64);
        let expected = offsets.iter().copied().find(|&o| o >= from);
        assert_eq!(seekable.seek_next(from).unwrap().map(|r| r.offset), expected, "{from}");
        assert_eq!(mapped.seek_next(from).unwrap().map(|r| r.offset), expected, "{from}");
        if !offsets.contains(&from) {
            assert!(seekable.read_at(from).unwrap_err().is_corrupt());
            assert!(mapped.read_at(from).unwrap_err().is_corrupt());
        }
    }
    for hit in 0..records.len() - 1 {
        let mut bad = bytes.clone();
        bad[offsets[hit] as usize + 5] ^= 1; // A length: the content must be searched.
        let (found, end) = read(&env_of(&bad), &Reader::options().resync(true).buffer_bytes(0));
        let mut rest = records.clone();
        rest.remove(hit);
        assert!(found == rest, "{hit}");
        assert_eq!(end.unwrap(), (Tail::Clean, offsets[hit + 1] - offsets[hit]));
    }
}

#[test]
fn skipping_moves_like_reading() {
    let records = edge_records();
    let (bytes, offsets) = file_of(Compression::Lz4, &records);
    let env = env_of(&bytes);
    let mut reader = Reader::options().env(&env).open(PATH).unwrap();
    for (i, record) in records.iter().enumerate() {
        if i % 3 == 0 {
            assert_eq!(reader.next().unwrap(), Some(&record[..]));
        } else {
            assert!(reader.skip_next().unwrap());
        }
        assert_eq!(reader.record_offset(), offsets[i]);
    }
    assert!(!reader.skip_next().unwrap());
    assert_eq!(reader.tail(), Some(Tail::Clean));
    assert_eq!(reader.next().unwrap(), None);
    assert_eq!(reader.position(), bytes.len() as u64);
}

#[test]
fn an_iterator_ends_after_an_error() {
    let (mut bytes, offsets, _) = small_file(Compression::None);
    bytes[offsets[1] as usize] = 0;
    let env = env_of(&bytes);
    let mut reader = Reader::options().env(&env).open(PATH).unwrap();
    let items: Vec<_> = reader.records().take(10).map(|r| r.is_ok()).collect();
    assert_eq!(items, [true, false]);
    assert!(reader.next().is_err(), "the reader itself stays where it is");
}

#[test]
fn threads_share_a_seekable_reader() {
    let records: Vec<_> = (0..500u32).map(|i| i.to_le_bytes().repeat(20)).collect();
    let (bytes, offsets) = file_of(Compression::Snappy, &records);
    let env = env_of(&bytes);
    let reader = SeekableReader::open_in(&env, PATH).unwrap();
    let mapped = map_in(&env);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (offset, record) in offsets.iter().zip(&records) {
                    assert_eq!(&reader.read_at(*offset).unwrap(), record);
                    assert_eq!(*mapped.read_at(*offset).unwrap(), **record);
                }
            });
        }
    });
}

#[test]
fn recordio_writer_1_synced_records_survive_every_crash() {
    for direct in [false, true] {
        for seed in 0..60 {
            let mut rng = Rng::with_seed(seed);
            let (fs, env) = memory();
            let options = Writer::options().env(&env).buffer_bytes(4096).direct(direct);
            let mut writer = options.create_new(PATH).unwrap();
            let (mut records, mut acked) = (Vec::new(), 0);
            for i in 0..rng.usize(1..40) {
                let record = vec![i as u8 + 1; rng.usize(0..700)];
                writer.append_sync(&record).unwrap();
                records.push(record);
                acked += 1;
            }
            // One more record, written but not synced: only it may be torn by the crash.
            let record = vec![0xAA; rng.usize(0..9_000)];
            writer.append(&record).unwrap();
            writer.flush().unwrap();
            records.push(record);

            let disk = fs.crash(seed);
            let env = Env::simulated(Arc::new(disk), seed);
            let (found, end) = read(&env, &Reader::options());
            assert!(end.is_ok(), "seed {seed}: {end:?}");
            assert!(found.len() >= acked && found == records[..found.len()], "seed {seed}");

            let mut writer = Writer::options().env(&env).direct(direct).open_append(PATH).unwrap();
            writer.append_sync(b"after").unwrap();
            let (again, end) = read(&env, &Reader::options());
            assert_eq!(again[..found.len()], found);
            assert_eq!(again[found.len()..], [b"after"]);
            assert!(!matches!(end.unwrap().0, Tail::Torn { .. }));
        }
    }
}

#[test]
fn recordio_writer_1_canary_without_a_sync_records_are_lost() {
    let (fs, env) = memory();
    let mut writer = Writer::options().env(&env).create_new(PATH).unwrap();
    writer.append(b"never synced").unwrap();
    writer.flush().unwrap();
    let env = Env::simulated(Arc::new(fs.crash_strict()), 1);
    assert!(read(&env, &Reader::options()).0.is_empty());
}

#[test]
fn recordio_writer_2_after_a_failed_write_nothing_more_is_written() {
    let (fs, env) = memory();
    let mut writer = Writer::options().env(&env).buffer_bytes(0).create_new(PATH).unwrap();
    writer.append_sync(b"kept").unwrap();
    fs.set_capacity(Some(fs.used_bytes() + 30));
    assert!(matches!(writer.append(&[1; 100]), Err(Error::NoSpace { .. })));
    fs.set_capacity(None);
    assert!(writer.append(b"x").is_err() && writer.sync().is_err());
    let (found, end) = read(&env, &Reader::options());
    assert_eq!(found, [b"kept"]);
    assert!(matches!(end.unwrap().0, Tail::Torn { .. }));
    let mut writer = Writer::options().env(&env).open_append(PATH).unwrap();
    writer.append_sync(b"again").unwrap();
    assert_eq!(read(&env, &Reader::options()).0, [&b"kept"[..], b"again"]);
}

#[test]
fn recordio_writer_4_what_a_failed_sync_left_is_durable_before_more_follows() {
    for (direct, codec) in [(false, Compression::None), (false, Compression::Lz4), (true, Compression::None)]
    {
        let fs = MemFs::new();
        let faulty = FaultFs::new(Arc::new(fs.clone()));
        let env = Env::simulated(Arc::new(faulty.clone()), 1);
        let options = Writer::options().env(&env).direct(direct).compression(codec).buffer_bytes(4096);
        let records: Vec<Vec<u8>> =
            [10, 700, 9_000, 700].into_iter().map(|len| vec![len as u8; len]).collect();
        let mut writer = options.create_new(PATH).unwrap();
        writer.append_sync(&records[0]).unwrap();
        writer.append(&records[1]).unwrap();
        writer.append(&records[2]).unwrap();
        faulty.add(FaultRule::new(&[OpKind::SyncData], FaultAction::LostSync));
        writer.sync().unwrap_err();
        drop(writer);

        // The page cache has all of it, the disk does not.
        assert_eq!(read(&env, &Reader::options()).0, records[..3]);
        let lost = Env::simulated(Arc::new(fs.crash_strict()), 1);
        assert_eq!(read(&lost, &Reader::options()).0, records[..1]);

        let mut writer = options.open_append(PATH).unwrap();
        assert_eq!(writer.len(), 3);
        let env = Env::simulated(Arc::new(fs.crash_strict()), 1);
        assert_eq!(
            read(&env, &Reader::options()).0,
            records[..3],
            "recordio_writer.4: {direct} {}",
            codec.name()
        );
        writer.append_sync(&records[3]).unwrap();
        let env = Env::simulated(Arc::new(fs.crash_strict()), 1);
        let (found, end) = read(&env, &Reader::options());
        assert_eq!(found, records, "recordio_writer.1: {direct} {}", codec.name());
        assert!(!matches!(end.unwrap().0, Tail::Torn { .. }));
    }
}

#[test]
fn recordio_writer_4_the_name_of_a_file_that_a_killed_process_left_is_durable() {
    let (fs, env) = memory();
    let (bytes, _) = file_of(Compression::None, &[b"first"]);
    // Created, then killed before the directory was synced.
    fs.open(Path::new(PATH), OpenOptions::create_new()).unwrap().write_all_at(&bytes, 0).unwrap();
    Writer::options().env(&env).open_append(PATH).unwrap();
    let env = Env::simulated(Arc::new(fs.crash_strict()), 1);
    assert_eq!(read(&env, &Reader::options()).0, [b"first"]);
}

#[test]
fn recordio_writer_4_a_name_that_cannot_be_synced_costs_no_rewrite() {
    let (bytes, ..) = small_file(Compression::Lz4);
    for torn in [&b""[..], b"torn"] {
        let fs = MemFs::new();
        let file = fs.open(Path::new(PATH), OpenOptions::create_new()).unwrap();
        file.write_all_at(&[&bytes, torn].concat(), 0).unwrap();
        let faulty = FaultFs::new(Arc::new(fs));
        let env = Env::simulated(Arc::new(faulty.clone()), 1);
        faulty.add(FaultRule::new(&[OpKind::SyncDir], FaultAction::Fail(std::io::ErrorKind::Other)));
        Writer::options().env(&env).open_append(PATH).unwrap_err();
        let changes = [OpKind::Write, OpKind::SyncData, OpKind::SetLen].map(|kind| faulty.count(kind));
        assert_eq!(changes, [0; 3], "torn {torn:?}");
    }
}

#[test]
fn record_files_are_made_and_continued_in_a_directory_that_may_not_be_read() {
    let faulty = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faulty.clone()), 1);
    let denied = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
    faulty.add(FaultRule::new(&[OpKind::SyncDir], denied).forever());
    let options = Writer::options().env(&env);
    options.create_new(PATH).unwrap().append_sync(b"one").unwrap();
    assert_eq!(faulty.fired(), 1);
    options.open_append(PATH).unwrap().append_sync(b"two").unwrap();
    assert_eq!(faulty.fired(), 2, "the name is synced, as far as it can be");
    assert_eq!(read(&env, &Reader::options()).0, [b"one", b"two"]);
    options.create(PATH).unwrap().append_sync(b"again").unwrap();
    assert_eq!(read(&env, &Reader::options()).0, [b"again"]);
}

#[test]
fn recordio_writer_4_a_fault_at_every_call_of_continuing_loses_nothing() {
    let (bytes, _, records) = small_file(Compression::Lz4);
    for (direct, torn) in [(false, &b""[..]), (false, b"torn"), (true, b""), (true, b"torn")] {
        for nth in 1.. {
            let fs = MemFs::new();
            let file = fs.open(Path::new(PATH), OpenOptions::create_new()).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
            let plain = Env::simulated(Arc::new(fs.clone()), 1);
            Writer::options().env(&plain).open_append(PATH).unwrap();
            file.write_all_at(torn, bytes.len() as u64).unwrap();
            file.sync_data().unwrap();
            let faulty = FaultFs::new(Arc::new(fs.clone()));
            let fails = FaultAction::Fail(std::io::ErrorKind::Other);
            faulty.add(FaultRule::new(&OpKind::CHANGES, fails).nth(nth));
            let env = Env::simulated(Arc::new(faulty), 1);
            let options = Writer::options().env(&env).direct(direct).buffer_bytes(16);
            let done = options.open_append(PATH).is_ok();
            for disk in [fs.crash_strict(), fs.crash(nth), fs.crash(nth + 1000)] {
                let (found, end) = read(&Env::simulated(Arc::new(disk), 1), &Reader::options());
                assert!(found == records && end.is_ok(), "direct {direct}, torn {torn:?}, {nth}: {end:?}");
            }
            if done {
                assert!(nth > 2, "the file is written again, and synced");
                break;
            }
        }
    }
}

#[test]
fn a_file_that_could_not_be_made_can_be_made_again() {
    // A direct file is opened a second time for reading.
    for (kind, direct) in [(OpKind::SyncDir, false), (OpKind::Write, false), (OpKind::Open, true)] {
        let faulty = FaultFs::new(Arc::new(MemFs::new()));
        let env = Env::simulated(Arc::new(faulty.clone()), 1);
        faulty.add(FaultRule::new(&[kind], FaultAction::Fail(std::io::ErrorKind::Other)));
        let options = Writer::options().env(&env).direct(direct).buffer_bytes(0);
        options.create_new(PATH).unwrap_err();
        assert_eq!(faulty.fired(), 1, "{kind:?}");
        options.create_new(PATH).unwrap();
    }
}

/// Writes twelve records, each synced, on a file system whose `nth` modifying call fails. Returns the
/// acknowledged records, and whether all were acknowledged.
fn write_with_fault(fs: &MemFs, action: FaultAction, nth: u64, direct: bool) -> (Vec<Vec<u8>>, bool) {
    let faulty = FaultFs::new(Arc::new(fs.clone()));
    faulty.add(FaultRule::new(&OpKind::CHANGES, action).nth(nth));
    let env = Env::simulated(Arc::new(faulty), 1);
    let mut acked = Vec::new();
    let Ok(mut writer) = Writer::options().env(&env).direct(direct).create_new(PATH) else {
        return (acked, false);
    };
    for i in 0..12 {
        let record = vec![i; 700];
        if writer.append_sync(&record).is_err() {
            assert!(
                writer.append_sync(b"more").is_err() && writer.flush().is_err() && writer.finish().is_err()
            );
            return (acked, false);
        }
        acked.push(record);
    }
    let done = writer.finish().is_ok();
    (acked, done)
}

#[test]
fn recordio_writer_2_a_fault_at_every_call_loses_nothing_acknowledged() {
    let fail = FaultAction::Fail(std::io::ErrorKind::Other);
    for action in [fail, FaultAction::ShortWrite { keep: 7 }, FaultAction::NoSpace] {
        for direct in [false, true] {
            for nth in 1.. {
                let fs = MemFs::new();
                let (acked, done) = write_with_fault(&fs, action, nth, direct);
                let disk = fs.crash(nth);
                if !disk.exists(Path::new(PATH)).unwrap() {
                    assert!(acked.is_empty(), "recordio_writer.1");
                    continue;
                }
                let (found, end) = read(&Env::simulated(Arc::new(disk), 1), &Reader::options());
                assert!(end.is_ok(), "{nth}: {end:?}");
                assert!(
                    found.len() <= acked.len() + 1 && found[..acked.len()] == acked,
                    "recordio_writer.1: {nth}"
                );
                if done {
                    assert!(nth > 24, "every record was written and synced");
                    break;
                }
            }
        }
    }
}

#[test]
fn mutations_do_no_harm() {
    let mut rng = Rng::with_seed(3);
    for &codec in Compression::ALL {
        let (bytes, ..) = small_file(codec);
        fuzzing::record_file(&bytes);
        for _ in 0..300 {
            let mut bad = bytes.clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..bad.len());
                bad[at] = rng.u8(..);
            }
            bad.truncate(rng.usize(..=bad.len()));
            fuzzing::record_file(&bad);
        }
    }
}
