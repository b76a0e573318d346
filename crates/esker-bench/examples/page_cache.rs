//! Reads of data that is in the page cache but not in the block cache, and walks over a memtable above a
//! table.
//!
//! ```text
//! cargo run --release -p esker-bench --no-default-features --example page_cache -- [part of a row's name]
//! ```
//!
//! Each line is the median of five rounds.
#![expect(clippy::disallowed_methods, reason = "a program that measures itself")]

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use esker::{Db, Durability, Keyspace};

const ROUNDS: usize = 5;
/// Items of 24 + 150 bytes: some 200 MB.
const ITEMS: u64 = 1_000_000;
/// Items of 16 + 32 bytes with ascending keys.
const SMALL: u64 = 2_000_000;
const RANGE: usize = 512;

fn main() -> esker::Result<()> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    load(&large, ITEMS, item)?;
    load(&small, SMALL, small_item)?;
    for (mib, what) in [(48, "beyond the cache"), (160, "nearly cached"), (2048, "cached")] {
        large_rows(&wanted, &large, mib, what)?;
    }
    for (mib, what) in [(32, "beyond the cache"), (2048, "cached")] {
        small_rows(&wanted, &small, mib, what)?;
    }
    Ok(())
}

/// A number that looks random.
fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}

fn item(n: u64) -> (Vec<u8>, Vec<u8>) {
    let noise = |part: u64| mixed(n << 5 | part).to_be_bytes();
    let key = (0..3).flat_map(noise).collect();
    // Half of the value can be compressed.
    let text = *b"a text that all values share, in which nothing but its place is of note";
    let value = (3..13).flat_map(noise).chain(text).take(150).collect();
    (key, value)
}

fn small_item(n: u64) -> (Vec<u8>, Vec<u8>) {
    (
        [&[b'k'; 8][..], &n.to_be_bytes()].concat(),
        [&[mixed(n).to_be_bytes(); 2][..], &[*b"the same"; 2]].concat().concat(),
    )
}

fn load(dir: &Path, items: u64, make: fn(u64) -> (Vec<u8>, Vec<u8>)) -> esker::Result<()> {
    let db = Db::builder().memory(1 << 30).durability(Durability::None).open(dir)?;
    let map = db.keyspace("map")?;
    for first in (0..items).step_by(1000) {
        let mut batch = db.batch();
        (first..first + 1000).map(make).try_for_each(|(key, value)| batch.put(&map, key, value))?;
        batch.commit()?;
    }
    db.flush()?;
    db.compact()?;
    drop(map);
    db.close()
}

