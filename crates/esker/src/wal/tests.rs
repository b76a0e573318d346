//! Tests of the whole log: recovery after clean ends, damage, full disks and failing disks. Crashes:
//! `crash.rs`.

mod crash;
mod left;
mod lost_end;
mod named;
mod values;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_env::{
    Env, FaultAction, FaultFs, FaultRule, FsRef, ManualClock, MemFs, OpKind, OpenOptions, read_range,
};

use super::format::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use super::purpose::{FilePurpose, Plan};
use super::recovery::{Recovered, verify};
use super::{LogExtent, LogRoom, Register, WalOptions, WalPool, WalWriter, file_name, recover};
use crate::types::{Error, Result, SeqNo};

const DIR: &str = "db";

fn env_on(fs: impl Into<FsRef>) -> Env {
    Env::simulated(fs.into(), 1)
}

fn mem() -> (MemFs, Env) {
    let fs = MemFs::new();
    let env = env_on(Arc::new(fs.clone()) as FsRef);
    env.fs.create_dir_all(Path::new(DIR)).unwrap();
    (fs, env)
}

/// The newest segment that the manifest names; 0 for none.
type Named = Arc<AtomicU64>;

fn pool(env: &Env, segment_bytes_max: u64) -> Arc<WalPool> {
    pool_in(env, segment_bytes_max, &Named::default())
}

fn pool_in(env: &Env, segment_bytes_max: u64, named: &Named) -> Arc<WalPool> {
    pool_with(env, WalOptions { segment_bytes_max, ..WalOptions::default() }, named)
}

fn pool_with(env: &Env, options: WalOptions, named: &Named) -> Arc<WalPool> {
    let named = named.clone();
    let register = Register::new(move |segment| {
        named.store(segment, Ordering::Relaxed);
        Ok(())
    });
    WalPool::new(env.clone(), DIR.into(), options, register).unwrap()
}

fn writer(env: &Env, segment_bytes_max: u64) -> WalWriter {
    WalWriter::create(pool(env, segment_bytes_max), 1, &[]).unwrap()
}

/// Returns a payload that depends on the sequence number.
fn payload(seq: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seq.wrapping_mul(31) + i as u64 * 7 + 1) as u8).collect()
}

fn append(writer: &mut WalWriter, seq: u64, len: usize) -> Result<()> {
    let bytes = payload(seq, len);
    // In two parts, so that part and fragment boundaries meet at all offsets.
    let (a, b) = bytes.split_at(len / 3);
    writer.append(SeqNo::new(seq), &[a, b])
}

/// Sequence numbers and payloads.
type Records = Vec<(u64, Vec<u8>)>;

fn replayed(env: &Env, from: u64) -> Result<(Records, Recovered)> {
    replayed_in(env, from, &AtomicU64::new(0))
}

/// Recovers as opening does: the next manifest comes before anything is cut or deleted.
fn replayed_in(env: &Env, from: u64, named: &AtomicU64) -> Result<(Records, Recovered)> {
    let mut records = Vec::new();
    let named_to = Some(named.load(Ordering::Relaxed));
    let extent = LogExtent { from, named_to, ..LogExtent::default() };
    let recovered = recover(env, Path::new(DIR), extent, |seq, payload| {
        records.push((seq.get(), payload.to_vec()));
        Ok(())
    })?;
    named.store(recovered.named_to().unwrap_or(0), Ordering::Relaxed);
    recovered.finish(env, Path::new(DIR))?;
    let names = env.fs.list_dir(Path::new(DIR)).unwrap();
    super::remove_obsolete(env, Path::new(DIR), &names, from)?;
    super::remove_unused(env, Path::new(DIR), &names, None)?;
    Ok((records, recovered))
}

fn expect(env: &Env, records: &[(u64, usize)]) -> Recovered {
    let (found, recovered) = replayed(env, 1).unwrap();
    let wanted: Vec<_> = records.iter().map(|&(seq, len)| (seq, payload(seq, len))).collect();
    assert!(found == wanted, "{:?} found, {records:?} wanted", found.iter().map(|r| r.0).collect::<Vec<_>>());
    recovered
}

fn path(number: u64) -> PathBuf {
    file_name::segment_path(Path::new(DIR), number)
}

fn bytes_of(env: &Env, number: u64) -> Vec<u8> {
    let file = env.fs.open(&path(number), OpenOptions::read()).unwrap();
    read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
}

/// Returns a new database directory that holds these segments.
fn env_with(segments: &[(u64, &[u8])]) -> Env {
    let (_, env) = mem();
    for (number, bytes) in segments {
        let file = env.fs.open(&path(*number), OpenOptions::create_new()).unwrap();
        file.write_all_at(bytes, 0).unwrap();
    }
    env
}

fn names(env: &Env) -> Vec<String> {
    let mut names = env.fs.list_dir(Path::new(DIR)).unwrap();
    names.sort();
    names
}

#[test]
fn a_closed_log_is_small_and_comes_back() {
    let (_, env) = mem();
    let mut log = writer(&env, 1 << 20);
    assert!(names(&env).is_empty(), "no file before the first record");
    for (seq, len) in [(1, 0), (2, 1), (5, 8), (9, 1000)] {
        append(&mut log, seq, len).unwrap();
    }
    assert!(log.unsynced_bytes() > 1000);
    log.sync().unwrap();
    assert_eq!((log.unsynced_bytes(), log.current_segment()), (0, 1));
    log.close().unwrap();
    assert_eq!(names(&env), ["000001.wal"]);
    assert_eq!(bytes_of(&env, 1).len(), SEGMENT_HEADER_BYTES + 5 * RECORD_HEADER_BYTES + 8 + 8 + 1000);
    let recovered = expect(&env, &[(1, 0), (2, 1), (5, 8), (9, 1000)]);
    assert_eq!((recovered.next_segment, recovered.trimmed_bytes, recovered.segments), (2, 0, vec![1]));
    assert!(WalWriter::create(pool(&env, 1024), 1, &[]).unwrap_err().is_corrupt(), "segment 1 is there");
}

