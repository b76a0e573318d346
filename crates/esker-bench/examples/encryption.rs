//! What encryption at rest costs: the same work with and without it, by turns. Prints medians of the rounds.
//!
//! `cargo run --release -p esker-bench --no-default-features --example encryption [ROUNDS]`
#![expect(clippy::disallowed_methods, reason = "a benchmark: it measures time")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use esker::encryption::MasterKeys;
use esker::{Blobs, Builder, Db, Durability};

/// Items of the database.
const ITEMS: u64 = 200_000;
/// Bytes of a value, and of a large value.
const VALUE: usize = 150;
const LARGE: usize = 64 << 10;

const ROWS: [&str; 9] = [
    "put, sync, one item: us",
    "put, buffered, one item: us",
    "batch of 1,000, sync: us an item",
    "load and compaction: us an item",
    "get, cached: us",
    "get, cache of 1 MiB: us",
    "scan, cold: us an item",
    "large value (64 KiB), put and get: us",
    "recovery of 20,000 commits: ms",
];

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(3), |n| n.parse())?;
    let mut figures = vec![[Vec::new(), Vec::new()]; ROWS.len()];
    for _ in 0..rounds {
        for is_on in [false, true] {
            let dir = tempfile::tempdir()?;
            for (row, figure) in figures.iter_mut().zip(measure(dir.path(), is_on)?) {
                row[usize::from(is_on)].push(figure);
            }
        }
    }
    println!("| | off | on |\n|---|---|---|");
    for (name, [off, on]) in ROWS.iter().zip(figures) {
        println!("| {name} | {:.2} | {:.2} |", median(off), median(on));
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn builder(is_on: bool) -> Result<Builder, Box<dyn Error>> {
    let builder = Db::builder().durability(Durability::Buffered).blobs(Blobs::From(4096));
    Ok(if is_on { builder.encryption(MasterKeys::new("m", &[7; 32])?) } else { builder })
}

/// Returns microseconds per call of `f`.
fn each(calls: u64, mut f: impl FnMut(u64) -> esker::Result<()>) -> esker::Result<f64> {
    let start = Instant::now();
    for n in 0..calls {
        f(n)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / calls as f64)
}

fn key(n: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

/// Returns the figures of one round, in the order of `ROWS`.
fn measure(dir: &Path, is_on: bool) -> Result<[f64; ROWS.len()], Box<dyn Error>> {
    let mut value: Vec<u8> = (0..VALUE as u64).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
    let db = builder(is_on)?.open(dir)?;
    let map = db.default_keyspace();
    let load = each(ITEMS / 1000, |n| {
        let mut batch = db.batch();
        for i in 0..1000 {
            value[..8].copy_from_slice(&(n * 1000 + i).to_le_bytes());
            batch.put(&map, key(n * 1000 + i), &value)?;
        }
        batch.commit().map(drop).map_err(|failed| failed.error)
    })?;
    let compaction = each(1, |_| db.compact())?;
    let synced = map.with(Durability::Sync);
    let put_sync = each(300, |n| synced.put(key(n), &value).map(drop))?;
    let put = each(50_000, |n| map.put(key(n), &value).map(drop))?;
    let batch = each(50, |n| {
        let mut batch = db.batch();
        for i in 0..1000 {
            batch.put(&map, key(n * 1000 + i), &value)?;
        }
        batch.commit_with(Durability::Sync).map(drop).map_err(|failed| failed.error)
    })?;
    db.compact()?;
    let get = |map: &esker::Keyspace, n: u64| map.get(key(n * 7919 % ITEMS)).map(drop);
    each(ITEMS, |n| get(&map, n))?;
    let cached = each(ITEMS, |n| get(&map, n))?;
    let large: Vec<u8> = value.iter().copied().cycle().take(LARGE).collect();
    let large = each(300, |n| {
        map.put(format!("large {n}"), &large)?;
        map.get(format!("large {n}")).map(drop)
    })?;
    db.close()?;
    drop(map);
    let db = builder(is_on)?.memory(1 << 20).open(dir)?;
    let map = db.default_keyspace();
    let uncached = each(20_000, |n| get(&map, n))?;
    db.close()?;
    drop(map);
    let db = builder(is_on)?.open(dir)?;
    let map = db.default_keyspace();
    let scan = each(1, |_| map.range(..).try_for_each(|entry| entry.map(drop)))?;
    // What a killed process would leave: a copy of the directory while the log holds commits.
    for n in 0..20_000 {
        map.put(key(n), &value)?;
    }
    db.sync()?;
    let copy = tempfile::tempdir()?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        std::fs::copy(entry.path(), copy.path().join(entry.file_name()))?;
    }
    let recovery = each(1, |_| builder(is_on).expect("it was built before").open(copy.path())?.close())?;
    db.close()?;
    let items = ITEMS as f64;
    let load = (load * ITEMS as f64 / 1000.0 + compaction) / items;
    Ok([put_sync, put, batch / 1000.0, load, cached, uncached, scan / items, large, recovery / 1000.0])
}
