//! Where a repaired database may be made, and what a failed repair leaves.

use std::path::Path;

use esker::{Db, Error};
use esker_env::Fs;

use super::judge::{builder, repair, target};
use crate::common::damage::{Golden, replace};
use crate::common::dir;

#[test]
fn the_target_must_be_new_and_the_source_closed() {
    let golden = Golden::merged();
    let fs = golden.copy();
    assert!(matches!(builder(&fs).repair(dir(), dir()), Err(Error::Invalid(_))));
    assert!(matches!(builder(&fs).repair("nothing", target()), Err(Error::NotFound(_))));
    let db = builder(&fs).open(dir()).unwrap();
    assert!(matches!(builder(&fs).repair(dir(), target()), Err(Error::Locked { .. })));
    db.close().unwrap();
    builder(&fs).repair(dir(), target()).unwrap();
    assert!(matches!(builder(&fs).repair(dir(), target()), Err(Error::Invalid(_))));
}

/// Names and bytes of everything in a directory of the real file system.
fn real_files(dir: &Path) -> Vec<(std::path::PathBuf, Option<Vec<u8>>)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries.map(|path| (path.clone(), std::fs::read(path).ok())).collect();
    all.sort();
    all
}

#[test]
fn a_target_in_the_source_is_refused() {
    let golden = Golden::merged();
    let fs = golden.copy();
    let names = || fs.list_dir(dir()).unwrap();
    let before = names();
    for target in ["db", "db/new", "./db/new", "db/new/newer", "db/../db/new", "gone/../db/new"] {
        let refused = builder(&fs).repair(dir(), target).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{target}: {refused}");
        assert_eq!(names(), before, "{target}");
    }
    // It may not contain the source either: it is not empty.
    assert!(matches!(builder(&fs).repair(dir(), ".").map(drop), Err(Error::Invalid(_))));
    for target in ["db-new", "database", "elsewhere/db"] {
        assert!(builder(&fs).repair(dir(), target).unwrap().losses.is_empty(), "{target}");
    }
}

#[test]
fn a_target_in_the_source_is_refused_by_whatever_name() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let db = Db::open(at("db")).unwrap();
    db.default_keyspace().put("key", "value").unwrap();
    db.close().unwrap();
    for name in ["other", "elsewhere", "db/empty"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let mut inside =
        vec!["db", "db/new", "db/./new", "other/../db/new", "db/../db/new/er", "db/empty", "db/empty/new"];
    let mut outside = vec!["db/../beside", "db-new", "other/db", "elsewhere"];
    #[cfg(unix)]
    {
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(at(to), at(name)).unwrap();
        link("db", "link");
        link("db/empty", "into");
        link("other", "out");
        inside.extend(["link", "link/new", "into", "into/new", "into/../new", "link/../link/new/er"]);
        outside.push("out/new");
    }
    let before = real_files(&at("db"));
    for source in ["db", "other/../db"].map(at).into_iter().chain(cfg!(unix).then(|| at("link"))) {
        for target in &inside {
            let refused = Db::builder().repair(&source, at(target)).map(drop).unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "{target}: {refused}");
            assert!(real_files(&at("db")) == before, "{target}");
        }
    }
    assert!(matches!(Db::builder().repair(at("db"), root.path()), Err(Error::Invalid(_))));
    for target in outside {
        assert_eq!(Db::builder().repair(at("db"), at(target)).unwrap().live_keys(), 1, "{target}");
        assert!(real_files(&at("db")) == before, "{target}");
    }
}

#[test]
fn a_repair_that_fails_leaves_no_file() {
    let golden = Golden::merged();
    let newer = |name: &str, at: usize, covered: std::ops::Range<usize>| {
        let fs = golden.copy();
        let mut bytes = golden.read(name);
        bytes[at] = 99;
        let crc = crc32c::crc32c(&bytes[covered.clone()]).to_le_bytes();
        bytes[covered.end..covered.end + 4].copy_from_slice(&crc);
        replace(&fs, name, &bytes);
        let refused = repair(&fs).map(drop).unwrap_err();
        assert!(matches!(refused, Error::UnsupportedVersion { .. }), "{refused}");
        fs
    };
    // All tables are read before anything is made.
    let table = golden.named(".sst").last().unwrap();
    let footer = golden.read(table).len() - 80;
    let fs = newer(table, footer + 64, footer..footer + 68);
    assert!(!fs.exists(target()).unwrap());
    // The log is read when the target has the tables already.
    let fs = newer(golden.last_segment(), 8, 0..28);
    assert_eq!(fs.list_dir(target()).unwrap_or_default(), Vec::<String>::new());
}

/// The permission bits of a directory, and the distinct ones of its files.
#[cfg(unix)]
fn modes(dir: &Path) -> (u32, Vec<u32>) {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let entries = std::fs::read_dir(dir).unwrap();
    let mut files: Vec<_> = entries.map(|entry| mode(&entry.unwrap().path())).collect();
    files.sort_unstable();
    files.dedup();
    (mode(dir), files)
}

#[cfg(unix)]
#[test]
fn a_repaired_database_is_no_more_open_than_its_source() {
    use std::os::unix::fs::PermissionsExt;
    let fill = |db: &esker::Db| {
        db.default_keyspace().put("a", "1").unwrap();
        db.flush().unwrap();
        db.default_keyspace().put("b", "2").unwrap();
    };
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for (mode, of_files) in [(0o700, 0o600), (0o770, 0o660)] {
        let (source, target) = (at(&format!("{mode:o}")), at(&format!("{mode:o} repaired")));
        let db = esker::Db::builder().mode(mode).open(&source).unwrap();
        fill(&db);
        db.close().unwrap();
        assert_eq!(modes(&source), (mode, vec![of_files]));
        esker::repair(&source, &target).unwrap();
        assert_eq!(modes(&target), (mode, vec![of_files]));
    }
    // Without the option, files have what their directory allows.
    let (source, target) = (at("db"), at("repaired"));
    std::fs::create_dir(&source).unwrap();
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o700)).unwrap();
    let db = esker::Db::open(&source).unwrap();
    fill(&db);
    db.close().unwrap();
    assert_eq!(modes(&source), (0o700, vec![0o600]));
    // A file may not have what its directory allows.
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o755)).unwrap();
    esker::repair(&source, &target).unwrap();
    assert_eq!(modes(&target), (0o755, vec![0o600]));
    // The mode of an existing directory does not change either.
    let empty = at("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::set_permissions(&empty, std::fs::Permissions::from_mode(0o750)).unwrap();
    esker::Db::builder().mode(0o711).repair(&source, &empty).unwrap();
    assert_eq!(modes(&empty), (0o750, vec![0o600]));
}
