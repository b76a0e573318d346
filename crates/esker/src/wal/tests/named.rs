//! Segments that the manifest names: recovery notices a lost one, and does not miss a segment that was never
//! put to use.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_env::{Env, Fs, FsRef, MemFs, OpenOptions};
use parking_lot::Mutex;

use super::{DIR, Named, append, env_on, expect, mem, names, path, payload, pool_in, replayed_in};
use crate::types::{Error, Result, SeqNo};
use crate::wal::format::{RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES};
use crate::wal::recovery::{Recovered, verify};
use crate::wal::salvage::{LogPiece, salvage};
use crate::wal::{LogExtent, LogRoom, Register, WalOptions, WalPool, WalWriter, file_name};

fn look(env: &Env, from: u64, named_to: Option<u64>) -> Result<Recovered> {
    verify(env, Path::new(DIR), LogExtent { from, named_to, ..LogExtent::default() }, |_, _| Ok(()))
}

/// Returns what salvage reports about lost segments: the file, and which are missing.
fn losses(env: &Env, from: u64, named_to: Option<u64>) -> Vec<String> {
    let mut losses = Vec::new();
    salvage(env, Path::new(DIR), LogExtent { from, named_to, ..LogExtent::default() }, &mut |piece| {
        if let LogPiece::Lost { error, .. } = piece {
            losses.push(error.to_string());
        }
        Ok(())
    })
    .unwrap();
    losses
}

/// Returns a log of four segments with a commit each, the last one closed or active, and the named number.
fn four_segments(closed: bool) -> (MemFs, Env, u64) {
    let (fs, env) = mem();
    let named = Named::default();
    let mut log = WalWriter::create(pool_in(&env, 512, &named), 1, &[]).unwrap();
    for seq in 1..=4 {
        append(&mut log, seq, 100).unwrap();
        log.sync().unwrap();
        if seq < 4 {
            log.rotate().unwrap();
        }
    }
    if closed {
        log.close().unwrap();
    }
    (fs, env, named.load(Ordering::Relaxed))
}

/// Ends a segment that holds one record of this length.
fn finish(env: &Env, number: u64, len: u64) {
    let at = (SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES) as u64 + len;
    let end = RecordHeader::end(SeqNo::new(number), at as u32).encode(number);
    let file = env.fs.open(&path(number), OpenOptions::write()).unwrap();
    file.write_all_at(&end, at).unwrap();
}

#[test]
fn recovery_6_a_lost_segment_is_refused_with_its_name_whichever_it_is() {
    for closed in [false, true] {
        let (fs, env, named) = four_segments(closed);
        assert_eq!((named, look(&env, 1, Some(named)).unwrap().records), (4, 4));
        assert!(losses(&env, 1, Some(named)).is_empty());
        for lost in 1..=4 {
            let env = env_on(Arc::new(fs.kill()) as FsRef);
            env.fs.remove_file(&path(lost)).unwrap();
            let before = names(&env);
            let error = replayed_in(&env, 1, &AtomicU64::new(named)).unwrap_err();
            assert!(matches!(&error, Error::Corrupt { path: p, .. } if *p == path(lost)), "{error}");
            assert!(error.to_string().contains("missing") && error.to_string().contains("esker repair"));
            assert_eq!(names(&env), before, "nothing is changed");
            let losses = losses(&env, 1, Some(named));
            assert!(losses.iter().any(|l| l.contains(&format!("segment {lost} is missing"))), "{losses:?}");
            // Obsolete segments may be missing.
            assert_eq!(look(&env, lost + 1, Some(named)).unwrap().records, 4 - lost);
        }
        let env = env_on(Arc::new(fs.kill()) as FsRef);
        (1..=4).for_each(|lost| env.fs.remove_file(&path(lost)).unwrap());
        assert!(look(&env, 1, Some(named)).unwrap_err().to_string().contains("000001.wal"));
        assert!(losses(&env, 1, Some(named))[0].contains("segments 1 to 4 are missing"));
        // The manifest says nothing about the log.
        assert_eq!(look(&env, 1, None).unwrap().records, 0);
    }
}

#[test]
fn pool_4_a_segment_is_named_when_its_file_is_durable_and_before_it_is_put_to_use() {
    let (fs, env) = mem();
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let register = {
        let (seen, fs) = (seen.clone(), fs.clone());
        Register::new(move |number| {
            let survives = env_on(Arc::new(fs.crash_strict()) as FsRef);
            let prepared = file_name::prepared_path(Path::new(DIR), number);
            let file = survives.fs.open(&prepared, OpenOptions::read()).unwrap();
            assert!(file.len().unwrap() > SEGMENT_HEADER_BYTES as u64);
            assert!(!survives.fs.exists(&path(number)).unwrap());
            seen.lock().push(number);
            Ok(())
        })
    };
    let options = WalOptions { segment_bytes_max: 512, ..WalOptions::default() };
    let pool = WalPool::new(env.clone(), DIR.into(), options, register).unwrap();
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    let lens = [300, 300, 3000, 2 << 20, 10, 300];
    let records: Vec<_> = (1..).zip(lens).collect();
    for &(seq, len) in &records {
        append(&mut log, seq, len).unwrap();
        pool.prepare_step().unwrap();
        assert!(seen.lock().last().is_some_and(|last| *last >= log.current_segment()), "wal.7");
    }
    log.sync().unwrap();
    let last = log.current_segment();
    let seen = seen.lock().clone();
    assert!(seen.iter().copied().eq(1..=seen.len() as u64) && seen.len() as u64 <= last + 1, "{seen:?}");
    expect(&env_on(Arc::new(fs.crash_strict()) as FsRef), &records);
}

