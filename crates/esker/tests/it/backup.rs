//! Backups: each is complete, copies nothing twice, survives crashes of the next one, and reports damage.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker::backup::{Backup, Point};
use esker::{Blobs, Db, Durability, Error};
use esker_env::{
    Env, FaultAction, FaultFs, FaultRule, Fs, FsRef, ManualClock, MemFs, OpKind, OpenOptions, read_range,
};

use crate::common::contents::{Contents, difference, dump, dump_sound};
use crate::common::{DIR, simulated};

const BACKUPS: &str = "backups";

fn builder(fs: FsRef) -> esker::Builder {
    simulated(fs).stepped().blobs(Blobs::From(200)).tuning(|t| t.transaction_memory(1 << 10))
}

fn open(fs: &MemFs, dir: impl AsRef<Path>) -> Db {
    builder(Arc::new(fs.clone())).open(dir).unwrap()
}

fn backups(fs: &MemFs) -> Backup {
    Backup::open_in(Env::simulated(Arc::new(fs.clone()), 99), BACKUPS).unwrap()
}

fn fill(db: &Db, round: u8) {
    let (map, other) = (db.default_keyspace(), db.keyspace("other").unwrap());
    for n in 0..50_u8 {
        map.put([round, n], vec![n; usize::from(n) * 3]).unwrap();
        other.with(Durability::Buffered).put([round, n], vec![round; 250 + usize::from(n)]).unwrap();
    }
    let mut large = db.begin();
    for n in 0..60_u8 {
        large.put(&map, [b'l', round, n], [n; 100]).unwrap();
    }
    large.commit().unwrap();
    map.delete_range([round, 5]..[round, 9]).unwrap();
}

fn assert_same(found: &Contents, expected: &Contents, what: &str) {
    assert!(found == expected, "{what}: {}", difference(found, expected));
}

/// The contents of a restored backup.
fn restored(fs: &MemFs, id: u64, to: &str) -> Contents {
    backups(fs).restore(to).backup(id).run().unwrap();
    dump_sound(&open(fs, to)).unwrap()
}

fn stored(fs: &MemFs) -> Vec<PathBuf> {
    let dir = Path::new(BACKUPS).join("files");
    let mut names = fs.list_dir(&dir).unwrap();
    names.sort();
    names.into_iter().map(|name| dir.join(name)).collect()
}

#[test]
fn each_backup_is_whole_by_itself_and_copies_what_is_new() {
    let fs = MemFs::new();
    let db = open(&fs, DIR);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    let mut backup = backups(&fs).on_progress(move |done| seen.lock().unwrap().push(*done));
    assert!(matches!(backup.list(), Err(Error::NoBackup(_))), "nothing is there yet");
    assert!(!fs.exists(BACKUPS.as_ref()).unwrap(), "to look changes nothing");
    let mut states = Vec::new();
    for round in 1..5 {
        fill(&db, round);
        let made = backup.create(&db).unwrap();
        states.push((made.clone(), dump(&db).unwrap()));
        assert_eq!((made.id, made.seqno), (round.into(), db.snapshot().seqno()));
        let last = calls.lock().unwrap().last().copied().unwrap();
        assert_eq!((last.files_done, last.bytes_done), (made.new_files, made.new_bytes));
        assert_eq!((last.files, last.bytes), (made.new_files, made.new_bytes));
        assert_eq!(made.new_bytes < made.bytes, round > 1, "{made:?}");
    }
    let again = backup.create(&db).unwrap();
    assert_eq!((again.new_files, again.new_bytes), (0, 0), "nothing is new: {again:?}");
    assert_eq!(backup.list().unwrap().len(), 5);
    let verified = backup.verify().unwrap();
    assert!(verified.is_sound() && verified.backups == 5 && verified.files == stored(&fs).len() as u64);
    for (made, expected) in &states {
        let to = format!("restored {}", made.id);
        assert_same(&restored(&fs, made.id, &to), expected, &to);
    }
    db.compact().unwrap();
    let merged = backup.create(&db).unwrap();
    assert!(merged.new_bytes > 0 && merged.files < again.files + merged.new_files);
    let before = stored(&fs).len();
    let pruned = backup.prune(1).unwrap();
    assert_eq!((pruned.backups, before - stored(&fs).len()), (5, pruned.files as usize));
    assert_eq!(stored(&fs).len() as u64, merged.files);
    assert_same(&restored(&fs, merged.id, "last"), &states[3].1, "after pruning");
    assert!(matches!(backup.restore("gone").backup(1).run(), Err(Error::NoBackup(_))));
    assert!(matches!(backup.prune(0), Err(Error::Invalid(_))));
    assert!(
        matches!(backup.restore("last").backup(merged.id).run(), Err(Error::AlreadyExists(_))),
        "it is there already"
    );
}

