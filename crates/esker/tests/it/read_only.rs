//! Opening to read: the contents are those that an ordinary opening finds, and the directory stays as it is.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions};
use esker::{Builder, Db, Durability, Error, History, Isolation};

use crate::common::contents::dump_sound;

const DIR: &str = "db";

fn builder(fs: &Arc<MemFs>) -> Builder {
    let small = Db::builder()
        .memory(1 << 20)
        .tuning(|t| t.memtable_bytes(16 << 10).table_bytes(8 << 10).block_bytes(256));
    small
        .blobs(esker::Blobs::From(500))
        .adoption_bytes(8 << 10)
        .background(false)
        .env(Env::simulated(fs.clone(), 1))
}

/// A database with everything in it, as a killed process leaves it.
fn killed() -> (Arc<MemFs>, Db) {
    let fs = Arc::new(MemFs::new());
    let db = builder(&fs).feed_retention(1 << 20, Duration::MAX).open(DIR).unwrap();
    let map = db.keyspace("map").unwrap();
    map.set_history(History::Versions(2)).unwrap();
    let words = db.keyspace("words").unwrap();
    words.set_merge_operator("append").unwrap();
    for round in 0..6_u8 {
        for n in 0..60_u8 {
            map.put([n], [round; 150]).unwrap();
            words.merge([n % 7], [b'a' + round]).unwrap();
        }
        map.put([200], vec![round; 3000]).unwrap();
        map.delete_range([round * 7]..[round * 7 + 3]).unwrap();
        words.put_with_ttl([100 + round], "brief", Duration::from_secs(3600)).unwrap();
        let mut large = db.batch();
        (0..150_u8).for_each(|n| large.put(&map, [100, n], [round; 100]).unwrap());
        large.commit().unwrap();
        db.keyspace(&format!("of round {round}")).unwrap().put("a", [round]).unwrap();
    }
    db.drop_keyspace("of round 3").unwrap();
    map.with(Durability::Buffered).put([201], vec![9; 3000]).unwrap();
    (Arc::new(fs.kill()), db)
}

