//! A database opened by a relative path stays where it is. In its own process, since the working
//! directory belongs to the process.
#![expect(clippy::disallowed_methods, reason = "directories of this test's own")]

use std::fs;

use esker::{Db, Durability};

use crate::own_process;

#[test]
fn a_database_stays_when_the_process_changes_its_working_directory() {
    if own_process::ran(a_database_stays_when_the_process_changes_its_working_directory) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    fs::create_dir(&first).expect("make first");
    std::env::set_current_dir(&first).expect("go there");
    let db = Db::builder()
        .durability(Durability::Sync)
        .tuning(|t| t.memtable_bytes(4_096))
        .open("db")
        .expect("open");
    let map = db.default_keyspace();
    // Where its files would be if its path were resolved again.
    fs::create_dir_all(second.join("db")).expect("make second");
    std::env::set_current_dir(&second).expect("go there");
    for i in 0..200u32 {
        map.put(i.to_be_bytes(), [7; 100]).expect("put");
    }
    db.flush().expect("flush");
    db.compact().expect("compact");
    assert_eq!(map.len().expect("len"), 200);
    db.check().expect("check");
    assert!(db.path().is_absolute(), "{}", db.path().display());
    db.close().expect("close");
    assert_eq!(fs::read_dir(second.join("db")).expect("list").count(), 0, "files beside the database");
    let db = Db::open(first.join("db")).expect("open where it was made");
    assert_eq!(db.default_keyspace().len().expect("len"), 200);
}