#[test]
fn wal_5_records_span_segments_and_come_back_whole() {
    for segment_bytes_max in [512, 1024, 4096] {
        let (fs, env) = mem();
        let mut log = writer(&env, segment_bytes_max);
        let records: Vec<(u64, usize)> = (1..200).map(|seq| (seq, (seq * seq % 2999) as usize)).collect();
        for &(seq, len) in &records {
            append(&mut log, seq, len).unwrap();
        }
        log.sync().unwrap();
        expect(&env_on(Arc::new(fs.crash_strict()) as FsRef), &records);
    }
}

/// Commit and segment numbers of an old database do not fit into four bytes.
#[test]
fn records_at_large_numbers_come_back_from_segments_of_large_numbers() {
    let (_, env) = mem();
    let first = (1 << 32) + 7;
    let mut log = WalWriter::create(pool(&env, 1024), first, &[]).unwrap();
    let records = [(7, 100), (1 << 32, 100), ((1 << 32) + 7, 3000), (1 << 40, 5000), (SeqNo::MAX.get(), 10)];
    for (seq, len) in records {
        append(&mut log, seq, len).unwrap();
    }
    let last = log.current_segment();
    assert!(last > first + 5);
    log.close().unwrap();
    let (found, recovered) = replayed(&env, first).unwrap();
    assert!(found == records.map(|(seq, len)| (seq, payload(seq, len))));
    assert_eq!((recovered.last_seq, recovered.next_segment), (SeqNo::MAX, last + 1));
}

/// Writes a large record between small ones. They survive a power loss.
fn write_a_bulk_record(log: &mut WalWriter, fs: &MemFs) {
    let records = [(1, 100), (2, 3 << 20), (3, 100)];
    for (seq, len) in records {
        append(log, seq, len).unwrap();
    }
    assert!(log.current_segment() <= 4, "few segments: {}", log.current_segment());
    log.sync().unwrap();
    for seed in 0..5 {
        expect(&env_on(Arc::new(fs.crash(seed)) as FsRef), &records);
    }
}

#[test]
fn wal_5_a_bulk_record_gets_a_segment_of_its_own_size() {
    let (fs, env) = mem();
    let mut log = writer(&env, 512);
    write_a_bulk_record(&mut log, &fs);
    let next = log.rotate().unwrap();
    log.release_below(next).unwrap();
    assert!(names(&env).iter().all(|name| env.fs.file_size(&Path::new(DIR).join(name)).unwrap() <= 512));
}

#[test]
fn pool_1_a_bulk_record_is_written_where_blocks_cannot_be_reserved() {
    let (fs, _) = mem();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let unsupported = FaultAction::Fail(io::ErrorKind::Unsupported);
    faults.add(FaultRule::new(&[OpKind::Allocate], unsupported).forever());
    let env = env_on(Arc::new(faults.clone()) as FsRef);
    let mut log = writer(&env, 512);
    write_a_bulk_record(&mut log, &fs);
    assert!(faults.fired() > 0, "nothing was to be reserved");
    log.close().unwrap();
    assert!(names(&env).iter().all(|name| name.ends_with(".wal")), "{:?}", names(&env));
}

#[test]
fn wal_5_a_record_without_its_last_fragment_is_dropped() {
    let (_, env) = mem();
    let mut log = writer(&env, 512);
    append(&mut log, 1, 100).unwrap();
    append(&mut log, 2, 3000).unwrap();
    log.sync().unwrap();
    let last = log.current_segment();
    assert!(last > 4);
    for segments_left in 1..last {
        let parts: Vec<_> = (1..=segments_left).map(|n| (n, bytes_of(&env, n))).collect();
        let parts: Vec<_> = parts.iter().map(|(n, bytes)| (*n, &bytes[..])).collect();
        let env = env_with(&parts);
        let extent = LogExtent { from: 1, ..LogExtent::default() };
        assert!(verify(&env, Path::new(DIR), extent, |_, _| Ok(())).unwrap().trimmed_bytes > 300);
        let recovered = expect(&env, &[(1, 100)]);
        assert_eq!((recovered.next_segment, &recovered.segments[..]), (2, &[1][..]));
        // recovery.3: the log continues after the cut.
        let mut log = WalWriter::create(pool(&env, 512), 2, &recovered.segments).unwrap();
        append(&mut log, 2, 700).unwrap();
        log.close().unwrap();
        expect(&env, &[(1, 100), (2, 700)]);
    }
}

#[test]
fn large_records_pass_through_the_buffer() {
    let (_, env) = mem();
    let mut log = writer(&env, 2 << 20);
    let records = [(1, 10), (2, 5 << 20), (3, (1 << 20) + 1), (4, 3)];
    for (seq, len) in records {
        append(&mut log, seq, len).unwrap();
    }
    log.close().unwrap();
    expect(&env, &records);
}

#[test]
fn a_tail_torn_at_any_byte_is_trimmed() {
    let (_, env) = mem();
    let mut log = writer(&env, 4096);
    append(&mut log, 1, 50).unwrap();
    log.sync().unwrap();
    let synced = SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES + 56;
    append(&mut log, 2, 60).unwrap();
    append(&mut log, 3, 70).unwrap();
    log.write().unwrap();
    let whole = bytes_of(&env, 1);
    let record_2_end = synced + RECORD_HEADER_BYTES + 60;
    let record_3_end = record_2_end + 4 + RECORD_HEADER_BYTES + 70;
    for torn in synced..record_3_end {
        let mut wanted = vec![(1, 50), (2, 60)];
        wanted.truncate(if torn < record_2_end { 1 } else { 2 });
        for rest in [0, 0xA5] {
            let mut bytes = whole.clone();
            bytes[torn..].fill(rest);
            if rest == 0 && torn + 8 > record_3_end && bytes == whole {
                continue;
            }
            let env = env_with(&[(1, &bytes)]);
            let recovered = expect(&env, &wanted);
            // recovery.3: with a newer segment after it, the cut is not damage.
            let mut log = WalWriter::create(pool(&env, 4096), recovered.next_segment, &[1]).unwrap();
            append(&mut log, 7, 10).unwrap();
            log.sync().unwrap();
            wanted.push((7, 10));
            assert_eq!(expect(&env, &wanted).trimmed_bytes, 0);
            wanted.pop();
        }
    }
}

