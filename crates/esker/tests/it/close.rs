//! Closing a database ends its work and leaves little to replay, however often it is opened. `open_files.rs`
//! tests that no file stays open.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::common::contents::{Map, dump_sound};
use crate::common::{dir, simulated};
use esker::{Db, Durability, Error};
use esker_env::{FaultAction, FaultFs, FaultRule, File, FileLock, Fs, LockError, MemFs, OpKind, OpenOptions};

#[test]
fn what_takes_long_to_replay_is_flushed_and_a_short_run_costs_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::builder().tuning(|t| t.replay_bytes(50_000)).open(dir.path()).unwrap();
    let put = |db: &Db, keys: std::ops::Range<u32>| {
        let map = db.default_keyspace();
        keys.for_each(|n| map.put(n.to_be_bytes(), [7; 1000]).map(drop).unwrap());
    };
    let db = open();
    put(&db, 0..100);
    db.close().unwrap();
    let db = open();
    assert_eq!((db.stats().recovered_commits, db.check().unwrap().tables), (0, 1));
    put(&db, 100..103);
    // Dropping the last handle closes.
    drop(db);
    let db = open();
    assert_eq!((db.stats().recovered_commits, db.check().unwrap().tables), (3, 1));
    assert_eq!(db.default_keyspace().len().unwrap(), 103);
}

#[test]
fn every_handle_gets_the_error_of_a_failed_close() {
    for panics in [false, true] {
        let faults = FaultFs::new(Arc::new(MemFs::new()));
        let db = simulated(Arc::new(faults.clone())).durability(Durability::Buffered).open(dir()).unwrap();
        db.default_keyspace().put("a", "1").unwrap();
        let again = db.clone();
        let action = if panics { FaultAction::Panic } else { FaultAction::Fail(io::ErrorKind::Other) };
        faults.add(FaultRule::new(&[OpKind::SyncData], action));
        let closing = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.close()));
        assert!(if panics { closing.is_err() } else { matches!(closing, Ok(Err(Error::Poisoned(_)))) });
        let reported = again.close();
        let expected = if panics {
            matches!(reported, Err(Error::Panicked(_)))
        } else {
            matches!(reported, Err(Error::Poisoned(_)))
        };
        assert!(expected, "{reported:?}");
    }
    let db = simulated(Arc::new(MemFs::new())).open(dir()).unwrap();
    let again = db.clone();
    db.close().unwrap();
    again.close().unwrap();
}

#[test]
fn closing_reports_a_panic_that_has_stopped_writes() {
    let disk = MemFs::new();
    let faults = FaultFs::new(Arc::new(disk.clone()));
    let db = simulated(Arc::new(faults.clone())).open(dir()).unwrap();
    db.default_keyspace().put("a", "1").unwrap();
    faults.add(FaultRule::new(&[OpKind::Create], FaultAction::Panic).on_path(".sst"));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.flush())).unwrap_err();
    assert!(db.default_keyspace().put("b", "2").is_err_and(|e| matches!(e, Error::Poisoned(_))));
    assert!(matches!(db.close(), Err(Error::Poisoned(_))));
    let db = simulated(Arc::new(disk)).open(dir()).unwrap();
    assert_eq!(dump_sound(&db).unwrap().len(), 1);
}

/// Many processes, each of which puts one key and ends. `end` returns the disk that it leaves to the next
/// one.
fn short_lives(end: fn(Db, MemFs) -> MemFs) {
    let open = |disk: &MemFs| {
        // The memtable never fills up.
        simulated(Arc::new(disk.clone())).tuning(|t| t.memtable_bytes(256 << 10)).open(dir()).unwrap()
    };
    let segments = |disk: &MemFs| {
        let names = disk.list_dir(dir()).unwrap();
        names.iter().filter(|name| name.ends_with(".wal")).count()
    };
    let (mut disk, mut most) = (MemFs::new(), 0);
    for life in 0..100u8 {
        let db = open(&disk);
        db.default_keyspace().put([life], [life; 10]).unwrap();
        most = most.max(segments(&disk));
        disk = end(db, disk);
        most = most.max(segments(&disk));
    }
    assert!((20..=40).contains(&most), "{most} segments");
    let db = open(&disk);
    let expected: Map = (0..100u8).map(|life| (vec![life], vec![life; 10])).collect();
    assert!(dump_sound(&db).unwrap()["default"] == expected);
}

#[test]
fn processes_that_are_closed_soon_leave_no_long_log() {
    short_lives(|db, disk| {
        db.close().unwrap();
        disk
    });
}

