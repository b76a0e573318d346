//! What gets, ranges and scans cost on keys and values of many shapes, with the data in a memtable and in
//! tables, cached. In the last case an older snapshot is open, so that compaction keeps sequence numbers.
//!
//! ```text
//! cargo run --release -p esker-bench --no-default-features --example shapes -- [part of a shape's name]
//! ```
#![expect(clippy::disallowed_methods, reason = "a program that measures time")]

use std::ops::ControlFlow;
use std::time::Instant;

use esker::{Db, Durability, Keyspace};

const ROUNDS: usize = 3;

/// The name, the number of items, and item `n`.
type Shape = (&'static str, usize, fn(u64) -> (Vec<u8>, Vec<u8>));

/// A number that looks random.
fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}

/// `len` bytes that look random.
fn noise(n: u64, len: usize) -> Vec<u8> {
    (0..len.div_ceil(8) as u64).flat_map(|i| mixed(n << 8 | i).to_be_bytes()).take(len).collect()
}

const SHAPES: [Shape; 10] = [
    ("8 B sequential + 8 B", 1_000_000, |n| (n.to_be_bytes().to_vec(), vec![7; 8])),
    ("8 B random + 8 B", 1_000_000, |n| (mixed(n).to_be_bytes().to_vec(), vec![7; 8])),
    ("8 B random + 16 B", 1_000_000, |n| (mixed(n).to_be_bytes().to_vec(), vec![7; 16])),
    ("20 B + 1 B", 1_000_000, |n| (noise(n, 20), vec![7])),
    ("24 B + 150 B", 1_000_000, |n| (noise(n, 24), vec![7; 150])),
    ("24 B + 1,000 B", 200_000, |n| (noise(n, 24), vec![7; 1000])),
    ("URLs + 100 B", 1_000_000, |n| {
        let m = mixed(n);
        let url =
            format!("https://www.site-{:03}.example.com/articles/{}/{:08x}", m % 500, 2000 + m % 24, m >> 32);
        (url.into_bytes(), vec![7; 100])
    }),
    ("33 B hash behind a prefix + 300 B", 400_000, |n| {
        ([&b"shared/prefix/of/all/"[..], &noise(n, 33)].concat(), vec![7; 300])
    }),
    ("1 KB keys + 16 B", 100_000, |n| ([vec![b'k'; 984], noise(n, 40)].concat(), vec![7; 16])),
    ("16 B + 5 KB", 50_000, |n| (noise(n, 16), vec![7; 5000])),
];

fn main() -> esker::Result<()> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if "tombstones".contains(&wanted) {
        tombstones()?;
    }
    println!(
        "ns: get, range of 10 by iterator, by visit, then an entry of a scan by iterator, backwards, by keys, by cursor, by visit"
    );
    for (name, items, make) in SHAPES.iter().filter(|shape| shape.0.contains(&wanted)) {
        for place in ["memtable", "table", "table with versions for a snapshot"] {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let builder =
                Db::builder().memory(6 << 30).tuning(|t| t.memtable_bytes(1 << 30)).background(false);
            let db = builder.open(dir.path())?;
            let map = db.keyspace("map")?;
            let snapshot = place.contains("snapshot").then(|| db.snapshot());
            for start in (0..*items as u64).step_by(1000) {
                let mut batch = db.batch();
                for n in start..(start + 1000).min(*items as u64) {
                    let (key, value) = make(n);
                    batch.put(&map, key, value)?;
                }
                batch.commit_with(Durability::None)?;
            }
            if place != "memtable" {
                db.compact()?;
            }
            let figures = measure(&map, *items, *make)?;
            println!("{name}, {place}: {}", figures.map(|ns| ns.to_string()).join(" "));
            drop(snapshot);
        }
    }
    Ok(())
}