#[test]
fn damage_to_durable_records_is_reported_with_its_place_and_damage_to_the_tail_is_trimmed() {
    let (_, env) = mem();
    let mut log = writer(&env, 4096);
    for seq in 1..=3 {
        append(&mut log, seq, 32).unwrap();
        log.sync().unwrap();
    }
    append(&mut log, 4, 32).unwrap();
    append(&mut log, 5, 32).unwrap();
    log.write().unwrap();
    let whole = bytes_of(&env, 1);
    let record = RECORD_HEADER_BYTES + 32;
    for at in 0..SEGMENT_HEADER_BYTES + 5 * record {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let env = env_with(&[(1, &bytes)]);
        let result = replayed(&env, 1).map(|(records, _)| records.len());
        let index = at.checked_sub(SEGMENT_HEADER_BYTES).map(|at| at / record);
        match (result, index) {
            // Records 4 and 5 were not synced.
            (Ok(n), Some(3)) => assert_eq!(n, 3, "byte {at}"),
            (Ok(n), Some(4)) => assert_eq!(n, 4, "byte {at}"),
            (Err(Error::Corrupt { path: found, offset, .. }), index) => {
                let start = index.map_or(0, |i| SEGMENT_HEADER_BYTES + i * record);
                assert_eq!((found, offset), (path(1), start as u64), "byte {at}");
                assert!(index.is_none_or(|i| i < 3), "byte {at}");
                assert_eq!(bytes_of(&env, 1), bytes, "a damaged log is left alone");
            }
            (other, _) => panic!("byte {at}: {other:?}"),
        }
    }
}

/// Returns a log of three groups of three records that was not closed. Each of the first two groups was
/// synced once; the last was only written.
fn groups_of_three() -> Vec<u8> {
    let (_, env) = mem();
    let mut log = writer(&env, 4096);
    for seq in 1..=9 {
        append(&mut log, seq, 32).unwrap();
        match seq {
            3 | 6 => log.sync().unwrap(),
            9 => log.write().unwrap(),
            _ => {}
        }
    }
    bytes_of(&env, 1)
}

/// Lists the wrong verdicts of recovery on this log with a flipped bit, or with zeros instead of some
/// records.
fn misjudged_groups() -> Vec<String> {
    let whole = groups_of_three();
    let record = RECORD_HEADER_BYTES + 32;
    let start = |n: usize| SEGMENT_HEADER_BYTES + n * record;
    // Damages the records from `first` to before `behind`.
    let judge = |bytes: &[u8], first: usize, behind: usize| {
        // The last record was made when the first two groups were durable, and proves it if no other record
        // does.
        let is_proven = first < 6 && behind < 9;
        let found = replayed(&env_with(&[(1, bytes)]), 1).map(|(records, _)| records.len());
        let is_right = match &found {
            Ok(records) => !is_proven && *records == first,
            Err(Error::Corrupt { path: found, offset, .. }) => {
                is_proven && (found, *offset) == (&path(1), start(first) as u64)
            }
            Err(_) => false,
        };
        (!is_right).then(|| format!("records {first}..{behind}: {found:?}"))
    };
    let mut wrong = Vec::new();
    for at in start(0)..start(9) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let first = (at - start(0)) / record;
        wrong.extend(judge(&bytes, first, first + 1));
    }
    for first in 0..9 {
        for behind in first + 1..=9 {
            let mut bytes = whole.clone();
            bytes[start(first)..start(behind)].fill(0);
            wrong.extend(judge(&bytes, first, behind));
        }
    }
    wrong
}

#[test]
fn recovery_1_proof_of_damage_is_looked_for_behind_records_that_prove_nothing() {
    assert_eq!(misjudged_groups(), Vec::<String>::new());
}

#[test]
fn wal_3_damage_before_a_newer_segment_and_missing_segments_are_reported() {
    let (_, env) = mem();
    let mut log = writer(&env, 4096);
    for seq in 1..=3 {
        append(&mut log, seq, 32).unwrap();
        assert_eq!(log.rotate().unwrap(), seq + 1);
        assert_eq!(log.rotate().unwrap(), seq + 1, "a segment without records stays");
    }
    append(&mut log, 4, 32).unwrap();
    log.sync().unwrap();
    let (a, b, c) = (bytes_of(&env, 1), bytes_of(&env, 2), bytes_of(&env, 3));
    expect(&env_with(&[(1, &a), (2, &b), (3, &c)]), &[(1, 32), (2, 32), (3, 32)]);
    let mut bad = b.clone();
    bad[SEGMENT_HEADER_BYTES + 30] ^= 1;
    let is_corrupt = |segments: &[(u64, &[u8])], at: (u64, u64)| {
        let err = replayed(&env_with(segments), 1).unwrap_err();
        assert!(
            matches!(&err, Error::Corrupt { path: p, offset, .. } if (p, *offset) == (&path(at.0), at.1)),
            "{err}"
        );
        assert!(err.to_string().contains("esker repair"), "{err}");
    };
    is_corrupt(&[(1, &a), (2, &bad), (3, &c)], (2, SEGMENT_HEADER_BYTES as u64));
    let cut = &b[..SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES + 32];
    is_corrupt(&[(1, &a), (2, cut), (3, &c)], (2, cut.len() as u64));
    is_corrupt(&[(1, &a), (3, &c)], (2, 0));
    is_corrupt(&[(2, &b), (3, &c)], (1, 0));
}

#[test]
fn a_full_disk_refuses_a_record_before_writing_any_of_it() {
    let (fs, env) = mem();
    let mut log = writer(&env, 4096);
    append(&mut log, 1, 1000).unwrap();
    log.sync().unwrap();
    let written = bytes_of(&env, 1);
    fs.set_capacity(Some(fs.used_bytes() + 6000));
    for _ in 0..2 {
        let err = append(&mut log, 2, 10_000).unwrap_err();
        assert!(matches!(err, Error::NoSpace { .. }), "{err}");
        assert_eq!(bytes_of(&env, 1), written);
    }
    append(&mut log, 3, 2000).unwrap();
    fs.set_capacity(None);
    append(&mut log, 4, 10_000).unwrap();
    log.sync().unwrap();
    expect(&env_on(Arc::new(fs.crash_strict()) as FsRef), &[(1, 1000), (3, 2000), (4, 10_000)]);
}

