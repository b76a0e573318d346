//! Databases that were put back to an older state: backups and archives of two histories are never mixed.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::backup::{Backup, Point};
use esker::replay::Replay;
use esker::{Db, Decision, Error, SeqNo};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions, read_range};

use crate::common::{DIR, simulated};

const BACKUPS: &str = "backups";
const KEPT: u64 = 1 << 30;

fn open(fs: &MemFs, dir: &str, feed: u64) -> Db {
    simulated(Arc::new(fs.clone())).stepped().feed_retention(feed, Duration::MAX).open(dir).unwrap()
}

fn backups(fs: &MemFs) -> Backup {
    Backup::open_in(Env::simulated(Arc::new(fs.clone()), 99), BACKUPS).unwrap()
}

fn restore(fs: &MemFs, last: SeqNo) {
    let mut backups = backups(fs);
    let restore = backups.restore("restored").point(Point::Commit(last));
    restore.builder(Db::builder().stepped()).run().unwrap();
}

/// Copies a closed database like `cp -r`, with all its numbers.
fn copy(fs: &MemFs, from: &str, to: &str) {
    fs.create_dir_all(Path::new(to)).unwrap();
    for name in fs.list_dir(Path::new(from)).unwrap() {
        let source = fs.open(&Path::new(from).join(&name), OpenOptions::read()).unwrap();
        let bytes = read_range(&*source, 0, source.len().unwrap() as usize).unwrap();
        let copy = fs.open(&Path::new(to).join(&name), OpenOptions::create()).unwrap();
        copy.write_all_at(&bytes, 0).unwrap();
    }
}

fn put(db: &Db, key: &str, value: &str) -> SeqNo {
    db.default_keyspace().put(key, value).unwrap()
}

fn get(fs: &MemFs, dir: &str, key: &str) -> Option<Vec<u8>> {
    open(fs, dir, 0).default_keyspace().get(key).unwrap().map(|value| value.to_vec())
}

/// A database with a commit, and an earlier copy of it.
fn with_a_copy(fs: &MemFs) -> Db {
    let db = open(fs, DIR, KEPT);
    put(&db, "a", "1");
    db.close().unwrap();
    copy(fs, DIR, "older");
    open(fs, DIR, KEPT)
}

fn refused<T>(result: esker::Result<T>, text: &str) -> bool {
    matches!(result, Err(Error::OtherHistory(reported)) if reported.contains(text))
}

#[test]
fn archive_2_what_follows_a_backup_is_of_its_history() {
    let fs = MemFs::new();
    let db = with_a_copy(&fs);
    put(&db, "of", "this");
    put(&db, "of", "this");
    let made = backups(&fs).create(&db).unwrap();
    // The original continues, and can prove that it is the original.
    let last = put(&db, "b", "1");
    let kept = fs.kill();
    backups(&kept).archive(&db).unwrap().unwrap();
    backups(&kept).restore("new").point(Point::Commit(last)).builder(Db::builder().stepped()).run().unwrap();
    db.close().unwrap();
    let older = open(&fs, "older", KEPT);
    assert!(
        refused(backups(&fs).archive(&older), "reset to an older state"),
        "it does not have the backup's commit"
    );
    while older.snapshot().seqno() <= made.seqno {
        put(&older, "of", "the other");
    }
    assert!(
        refused(backups(&fs).archive(&older), "reset to an older state"),
        "it has another one of that number"
    );
    backups(&fs).create(&older).unwrap();
    let last = put(&older, "b", "2");
    backups(&fs).archive(&older).unwrap().unwrap();
    restore(&fs, last);
    assert_eq!(get(&fs, "restored", "of").unwrap(), b"the other");
}

#[test]
fn restore_point_1_a_backup_of_another_history_is_not_followed_by_the_archive() {
    let fs = MemFs::new();
    let db = with_a_copy(&fs);
    let first = backups(&fs).create(&db).unwrap();
    put(&db, "of", "this");
    let archived = put(&db, "of", "this");
    backups(&fs).archive(&db).unwrap().unwrap();
    db.close().unwrap();
    // The same numbers, and a backup between the segments.
    let older = open(&fs, "older", KEPT);
    while older.snapshot().seqno() < archived {
        put(&older, "of", "the other");
    }
    let second = backups(&fs).create(&older).unwrap();
    assert_eq!((second.seqno, second.database), (archived, first.database));
    older.close().unwrap();
    let db = open(&fs, DIR, KEPT);
    let last = put(&db, "b", "1");
    assert!(
        refused(backups(&fs).archive(&db), "make another backup"),
        "the newest backup is of another history"
    );
    let third = backups(&fs).create(&db).unwrap();
    backups(&fs).archive(&db).unwrap().unwrap();
    let beyond = put(&db, "b", "2");
    backups(&fs).archive(&db).unwrap().unwrap();
    let restore = |point, base, to: &str| {
        backups(&fs).restore(to).backup(base).point(point).builder(Db::builder().stepped()).run()
    };
    let point = Point::Commit(beyond);
    assert!(refused(restore(point, Some(second.id), "mixed"), "another history"));
    assert!(refused(restore(Point::Time(u64::MAX), Some(second.id), "mixed"), "another history"));
    assert!(!fs.exists(Path::new("mixed")).unwrap());
    for (at, base) in [first.id, third.id].into_iter().enumerate() {
        let to = format!("restored {at}");
        restore(point, Some(base), &to).unwrap();
        assert_eq!(get(&fs, &to, "of").unwrap(), b"this");
    }
    restore(Point::Commit(last), Some(first.id), "last").unwrap();
    restore(Point::Commit(archived), Some(second.id), "second").unwrap();
    assert_eq!(get(&fs, "second", "of").unwrap(), b"the other");
}

