//! A database whose directory is moved, removed or replaced while it is open continues in the directory that
//! it opened. It changes nothing in the new one at its path (engine/life/open.rs; dir_lock.1 of
//! engine/disk/dir_lock.rs). It follows no links in its directory.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "directories of these tests' own")]

use std::fs;
use std::path::Path;

use esker::{BackgroundStep, Db, Error, Keyspace};

fn open(dir: &Path) -> Db {
    Db::builder().stepped().open(dir).expect("open")
}

fn fill(map: &Keyspace, from: u32, to: u32) {
    for n in from..to {
        map.put(n.to_be_bytes(), [7; 1000]).expect("put");
    }
}

/// Asserts that the directory is sound and has this many items.
fn expect_items(dir: &Path, expected: u64) {
    let db = open(dir);
    assert_eq!(db.default_keyspace().len().expect("len"), expected);
    let report = db.check().expect("check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    db.close().expect("close");
}

#[test]
fn a_database_whose_directory_is_gone_spares_the_one_that_was_made_in_the_same_place() {
    for flushes_first in [false, true] {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("db");
        let old = open(&dir);
        fill(&old.default_keyspace(), 0, 200);
        while old.step(BackgroundStep::PrepareLog).expect("prepare") {}
        fs::remove_dir_all(&dir).expect("remove");
        let new = open(&dir);
        let map = new.default_keyspace();
        fill(&map, 0, 200);
        while new.step(BackgroundStep::PrepareLog).expect("prepare") {}
        if flushes_first {
            new.flush().expect("flush");
        }
        for _ in 0..3 {
            assert!(
                matches!(old.flush(), Err(Error::Io { .. })),
                "no file can be made in a removed directory"
            );
        }
        assert!(old.compact().is_err());
        // The files that closing would remove are gone already.
        let _ = old.close();
        fill(&map, 200, 2000);
        new.compact().expect("compact");
        drop(map);
        new.close().expect("close");
        expect_items(&dir, 2000);
    }
}

#[test]
fn a_database_goes_on_where_its_directory_was_moved_to() {
    let root = tempfile::tempdir().expect("a directory");
    let (dir, moved) = (root.path().join("db"), root.path().join("moved"));
    let old = open(&dir);
    fill(&old.default_keyspace(), 0, 100);
    fs::rename(&dir, &moved).expect("move");
    let new = open(&dir);
    fill(&new.default_keyspace(), 0, 300);
    fill(&old.default_keyspace(), 100, 2000);
    old.compact().expect("compact");
    fill(&old.default_keyspace(), 2000, 3000);
    assert!(matches!(Db::open(&moved), Err(Error::Locked { .. })), "it is still locked");
    old.close().expect("close");
    new.close().expect("close");
    expect_items(&dir, 300);
    expect_items(&moved, 3000);
}

/// Links to other files in place of those that opening writes or reads.
#[test]
fn opening_writes_and_reads_nothing_through_a_link() {
    let names = ["LOCK", "CURRENT.tmp", "OPTIONS.tmp", "CURRENT", "MANIFEST-000001"];
    for (name, leads_to_a_file) in names.into_iter().flat_map(|name| [(name, true), (name, false)]) {
        let root = tempfile::tempdir().expect("a directory");
        let (dir, outside) = (root.path().join("db"), root.path().join("outside"));
        fs::create_dir(&dir).expect("make");
        if leads_to_a_file {
            fs::write(&outside, "precious").expect("write");
        }
        std::os::unix::fs::symlink(&outside, dir.join(name)).expect("link");
        match Db::builder().stepped().open(&dir) {
            Ok(db) => {
                fill(&db.default_keyspace(), 0, 100);
                db.compact().expect("compact");
                db.close().expect("close");
            }
            Err(error) => assert!(error.to_string().contains("symbolic link"), "{name}: {error}"),
        }
        let is = fs::read(&outside).ok();
        assert_eq!(is, leads_to_a_file.then(|| b"precious".to_vec()), "{name}");
    }
    // Repair and check do not follow them either. But the directory itself may be reached through a link.
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    let db = open(&at("db"));
    fill(&db.default_keyspace(), 0, 100);
    db.close().expect("close");
    std::os::unix::fs::symlink("db", at("link")).expect("link");
    expect_items(&at("link"), 100);
    fs::rename(at("db/CURRENT"), at("CURRENT")).expect("move");
    std::os::unix::fs::symlink("../CURRENT", at("db/CURRENT")).expect("link");
    assert!(esker::check_offline(at("db")).expect("check").problems[0].contains("symbolic link"));
    assert!(Db::open(at("db")).is_err());
}

#[test]
fn a_database_stays_where_it_is_when_a_link_to_it_is_turned_elsewhere() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    let link = |to: &str| {
        std::os::unix::fs::symlink(at(to), at("next")).expect("link");
        fs::rename(at("next"), at("current")).expect("turn");
    };
    fs::create_dir(at("a")).expect("make a");
    fs::create_dir(at("b")).expect("make b");
    link("a");
    let first = open(&at("current"));
    fill(&first.default_keyspace(), 0, 100);
    link("b");
    let second = open(&at("current"));
    fill(&second.default_keyspace(), 0, 100);
    for db in [first, second] {
        fill(&db.default_keyspace(), 100, 2000);
        db.compact().expect("compact");
        fill(&db.default_keyspace(), 2000, 4000);
        db.close().expect("close");
    }
    expect_items(&at("a"), 4000);
    expect_items(&at("b"), 4000);
}

#[test]
fn a_removed_or_replaced_lock_file_admits_no_process() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("db");
    let first = open(&dir);
    fill(&first.default_keyspace(), 0, 100);
    for replaces in [false, true] {
        fs::remove_file(dir.join("LOCK")).expect("remove");
        if replaces {
            fs::write(dir.join("LOCK"), "").expect("replace");
        }
        let check = esker::check_offline(&dir);
        assert!(matches!(check, Err(Error::Locked { .. })), "{check:?}");
        let second = Db::builder().stepped().open(&dir);
        assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
    }
    first.close().expect("close");
    expect_items(&dir, 100);
}

#[test]
fn dir_lock_1_a_table_that_an_iterator_has_outlived_the_database_with_is_not_removed_by_its_name() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("db");
    let old = open(&dir);
    let map = old.default_keyspace();
    fill(&map, 0, 100);
    old.flush().expect("flush");
    let mut kept = map.iter();
    fill(&map, 0, 100);
    old.compact().expect("compact");
    drop(map);
    old.close().expect("close");
    fs::remove_dir_all(&dir).expect("remove");
    let new = open(&dir);
    fill(&new.default_keyspace(), 0, 100);
    new.flush().expect("flush");
    assert!(matches!(kept.next(), Some(Err(esker::Error::Closed))), "view.2");
    drop(kept);
    new.close().expect("close");
    expect_items(&dir, 100);
}

#[test]
fn a_flush_spares_a_file_that_has_the_name_of_its_table() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("db");
    let db = open(&dir);
    fill(&db.default_keyspace(), 0, 100);
    let strays: Vec<_> = (1..6).map(|n| dir.join(format!("{n:06}.sst"))).collect();
    strays.iter().for_each(|stray| fs::write(stray, "mine").expect("write"));
    let tries = (1..10).find(|_| db.flush().is_ok()).expect("a number that is free");
    assert!(tries > 1, "no name was taken");
    for stray in &strays {
        assert_eq!(fs::read(stray).ok().as_deref(), Some(&b"mine"[..]), "{}", stray.display());
    }
}
