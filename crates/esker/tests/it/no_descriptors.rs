//! A process without free file descriptors: calls that need one fail for now, and nothing else happens.
//!
//! The limit belongs to the process, so the test has its own.
#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test of the real process")]

use std::fs::File;
use std::time::{Duration, Instant};

use esker::env::{Fs, RealFs};
use esker::{Db, Error};

use crate::own_process;

const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_commit_that_finds_no_descriptor_for_the_next_segment_fails_alone() {
    let limited = "ulimit -n 128";
    if own_process::ran_under(limited, a_commit_that_finds_no_descriptor_for_the_next_segment_fails_alone) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let db = Db::builder().memory(64 << 20).open(dir).unwrap();
    let map = db.default_keyspace();
    let put = |n: u32| map.put(n.to_be_bytes(), [7; 1000]);
    // More than half of the first segment, so that the next one is prepared.
    let mut n = 0;
    while n < 140 {
        put(n).unwrap();
        n += 1;
    }
    let is_prepared = || {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.into_iter().any(|name| name.to_string_lossy().ends_with(".wal-next"))
    };
    let since = Instant::now();
    while !is_prepared() {
        assert!(since.elapsed() < PATIENCE, "no segment was prepared");
        std::thread::sleep(Duration::from_millis(10));
    }
    let held_dir = RealFs::new().hold(dir, None).unwrap().unwrap();
    // The thread that prepares segments may still close a file.
    let (mut held, mut times) = (Vec::new(), 0);
    while times < 5 {
        while let Ok(file) = File::open("/dev/null") {
            held.push(file);
        }
        times = if held_dir.list_dir(dir).is_err() { times + 1 } else { 0 };
        assert!(since.elapsed() < PATIENCE, "descriptors become free again and again");
        std::thread::sleep(Duration::from_millis(10));
    }
    held_dir.sync_dir(dir).unwrap();
    held_dir.can_sync_dir(dir).unwrap();
    let refused = loop {
        match put(n) {
            Ok(_) => n += 1,
            Err(error) => break error,
        }
        assert!(n < 1000, "the next segment got its name");
    };
    assert!(matches!(refused, Error::Io { .. }), "{refused:?}");
    assert!(matches!(put(n), Err(Error::Io { .. })), "as long as there is none");
    assert_eq!(map.get(0_u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 1000][..]), "reads go on");
    drop(held);
    while n < 500 {
        put(n).unwrap();
        n += 1;
    }
    drop(map);
    db.close().unwrap();
    assert_eq!(Db::builder().open(dir).unwrap().default_keyspace().len().unwrap(), u64::from(n));
}
