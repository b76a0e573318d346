//! Background threads that cannot start, are held up, or panic.
//!
//! ```text
//!   Db --threads--> Hooked file system (runs a hook before a file is made) --> MemFs
//! ```
//!
//! - Failed work is retried after growing pauses, however many commits there are meanwhile.
//! - After a panic of a thread, writes fail with an error that says so. None waits for the thread.
//! - The timed sync waits for no flush and no long commit.
//! - Threads that cannot be started are tried again. The timed sync comes first.
//! - After a full disk the first commit retries the flush that found no space. No commit does if the free
//!   space could not be used.
//! - A panic in the middle of a group leaves no writer waiting, and nothing half done (poison.1).
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::dir;
use esker::{Blobs, Builder, Db, Durability, Error};
use esker_env::{
    Env, FaultAction, FaultFs, FaultRule, File, FileLock, Fs, LockError, MemFs, OpKind, OpenOptions,
    SystemThreads, ThreadHandle, Threads,
};

/// Longer than anything here takes that ends at all, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(300);

/// Called with the name of the thread that is about to make a file.
type Hook = Box<dyn Fn(&str) + Send + Sync>;

/// A file system in memory that calls a hook before a file of one kind is made.
struct Hooked {
    inner: MemFs,
    extension: &'static str,
    hook: Hook,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl Fs for Hooked {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        if options.create && path.extension().is_some_and(|e| e == self.extension) {
            (self.hook)(std::thread::current().name().unwrap_or_default());
        }
        self.inner.open(path, options)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.list_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn file_size(&self, path: &Path) -> io::Result<u64> {
        self.inner.file_size(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.inner.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        self.inner.lock(path)
    }
}

fn small(env: Env) -> Builder {
    Db::builder()
        .env(env)
        .memory(4 << 20)
        .tuning(|t| t.memtable_bytes(16 << 10))
        .blobs(Blobs::Never)
        .tuning(|t| t.block_bytes(512).table_bytes(16 << 10))
}

/// A builder with a hook before tables are made.
fn hooked(inner: &MemFs, hook: impl Fn(&str) + Send + Sync + 'static) -> Builder {
    hooked_at("sst", inner, hook)
}

fn hooked_at(extension: &'static str, inner: &MemFs, hook: impl Fn(&str) + Send + Sync + 'static) -> Builder {
    small(Env::with_fs(Arc::new(Hooked { inner: inner.clone(), extension, hook: Box::new(hook) })))
}

/// Puts until a put fails. Returns the number of successful puts, and the error.
fn put_until_it_fails(db: &Db) -> (u32, Error) {
    let map = db.default_keyspace();
    let (sender, outcome) = mpsc::channel();
    std::thread::spawn(move || {
        // Keys in random order, so that there is something to compact.
        let key = |n: u32| n.wrapping_mul(0x9E37_79B1).to_be_bytes();
        let failed = (0..).find_map(|n| map.put(key(n), [7; 500]).err().map(|error| (n, error)));
        sender.send(failed).unwrap();
    });
    outcome.recv_timeout(PATIENCE).expect("the writer waits for ever").unwrap()
}

/// Checks what happens after a panic of this thread.
fn panic_in(thread: &'static str) {
    let fs = MemFs::new();
    let db = hooked(&fs, move |name| assert_ne!(name, thread, "the table's file burst"));
    let db = db.open(dir()).unwrap();
    let (acknowledged, error) = put_until_it_fails(&db);
    assert!(matches!(error, Error::Poisoned(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(thread) && text.contains("panicked") && text.contains("file burst"), "{text}");
    let noted = db.stats().background_error.unwrap();
    assert!(text.ends_with(&noted), "{noted}");
    let map = db.default_keyspace();
    for refused in [db.flush(), db.compact(), map.put("again", "").map(drop)] {
        assert!(matches!(refused, Err(Error::Poisoned(_))), "it stays so: {refused:?}");
    }
    assert_eq!(map.get(0u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 500][..]), "reads go on");
    drop(map);
    let closed = db.close().unwrap_err().to_string();
    assert!(closed.contains("file burst"), "{closed}");
    let db = small(Env::with_fs(Arc::new(fs))).open(dir()).unwrap();
    assert_eq!(db.default_keyspace().len().unwrap(), u64::from(acknowledged));
}

#[test]
fn writers_learn_of_a_panic_of_the_flush_thread() {
    panic_in("esker-flush");
}

#[test]
fn writers_learn_of_a_panic_of_the_merge_thread() {
    panic_in("esker-compact");
}

#[test]
fn the_timed_sync_does_not_wait_for_a_flush() {
    for durability in [Durability::Buffered, Durability::None] {
        let fs = MemFs::new();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let (sender, flushing) = mpsc::channel();
        let flush_gate = gate.clone();
        let db = hooked(&fs, move |name| {
            if name == "esker-flush" {
                // The receiver may have stopped listening.
                let _ = sender.send(());
                drop(flush_gate.lock());
            }
        });
        let db = db.durability(durability).open(dir()).unwrap();
        let map = db.default_keyspace();
        (0..40u32).for_each(|n| map.put(n.to_be_bytes(), [7; 500]).map(drop).unwrap());
        flushing.recv_timeout(PATIENCE).expect("the flush has begun");
        map.put("late", "").unwrap();
        let started = Instant::now();
        let is_durable = || {
            let after_power_loss = small(Env::with_fs(Arc::new(fs.crash_strict()))).open(dir()).unwrap();
            after_power_loss.default_keyspace().contains("late").unwrap()
        };
        let mut synced = false;
        while !synced && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
            synced = is_durable();
        }
        let flushes = db.stats().flushes;
        // Closing waits for the flush.
        drop(closed);
        drop(map);
        db.close().unwrap();
        assert_eq!(flushes, 0, "the flush was held up all the time");
        assert!(synced, "{durability:?}");
    }
}

#[test]
fn the_interval_of_the_timed_sync_is_an_option() {
    let (hour, moment) = (Duration::from_secs(3600), Duration::from_millis(2));
    let opened = [hour, moment].map(|interval| {
        let fs = MemFs::new();
        let db = small(Env::with_fs(Arc::new(fs.clone()))).sync_every(interval).open(dir()).unwrap();
        db.default_keyspace().with(Durability::Buffered).put("late", "").unwrap();
        (fs, db)
    });
    let is_durable = |fs: &MemFs| {
        let after_power_loss = small(Env::with_fs(Arc::new(fs.crash_strict()))).open(dir()).unwrap();
        after_power_loss.default_keyspace().contains("late").unwrap()
    };
    let started = Instant::now();
    while !is_durable(&opened[1].0) && started.elapsed() < PATIENCE {
        std::thread::sleep(moment);
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!([is_durable(&opened[0].0), is_durable(&opened[1].0)], [false, true]);
    for refused in [Duration::ZERO, hour * 2] {
        assert!(matches!(Db::builder().sync_every(refused).open_in_memory(), Err(Error::Invalid(_))));
    }
}

#[test]
fn at_once_1_an_asynchronous_commit_leaves_its_caller_while_no_memtable_is_flushed() {
    let fs = MemFs::new();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let flush_gate = gate.clone();
    let db = hooked(&fs, move |name| {
        if name == "esker-flush" {
            drop(flush_gate.lock());
        }
    });
    let db = db.durability(Durability::Buffered).open(dir()).unwrap();
    let map = db.default_keyspace();
    let (sender, begun) = mpsc::channel();
    let writer = db.clone();
    std::thread::spawn(move || {
        let map = writer.default_keyspace();
        let put = |n: usize| map.put_async(n.to_be_bytes(), [7; 500]);
        let mut commits = Vec::new();
        while writer.stats().stalls == 0 {
            commits.push(put(commits.len()));
            std::thread::sleep(Duration::from_millis(1));
        }
        (0..100).for_each(|_| commits.push(put(commits.len())));
        sender.send(commits).unwrap();
    });
    let commits = begun.recv_timeout(PATIENCE).expect("no call waits for a flush");
    assert!(map.len().unwrap() <= commits.len() as u64 - 100, "the last ones wait");
    drop(closed);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut last = 0;
    for mut commit in commits {
        let number = loop {
            match std::pin::Pin::new(&mut commit).poll(&mut context) {
                std::task::Poll::Ready(number) => break number.unwrap().get(),
                std::task::Poll::Pending => std::thread::yield_now(),
            }
        };
        assert!(last == 0 || number == last + 1, "at_once.1: {number} after {last}");
        last = number;
    }
}

#[test]
fn the_timed_sync_does_not_wait_for_a_long_commit() {
    const WRITER: &str = "writer";
    for durability in [Durability::Buffered, Durability::None] {
        let fs = MemFs::new();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let (sender, committing) = mpsc::channel();
        let commit_gate = gate.clone();
        let db = hooked_at("tmp", &fs, move |name| {
            if name == WRITER {
                // The receiver may have stopped listening.
                let _ = sender.send(());
                drop(commit_gate.lock());
            }
        });
        let db = db.durability(durability).open(dir()).unwrap();
        let map = db.default_keyspace();
        let mut batch = db.batch();
        batch.put(&map, "large", vec![7; 64 << 20]).unwrap();
        // At this point, so that it is not synced before the commit begins.
        map.put("early", "").unwrap();
        let writer = std::thread::Builder::new().name(WRITER.to_owned());
        let writer = writer.spawn(move || batch.commit()).unwrap();
        committing.recv_timeout(PATIENCE).expect("it needs more of the log than there is");
        let started = Instant::now();
        let is_durable = || {
            let after_power_loss = small(Env::with_fs(Arc::new(fs.crash_strict()))).open(dir()).unwrap();
            let map = after_power_loss.default_keyspace();
            assert!(!map.contains("large").unwrap(), "the commit is held up all the time");
            map.contains("early").unwrap()
        };
        let mut synced = is_durable();
        while !synced && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
            synced = is_durable();
        }
        drop(closed);
        writer.join().unwrap().unwrap();
        assert!(map.contains("large").unwrap());
        drop(map);
        db.close().unwrap();
        assert!(synced, "{durability:?}");
    }
}

/// Starts this number of threads, and no more.
#[derive(Debug)]
struct FewThreads(AtomicUsize);

impl Threads for FewThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<ThreadHandle> {
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => SystemThreads.spawn(name, work),
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

#[test]
fn threads_that_do_not_start_are_tried_again() {
    let fs = MemFs::new();
    let threads = Arc::new(FewThreads(AtomicUsize::new(0)));
    let open = || {
        let env = Env { threads: threads.clone(), ..Env::with_fs(Arc::new(fs.clone())) };
        small(env).tuning(|t| t.compactions(1)).open(dir())
    };
    let refused = open();
    assert!(matches!(refused, Err(Error::Io { op: "start a thread for", .. })), "{refused:?}");
    // Flush and sync, but neither log, compaction nor sweep.
    threads.0.store(2, Ordering::Relaxed);
    let db = open().unwrap();
    let until = |is_over: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !is_over() {
            assert!(started.elapsed() < PATIENCE, "{:?}", db.stats());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(&|| db.stats().background_error.is_some_and(|error| error.contains("start a thread")));
    db.default_keyspace().with(Durability::Buffered).put("a", "b").unwrap();
    until(&|| {
        let after_power_loss = small(Env::with_fs(Arc::new(fs.crash_strict()))).open(dir()).unwrap();
        after_power_loss.default_keyspace().contains("a").unwrap()
    });
    db.flush().unwrap();
    threads.0.store(3, Ordering::Relaxed);
    until(&|| threads.0.load(Ordering::Relaxed) == 0);
    db.close().unwrap();
}

/// Maximum number of attempts to flush in this time, with pauses that double from 40 ms to 5 s. On a machine
/// that stalled, more time has passed.
fn tries_max(time: Duration) -> u64 {
    8 + time.as_secs() / 5
}

/// Commits until this time has passed and a flush has failed. Ignores the outcomes.
fn commit_for(db: &Db, time: Duration) {
    let map = db.default_keyspace();
    let started = Instant::now();
    for n in 0u32.. {
        let passed = started.elapsed();
        if passed >= time && (db.stats().flushes_failed > 0 || passed >= PATIENCE) {
            break;
        }
        // Once two memtables wait, commits fail.
        let _ = map.put(n.to_be_bytes(), [7; 500]);
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Makes flushes fail for a while, then one succeed. Returns how long the commits of several memtables take
/// after that.
fn time_of_commits_after_failing_flushes() -> Duration {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let db = small(Env::with_fs(Arc::new(faults.clone()))).durability(Durability::Buffered).open(dir());
    let db = db.unwrap();
    let io = FaultAction::Fail(io::ErrorKind::Other);
    faults.add(FaultRule::new(&[OpKind::Create], io).on_path(".sst").forever());
    let started = Instant::now();
    commit_for(&db, Duration::from_millis(1300));
    let failed = db.stats().flushes_failed;
    let most = tries_max(started.elapsed());
    assert!((1..=most).contains(&failed), "{failed} attempts, {most} at the most");
    // The pause, now more than a second, ends with the first successful flush in any thread.
    faults.clear();
    db.flush().unwrap();
    let started = Instant::now();
    let map = db.default_keyspace();
    (0..300u32).for_each(|n| map.put(n.to_be_bytes(), [8; 500]).map(drop).unwrap());
    let taken = started.elapsed();
    drop(map);
    db.close().unwrap();
    taken
}

#[test]
fn a_writer_without_room_gets_the_stop_of_writes_before_the_failure_of_flushes() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let db = small(Env::with_fs(Arc::new(faults.clone()))).durability(Durability::None).open(dir()).unwrap();
    let map = db.default_keyspace();
    let io = FaultAction::Fail(io::ErrorKind::Other);
    faults.add(FaultRule::new(&[OpKind::Create], io).on_path(".sst").forever());
    let started = Instant::now();
    let refused = loop {
        match map.put("a", [8; 500]) {
            Ok(_) => assert!(started.elapsed() < PATIENCE),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Io { .. }), "{refused:?}");
    faults.add(FaultRule::new(&[OpKind::SyncData], io).on_path(".wal").forever());
    assert!(matches!(db.sync(), Err(Error::Poisoned(_))));
    let refused = map.put("a", [8; 500]).unwrap_err();
    assert!(matches!(refused, Error::Poisoned(_)), "{refused:?}");
}

#[test]
fn failing_flushes_pause_however_many_commits_there_are() {
    // On a machine that stalls, the commits themselves may take as long as the pause, but not every time.
    let mut times = Vec::new();
    while times.len() < 20 {
        times.push(time_of_commits_after_failing_flushes());
        if times.last().is_some_and(|time| *time < Duration::from_millis(900)) {
            return;
        }
    }
    panic!("the pause goes on after a flush that succeeded: {times:?}");
}

/// A database whose flushes find no space, when commits have begun to fail. Returns the number of puts
/// before.
fn without_space_for_tables(fs: &MemFs) -> (Db, FaultFs, u32) {
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let db = small(Env::with_fs(Arc::new(faults.clone()))).durability(Durability::Buffered).open(dir());
    let db = db.unwrap();
    faults.add(FaultRule::new(&[OpKind::Create], FaultAction::NoSpace).on_path(".sst").forever());
    let (written, error) = put_until_it_fails(&db);
    assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
    (db, faults, written)
}

#[test]
fn a_transaction_that_has_only_read_commits_on_a_full_disk() {
    let fs = MemFs::new();
    let (db, ..) = without_space_for_tables(&fs);
    fs.set_capacity(Some(fs.used_bytes()));
    let map = db.default_keyspace();
    let items = map.len().unwrap();
    let reader = db.begin();
    assert_eq!(reader.iter(&map).count() as u64, items);
    reader.commit().unwrap();
    assert!(matches!(map.put("refused", ""), Err(Error::NoSpace { .. })), "the disk was not full");
}

/// Commits are refused. They wait neither for the end of a pause nor for a flush, and cause no extra
/// attempts.
fn assert_commits_are_refused_at_once(db: &Db) {
    let map = db.default_keyspace();
    let mut counts = Vec::new();
    while counts.len() < 20 {
        let started = Instant::now();
        let before = db.stats().flushes_failed;
        let mut refused = 0;
        while started.elapsed() < Duration::from_millis(1500) {
            let put = map.put("refused", "");
            assert!(matches!(put, Err(Error::NoSpace { .. })), "{put:?}");
            refused += 1;
        }
        let tried = db.stats().flushes_failed - before;
        let most = tries_max(started.elapsed());
        assert!(tried <= most, "{tried} tries, {most} at the most, {refused} commits");
        counts.push(refused);
        // A machine that stalls delays commits as well, but not every time.
        if refused > 100 {
            return;
        }
    }
    panic!("commits are held up: {counts:?}");
}

#[test]
fn the_first_commit_after_a_full_disk_has_the_flush_tried_again() {
    let fs = MemFs::new();
    let (db, faults, written) = without_space_for_tables(&fs);
    // No commit waits for a flush that cannot succeed, or causes another attempt.
    fs.set_capacity(Some(fs.used_bytes()));
    let map = db.default_keyspace();
    assert_commits_are_refused_at_once(&db);
    // The pause is more than a second by now.
    faults.clear();
    fs.set_capacity(Some(1 << 40));
    map.put("first", "").unwrap();
    assert_eq!(map.len().unwrap(), u64::from(written) + 1);
    drop(map);
    db.close().unwrap();
}

#[test]
fn space_that_a_flush_could_not_use_holds_up_no_commit() {
    // Like a quota: the disk reports free space.
    let fs = MemFs::new();
    fs.set_capacity(Some(1 << 40));
    let (db, faults, written) = without_space_for_tables(&fs);
    let map = db.default_keyspace();
    assert_commits_are_refused_at_once(&db);
    faults.clear();
    db.flush().unwrap();
    map.put("first", "").unwrap();
    assert_eq!(map.len().unwrap(), u64::from(written) + 1);
    drop(map);
    db.close().unwrap();
}

#[test]
fn a_manifest_that_cannot_be_made_leaves_no_files() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let db = small(Env::with_fs(Arc::new(faults.clone()))).background(false).open(dir()).unwrap();
    let map = db.default_keyspace();
    map.put("a", "1").unwrap();
    let io = FaultAction::Fail(io::ErrorKind::Other);
    faults.add(FaultRule::new(&[OpKind::SyncData], io).on_path("MANIFEST").forever());
    (0..10).for_each(|_| drop(db.flush().unwrap_err()));
    let manifests = fs.list_dir(dir()).unwrap().into_iter().filter(|name| name.starts_with("MANIFEST"));
    let manifests: Vec<_> = manifests.collect();
    assert_eq!(manifests.len(), 1, "{manifests:?}");
    faults.clear();
    db.flush().unwrap();
    assert_eq!(map.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    drop(map);
    db.close().unwrap();
}

#[test]
fn tree_3_a_panic_in_the_middle_of_a_group_leaves_nothing_uncounted() {
    let fs = MemFs::new();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let (sender, held) = mpsc::channel();
    let hook_gate = gate.clone();
    let db = hooked_at("tmp", &fs, move |name| match name {
        "first" => {
            // The receiver may have stopped listening.
            let _ = sender.send(());
            drop(hook_gate.lock());
        }
        "small" | "large" => panic!("no segment for this one"),
        _ => {}
    });
    let db = db.tuning(|t| t.memtable_bytes(16 << 20)).open(dir()).unwrap();
    let map = db.default_keyspace();
    let spawn = |name: &'static str, bytes: usize| {
        let map = map.clone();
        let work = move || drop(map.put(name, vec![7; bytes]));
        std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap()
    };
    // The first writer is delayed while it makes a segment, named *.tmp at first. Behind it a group forms,
    // whose leader panics at its second commit.
    let mut threads = vec![spawn("first", 3 << 20)];
    held.recv_timeout(PATIENCE).expect("it needs a segment");
    for (name, bytes) in [("small", 1), ("large", 12 << 20)] {
        threads.push(spawn(name, bytes));
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(closed);
    let panics = threads.into_iter().filter_map(|thread| thread.join().err()).count();
    assert!(panics > 0, "the leader panicked");
    // Refused or not: the entries are counted.
    let _ = map.put("later", "");
    assert_eq!(map.len().unwrap(), map.iter().count() as u64, "poison.1");
    drop(map);
    drop(db);
    let db = small(Env::with_fs(Arc::new(fs))).open(dir()).unwrap();
    let map = db.default_keyspace();
    assert_eq!(map.len().unwrap(), map.iter().count() as u64, "poison.1, opened again");
}

/// Outcome of one thread's puts: the number acknowledged, and whether one then failed or panicked.
struct Writer {
    acknowledged: u32,
    was_refused: bool,
}

/// Four threads put their own keys in order while a call panics. All of them return.
fn write_through_a_panic(db: &Db) -> Vec<Writer> {
    let (sender, ended) = mpsc::channel();
    for thread in 0..4u8 {
        let (map, sender) = (db.default_keyspace(), sender.clone());
        std::thread::spawn(move || {
            let mut acknowledged = 0;
            let puts = std::panic::AssertUnwindSafe(|| {
                (0..300u32).try_for_each(|n| {
                    map.put([&[thread][..], &n.to_be_bytes()].concat(), vec![thread; 2000])?;
                    acknowledged += 1;
                    Ok::<(), Error>(())
                })
            });
            let was_refused = match std::panic::catch_unwind(puts) {
                Ok(Ok(())) => false,
                Ok(Err(error)) => {
                    assert!(matches!(error, Error::Poisoned(_)), "{error:?}");
                    true
                }
                Err(_) => true,
            };
            drop(map);
            sender.send((thread, Writer { acknowledged, was_refused })).unwrap();
        });
    }
    let mut ends: Vec<_> = (0..4).map(|_| ended.recv_timeout(PATIENCE).expect("a writer hangs")).collect();
    ends.sort_by_key(|(thread, _)| *thread);
    ends.into_iter().map(|(_, writer)| writer).collect()
}

#[test]
fn tree_3_a_panic_anywhere_in_a_group_leaves_no_waiter_and_nothing_half_done() {
    let places = [
        (OpKind::Write, ".wal", 40),
        (OpKind::SyncData, ".wal", 40),
        (OpKind::Create, ".tmp", 2),
        (OpKind::Rename, ".wal", 4),
        (OpKind::SyncDir, "", 3),
        (OpKind::SyncData, "MANIFEST", 3),
        (OpKind::Write, ".sst", 2),
    ];
    for (op, path, nth) in places {
        let what = format!("{op:?} {path}");
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db =
            small(Env::with_fs(Arc::new(faults.clone()))).durability(Durability::Sync).open(dir()).unwrap();
        faults.add(FaultRule::new(&[op], FaultAction::Panic).on_path(path).nth(nth));
        let writers = write_through_a_panic(&db);
        assert_eq!(faults.fired(), 1, "{what}: it was to panic");
        let map = db.default_keyspace();
        let shown = map.len().unwrap();
        assert_eq!(shown, map.iter().count() as u64, "poison.1: reads go on: {what}");
        let acknowledged: u32 = writers.iter().map(|writer| writer.acknowledged).sum();
        assert_eq!(shown, u64::from(acknowledged), "poison.1: what readers see was acknowledged: {what}");
        let was_refused = writers.iter().any(|writer| writer.was_refused);
        assert!(was_refused, "a writer gets the error: {what}");
        drop(map);
        drop(db);
        for image in [fs.kill(), fs.crash_strict()] {
            let db = small(Env::with_fs(Arc::new(image))).open(dir()).unwrap();
            let map = db.default_keyspace();
            for (thread, writer) in (0..4u8).zip(&writers) {
                let found = map.prefix([thread]).map(|entry| entry.unwrap().0.to_vec()).collect::<Vec<_>>();
                let expected = (0..found.len() as u32).map(|n| [&[thread][..], &n.to_be_bytes()].concat());
                assert!(found.iter().cloned().eq(expected), "commit.2: in order, without a hole: {what}");
                let range = writer.acknowledged as usize..=writer.acknowledged as usize + 1;
                assert!(range.contains(&found.len()), "commit.1: {what}: {} of {range:?}", found.len());
            }
            assert_eq!(map.len().unwrap(), map.iter().count() as u64, "poison.1, opened again: {what}");
            let problems = db.check().unwrap().problems;
            assert!(problems.is_empty(), "{what}: {problems:?}");
        }
    }
}
