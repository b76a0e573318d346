//! Asynchronous commits, and reads that only use memory.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::common::{dir, simulated};
use esker::env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};
use esker::{Cached, Committing, Db, Durability, Error, Isolation, SeqNo, WriteOptions, memory_only};

/// The smallest runtime: parks the thread until it is woken.
fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn committer_1_commits_are_made_in_their_order_many_at_a_time() {
    let mem = MemFs::new();
    let faults = FaultFs::new(Arc::new(mem.clone()));
    let db = Db::builder().env(Env::with_fs(Arc::new(faults.clone()))).open(dir()).unwrap();
    let map = db.default_keyspace();
    wait(map.put_async("first", "")).unwrap();
    let syncs = faults.count(OpKind::SyncData);
    let all: Vec<Committing> =
        (0..5000_u32).map(|n| map.put_async(n.to_be_bytes(), n.to_le_bytes())).collect();
    let numbers: Vec<_> = all.into_iter().map(|commit| wait(commit).unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "committer.1");
    let syncs = faults.count(OpKind::SyncData) - syncs;
    assert!(syncs < 5000, "{syncs} syncs: some were made together");
    let mut batch = db.batch();
    batch.put(&map, "batch", "1").unwrap();
    batch.delete(&map, "first").unwrap();
    wait(batch.commit_async_with(Durability::Sync)).unwrap();
    wait(map.delete_async("batch")).unwrap();
    // It is committed although its future is dropped.
    drop(map.put_async("unheard", "1"));
    wait(map.put_async("last", "1")).unwrap();
    assert_eq!((map.len().unwrap(), map.contains("unheard").unwrap()), (5002, true));
    let too_long = vec![0; 70_000];
    assert!(matches!(wait(map.put_async(&too_long, "")), Err(Error::KeyTooLong { .. })));
    db.close().unwrap();
    let db = simulated(Arc::new(mem.crash(1))).open(dir()).unwrap();
    assert_eq!(db.default_keyspace().len().unwrap(), 5002, "what was acknowledged is durable");
}

#[test]
fn futures_of_batches_and_transactions_have_the_same_durabilities() {
    let env = Env::with_fs(Arc::new(MemFs::new()));
    let db = Db::builder().env(env).durability(Durability::Buffered).open(dir()).unwrap();
    let map = db.default_keyspace();
    let batch = |key: &str| {
        let mut batch = db.batch();
        batch.put(&map, key, "1").unwrap();
        batch
    };
    let begin = |key: &str, durability| {
        let mut transaction = db.transaction().durability(durability).begin();
        transaction.put(&map, key, "1").unwrap();
        transaction
    };
    let syncs_of = |commit: &mut dyn FnMut() -> esker::SeqNo| {
        let before = db.stats().sync_latency.samples;
        commit();
        db.stats().sync_latency.samples - before
    };
    let (sync, buffered) = (Durability::Sync, Durability::Buffered);
    // Their own durability: that of the database, or of the options of the transaction.
    assert_eq!(syncs_of(&mut || wait(batch("a").commit_async()).unwrap()), 0);
    assert_eq!(syncs_of(&mut || wait(begin("b", buffered).commit_async()).unwrap()), 0);
    assert!(syncs_of(&mut || wait(begin("c", sync).commit_async()).unwrap()) > 0);
    // That of the call.
    assert!(syncs_of(&mut || wait(batch("d").commit_async_with(sync)).unwrap()) > 0);
    assert!(syncs_of(&mut || wait(begin("e", buffered).commit_async_with(sync)).unwrap()) > 0);
    assert_eq!(syncs_of(&mut || wait(begin("f", sync).commit_async_with(buffered)).unwrap()), 0);
    assert_eq!(map.len().unwrap(), 6);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a thread beside the one that holds the transaction")]
fn commits_keep_their_order_when_too_much_waits() {
    const MIB: usize = 1 << 20;
    let db = Db::builder().env(Env::with_fs(Arc::new(MemFs::new()))).memory(512 << 20).open(dir()).unwrap();
    let map = db.default_keyspace();
    let exclusive = db.transaction().isolation(Isolation::Exclusive).begin();
    assert_eq!(exclusive.get(&map, "key").unwrap(), None);
    let (writer, written) = (map.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = written.clone();
    // The commits wait for this thread's exclusive transaction. 64 MiB of them fill the queue.
    let other = std::thread::spawn(move || {
        let put = |n: usize| {
            let commit = writer.put_async("key", vec![n as u8; MIB]);
            counted.fetch_add(1, Ordering::SeqCst);
            commit
        };
        let all: Vec<_> = (0..80).map(put).collect();
        all.into_iter().map(|commit| wait(commit).unwrap()).collect::<Vec<_>>()
    });
    while written.load(Ordering::SeqCst) < 60 {
        std::thread::yield_now();
    }
    assert!(written.load(Ordering::SeqCst) < 80, "what waits is bounded");
    // The thread with the open transaction does not wait for its end.
    wait(map.put_async("own", "1")).unwrap();
    drop(exclusive);
    let numbers = other.join().unwrap();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "committer.1: {numbers:?}");
    assert_eq!(map.get("key").unwrap().unwrap()[0], 79);
}

#[test]
fn each_commit_has_an_outcome_when_the_log_fails_and_when_the_database_closes() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let db = Db::builder().env(Env::with_fs(Arc::new(faults.clone()))).open(dir()).unwrap();
    let map = db.default_keyspace();
    let before: Vec<_> = (0..100_u32).map(|n| map.put_async(n.to_be_bytes(), "")).collect();
    assert!(before.into_iter().all(|commit| wait(commit).is_ok()));
    let failure = FaultAction::Fail(std::io::ErrorKind::Other);
    faults.add(FaultRule::new(&[OpKind::SyncData, OpKind::Write], failure).on_path(".wal").forever());
    let failed: Vec<_> = (0..100_u32).map(|n| map.put_async(n.to_be_bytes(), "x")).collect();
    assert!(failed.into_iter().all(|commit| wait(commit).is_err()));
    let late: Vec<_> = (0..100_u32).map(|n| map.put_async(n.to_be_bytes(), "y")).collect();
    let _ = db.close();
    assert!(late.into_iter().all(|commit| wait(commit).is_err()));
    assert!(matches!(wait(map.put_async("a", "")), Err(Error::Closed)));
}

