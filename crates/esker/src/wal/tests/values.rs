//! Values that contain what looks like records of the log.
//!
//! After a damaged header, the search looks into values. What it finds there must not count.

use super::*;
use crate::encoding::checksum::crc32c;
use crate::wal::format::{Kind, RecordHeader, SegmentHeader};
use crate::wal::{LogPiece, salvage};

const COMMIT: &[u8; 8] = b"a commit";
/// A commit that was never made in this log.
const FOREIGN_SEQ: u64 = 77;

/// Returns records of segment 1 of another log. Each states that everything before it was synced.
fn copied_records(database_id: u32) -> Vec<u8> {
    let log = SegmentHeader { number: 1, made_bytes: 0, database_id, is_sealed: false };
    let record = RecordHeader {
        kind: Kind::Full,
        seq: SeqNo::new(FOREIGN_SEQ),
        synced_to: u32::MAX,
        payload_len: COMMIT.len() as u32,
        payload_crc: crc32c(COMMIT),
    };
    [&record.encode(log.stamp())[..], COMMIT].concat().repeat(100)
}

/// Returns the log of a database with this id: a synced commit, then one with `value`, whose header a power
/// loss took.
fn torn_log(database_id: u32, value: &[u8]) -> Env {
    let (_, env) = mem();
    let options = WalOptions { database_id, ..WalOptions::default() };
    let pool = WalPool::new(env.clone(), DIR.into(), options, Register::new(|_| Ok(()))).unwrap();
    let mut log = WalWriter::create(pool, 1, &[]).unwrap();
    append(&mut log, 1, 8).unwrap();
    log.sync().unwrap();
    log.append(SeqNo::new(2), &[value]).unwrap();
    log.write().unwrap();
    drop(log);
    let file = env.fs.open(&path(1), OpenOptions::write()).unwrap();
    let torn = SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES + 8;
    file.write_all_at(&[0; RECORD_HEADER_BYTES], torn as u64).unwrap();
    env
}

/// Returns the commits that repair finds.
fn salvaged(env: &Env) -> Vec<u64> {
    let mut found = Vec::new();
    salvage(env, Path::new(DIR), LogExtent::default(), &mut |piece| {
        if let LogPiece::Commit { seq, .. } = piece {
            found.push(seq.get());
        }
        Ok(())
    })
    .unwrap();
    found
}

#[test]
fn records_in_a_value_are_no_records_of_this_log() {
    let other = copied_records(5);
    let env = torn_log(9, &other);
    assert_eq!(salvaged(&env), [1]);
    let (records, recovered) = replayed(&env, 1).unwrap();
    assert_eq!((records.len(), records[0].0), (1, 1));
    assert_eq!(recovered.trimmed_bytes, 0, "no header is left of what was torn");
    // Records of a copy of this database cannot be distinguished.
    let env = torn_log(5, &other);
    assert_eq!(salvaged(&env)[..2], [1, FOREIGN_SEQ]);
    assert!(replayed(&env, 1).unwrap_err().is_corrupt());
}

#[test]
fn a_log_whose_first_header_is_damaged_is_salvaged() {
    for at in [0, 16, 24, 28] {
        let env = torn_log(9, &[0; 8]);
        let file = env.fs.open(&path(1), OpenOptions::write()).unwrap();
        file.write_all_at(&[0xEE; 4], at).unwrap();
        let known = LogExtent { database_id: Some(9), ..LogExtent::default() };
        let mut found = Vec::new();
        salvage(&env, Path::new(DIR), known, &mut |piece| {
            if let LogPiece::Commit { seq, .. } = piece {
                found.push(seq.get());
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(found, [1], "the header is damaged at byte {at}");
    }
}
