//! What openings and closes sync, and power cuts at each of their changes.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use crate::common::contents::{Map, dump_sound};
use crate::common::{dir, simulated};
use esker::{Db, Durability, Result};
use esker_env::{FaultAction, FaultFs, FaultRule, Fs, FsRef, MemFs, OpKind};

/// Puts entry `n` durably.
fn put(db: &Db, n: u64) -> Result<()> {
    let mut batch = db.batch();
    batch.put(&db.default_keyspace(), n.to_be_bytes(), b"value")?;
    batch.commit_with(Durability::Sync)?;
    Ok(())
}

fn names(fs: &MemFs) -> Vec<String> {
    let mut names = fs.list_dir(dir()).unwrap();
    names.sort();
    names
}

/// Does some work, and returns how many files and directories it synced.
fn syncs<T>(faults: &FaultFs, work: impl FnOnce() -> T) -> ((u64, u64), T) {
    let count = || (faults.count(OpKind::SyncData), faults.count(OpKind::SyncDir));
    let before = count();
    let done = work();
    let after = count();
    ((after.0 - before.0, after.1 - before.1), done)
}

#[test]
fn an_opening_syncs_only_what_a_crash_needs() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let open = || simulated(Arc::new(faults.clone())).open(dir()).unwrap();
    // The segment, the manifest, CURRENT and OPTIONS; the directory before and after CURRENT is renamed.
    let (counted, db) = syncs(&faults, open);
    assert_eq!(counted, (4, 2), "a new database");
    assert!(names(&fs).contains(&"000001.wal-next".to_owned()));
    // The name of the segment, and the commit.
    assert_eq!(syncs(&faults, || put(&db, 0).unwrap()).0, (1, 1), "its first commit");
    // The end of the log, and the manifest: its last marker, and what is durable.
    assert_eq!(syncs(&faults, || db.close().unwrap()).0, (3, 0), "a close");
    assert_eq!(syncs(&faults, || open().close().unwrap()).0, (0, 0), "an opening after it, and its close");
}

#[test]
fn an_unused_log_file_is_left_by_a_close_and_put_to_use_by_the_next_process() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let open = || simulated(Arc::new(faults.clone())).open(dir()).unwrap();
    open().close().unwrap();
    for round in 0..3 {
        assert!(names(&fs).contains(&"000001.wal-next".to_owned()), "round {round}");
        // The first time nothing proves that CURRENT is durable.
        assert_eq!(syncs(&faults, || open().close().unwrap()).0, (0, 1), "round {round}");
    }
    let db = open();
    let created = faults.count(OpKind::Create);
    assert_eq!(syncs(&faults, || put(&db, 0).unwrap()).0, (1, 1));
    assert_eq!(faults.count(OpKind::Create), created, "the file is there");
    assert!(db.check().unwrap().problems.is_empty());
    db.close().unwrap();
    assert!(names(&fs).contains(&"000001.wal".to_owned()), "{:?}", names(&fs));
    assert!(!names(&fs).iter().any(|name| name.ends_with(".wal-next")), "{:?}", names(&fs));
}

#[test]
fn what_a_compaction_trims_is_not_left() {
    let fs = MemFs::new();
    let open = || simulated(Arc::new(fs.clone())).open(dir()).unwrap();
    open().close().unwrap();
    let db = open();
    db.compact().unwrap();
    assert!(!names(&fs).iter().any(|name| name.ends_with(".wal-next")), "{:?}", names(&fs));
    put(&db, 0).unwrap();
    db.close().unwrap();
    assert_eq!(entries(&open()).unwrap(), 1);
}

/// A file system on which every change from the `n`-th on fails.
fn dies_at(fs: &MemFs, n: u64) -> FsRef {
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let fail = FaultAction::Fail(std::io::ErrorKind::Other);
    faults.add(FaultRule::new(&OpKind::CHANGES, fail).nth(n).forever());
    Arc::new(faults)
}

/// Opens and closes a new database several times, with and without commits. Counts commits that were begun,
/// and those that are durable.
fn work(fs: &FsRef, begun: &mut u64, durable: &mut u64) -> Result<()> {
    for commits in [0, 0, 2, 0, 1] {
        let db = simulated(fs.clone()).open(dir())?;
        let done = (0..commits).try_for_each(|_| {
            let n = *begun;
            *begun += 1;
            put(&db, n)?;
            *durable = n + 1;
            Ok(())
        });
        if done.is_err() {
            // Like a killed process: without a clean close.
            std::mem::forget(db);
            return done;
        }
        db.close()?;
    }
    Ok(())
}

/// Returns the number of entries, which must be the first ones, in a sound database.
fn entries(db: &Db) -> Result<u64> {
    let contents = dump_sound(db)?;
    let found = &contents["default"];
    let n = found.len() as u64;
    let expected: Map = (0..n).map(|i| (i.to_be_bytes().to_vec(), b"value".to_vec())).collect();
    assert!(*found == expected, "{n} entries that are not the first ones");
    Ok(n)
}

#[test]
fn power_cuts_at_each_change_of_openings_and_closes_lose_nothing_durable() {
    let mut cuts = 0;
    for n in 1.. {
        let fs = MemFs::new();
        let (mut begun, mut durable) = (0, 0);
        let worked = work(&dies_at(&fs, n), &mut begun, &mut durable);
        let seeds = (0..6).map(|seed| fs.crash(n * 100 + seed));
        for (at, left) in seeds.chain([fs.crash_strict(), fs.crash_keep_all(), fs.kill()]).enumerate() {
            let open = |fs: &MemFs| simulated(Arc::new(fs.clone())).open(dir());
            let fail = |what: &str, e: esker::Error| -> ! { panic!("change {n}, cut {at}, {what}: {e}") };
            let db = open(&left).unwrap_or_else(|e| fail("opening", e));
            let found = entries(&db).unwrap_or_else(|e| fail("reading", e));
            assert!((durable..=begun).contains(&found), "change {n}, cut {at}: {found} of {durable}");
            // What is left of the log is fit for new commits.
            put(&db, found).unwrap_or_else(|e| fail("a commit", e));
            std::mem::forget(db);
            for left in [left.crash_strict(), left.crash(n), left.kill()] {
                let db = open(&left).unwrap_or_else(|e| fail("the next opening", e));
                let again = entries(&db).unwrap_or_else(|e| fail("reading again", e));
                assert_eq!(again, found + 1, "change {n}, cut {at}");
            }
            cuts += 1;
        }
        if worked.is_ok() {
            break;
        }
    }
    assert!(cuts > 300, "only {cuts} cuts");
}

#[test]
fn each_change_of_openings_and_closes_may_fail_once() {
    for n in 1.. {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let fail = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&OpKind::CHANGES, fail).nth(n));
        let (mut begun, mut durable) = (0, 0);
        let shared: FsRef = Arc::new(faults.clone());
        let _ = work(&shared, &mut begun, &mut durable);
        let is_over = faults.fired() == 0;
        for left in [fs.kill(), fs.crash_strict(), fs.crash(n)] {
            let db = simulated(Arc::new(left)).open(dir()).unwrap_or_else(|e| panic!("change {n}: {e}"));
            let found = entries(&db).unwrap_or_else(|e| panic!("change {n}: {e}"));
            assert!((durable..=begun).contains(&found), "change {n}: {found} of {durable}");
            put(&db, found).unwrap_or_else(|e| panic!("change {n}: {e}"));
        }
        if is_over {
            break;
        }
    }
}
