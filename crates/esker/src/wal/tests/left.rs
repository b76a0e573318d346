//! Files that an earlier process left unused (pool.10).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_env::{Env, FaultAction, FaultFs, FaultRule, FsRef, MemFs, OpKind, OpenOptions};

use super::{DIR, Named, append, env_on, mem, payload, pool_with, replayed_in};
use crate::types::SeqNo;
use crate::wal::format::{Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::wal::prepared::{Prepared, find_left, make_first};
use crate::wal::recovery::{Recovered, recover};
use crate::wal::{LogExtent, WalOptions, WalPool, WalWriter, file_name};

const DATABASE: u32 = 77;
const FILE_BYTES: u64 = 4096;

fn options() -> WalOptions {
    let sizes = WalOptions {
        segment_bytes_max: FILE_BYTES,
        first_segment_bytes: FILE_BYTES,
        ..WalOptions::default()
    };
    WalOptions { database_id: DATABASE, ..sizes }
}

fn left_path() -> std::path::PathBuf {
    file_name::prepared_path(Path::new(DIR), 1)
}

/// Makes the first file of a database, durably. The manifest names its segment.
fn made(env: &Env) -> Named {
    make_first(env, Path::new(DIR), &options(), 1).unwrap().unwrap().sync().unwrap();
    env.fs.sync_dir(Path::new(DIR)).unwrap();
    let named = Named::default();
    named.store(1, Ordering::Relaxed);
    named
}

/// Begins a log with the file that was left.
fn begun(env: &Env, named: &Named) -> (Arc<WalPool>, WalWriter) {
    let pool = pool_with(env, options(), named);
    let log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    pool.begin_with_left(1);
    (pool, log)
}

fn write(env: &Env, at: u64, bytes: &[u8]) {
    let file = env.fs.open(&left_path(), OpenOptions::write()).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Returns the bytes of a record of segment 1 of this database.
fn record(seq: u64) -> Vec<u8> {
    let content = payload(seq, 100);
    let payload_crc = crate::encoding::checksum::crc32c(&content);
    let seq = SeqNo::new(seq);
    let header = RecordHeader { kind: Kind::Full, seq, synced_to: 0, payload_len: 100, payload_crc };
    let stamp = SegmentHeader { number: 1, made_bytes: 0, database_id: DATABASE, is_sealed: false }.stamp();
    let mut bytes = header.encode(stamp).to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Returns the header of a segment in a file of `made_bytes`.
fn header(number: u64, made_bytes: u32, database_id: u32) -> Vec<u8> {
    SegmentHeader { number, made_bytes, database_id, is_sealed: false }.encode().to_vec()
}

#[test]
fn pool_10_only_a_file_as_it_was_made_is_put_to_use() {
    let first = SEGMENT_HEADER_BYTES as u64;
    // A record of 100 bytes goes before this place.
    let second = first + (RECORD_HEADER_BYTES as u64 + 100).next_multiple_of(8);
    let made_bytes = FILE_BYTES as u32;
    for (what, at, bytes) in [
        ("as it was made", 0, header(1, made_bytes, DATABASE)),
        ("a record of this segment behind the first", second, record(2)),
        ("the last byte", FILE_BYTES - 1, vec![1]),
        ("another segment", 0, header(2, made_bytes, DATABASE)),
        ("another database", 0, header(1, made_bytes, DATABASE + 1)),
        ("another length", 0, header(1, made_bytes * 2, DATABASE)),
        ("no header", 0, vec![0; SEGMENT_HEADER_BYTES]),
        ("a longer file", FILE_BYTES, vec![0; 512]),
    ] {
        let (fs, env) = mem();
        let named = made(&env);
        write(&env, at, &bytes);
        let (_pool, mut log) = begun(&env, &named);
        let before = fs.ops();
        append(&mut log, 1, 100).unwrap();
        // The name of the segment alone is changed, or a file is made as well.
        assert_eq!(fs.ops() - before == 2, what == "as it was made", "{what}");
        log.sync().unwrap();
        drop(log);
        let left = env_on(Arc::new(fs.crash_strict()) as FsRef);
        let (records, _) = replayed_in(&left, 1, &named).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(records == [(1, payload(1, 100))], "{what}: {} records", records.len());
    }
}

#[test]
fn pool_10_a_file_that_cannot_be_replaced_stays_as_named() {
    for kind in [OpKind::Create, OpKind::Write, OpKind::SyncData, OpKind::Rename, OpKind::SyncDir] {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let env = env_on(Arc::new(faults.clone()) as FsRef);
        env.fs.create_dir_all(Path::new(DIR)).unwrap();
        let named = made(&env);
        write(&env, FILE_BYTES - 1, b"!");
        let (_pool, mut log) = begun(&env, &named);
        faults.add(FaultRule::new(&[kind], FaultAction::Fail(std::io::ErrorKind::PermissionDenied)));
        let refused = append(&mut log, 1, 100);
        assert_eq!((refused.is_err(), faults.fired()), (true, 1), "{kind:?}");
        for left in [fs.crash_strict(), fs.kill()] {
            let left = env_on(Arc::new(left) as FsRef);
            let (records, recovered) =
                replayed_in(&left, 1, &named).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
            assert_eq!((records.len(), recovered.next_segment), (0, 1), "{kind:?}");
            named.store(1, Ordering::Relaxed);
        }
        append(&mut log, 1, 100).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        log.sync().unwrap();
        let left = env_on(Arc::new(fs.crash_strict()) as FsRef);
        assert_eq!(replayed_in(&left, 1, &named).unwrap().0.len(), 1, "{kind:?}");
    }
}

#[test]
fn pool_10_the_next_file_of_an_intact_log_is_found_if_it_is_named_and_small() {
    let (_, env) = mem();
    let dir = Path::new(DIR);
    made(&env);
    let log = recover(&env, dir, LogExtent { from: 1, ..LogExtent::default() }, |_, _| Ok(())).unwrap();
    let find = |log: &Recovered, named_to, options| find_left(&env, dir, log, named_to, &options);
    assert_eq!(find(&log, Some(1), options()), Some(1));
    for named_to in [None, Some(0), Some(2)] {
        assert_eq!(find(&log, named_to, options()), None, "{named_to:?}");
    }
    let small = WalOptions { first_segment_bytes: FILE_BYTES / 2, ..options() };
    assert_eq!(find(&log, Some(1), small), None, "the file is larger than a first one");
    env.fs.remove_file(&left_path()).unwrap();
    assert_eq!(find(&log, Some(1), options()), None, "there is no file");
}

#[test]
fn pool_8_a_first_file_is_made_only_if_the_disk_has_space() {
    for (capacity, is_made) in [(2 * FILE_BYTES, true), (2 * FILE_BYTES - 1, false), (0, false)] {
        let (fs, env) = mem();
        fs.set_capacity(Some(capacity));
        let first = make_first(&env, Path::new(DIR), &options(), 1).unwrap();
        assert_eq!(first.as_ref().map(Prepared::number), is_made.then_some(1), "{capacity} bytes");
        assert_eq!(env.fs.exists(&left_path()).unwrap(), is_made, "{capacity} bytes");
    }
}
