//! Damage to the log costs the damaged commits, and no others.

use std::sync::Arc;

use esker::Durability;
use esker_env::{FaultFs, Fs, MemFs, OpKind};

use super::judge::{
    SEGMENT_HEADER_BYTES, assert_not_overreported, builder, failing, judge, repair, roomy, target,
};
use crate::common::contents::dump_sound;
use crate::common::damage::{Golden, LOGGED, logged_key, overwrite, path, read, records};
use crate::common::dir;

#[test]
fn no_commit_is_put_together_over_a_segment_that_is_missing_or_cannot_be_read() {
    let running = MemFs::new();
    let db = roomy(Arc::new(running.clone())).open(dir()).unwrap();
    let (keyspace, mut batch) = (db.default_keyspace(), db.batch());
    // Each takes 16 bytes of the log, which divides the size of a segment: without the middle segment the
    // others would fit together.
    for n in 0..60_000u32 {
        batch.put(&keyspace, u64::from(n).to_be_bytes(), n.to_be_bytes()).unwrap();
    }
    batch.commit().unwrap();
    let left = running.kill();
    assert_eq!(left.list_dir(dir()).unwrap().iter().filter(|name| name.ends_with(".wal")).count(), 3);
    let middle = "000002.wal";
    let faults = [
        None,
        Some(failing(&[OpKind::Open], middle)),
        Some(failing(&[OpKind::Read], middle)),
        Some(failing(&[OpKind::Read], middle).on_bytes(300_000..300_001)),
    ];
    for fault in faults {
        let what = format!("{fault:?}");
        let fs = left.crash_keep_all();
        let faulty = FaultFs::new(Arc::new(fs.clone()));
        match fault {
            None => fs.remove_file(&path(middle)).unwrap(),
            Some(rule) => faulty.add(rule),
        }
        let report = roomy(Arc::new(faulty)).repair(dir(), target()).unwrap();
        assert_eq!((report.commits, report.live_keys()), (0, 0), "{what}: {report:#?}");
        let is_requested = |loss: &esker::Loss| loss.detail.contains("is incomplete");
        assert!(report.losses.iter().any(is_requested), "{what}: {report:#?}");
    }
    let report = roomy(Arc::new(left)).repair(dir(), target()).unwrap();
    assert_eq!((report.commits, report.live_keys(), report.losses.len()), (1, 60_000, 0), "{report:#?}");
}

#[test]
fn a_sector_of_the_log_that_cannot_be_read_costs_its_commits_alone() {
    let running = MemFs::new();
    let db = roomy(Arc::new(running.clone())).open(dir()).unwrap();
    let keyspace = db.default_keyspace();
    (0..40u8).for_each(|n| keyspace.put([n], [n; 1000]).map(drop).unwrap());
    let left = running.kill();
    // Among the commits, and after them, where there may have been more.
    for (sector, most) in [(9_000..9_001, 6), (200_000..200_001, 0)] {
        let fs = FaultFs::new(Arc::new(left.crash_keep_all()));
        fs.add(failing(&[OpKind::Read], "000001.wal").on_bytes(sector.clone()));
        let report = roomy(Arc::new(fs.clone())).repair(dir(), target()).unwrap();
        assert!(fs.fired() <= 10, "{} reads failed", fs.fired());
        let missing = 40 - report.live_keys();
        assert!(missing <= most && (missing > 0) == (most > 0), "{sector:?}: {report:#?}");
        assert!(report.losses.iter().any(|loss| loss.detail.contains("cannot be read")), "{report:#?}");
        let reported = report.losses.iter().filter_map(|loss| loss.commits);
        assert_eq!(reported.map(|(first, last)| last + 1 - first).sum::<u64>(), missing, "{report:#?}");
        fs.clear();
        let found = dump_sound(&roomy(Arc::new(fs)).open(target()).unwrap()).unwrap();
        assert!(found["default"].iter().all(|(key, value)| value[..] == [key[0]; 1000]));
    }
}

#[test]
fn recovery_6_a_renamed_segment_is_distinguished_from_a_prepared_file() {
    let running = MemFs::new();
    let db = roomy(Arc::new(running.clone())).open(dir()).unwrap();
    let keyspace = db.default_keyspace();
    (0..40u8).for_each(|n| keyspace.put([n], [n; 1000]).map(drop).unwrap());
    let fs = running.kill();
    let (name, renamed) = (path("000001.wal"), path("000001.wal-next"));
    fs.rename(&name, &renamed).unwrap();
    let options = || roomy(Arc::new(fs.clone()));
    let advice = "give it this name again";
    let problems = options().check_offline(dir()).unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains(advice)), "recovery.6: {problems:#?}");
    let error = options().open(dir()).map(drop).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains(advice), "recovery.6: {error}");
    let report = options().repair(dir(), target()).unwrap();
    assert!(report.losses.iter().any(|loss| loss.detail.contains(advice)), "recovery.6: {report:#?}");
    fs.rename(&renamed, &name).unwrap();
    assert_eq!(options().open(dir()).unwrap().default_keyspace().len().unwrap(), 40);
}