#[test]
fn pool_8_what_is_held_back_is_for_those_who_may_use_it() {
    const SEGMENT: u64 = 8 << 10;
    let (fs, env) = mem();
    let options =
        WalOptions { segment_bytes_max: SEGMENT, first_segment_bytes: SEGMENT, ..WalOptions::default() };
    let pool = pool_with(&env, options, &Named::default());
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    let is_refused = |reserved: Result<()>| matches!(reserved, Err(Error::NoSpace { .. }));
    fs.set_capacity(Some(3 * SEGMENT));
    pool.hold_back(2 * SEGMENT);
    log.reserve(100, LogRoom::Common).unwrap();
    append(&mut log, 1, 6000).unwrap();
    pool.want_spare(FilePurpose::Ordinary);
    assert!(!pool.prepare_step().unwrap(), "pool.8: none is made ahead");
    assert!(is_refused(log.reserve(6000, LogRoom::Common)), "pool.8");
    log.reserve(6000, LogRoom::HeldBack).unwrap();
    append(&mut log, 2, 6000).unwrap();
    log.reserve(100, LogRoom::Common).unwrap();
    assert!(is_refused(log.reserve(6000, LogRoom::Common)), "pool.8: more is missing now");
    fs.set_capacity(Some(8 * SEGMENT));
    log.reserve(6000, LogRoom::Common).unwrap();
    log.close().unwrap();
    expect(&env, &[(1, 6000), (2, 6000)]);
}

#[test]
fn a_disk_without_space_for_a_usual_segment_gets_a_smaller_one() {
    let (fs, env) = mem();
    let mut log = writer(&env, 1 << 20);
    fs.set_capacity(Some(WalOptions::default().first_segment_bytes / 8));
    append(&mut log, 1, 100).unwrap();
    append(&mut log, 2, 10_000).unwrap();
    fs.set_capacity(None);
    append(&mut log, 3, 100_000).unwrap();
    log.close().unwrap();
    expect(&env, &[(1, 100), (2, 10_000), (3, 100_000)]);
}

#[test]
fn a_disk_without_space_for_a_segment_is_not_filled_with_zeros() {
    for is_plain in [false, true] {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let env = env_on(Arc::new(faults.clone()) as FsRef);
        env.fs.create_dir_all(Path::new(DIR)).unwrap();
        if is_plain {
            fs.be_plain();
        }
        let mut log = writer(&env, 1 << 20);
        fs.set_capacity(Some((4 << 10) - 1));
        let before = faults.count(OpKind::Write);
        for _ in 0..3 {
            let refused = append(&mut log, 1, 100);
            assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
            assert_eq!(fs.used_bytes(), 0, "it has its space back");
        }
        // Without allocation only writing shows that the disk is full.
        assert_eq!(faults.count(OpKind::Write) > before, is_plain);
        fs.set_capacity(None);
        append(&mut log, 2, 100).unwrap();
        log.close().unwrap();
        expect(&env, &[(2, 100)]);
    }
}

#[test]
fn a_segment_is_made_where_reserving_fails_for_another_reason_than_space() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let env = env_on(Arc::new(faults.clone()) as FsRef);
    env.fs.create_dir_all(Path::new(DIR)).unwrap();
    for kind in [io::ErrorKind::Unsupported, io::ErrorKind::InvalidInput, io::ErrorKind::PermissionDenied] {
        faults.add(FaultRule::new(&[OpKind::Allocate], FaultAction::Fail(kind)).forever());
    }
    let mut log = writer(&env, 1 << 20);
    append(&mut log, 1, 100).unwrap();
    log.close().unwrap();
    expect(&env, &[(1, 100)]);
}

#[test]
fn wal_6_a_failed_sync_poisons_and_is_not_tried_again() {
    for by_handle in [false, true] {
        let faults = FaultFs::new(Arc::new(MemFs::new()));
        let env = env_on(Arc::new(faults.clone()) as FsRef);
        env.fs.create_dir_all(Path::new(DIR)).unwrap();
        let mut log = writer(&env, 4096);
        append(&mut log, 1, 10).unwrap();
        log.sync().unwrap();
        assert!(log.sync_handle().is_none());
        append(&mut log, 2, 10).unwrap();
        log.write().unwrap();
        let (first, second) = (log.sync_handle().unwrap(), log.sync_handle().unwrap());
        faults.add(FaultRule::new(&[OpKind::SyncData], FaultAction::Fail(io::ErrorKind::Other)));
        let failed = if by_handle { log.synced(first.sync()) } else { log.sync() };
        assert!(matches!(failed, Err(Error::Poisoned(_))));
        let syncs = faults.count(OpKind::SyncData);
        for result in [
            log.sync(),
            log.write(),
            append(&mut log, 3, 1),
            log.rotate().map(drop),
            log.reserve(1, LogRoom::Common),
        ] {
            let Err(Error::Poisoned(cause)) = result else { panic!("{result:?}") };
            assert!(matches!(&*cause, Error::Io { op: "sync", .. }), "{cause}");
        }
        // sync.2: the other thread's sync does not reach the system and report success.
        assert!(log.synced(second.sync()).is_err() && log.close().is_err());
        assert_eq!(faults.count(OpKind::SyncData), syncs);
    }
}

#[test]
fn sync_1_a_file_that_is_yet_to_be_synced_gets_no_other_life() {
    for is_synced in [false, true] {
        let (_, env) = mem();
        let mut log = writer(&env, 4096);
        append(&mut log, 1, 100).unwrap();
        log.write().unwrap();
        let handle = log.sync_handle().unwrap();
        let next = log.rotate().unwrap();
        let left = if is_synced {
            log.synced(handle.sync()).unwrap();
            None
        } else {
            Some(handle)
        };
        log.release_below(next).unwrap();
        let is_spare = names(&env).iter().any(|name| file_name::is_spare(name));
        assert_eq!(is_spare, is_synced, "sync.1: {:?}", names(&env));
        if let Some(handle) = left {
            log.synced(handle.sync()).unwrap();
        }
    }
}

#[test]
fn a_sync_elsewhere_counts_for_the_bytes_that_it_covered() {
    let (fs, env) = mem();
    let mut log = writer(&env, 4096);
    append(&mut log, 1, 100).unwrap();
    log.write().unwrap();
    let handle = log.sync_handle().unwrap();
    append(&mut log, 2, 100).unwrap();
    let outcome = handle.sync();
    log.synced(outcome).unwrap();
    assert_eq!(log.unsynced_bytes(), (RECORD_HEADER_BYTES + 104) as u64);
    expect(&env_on(Arc::new(fs.crash_strict()) as FsRef), &[(1, 100)]);
    log.write().unwrap();
    let late = log.sync_handle().unwrap();
    log.rotate().unwrap();
    log.synced(late.sync()).unwrap();
    expect(&env, &[(1, 100), (2, 100)]);
}

