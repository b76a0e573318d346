//! Truncated, overwritten and exchanged ends of logs: recovery notices them (wal.8) and distinguishes them
//! from the effects of a crash.

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, FaultAction, FaultFs, FaultRule, FsRef, MemFs, OpKind, OpenOptions};

use super::{
    DIR, Named, append, bytes_of, env_on, env_with, mem, names, path, payload, pool_in, replayed_in, writer,
};
use crate::types::{Error, Result, SeqNo};
use crate::wal::format::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::wal::recovery::{Recovered, verify};
use crate::wal::salvage::{LogPiece, salvage};
use crate::wal::{LogExtent, Register, WalOptions, WalPool, WalWriter, file_name};

/// Size of a record with 32 bytes of payload.
const RECORD: usize = RECORD_HEADER_BYTES + 32;

/// Returns a log of one segment with three synced records.
fn three_records(closed: bool) -> (MemFs, Env) {
    let (fs, env) = mem();
    let mut log = writer(&env, 4096);
    for seq in 1..=3 {
        append(&mut log, seq, 32).unwrap();
        log.sync().unwrap();
    }
    if closed {
        log.close().unwrap();
    }
    (fs, env)
}

fn look(env: &Env, durable_to: Option<u64>, database_id: Option<u32>) -> Result<Recovered> {
    let durable_to = durable_to.map(SeqNo::new);
    let extent = LogExtent { from: 1, durable_to, database_id, ..LogExtent::default() };
    verify(env, Path::new(DIR), extent, |_, _| Ok(()))
}

/// Returns the salvaged commits and the reported losses.
fn salvaged(env: &Env, extent: LogExtent) -> (Vec<u64>, Vec<String>) {
    let (mut commits, mut losses) = (Vec::new(), Vec::new());
    salvage(env, Path::new(DIR), extent, &mut |piece| {
        match piece {
            LogPiece::Commit { seq, .. } => commits.push(seq.get()),
            LogPiece::Lost { error, .. } => losses.push(error.to_string()),
            LogPiece::Torn { .. } => {}
        }
        Ok(())
    })
    .unwrap();
    (commits, losses)
}

/// Asserts that opening refuses the log with this text, names segment 1, and changes nothing.
fn refused(env: &Env, outcome: Result<Recovered>, text: &str) {
    let error = outcome.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { path: p, .. } if *p == path(1)), "{error}");
    let said = error.to_string();
    assert!(said.contains(text) && said.contains("esker repair"), "{said}");
    assert_eq!(names(env), ["000001.wal"]);
}

#[test]
fn recovery_7_a_last_segment_that_was_cut_anywhere_is_refused() {
    for closed in [false, true] {
        let (_, env) = three_records(closed);
        let whole = bytes_of(&env, 1);
        assert_eq!(look(&env, None, None).unwrap().records, 3);
        for len in SEGMENT_HEADER_BYTES..whole.len() {
            let env = env_with(&[(1, &whole[..len])]);
            refused(&env, look(&env, None, None), "it was cut");
            let (commits, losses) = salvaged(&env, LogExtent { from: 1, ..LogExtent::default() });
            assert_eq!(commits.len(), ((len - SEGMENT_HEADER_BYTES) / RECORD).min(3), "{len}");
            assert!(losses.len() == 1 && losses[0].contains("it was cut"), "{len}: {losses:?}");
        }
    }
}

#[test]
fn recovery_7_an_end_that_was_overwritten_is_refused_where_the_manifest_knows_of_it() {
    let (_, env) = three_records(true);
    let whole = bytes_of(&env, 1);
    assert_eq!(look(&env, Some(3), None).unwrap().records, 3);
    assert!(look(&env, Some(4), None).is_err());
    for kept in 0..3 {
        let mut bytes = whole.clone();
        // The file is not shorter than it was made: only the manifest shows what was there.
        bytes.resize(4096, 0);
        bytes[SEGMENT_HEADER_BYTES + kept * RECORD..].fill(0);
        let env = env_with(&[(1, &bytes)]);
        for durable in 0..=3 {
            match durable > kept as u64 {
                true => refused(&env, look(&env, Some(durable), None), "its end is lost"),
                false => assert_eq!(look(&env, Some(durable), None).unwrap().records, kept as u64),
            }
        }
    }
    // All of the log is gone, and only the manifest says that there was one.
    let (_, env) = mem();
    assert!(look(&env, Some(1), None).unwrap_err().to_string().contains("000001.wal"));
    assert_eq!(look(&env, None, None).unwrap().records, 0);
}

