//! The correctness test that every adapter passes, so that the lab does not measure a wrong adapter.
//!
//!   put, get, range, keys, remove, len, snapshot, rollback, threads, contention, compaction, reopening
#![expect(clippy::unwrap_used, reason = "a test, in the library so that adapters in other crates can run it")]

mod expiring;
mod keyspaces;
mod transactions;

use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::engine::{Engine, Isolation};
use crate::store::{Durability, Failure, Feature, OpenOptions, Reader, Store, Writer};

pub use self::expiring::check_expiring;
pub use self::keyspaces::check_keyspaces;
pub use self::transactions::check_transactions;

const CACHE_BYTES: u64 = 64 << 20;
/// Longest wait for background work. The test has too little data for much of it.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(60);
/// Number of threads that write at once.
const THREADS: u32 = 16;

#[expect(
    clippy::disallowed_methods,
    reason = "the lab measures the real machine: it needs no replaceable Env"
)]
fn drain_deadline() -> Instant {
    Instant::now() + DRAIN_WAIT_MAX
}

type Items = Vec<(Vec<u8>, Vec<u8>)>;

/// Makes an item from its number.
type Item<'a> = &'a (dyn Fn(u32) -> (Vec<u8>, Vec<u8>) + Sync);

/// Item `i`, with a value of at least `value_bytes` bytes.
fn item(i: u32, value_bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let mut value = format!("value {i}").into_bytes();
    value.resize(value.len().max(value_bytes), b'x');
    (format!("key {i:05}").into_bytes(), value)
}

fn get(reader: &mut dyn Reader, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = None;
    let found = reader.get(key, &mut |bytes| value = Some(bytes.to_vec())).unwrap();
    assert_eq!(found, value.is_some());
    value
}

fn range(reader: &mut dyn Reader, from: &[u8], limit: u64) -> Items {
    let mut items = Items::new();
    let count = reader.range(from, limit, &mut |k, v| items.push((k.to_vec(), v.to_vec()))).unwrap();
    assert_eq!(count, items.len() as u64);
    items
}

fn put_all(store: &dyn Store, item: Item<'_>, numbers: impl Iterator<Item = u32> + Clone) {
    store
        .write(&mut |writer| {
            numbers.clone().try_for_each(|i| {
                let (key, value) = item(i);
                writer.put(&key, &value)
            })
        })
        .unwrap();
}

fn check(store: &dyn Store, live: &Items) {
    let mut reader = store.reader().unwrap();
    assert_eq!(reader.len().unwrap(), live.len() as u64);
    assert_eq!(&range(&mut *reader, b"", u64::MAX), live);
    for (key, value) in live {
        assert_eq!(get(&mut *reader, key).as_ref(), Some(value));
    }
    let (middle, _) = &live[live.len() / 2];
    assert_eq!(range(&mut *reader, middle, 10), live[live.len() / 2..][..10]);
    assert_eq!(range(&mut *reader, b"zzz", 10), Items::new());
    assert_eq!(get(&mut *reader, b"no such key"), None);
    let mut keys = Vec::new();
    let count = reader.keys(middle, 10, &mut |key| keys.push(key.to_vec())).unwrap();
    assert!(count == 10 && keys.iter().eq(live[live.len() / 2..][..10].iter().map(|(key, _)| key)));
    drop(reader);
    let mut value = None;
    assert!(store.get(middle, &mut |bytes| value = Some(bytes.to_vec())).unwrap());
    assert_eq!(value, Some(live[live.len() / 2].1.clone()));
    let mut count = 0;
    assert_eq!(store.range(middle, 3, &mut |_, _| count += 1).unwrap(), 3);
    assert_eq!(count, 3);
}

/// Threads write at once, each its own items, in transactions of several. Then all items are removed.
fn check_threads(store: &dyn Store, item: Item<'_>) {
    const TRANSACTIONS: u32 = 10;
    const WRITES: u32 = 4;
    let items = |thread: u32, transaction: u32| {
        let first = 10_000 + (thread * TRANSACTIONS + transaction) * WRITES;
        (first..first + WRITES).map(item)
    };
    let before = store.reader().unwrap().len().unwrap();
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                for transaction in 0..TRANSACTIONS {
                    let put = &mut |writer: &mut dyn Writer| {
                        items(thread, transaction).try_for_each(|(key, value)| writer.put(&key, &value))
                    };
                    store.write(put).unwrap();
                }
            });
        }
    });
    let mut reader = store.reader().unwrap();
    let written: Items =
        (0..THREADS).flat_map(|thread| (0..TRANSACTIONS).flat_map(move |n| items(thread, n))).collect();
    assert_eq!(reader.len().unwrap(), before + written.len() as u64);
    for (key, value) in &written {
        assert_eq!(get(&mut *reader, key).as_ref(), Some(value), "written by one thread of several");
    }
    drop(reader);
    store.write(&mut |writer| written.iter().try_for_each(|(key, _)| writer.remove(key))).unwrap();
}