#[test]
fn the_pool_prepares_ahead_recycles_and_stays_small() {
    let (_, env) = mem();
    let pool = pool(&env, 1024);
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    assert!(!pool.prepare_step().unwrap());
    append(&mut log, 1, 600).unwrap();
    assert!(pool.spare_wanted() && pool.prepare_step().unwrap() && !pool.prepare_step().unwrap());
    assert_eq!(names(&env), ["000001.wal", "000002.wal-next"]);
    append(&mut log, 2, 9000).unwrap();
    let current = log.rotate().unwrap();
    assert!(current > 9 && !names(&env).iter().any(|name| file_name::is_spare(name)));
    log.release_below(current).unwrap();
    let spares = names(&env);
    assert!(spares.len() == 8 && spares.iter().all(|name| file_name::is_spare(name)), "{spares:?}");
    append(&mut log, 3, 10).unwrap();
    assert_eq!(names(&env).len(), 8, "a spare became segment {current}");
    pool.trim().unwrap();
    assert_eq!(names(&env), [file_name::segment_file_name(current)]);
}

#[test]
fn files_for_small_syncs_grow_step_by_step_whatever_the_database_has() {
    let (_, env) = mem();
    let options =
        WalOptions { first_segment_bytes: 1024, segment_bytes_max: 64 << 10, ..WalOptions::default() };
    let pool = pool_with(&env, options, &Named::default());
    pool.begin(1);
    pool.suit(1 << 30);
    let bytes = |purpose| pool.take(purpose, LogRoom::Common).unwrap().spare.bytes >> 10;
    let (small, ordinary) = (FilePurpose::Small, FilePurpose::Ordinary);
    assert_eq!([small, small].map(bytes), [64, 64], "nothing was before");
    let pool = pool_with(&env, options, &Named::default());
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    append(&mut log, 1, 600).unwrap();
    pool.suit(1 << 30);
    let bytes = |purpose| pool.take(purpose, LogRoom::Common).unwrap().spare.bytes >> 10;
    assert_eq!([small, small, ordinary].map(bytes), [4, 16, 64]);
    let pool = pool_with(&env, options, &Named::default());
    pool.begin(1);
    pool.suit(64 << 10);
    let bytes = |purpose| pool.take(purpose, LogRoom::Common).unwrap().spare.bytes >> 10;
    assert_eq!([ordinary, ordinary].map(bytes), [8, 64], "a commit waits for the first file");
}

#[test]
fn a_busy_log_keeps_more_spares_than_one_at_rest() {
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: clock.clone(), ..mem().1 };
    let pool = pool(&env, 1024);
    pool.suit(1 << 20);
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    for n in 1..12 {
        append(&mut log, n, 800).unwrap();
    }
    let spares = || names(&env).iter().filter(|name| file_name::is_spare(name)).count();
    let current = log.rotate().unwrap();
    log.release_below(current).unwrap();
    assert_eq!(spares(), 8);
    // A record that is being appended needs the next file, and another one is made in advance.
    pool.trim().unwrap();
    append(&mut log, 12, 800).unwrap();
    assert!(pool.prepare_step().unwrap() && spares() == 2, "{:?}", names(&env));
    let current = log.rotate().unwrap();
    for n in 13..24 {
        append(&mut log, n, 800).unwrap();
    }
    log.release_below(current + 9).unwrap();
    assert!(spares() > 2, "{:?}", names(&env));
    clock.advance(Duration::from_secs(3));
    pool.prepare_step().unwrap();
    pool.prepare_step().unwrap();
    assert_eq!(spares(), 2);
    // The reserved disk space leaves no space for more spares.
    pool.hold_back(4 << 10);
    for n in 24..40 {
        append(&mut log, n, 800).unwrap();
    }
    let current = log.rotate().unwrap();
    log.release_below(current).unwrap();
    assert_eq!(spares(), 2);
    // A small database keeps none.
    pool.suit(0);
    clock.advance(Duration::from_secs(3));
    pool.prepare_step().unwrap();
    pool.prepare_step().unwrap();
    assert_eq!(spares(), 0);
}

#[test]
fn the_spares_at_rest_are_the_largest_files_of_a_log_that_has_grown() {
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: clock.clone(), ..mem().1 };
    let options =
        WalOptions { first_segment_bytes: 1024, segment_bytes_max: 16 << 10, ..WalOptions::default() };
    let pool = pool_with(&env, options, &Named::default());
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    for n in 1..60 {
        append(&mut log, n, 800).unwrap();
        // So slowly that only the files at rest are kept.
        clock.advance(Duration::from_millis(500));
    }
    let spares = || -> Vec<u64> {
        let spares = names(&env).into_iter().filter(|name| file_name::is_spare(name));
        spares.map(|name| env.fs.file_size(&Path::new(DIR).join(name)).unwrap() >> 10).collect()
    };
    let current = log.rotate().unwrap();
    pool.suit(1 << 20);
    // The files are from 1 to 16 KiB large, the oldest ones the smallest.
    log.release_below(current).unwrap();
    assert_eq!(spares(), [16, 16]);
}

#[test]
fn a_slow_log_of_a_small_database_makes_no_spares_that_it_would_delete() {
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: clock.clone(), ..mem().1 };
    let pool = pool(&env, 1024);
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    for n in 1..12 {
        append(&mut log, n, 800).unwrap();
        pool.prepare_step().unwrap();
        let names = names(&env);
        assert!(!names.iter().any(|name| file_name::is_spare(name)), "{n}: {names:?}");
        clock.advance(Duration::from_millis(500));
    }
}

#[test]
fn a_large_record_takes_few_files_in_a_small_log() {
    let (_, env) = mem();
    let mut log = writer(&env, 16 << 20);
    append(&mut log, 1, 10).unwrap();
    append(&mut log, 2, 8 << 20).unwrap();
    assert!(names(&env).len() <= 6, "{:?}", names(&env));
}