#[test]
fn what_is_in_memory_is_found_without_reading_a_file() {
    let (mem, large) = (MemFs::new(), vec![7; 10_000]);
    let db = simulated(Arc::new(mem.clone())).open(dir()).unwrap();
    let map = db.default_keyspace();
    for n in 0..1000_u32 {
        map.put(n.to_be_bytes(), [1; 100]).unwrap();
    }
    map.put("large", &large).unwrap();
    assert_eq!(map.get_if_cached(7_u32.to_be_bytes()).unwrap(), Cached::Value([1; 100][..].into()));
    assert_eq!(map.get_if_cached("nothing").unwrap(), Cached::Absent);
    assert_eq!(map.get("large").unwrap().as_deref(), Some(&large[..]));
    db.compact().unwrap();
    db.close().unwrap();
    let db = simulated(Arc::new(mem)).open(dir()).unwrap();
    let map = db.default_keyspace();
    assert_eq!(
        map.get_if_cached(7_u32.to_be_bytes()).unwrap(),
        Cached::NotCached,
        "its block is not in memory"
    );
    assert_eq!(map.get_if_cached("nothing").unwrap(), Cached::Absent, "the filter is");
    map.get(7_u32.to_be_bytes()).unwrap();
    assert!(map.get_if_cached(7_u32.to_be_bytes()).unwrap().is_known());
    assert_eq!(map.get_if_cached("large").unwrap(), Cached::NotCached);
}