fn measure(map: &Keyspace, items: usize, make: fn(u64) -> (Vec<u8>, Vec<u8>)) -> esker::Result<[usize; 8]> {
    let probes: Vec<_> = (0..200_000).map(|n| make(mixed(n + 1) % items as u64).0).collect();
    Ok([
        per_op(probes.len(), || {
            probes.iter().try_fold(0, |sum, key| Ok(sum + map.get(key)?.map_or(0, |v| u64::from(v[0]))))
        })?,
        per_op(probes.len(), || {
            probes.iter().try_fold(0, |sum, key| {
                map.range(&key[..]..).take(10).try_fold(sum, |sum, entry| Ok(sum + u64::from(entry?.1[0])))
            })
        })?,
        per_op(probes.len(), || {
            probes.iter().try_fold(0, |mut sum, key| {
                let mut left = 10;
                map.range(&key[..]..).visit(|_, value| {
                    sum += u64::from(value[0]);
                    left -= 1;
                    if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                Ok(sum)
            })
        })?,
        per_op(items, || {
            map.iter().try_fold(0, |sum, entry| {
                let (key, value) = entry?;
                Ok(sum + u64::from(key[0]) + u64::from(value[0]))
            })
        })?,
        per_op(items, || map.iter().rev().try_fold(0, |sum, entry| Ok(sum + u64::from(entry?.1[0]))))?,
        per_op(items, || map.iter().keys().try_fold(0, |sum, key| Ok(sum + u64::from(key?[0]))))?,
        per_op(items, || {
            let mut cursor = map.cursor()?;
            let mut sum = 0;
            while cursor.next()? {
                sum += u64::from(cursor.key()[0]) + u64::from(cursor.value()?[0]);
            }
            Ok(sum)
        })?,
        per_op(items, || {
            let mut sum = 0;
            map.iter().visit(|key, value| {
                sum += u64::from(key[0]) + u64::from(value[0]);
                ControlFlow::Continue(())
            })?;
            Ok(sum)
        })?,
    ])
}

/// Seeks, either way, among a million keys of which all but the first and the last are removed: the first
/// seek, and the next ones.
fn tombstones() -> esker::Result<()> {
    const DEAD: u64 = 1_000_000;
    println!(
        "us: the first seek over a million dead keys, the next ones; backwards; the same in a snapshot of then"
    );
    for (place, in_tables) in
        [("memtable", [false, false]), ("memtable over tables", [true, false]), ("tables", [true, true])]
    {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let db = Db::builder()
            .memory(4 << 30)
            .tuning(|t| t.memtable_bytes(1 << 30))
            .background(false)
            .open(dir.path())?;
        let map = db.keyspace("map")?;
        let change = |is_put: bool, flushed: bool| -> esker::Result<()> {
            for start in (0..=DEAD).step_by(1000) {
                let mut batch = db.batch();
                for n in start..(start + 1000).min(DEAD + 1) {
                    match (is_put, n) {
                        (true, _) => batch.put(&map, n.to_be_bytes(), b"value")?,
                        (false, 0 | DEAD) => {}
                        (false, _) => batch.delete(&map, n.to_be_bytes())?,
                    }
                }
                batch.commit_with(Durability::None)?;
            }
            if flushed { db.flush() } else { Ok(()) }
        };
        change(true, in_tables[0])?;
        let before = db.snapshot();
        change(false, in_tables[1])?;
        let then = db.snapshot();
        map.put([0xFF; 8], b"later")?;
        let time = |seek: &dyn Fn() -> esker::Result<bool>| -> esker::Result<usize> {
            let start = Instant::now();
            assert!(seek()?);
            Ok(start.elapsed().as_micros() as usize)
        };
        let mut figures = Vec::new();
        for snapshot in [None, Some(&then)] {
            let range = |from: u64, to: u64| match snapshot {
                None => map.range(from.to_be_bytes()..to.to_be_bytes()),
                Some(snapshot) => snapshot.range(&map, from.to_be_bytes()..to.to_be_bytes()),
            };
            let up = || {
                Ok(range(5, DEAD + 1).next().transpose()?.is_some_and(|found| found.0 == DEAD.to_be_bytes()))
            };
            let down = || {
                Ok(range(0, DEAD - 5)
                    .next_back()
                    .transpose()?
                    .is_some_and(|found| found.0 == 0_u64.to_be_bytes()))
            };
            figures.extend([time(&up)?, time(&up)?, time(&down)?, time(&down)?]);
        }
        drop(before);
        println!("{place}: {figures:?}");
    }
    Ok(())
}

/// The median of several rounds, in nanoseconds an operation.
fn per_op(ops: usize, mut round: impl FnMut() -> esker::Result<u64>) -> esker::Result<usize> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        std::hint::black_box(round()?);
        times.push(start.elapsed().as_nanos() as usize / ops);
    }
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}
