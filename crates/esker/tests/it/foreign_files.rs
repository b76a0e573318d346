//! Databases, checkpoints, backups, restores and unloads leave other files alone, whatever their names and
//! wherever links lead.

#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "the files of others are made around the engine")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use esker::backup::{Backup, Point};
use esker::unload::Unload;
use esker::{Blobs, Db, Error};

/// A directory with a database, and another user's directory beside it.
struct Scene {
    temp: tempfile::TempDir,
    db: Db,
}

impl Scene {
    fn new() -> Scene {
        let temp = tempfile::tempdir().unwrap();
        let db = Db::builder().blobs(Blobs::From(100)).feed_retention(1 << 20, std::time::Duration::MAX);
        let db = db.open(temp.path().join("data")).unwrap();
        db.default_keyspace().put("a", [7; 500]).unwrap();
        let scene = Scene { temp, db };
        let victim = scene.path("victim/db");
        fs::create_dir_all(&victim).unwrap();
        for name in ["precious.txt", "000003.sst", "x.tmp", "LOCK"] {
            fs::write(victim.join(name), "ESKREC precious").unwrap();
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn backup(&self) -> Backup {
        Backup::open(self.path("backups")).unwrap()
    }

    /// Asserts that no file of the other directory has changed.
    fn check(&self, what: &str) {
        let victim = self.path("victim/db");
        let mut names: Vec<_> =
            fs::read_dir(&victim).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["000003.sst", "LOCK", "precious.txt", "x.tmp"], "{what}");
        for name in names {
            assert_eq!(
                fs::read_to_string(victim.join(&name)).unwrap(),
                "ESKREC precious",
                "{what}: {name:?}"
            );
        }
        assert_eq!(fs::read_dir(self.path("victim")).unwrap().count(), 1, "{what}");
    }
}

#[test]
fn checkpoints_and_restores_clear_away_nothing_of_others() {
    let scene = Scene::new();
    let mut backup = scene.backup();
    let made = backup.create(&scene.db).unwrap();
    symlink(scene.path("victim"), scene.path("x.esker-new")).unwrap();
    // The same without a link: a user's directory of that name.
    fs::create_dir_all(scene.path("y.esker-new/db")).unwrap();
    fs::write(scene.path("y.esker-new/db/notes.txt"), "mine").unwrap();
    fs::write(scene.path("y.esker-new/db/000001.sst"), "mine").unwrap();
    fs::create_dir_all(scene.path("z.esker-new")).unwrap();
    fs::write(scene.path("z.esker-new/ESKER-JOB-0123456789abcdef"), "mine").unwrap();
    symlink(scene.path("victim/db"), scene.path("z.esker-new/db")).unwrap();
    scene.db.checkpoint(scene.path("copy")).unwrap();
    backup.restore(scene.path("restored")).backup(made.id).run().unwrap();
    backup.restore(scene.path("past")).point(Point::Commit(made.seqno)).run().unwrap();
    let check = |what: &str| {
        scene.check(what);
        for name in ["notes.txt", "000001.sst"] {
            assert_eq!(
                fs::read_to_string(scene.path("y.esker-new/db").join(name)).unwrap(),
                "mine",
                "{what}"
            );
        }
    };
    check("others");
    // Under the target's own name.
    for name in ["x", "y", "z"] {
        for refused in [
            scene.db.checkpoint(scene.path(name)).map(drop),
            backup.restore(scene.path(name)).backup(made.id).run().map(drop),
        ] {
            assert!(matches!(refused, Err(Error::Invalid(_))), "{name}: {refused:?}");
        }
        check(name);
        assert!(!scene.path(name).exists());
    }
    // A target that is a link, even to nothing.
    symlink(scene.path("nowhere"), scene.path("dangling")).unwrap();
    assert!(matches!(scene.db.checkpoint(scene.path("dangling")), Err(Error::AlreadyExists(_))));
    assert!(!scene.path("nowhere").exists());
}

#[test]
fn what_others_put_into_a_workplace_that_a_crash_left_stays() {
    let scene = Scene::new();
    // What a kill leaves. A child process that ends in the middle would leave the same.
    let left = scene.path("old.esker-new");
    fs::create_dir_all(left.join("db")).unwrap();
    esker_env::JobFile::begin(&esker_env::Env::real(), &left, "workplace").unwrap();
    fs::write(left.join("db/000001.sst"), "of the engine").unwrap();
    symlink(scene.path("victim/db/precious.txt"), left.join("db/000002.sst")).unwrap();
    fs::write(left.join("db/notes.txt"), "mine").unwrap();
    scene.db.checkpoint(scene.path("copy")).unwrap();
    assert!(!left.join("db/000001.sst").exists());
    assert_eq!(fs::read_to_string(left.join("db/notes.txt")).unwrap(), "mine");
    fs::remove_file(left.join("db/notes.txt")).unwrap();
    scene.db.checkpoint(scene.path("another")).unwrap();
    assert!(!left.exists());
    scene.check("a link in it");
}

#[test]
fn backup_place_2_backup_place_3_backups_write_through_no_link_and_remove_nothing_of_others() {
    let precious = |scene: &Scene| scene.path("victim/db/precious.txt");
    for name in ["LOCK", "ESKER-BACKUPS", "ESKER-BACKUPS.tmp", "files", "backups", "feed"] {
        let scene = Scene::new();
        fs::create_dir(scene.path("backups")).unwrap();
        let is_dir = ["files", "backups", "feed"].contains(&name);
        let to = if is_dir { scene.path("victim/db") } else { precious(&scene) };
        symlink(to, scene.path("backups").join(name)).unwrap();
        let tried = Backup::open(scene.path("backups")).and_then(|mut backup| backup.create(&scene.db));
        assert!(tried.is_err(), "{name}");
        scene.check(name);
    }
    // Later, in a directory that has backups.
    for name in ["files", "backups", "feed", "files/a.tmp", "files/incoming.tmp", "feed/b.tmp"] {
        let scene = Scene::new();
        let mut backup = scene.backup();
        backup.create(&scene.db).unwrap();
        scene.db.default_keyspace().put("b", "2").unwrap();
        backup.archive(&scene.db).unwrap();
        let path = scene.path("backups").join(name);
        let is_dir = path.is_dir();
        if is_dir {
            fs::rename(&path, scene.path("moved")).unwrap();
        }
        symlink(if is_dir { scene.path("victim/db") } else { precious(&scene) }, &path).unwrap();
        fs::write(scene.path("backups/notes.tmp"), "mine").unwrap();
        scene.db.default_keyspace().put("c", "3").unwrap();
        let _ = (backup.create(&scene.db), backup.archive(&scene.db), backup.prune(1), backup.verify());
        scene.check(name);
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink() || !is_dir, "{name}");
        assert_eq!(fs::read_to_string(scene.path("backups/notes.tmp")).unwrap(), "mine");
    }
    let scene = Scene::new();
    let mut backup = scene.backup();
    backup.create(&scene.db).unwrap();
    let names = ["files/notes.sst", "files/x.tmp", "backups/y.tmp", "files/00000001-000001-9-00000000.sst"];
    for name in names {
        fs::write(scene.path("backups").join(name), "mine").unwrap();
    }
    backup.create(&scene.db).unwrap();
    backup.prune(1).unwrap();
    for name in names {
        assert_eq!(fs::read_to_string(scene.path("backups").join(name)).unwrap(), "mine", "{name}");
    }
    // A lock file under another name and with other content is not overwritten.
    fs::remove_file(scene.path("backups/LOCK")).unwrap();
    fs::hard_link(precious(&scene), scene.path("backups/LOCK")).unwrap();
    backup.create(&scene.db).unwrap_err();
    scene.check("LOCK");
}

