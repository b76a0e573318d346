//! Databases that are refused: the message says what is wrong, where, and what helps. Nothing in them
//! changes.
//!
//! ```text
//!   golden database --damage--> open --> a typed error; files unchanged; check_offline reports the same
//! ```
//!
//! - An opening that refuses damage, or files that the engine cannot have made, changes only LOCK.
//! - Every message about damage names `esker repair`.
//! - What crashes leave is never refused.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use crate::common::contents::{dump, dump_sound};
use crate::common::damage::{Golden, blocks, overwrite, path, read, replace};
use crate::common::{dir, simulated};
use esker::{Builder, Error};
use esker_env::{FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind};

fn builder(fs: &MemFs) -> Builder {
    simulated(Arc::new(fs.clone()))
}

/// Names and contents of all files except LOCK, which names the process that tried to open.
fn files(fs: &MemFs) -> Vec<(String, Vec<u8>)> {
    let mut names = fs.list_dir(dir()).unwrap();
    names.retain(|name| name != "LOCK");
    names.sort();
    names.into_iter().map(|name| (name.clone(), read(fs, &name))).collect()
}

/// Returns the error of an opening.
fn refusal(what: &str, builder: Builder, fs: &MemFs) -> Error {
    let before = files(fs);
    match builder.open(dir()) {
        Err(error) => {
            assert!(files(fs) == before, "{what}: files were changed, and then: {error}");
            error
        }
        // Tables are read when they are needed.
        Ok(db) => dump(&db).map(drop).expect_err(what),
    }
}

fn assert_helpful(what: &str, error: &Error) {
    assert!(error.is_corrupt() && error.to_string().contains("esker repair"), "{what}: {error}");
}

#[test]
fn whatever_is_damaged_the_message_says_what_helps() {
    let golden = Golden::segmented();
    let segments: Vec<_> = golden.named(".wal").collect();
    let table = golden.named(".sst").last().unwrap();
    let manifest = golden.named("").find(|name| name.starts_with("MANIFEST-")).unwrap();
    type Harm<'a> = &'a dyn Fn(&MemFs);
    let harms: [(&str, Harm<'_>); 4] = [
        ("two segments swapped", &|fs| {
            replace(fs, segments[0], &golden.read(segments[1]));
            replace(fs, segments[1], &golden.read(segments[0]));
        }),
        ("a footer without magic", &|fs| overwrite(fs, table, golden.read(table).len() - 1, b"?")),
        ("no manifest", &|fs| fs.remove_file(&path(manifest)).unwrap()),
        ("no CURRENT", &|fs| fs.remove_file(&path("CURRENT")).unwrap()),
    ];
    for (what, harm) in harms {
        let fs = golden.copy();
        harm(&fs);
        assert_helpful(what, &refusal(what, builder(&fs), &fs));
    }
    for name in [manifest, "CURRENT"] {
        let bytes = golden.read(name);
        let mut refused = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let fs = golden.copy();
            overwrite(&fs, name, at, &[!byte]);
            // A damaged end of a manifest may look like an edit that never took effect.
            if let Err(error) = builder(&fs).open(dir()) {
                assert_helpful(&format!("{name}, byte {at}"), &error);
                refused += 1;
            }
        }
        assert!(refused > bytes.len() / 2, "{name}: {refused} of {}", bytes.len());
    }
}

#[test]
fn a_damaged_catalog_is_refused_before_anything_is_changed() {
    let golden = Golden::merged();
    let in_catalog = |table: &String| {
        let block = blocks(&golden.fs, table).into_iter().find(|block| block.keys[0][0] == 0)?;
        Some((table.clone(), block.start + 20))
    };
    let (table, at) = golden.named(".sst").find_map(in_catalog).unwrap();
    let fs = golden.copy();
    overwrite(&fs, &table, at, &[!golden.read(&table)[at]]);
    let error = refusal("the catalog", builder(&fs), &fs);
    assert!(matches!(&error, Error::Corrupt { path: named, .. } if *named == path(&table)), "{error}");
    assert_helpful("the catalog", &error);
}

