//! Encryption at rest: no plain text in any file, damage is an error, and wrong keys are clear errors.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use esker::backup::{Backup, Point, Restore, Stream};
use esker::encryption::{KeyProvider, MasterKeys, with_keys};
use esker::sstable::{Reader, Writer};
use esker::unload::{Load, Unload};
use esker::{BackgroundStep, Blobs, Builder, Db, EncryptionProblem, Error, History};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions, read_range};

use crate::common::contents::{Contents, dump, dump_sound};
use crate::common::damage::one_in;
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
    backup.restore("restored").backup(2).verify(true).run().unwrap();
    backup.restore("point").point(Point::Commit(last)).builder(builder(&fs)).verify(true).run().unwrap();
    assert_no_plain_text(&fs, &[DIR, "backups", "checkpoint", "restored", "point"], "at the end");
    assert!(!fs.exists(Path::new("checkpoint/OPTIONS")).unwrap());
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
    assert!(!old_keys(&fs).is_empty());
    // Without a feed, which keeps old files.
    let db = plain().encryption(master(2)).feed_retention(0, Duration::ZERO).open(DIR).unwrap();
    assert!(dump_sound(&db).unwrap() == end);
    db.compact().unwrap();
    assert!(dump_sound(&db).unwrap() == end);
    db.close().unwrap();
    assert_eq!(old_keys(&fs), Vec::<PathBuf>::new(), "compaction renews the keys of all data");
    assert!(dump_sound(&plain().encryption(master(2)).open(DIR).unwrap()).unwrap() == end);
    assert!(matches!(problem(builder(&fs).open(DIR)), EncryptionProblem::MasterKeyUnknown(_)));
}

/// Returns the files whose key is not derived from the first key of KEYS.
fn old_keys(fs: &MemFs) -> Vec<PathBuf> {
    let newest = bytes(fs, &Path::new(DIR).join("KEYS"))[12..20].to_vec();
    let is_old = |path: &PathBuf| {
        let bytes = bytes(fs, path);
        let header = bytes.windows(6).position(|window| window == b"eKEY\x01\x01");
        header.is_some_and(|at| bytes[at + 8..at + 16] != newest)
    };
    files(fs, DIR.as_ref()).into_iter().filter(is_old).collect()
}

/// A provider that counts how often it unwraps a key.
#[derive(Debug)]
struct Counted(MasterKeys, Arc<AtomicUsize>);

impl KeyProvider for Counted {
    fn current(&self) -> io::Result<String> {
        self.0.current()
    }
    fn wrap(&self, id: &str, key: &[u8; 32]) -> io::Result<Vec<u8>> {
        self.0.wrap(id, key)
    }
    fn unwrap(&self, id: &str, wrapped: &[u8]) -> io::Result<[u8; 32]> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unwrap(id, wrapped)
    }
}

