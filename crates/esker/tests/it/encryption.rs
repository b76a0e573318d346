//! Encryption at rest: no plain text in any file, damage is an error, and wrong keys are clear errors.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker::backup::{Backup, Point};
use esker::encryption::{MasterKeys, with_keys};
use esker::{BackgroundStep, Blobs, Builder, Db, EncryptionProblem, Error, History};
use esker_env::{Env, Fs, MemFs, OpenOptions, read_range};

use crate::common::contents::{Contents, dump, dump_sound};
use crate::common::{DIR, tiny};

/// Part of every key, value and name.
const SECRET: &str = "sEcReTtExT";

fn master(byte: u8) -> MasterKeys {
    MasterKeys::new(&format!("key {byte}"), &[byte; 32]).unwrap()
}

fn env(fs: &MemFs) -> Env {
    with_keys(&Env::simulated(Arc::new(fs.clone()), 1), Arc::new(master(1)))
}

fn builder(fs: &MemFs) -> Builder {
    tiny(env(fs))
        .stepped()
        .blobs(Blobs::From(200))
        .tuning(|t| t.transaction_memory(1 << 10))
        .feed_retention(1 << 20, Duration::MAX)
}

fn files(fs: &MemFs, dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in fs.list_dir(dir).unwrap() {
        let path = dir.join(name);
        match fs.list_dir(&path) {
            Ok(_) => found.extend(files(fs, &path)),
            Err(_) => found.push(path),
        }
    }
    found
}

fn bytes(fs: &MemFs, path: &Path) -> Vec<u8> {
    let file = fs.open(path, OpenOptions::read()).unwrap();
    read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
}

/// Asserts that no file on the disk contains a part of the secret.
fn assert_no_plain_text(fs: &MemFs, dirs: &[&str], when: &str) {
    for path in dirs.iter().flat_map(|dir| files(fs, dir.as_ref())) {
        let bytes = bytes(fs, &path);
        let found = bytes.windows(6).position(|window| window == &SECRET.as_bytes()[2..8]);
        assert!(found.is_none(), "{when}: plain text in {} at {found:?}", path.display());
    }
}

fn secret(n: u32, bytes: usize) -> Vec<u8> {
    format!("{SECRET}{n:06}").into_bytes().into_iter().cycle().take(bytes).collect()
}

/// Writes with all features whose data goes to files.
fn fill(db: &Db, round: u32) {
    let map = db.keyspace(SECRET).unwrap();
    map.set_history(History::Versions(3)).unwrap();
    let sums = db.keyspace(&format!("{SECRET} sums")).unwrap();
    if sums.merge_operator().is_none() {
        sums.set_merge_operator("append").unwrap();
    }
    for n in 0..40 {
        let key = secret(n, 24);
        map.put(&key, secret(round * 100 + n, 20 + n as usize * 10)).unwrap();
        map.put_with_ttl(secret(1000 + n, 24), secret(n, 30), Duration::from_secs(3600)).unwrap();
        sums.merge(&key, secret(n, 18)).unwrap();
    }
    // A value of several chunks, and a transaction that becomes tables.
    map.put(secret(2000 + round, 24), secret(round, 700_000)).unwrap();
    let mut large = db.begin();
    for n in 0..80 {
        large.put(&map, secret(3000 + round * 100 + n, 24), secret(n, 100)).unwrap();
    }
    large.commit().unwrap();
    map.delete_range(secret(3000 + round * 100, 24)..secret(3010 + round * 100, 24)).unwrap();
    db.keyspace(&format!("{SECRET} dropped {round}")).unwrap().put("a", SECRET).unwrap();
    db.drop_keyspace(&format!("{SECRET} dropped {round}")).unwrap();
}

/// Runs background steps, and calls `each` after every one.
fn settle(db: &Db, mut each: impl FnMut()) {
    for _ in 0..200 {
        let all = [BackgroundStep::Flush, BackgroundStep::Compact { idle: true }, BackgroundStep::PrepareLog];
        let steps = all.into_iter().filter(|step| db.step(*step).unwrap()).count();
        each();
        if steps == 0 {
            break;
        }
    }
}