#[test]
fn unload_4_an_unload_replaces_nothing_and_follows_no_link() {
    let scene = Scene::new();
    let (file, partial) = (scene.path("file"), scene.path("file.partial"));
    let precious = scene.path("victim/db/precious.txt");
    let unload = || Unload::new().write(&scene.db, &file);
    let clear = || fs::remove_file(&partial).unwrap();
    symlink(&precious, &partial).unwrap();
    assert!(matches!(unload(), Err(Error::Invalid(_))));
    clear();
    fs::hard_link(&precious, &partial).unwrap();
    assert!(matches!(unload(), Err(Error::Invalid(_))));
    clear();
    symlink(scene.path("nowhere"), &file).unwrap();
    assert!(matches!(unload(), Err(Error::AlreadyExists(_))));
    fs::remove_file(&file).unwrap();
    scene.check("unload");
    assert!(!scene.path("nowhere").exists());
    // A complete file of an earlier unload with a second name stays as it is.
    Unload::new().write(&scene.db, scene.path("whole")).unwrap();
    let whole = fs::read(scene.path("whole")).unwrap();
    fs::hard_link(scene.path("whole"), &partial).unwrap();
    unload().unwrap();
    assert_eq!(fs::read(scene.path("whole")).unwrap(), whole);
    fs::remove_file(&file).unwrap();
    fs::write(&partial, "").unwrap();
    unload().unwrap();
}

