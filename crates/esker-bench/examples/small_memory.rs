//! Reads of a database that is larger than its memory: what a get costs when the indexes of its tables fit or
//! do not fit.
//!
//! ```text
//! cargo run --release -p esker-bench --no-default-features --example small_memory -- \
//!     [MIB of memory, 1] [KEYS, 2000000] [BYTES of a key, 30]
//! ```
//!
//! Each line is the median of five rounds. Bytes read are those of system calls (Linux), mostly from the
//! page cache.

#![expect(clippy::disallowed_methods, reason = "a program that measures itself")]

use std::time::Instant;

use esker::{Db, Durability, Keyspace};

const ROUNDS: usize = 5;
const VALUE: [u8; 16] = *b"sixteen bytes ok";

fn main() -> esker::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |otherwise: u64| arguments.next().map_or(otherwise, |text| text.parse().expect("a number"));
    let (memory_mib, keys, key_bytes) = (number(1), number(2_000_000), number(30) as usize);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let open = |mib: u64| Db::builder().memory(mib << 20).durability(Durability::None).open(dir.path());
    let key = |n: u64| key_of(n, key_bytes);
    let db = open(256)?;
    let map = db.keyspace("map")?;
    for first in (0..keys).step_by(1000) {
        let mut batch = db.batch();
        (first..keys.min(first + 1000)).try_for_each(|n| batch.put(&map, key(n), VALUE))?;
        batch.commit()?;
    }
    db.flush()?;
    db.compact()?;
    drop(map);
    db.close()?;

    let db = open(memory_mib)?;
    let map = db.keyspace("map")?;
    let bytes = db.stats().table_bytes;
    println!("{keys} keys of {key_bytes} bytes, {} MB in {memory_mib} MiB of memory", bytes / 1_000_000);
    let gets = 5_000.min(keys);
    measure("random get", gets, |n| {
        assert!(map.get(key(n % keys))?.is_some());
        Ok(1)
    })?;
    measure("absent get", gets, |n| {
        assert!(map.get([&key(n % keys)[..], b"x"].concat())?.is_none());
        Ok(1)
    })?;
    measure("range of 10, an entry", gets / 10, |n| entries(&map, key(n % keys), 10))?;
    measure("scan, an entry", 1, |_| entries(&map, Vec::new(), keys as usize))?;
    let mut cached = 0;
    for n in (0..gets).map(|n| n % 100) {
        map.get(key(n))?;
        cached += u64::from(map.get_if_cached(key(n))?.is_known());
    }
    println!("{cached} of {gets} repeated gets are answered from memory");
    Ok(())
}

/// Seven keys each differ in their last bytes only, so separators are long.
fn key_of(n: u64, bytes: usize) -> Vec<u8> {
    let mut key = vec![0; bytes.max(12)];
    fastrand::Rng::with_seed(n / 7).fill(&mut key);
    key[..4].copy_from_slice(&(n as u32 / 7).to_be_bytes());
    let end = key.len() - 4;
    key[end..].copy_from_slice(&(n as u32).to_be_bytes());
    key
}

fn entries(map: &Keyspace, from: Vec<u8>, count: usize) -> esker::Result<u64> {
    let mut found = 0;
    for entry in map.range(from..).take(count) {
        entry?;
        found += 1;
    }
    Ok(found)
}

/// Calls `work` with random numbers, `calls` times a round, and prints the median time and the bytes read for
/// each item.
fn measure(name: &str, calls: u64, mut work: impl FnMut(u64) -> esker::Result<u64>) -> esker::Result<()> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (started, read, mut items) = (Instant::now(), bytes_read(), 0);
        for _ in 0..calls {
            items += work(rng.u64(..))?;
        }
        let items = items.max(1);
        rounds.push((started.elapsed().as_nanos() as u64 / items, (bytes_read() - read) / items));
    }
    rounds.sort_unstable();
    let (ns, bytes) = rounds[ROUNDS / 2];
    println!("{name:<22} {:>9.2} us {bytes:>8} bytes read", ns as f64 / 1000.0);
    Ok(())
}

/// Bytes that the process has read by system calls.
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}