#[test]
fn a_file_whose_number_leaves_none_for_new_ones_is_named() {
    let golden = Golden::merged();
    for name in ["9223372036854775807.sst", "MANIFEST-9223372036854775807", "2000000000000.sst"] {
        let fs = golden.copy();
        replace(&fs, name, b"a stray");
        let error = refusal(name, builder(&fs), &fs);
        assert!(matches!(&error, Error::Corrupt { path: named, .. } if *named == path(name)), "{error}");
        assert_helpful(name, &error);
        let report = builder(&fs).check_offline(dir()).unwrap();
        assert!(report.problems.iter().any(|problem| problem.contains(name)), "{report:#?}");
        assert!(!report.notes.iter().any(|note| note.contains(name)), "{report:#?}");
    }
    // A file with a lower number is an ordinary leftover.
    let (fs, name) = (golden.copy(), "999999999999.sst");
    replace(&fs, name, b"a stray");
    for _ in 0..3 {
        let db = builder(&fs).open(dir()).unwrap();
        assert!(dump_sound(&db).unwrap() == golden.newest);
        db.close().unwrap();
    }
    assert!(!fs.exists(&path(name)).unwrap());
}

#[test]
fn a_database_without_current_is_damaged_and_not_missing() {
    let golden = Golden::merged();
    // Each of these files alone proves that there is data.
    for kept in [".sst", ".wal"] {
        let fs = golden.copy();
        for name in &golden.files {
            let is_data = name.ends_with(".sst") || name.ends_with(".wal");
            if name == "CURRENT" || is_data && !name.ends_with(kept) {
                fs.remove_file(&path(name)).unwrap();
            }
        }
        for create in [false, true] {
            let error = refusal(kept, builder(&fs).create_if_missing(create), &fs);
            let named = matches!(&error, Error::Corrupt { path: named, .. } if *named == path("CURRENT"));
            assert!(named, "{kept}: {error}");
            assert_helpful(kept, &error);
        }
        for name in fs.list_dir(dir()).unwrap().iter().filter(|name| name.ends_with(kept)) {
            fs.remove_file(&path(name)).unwrap();
        }
        // A manifest alone is left by an unfinished creation.
        replace(&fs, "strange.sst", b"not ours");
        let missing = refusal("no data", builder(&fs).create_if_missing(false), &fs);
        assert!(matches!(&missing, Error::NotFound(named) if named == dir()), "{missing}");
    }
}

#[test]
fn tables_of_flushes_and_merges_that_did_not_come_to_their_end_are_leftovers() {
    // The first flush drops the numbers of its commits, and so does the compaction.
    for merges in [false, true] {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db = simulated(Arc::new(faults.clone())).open(dir()).unwrap();
        let keyspace = db.default_keyspace();
        keyspace.put("a", "1").unwrap();
        if merges {
            db.flush().unwrap();
            keyspace.put("b", "2").unwrap();
            keyspace.delete("a").unwrap();
            db.flush().unwrap();
        }
        let fail = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&[OpKind::SyncData], fail).on_path("MANIFEST").forever());
        let stopped = if merges { db.compact() } else { db.flush() };
        stopped.unwrap_err();
        let mut noted = 0;
        for left in [fs.crash_strict(), fs.kill(), fs.crash_keep_all()] {
            let report = builder(&left).check_offline(dir()).unwrap();
            assert!(report.problems.is_empty(), "{report:#?}");
            noted += report.notes.iter().filter(|note| note.contains(".sst is not needed")).count();
            let db = builder(&left).open(dir()).unwrap();
            assert_eq!(dump_sound(&db).unwrap()["default"].len(), 1);
        }
        assert!(noted > 0, "nothing was left over");
    }
}

