//! What small commits of many threads cost: rates of closed loops, of futures on two threads, and latencies
//! of open loops.
//!
//! ```text
//! cargo run --release -p esker-bench --no-default-features --example group_commits [-- DIRECTORY]
//! ```
#![expect(clippy::disallowed_methods, reason = "a program that measures time")]

use std::collections::VecDeque;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use esker::{Db, Durability, Keyspace, Transaction};

/// How long each row runs.
const ROW: Duration = Duration::from_secs(2);
const DURABILITIES: [Durability; 3] = [Durability::None, Durability::Buffered, Durability::Sync];

/// Draws the items of commits.
struct Items<'a> {
    keys: &'a AtomicU64,
    are_random: bool,
    count: u64,
}

impl Items<'_> {
    fn put(&self, txn: &mut Transaction, map: &Keyspace) -> esker::Result<()> {
        let first = self.keys.fetch_add(self.count, Ordering::Relaxed);
        for number in first..first + self.count {
            let mut key = [b'k'; 16];
            let head = if self.are_random { fastrand::Rng::with_seed(number).u64(..) } else { number };
            key[8..].copy_from_slice(&head.to_be_bytes());
            let mut value = [0; 32];
            value[..16].copy_from_slice(&key);
            txn.put(map, key, value)?;
        }
        Ok(())
    }
}

fn main() -> esker::Result<()> {
    let mut args = std::env::args().skip(1);
    let root = match args.next() {
        Some(root) => tempfile::tempdir_in(root),
        None => tempfile::tempdir(),
    }
    .expect("a temporary directory");
    let wanted = args.next().unwrap_or_default();
    let mut number = 0;
    let mut run = |name: &str, row: &dyn Fn(&Path, &str) -> esker::Result<()>| {
        number += 1;
        if name.contains(&*wanted) { row(&root.path().join(number.to_string()), name) } else { Ok(()) }
    };
    for durability in DURABILITIES {
        for (threads, count, are_random) in [(64, 20, true), (200, 16, false), (16, 2, true), (4, 2, true)] {
            let order = if are_random { "random" } else { "ascending" };
            let name = format!("{threads} threads, {count} {order} items, {durability:?}");
            run(&name, &|dir, name| closed(dir, name, threads, durability, (count, are_random)))?;
            let name = format!("{threads} futures of two threads, {count} {order} items, {durability:?}");
            run(&name, &|dir, name| futures(dir, name, threads, durability, (count, are_random)))?;
        }
    }
    run("open loop, 5,000 commits of 2 items a second", &|dir, name| open_loop(dir, name, 5_000, 2, 0))?;
    run("open loop, 1,000 commits of 20 KB a second", &|dir, name| open_loop(dir, name, 1_000, 1, 20_000))
}

/// Threads that commit in a closed loop.
fn closed(
    dir: &Path,
    name: &str,
    threads: u64,
    durability: Durability,
    (count, are_random): (u64, bool),
) -> esker::Result<()> {
    let db = Db::builder().memory(4 << 30).open(dir)?;
    let (map, keys, commits) = (db.keyspace("map")?, AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| -> esker::Result<()> {
                while start.elapsed() < ROW {
                    let mut txn = db.begin();
                    Items { keys: &keys, are_random, count }.put(&mut txn, &map)?;
                    txn.commit_with(durability).map_err(|failed| failed.error)?;
                    commits.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
    });
    report(name, commits.into_inner(), count, start.elapsed());
    Ok(())
}

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Two threads that keep many commits under way.
fn futures(
    dir: &Path,
    name: &str,
    callers: u64,
    durability: Durability,
    (count, are_random): (u64, bool),
) -> esker::Result<()> {
    let db = Db::builder().memory(4 << 30).open(dir)?;
    let (map, keys, commits) = (db.keyspace("map")?, AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| -> esker::Result<()> {
                let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                let mut context = Context::from_waker(&waker);
                let mut under_way = VecDeque::new();
                while start.elapsed() < ROW {
                    while under_way.len() < callers as usize / 2 {
                        let mut txn = db.transaction().durability(durability).begin();
                        Items { keys: &keys, are_random, count }.put(&mut txn, &map)?;
                        under_way.push_back(Box::pin(txn.commit_async()));
                    }
                    while let Some(first) = under_way.front_mut()
                        && let Poll::Ready(done) = pin!(first).poll(&mut context)
                    {
                        done.map_err(|failed| failed.error)?;
                        under_way.pop_front();
                        commits.fetch_add(1, Ordering::Relaxed);
                    }
                    if under_way.len() == callers as usize / 2 {
                        std::thread::park();
                    }
                }
                Ok(())
            });
        }
    });
    report(name, commits.into_inner(), count, start.elapsed());
    Ok(())
}

fn report(name: &str, commits: u64, count: u64, time: Duration) {
    let us = time.as_micros() as f64 / commits as f64;
    println!("{name}: {:.0} items/s, {us:.1} us per commit", (commits * count) as f64 / time.as_secs_f64());
}

/// Threads that take the next commit when it is due.
fn open_loop(dir: &Path, name: &str, rate: u64, count: u64, value_bytes: usize) -> esker::Result<()> {
    let db = Db::builder().memory(4 << 30).open(dir)?;
    let (map, keys, next) = (db.keyspace("map")?, AtomicU64::new(0), AtomicU64::new(0));
    // Of each commit: when it was due, how late it began and how long it took.
    let times = Mutex::new(Vec::new());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| -> esker::Result<()> {
                let mut value = vec![7; value_bytes];
                loop {
                    let due = Duration::from_micros(next.fetch_add(1, Ordering::Relaxed) * 1_000_000 / rate);
                    if due > 2 * ROW {
                        return Ok(());
                    }
                    std::thread::sleep(due.saturating_sub(start.elapsed()));
                    let begun = start.elapsed();
                    let mut txn = db.begin();
                    if value_bytes > 0 {
                        let key = keys.fetch_add(1, Ordering::Relaxed).to_be_bytes();
                        value[..8].copy_from_slice(&key);
                        txn.put(&map, key, &value)?;
                    } else {
                        Items { keys: &keys, are_random: true, count }.put(&mut txn, &map)?;
                    }
                    txn.commit_with(Durability::Buffered).map_err(|failed| failed.error)?;
                    let time = start.elapsed() - begun;
                    times.lock().expect("no panic").push((due, begun - due, time));
                }
            });
        }
    });
    let times = times.into_inner().expect("no panic");
    println!("{name}:");
    println!("  from when it was due: {}", shape(times.iter().map(|(_, late, time)| *late + *time)));
    println!("  begun late by:        {}", shape(times.iter().map(|(_, late, _)| *late)));
    println!("  the commit:           {}", shape(times.iter().map(|(_, _, time)| *time)));
    if std::env::var_os("SLOWEST").is_some() {
        let mut slowest = times;
        slowest.sort_by_key(|(_, late, time)| *late + *time);
        let mut slowest = slowest.split_off(slowest.len() * 99 / 100);
        slowest.sort();
        for (due, late, time) in slowest {
            println!("  due {due:.1?}, late {late:.1?}, took {time:.1?}");
        }
    }
    Ok(())
}

/// The middle and the end of a list of times.
fn shape(times: impl Iterator<Item = Duration>) -> String {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1e3;
    format!("p50 {:.0}, p99 {:.0}, p99.9 {:.0}, max {:.0} us", at(0.5), at(0.99), at(0.999), at(1.0))
}
