//! How much memory a database takes, beside the budget it was given: four times the budget is written,
//! opened again, walked, read and written by several threads.
//!
//! ```text
//! cargo run --release -p esker-bench --no-default-features --example memory -- \
//!     [MIB of budget, 256] [BYTES of a value, 16384]
//! ```
//!
//! The figures are those of Linux for the whole process, memory without files behind it (RssAnon): now, and
//! the most since the start of the phase.

#![expect(clippy::disallowed_methods, reason = "a program that watches itself")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker::{Db, Durability, Keyspace};

const THREADS: u64 = 4;
const BATCH: u64 = 100;
const BUDGETS_WRITTEN: u64 = 4;
const READS: u64 = 50_000;

fn main() -> esker::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |otherwise: u64| arguments.next().map_or(otherwise, |text| text.parse().expect("a number"));
    let (budget_mib, value_bytes) = (number(256), number(16 << 10));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let work = Work { items: BUDGETS_WRITTEN * (budget_mib << 20) / value_bytes, value_bytes };
    let open = || Db::builder().memory(budget_mib << 20).durability(Durability::Buffered).open(dir.path());
    let watch = Watch::start();
    println!("{budget_mib} MiB given, {} items of {value_bytes} bytes", work.items);

    let db = open()?;
    work.write(&db, &db.keyspace("map")?)?;
    watch.print("written");
    db.close()?;
    watch.print("closed");
    let db = open()?;
    let map = db.keyspace("map")?;
    watch.print("opened again");
    let mut cursor = map.cursor()?;
    cursor.seek([])?;
    while cursor.valid() {
        cursor.next()?;
    }
    drop(cursor);
    watch.print("walked");
    in_threads(|thread| work.read(&map, thread))?;
    watch.print("read by threads");
    in_threads(|thread| if thread == 0 { work.write(&db, &map) } else { work.read(&map, thread) })?;
    watch.print("written and read");
    db.compact()?;
    watch.print("compacted");
    drop(map);
    db.close()?;
    watch.print("closed");
    Ok(())
}

fn in_threads(work: impl Fn(u64) -> esker::Result<()> + Sync) -> esker::Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

struct Work {
    items: u64,
    value_bytes: u64,
}

impl Work {
    fn write(&self, db: &Db, map: &Keyspace) -> esker::Result<()> {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut value = vec![0; self.value_bytes as usize];
        for _ in 0..self.items / BATCH {
            let mut batch = db.batch();
            for _ in 0..BATCH {
                rng.fill(&mut value);
                batch.put(map, rng.u64(..self.items).to_be_bytes(), &value)?;
            }
            batch.commit()?;
        }
        Ok(())
    }

    fn read(&self, map: &Keyspace, seed: u64) -> esker::Result<()> {
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..READS {
            map.get(rng.u64(..self.items).to_be_bytes())?;
        }
        Ok(())
    }
}

/// A thread that looks at the memory all the time.
struct Watch {
    most: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
}

impl Watch {
    fn start() -> Self {
        let watch = Watch { most: Arc::default(), done: Arc::default() };
        let (most, done) = (watch.most.clone(), watch.done.clone());
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(anonymous_kib(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        watch
    }

    fn print(&self, phase: &str) {
        let (now, most) = (anonymous_kib(), self.most.swap(0, Ordering::Relaxed));
        println!("{phase:16} {:6} MiB, at most {:6} MiB", now >> 10, most.max(now) >> 10);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

/// 0 where the system does not tell.
fn anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
