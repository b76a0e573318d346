//! Closing a database lets go of everything, so that its directory can be unmounted, moved or deleted; and leaves little to replay.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that looks at the real process")]

use std::path::Path;

use esker::Db;

/// Files below `dir` that this process holds open.
fn open_files(dir: &Path) -> Vec<String> {
    let handles = std::fs::read_dir("/proc/self/fd").unwrap();
    let paths = handles.filter_map(|handle| std::fs::read_link(handle.unwrap().path()).ok());
    paths.filter(|path| path.starts_with(dir)).map(|path| path.display().to_string()).collect()
}

#[test]
fn no_file_stays_open_after_closing() {
    for round in 0..40 {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let db = Db::builder().memory(4 << 20).memtable_bytes(4 << 10).open(&dir).unwrap();
        let map = db.default_keyspace();
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let (db, map) = (&db, &map);
                scope.spawn(move || {
                    for i in 0..100 + round {
                        map.put(format!("{writer} {i}"), [0; 200]).unwrap();
                        if i % 20 == 0 {
                            db.flush().unwrap();
                        }
                    }
                });
            }
        });
        assert!(!open_files(&dir).is_empty(), "the test sees open files");
        drop(map);
        db.close().unwrap();
        assert_eq!(open_files(&dir), Vec::<String>::new(), "round {round}");
    }
}

#[test]
fn what_takes_long_to_replay_is_flushed_and_a_short_run_costs_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::builder().replay_bytes(50_000).open(dir.path()).unwrap();
    let put = |db: &Db, keys: std::ops::Range<u32>| {
        let map = db.default_keyspace();
        keys.for_each(|n| map.put(n.to_be_bytes(), [7; 1000]).unwrap());
    };
    let db = open();
    put(&db, 0..100);
    db.close().unwrap();
    let db = open();
    assert_eq!((db.stats().recovered_commits, db.check().unwrap().tables), (0, 1));
    put(&db, 100..103);
    // The last handle that drops closes.
    drop(db);
    let db = open();
    assert_eq!((db.stats().recovered_commits, db.check().unwrap().tables), (3, 1));
    assert_eq!(db.default_keyspace().len().unwrap(), 103);
}