#[test]
fn archive_2_the_last_commit_of_the_archive_has_to_be_there_to_go_on() {
    let fs = MemFs::new();
    let db = open(&fs, DIR, KEPT);
    backups(&fs).create(&db).unwrap();
    put(&db, "a", "1");
    let archived = backups(&fs).archive(&db).unwrap().unwrap();
    db.close().unwrap();
    // The feed starts again exactly after the archived commits.
    let db = open(&fs, DIR, 0);
    db.flush().unwrap();
    db.close().unwrap();
    let db = open(&fs, DIR, KEPT);
    put(&db, "a", "2");
    assert!(
        matches!(db.feed_after(archived.last.prev()), Err(Error::FeedTruncated { .. })),
        "the setting of this test"
    );
    db.feed_after(archived.last).unwrap();
    let went_on = backups(&fs).archive(&db);
    assert!(matches!(went_on, Err(Error::FeedTruncated { .. })), "{went_on:?}");
    backups(&fs).create(&db).unwrap();
    let last = put(&db, "a", "3");
    backups(&fs).archive(&db).unwrap().unwrap();
    restore(&fs, last);
    assert_eq!(get(&fs, "restored", "a").unwrap(), b"3");
}

#[test]
fn numbers_of_commits_do_not_tell_databases_apart() {
    let fs = MemFs::new();
    let other = Env::simulated(Arc::new(fs.clone()), 5);
    let builder = simulated(Arc::new(fs.clone())).stepped().env(other);
    let (a, b) = (open(&fs, DIR, KEPT), builder.feed_retention(KEPT, Duration::MAX).open("b").unwrap());
    let mut at = Vec::new();
    for (db, value) in [(&a, "a"), (&b, "b")] {
        put(db, "key", "0");
        let made = backups(&fs).create(db).unwrap();
        at.push((made, put(db, "key", value)));
        backups(&fs).archive(db).unwrap().unwrap();
    }
    assert_eq!(at[0].1, at[1].1);
    let restore = |base, to: &str| {
        backups(&fs)
            .restore(to)
            .backup(base)
            .point(Point::Commit(at[0].1))
            .builder(Db::builder().stepped())
            .run()
    };
    let which = restore(None, "some");
    assert!(matches!(which, Err(Error::Invalid(text)) if text.contains("several databases")));
    for ((made, _), value) in at.iter().zip(["a", "b"]) {
        let to = format!("restored {value}");
        let done = restore(Some(made.id), &to).unwrap();
        assert_eq!(done.backup.database, made.database);
        assert_eq!(get(&fs, &to, "key").unwrap(), value.as_bytes());
    }
}

#[test]
fn a_record_that_cannot_be_read_is_not_passed_over() {
    let fs = MemFs::new();
    let db = open(&fs, DIR, KEPT);
    put(&db, "a", "1");
    backups(&fs).create(&db).unwrap();
    put(&db, "a", "2");
    let failing_at = |name: &str, action: FaultAction| {
        let faults = FaultFs::new(Arc::new(fs.clone()));
        faults.add(FaultRule::new(&[OpKind::Read], action).on_path(name));
        Backup::open_in(Env::simulated(Arc::new(faults), 99), BACKUPS).unwrap()
    };
    let reported = failing_at("000001.backup", FaultAction::CorruptRead { xor: 1, at: 40 }).archive(&db);
    assert!(reported.as_ref().is_err_and(Error::is_corrupt), "it is the only backup: {reported:?}");
    let made = backups(&fs).create(&db).unwrap();
    let last = put(&db, "a", "3");
    let failing = || failing_at("000002.backup", FaultAction::Fail(std::io::ErrorKind::Other));
    // Not the bytes of the first backup, after which the second could not be followed.
    let reported = failing().archive(&db);
    assert!(matches!(reported, Err(Error::Io { .. })), "{reported:?}");
    let reported = failing().create(&db);
    assert!(matches!(reported, Err(Error::Io { .. })), "{reported:?}");
    backups(&fs).archive(&db).unwrap().unwrap();
    let to = Db::builder().stepped();
    backups(&fs).restore("new").backup(made.id).point(Point::Commit(last)).builder(to).run().unwrap();
    assert_eq!(get(&fs, "new", "a").as_deref(), Some(&b"3"[..]));
}