#[test]
fn processes_that_are_killed_soon_leave_no_long_log() {
    short_lives(|db, disk| {
        let left = disk.kill();
        // Dropping it closes it.
        drop(db);
        left
    });
}

/// A file system that stops one caller of `sync_dir` on request.
#[derive(Debug)]
struct Gate {
    files: MemFs,
    is_armed: AtomicBool,
    reached: Barrier,
    passed: Barrier,
}

impl Fs for Gate {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        self.files.open(path, options)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.files.create_dir_all(path)
    }
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.files.list_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.files.remove_file(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.reached.wait();
            self.passed.wait();
        }
        self.files.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.files.exists(path)
    }
    fn file_size(&self, path: &Path) -> io::Result<u64> {
        self.files.file_size(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.files.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        self.files.lock(path)
    }
}

/// Closes a database while another thread is stopped in its maintenance.
fn close_during(maintain: fn(&Db) -> esker::Result<()>) {
    let gate = Arc::new(Gate {
        files: MemFs::new(),
        is_armed: AtomicBool::new(false),
        reached: Barrier::new(2),
        passed: Barrier::new(2),
    });
    let db = simulated(gate.clone()).open(dir()).unwrap();
    let map = db.default_keyspace();
    for round in 0..3u8 {
        (0..50u8).for_each(|n| map.put([n], [round; 40]).map(drop).unwrap());
        if round < 2 {
            db.flush().unwrap();
        }
    }
    let before = dump_sound(&db).unwrap();
    gate.is_armed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| maintain(&db));
        gate.reached.wait();
        let closers = [(); 2].map(|()| {
            let db = db.clone();
            scope.spawn(move || db.close())
        });
        while !matches!(db.sync(), Err(Error::Closed)) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        let closed = closers.iter().any(|closer| closer.is_finished());
        let second = simulated(gate.clone()).open(dir()).map(drop);
        gate.passed.wait();
        assert!(!closed, "handle.1: closed, and files still change");
        assert!(matches!(second, Err(Error::Locked { .. })), "handle.1: {second:?}");
        let ended = busy.join().unwrap();
        assert!(matches!(ended, Ok(()) | Err(Error::Closed)), "{ended:?}");
        closers.into_iter().for_each(|closer| closer.join().unwrap().unwrap());
    });
    for _ in 0..2 {
        let db = simulated(gate.clone()).open(dir()).unwrap();
        assert!(dump_sound(&db).unwrap() == before);
        db.close().unwrap();
    }
}

#[test]
fn handle_1_closing_waits_for_a_merge_of_another_thread() {
    close_during(Db::compact);
}

#[test]
fn handle_1_closing_waits_for_a_flush_of_another_thread() {
    close_during(Db::flush);
}

#[test]
fn an_empty_batch_makes_durable_what_was_committed_before() {
    let disk = MemFs::new();
    let db = simulated(Arc::new(disk.clone())).open(dir()).unwrap();
    let map = db.default_keyspace();
    let mut batch = db.batch();
    batch.put(&map, "a", "1").unwrap();
    batch.commit_with(esker::Durability::None).unwrap();
    assert_eq!(
        simulated(Arc::new(disk.crash_strict())).open(dir()).unwrap().default_keyspace().len().unwrap(),
        0
    );
    db.batch().commit_with(esker::Durability::Sync).unwrap();
    let left = simulated(Arc::new(disk.crash_strict())).open(dir()).unwrap();
    assert_eq!(left.default_keyspace().get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn damage_to_what_closing_made_durable_is_no_torn_tail() {
    let fs = MemFs::new();
    let db = simulated(Arc::new(fs.clone())).open(dir()).unwrap();
    let map = db.default_keyspace();
    for n in 0..20u8 {
        let mut batch = db.batch();
        batch.put(&map, [n], [n; 60]).unwrap();
        batch.commit_with(esker::Durability::None).unwrap();
    }
    drop(map);
    db.close().unwrap();
    let log = dir().join("000001.wal");
    let bytes = {
        let file = fs.open(&log, OpenOptions::read()).unwrap();
        esker_env::read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
    };
    for n in [0u8, 7, 19] {
        let at = bytes.windows(60).position(|window| window == [n; 60]).unwrap();
        let fs = fs.crash_keep_all();
        fs.open(&log, OpenOptions::write()).unwrap().write_all_at(b"!", at as u64).unwrap();
        let opened = simulated(Arc::new(fs)).open(dir());
        assert!(matches!(&opened, Err(Error::Corrupt { path, .. }) if *path == log), "{n}: {opened:?}");
    }
}
