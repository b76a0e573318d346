//! Closing a database closes its files, so that its directory can be unmounted, moved or deleted.
//!
//! Replaced tables are closed once no thread of the process may still read them. A thread of another test may
//! delay that while it waits for the processor, so the test has its own process.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that looks at the real process")]

use std::path::Path;

use esker::Db;

use crate::own_process;

/// Open files of this process below `dir`.
fn open_files(dir: &Path) -> Vec<String> {
    let handles = std::fs::read_dir("/proc/self/fd").unwrap();
    let paths = handles.filter_map(|handle| std::fs::read_link(handle.unwrap().path()).ok());
    paths.filter(|path| path.starts_with(dir)).map(|path| path.display().to_string()).collect()
}

#[test]
fn no_file_stays_open_after_closing() {
    if own_process::ran(no_file_stays_open_after_closing) {
        return;
    }
    for round in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let db = Db::builder().memory(4 << 20).tuning(|t| t.memtable_bytes(4 << 10)).open(&dir).unwrap();
        let map = db.default_keyspace();
        std::thread::scope(|scope| {
            let write = |writer: u32| {
                let (db, map) = (&db, &map);
                scope.spawn(move || {
                    for i in 0..100 + round {
                        map.put(format!("{writer} {i}"), [0; 200]).unwrap();
                        if i % 20 == 0 {
                            db.flush().unwrap();
                        }
                    }
                })
            };
            // Joined, so that the threads and their thread-local data are gone.
            [0, 1, 2].map(write).into_iter().for_each(|writer| writer.join().unwrap());
        });
        assert!(!open_files(&dir).is_empty(), "the test sees open files");
        drop(map);
        db.close().unwrap();
        assert_eq!(open_files(&dir), Vec::<String>::new(), "round {round}");
    }
}
