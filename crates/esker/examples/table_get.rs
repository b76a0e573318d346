//! How fast one cached table answers: random gets, and ranges of 10, of 24-byte keys with 150-byte values.
//!
//!     cargo run --release --example table_get -- [items]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use esker::sstable::{Reader, Writer};

const KEY_BYTES: usize = 24;
const VALUE_BYTES: usize = 150;
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let items: usize = std::env::args().nth(1).map_or(Ok(1_000_000), |n| n.parse())?;
    let mut rng = fastrand::Rng::with_seed(3);
    let order: Vec<[u8; KEY_BYTES]> = (0..items).map(|_| random_key(&mut rng)).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();

    let dir = tempfile::tempdir()?;
    let path = dir.path().join("table.sst");
    let start = Instant::now();
    let mut writer = Writer::create(&path)?;
    let mut value = [0; VALUE_BYTES];
    for key in &sorted {
        rng.fill(&mut value);
        writer.put(key, &value)?;
    }
    let file_bytes = writer.finish()?;
    report("write", start, items);
    println!(
        "{:.2} bytes on disk for an item of {} bytes",
        file_bytes as f64 / items as f64,
        KEY_BYTES + VALUE_BYTES
    );

    let table = Reader::open_with(&path, 2 * file_bytes)?;
    let start = Instant::now();
    black_box(table.iter().count());
    report("first scan, fills the cache", start, items);
    let probes = &order[..items.min(1_000_000)];
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for key in probes {
            black_box(table.get(key)?.is_some_and(|value| value[0] > 0));
        }
        report("get", start, probes.len());
    }
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for key in probes {
            black_box(table.contains(key)?);
        }
        report("contains", start, probes.len());
    }
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for key in probes {
            for entry in table.range(&key[..]..).take(10) {
                black_box(entry?.1[0]);
            }
        }
        report("range of 10, owned items", start, probes.len());
    }
    let start = Instant::now();
    black_box(table.iter().count());
    report("scan, owned items", start, items);
    Ok(())
}

fn random_key(rng: &mut fastrand::Rng) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    rng.fill(&mut key);
    key
}

fn report(what: &str, start: Instant, operations: usize) {
    println!("{what}: {:.0} ns", start.elapsed().as_nanos() as f64 / operations as f64);
}