#[test]
fn recovery_7_the_log_of_another_database_is_refused() {
    let written_by = |database_id| {
        let (_, env) = mem();
        let options = WalOptions { segment_bytes_max: 4096, database_id, ..WalOptions::default() };
        let pool = WalPool::new(env.clone(), DIR.into(), options, Register::new(|_| Ok(()))).unwrap();
        let mut log = WalWriter::create(pool, 1, &[]).unwrap();
        append(&mut log, 1, 32).unwrap();
        log.close().unwrap();
        env
    };
    let env = written_by(7);
    assert_eq!(look(&env, None, Some(7)).unwrap().records, 1);
    assert_eq!(look(&env, None, None).unwrap().records, 1, "a database without a number takes it");
    refused(&env, look(&env, None, Some(8)), "of another database");
    let (commits, losses) =
        salvaged(&env, LogExtent { from: 1, database_id: Some(8), ..LogExtent::default() });
    assert!(commits.is_empty() && losses.len() == 1 && losses[0].contains("another database"), "{losses:?}");
}

#[test]
fn a_foreign_segment_does_not_hide_the_records_of_one_whose_header_is_damaged() {
    let written_by = |database_id| {
        let (_, env) = mem();
        let options = WalOptions { segment_bytes_max: 1024, database_id, ..WalOptions::default() };
        let pool = WalPool::new(env.clone(), DIR.into(), options, Register::new(|_| Ok(()))).unwrap();
        let mut log = WalWriter::create(pool, 1, &[]).unwrap();
        for seq in 1..=3 {
            append(&mut log, seq, 32).unwrap();
            log.rotate().unwrap();
        }
        log.close().unwrap();
        env
    };
    let (own, other) = (written_by(7), written_by(9));
    let (foreign, mut damaged, last) = (bytes_of(&other, 1), bytes_of(&own, 2), bytes_of(&own, 3));
    // Damages the header, but not the database id.
    damaged[12] ^= 1;
    let env = env_with(&[(1, &foreign), (2, &damaged), (3, &last)]);
    let (commits, losses) = salvaged(&env, LogExtent { from: 1, ..LogExtent::default() });
    assert_eq!(commits, [1, 2, 3], "{losses:?}");
    // If the database id is known, nothing of another log counts, whatever a damaged header says.
    let known = LogExtent { from: 1, database_id: Some(9), ..LogExtent::default() };
    let (commits, losses) = salvaged(&env, known);
    assert_eq!(commits, [1], "{losses:?}");
}

#[test]
fn recovery_6_a_segment_with_the_name_of_a_prepared_file_is_lost_and_a_prepared_file_is_not() {
    let (_, env) = mem();
    let named = Named::default();
    let mut log = WalWriter::create(pool_in(&env, 1024, &named), 1, &[]).unwrap();
    append(&mut log, 1, 600).unwrap();
    log.rotate().unwrap();
    append(&mut log, 2, 600).unwrap();
    log.sync().unwrap();
    drop(log);
    let extent = LogExtent { from: 1, named_to: Some(2), ..LogExtent::default() };
    env.fs.rename(&path(2), &file_name::prepared_path(Path::new(DIR), 2)).unwrap();
    let error = replayed_in(&env, 1, &std::sync::atomic::AtomicU64::new(2)).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { path: p, .. } if *p == path(2)), "{error}");
    assert!(error.to_string().contains("the segment was renamed"), "{error}");
    assert_eq!(names(&env), ["000001.wal", "000002.wal-next"], "nothing is changed");
    let (commits, losses) = salvaged(&env, extent);
    assert_eq!(commits, [1], "{losses:?}");
    assert!(losses.len() == 1 && losses[0].contains("give it this name again"), "{losses:?}");
    // A segment without records was never put to use.
    let prepared = file_name::prepared_path(Path::new(DIR), 2);
    let file = env.fs.open(&prepared, OpenOptions::write()).unwrap();
    file.write_all_at(&[0; 600], SEGMENT_HEADER_BYTES as u64).unwrap();
    assert_eq!(verify(&env, Path::new(DIR), extent, |_, _| Ok(())).unwrap().records, 1);
}

#[test]
fn recovery_7_a_crash_while_a_tail_is_finished_does_not_look_like_a_cut() {
    let (fs, env) = mem();
    let mut log = writer(&env, 4096);
    append(&mut log, 1, 32).unwrap();
    log.sync().unwrap();
    append(&mut log, 2, 32).unwrap();
    log.write().unwrap();
    let left = fs.kill();
    let mut stopped = 0;
    for nth in 1.. {
        let fs = left.kill();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let fail = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&OpKind::CHANGES, fail).nth(nth).forever());
        let finished = replayed_in(&env_on(Arc::new(faults) as FsRef), 1, &Named::default());
        for seed in 0..50 {
            let env = env_on(Arc::new(fs.crash(seed)) as FsRef);
            let (found, _) = replayed_in(&env, 1, &Named::default()).unwrap();
            assert!(found.starts_with(&[(1, payload(1, 32))]), "call {nth}, seed {seed}");
        }
        if finished.is_ok() {
            break;
        }
        stopped += 1;
    }
    assert!(stopped >= 4, "{stopped} calls of recovery change something");
}