#[test]
fn readers_beside_a_writer_continue_across_a_rotation_and_write_nothing() {
    let fs = MemFs::new();
    let plain = || tiny(Env::simulated(Arc::new(fs.clone()), 1)).stepped().blobs(Blobs::From(200));
    let both = || master(2).and_older("key 1", &[1; 32]).unwrap();
    let db = builder(&fs).open(DIR).unwrap();
    fill(&db, 1);
    let calls = Arc::new(AtomicUsize::new(0));
    let mut follower = plain().encryption(Counted(both(), calls.clone())).open_follower(DIR).unwrap();
    let mut stale = builder(&fs).open_follower(DIR).unwrap();
    assert!(dump(follower.db()).unwrap() == dump(&db).unwrap());
    db.keyspace(SECRET).unwrap().put("more", secret(1, 300)).unwrap();
    db.flush().unwrap();
    follower.catch_up().unwrap();
    stale.catch_up().unwrap();
    assert!(dump(follower.db()).unwrap() == dump(&db).unwrap());
    assert_eq!(calls.load(Ordering::Relaxed), 1, "a provider is asked for a key once");
    let before = dump(stale.db()).unwrap();
    db.close().unwrap();

    let db = plain().encryption(both()).open(DIR).unwrap();
    fill(&db, 2);
    db.compact().unwrap();
    db.keyspace(SECRET).unwrap().put("in the log", secret(2, 300)).unwrap();
    follower.catch_up().unwrap();
    assert!(dump(follower.db()).unwrap() == dump(&db).unwrap());
    assert!(matches!(problem(stale.catch_up()), EncryptionProblem::MasterKeyUnknown(id) if id == "key 2"));
    assert!(dump(stale.db()).unwrap() == before, "the last state stays readable");
    let end = dump(&db).unwrap();
    db.close().unwrap();

    let image = || files(&fs, DIR.as_ref()).into_iter().map(|path| (path.clone(), bytes(&fs, &path)));
    let untouched: Vec<_> = image().collect();
    let read_only = plain().encryption(both()).open_read_only(DIR).unwrap();
    assert!(dump_sound(&read_only).unwrap() == end);
    drop(read_only);
    // Reading rotates nothing.
    let newer = MasterKeys::new("key 3", &[3; 32]).unwrap().and_older("key 2", &[2; 32]).unwrap();
    assert!(dump(&plain().encryption(newer).open_read_only(DIR).unwrap()).unwrap() == end);
    assert!(image().collect::<Vec<_>>() == untouched);
    assert!(matches!(problem(plain().open_read_only(DIR)), EncryptionProblem::KeyMissing));
    assert!(matches!(problem(plain().open_follower(DIR)), EncryptionProblem::KeyMissing));
    assert!(matches!(problem(builder(&fs).open_read_only(DIR)), EncryptionProblem::MasterKeyUnknown(_)));
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
        for (at, byte) in one_in(3, original.iter().enumerate().take(used)) {
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

/// A key file that others can read is refused, as ssh does. One of another user is that user's concern.
#[test]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a file of the real system")]
fn a_key_file_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys");
    std::fs::write(&path, "7".repeat(64)).unwrap();
    for mode in [0o600, 0o400, 0o640, 0o604, 0o644, 0o620] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let read = MasterKeys::from_file(&path);
        if mode & 0o77 == 0 {
            read.unwrap();
            continue;
        }
        let text = read.as_ref().unwrap_err().to_string();
        assert!(text.contains("chmod 600") && text.contains(&format!("{mode:o}")), "{text}");
        assert!(matches!(problem(read), EncryptionProblem::KeyFileExposed(found) if found == mode));
    }
}

fn checksum(pieces: &[&[u8]]) -> [u8; 4] {
    pieces.iter().fold(0, |crc, piece| crc32c::crc32c_append(crc, piece)).to_le_bytes()
}

/// Returns the ranges of the parts of a table, found by their checksums.
fn parts_of(table: &[u8], salt: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut parts, mut start) = (Vec::new(), 0);
    while let Some(end) = (start + 21..=table.len()).find(|end| {
        let crc = checksum(&[salt, &(start as u64).to_le_bytes(), &table[start..end - 4]]);
        table[end - 4..*end] == crc
    }) {
        parts.push(start..end);
        start = end;
    }
    parts
}

