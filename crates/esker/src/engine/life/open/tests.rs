//! Openings of databases with leftovers, links and damaged tables.

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};

use super::read::list;
use crate::Db;
use crate::manifest::file_name::{self, FileKind, table_path};
use crate::types::Error;
use crate::wal;

#[test]
fn recovery_8_opening_passes_by_an_obsolete_log_segment_that_it_cannot_remove() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let dir = Path::new("db");
    let obsolete = wal::file_name::segment_path(dir, 1);
    let never = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
    let open = || Db::builder().stepped().env(env.clone()).open(dir).unwrap();
    let db = open();
    db.default_keyspace().put("a", "1").unwrap();
    faults.add(FaultRule::new(&[OpKind::Remove, OpKind::Rename], never).on_file(&obsolete).forever());
    for n in 2..5 {
        db.flush().unwrap();
        db.default_keyspace().put("a", n.to_string()).unwrap();
    }
    db.close().unwrap();
    for _ in 0..2 {
        let db = open();
        assert_eq!(db.default_keyspace().get("a").unwrap().as_deref(), Some(&b"4"[..]));
        assert!(env.fs.exists(&obsolete).unwrap());
        assert!(db.check().unwrap().problems.is_empty());
        db.close().unwrap();
    }
    let db = open();
    faults.clear();
    db.flush().unwrap();
    assert!(!env.fs.exists(&obsolete).unwrap(), "recovery.8: a flush removes it");
}

#[test]
#[cfg(unix)]
fn open_7_the_directory_above_is_synced_whatever_the_path_says() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let faults = FaultFs::new(Arc::new(esker_env::RealFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let (above, elsewhere) = (root.join("above"), root.join("elsewhere"));
    let (db, link) = (above.join("db"), elsewhere.join("link"));
    env.fs.create_dir_all(&db.join("sub")).unwrap();
    env.fs.create_dir_all(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&db, &link).unwrap();
    for path in [db.clone(), db.join("."), db.join("sub/.."), link] {
        // The first sync of a directory tells, as it fails, which one it is.
        let failure = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&[OpKind::SyncDir], failure));
        let opened = Db::builder().stepped().env(env.clone()).open(&path);
        let Err(Error::Io { path: synced, .. }) = &opened else { panic!("open.7: {opened:?}") };
        assert_eq!(synced.canonicalize().unwrap(), above, "open.7: {}", path.display());
    }
}

#[test]
fn behind_a_clean_close_an_opening_writes_nothing_and_reads_no_table() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let open = || Db::builder().stepped().env(env.clone()).open(Path::new("db")).unwrap();
    for round in 0..3 {
        let db = open();
        let map = db.default_keyspace();
        map.put([round], "flushed").unwrap();
        db.flush().unwrap();
        if round == 1 {
            map.put("log", "not flushed").unwrap();
        }
        db.close().unwrap();
        let failure = FaultAction::Fail(std::io::ErrorKind::Other);
        // The directory is there.
        let changes: Vec<_> = OpKind::CHANGES.into_iter().filter(|kind| *kind != OpKind::CreateDir).collect();
        faults.add(FaultRule::new(&changes, failure).forever());
        let again = open();
        assert_eq!(faults.fired(), 0, "round {round}");
        faults.clear();
        let tables: Vec<_> = again.handle.core.version().tables().map(|(_, t)| t.table.clone()).collect();
        assert!(
            tables.iter().all(|table| format!("{table:?}").contains("not loaded")),
            "table.6: {tables:?}"
        );
        assert_eq!(again.default_keyspace().get([round]).unwrap().as_deref(), Some(&b"flushed"[..]));
        assert!(again.check().unwrap().problems.is_empty());
        again.close().unwrap();
    }
}

#[test]
fn table_6_damage_of_a_table_is_reported_by_its_first_read_and_by_a_check() {
    let fs = MemFs::new();
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let open = || Db::builder().stepped().env(env.clone()).open(Path::new("db")).unwrap();
    let db = open();
    db.default_keyspace().put("a", "1").unwrap();
    db.flush().unwrap();
    let path = table_path(Path::new("db"), db.handle.core.version().tables().next().unwrap().1.file);
    db.default_keyspace().put("b", "2").unwrap();
    db.close().unwrap();
    let file = env.fs.open(&path, esker_env::OpenOptions::write()).unwrap();
    let last = file.len().unwrap() - 1;
    file.write_all_at(b"!", last).unwrap();
    let db = open();
    let map = db.default_keyspace();
    assert_eq!(map.get("b").unwrap().as_deref(), Some(&b"2"[..]), "it is in the log");
    for wrong in [map.get("a").map(drop), map.iter().try_for_each(|item| item.map(drop))] {
        let error = wrong.unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains(path.to_str().unwrap()), "table.6: {error}");
    }
    assert!(!db.check().unwrap().problems.is_empty());
    assert!(db.compact().is_err());
}

#[test]
fn open_6_opening_passes_by_a_leftover_that_it_cannot_remove() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let dir = Path::new("db");
    let open = || Db::builder().stepped().env(env.clone()).open(dir).unwrap();
    let db = open();
    db.default_keyspace().put("a", "1").unwrap();
    db.flush().unwrap();
    let stray = table_path(dir, db.handle.core.version().tables().next().unwrap().1.file);
    let never = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
    faults.add(FaultRule::new(&[OpKind::Remove], never).on_file(&stray).forever());
    db.default_keyspace().put("a", "2").unwrap();
    db.compact().unwrap();
    assert!(db.handle.core.version().tables().all(|(_, table)| table_path(dir, table.file) != stray));
    db.close().unwrap();
    for _ in 0..2 {
        let db = open();
        assert_eq!(db.default_keyspace().get("a").unwrap().as_deref(), Some(&b"2"[..]));
        db.close().unwrap();
        let is_manifest = |name: &&String| matches!(file_name::parse(name), FileKind::Manifest(_));
        let names = list(&env, dir).unwrap();
        assert_eq!(names.iter().filter(is_manifest).count(), 1, "open.6: {names:?}");
        assert!(env.fs.exists(&stray).unwrap());
    }
    faults.clear();
    open().close().unwrap();
    assert!(!env.fs.exists(&stray).unwrap(), "open.6: it goes when it can");
}
