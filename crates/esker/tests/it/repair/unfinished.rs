//! A repair that is stopped at any of its changes: what it leaves is refused, or is no database, or a
//! complete one. A failed repair leaves nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker::{Db, DumpOptions, DumpValue, Error, check_offline};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions};

use super::judge::{builder, target};
use crate::common::contents::{Contents, difference, dump_sound};
use crate::common::{dir, simulated};

/// A closed database of three keyspaces, with tables and a log.
fn source() -> (MemFs, Contents) {
    let fs = MemFs::new();
    let db = builder(&fs).open(dir()).unwrap();
    for name in ["default", "people", "places"] {
        let keyspace = db.keyspace(name).unwrap();
        for n in 0..12_u32 {
            keyspace.put(n.to_be_bytes(), [n as u8; 100]).unwrap();
        }
    }
    db.flush().unwrap();
    db.keyspace("people").unwrap().put("logged", "later").unwrap();
    let contents = dump_sound(&db).unwrap();
    db.close().unwrap();
    (fs.crash_keep_all(), contents)
}

/// Repairs a copy of the database while this rule holds for the target. Returns the outcome, and the files.
fn repair_with(fs: &MemFs, rule: FaultRule) -> (Result<(), Error>, FaultFs, MemFs) {
    let copy = fs.kill();
    let faults = FaultFs::new(Arc::new(copy.clone()));
    faults.add(rule.on_path("repaired"));
    let repaired = simulated(Arc::new(faults.clone())).repair(dir(), target());
    (repaired.map(drop), faults, copy)
}

/// The state of the target, if rescue_repair.4 and unfinished.1 hold.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Nothing,
    /// A lock file; the next repair takes the directory.
    Lock,
    Refused,
    Whole,
}

fn found_in(fs: &MemFs, expected: &Contents, when: &str) -> Found {
    match builder(fs).create_if_missing(false).open(target()) {
        Err(Error::NotFound(_)) if fs.list_dir(target()).is_ok_and(|names| names == ["LOCK"]) => {
            let fs = fs.kill();
            let repaired = builder(&fs).repair(dir(), target());
            assert!(repaired.is_ok(), "{when}: {repaired:?}");
            assert_eq!(found_in(&fs, expected, when), Found::Whole);
            Found::Lock
        }
        Err(Error::NotFound(_)) => Found::Nothing,
        Err(Error::UnfinishedRepair(path)) => {
            assert_eq!(path, target(), "{when}");
            Found::Refused
        }
        Err(error) => panic!("{when}: {error}"),
        Ok(db) => {
            let found = dump_sound(&db).unwrap_or_else(|error| panic!("{when}: {error}"));
            assert!(found == *expected, "{when}: {}", difference(&found, expected));
            assert!(db.create_keyspace("new").unwrap().first().unwrap().is_none(), "{when}: catalog.2");
            Found::Whole
        }
    }
}

#[test]
fn unfinished_1_a_repair_that_is_killed_leaves_no_part_of_a_database() {
    let (fs, expected) = source();
    let mut seen = BTreeSet::new();
    let mut last = 0;
    for n in 1.. {
        let keep = if n % 2 == 0 { 0 } else { 700 };
        let rule = FaultRule::new(&OpKind::CHANGES, FaultAction::Freeze { keep }).nth(n);
        let (done, _, left) = repair_with(&fs, rule);
        let crashes = (0..6).map(|seed| left.crash(n * 100 + seed));
        for (how, left) in
            [left.kill(), left.crash_strict(), left.crash_keep_all()].into_iter().chain(crashes).enumerate()
        {
            let found = found_in(&left, &expected, &format!("change {n}, {how}"));
            assert!(done.is_err() || found == Found::Whole, "change {n}, {how}: {found:?}");
            seen.insert(found);
        }
        if done.is_ok() {
            last = n;
            break;
        }
    }
    assert!(last > 60, "only {last} changes");
    assert_eq!(seen, BTreeSet::from([Found::Nothing, Found::Lock, Found::Refused, Found::Whole]));
}