#[test]
fn a_restored_database_goes_on_and_is_backed_up_as_another() {
    let fs = MemFs::new();
    let db = open(&fs, DIR);
    fill(&db, 1);
    let mut backup = backups(&fs);
    let first = backup.create(&db).unwrap();
    let expected = restored(&fs, first.id, "restored");
    let other = open(&fs, "restored");
    fill(&db, 2);
    fill(&other, 3);
    let (here, there) = (backup.create(&db).unwrap(), backup.create(&other).unwrap());
    assert_ne!(here.database, there.database);
    assert_eq!(there.new_files, there.files);
    assert_same(&restored(&fs, here.id, "a"), &dump(&db).unwrap(), "the database");
    assert_same(&restored(&fs, there.id, "b"), &dump(&other).unwrap(), "the restored one");
    assert_same(&restored(&fs, first.id, "c"), &expected, "the first");
}

#[test]
fn a_database_that_was_put_back_gives_numbers_out_again_and_its_files_are_not_mixed_up() {
    let fs = MemFs::new();
    let db = open(&fs, DIR);
    fill(&db, 1);
    db.close().unwrap();
    // Like a user who copies the directory.
    let older = fs.kill();
    let mut states = Vec::new();
    for (fs, round) in [(&fs, 2), (&older, 3)] {
        let db = open(fs, DIR);
        fill(&db, round);
        let made = Backup::open_in(Env::simulated(Arc::new(older.clone()), 1), BACKUPS).unwrap().create(&db);
        states.push((made.unwrap(), dump(&db).unwrap()));
    }
    assert_eq!(states[0].0.database, states[1].0.database);
    for (made, expected) in states {
        let to = format!("restored {}", made.id);
        assert_same(&restored(&older, made.id, &to), &expected, &to);
    }
}

/// Runs `work` on what `prepare` makes, with a crash at each of its calls. `judge` gets what is left, and
/// whether `work` had ended.
fn with_crashes(
    prepare: impl Fn(&MemFs) -> Db,
    work: impl Fn(&Db, &mut Backup) -> bool,
    judge: impl Fn(&MemFs, bool, &str),
) {
    for (crashes, nth) in (1..400).step_by(2).enumerate() {
        let fs = MemFs::new();
        let db = prepare(&fs);
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let mut backup = Backup::open_in(Env::simulated(Arc::new(faults.clone()), 1), BACKUPS).unwrap();
        faults.add(FaultRule::new(&OpKind::CHANGES, FaultAction::Freeze { keep: 20 }).nth(nth));
        let ended = work(&db, &mut backup);
        assert!(ended || faults.is_frozen(), "call {nth}");
        for (name, left) in [("some", fs.crash(nth)), ("none", fs.crash_strict()), ("all", fs.kill())] {
            judge(&left, ended, &format!("call {nth}, {name} kept"));
        }
        if ended {
            assert!(crashes > 5, "{crashes}");
            return;
        }
    }
    panic!("it never ended");
}

fn two_backups(fs: &MemFs) -> Db {
    let db = open(fs, DIR);
    fill(&db, 1);
    backups(fs).create(&db).unwrap();
    fill(&db, 2);
    db
}