#[test]
fn no_file_contains_plain_text_and_everything_comes_back() {
    let fs = MemFs::new();
    let db = builder(&fs).open(DIR).unwrap();
    let mut backup = Backup::open_in(env(&fs), "backups").unwrap();
    let mut states: Vec<Contents> = Vec::new();
    for round in 0..4 {
        fill(&db, round);
        assert_no_plain_text(&fs, &[DIR], "after writing");
        settle(&db, || assert_no_plain_text(&fs, &[DIR], "during background work"));
        states.push(dump(&db).unwrap());
        backup.create(&db).unwrap();
        db.keyspace(SECRET).unwrap().put(SECRET, secret(round, 50)).unwrap();
        backup.archive(&db).unwrap().unwrap();
    }
    db.compact().unwrap();
    db.checkpoint("checkpoint").unwrap();
    let end = dump(&db).unwrap();
    let last = db.snapshot().seqno();
    db.close().unwrap();
    assert!(backup.verify().unwrap().is_sound());
    backup.restore(2, "restored").unwrap();
    backup.restore_to(Point::Commit(last), None, "point", builder(&fs)).unwrap();
    assert_no_plain_text(&fs, &[DIR, "backups", "checkpoint", "restored", "point"], "at the end");
    let contents = |dir: &str| dump_sound(&builder(&fs).open(dir).unwrap()).unwrap();
    assert!(contents(DIR) == end && contents("checkpoint") == end && contents("point") == end);
    assert!(contents("restored") == states[1]);
    assert!(builder(&fs).check_offline(DIR).unwrap().problems.is_empty());
    builder(&fs).repair(DIR, "repaired").unwrap();
    assert_no_plain_text(&fs, &["repaired"], "after a repair");
    let repaired = contents("repaired");
    assert!(repaired[SECRET] == end[SECRET]);
}