#[test]
fn files_grow_with_tables_and_live_log() {
    // KiB of data --> KiB of a file.
    for (data, bytes) in
        [(0, 256), (511, 256), (512, 512), (5 << 10, 4 << 10), (20 << 10, 15 << 10), (1 << 30, 15 << 10)]
    {
        let plan = Plan::new(data << 10, 256 << 10, 15 << 20);
        assert_eq!((plan.bytes >> 10, plan.data_bytes >> 10), (bytes, data), "{data}");
    }
}

#[test]
fn pool_1_segments_of_bulk_records_are_not_filled_and_not_recycled() {
    const RECORD: usize = 2 << 20;
    for bulk_segment_bytes in [1 << 16, 1 << 20, 1 << 28] {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let env = env_on(Arc::new(faults.clone()) as FsRef);
        env.fs.create_dir_all(Path::new(DIR)).unwrap();
        let options = WalOptions { segment_bytes_max: 1 << 18, bulk_segment_bytes, ..WalOptions::default() };
        let mut log = WalWriter::create(pool_with(&env, options, &Named::default()), 1, &[]).unwrap();
        append(&mut log, 1, RECORD).unwrap();
        append(&mut log, 2, 1000).unwrap();
        log.sync().unwrap();
        // The zeros of one file for the whole record would take eight writes.
        let writes = faults.count(OpKind::Write);
        assert!(writes < 8 || bulk_segment_bytes < RECORD as u64, "pool.1: {writes} writes");
        expect(&env_on(Arc::new(fs.crash_strict()) as FsRef), &[(1, RECORD), (2, 1000)]);
        let next = log.rotate().unwrap();
        log.release_below(next).unwrap();
        let are_small = |name: &String| env.fs.file_size(&Path::new(DIR).join(name)).unwrap() <= 1 << 18;
        assert!(names(&env).iter().all(are_small), "pool.1: {:?}", names(&env));
    }
}

#[test]
fn replayed_segments_are_deleted_and_never_recycled() {
    let (_, env) = mem();
    let mut log = writer(&env, 1024);
    append(&mut log, 1, 3000).unwrap();
    log.sync().unwrap();
    drop(log);
    let recovered = expect(&env, &[(1, 3000)]);
    let mut log = WalWriter::create(pool(&env, 1024), recovered.next_segment, &recovered.segments).unwrap();
    log.release_below(recovered.next_segment).unwrap();
    assert!(names(&env).is_empty());
    // Recovery deletes obsolete segments that a crash left.
    let env = env_with(&[(3, b"obsolete"), (4, b"obsolete")]);
    let (records, recovered) = replayed(&env, 5).unwrap();
    assert!(records.is_empty() && names(&env).is_empty() && recovered.next_segment == 5);
}

#[test]
fn recovery_8_an_obsolete_segment_that_cannot_be_removed_goes_with_a_later_flush() {
    let (fs, env) = mem();
    let mut log = writer(&env, 1024);
    append(&mut log, 1, 3000).unwrap();
    let from = log.rotate().unwrap();
    append(&mut log, 2, 100).unwrap();
    log.sync().unwrap();
    drop(log);
    let faults = FaultFs::new(Arc::new(fs.kill()));
    let env = env_on(Arc::new(faults.clone()) as FsRef);
    let never = FaultAction::Fail(io::ErrorKind::PermissionDenied);
    for stuck in [1, 2] {
        faults.add(FaultRule::new(&[OpKind::Remove, OpKind::Rename], never).on_file(&path(stuck)).forever());
    }
    // More than one process may find them.
    for _ in 0..2 {
        let (found, recovered) = replayed(&env, from).unwrap();
        assert_eq!(found, [(2, payload(2, 100))], "recovery.8");
        assert_eq!((recovered.next_segment, recovered.segments), (from + 1, vec![from]));
        assert_eq!(
            super::remove_obsolete(&env, Path::new(DIR), &env.fs.list_dir(Path::new(DIR)).unwrap(), from)
                .unwrap(),
            [1, 2],
            "recovery.8"
        );
        assert_eq!(names(&env), [1, 2, from].map(file_name::segment_file_name));
    }
    let mut log = WalWriter::create(pool(&env, 1024), from + 1, &[1, 2, from]).unwrap();
    append(&mut log, 3, 100).unwrap();
    let next = log.rotate().unwrap();
    assert!(log.release_below(next).is_err());
    assert!(!names(&env).contains(&file_name::segment_file_name(from)));
    faults.clear();
    log.release_below(next).unwrap();
    assert!(names(&env).iter().all(|name| file_name::is_spare(name)), "{:?}", names(&env));
    append(&mut log, 4, 100).unwrap();
    log.sync().unwrap();
    drop(log);
    assert_eq!(replayed(&env, next).unwrap().0, [(4, payload(4, 100))]);
}

#[test]
fn options_are_checked() {
    let (_, env) = mem();
    for bad in [0, 100, 1000, (1 << 30) + 512] {
        let options = WalOptions { segment_bytes_max: bad, ..WalOptions::default() };
        let register = Register::new(|_| Ok(()));
        let made = WalPool::new(env.clone(), DIR.into(), options, register);
        assert!(matches!(made, Err(Error::Invalid(_))), "{bad}");
    }
    assert!(WalPool::new(env, DIR.into(), WalOptions::default(), Register::new(|_| Ok(()))).is_ok());
}