#[test]
fn backup_1_a_crash_while_one_is_made_leaves_the_earlier_ones_and_the_next_succeeds() {
    let prepare = two_backups;
    let create = |db: &Db, backup: &mut Backup| backup.create(db).is_ok();
    with_crashes(prepare, create, |left, ended, what| {
        let found = backups(left).list().unwrap();
        assert!(found.len() == 2 || (found.len() == 1 && !ended), "backup.1: {what}: {found:?}");
        assert!(backups(left).verify().unwrap().is_sound(), "{what}");
        let db = open(left, DIR);
        let made = backups(left).create(&db).unwrap();
        assert!(backups(left).verify().unwrap().is_sound(), "{what}");
        assert_same(&restored(left, made.id, "restored"), &dump(&db).unwrap(), what);
        assert!(stored(left).iter().all(|path| path.extension().is_some_and(|end| end != "tmp")));
    });
}

#[test]
fn a_crash_while_the_first_is_made_leaves_a_place_for_it() {
    let prepare = |fs: &MemFs| {
        let db = open(fs, DIR);
        fill(&db, 1);
        db
    };
    let create = |db: &Db, backup: &mut Backup| backup.create(db).is_ok();
    with_crashes(prepare, create, |left, ended, what| {
        assert!(!ended || backups(left).list().unwrap().len() == 1, "{what}");
        let db = open(left, DIR);
        backups(left).create(&db).unwrap();
        assert!(backups(left).verify().unwrap().is_sound(), "{what}");
    });
}

#[test]
fn backup_2_a_crash_while_old_ones_go_leaves_the_new_ones() {
    let prepare = |fs: &MemFs| {
        let db = two_backups(fs);
        db.compact().unwrap();
        backups(fs).create(&db).unwrap();
        db
    };
    let prune = |_: &Db, backup: &mut Backup| backup.prune(1).is_ok();
    with_crashes(prepare, prune, |left, ended, what| {
        let found = backups(left).list().unwrap();
        assert!(!found.is_empty() && (!ended || found.len() == 1), "{what}: {found:?}");
        assert!(backups(left).verify().unwrap().is_sound(), "backup.2: {what}");
        backups(left).prune(1).unwrap();
        assert_eq!(stored(left).len() as u64, backups(left).list().unwrap()[0].files, "{what}");
        let db = open(left, DIR);
        assert_same(&restored(left, 2, "restored"), &dump(&db).unwrap(), what);
    });
}

#[test]
fn a_crash_while_one_is_restored_leaves_all_of_it_or_nothing() {
    let prepare = |fs: &MemFs| {
        let db = open(fs, DIR);
        fill(&db, 1);
        backups(fs).create(&db).unwrap();
        db
    };
    let restore = |_: &Db, backup: &mut Backup| backup.restore("restored").backup(1).run().is_ok();
    with_crashes(prepare, restore, |left, ended, what| {
        let is_there = left.exists("restored".as_ref()).unwrap();
        assert!(is_there || !ended, "{what}");
        let expected = dump(&open(left, DIR)).unwrap();
        if is_there {
            assert_same(&dump_sound(&open(left, "restored")).unwrap(), &expected, what);
        }
        assert_same(&restored(left, 1, "again"), &expected, what);
        // Only the start of a workplace may be left.
        assert!(!left.exists("restored.esker-new/db".as_ref()).unwrap(), "{what}");
    });
}