fn problem<T: std::fmt::Debug>(outcome: Result<T, Error>) -> EncryptionProblem {
    match outcome.unwrap_err() {
        Error::Encryption { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

#[test]
fn missing_and_wrong_keys_are_clear_errors() {
    let fs = MemFs::new();
    let plain = || tiny(Env::simulated(Arc::new(fs.clone()), 1)).stepped();
    plain().open("plain").unwrap().default_keyspace().put("a", "1").unwrap();
    let db = builder(&fs).open(DIR).unwrap();
    db.default_keyspace().put("a", "1").unwrap();
    Backup::open_in(env(&fs), "backups").unwrap().create(&db).unwrap();
    // The backups of one directory are all encrypted, or none is.
    let other = plain().open("plain").unwrap();
    let mixed = Backup::open_in(env(&fs), "backups").unwrap().create(&other);
    assert!(matches!(mixed, Err(Error::Invalid(_))), "{mixed:?}");
    let plain_env = || Env::simulated(Arc::new(fs.clone()), 2);
    Backup::open_in(plain_env(), "plain backups").unwrap().create(&other).unwrap();
    let mixed = Backup::open_in(plain_env(), "plain backups").unwrap().create(&db);
    assert!(matches!(problem(mixed), EncryptionProblem::NotEncrypted));
    drop((db, other));
    let listed = Backup::open_in(plain_env(), "backups").unwrap().list();
    assert!(matches!(problem(listed), EncryptionProblem::KeyMissing));
    assert!(matches!(problem(plain().open(DIR)), EncryptionProblem::KeyMissing));
    assert!(matches!(problem(plain().check_offline(DIR)), EncryptionProblem::KeyMissing));
    assert!(matches!(problem(plain().repair(DIR, "new")), EncryptionProblem::KeyMissing));
    assert!(matches!(problem(builder(&fs).open("plain")), EncryptionProblem::NotEncrypted));
    let wrong = MasterKeys::new("key 1", &[2; 32]).unwrap();
    assert!(matches!(problem(plain().encryption(wrong).open(DIR)), EncryptionProblem::MasterKeyWrong(_)));
    let unknown = problem(plain().encryption(master(2)).open(DIR));
    assert!(matches!(unknown, EncryptionProblem::MasterKeyUnknown(id) if id == "key 1"));
    // A lost file of keys is not taken for a database without encryption.
    fs.remove_file(Path::new("db/KEYS")).unwrap();
    assert!(matches!(problem(builder(&fs).open(DIR)), EncryptionProblem::NotEncrypted));
    assert!(matches!(problem(plain().open(DIR)), EncryptionProblem::KeyMissing));
}

#[test]
fn the_master_key_is_rotated_by_an_opening_and_data_keys_by_compaction() {
    let fs = MemFs::new();
    let db = builder(&fs).open(DIR).unwrap();
    fill(&db, 1);
    let end = dump(&db).unwrap();
    db.close().unwrap();
    let tables = |fs: &MemFs| -> Vec<_> {
        files(fs, DIR.as_ref()).into_iter().filter(|path| path.extension() == Some("sst".as_ref())).collect()
    };
    let before: Vec<_> = tables(&fs).iter().map(|path| bytes(&fs, path)).collect();
    let both = master(2).and_older("key 1", &[1; 32]).unwrap();
    let plain = || tiny(Env::simulated(Arc::new(fs.clone()), 1)).stepped().blobs(Blobs::From(200));
    let db = plain().encryption(both).open(DIR).unwrap();
    assert_eq!(
        tables(&fs).iter().map(|path| bytes(&fs, path)).collect::<Vec<_>>(),
        before,
        "no data is written again"
    );
    db.close().unwrap();
    let db = plain().encryption(master(2)).open(DIR).unwrap();
    assert!(dump_sound(&db).unwrap() == end);
    db.compact().unwrap();
    db.close().unwrap();
    assert!(matches!(problem(builder(&fs).open(DIR)), EncryptionProblem::MasterKeyUnknown(_)));
}

/// Whatever byte is damaged and whichever files of one kind are exchanged: an error, or the right answer.
#[test]
fn damaged_and_exchanged_files_never_give_wrong_answers() {
    let fs = MemFs::new();
    let build = |fs: &MemFs| tiny(env(fs)).stepped().blobs(Blobs::From(200));
    let db = build(&fs).open(DIR).unwrap();
    let map = db.keyspace(SECRET).unwrap();
    for n in 0..12 {
        map.put(secret(n, 20), secret(n, 30)).unwrap();
        map.put(secret(100 + n, 20), secret(n, 250)).unwrap();
        if n == 5 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    map.put("in the log", SECRET).unwrap();
    let end = dump(&db).unwrap();
    drop(db);
    let reads = |fs: &MemFs, what: &str| {
        let opened = build(fs).open(DIR).and_then(|db| dump(&db));
        match opened {
            // What follows a torn record was not acknowledged, as far as the log can tell.
            Ok(found) if found != end => {
                let lost = found.get(SECRET).is_none_or(|map| !map.contains_key(&b"in the log"[..]));
                assert!(lost && what.contains(".wal"), "{what}: a wrong answer");
            }
            Ok(_)
            | Err(Error::Corrupt { .. } | Error::Encryption { .. } | Error::UnsupportedVersion { .. }) => {}
            Err(Error::Invalid(_)) => {}
            Err(error) => panic!("{what}: {error:?}"),
        }
    };
    let all = files(&fs, DIR.as_ref());
    for path in all.iter().filter(|path| !path.ends_with("LOCK")) {
        let original = bytes(&fs, path);
        let used = original.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for (at, byte) in original.iter().enumerate().take(used) {
            let copy = fs.kill();
            let file = copy.open(path, OpenOptions::write()).unwrap();
            file.write_all_at(&[byte ^ 0x40], at as u64).unwrap();
            reads(&copy, &format!("byte {at} of {}", path.display()));
        }
        for other in all.iter().filter(|other| *other != path && other.extension() == path.extension()) {
            let copy = fs.kill();
            copy.remove_file(path).unwrap();
            let file = copy.open(path, OpenOptions::create_new()).unwrap();
            file.write_all_at(&bytes(&fs, other), 0).unwrap();
            reads(&copy, &format!("{} as {}", other.display(), path.display()));
        }
    }
}