#[test]
fn the_reader_takes_any_bytes() {
    let (_, env) = mem();
    let mut log = writer(&env, 1024);
    for seq in 1..=9 {
        append(&mut log, seq, 60).unwrap();
        log.sync().unwrap();
    }
    let whole = bytes_of(&env, 1);
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..rng.usize(0..4) {
            let at = rng.usize(0..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes.truncate(rng.usize(0..=whole.len()));
        super::fuzzing::wal_segment(&bytes);
    }
}

#[test]
fn recovery_4_what_a_failed_sync_forgot_is_written_again() {
    let disk = MemFs::new();
    let faults = FaultFs::new(Arc::new(disk.clone()));
    let env = env_on(Arc::new(faults.clone()) as FsRef);
    env.fs.create_dir_all(Path::new(DIR)).unwrap();
    let mut log = writer(&env, 1 << 20);
    append(&mut log, 1, 3000).unwrap();
    log.sync().unwrap();
    append(&mut log, 2, 9000).unwrap();
    faults.add(FaultRule::new(&[OpKind::SyncData], FaultAction::LostSync));
    assert!(matches!(log.sync(), Err(Error::Poisoned(_))));
    drop(log);
    let (found, _) = replayed(&env, 1).unwrap();
    assert_eq!(found.len(), 2, "readers see it");
    let (found, _) = replayed(&env_on(Arc::new(disk.crash_strict()) as FsRef), 1).unwrap();
    assert_eq!(found.len(), 2, "what recovery has seen stays");
}

#[test]
fn a_record_for_which_there_is_no_room_takes_none() {
    let (fs, env) = mem();
    let mut log = writer(&env, 1 << 16);
    append(&mut log, 1, 100).unwrap();
    log.sync().unwrap();
    let before = fs.used_bytes();
    fs.set_capacity(Some(before + (700 << 20)));
    // Two files of 256 MiB fit, the third does not.
    let refused = log.reserve(1 << 30, LogRoom::Common);
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    assert_eq!(fs.used_bytes(), before);
    append(&mut log, 2, 100).unwrap();
    log.close().unwrap();
    fs.set_capacity(None);
    expect(&env, &[(1, 100), (2, 100)]);
}

#[test]
fn what_was_reserved_is_not_asked_for_again() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = env_on(Arc::new(faults.clone()) as FsRef);
    env.fs.create_dir_all(Path::new(DIR)).unwrap();
    let mut log = writer(&env, 4096);
    append(&mut log, 1, 1000).unwrap();
    log.reserve(10_000, LogRoom::Common).unwrap();
    // The process has no descriptor left.
    faults.add(FaultRule::new(&[OpKind::Stat], FaultAction::Fail(io::ErrorKind::Other)).forever());
    append(&mut log, 2, 10_000).unwrap();
    assert!(
        matches!(log.reserve(10_000, LogRoom::Common), Err(Error::Io { .. })),
        "nothing is reserved for another record"
    );
    faults.clear();
    log.reserve(10_000, LogRoom::Common).unwrap();
    // A reservation in a segment that is finished meanwhile is made again.
    log.rotate().unwrap();
    append(&mut log, 3, 10_000).unwrap();
    log.sync().unwrap();
    expect(&env, &[(1, 1000), (2, 10_000), (3, 10_000)]);
}

#[test]
fn wal_7_files_that_cannot_be_given_back_keep_their_numbers_and_are_named_again() {
    let (fs, env) = mem();
    let named = Named::default();
    let register_in = named.clone();
    let is_full = Arc::new(AtomicBool::new(false));
    let is_full_now = is_full.clone();
    let no_space = || Err(Error::NoSpace { op: "write", path: DIR.into() });
    // The disk is too full for the manifest write, but the write takes effect all the same.
    let register = Register::new(move |segment| match register_in.load(Ordering::Relaxed) {
        before if before < segment && is_full_now.load(Ordering::Relaxed) => no_space(),
        before => {
            register_in.store(segment, Ordering::Relaxed);
            if before > segment { no_space() } else { Ok(()) }
        }
    });
    let options = WalOptions { segment_bytes_max: 1 << 16, ..WalOptions::default() };
    let pool = WalPool::new(env.clone(), DIR.into(), options, register).unwrap();
    let mut log = WalWriter::create(pool, 1, &[]).unwrap();
    append(&mut log, 1, 100).unwrap();
    fs.set_capacity(Some(fs.used_bytes() + (200 << 10)));
    let refused = log.reserve(400 << 10, LogRoom::Common);
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    fs.set_capacity(None);
    assert_eq!(named.load(Ordering::Relaxed), 1);
    // A record that needs no other segment needs no manifest; another is refused while the manifest
    // cannot be written.
    is_full.store(true, Ordering::Relaxed);
    append(&mut log, 2, 100).unwrap();
    let refused = append(&mut log, 3, 100 << 10);
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    append(&mut log, 3, 100).unwrap();
    is_full.store(false, Ordering::Relaxed);
    // The prepared file is enough for this record.
    append(&mut log, 4, 100 << 10).unwrap();
    assert!((2..=named.load(Ordering::Relaxed)).contains(&log.current_segment()), "wal.7");
    append(&mut log, 5, 400 << 10).unwrap();
    log.close().unwrap();
    expect(&env, &[(1, 100), (2, 100), (3, 100), (4, 100 << 10), (5, 400 << 10)]);
}

#[test]
fn what_was_reserved_stays_named_when_a_file_behind_it_cannot_be_given_back() {
    let (_, env) = mem();
    let is_full = Arc::new(AtomicBool::new(false));
    let is_full_now = is_full.clone();
    let register = Register::new(move |_| match is_full_now.load(Ordering::Relaxed) {
        true => Err(Error::NoSpace { op: "write", path: DIR.into() }),
        false => Ok(()),
    });
    let options = WalOptions { segment_bytes_max: 1 << 16, ..WalOptions::default() };
    let pool = WalPool::new(env.clone(), DIR.into(), options, register).unwrap();
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    append(&mut log, 1, 100).unwrap();
    // As a commit does, with the end of a compaction in between.
    log.reserve(100 << 10, LogRoom::Common).unwrap();
    pool.want_spare(FilePurpose::Ordinary);
    assert!(pool.prepare_step().unwrap());
    is_full.store(true, Ordering::Relaxed);
    assert!(matches!(pool.trim(), Err(Error::NoSpace { .. })));
    append(&mut log, 2, 100 << 10).unwrap();
    is_full.store(false, Ordering::Relaxed);
    log.close().unwrap();
    expect(&env, &[(1, 100), (2, 100 << 10)]);
}