#[test]
fn filters_decide_nothing_in_a_copy_while_commits_are_made_again() {
    let fs = MemFs::new();
    let db = open(&fs, DIR, KEPT);
    let map = db.default_keyspace();
    map.set_merge_operator("append").unwrap();
    put(&db, "a", "over");
    backups(&fs).create(&db).unwrap();
    let other = db.create_keyspace("other").unwrap();
    for n in 0..2_000_u32 {
        other.put(n.to_be_bytes(), [0; 1000]).unwrap();
    }
    map.merge("a", "!").unwrap();
    let last = backups(&fs).archive(&db).unwrap().unwrap().last;
    let drop_over = |_: &[u8], value: &[u8]| if value == b"over" { Decision::Drop } else { Decision::Keep };
    // Small memtables, so that compactions run while commits are replayed.
    let small = || {
        let small = simulated(Arc::new(fs.clone())).background(false).tuning(|t| t.memtable_bytes(64 << 10));
        small.compaction_filter("default", drop_over)
    };
    backups(&fs).restore("new").point(Point::Commit(last)).builder(small()).run().unwrap();
    assert_eq!(get(&fs, "new", "a").as_deref(), Some(&b"over!"[..]));
    let by_hand = small().open("new").unwrap();
    let replay = Replay::new(&by_hand).unwrap();
    by_hand.compact().unwrap();
    let held = by_hand.default_keyspace();
    held.put("b", "over").unwrap();
    by_hand.compact().unwrap();
    assert!(held.contains("b").unwrap());
    drop(replay);
    by_hand.compact().unwrap();
    assert!(!held.contains("b").unwrap());
}

#[test]
fn verify_takes_the_beginning_of_the_archive_for_no_gap() {
    let fs = MemFs::new();
    let db = open(&fs, DIR, KEPT);
    for value in ["1", "2", "3"] {
        put(&db, "a", value);
        backups(&fs).create(&db).unwrap();
    }
    put(&db, "a", "4");
    backups(&fs).archive(&db).unwrap().unwrap();
    let found = backups(&fs).verify().unwrap();
    assert!(found.is_sound(), "{:?}", found.problems);
}

#[test]
fn a_damaged_record_is_in_the_way_of_a_moment_only_if_it_may_be_of_another_database() {
    let fs = MemFs::new();
    let db = open(&fs, DIR, KEPT);
    put(&db, "a", "1");
    backups(&fs).create(&db).unwrap();
    put(&db, "a", "2");
    backups(&fs).archive(&db).unwrap().unwrap();
    backups(&fs).create(&db).unwrap();
    let last = put(&db, "a", "3");
    backups(&fs).archive(&db).unwrap().unwrap();
    let damaged = || {
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let harm = FaultRule::new(&[OpKind::Read], FaultAction::CorruptRead { xor: 1, at: 40 });
        faults.add(harm.on_path("000002.backup").forever());
        Backup::open_in(Env::simulated(Arc::new(faults), 99), BACKUPS).unwrap()
    };
    let restore =
        |to: &str| damaged().restore(to).point(Point::Commit(last)).builder(Db::builder().stepped()).run();
    assert_eq!(restore("new").unwrap().backup.id, 1);
    assert_eq!(get(&fs, "new", "a").as_deref(), Some(&b"3"[..]));
    let of_another = Env::simulated(Arc::new(fs.clone()), 5);
    let second = simulated(Arc::new(fs.clone())).env(of_another).open("second").unwrap();
    put(&second, "a", "1");
    backups(&fs).create(&second).unwrap();
    let reported = restore("other");
    assert!(matches!(reported, Err(Error::Corrupt { .. })), "{reported:?}");
}

#[test]
fn prune_takes_no_record_that_it_cannot_read_for_one_of_another_database() {
    let fs = MemFs::new();
    let of_another = Env::simulated(Arc::new(fs.clone()), 5);
    let second = simulated(Arc::new(fs.clone())).env(of_another).open("second").unwrap();
    let first = open(&fs, DIR, 0);
    for db in [&second, &first, &first] {
        put(db, "a", "1");
        backups(&fs).create(db).unwrap();
    }
    // It cannot be read, or is damaged: its files say which database it belongs to, or nothing does.
    for action in [FaultAction::Fail(std::io::ErrorKind::Other), FaultAction::CorruptRead { xor: 1, at: 40 }]
    {
        let faults = FaultFs::new(Arc::new(fs.clone()));
        faults.add(FaultRule::new(&[OpKind::Read], action).on_path("000001.backup").forever());
        let reported = Backup::open_in(Env::simulated(Arc::new(faults), 99), BACKUPS).unwrap().prune(1);
        assert!(matches!(reported, Err(Error::Io { .. } | Error::Corrupt { .. })), "{reported:?}");
    }
    assert_eq!(backups(&fs).prune(1).unwrap().backups, 1);
    backups(&fs).restore("new").backup(1).run().unwrap();
    assert_eq!(get(&fs, "new", "a").as_deref(), Some(&b"1"[..]));
}