#[test]
fn rescue_repair_4_a_repair_that_fails_leaves_no_file() {
    let (fs, expected) = source();
    let io = FaultAction::Fail(std::io::ErrorKind::Other);
    let kinds = [
        OpKind::Create,
        OpKind::Write,
        OpKind::SetLen,
        OpKind::Allocate,
        OpKind::SyncData,
        OpKind::CreateDir,
    ];
    let rules = [
        FaultRule::new(&kinds, FaultAction::NoSpace).forever(),
        FaultRule::new(&OpKind::CHANGES, FaultAction::NoSpace),
        FaultRule::new(&OpKind::CHANGES, io),
    ];
    for (of, rule) in rules.into_iter().enumerate() {
        let mut failed = 0;
        for n in 1.. {
            let (done, faults, left) = repair_with(&fs, rule.clone().nth(n));
            let when = format!("rule {of}, change {n}");
            if faults.fired() == 0 {
                break;
            }
            if let Err(error) = done {
                failed += 1;
                let reported = matches!(error, Error::Io { .. } | Error::NoSpace { .. } | Error::Poisoned(_));
                assert!(reported, "{when}: {error}");
                assert_eq!(
                    left.list_dir(target()).unwrap_or_default(),
                    Vec::<String>::new(),
                    "rescue_repair.4: {when}: {error}"
                );
                let after = |left: &MemFs| found_in(left, &expected, &when);
                assert_eq!(after(&left), Found::Nothing);
                (0..4).for_each(|seed| assert_ne!(after(&left.crash(seed)), Found::Whole, "{when}"));
            } else {
                assert_eq!(found_in(&left, &expected, &when), Found::Whole);
            }
        }
        assert!(failed > 40, "rule {of}: only {failed} repairs failed");
    }
}

#[test]
fn target_dir_4_the_marker_stays_where_files_cannot_be_removed() {
    let (fs, expected) = source();
    let never = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
    for kinds in
        [&[OpKind::Remove][..], &[OpKind::SyncDir], &[OpKind::Rename, OpKind::Remove, OpKind::SyncDir]]
    {
        let mut refused = 0;
        for n in 1.. {
            let (done, faults, left) = repair_with(&fs, FaultRule::new(kinds, never).nth(n).forever());
            let when = format!("{kinds:?} {n}");
            if faults.fired() == 0 {
                assert!(done.is_ok(), "{when}: {done:?}");
                break;
            }
            for left in [left.kill(), left.crash_strict(), left.crash(n), left.crash_keep_all()] {
                let found = found_in(&left, &expected, &when);
                // If only the sync after the marker's removal fails, the database is complete.
                assert!(done.is_err() || found == Found::Whole, "{when}: {found:?}");
                refused += u64::from(found == Found::Refused);
            }
        }
        assert!(refused > 0, "{kinds:?}");
    }
}

#[test]
fn a_held_lock_keeps_the_directory() {
    let (fs, expected) = source();
    fs.create_dir_all(target()).unwrap();
    let held = fs.lock(&target().join("LOCK")).unwrap();
    let refused = builder(&fs).repair(dir(), target());
    assert!(matches!(&refused, Err(Error::Locked { path, .. }) if path.starts_with(target())), "{refused:?}");
    drop(held);
    assert_eq!(fs.list_dir(target()).unwrap(), ["LOCK"]);
    assert_eq!(found_in(&fs, &expected, "given back"), Found::Lock);
    // A file with a name that is not the engine's belongs to another program.
    fs.open(&target().join("notes"), OpenOptions::create()).unwrap();
    let refused = builder(&fs).repair(dir(), target());
    assert!(matches!(&refused, Err(Error::Invalid(text)) if text.contains("not empty")), "{refused:?}");
}

#[test]
fn a_report_of_a_database_that_stays_is_not_lost() {
    let (fs, expected) = source();
    let never = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
    let (mut stays, mut goes) = (0, 0);
    for n in 1.. {
        let copy = fs.kill();
        let faults = FaultFs::new(Arc::new(copy.clone()));
        // From this change on all changes fail.
        faults.add(FaultRule::new(&OpKind::CHANGES, never).nth(n).forever().on_path("repaired"));
        let mut reported = None;
        let repaired = simulated(Arc::new(faults.clone()))
            .repair_with_progress(dir(), target(), |report| reported = Some(report.clone()));
        let found = found_in(&copy, &expected, &format!("change {n}"));
        if let Ok(report) = repaired {
            assert_eq!((reported, found), (Some(report), Found::Whole));
            break;
        }
        match found {
            Found::Whole => {
                let report = reported.expect("an interrupted repair is reported");
                let keys = expected.values().map(|keyspace| keyspace.len() as u64).sum::<u64>();
                assert_eq!((report.live_keys(), report.losses), (keys, Vec::new()));
                stays += 1;
            }
            _ => goes += 1,
        }
    }
    assert!(stays > 0 && goes > 60, "{stays}, {goes}");
}