#[test]
fn pool_4_a_crash_between_naming_and_the_first_record_loses_nothing() {
    for recycled in [false, true] {
        let (fs, env) = mem();
        let named = Named::default();
        let pool = pool_in(&env, 1024, &named);
        let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
        append(&mut log, 1, 600).unwrap();
        let mut from = 1;
        if recycled {
            // Segment 3 gets the file, and the bytes, of segment 1.
            from = log.rotate().unwrap();
            append(&mut log, 2, 600).unwrap();
            log.release_below(from).unwrap();
        }
        log.sync().unwrap();
        assert!(pool.prepare_step().unwrap());
        let next = from + 1;
        assert_eq!(named.load(Ordering::Relaxed), next);
        let prepared = file_name::prepared_path(Path::new(DIR), next);
        assert!(env.fs.exists(&prepared).unwrap());
        for left in (0..20).map(|seed| fs.crash(seed)).chain([fs.kill(), fs.crash_strict()]) {
            // Put to use in vain: it has its name, but no record of its own.
            for in_use in [false, true] {
                let env = env_on(Arc::new(left.kill()) as FsRef);
                if in_use {
                    finish(&env, from, 600);
                    env.fs.rename(&prepared, &path(next)).unwrap();
                }
                let named = AtomicU64::new(next);
                let (found, recovered) = replayed_in(&env, from, &named).unwrap();
                assert_eq!(found, [(from, payload(from, 600))]);
                let last = if in_use { next } else { from };
                assert_eq!((recovered.next_segment, named.load(Ordering::Relaxed)), (last + 1, last));
                let kept: Vec<_> = (from..=last).map(file_name::segment_file_name).collect();
                assert_eq!(names(&env), kept);
            }
        }
        // A missing prepared file cannot be distinguished from a lost segment.
        env.fs.remove_file(&prepared).unwrap();
        let error = look(&env, from, Some(next)).unwrap_err();
        assert!(matches!(&error, Error::Corrupt { path: p, .. } if *p == path(next)), "{error}");
    }
}

#[test]
fn pool_5_prepared_files_are_deleted_once_nothing_names_them() {
    let (fs, env) = mem();
    let (named, refuses) = (Named::default(), Arc::new(AtomicBool::new(false)));
    let register = {
        let (named, refuses, fs) = (named.clone(), refuses.clone(), fs.clone());
        Register::new(move |number| {
            if number < named.load(Ordering::Relaxed) {
                assert!(fs.exists(&file_name::prepared_path(Path::new(DIR), number + 1)).unwrap());
            }
            if refuses.load(Ordering::Relaxed) {
                return Err(Error::Invalid("no".into()));
            }
            named.store(number, Ordering::Relaxed);
            Ok(())
        })
    };
    let options = WalOptions { segment_bytes_max: 1024, ..WalOptions::default() };
    let pool = WalPool::new(env.clone(), DIR.into(), options, register).unwrap();
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    append(&mut log, 1, 600).unwrap();
    pool.prepare_step().unwrap();
    refuses.store(true, Ordering::Relaxed);
    assert!(pool.trim().is_err());
    assert_eq!((names(&env).len(), named.load(Ordering::Relaxed)), (2, 2));
    refuses.store(false, Ordering::Relaxed);
    pool.trim().unwrap();
    assert_eq!((names(&env), named.load(Ordering::Relaxed)), (vec!["000001.wal".to_owned()], 1));
    // A number that was given up is used again; files that the writer has taken are deleted with the others
    // at the end.
    log.reserve(3000, LogRoom::Common).unwrap();
    assert!(named.load(Ordering::Relaxed) > 3);
    append(&mut log, 2, 1000).unwrap();
    let last = log.current_segment();
    log.close().unwrap();
    assert_eq!((last, named.load(Ordering::Relaxed)), (2, 2));
    assert_eq!(names(&env), ["000001.wal", "000002.wal"]);
    let (found, _) = replayed_in(&env, 1, &named).unwrap();
    assert_eq!(found.iter().map(|r| r.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_manifest_that_cannot_name_a_segment_refuses_the_record_and_nothing_else() {
    let (fs, env) = mem();
    let (named, calls) = (Named::default(), AtomicU64::new(0));
    let register = {
        let named = named.clone();
        // Two of three calls fail; whether they took effect is unknown.
        Register::new(move |number| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if call % 3 != 1 {
                named.store(number, Ordering::Relaxed);
            }
            if call % 3 == 2 { Ok(()) } else { Err(Error::Invalid("not now".into())) }
        })
    };
    let options = WalOptions { segment_bytes_max: 512, ..WalOptions::default() };
    let pool = WalPool::new(env.clone(), DIR.into(), options, register).unwrap();
    let mut log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
    let (mut records, mut refused) = (Vec::new(), 0);
    for seq in 1..60 {
        let bytes = payload(seq, 200);
        match log.append(SeqNo::new(seq), &[&bytes]) {
            Ok(()) => {
                log.sync().unwrap();
                records.push((seq, bytes));
            }
            Err(Error::Invalid(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        let _ = pool.prepare_step();
        let left = env_on(Arc::new(fs.crash(seq)) as FsRef);
        let (found, _) = replayed_in(&left, 1, &AtomicU64::new(named.load(Ordering::Relaxed))).unwrap();
        assert!(found == records, "{seq}");
    }
    assert!(refused > 5 && records.len() > 20, "{refused} of {}", records.len());
}