#[test]
fn a_damaged_record_costs_its_commit_alone() {
    let golden = Golden::merged();
    let log = golden.last_segment();
    let all = records(&golden.fs, log);
    assert_eq!(all.len(), LOGGED);
    for (n, record) in all.iter().enumerate() {
        for at in [record.start, record.start + 13, record.end - 1] {
            let fs = golden.copy();
            overwrite(&fs, log, at, &[golden.read(log)[at] ^ 1]);
            let error = builder(&fs).open(dir()).map(drop).unwrap_err();
            assert!(error.is_corrupt() && error.to_string().contains("esker repair"), "{error}");
            let (report, found) = repair(&fs).unwrap();
            let mut expected = golden.newest.clone();
            expected.get_mut("default").unwrap().remove(logged_key(n));
            assert!(found == expected, "{n}: {report:#?}");
            assert_not_overreported(&golden, &format!("record {n}"), log, &report);
            let reported: Vec<u64> = report.losses.iter().map(|loss| loss.offset).collect();
            let lost: Vec<_> = report.losses.iter().filter_map(|loss| loss.commits).collect();
            match all.get(n + 1) {
                // The place itself, and the gap that the next commit reveals.
                Some(next) => {
                    assert_eq!(reported, [record.start as u64, next.start as u64]);
                    assert_eq!(lost, [(record.seq, record.seq)]);
                }
                // The place itself, and the new end of the log, before a commit that the manifest knows.
                None => {
                    assert_eq!(reported, [record.start as u64, all[n - 1].start as u64]);
                    assert_eq!(lost, [(record.seq, record.seq)]);
                }
            }
        }
    }
}

#[test]
fn what_lies_behind_an_unfinished_commit_never_counted() {
    let running = MemFs::new();
    let db = builder(&running).open(dir()).unwrap();
    let keyspace = db.default_keyspace();
    keyspace.put("1", [1; 30]).unwrap();
    for n in 2..5u8 {
        let mut batch = db.batch();
        batch.put(&keyspace, [b'0' + n], [n; 30]).unwrap();
        batch.commit_with(Durability::Buffered).unwrap();
    }
    // A power loss destroys one unsynced record and leaves later ones.
    let fs = running.kill();
    let log = fs.list_dir(dir()).unwrap().into_iter().find(|name| name.ends_with(".wal")).unwrap();
    let at = read(&fs, &log).windows(30).position(|w| w == [2; 30]).unwrap();
    overwrite(&fs, &log, at, &[0; 30]);

    let checked = builder(&fs).check_offline(dir()).unwrap();
    assert!(checked.problems.is_empty() && checked.commits == 1, "{checked:#?}");
    let (report, repaired) = repair(&fs).unwrap();
    assert!(report.losses.is_empty() && report.commits == 1, "{report:#?}");
    let db = builder(&fs).open(dir()).unwrap();
    let opened = dump_sound(&db).unwrap();
    assert!(repaired == opened && opened["default"].len() == 1, "{opened:?}");
}

#[test]
fn a_commit_is_reported_as_lost_even_if_only_the_header_of_a_later_one_proves_it() {
    let running = MemFs::new();
    let db = builder(&running).open(dir()).unwrap();
    let keyspace = db.default_keyspace();
    (1..4u8).for_each(|n| keyspace.put([n], [n; 30]).map(drop).unwrap());
    let left = running.kill();
    let log = left.list_dir(dir()).unwrap().into_iter().find(|name| name.ends_with(".wal")).unwrap();
    // A power loss leaves only the header of the third commit. Then a byte of another commit is damaged.
    let cases: [(&[u8], u64, bool); 3] = [(&[1, 3], 1, true), (&[2, 3], 1, true), (&[3], 2, false)];
    for (damaged, commits, is_lost) in cases {
        let fs = left.crash_keep_all();
        for value in damaged {
            let at = read(&fs, &log).windows(30).position(|bytes| bytes == [*value; 30]).unwrap();
            overwrite(&fs, &log, at, &[!value]);
        }
        let is_refused = builder(&fs.crash_keep_all()).open(dir()).is_err();
        let (report, _) = repair(&fs).unwrap();
        let reported = (report.commits, !report.losses.is_empty());
        assert_eq!((is_refused, reported), (is_lost, (commits, is_lost)), "{damaged:?}: {report:#?}");
    }
}

#[test]
fn damage_of_the_log_that_costs_nothing_is_distinguished() {
    let golden = Golden::merged();
    let log = golden.last_segment();
    let (bytes, last) = (golden.read(log), *records(&golden.fs, log).last().unwrap());
    let flip = |at: usize| judge(&golden, &format!("byte {at}"), |fs| overwrite(fs, log, at, &[!bytes[at]]));
    // The padding of the last commit, and the end record. Without it nothing proves that no commit followed,
    // in a file that is shorter than it was made.
    let end = last.end.next_multiple_of(8);
    for at in last.end..bytes.len() {
        let report = flip(at);
        let reported: Vec<_> = report.losses.iter().map(|loss| (loss.offset, loss.commits)).collect();
        assert_eq!(reported, if at < end { vec![] } else { vec![(end as u64, None)] }, "{at}");
        assert_eq!(report.commits, LOGGED as u64);
    }
    // The header repeats what the records say, but without it nothing proves that they are complete.
    for at in 0..SEGMENT_HEADER_BYTES {
        let report = flip(at);
        let reported: Vec<_> = report.losses.iter().map(|loss| (loss.offset, loss.bytes)).collect();
        assert_eq!(
            (reported, report.commits),
            (vec![(0, SEGMENT_HEADER_BYTES as u64)], LOGGED as u64),
            "{at}"
        );
    }
}