fn files(fs: &MemFs) -> Vec<(String, Vec<u8>)> {
    let mut names = fs.list_dir(Path::new(DIR)).unwrap();
    names.sort();
    let content = |name: &String| {
        let file = fs.open(&Path::new(DIR).join(name), OpenOptions::read()).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    names.iter().map(|name| (name.clone(), content(name))).collect()
}

#[test]
fn reading_1_the_contents_are_whole_and_nothing_is_changed() {
    let (left, writer) = killed();
    let before = files(&left);
    let faults = FaultFs::new(left.clone());
    let changes = OpKind::ALL.into_iter().filter(|kind| {
        !matches!(
            kind,
            OpKind::Open | OpKind::Read | OpKind::List | OpKind::Stat | OpKind::Lock | OpKind::Hint
        )
    });
    let changes: Vec<_> = changes.collect();
    faults.add(FaultRule::new(&changes, FaultAction::Fail(std::io::ErrorKind::ReadOnlyFilesystem)).forever());
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    for _ in 0..2 {
        let db = builder(&left).env(env.clone()).open_read_only(DIR).unwrap();
        assert_eq!(dump_sound(&db).unwrap(), dump_sound(&writer).unwrap());
        let (map, old) = (db.open_keyspace("map").unwrap(), writer.open_keyspace("map").unwrap());
        let versions = |map: &esker::Keyspace| {
            let all = map.versions([20]).unwrap().map(|version| version.unwrap());
            all.map(|version| (version.seqno, version.value.map(|value| value.to_vec()))).collect::<Vec<_>>()
        };
        assert_eq!(versions(&map), versions(&old));
        let seen = db
            .feed_after(db.snapshot().seqno().prev())
            .unwrap()
            .try_next()
            .unwrap()
            .map(|commit| commit.seqno());
        assert_eq!(seen, Some(db.snapshot().seqno()));
        db.close().unwrap();
    }
    assert_eq!(faults.fired(), 0, "reading.1");
    assert_eq!(files(&left), before, "reading.1");
    let again = builder(&left).open(DIR).unwrap();
    assert_eq!(dump_sound(&again).unwrap(), dump_sound(&writer).unwrap());
}

#[test]
fn reading_1_writes_are_refused() {
    let (left, _writer) = killed();
    let before = files(&left);
    let db = builder(&left).open_read_only(DIR).unwrap();
    let map = db.open_keyspace("map").unwrap();
    let mut batch = db.batch();
    batch.put(&map, "a", "1").unwrap();
    let mut transaction = db.begin();
    assert!(transaction.get(&map, [1]).unwrap().is_some());
    transaction.put(&map, "a", vec![1; 100]).unwrap();
    assert!(transaction.get(&map, "a").unwrap().is_some());
    let large = || {
        let mut batch = db.batch();
        (0..200_u8).try_for_each(|n| batch.put(&map, [n], [0; 200]))?;
        batch.commit().map(drop).map_err(Error::from)
    };
    let refused = [
        map.put("a", "1").map(drop),
        map.put("a", vec![0; 5000]).map(drop),
        map.delete([1]).map(drop),
        map.delete_range([1]..).map(drop),
        map.clear().map(drop),
        map.set_history(History::None),
        batch.commit().map(drop).map_err(Error::from),
        transaction.commit().map(drop).map_err(Error::from),
        large(),
        db.create_keyspace("new").map(drop),
        db.drop_keyspace("map"),
        db.rename_keyspace("map", "other"),
        db.flush(),
        db.compact(),
        db.sweep().map(drop),
        db.checkpoint("copy").map(drop),
    ];
    for (n, refused) in refused.into_iter().enumerate() {
        assert!(matches!(&refused, Err(Error::ReadOnly(dir)) if dir == Path::new(DIR)), "{n}: {refused:?}");
    }
    assert!(matches!(db.keyspace("new"), Err(Error::KeyspaceNotFound(_))));
    let reader = db.transaction().isolation(Isolation::Serializable).begin();
    assert!(reader.get(&map, [1]).unwrap().is_some());
    reader.commit().unwrap();
    drop((map, db));
    assert_eq!(files(&left), before, "reading.1");
}

#[test]
fn reading_2_readers_exclude_a_writer_and_not_each_other() {
    for fs in [None, Some(Arc::new(MemFs::new()))] {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("db");
        let builder =
            || fs.as_ref().map_or_else(Db::builder, |fs| Db::builder().env(Env::with_fs(fs.clone())));
        let missing = builder().open_read_only(&dir).unwrap_err();
        assert!(matches!(missing, Error::NotFound(_)), "{missing}");
        let writer = builder().open(&dir).unwrap();
        writer.default_keyspace().put("a", "1").unwrap();
        let refused = builder().open_read_only(&dir).unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        writer.close().unwrap();
        let readers = [0, 1].map(|_| builder().open_read_only(&dir).unwrap());
        let refused = builder().open(&dir).unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        for reader in readers {
            assert!(builder().open(&dir).is_err(), "reading.2");
            assert_eq!(reader.default_keyspace().get("a").unwrap().as_deref(), Some(&b"1"[..]));
            reader.close().unwrap();
        }
        builder().open(&dir).unwrap().default_keyspace().put("a", "2").unwrap();
    }
}

/// Real directories that this process cannot write.
#[cfg(target_os = "linux")]
mod unwritable {
    #![expect(clippy::disallowed_methods, reason = "mounts and rights are real")]

    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;
    use crate::own_process::ran_by;

    fn runs(program: &str, args: &[&str]) -> bool {
        Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
    }

    /// Makes a database in `dir` as a killed process leaves it, with its files and a log to replay.
    fn leave(dir: &Path) {
        let made = dir.with_extension("made");
        let db = Db::builder().memory(1 << 20).blobs(esker::Blobs::From(500)).open(&made).unwrap();
        let map = db.default_keyspace();
        (0..50_u8).for_each(|n| _ = map.put([n], vec![n; 20 * usize::from(n)]).unwrap());
        db.flush().unwrap();
        map.put("in the log", "1").unwrap();
        std::fs::create_dir(dir).unwrap();
        for entry in std::fs::read_dir(&made).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
        }
    }

    /// Asserts that the database can be read in each way, and not written.
    fn assert_readable(dir: &Path) {
        let images = || {
            let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
            entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect::<Vec<_>>()
        };
        let before = images();
        let assert_whole = |db: &Db| {
            assert_eq!(dump_sound(db).unwrap()["default"].len(), 51);
            assert!(matches!(db.default_keyspace().put("a", "1"), Err(Error::ReadOnly(_))));
        };
        let db = Db::builder().open_read_only(dir).unwrap();
        assert_whole(&db);
        assert_whole(&Db::builder().open_read_only(dir).unwrap());
        drop(db);
        let mut follower = Db::builder().open_follower(dir).unwrap();
        follower.catch_up().unwrap();
        assert_eq!(follower.db().default_keyspace().len().unwrap(), 51);
        assert!(matches!(Db::builder().open(dir), Err(Error::Io { .. })));
        assert!(Db::builder().check_offline(dir).unwrap().problems.is_empty());
        assert!(images() == before);
    }

    #[test]
    fn a_disk_that_is_mounted_read_only() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("db");
        leave(&dir);
        let path = dir.to_str().unwrap();
        if !runs("mount", &["--bind", path, path]) {
            println!("skipped: this process may not mount");
            return;
        }
        let is_mounted = runs("mount", &["-o", "remount,bind,ro", path]);
        let outcome = std::panic::catch_unwind(|| {
            assert!(is_mounted);
            assert!(std::fs::write(dir.join("x"), "").is_err(), "it is read-only");
            assert_readable(&dir);
        });
        assert!(runs("umount", &["-l", path]));
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn a_directory_that_this_user_may_only_read() {
        const OTHER_USER: [&str; 5] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
        let program = std::env::current_exe().unwrap();
        // Root may write everywhere, so another user has to run the test.
        if runs("sh", &["-c", "test $(id -u) = 0"]) {
            let probe = [&OTHER_USER[1..], &["test", "-x", program.to_str().unwrap()]].concat();
            if !runs(OTHER_USER[0], &probe) {
                println!("skipped: this process cannot become another user");
            } else {
                assert!(ran_by(&OTHER_USER, a_directory_that_this_user_may_only_read));
            }
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("db");
        leave(&dir);
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::read_dir(&dir).unwrap().for_each(|entry| set(&entry.unwrap().path(), 0o444));
        set(&dir, 0o555);
        assert!(std::fs::write(dir.join("x"), "").is_err(), "it cannot be written");
        assert_readable(&dir);
        set(&dir, 0o755);
    }
}