#[test]
fn target_dir_4_a_repair_that_fails_and_is_killed_then_leaves_no_part_of_a_database() {
    let (fs, expected) = source();
    let io = FaultAction::Fail(std::io::ErrorKind::Other);
    let change = |n, action| FaultRule::new(&OpKind::CHANGES, action).nth(n).on_path("repaired");
    let (_, faults, _) = repair_with(&fs, change(u64::MAX, io));
    let changes: u64 = OpKind::CHANGES.iter().map(|kind| faults.count(*kind)).sum();
    let (mut killed, mut locks) = (0, 0);
    for n in (1..changes).filter(|n| n % 4 == 0 || n + 8 > changes) {
        for after in 1.. {
            let copy = fs.kill();
            let faults = FaultFs::new(Arc::new(copy.clone()));
            faults.add(change(n, io));
            faults.add(change(n + after, FaultAction::Freeze { keep: 0 }));
            let done = simulated(Arc::new(faults.clone())).repair(dir(), target());
            let crashes = (0..4).map(|seed| copy.crash(n * 100 + seed));
            for left in [copy.kill(), copy.crash_strict(), copy.crash_keep_all()].into_iter().chain(crashes) {
                let when = format!("change {n}, killed {after} changes later");
                let found = found_in(&left, &expected, &when);
                assert!(done.is_err() || found == Found::Whole, "{when}: {found:?}");
                locks += u64::from(found == Found::Lock);
            }
            if !faults.is_frozen() {
                break;
            }
            killed += 1;
        }
    }
    assert!(killed > 100 && locks > 0, "only {killed} kills of {changes} changes, {locks} behind the marker");
}

#[test]
fn an_unfinished_repair_is_reported_as_one() {
    let (fs, expected) = source();
    let rule = FaultRule::new(&[OpKind::Create], FaultAction::Freeze { keep: 0 }).nth(6);
    let (done, _, left) = repair_with(&fs, rule);
    assert!(done.is_err());
    let left = left.kill();
    let names = || {
        let mut names = left.list_dir(target()).unwrap();
        names.sort();
        names
    };
    let before = names();
    assert!(
        before.iter().any(|name| name == "REPAIRING") && before.iter().any(|name| name == "CURRENT"),
        "{before:?}"
    );
    let refused = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::UnfinishedRepair(_)), "{error}");
        let text = "a repair into repaired did not finish: remove the directory and repair again";
        assert_eq!(error.to_string(), text);
    };
    refused(builder(&left).open(target()).map(drop));
    refused(builder(&left).create_if_missing(false).open(target()).map(drop));
    refused(builder(&left).error_if_exists(true).open(target()).map(drop));
    refused(builder(&left).repair(dir(), target()).map(drop));
    refused(builder(&left).repair(target(), "elsewhere").map(drop));
    let report = builder(&left).check_offline(target()).unwrap();
    assert_eq!(
        report.problems,
        ["a repair into repaired did not finish: remove the directory and repair again"]
    );
    let mut shown = Vec::new();
    let env = Env::simulated(Arc::new(left.clone()), 1);
    DumpOptions::default().env(env).dump("repaired/REPAIRING", |item| shown.push(item)).unwrap();
    assert_eq!(shown[0].fields[1].1, DumpValue::from("marker of an unfinished repair"));
    let DumpValue::Bytes(text) = &shown[1].fields[0].1 else { panic!("{shown:?}") };
    assert!(text.ends_with(b"remove the directory and repair again."));
    assert_eq!(names(), before);
    // As the message advises.
    for name in before {
        left.remove_file(&target().join(name)).unwrap();
    }
    builder(&left).repair(dir(), target()).unwrap();
    assert_eq!(found_in(&left, &expected, "again"), Found::Whole);
}

#[test]
fn an_unfinished_repair_on_real_files_is_reported_as_one() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    Db::open(&dir).unwrap().close().unwrap();
    std::fs::write(dir.join("REPAIRING"), "").unwrap();
    assert!(matches!(Db::open(&dir), Err(Error::UnfinishedRepair(_))));
    assert_eq!(check_offline(&dir).unwrap().problems.len(), 1);
    std::fs::remove_file(dir.join("REPAIRING")).unwrap();
    Db::open(&dir).unwrap();
}