/// The outcome of a commit that is done already.
fn done(commit: Committing) -> Option<esker::Result<SeqNo>> {
    match pin!(commit).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

#[test]
fn committer_1_commits_that_wait_for_nothing_are_made_at_once_and_in_order() {
    let env = Env::with_fs(Arc::new(MemFs::new()));
    let db = Db::builder().env(env).durability(Durability::Buffered).open(dir()).unwrap();
    let map = db.default_keyspace();
    let durable = map.with(WriteOptions::new().durability(Durability::Sync));
    map.put("first", "").unwrap();
    let before = db.snapshot().seqno();
    for n in 1..=100_u32 {
        let seqno = done(map.put_async(n.to_be_bytes(), "1")).expect("it waits for nothing").unwrap();
        assert_eq!(seqno.get(), before.get() + u64::from(n));
        assert_eq!(map.get(n.to_be_bytes()).unwrap().as_deref(), Some(&b"1"[..]));
    }
    assert!(done(map.put_async(vec![0; 70_000], "")).expect("an error, too").is_err());
    for n in 0..1000_u32 {
        // The second one waits for the first one, whether or not that is done.
        let (a, b) = (durable.put_async("key", "1"), map.put_async("key", n.to_le_bytes()));
        let (a, b) = (wait(a).unwrap(), wait(b).unwrap());
        assert!(a < b, "committer.1: {a} {b}");
        assert_eq!(map.get("key").unwrap().unwrap()[..], n.to_le_bytes());
    }
    let mut transaction = db.transaction().begin();
    assert!(transaction.get(&map, "key").unwrap().is_some());
    transaction.put(&map, "key", "2").unwrap();
    map.put("key", "3").unwrap();
    assert!(matches!(wait(transaction.commit_async()).unwrap_err().error, Error::Conflict { .. }));
    assert_eq!(map.get("key").unwrap().as_deref(), Some(&b"3"[..]));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a thread with an exclusive transaction")]
fn at_once_1_a_commit_that_has_to_wait_for_a_transaction_is_written_once_and_later() {
    let env = Env::with_fs(Arc::new(MemFs::new()));
    let db = Db::builder().env(env).durability(Durability::Buffered).open(dir()).unwrap();
    let map = db.default_keyspace();
    map.put("first", "").unwrap();
    let (begun, ended) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let other = std::thread::spawn({
        let (db, map) = (db.clone(), map.clone());
        move || {
            let exclusive = db.transaction().isolation(Isolation::Exclusive).begin();
            assert!(exclusive.get(&map, "first").unwrap().is_some());
            begun.0.send(()).unwrap();
            ended.1.recv().unwrap();
        }
    });
    begun.1.recv().unwrap();
    let waiting: Vec<_> = (0..10_u32).map(|n| map.put_async(n.to_be_bytes(), "1")).collect();
    assert_eq!(map.len().unwrap(), 1, "they wait for the exclusive transaction");
    ended.0.send(()).unwrap();
    other.join().unwrap();
    let numbers: Vec<_> = waiting.into_iter().map(|commit| wait(commit).unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0].get() + 1 == pair[1].get()), "at_once.1: {numbers:?}");
    assert_eq!(map.len().unwrap(), 11);
}

#[test]
fn memory_only_1_reads_that_need_a_file_are_given_up_and_leave_no_trace() {
    let (mem, large) = (MemFs::new(), vec![7; 10_000]);
    let db = simulated(Arc::new(mem.clone())).open(dir()).unwrap();
    let map = db.default_keyspace();
    for n in 0..1000_u32 {
        map.put(n.to_be_bytes(), [1; 100]).unwrap();
    }
    map.put("large", &large).unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let faults = FaultFs::new(Arc::new(mem));
    let db = simulated(Arc::new(faults.clone())).open(dir()).unwrap();
    let map = db.default_keyspace();
    let scan = |reverse: bool| -> esker::Result<usize> {
        let range = map.range(0_u32.to_be_bytes()..=999_u32.to_be_bytes());
        let entries: Box<dyn Iterator<Item = _>> =
            if reverse { Box::new(range.rev()) } else { Box::new(range) };
        entries.map(|entry| entry.map(|_| 1)).sum()
    };
    let mut transaction = db.transaction().begin();
    let reads = faults.count(OpKind::Read);
    assert!(memory_only(|| scan(false)).is_none() && memory_only(|| scan(true)).is_none());
    assert!(memory_only(|| map.get(7_u32.to_be_bytes())).is_none());
    let keys: Vec<_> = (0..1000_u32).map(u32::to_be_bytes).collect();
    assert!(
        memory_only(|| map.multi_get(&keys)).is_none()
            && memory_only(|| map.multi_get(&keys[7..8])).is_none()
    );
    assert!(memory_only(|| transaction.range(&map, ..).next().is_some()).is_none());
    assert_eq!(faults.count(OpKind::Read), reads, "memory_only.1");
    // The transaction has read nothing, so this is no conflict.
    map.put(5_u32.to_be_bytes(), "2").unwrap();
    transaction.put(&map, "other", "1").unwrap();
    transaction.commit().unwrap();
    assert_eq!((scan(false).unwrap(), scan(true).unwrap()), (1000, 1000));
    let reads = faults.count(OpKind::Read);
    assert_eq!(memory_only(|| scan(false).unwrap()), Some(1000));
    assert_eq!(memory_only(|| scan(true).unwrap()), Some(1000));
    assert!(memory_only(|| map.get("large")).is_none(), "its value is in a blob file");
    assert_eq!(faults.count(OpKind::Read), reads, "memory_only.1");
    assert_eq!(map.get("large").unwrap().as_deref(), Some(&large[..]));
}