#[test]
fn a_keyspace_of_another_opening_is_refused() {
    let mem = MemFs::new();
    let open = |name: &str| builder(&mem).open(name).unwrap();
    let (db, other, earlier) = (open("db"), open("other"), open("earlier"));
    let mine = db.create_keyspace("mine").unwrap();
    mine.put("k", "1").unwrap();
    let of_other = other.create_keyspace("theirs").unwrap();
    let of_earlier = earlier.create_keyspace("mine").unwrap();
    earlier.close().unwrap();
    let later = open("earlier");
    for (db, mine, foreign) in
        [(&db, &mine, &of_other), (&later, &later.keyspace("mine").unwrap(), &of_earlier)]
    {
        let before = db.snapshot().seqno();
        let assert_refused = |what: &str, result: Result<(), Error>| {
            let said = result.map_err(|error| error.to_string()).unwrap_err();
            assert!(said.contains("is of another database"), "{what}: {said}");
        };
        let mut batch = db.batch();
        batch.put(mine, "own", "1").unwrap();
        assert_refused("batch.put", batch.put(foreign, "k", "2"));
        assert_refused("batch.remove", batch.delete(foreign, "k"));
        assert_refused("batch.delete_range", batch.delete_range(foreign, ..));
        let mut transaction = db.begin();
        assert_refused("get", transaction.get(foreign, "k").map(drop));
        transaction.put(mine, "own", "1").unwrap();
        assert_refused("transaction.put", transaction.put(foreign, "k", "2"));
        assert_refused("transaction.remove", transaction.delete(foreign, "k"));
        assert_refused("transaction.delete_range", transaction.delete_range(foreign, ..));
        assert_refused("transaction.get", transaction.get(foreign, "own").map(drop));
        assert_refused("transaction.contains", transaction.contains(foreign, "own").map(drop));
        assert_refused("transaction.iter", transaction.iter(foreign).next().transpose().map(drop));
        let snapshot = db.snapshot();
        assert_refused("snapshot.get", snapshot.get(foreign, "k").map(drop));
        assert_refused("snapshot.contains", snapshot.contains(foreign, "k").map(drop));
        assert_refused("snapshot.multi_get", snapshot.multi_get(foreign, &["k"]).map(drop));
        assert_refused("snapshot.first", snapshot.first(foreign).map(drop));
        assert_refused("snapshot.prefix", snapshot.prefix(foreign, "k").next_back().transpose().map(drop));
        assert_refused("snapshot.cursor", snapshot.cursor(foreign).map(drop));
        assert_refused("snapshot.len", snapshot.len(foreign).map(drop));
        assert_eq!(db.snapshot().seqno(), before);
        assert!(db.check().unwrap().problems.is_empty());
    }
    // Other handles of the same opening work.
    let mut batch = db.batch();
    batch.put(&db.clone().keyspace("mine").unwrap(), "k", "2").unwrap();
    batch.commit().unwrap();
}

#[test]
fn a_key_that_is_too_long_is_refused_by_a_transaction_that_removed_all_keys() {
    let mem = MemFs::new();
    let db = builder(&mem).open(dir()).unwrap();
    let map = db.keyspace("map").unwrap();
    let mut transaction = db.begin();
    transaction.delete_range(&map, ..).unwrap();
    let long = vec![b'a'; esker::KEY_BYTES_MAX + 1];
    assert!(matches!(transaction.get(&map, &long), Err(Error::KeyTooLong { .. })));
    assert!(matches!(transaction.contains(&map, &long), Err(Error::KeyTooLong { .. })));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a file of the real file system")]
fn a_path_that_is_no_directory_is_refused_in_plain_words() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, b"not a database").unwrap();
    let mut cases = vec![
        (std::path::PathBuf::new(), "the path of the database is empty"),
        (file.clone(), "is a file, not a directory"),
        (file.join("db"), "lies in a file"),
    ];
    if cfg!(unix) {
        cases.push((root.path().join("link"), "is a link that leads nowhere"));
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(root.path().join("nowhere"), root.path().join("link")).unwrap();
    for (path, says) in cases {
        let error = esker::Db::open(&path).unwrap_err();
        let is_requested = matches!(&error, Error::Invalid(text) if text.contains(says));
        assert!(is_requested, "{}: {error}", path.display());
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"not a database");
}

#[test]
fn a_database_that_this_process_has_open_is_said_to_be_so() {
    let root = tempfile::tempdir().unwrap();
    let _db = esker::Db::open(root.path()).unwrap();
    for refused in [esker::Db::open(root.path()).map(drop), esker::check_offline(root.path()).map(drop)] {
        let error = refused.unwrap_err();
        assert!(matches!(&error, Error::Locked { in_this_process: true, .. }), "{error}");
        assert!(error.to_string().contains("already open in this process"), "{error}");
    }
}