#[test]
fn a_log_is_closed_although_files_that_wait_for_their_use_stay() {
    for (removals, registers) in [(0, true), (1, true), (2, true), (2, false), (0, false)] {
        let (fs, _) = mem();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let env = env_on(Arc::new(faults.clone()) as FsRef);
        let (named, refuses) = (Named::default(), Arc::new(AtomicBool::new(false)));
        let register = {
            let (named, refuses) = (named.clone(), refuses.clone());
            Register::new(move |segment| {
                if refuses.load(Ordering::Relaxed) {
                    return Err(Error::Invalid("no".into()));
                }
                named.store(segment, Ordering::Relaxed);
                Ok(())
            })
        };
        let options = WalOptions { segment_bytes_max: 1024, ..WalOptions::default() };
        let pool = WalPool::new(env.clone(), DIR.into(), options, register).unwrap();
        let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
        append(&mut log, 1, 600).unwrap();
        pool.prepare_step().unwrap();
        log.rotate().unwrap();
        append(&mut log, 2, 600).unwrap();
        pool.prepare_step().unwrap();
        log.release_below(2).unwrap();
        let before = names(&env);
        assert_eq!(before.len(), 3, "one in use, one prepared, one spare: {before:?}");
        refuses.store(!registers, Ordering::Relaxed);
        if removals > 0 {
            let never = FaultAction::Fail(io::ErrorKind::PermissionDenied);
            faults.add(FaultRule { times: removals, ..FaultRule::new(&[OpKind::Remove], never) });
        }
        log.close().unwrap();
        faults.clear();
        let when = format!("{removals}, {registers}");
        // The prepared file stays for the next process, and the spare if it cannot be removed.
        let stay = 1 + usize::from(removals > 0);
        assert_eq!(names(&env).len(), 1 + stay, "{when}");
        for left in [fs.kill(), fs.crash_strict()] {
            let env = env_on(Arc::new(left) as FsRef);
            let (found, recovered) = replayed_in(&env, 2, &named).unwrap();
            assert_eq!((found, recovered.trimmed_bytes), (vec![(2, payload(2, 600))], 0), "{when}");
            assert_eq!(names(&env), ["000002.wal"], "{when}");
        }
    }
}

/// Releases a finished log of many segments while `rule` is in force for some calls. Returns which `.wal`
/// files are left.
fn released_with(rule: FaultRule, replays: bool) -> (Result<()>, Vec<String>, WalWriter, Env) {
    let (fs, _) = mem();
    let faults = FaultFs::new(Arc::new(fs));
    let env = env_on(Arc::new(faults.clone()) as FsRef);
    let mut log = writer(&env, 1024);
    append(&mut log, 1, 9000).unwrap();
    log.sync().unwrap();
    if replays {
        drop(log);
        let recovered = replayed(&env, 1).unwrap().1;
        log = WalWriter::create(pool(&env, 1024), recovered.next_segment, &recovered.segments).unwrap();
    }
    let current = log.rotate().unwrap();
    faults.add(rule);
    let released = log.release_below(current);
    faults.clear();
    let left = names(&env).into_iter().filter(|name| name.ends_with(".wal")).collect();
    (released, left, log, env)
}

#[test]
fn what_is_gone_is_released() {
    for replays in [false, true] {
        for action in [FaultAction::Fail, FaultAction::DoneThenFail] {
            for n in 1..9 {
                let rule = FaultRule::new(
                    &[OpKind::Remove, OpKind::Rename],
                    action(io::ErrorKind::PermissionDenied),
                );
                let (_, _, mut log, env) = released_with(rule.nth(n), replays);
                let next = log.current_segment();
                log.release_below(next).unwrap();
                let left = names(&env);
                let spares = if replays { 0 } else { 8 };
                assert!(
                    left.iter().all(|name| file_name::is_spare(name)) && left.len() <= spares,
                    "{n}: {left:?}"
                );
                // The log continues to work.
                append(&mut log, 2, 5000).unwrap();
                log.sync().unwrap();
                let (records, _) = replayed(&env, next).unwrap();
                assert_eq!(records, [(2, payload(2, 5000))], "{n}");
            }
        }
    }
    // Another process has removed the file.
    let (_, env) = mem();
    let mut log = writer(&env, 1024);
    append(&mut log, 1, 9000).unwrap();
    let current = log.rotate().unwrap();
    env.fs.remove_file(&path(1)).unwrap();
    log.release_below(current).unwrap();
    assert!(names(&env).iter().all(|name| file_name::is_spare(name)), "{:?}", names(&env));
}

#[test]
fn a_segment_that_cannot_be_removed_holds_up_no_other() {
    for replays in [false, true] {
        for stuck in [1, 3] {
            let never = FaultAction::Fail(io::ErrorKind::PermissionDenied);
            let rule =
                FaultRule::new(&[OpKind::Remove, OpKind::Rename], never).on_file(&path(stuck)).forever();
            let (released, left, mut log, env) = released_with(rule, replays);
            assert!(matches!(released, Err(Error::Io { path: p, .. }) if p == path(stuck)));
            assert_eq!(left, [file_name::segment_file_name(stuck)]);
            let next = log.current_segment();
            log.release_below(next).unwrap();
            assert!(names(&env).iter().all(|name| file_name::is_spare(name)));
            // Recovery misses nothing in a log whose obsolete segments are partly deleted.
            let (records, _) = replayed(&env, next).unwrap();
            assert!(records.is_empty());
        }
    }
}

#[test]
fn a_pool_that_cannot_remove_a_file_removes_the_others() {
    let (fs, _) = mem();
    let faults = FaultFs::new(Arc::new(fs));
    let env = env_on(Arc::new(faults.clone()) as FsRef);
    let pool = pool(&env, 1024);
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    append(&mut log, 1, 9000).unwrap();
    let current = log.rotate().unwrap();
    log.release_below(current).unwrap();
    assert_eq!(names(&env).len(), 8);
    faults.add(FaultRule::new(&[OpKind::Remove], FaultAction::Fail(io::ErrorKind::Other)));
    assert!(matches!(pool.trim(), Err(Error::Io { .. })));
    assert_eq!(names(&env).len(), 1);
}

#[test]
fn the_disk_begins_with_each_mib() {
    let (fs, _) = mem();
    let faults = FaultFs::new(Arc::new(fs));
    let env = env_on(Arc::new(faults.clone()) as FsRef);
    let pool = pool(&env, 16 << 20);
    pool.suit(1 << 30);
    let mut writer = WalWriter::create(pool, 1, &[]).unwrap();
    append(&mut writer, 1, 14 << 20).unwrap();
    writer.sync().unwrap();
    // A hint that fails has no effect.
    faults.add(FaultRule::new(&[OpKind::Hint], FaultAction::Fail(std::io::ErrorKind::Other)).forever());
    let before = writer.current_segment();
    for seq in 2..60 {
        append(&mut writer, seq, 100_000).unwrap();
        writer.write().unwrap();
    }
    assert_eq!((writer.current_segment() - before, faults.fired()), (1, 5));
}