/// Threads write the same two keys at once, each in its own order, to test that transactions that lock keys
/// do not deadlock. At the end both keys must have values of one transaction.
fn check_contention(store: &dyn Store, is_atomic: bool) {
    const TRANSACTIONS: u32 = 50;
    let keys = [item(20_000, 0).0, item(20_001, 0).0];
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, keys) = (&start, &keys);
            scope.spawn(move || {
                let [first, last] = if thread % 2 == 0 { [&keys[0], &keys[1]] } else { [&keys[1], &keys[0]] };
                start.wait();
                for transaction in 0..TRANSACTIONS {
                    let value = (thread * TRANSACTIONS + transaction).to_be_bytes();
                    store
                        .write(&mut |writer| {
                            writer.put(first, &value)?;
                            thread::yield_now();
                            writer.put(last, &value)
                        })
                        .unwrap();
                }
            });
        }
    });
    let mut reader = store.reader().unwrap();
    let values = keys.each_ref().map(|key| get(&mut *reader, key));
    drop(reader);
    assert!(values.iter().all(Option::is_some) && (!is_atomic || values[0] == values[1]), "{values:?}");
    store.write(&mut |writer| keys.iter().try_for_each(|key| writer.remove(key))).unwrap();
}

/// Runs the test on `engine` in the empty directory `dir`, with values of
/// `value_bytes` bytes. With 0 they are short, and the options do not give their size.
///
/// # Panics
/// When the adapter or its engine is wrong.
pub fn check_engine(engine: &dyn Engine, dir: &Path, value_bytes: u64) {
    let can = |feature| engine.cannot(feature).is_none();
    let durability = engine.first_of(&[Durability::Sync, Durability::Async, Durability::NoSync]).unwrap();
    let options = OpenOptions { durability, value_bytes, ..OpenOptions::with_cache(CACHE_BYTES) };
    let item: Item<'_> = &|i| item(i, value_bytes as usize);
    let mut live: Items = (0..1000).map(item).collect();
    {
        let mut store = engine.open(dir, &options).unwrap();
        put_all(&*store, item, (0..900).rev());
        let fast = engine.first_of(&[Durability::NoSync, Durability::Async]);
        if let Some(fast) = fast {
            store.set_durability(fast).unwrap();
        }
        for i in 900..1000 {
            put_all(&*store, item, std::iter::once(i));
        }
        store.set_durability(durability).unwrap();
        check(&*store, &live);

        // Single operations cannot be rolled back.
        if engine.isolation() != Isolation::Operation {
            let rolled_back = store.write(&mut |writer| {
                writer.put(b"never", b"seen")?;
                Err(Failure::Engine("stop".to_owned()))
            });
            assert!(rolled_back.is_err());
            check(&*store, &live);
        }

        let mut before = can(Feature::Snapshots).then(|| store.reader().unwrap());
        let removed = live.split_off(500);
        store.write(&mut |writer| removed.iter().try_for_each(|(key, _)| writer.remove(key))).unwrap();
        if let Some(before) = &mut before {
            assert_eq!(before.len().unwrap(), 1000, "an open reader is a snapshot");
            assert_eq!(get(&mut **before, &removed[0].0).as_ref(), Some(&removed[0].1));
        }
        drop(before);
        check(&*store, &live);

        live[7].1 = b"replaced".to_vec();
        store.write(&mut |writer| writer.put(&live[7].0, &live[7].1)).unwrap();
        check(&*store, &live);

        store.drain(drain_deadline()).unwrap();
        if can(Feature::Compaction) {
            store.compact().unwrap();
            store.reopen().unwrap();
        }
        check(&*store, &live);
        live[7] = item(7);
        put_all(&*store, item, std::iter::once(7));
    }
    let options = OpenOptions { concurrent_writes: u64::from(THREADS), ..options };
    let store = engine.open(dir, &options).unwrap();
    check(&*store, &live);
    check_threads(&*store, item);
    check_contention(&*store, engine.isolation() != Isolation::Operation);
    check(&*store, &live);
}