fn large_rows(wanted: &str, dir: &Path, mib: u64, what: &str) -> esker::Result<()> {
    let db = Db::builder().memory(mib << 20).durability(Durability::None).open(dir)?;
    let map = db.keyspace("map")?;
    let row = |name: &str, ops: u64, work: &mut dyn FnMut() -> esker::Result<u64>| {
        measure(wanted, &format!("24 + 150 bytes, {what}: {name}"), ops, work)
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut get = |draw: &mut dyn FnMut(&mut fastrand::Rng) -> u64| {
        let mut found = 0;
        for _ in 0..100_000 {
            found += u64::from(map.get(item(draw(&mut rng)).0)?.is_some());
        }
        Ok(found)
    };
    row("get", 100_000, &mut || get(&mut |rng| rng.u64(..ITEMS)))?;
    row("skewed get", 100_000, &mut || get(&mut |rng| mixed((ITEMS as f64).powf(rng.f64()) as u64) % ITEMS))?;
    // A tenth of the gets is for any key, the others for 4,000 keys: more blocks than a sixth of the cache.
    row("hot get", 100_000, &mut || {
        get(&mut |rng| if rng.u8(..10) == 0 { rng.u64(..ITEMS) } else { rng.u64(..4000) })
    })?;
    row("scan by visit", ITEMS, &mut || visit(map.iter()))?;
    row("scan by iterator", ITEMS, &mut || each(map.iter()))?;
    row("scan backwards", ITEMS, &mut || each(map.iter().rev()))?;
    let ranges = |map: &Keyspace, len: usize, count: u64| {
        let mut rng = fastrand::Rng::with_seed(2);
        (0..count).try_fold(0, |n, _| Ok(n + each(map.range(item(rng.u64(..ITEMS)).0..).take(len))?))
    };
    row("range of 10, an entry", 100_000, &mut || ranges(&map, 10, 10_000))?;
    row("range of 512, an entry", 1000 * RANGE as u64, &mut || ranges(&map, RANGE, 1000))
}

/// Ranges and scans below an empty memtable, and below one with keys behind all others, between some of them,
/// and newer versions of some.
fn small_rows(wanted: &str, dir: &Path, mib: u64, what: &str) -> esker::Result<()> {
    for above in ["nothing", "keys behind", "few keys", "keys"] {
        let copy = tempfile::tempdir().expect("a temporary directory");
        let base = Db::open(dir)?;
        base.checkpoint(copy.path().join("db"))?;
        base.close()?;
        let tuned = Db::builder().memory(mib << 20).durability(Durability::None).background(false);
        let db = tuned.tuning(|t| t.memtable_bytes(16 << 20)).open(copy.path().join("db"))?;
        let map = db.keyspace("map")?;
        let mut rng = fastrand::Rng::with_seed(3);
        let keys: Vec<u64> = match above {
            "keys behind" => (SMALL..SMALL + 20_000).collect(),
            "few keys" => (0..SMALL / 1000).map(|_| rng.u64(..SMALL)).collect(),
            "keys" => (0..SMALL / 40).map(|_| rng.u64(..SMALL)).collect(),
            _ => Vec::new(),
        };
        keys.into_iter().map(small_item).try_for_each(|(key, value)| map.put(key, value).map(drop))?;
        let row = |name: &str, ops: u64, work: &mut dyn FnMut() -> esker::Result<u64>| {
            measure(wanted, &format!("16 + 32 bytes, {what}, {above} above: {name}"), ops, work)
        };
        let starts: Vec<_> = (0..2000).map(|_| small_item(rng.u64(..SMALL - 1000)).0).collect();
        let entries = (starts.len() * RANGE) as u64;
        row("range of 512 by iterator", entries, &mut || {
            starts.iter().try_fold(0, |n, start| Ok(n + each(map.range(&start[..]..).take(RANGE))?))
        })?;
        row("range of 512 by visit", entries, &mut || {
            starts.iter().try_fold(0, |n, start| {
                let mut left = RANGE;
                map.range(&start[..]..).visit(|_, _| {
                    left -= 1;
                    if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                Ok(n + (RANGE - left) as u64)
            })
        })?;
        row("scan by visit", SMALL, &mut || visit(map.iter()))?;
        row("scan by cursor", SMALL, &mut || {
            let (mut cursor, mut sum) = (map.cursor()?, 0);
            while cursor.next()? {
                sum += u64::from(cursor.value()?[0]);
            }
            Ok(sum)
        })?;
    }
    Ok(())
}

fn each<K, V>(entries: impl Iterator<Item = esker::Result<(K, V)>>) -> esker::Result<u64> {
    entries.map(|entry| entry.map(|_| 1)).sum()
}

fn visit(mut range: esker::Range) -> esker::Result<u64> {
    let mut sum = 0;
    range.visit(|key, value| {
        sum += u64::from(key[0]) + u64::from(value[0]);
        ControlFlow::Continue(())
    })?;
    Ok(sum)
}

/// Prints the median of several rounds, in nanoseconds an operation.
fn measure(
    wanted: &str,
    name: &str,
    ops: u64,
    work: &mut dyn FnMut() -> esker::Result<u64>,
) -> esker::Result<()> {
    if !name.contains(wanted) {
        return Ok(());
    }
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        std::hint::black_box(work()?);
        times.push(start.elapsed().as_nanos() as f64 / ops as f64);
    }
    times.sort_unstable_by(f64::total_cmp);
    println!("{name}: {:.1}", times[ROUNDS / 2]);
    Ok(())
}
