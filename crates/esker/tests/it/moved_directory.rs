//! A database whose directory is moved, removed or replaced while it is open changes nothing of what stands at its path since (HD1, HD2 of
//! db/held_dir.rs), and follows no link that is turned elsewhere (OP8).
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

/// What is there is sound, and so many items.
fn expect_items(dir: &Path, expected: u64) {
    let db = open(dir);
    assert_eq!(db.default_keyspace().len().expect("len"), expected);
    let report = db.check().expect("check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    db.close().expect("close");
}

fn expect_refused(outcome: Result<(), Error>) {
    let Err(error) = outcome else { panic!("HD1: it changed another database's directory") };
    assert!(error.to_string().contains("moved, removed or replaced"), "{error}");
}

#[test]
fn hd1_a_flush_and_a_close_spare_the_database_that_was_made_in_the_same_place() {
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
            expect_refused(old.flush());
        }
        expect_refused(old.compact());
        // What it has to tidy up is not there any more.
        let _ = old.close();
        fill(&map, 200, 2000);
        new.compact().expect("compact");
        drop(map);
        new.close().expect("close");
        expect_items(&dir, 2000);
    }
}

#[test]
fn hd1_a_log_that_goes_on_spares_the_database_that_was_made_in_the_same_place() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("db");
    let old = open(&dir);
    let map = old.default_keyspace();
    fill(&map, 0, 100);
    fs::rename(&dir, root.path().join("moved")).expect("move");
    let new = open(&dir);
    fill(&new.default_keyspace(), 0, 300);
    // The segment that it writes is its own, in the directory that was moved; the next one would not be.
    let refused =
        (100..2000u32).find_map(|n| map.put(n.to_be_bytes(), [7; 1000]).err().map(|error| (n, error)));
    let (acknowledged, error) = refused.expect("HD1: its log went on in the directory of another database");
    assert!(error.to_string().contains("moved, removed or replaced"), "{error}");
    drop(map);
    let _ = old.close();
    new.close().expect("close");
    expect_items(&dir, 300);
    expect_items(&root.path().join("moved"), u64::from(acknowledged));
}

#[test]
fn op8_a_database_stays_where_it_is_when_a_link_to_it_is_turned_elsewhere() {
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
fn hd2_a_table_that_an_iterator_has_outlived_the_database_with_is_not_removed_by_its_name() {
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
    assert_eq!(kept.by_ref().count(), 100, "it has its table open");
    drop(kept);
    new.close().expect("close");
    expect_items(&dir, 100);
}

#[test]
fn ou3_a_flush_spares_a_file_that_has_the_name_of_its_table() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("db");
    let db = open(&dir);
    fill(&db.default_keyspace(), 0, 100);
    let strays: Vec<_> = (1..6).map(|n| dir.join(format!("{n:06}.sst"))).collect();
    strays.iter().for_each(|stray| fs::write(stray, "mine").expect("write"));
    let tries = (1..10).find(|_| db.flush().is_ok()).expect("a number that is free");
    assert!(tries > 1, "no name was taken");
    for stray in &strays {
        assert_eq!(fs::read(stray).ok().as_deref(), Some(&b"mine"[..]), "OU3: {}", stray.display());
    }
}