#[test]
fn copies_into_the_directory_of_a_database_are_refused_and_leave_nothing() {
    let scene = Scene::new();
    let mut backup = scene.backup();
    let made = backup.create(&scene.db).unwrap();
    let data = scene.path("data");
    let list = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let beside = list(scene.temp.path());
    symlink(&data, scene.path("link")).unwrap();
    let refused = |result: esker::Result<()>, what: &str| {
        assert!(
            matches!(&result, Err(Error::Invalid(text)) if text.contains("database")),
            "{what}: {result:?}"
        );
    };
    for dir in ["data/inside", "data/deep/inside", "link/inside"].map(|name| scene.path(name)) {
        let what = dir.display().to_string();
        refused(scene.db.checkpoint(&dir).map(drop), &what);
        refused(backup.restore(&dir).backup(made.id).run().map(drop), &what);
        refused(backup.restore(&dir).point(Point::Commit(made.seqno)).run().map(drop), &what);
        refused(Backup::open(&dir).and_then(|mut backup| backup.create(&scene.db)).map(drop), &what);
        refused(Unload::new().write(&scene.db, &dir).map(drop), &what);
        assert!(!data.join("inside").exists() && !data.join("deep").exists(), "{what}");
    }
    let among = scene.path("backups/files/copy");
    assert!(
        matches!(backup.restore(&among).backup(made.id).run(), Err(Error::Invalid(text)) if text.contains("backups"))
    );
    // A directory that contains it.
    let above = Backup::open(scene.temp.path()).and_then(|mut backup| backup.create(&scene.db));
    assert!(matches!(above, Err(Error::Invalid(_))), "{above:?}");
    assert!(matches!(scene.db.checkpoint(scene.temp.path()), Err(Error::AlreadyExists(_))));
    fs::remove_file(scene.path("link")).unwrap();
    assert_eq!(list(scene.temp.path()), beside);
}

/// The files of a directory and its subdirectories, with their content.
fn content(dir: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => found.extend(content(&path)),
            false => _ = found.insert(path.clone(), fs::read(&path).unwrap()),
        }
    }
    found
}

#[test]
fn a_database_is_created_beside_files_of_others_and_leaves_them_alone() {
    let scene = Scene::new();
    let dir = scene.path("app");
    let names = ["settings.toml", ".hidden", "data.mdb", "x.tmp", "sub/CURRENT", "sub/000001.sst", "1.log"];
    for name in names {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "mine").unwrap();
    }
    fs::create_dir(dir.join("lost+found")).unwrap();
    let before = content(&dir);
    let check = |what: &str| {
        let after = content(&dir);
        before.iter().for_each(|(path, bytes)| assert_eq!(after.get(path), Some(bytes), "{what}: {path:?}"));
        assert!(dir.join("lost+found").is_dir(), "{what}");
    };
    for round in 0..3_u8 {
        let db = Db::builder().blobs(Blobs::From(100)).open(&dir).unwrap();
        db.default_keyspace().put([round], [7; 500]).unwrap();
        check("open");
        db.compact().unwrap();
        let copy = scene.path("copy");
        db.checkpoint(&copy).unwrap();
        assert!(names.iter().all(|name| !copy.join(name).exists()));
        fs::remove_dir_all(copy).unwrap();
        db.close().unwrap();
        check("closed");
    }
}

/// RocksDB and LevelDB have the same names.
#[test]
fn the_directory_of_another_engine_is_refused_and_stays_as_it_is() {
    let scene = Scene::new();
    let files = [("CURRENT", "MANIFEST-000004\n"), ("MANIFEST-000004", "V\u{1}\u{2}"), ("LOCK", "")];
    let files = [&files[..], &[("000003.sst", "of another"), ("000005.log", "of another")]].concat();
    for left in [&files[..], &files[1..], &files[3..]] {
        let dir = scene.path("other");
        fs::create_dir(&dir).unwrap();
        left.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
        for opened in [Db::open(&dir), Db::open_read_only(&dir)] {
            assert!(opened.is_err(), "{left:?}");
        }
        for (name, text) in left.iter().filter(|(name, _)| *name != "LOCK") {
            assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), *text, "{left:?}: {name}");
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