fn change(fs: &MemFs, path: &Path, at: u64) {
    let file = fs.open(path, OpenOptions::write()).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn damage_is_reported_with_its_file_and_nothing_is_restored_from_it() {
    let names =
        |error: &Error, path: &Path| error.is_corrupt() && error.to_string().contains(path.to_str().unwrap());
    let fs = MemFs::new();
    let db = open(&fs, DIR);
    fill(&db, 1);
    backups(&fs).create(&db).unwrap();
    for path in stored(&fs) {
        let len = fs.file_size(&path).unwrap();
        let harms: [&dyn Fn(&MemFs); 4] = [
            &|fs| change(fs, &path, 0),
            &|fs| change(fs, &path, len - 1),
            &|fs| fs.open(&path, OpenOptions::write()).unwrap().set_len(len - 1).unwrap(),
            &|fs| fs.remove_file(&path).unwrap(),
        ];
        for (n, harm) in harms.iter().enumerate() {
            let harmed = fs.kill();
            harm(&harmed);
            let verified = backups(&harmed).verify().unwrap();
            assert_eq!((verified.problems.len(), &verified.damaged[..]), (1, &[1][..]), "{n}: {verified:?}");
            assert!(names(&verified.problems[0], &path), "{:?}", verified.problems);
            let error = backups(&harmed).restore("restored").backup(1).run().unwrap_err();
            assert!(names(&error, &path), "{n}: {error}");
            assert!(!harmed.exists("restored".as_ref()).unwrap());
            if n > 1 {
                // Missing files are copied again.
                let db = open(&harmed, DIR);
                assert_eq!(backups(&harmed).create(&db).unwrap().new_files, 1);
                assert!(backups(&harmed).verify().unwrap().is_sound());
            }
        }
    }
}

#[test]
fn a_damaged_record_keeps_others_from_nothing_but_pruning() {
    let fs = MemFs::new();
    let db = two_backups(&fs);
    let mut backup = backups(&fs);
    backup.create(&db).unwrap();
    let path = Path::new("backups/backups/000002.backup");
    change(&fs, path, fs.file_size(path).unwrap() / 2);
    let found = backup.list().unwrap();
    assert_eq!(found.iter().map(|info| info.damage.is_some()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(backup.verify().unwrap().damaged, [2]);
    assert!(backup.restore("restored").backup(2).run().is_err_and(|e| e.is_corrupt()));
    let files = stored(&fs).len();
    assert!(backup.prune(1).is_err_and(|e| e.is_corrupt()), "what it needs is unknown");
    assert_eq!((stored(&fs).len(), backup.list().unwrap().len()), (files, 2));
    let third = backup.create(&db).unwrap();
    assert_same(&restored(&fs, third.id, "restored"), &dump(&db).unwrap(), "the third");
    backup.prune(1).unwrap();
    assert!(backup.verify().unwrap().is_sound());
}

#[test]
fn backup_place_1_what_holds_something_else_is_left_alone_and_one_works_at_a_time() {
    let fs = MemFs::new();
    let db = open(&fs, DIR);
    let env = || Env::simulated(Arc::new(fs.clone()), 1);
    for (path, text) in [(DIR, "use another directory"), ("", "empty")] {
        let opened = Backup::open_in(env(), path);
        assert!(matches!(&opened, Err(Error::Invalid(why)) if why.contains(text)), "{opened:?}");
    }
    let mut backup = backups(&fs);
    assert!(matches!(backup.verify(), Err(Error::NoBackup(_))));
    backup.create(&db).unwrap();
    let lock = fs.lock("backups/LOCK".as_ref()).unwrap();
    assert!(matches!(backup.create(&db), Err(Error::Locked { .. })));
    assert!(matches!(backup.prune(1), Err(Error::Locked { .. })));
    assert!(matches!(backup.restore("restored").backup(1).run(), Err(Error::Locked { .. })));
    assert_eq!(backup.list().unwrap().len(), 1);
    drop(lock);
    let marker = fs.open("backups/ESKER-BACKUPS".as_ref(), OpenOptions::create()).unwrap();
    marker.write_all_at(b"esker backups, format 2\n", 0).unwrap();
    let opened = Backup::open_in(env(), BACKUPS);
    assert!(matches!(opened, Err(Error::UnsupportedVersion { found: 2, .. })), "{opened:?}");
}

#[test]
fn a_database_in_memory_is_backed_up_to_the_disk() {
    let temp = tempfile::tempdir().unwrap();
    let db = Db::in_memory().unwrap();
    db.default_keyspace().put("a", "1").unwrap();
    let mut backup = Backup::open(temp.path().join("backups")).unwrap();
    backup.create(&db).unwrap();
    backup.restore(temp.path().join("db")).backup(1).run().unwrap();
    let db = Db::open(temp.path().join("db")).unwrap();
    assert_eq!(db.default_keyspace().get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn any_commit_between_two_backups_comes_back() {
    let fs = MemFs::new();
    let feed = |fs: &MemFs| {
        let builder = builder(Arc::new(fs.clone())).feed_retention(1 << 30, Duration::MAX);
        builder.open(DIR).unwrap()
    };
    let db = feed(&fs);
    assert!(backups(&fs).archive(&db).is_err(), "a backup comes first");
    fill(&db, 0);
    backups(&fs).create(&db).unwrap();
    db.keyspace("es.repl").unwrap().put("r", "a role").unwrap();
    let mut states = Vec::new();
    let mut note = |db: &Db| {
        let mut state = dump(db).unwrap();
        state.remove("es.repl");
        states.push((db.snapshot().seqno(), state));
    };
    for round in 1..6 {
        db.keyspace(&format!("new {round}")).unwrap().set_merge_operator("append").unwrap();
        fill(&db, round);
        note(&db);
        if round != 3 {
            let made = backups(&fs).archive(&db).unwrap().unwrap();
            assert_eq!(made.last, db.snapshot().seqno());
            assert_eq!(backups(&fs).archive(&db).unwrap(), None, "nothing new");
        }
        if round == 4 {
            backups(&fs).create(&db).unwrap();
        }
        db.drop_keyspace(&format!("new {round}")).unwrap();
        note(&db);
    }
    let (last, _) = states.pop().unwrap();
    assert!(backups(&fs).verify().unwrap().is_sound());
    let restore = |point, base, to: &str| {
        let done =
            backups(&fs).restore(to).backup(base).point(point).builder(builder(Arc::new(fs.clone()))).run();
        done.map(|done| (done, dump_sound(&open(&fs, to)).unwrap()))
    };
    for (n, (seqno, state)) in states.iter().enumerate() {
        for base in [None, Some(1)] {
            let (done, found) = restore(Point::Commit(*seqno), base, &format!("to {n} {base:?}")).unwrap();
            assert_eq!(done.seqno, *seqno);
            assert_same(&found, state, "restore_point.1");
        }
    }
    assert!(matches!(restore(Point::Commit(last), None, "later"), Err(Error::NoBackup(_))));
    let (done, found) = restore(Point::Time(u64::MAX), None, "all").unwrap();
    assert_eq!((done.backup.id, done.seqno), (2, states.last().unwrap().0));
    assert_same(&found, &states.last().unwrap().1, "all that there is");
    assert!(matches!(restore(Point::Time(0), None, "before all"), Err(Error::NoBackup(_))));
    // Segments that no backup needs are pruned with the backups.
    let segments = backups(&fs).segments().unwrap().len();
    let pruned = backups(&fs).prune(1).unwrap();
    assert_eq!((pruned.segments, backups(&fs).segments().unwrap().len()), (3, segments - 3));
    restore(Point::Time(u64::MAX), None, "all again").unwrap();
}

#[test]
fn restore_point_3_a_clock_that_goes_back_hides_no_commit_of_the_archive() {
    let (fs, clock) = (MemFs::new(), Arc::new(ManualClock::new()));
    let env = || Env { clock: clock.clone(), ..Env::simulated(Arc::new(fs.clone()), 99) };
    let open =
        |dir: &str| builder(Arc::new(fs.clone())).env(env()).feed_retention(1 << 30, Duration::MAX).open(dir);
    let mut backup = Backup::open_in(env(), BACKUPS).unwrap();
    let db = open(DIR).unwrap();
    let map = db.default_keyspace();
    map.put("first", "1").unwrap();
    backup.create(&db).unwrap();
    let mut made = Vec::new();
    for (n, by_ms) in [-2000, 1000, -3_600_000, 10, 5_000_000].into_iter().enumerate() {
        clock.set_wall(by_ms);
        made.push((map.put([n as u8], "2").unwrap(), backup.archive(&db).unwrap().unwrap().created));
    }
    let restore = |point, to: &str| {
        let done = Backup::open_in(env(), BACKUPS)
            .unwrap()
            .restore(to)
            .point(point)
            .builder(builder(Arc::new(fs.clone())))
            .run();
        let keys = done.as_ref().map_or(0, |_| open(to).unwrap().default_keyspace().len().unwrap());
        done.map(|done| (done.seqno, keys))
    };
    for (n, (seqno, _)) in made.iter().enumerate() {
        let found = restore(Point::Commit(*seqno), &format!("commit {n}")).unwrap();
        assert_eq!(found, (*seqno, n as u64 + 2), "restore_point.3");
    }
    let found = restore(Point::Time(made[3].1), "time");
    assert!(matches!(found, Err(Error::NoBackup(_))), "the backup was made later by the clock: {found:?}");
    let found = restore(Point::Time(made[4].1), "later").unwrap();
    assert_eq!(found, (made[4].0, 6), "restore_point.3");
    assert!(backup.verify().unwrap().is_sound());
}

#[test]
fn pruning_keeps_the_given_number_of_backups_of_each_database() {
    let fs = MemFs::new();
    let of_another = Env::simulated(Arc::new(fs.clone()), 5);
    let (a, b) = (open(&fs, "a"), builder(Arc::new(fs.clone())).env(of_another).open("b").unwrap());
    for db in [&b, &a, &a, &a] {
        db.default_keyspace().put("key", "value").unwrap();
        backups(&fs).create(db).unwrap();
    }
    assert_eq!(backups(&fs).prune(3).unwrap().backups, 0, "three of one and one of the other");
    assert_eq!(backups(&fs).prune(1).unwrap().backups, 2);
    let left: Vec<_> = backups(&fs).list().unwrap().iter().map(|info| info.id).collect();
    assert_eq!(left, [1, 4]);
    for (id, to) in [(1, "b again"), (4, "a again")] {
        assert_eq!(restored(&fs, id, to).len(), 1);
    }
}

#[test]
fn archive_2_a_database_that_was_put_back_and_a_gap_are_reported() {
    let fs = MemFs::new();
    let open = |fs: &MemFs, bytes| {
        builder(Arc::new(fs.clone())).feed_retention(bytes, Duration::MAX).open(DIR).unwrap()
    };
    let db = open(&fs, 1 << 30);
    backups(&fs).create(&db).unwrap();
    db.default_keyspace().put("a", "1").unwrap();
    db.close().unwrap();
    let older = fs.kill();
    let db = open(&fs, 1 << 30);
    for n in 0..5 {
        db.default_keyspace().put("a", [n]).unwrap();
    }
    backups(&fs).archive(&db).unwrap().unwrap();
    db.close().unwrap();
    // The old database with the new backups, and other commits with the same numbers.
    for path in fs.list_dir(Path::new("backups/feed")).unwrap() {
        let from = fs.open(&Path::new("backups/feed").join(&path), OpenOptions::read()).unwrap();
        let bytes = read_range(&*from, 0, from.len().unwrap() as usize).unwrap();
        older.create_dir_all(Path::new("backups/feed")).unwrap();
        let to = older.open(&Path::new("backups/feed").join(&path), OpenOptions::create()).unwrap();
        to.write_all_at(&bytes, 0).unwrap();
    }
    let db = open(&older, 1 << 30);
    let put_back = |db: &Db| matches!(backups(&older).archive(db), Err(Error::OtherHistory(text)) if text.contains("older state"));
    assert!(put_back(&db), "archive.2: it does not have the last commit");
    for n in 0..9 {
        db.default_keyspace().put("b", [n]).unwrap();
    }
    assert!(put_back(&db), "archive.2: it has another one");
    drop(db);
    // A gap, since the feed was off for a while. A backup closes it.
    let db = open(&fs, 0);
    db.default_keyspace().put("not kept", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = open(&fs, 1 << 30);
    db.default_keyspace().put("kept", "1").unwrap();
    assert!(matches!(backups(&fs).archive(&db), Err(Error::FeedTruncated { .. })));
    backups(&fs).create(&db).unwrap();
    let last = db.default_keyspace().put("last", "1").unwrap();
    let (harmed, path) = (fs.kill(), Path::new("backups/backups/000002.backup"));
    change(&harmed, path, fs.file_size(path).unwrap() / 2);
    let refused = backups(&harmed).archive(&db);
    assert!(matches!(&refused, Err(Error::Corrupt { path: named, .. }) if named == path), "{refused:?}");
    assert_eq!(backups(&fs).archive(&db).unwrap().unwrap().last, last);
    let restored =
        backups(&fs).restore("new").point(Point::Commit(last)).builder(Db::builder().stepped()).run();
    assert_eq!(restored.unwrap().commits, 1);
}

#[test]
fn verify_tells_of_a_record_or_a_segment_that_is_missing() {
    let fs = MemFs::new();
    let db = builder(Arc::new(fs.clone())).feed_retention(1 << 20, Duration::MAX).open(DIR).unwrap();
    let world = Env::simulated(Arc::new(fs.clone()), 77);
    let other = builder(Arc::new(fs.clone())).env(world).open("other").unwrap();
    let mut backup = backups(&fs);
    for round in 0..4_u8 {
        db.default_keyspace().put([round], [round]).unwrap();
        backup.create(&db).unwrap();
        backup.create(&other).unwrap();
        for value in 0..2 {
            db.default_keyspace().put([round], [value]).unwrap();
            backup.archive(&db).unwrap().unwrap();
        }
    }
    backup.prune(3).unwrap();
    let found = backup.verify().unwrap();
    assert!(found.is_sound() && found.backups == 6, "{found:?}");
    let lost = |path: &Path| {
        let kept = fs.kill();
        kept.remove_file(path).unwrap();
        let found = Backup::open_in(Env::simulated(Arc::new(kept), 9), BACKUPS).unwrap().verify().unwrap();
        found.problems.len()
    };
    let records: Vec<_> =
        (3..9).map(|id| Path::new(BACKUPS).join(format!("backups/{id:06}.backup"))).collect();
    let found: Vec<_> = records.iter().map(|path| lost(path)).collect();
    // The oldest two may have been pruned. Nothing follows the newest one of the other database.
    assert_eq!(found, [0, 0, 1, 1, 1, 0]);
    let dir = Path::new(BACKUPS).join("feed");
    let mut names = fs.list_dir(&dir).unwrap();
    names.sort();
    let found: Vec<_> = names.iter().map(|name| lost(&dir.join(name))).collect();
    // Nothing follows the last one.
    assert_eq!(found.iter().sum::<usize>(), names.len() - 1, "{names:?}: {found:?}");
    assert_eq!(found.last(), Some(&0));
}

#[test]
fn a_database_and_its_twin_with_the_same_numbers_have_backups_in_one_directory() {
    let fs = MemFs::new();
    let db = open(&fs, DIR);
    db.default_keyspace().put("a", [0; 300]).unwrap();
    db.close().unwrap();
    // Like `cp -r`.
    fs.create_dir_all("twin".as_ref()).unwrap();
    for name in fs.list_dir(DIR.as_ref()).unwrap() {
        let read = |fs: &MemFs| {
            let file = fs.open(&Path::new(DIR).join(&name), OpenOptions::read()).unwrap();
            read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
        };
        let to = fs.open(&Path::new("twin").join(&name), OpenOptions::create()).unwrap();
        to.write_all_at(&read(&fs), 0).unwrap();
    }
    let mut expected = Vec::new();
    for (dir, seed) in [(DIR, 1), ("twin", 2)] {
        let env = Env::simulated(Arc::new(fs.clone()), seed);
        let db = Db::builder().env(env).stepped().blobs(Blobs::From(200)).open(dir).unwrap();
        // Of equal length, and equal at both ends.
        let mut value: Vec<u8> =
            (0..40_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        value[20_000] = seed as u8;
        db.default_keyspace().put("b", value).unwrap();
        let made = backups(&fs).create(&db).unwrap();
        expected.push((made, dump(&db).unwrap()));
    }
    assert_eq!(expected[0].0.database, expected[1].0.database);
    assert!(backups(&fs).verify().unwrap().is_sound());
    for (made, contents) in expected {
        let to = format!("restored {}", made.id);
        assert_same(&restored(&fs, made.id, &to), &contents, &to);
    }
}