/// An attacker knows the formats: blocks change places, and all checksums are right.
#[test]
fn exchanged_blocks_and_records_with_right_checksums_are_refused() {
    let fs = MemFs::new();
    let build = |fs: &MemFs| tiny(env(fs)).stepped().compression(esker::TableCompression::None);
    let db = build(&fs).open(DIR).unwrap();
    let map = db.keyspace(SECRET).unwrap();
    (0..30).for_each(|n| _ = map.put(secret(n, 20), secret(n, 60)).unwrap());
    db.flush().unwrap();
    (0..8).for_each(|n| _ = map.put(secret(200 + n, 20), secret(n, 60)).unwrap());
    db.sync().unwrap();
    let end = dump(&db).unwrap();
    drop(db);
    // Returns whether an opening or a read refuses the bytes in place of the file.
    let refuses = |path: &Path, bytes: &[u8]| {
        let copy = fs.kill();
        copy.open(path, OpenOptions::write()).unwrap().write_all_at(bytes, 0).unwrap();
        match build(&copy).open(DIR).and_then(|db| dump(&db)) {
            Ok(found) => found == end,
            Err(Error::Corrupt { path: named, detail, .. }) => named == path && detail.contains("tag"),
            Err(error) => panic!("{}: {error:?}", path.display()),
        }
    };
    let (mut blocks, mut records) = (0, 0);
    for path in files(&fs, DIR.as_ref()) {
        let original = bytes(&fs, &path);
        if path.extension() == Some("sst".as_ref()) {
            let salt = checksum(&[path.file_name().unwrap().as_encoded_bytes()]);
            let parts = parts_of(&original, &salt);
            for (to, from) in parts.iter().zip(&parts[1..]).filter(|(to, from)| to.len() == from.len()) {
                let mut bad = original.clone();
                bad.copy_within(from.clone(), to.start);
                let crc = checksum(&[&salt, &(to.start as u64).to_le_bytes(), &bad[to.start..to.end - 4]]);
                bad[to.end - 4..to.end].copy_from_slice(&crc);
                blocks += 1;
                assert!(refuses(&path, &bad), "{to:?} of {}", path.display());
            }
        } else if original.starts_with(b"ESKERWAL") {
            let stamp = [&original[16..20], &xor(&original[20..24], &original[24..28])].concat();
            let is_header = |at: usize| {
                let header = original.get(at..at + 24)?;
                (header[..4] == checksum(&[&stamp, &header[4..]]) && header[8..12] != [0; 4]).then_some(at)
            };
            let starts: Vec<_> = (96..original.len()).step_by(8).filter_map(is_header).collect();
            for pair in
                starts.windows(2).filter(|pair| original[pair[0] + 8..][..4] == original[pair[1] + 8..][..4])
            {
                let (mut bad, len) = (original.clone(), original[pair[0] + 8] as usize);
                bad.copy_within(pair[1] + 24..pair[1] + 24 + len, pair[0] + 24);
                bad.copy_within(pair[1] + 4..pair[1] + 8, pair[0] + 4);
                let crc = checksum(&[&stamp, &bad[pair[0] + 4..pair[0] + 24]]);
                bad[pair[0]..pair[0] + 4].copy_from_slice(&crc);
                records += 1;
                assert!(refuses(&path, &bad), "{pair:?} of {}", path.display());
            }
        }
    }
    assert!(blocks > 3 && records > 3, "{blocks} blocks, {records} records");
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// An older state of one file is noticed, or gives a state that the database had.
#[test]
fn an_older_copy_of_a_file_gives_an_error_or_an_older_state() {
    let fs = MemFs::new();
    let build = |fs: &MemFs| tiny(env(fs)).stepped().blobs(Blobs::From(200));
    let db = build(&fs).open(DIR).unwrap();
    let map = db.keyspace(SECRET).unwrap();
    let (mut states, mut images) = (vec![dump(&db).unwrap()], Vec::new());
    for round in 0..6 {
        for n in 0..8 {
            map.put(secret(n, 20), secret(round * 10 + n, 60 + 40 * n as usize)).unwrap();
            states.push(dump(&db).unwrap());
        }
        images.push(fs.kill());
        if round % 2 == 0 {
            db.flush().unwrap();
            images.push(fs.kill());
        }
    }
    drop(db);
    let (mut refused, mut accepted) = (0, 0);
    for older in &images {
        for path in files(older, DIR.as_ref()).iter().filter(|path| !path.ends_with("LOCK")) {
            let old = bytes(older, path);
            if !fs.exists(path).unwrap() || bytes(&fs, path) == old {
                continue;
            }
            let copy = fs.kill();
            copy.remove_file(path).unwrap();
            let file = copy.open(path, OpenOptions::create_new()).unwrap();
            file.write_all_at(&old, 0).unwrap();
            match build(&copy).open(DIR).and_then(|db| dump(&db)) {
                Ok(found) => {
                    accepted += 1;
                    assert!(states.contains(&found), "{} gives a state that never was", path.display());
                }
                Err(Error::Corrupt { .. } | Error::Encryption { .. } | Error::Invalid(_)) => refused += 1,
                Err(error) => panic!("{}: {error:?}", path.display()),
            }
        }
    }
    assert!(refused > 0 && accepted > 0, "{refused} refused, {accepted} accepted");
}

#[test]
fn each_use_of_a_recycled_segment_has_a_key_of_its_own() {
    let fs = MemFs::new();
    let db = tiny(env(&fs)).stepped().open(DIR).unwrap();
    let mut numbers = BTreeMap::new();
    for round in 0..40 {
        db.default_keyspace().put("a", secret(round, 500)).unwrap();
        for path in
            files(&fs, DIR.as_ref()).into_iter().filter(|path| path.extension() == Some("wal".as_ref()))
        {
            let bytes = bytes(&fs, &path);
            let (number, salt) = (bytes[16..24].to_vec(), bytes[48..80].to_vec());
            assert!(bytes[32..].starts_with(b"eKEY"));
            assert_eq!(numbers.entry(salt).or_insert_with(|| number.clone()), &number, "round {round}");
        }
        db.flush().unwrap();
        while db.step(BackgroundStep::PrepareLog).unwrap() {}
    }
    assert!(db.stats().log_files_recycled > 10 && numbers.len() > 10);
}

#[test]
fn an_unload_has_a_key_of_its_own_and_damage_of_it_is_noticed() {
    let fs = MemFs::new();
    let db = builder(&fs).open(DIR).unwrap();
    fill(&db, 1);
    let end = dump(&db).unwrap();
    let file_env = || Env::simulated(Arc::new(fs.clone()), 3);
    fs.create_dir_all(Path::new("out")).unwrap();
    Unload::new().env(file_env()).write(&db, "out/file").unwrap();
    assert_no_plain_text(&fs, &["out"], "unload");
    let load = |to: &Builder, load: Load| {
        let db = to.clone().env(Env::simulated(Arc::new(MemFs::new()), 2)).open("new").unwrap();
        load.read(&db, "out/file").map(|_| dump(&db).unwrap())
    };
    let to_plain = tiny(file_env()).stepped();
    // The new database has another master key as its current one.
    let to = to_plain.clone().encryption(master(2).and_older("key 1", &[1; 32]).unwrap());
    assert!(load(&to, Load::new().env(file_env())).unwrap() == end);
    assert!(load(&to_plain, Load::new().env(env(&fs))).unwrap() == end);
    assert!(matches!(problem(load(&to_plain, Load::new().env(file_env()))), EncryptionProblem::KeyMissing));
    let stranger = to_plain.clone().encryption(master(3));
    assert!(matches!(
        problem(load(&stranger, Load::new().env(file_env()))),
        EncryptionProblem::MasterKeyUnknown(_)
    ));
    // The wrapped key, zeros after it, and the records.
    let good = bytes(&fs, Path::new("out/file"));
    let places = (0..400).chain((4000..5000).step_by(3)).chain((5000..good.len()).step_by(211));
    for at in one_in(4, places) {
        let file = fs.open(Path::new("out/file"), OpenOptions::write()).unwrap();
        file.write_all_at(&[good[at] ^ 4], at as u64).unwrap();
        match load(&to, Load::new().env(file_env())) {
            Ok(found) => assert!(found == end, "byte {at}"),
            Err(Error::Corrupt { .. } | Error::Encryption { .. } | Error::UnsupportedVersion { .. }) => {}
            Err(error) => panic!("byte {at}: {error:?}"),
        }
        file.write_all_at(&good[at..=at], at as u64).unwrap();
    }
    // Only on demand an encrypted database gives plain text, and what is plain can be loaded into any.
    fs.remove_file(Path::new("out/file")).unwrap();
    Unload::new().env(file_env()).plain(true).write(&db, "out/file").unwrap();
    assert!(load(&to, Load::new().env(file_env())).unwrap() == end);
    assert!(load(&to_plain, Load::new().env(file_env())).unwrap() == end);
}

/// Wherever a rotation is interrupted, a later opening with both master keys finds everything.
#[test]
fn a_rotation_can_end_after_any_call() {
    let fs = MemFs::new();
    let db = tiny(env(&fs)).stepped().open(DIR).unwrap();
    db.keyspace(SECRET).unwrap().put(SECRET, secret(1, 300)).unwrap();
    let end = dump(&db).unwrap();
    db.close().unwrap();
    let both = || master(2).and_older("key 1", &[1; 32]).unwrap();
    let open =
        |fs: Arc<dyn Fs>, keys: MasterKeys| tiny(Env::simulated(fs, 2)).stepped().encryption(keys).open(DIR);
    let mut seen = [0; 2];
    for nth in 1.. {
        let disk = fs.crash_keep_all();
        let faults = FaultFs::new(Arc::new(disk.clone()));
        let death = FaultAction::Freeze { keep: 9 };
        faults.add(FaultRule::new(&OpKind::CHANGES, death).nth(nth));
        drop(open(Arc::new(faults.clone()), both()));
        for found in (0..4).map(|seed| disk.crash(seed)).chain([disk.kill(), disk.crash_strict()]) {
            // KEYS is the old file or the new one.
            let stored = bytes(&found, &Path::new(DIR).join("KEYS"));
            let is_new = stored.windows(5).any(|window| window == b"key 2");
            assert!(is_new != stored.windows(5).any(|window| window == b"key 1"), "call {nth}");
            seen[usize::from(is_new)] += 1;
            let alone = if is_new { master(2) } else { master(1) };
            let db = open(Arc::new(found.kill()), alone).unwrap();
            assert!(dump_sound(&db).unwrap() == end, "call {nth}");
            let db = open(Arc::new(found), both()).unwrap();
            assert!(dump_sound(&db).unwrap() == end, "call {nth}");
        }
        if !faults.is_frozen() {
            break;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// One master key, two databases: no file of one passes for a file of the other.
#[test]
fn files_of_another_database_with_the_same_master_key_are_refused() {
    let make = |fs: &MemFs, seed: u64, text: &str| {
        let env = with_keys(&Env::simulated(Arc::new(fs.clone()), seed), Arc::new(master(1)));
        let db = tiny(env).stepped().blobs(Blobs::From(200)).open(DIR).unwrap();
        let map = db.keyspace(SECRET).unwrap();
        for n in 0..9 {
            map.put([n], text.repeat(1 + 30 * n as usize)).unwrap();
        }
        db.flush().unwrap();
        map.put("in the log", text).unwrap();
        dump(&db).unwrap()
    };
    let (own, other) = (MemFs::new(), MemFs::new());
    let end = make(&own, 1, "mine");
    make(&other, 2, "evil");
    let mut refused = 0;
    for path in files(&own, DIR.as_ref()).iter().filter(|path| !path.ends_with("LOCK")) {
        if !other.exists(path).unwrap() {
            continue;
        }
        let disk = own.kill();
        disk.remove_file(path).unwrap();
        let file = disk.open(path, OpenOptions::create_new()).unwrap();
        file.write_all_at(&bytes(&other, path), 0).unwrap();
        let opened = tiny(env(&disk)).stepped().blobs(Blobs::From(200)).open(DIR).and_then(|db| dump(&db));
        match opened {
            Ok(found) => assert!(found == end, "{}", path.display()),
            Err(Error::Corrupt { .. } | Error::Encryption { .. }) => refused += 1,
            Err(error) => panic!("{}: {error:?}", path.display()),
        }
    }
    assert!(refused >= 4, "{refused}");
}

/// A process can end, and a disk fill, within any write.
#[test]
fn an_unload_that_ended_after_any_byte_is_started_again() {
    let fs = MemFs::new();
    let db = tiny(env(&fs)).stepped().open(DIR).unwrap();
    db.keyspace(SECRET).unwrap().put(SECRET, "1").unwrap();
    let unload = || Unload::new().env(Env::simulated(Arc::new(fs.clone()), 3)).write(&db, "file");
    unload().unwrap();
    let whole = bytes(&fs, Path::new("file"));
    for len in (0..400).chain(4000..whole.len()) {
        fs.remove_file(Path::new("file")).unwrap();
        let file = fs.open(Path::new("file.partial"), OpenOptions::create_new()).unwrap();
        file.write_all_at(&whole[..len], 0).unwrap();
        unload().unwrap_or_else(|error| panic!("{len} bytes: {error}"));
    }
}

#[test]
fn tables_from_elsewhere_are_encrypted_when_they_are_taken_in() {
    let fs = MemFs::new();
    let plain_env = Env::simulated(Arc::new(fs.clone()), 3);
    fs.create_dir_all(Path::new("tables")).unwrap();
    let mut table = Writer::create_in(&plain_env, "tables/a", Default::default()).unwrap();
    (0..50).for_each(|n| table.put(&secret(n, 30), &secret(n, 300)).unwrap());
    table.finish().unwrap();
    let db = builder(&fs).open(DIR).unwrap();
    let mut ingest = db.keyspace(SECRET).unwrap().ingest();
    ingest.table("tables/a").unwrap();
    ingest.commit().unwrap();
    let end = dump(&db).unwrap();
    assert_eq!(end[SECRET].len(), 50);
    db.close().unwrap();
    assert_no_plain_text(&fs, &[DIR], "ingest");
    assert!(dump_sound(&builder(&fs).open(DIR).unwrap()).unwrap() == end);
    // The database's own tables cannot be read as tables without a database.
    let own = files(&fs, DIR.as_ref()).into_iter().find(|path| path.extension() == Some("sst".as_ref()));
    assert!(matches!(
        problem(Reader::open_in(&plain_env, own.unwrap(), 1 << 20)),
        EncryptionProblem::KeyMissing
    ));
}

/// Whatever byte of a backup or an archive is damaged: an error, or the right answer.
#[test]
fn damaged_backups_never_give_wrong_answers() {
    let fs = MemFs::new();
    let db = builder(&fs).open(DIR).unwrap();
    let map = db.keyspace(SECRET).unwrap();
    for n in 0..12 {
        map.put(secret(n, 20), secret(n, 250 + n as usize)).unwrap();
    }
    let mut backup = Backup::open_in(env(&fs), "backups").unwrap();
    backup.create(&db).unwrap();
    map.put("later", SECRET).unwrap();
    backup.archive(&db).unwrap().unwrap();
    let (end, last) = (dump(&db).unwrap(), db.snapshot().seqno());
    db.close().unwrap();
    for path in files(&fs, "backups".as_ref()).iter().filter(|path| !path.ends_with("LOCK")) {
        let original = bytes(&fs, path);
        for (at, byte) in original.iter().enumerate().step_by(5) {
            let copy = fs.kill();
            let file = copy.open(path, OpenOptions::write()).unwrap();
            file.write_all_at(&[byte ^ 0x40], at as u64).unwrap();
            let restored = Backup::open_in(env(&copy), "backups")
                .and_then(|mut backup| {
                    backup.restore("restored").point(Point::Commit(last)).builder(builder(&copy)).run()
                })
                .and_then(|_| builder(&copy).open("restored"))
                .and_then(|db| dump(&db));
            let what = format!("byte {at} of {}", path.display());
            match restored {
                Ok(found) => assert!(found == end, "{what}: a wrong answer"),
                Err(Error::Panicked(text)) => panic!("{what}: {text}"),
                Err(_) => {}
            }
        }
    }
}

#[test]
fn streams_are_encrypted_and_damage_of_any_byte_restores_nothing() {
    let fs = MemFs::new();
    let db = builder(&fs).open(DIR).unwrap();
    fill(&db, 1);
    let is_secret = |bytes: &[u8]| !bytes.windows(6).any(|window| window == &SECRET.as_bytes()[2..8]);
    let (mut stream, mut unloaded, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    Stream::new().write(&db, &mut stream).unwrap();
    Unload::new().write_to(&db, &mut unloaded).unwrap();
    Unload::new().plain(true).write_to(&db, &mut plain).unwrap();
    assert_eq!([is_secret(&stream), is_secret(&unloaded), is_secret(&plain)], [true, true, false]);

    let expected = dump(&db).unwrap();
    Restore::new("copy").env(env(&fs)).verify(true).read(&stream[..]).unwrap();
    assert_no_plain_text(&fs, &["copy"], "restored");
    assert_eq!(dump_sound(&builder(&fs).open("copy").unwrap()).unwrap(), expected);
    for (bytes, dir) in [(&unloaded, "one"), (&plain, "two")] {
        let loaded = builder(&fs).open(dir).unwrap();
        Load::new().read_from(&loaded, &bytes[..]).unwrap();
        assert_eq!(loaded.keyspaces().unwrap(), db.keyspaces().unwrap());
    }

    // With keys, a stream in plain text is refused.
    let (bare, mut text) = (Env::simulated(Arc::new(fs.clone()), 1), Vec::new());
    Stream::new().write(&tiny(bare.clone()).open("text").unwrap(), &mut text).unwrap();
    let refused = problem(Restore::new("no").env(env(&fs)).read(&text[..]));
    assert!(matches!(refused, EncryptionProblem::NotEncrypted) && !fs.exists(Path::new("no")).unwrap());
    Restore::new("plain").env(bare.clone()).read(&text[..]).unwrap();
    let other = with_keys(&bare, Arc::new(master(2)));
    for wrong in [bare, other] {
        let refused = Restore::new("no").env(wrong).read(&stream[..]).unwrap_err();
        assert!(matches!(refused, Error::Encryption { .. }), "{refused}");
    }
    for at in (0..200).chain((200..stream.len()).step_by(3001)) {
        stream[at] ^= 1;
        let found = Restore::new("no").env(env(&fs)).read(&stream[..]);
        stream[at] ^= 1;
        // Zeros follow the keys that the header holds.
        let is_padding = (88..84 + 4096).contains(&at);
        assert!(found.is_err() || is_padding, "byte {at}");
        if found.is_ok() {
            let restored = dump(&builder(&fs).open("no").unwrap()).unwrap();
            assert!(restored == expected, "byte {at}");
            fs.rename_dir(Path::new("no"), Path::new(&format!("done {at}"))).unwrap();
        }
    }
}

#[test]
fn tags_of_small_values_are_no_garbage_that_is_collected_for_ever() {
    let fs = MemFs::new();
    let db = builder(&fs).blobs(Blobs::From(20)).open(DIR).unwrap();
    let map = db.default_keyspace();
    (0..200).for_each(|n| _ = map.put(secret(n, 24), secret(n, 22)).unwrap());
    (0..100).for_each(|n| _ = map.put(secret(n, 24), secret(n + 1, 22)).unwrap());
    db.flush().unwrap();
    let mut work = 0;
    while db.step(BackgroundStep::Compact { idle: true }).unwrap() {
        work += 1;
        assert!(work < 100, "the work has an end");
    }
    db.compact().unwrap();
    assert_eq!(map.get(secret(7, 24)).unwrap().unwrap(), secret(8, 22));
}
