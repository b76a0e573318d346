//! What commits cost that go through the log and the memtable: single puts, batches of 1,000, batches of
//! some MiB, puts at a fixed rate, and puts beside a flush.
//!
//! ```text
//! cargo run --release -p esker-bench --no-default-features --example commit_costs [-- DIRECTORY]
//! ```
#![expect(clippy::disallowed_methods, reason = "a program that measures time")]

use std::time::{Duration, Instant};

use esker::{Db, Durability, Keyspace};

/// Keys in no order, each another.
struct Keys(u64);

impl Keys {
    fn next(&mut self) -> [u8; 24] {
        self.0 += 1;
        let mut rng = fastrand::Rng::with_seed(self.0);
        let mut key = [0; 24];
        rng.fill(&mut key);
        key
    }
}

fn main() -> esker::Result<()> {
    let root = match std::env::args().nth(1) {
        Some(root) => tempfile::tempdir_in(root),
        None => tempfile::tempdir(),
    }
    .expect("a temporary directory");
    let mut keys = Keys(0);
    small(&root.path().join("small"), &mut keys)?;
    populate(&root.path().join("populate"), &mut keys)?;
    open_loop(&root.path().join("open"), &mut keys)?;
    beside_a_flush(&root.path().join("flush"), &mut keys)
}

/// Commits of one item and of 1,000, into 1,000,000 items.
fn small(dir: &std::path::Path, keys: &mut Keys) -> esker::Result<()> {
    let db = Db::builder().memory(4 << 30).open(dir)?;
    let map = db.keyspace("map")?;
    batch(&db, &map, keys, 1_000_000, &[7; 150], Durability::Sync)?;
    db.compact()?;
    for (name, durability, commits, items) in [
        ("1 item, not synced", Durability::None, 50_000, 1),
        ("1 item, buffered", Durability::Buffered, 20_000, 1),
        ("1 item, synced", Durability::Sync, 1_000, 1),
        ("1,000 items, not synced", Durability::None, 100, 1_000),
        ("1,000 items, synced", Durability::Sync, 100, 1_000),
        ("10,000 items, synced", Durability::Sync, 20, 10_000),
    ] {
        let mut times = Vec::new();
        let (mut fill, mut commit) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..commits {
            let (filled, committed) = batch(&db, &map, keys, items, &[7; 150], durability)?;
            (fill, commit) = (fill + filled, commit + committed);
            times.push(committed);
        }
        let per_item = |time: Duration| time.as_nanos() as u64 / (commits * items) as u64;
        println!(
            "{name}: fill {} ns, commit {} ns an item; {}",
            per_item(fill),
            per_item(commit),
            shape(times)
        );
    }
    Ok(())
}

/// 30,000 values of 16 KB, in batches of 256.
fn populate(dir: &std::path::Path, keys: &mut Keys) -> esker::Result<()> {
    let db = Db::builder().memory(1 << 30).open(dir)?;
    let map = db.keyspace("map")?;
    let mut value = vec![0; 16 << 10];
    let mut rng = fastrand::Rng::with_seed(1);
    let mut times = Vec::new();
    let start = Instant::now();
    for _ in 0..117 {
        rng.fill(&mut value);
        times.push(batch(&db, &map, keys, 256, &value, Durability::Sync)?.1);
    }
    println!("30,000 x 16 KB in batches of 4 MiB: {:.2} s; {}", start.elapsed().as_secs_f64(), shape(times));
    Ok(())
}

/// Puts of 20 KB, 1,000 a second, for ten seconds; times are from when each was due.
fn open_loop(dir: &std::path::Path, keys: &mut Keys) -> esker::Result<()> {
    let db = Db::builder().memory(1 << 30).open(dir)?;
    let map = db.keyspace("map")?;
    let mut value = vec![0; 20 << 10];
    let mut rng = fastrand::Rng::with_seed(1);
    let mut times = Vec::new();
    let start = Instant::now();
    for n in 0..10_000 {
        let due = start + Duration::from_millis(n);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        rng.fill(&mut value[..64]);
        batch(&db, &map, keys, 1, &value, Durability::Sync)?;
        times.push(due.elapsed());
    }
    println!("20 KB, 1,000 a second: {}", shape(times));
    Ok(())
}

/// Synced puts while 200 MB are flushed.
fn beside_a_flush(dir: &std::path::Path, keys: &mut Keys) -> esker::Result<()> {
    let db = Db::builder().memory(4 << 30).open(dir)?;
    let map = db.keyspace("map")?;
    let mut times = Vec::new();
    let mut all = Duration::ZERO;
    for _ in 0..3 {
        let mut value = [0; 150];
        fastrand::Rng::with_seed(keys.0).fill(&mut value);
        for _ in 0..24 {
            batch(&db, &map, keys, 50_000, &value, Durability::None)?;
        }
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| db.flush());
            while !flush.is_finished() {
                times.push(batch(&db, &map, keys, 1, &value, Durability::Sync)?.1);
            }
            flush.join().expect("it does not panic")
        })?;
        all += begun.elapsed();
        db.compact()?;
    }
    println!("1 item, synced, beside flushes of {} ms: {}", all.as_millis() / 3, shape(times));
    Ok(())
}

/// Commits new items; how long filling the batch and committing it took.
fn batch(
    db: &Db,
    map: &Keyspace,
    keys: &mut Keys,
    items: usize,
    value: &[u8],
    durability: Durability,
) -> esker::Result<(Duration, Duration)> {
    let begun = Instant::now();
    let mut batch = db.batch();
    for _ in 0..items {
        batch.put(map, keys.next(), value)?;
    }
    let filled = begun.elapsed();
    batch.commit_with(durability)?;
    Ok((filled, begun.elapsed() - filled))
}

/// The middle and the end of a list of times.
fn shape(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1e3;
    format!("{} commits, p50 {:.1}, p99 {:.1}, p99.9 {:.1} us", times.len(), at(0.5), at(0.99), at(0.999))
}
