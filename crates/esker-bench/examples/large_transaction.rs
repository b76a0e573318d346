//! What large transactions cost: loads, removals, and small integers, each in one transaction. And what an
//! ingest costs beside `sstable::Writer`.
//!
//! `cargo run --release -p esker-bench --no-default-features --example large_transaction [-- ITEMS
//! VALUE_BYTES DIRECTORY MEMORY_MIB STEPS]`; of 5 steps, only the first `STEPS` are taken.
#![expect(clippy::disallowed_methods, reason = "measures real time, on real files")]

use std::time::Instant;

use esker::{Db, Keyspace, Result};

/// Runs one transaction; prints what filling and committing it took, in ns an item.
fn transaction(
    db: &Db,
    name: &str,
    items: u64,
    mut body: impl FnMut(&mut esker::Transaction, u64) -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    let mut t = db.begin();
    (0..items).try_for_each(|n| body(&mut t, n))?;
    let filled = begun.elapsed();
    t.commit().map_err(|failed| failed.error)?;
    let whole = begun.elapsed();
    let each = |time: std::time::Duration| time.as_nanos() / u128::from(items.max(1));
    println!(
        "{name:<24} fill {:>6} commit {:>6} whole {:>6} ns an item, {:.3} s",
        each(filled),
        each(whole - filled),
        each(whole),
        whole.as_secs_f64()
    );
    Ok(())
}

/// What a load of sorted pairs takes, in ns an item: without a database, and by an ingest, in turns.
fn sorted_loads(db: &Db, file: &std::path::Path, items: u64, value_bytes: usize) -> Result<()> {
    let mut value = vec![0; value_bytes];
    let sorted_key = |n: u64| {
        let mut key = [0; 24];
        key[16..].copy_from_slice(&n.to_be_bytes());
        key
    };
    for round in 0..5 {
        let keyspace = db.create_keyspace(&format!("sorted {round}"))?;
        let mut random = fastrand::Rng::with_seed(round);
        let begun = Instant::now();
        let mut writer = esker::sstable::Writer::create(file)?;
        for n in 0..items {
            random.fill(&mut value);
            writer.put(&sorted_key(n), &value)?;
        }
        writer.finish()?;
        let alone = begun.elapsed();
        let begun = Instant::now();
        let mut ingest = keyspace.ingest();
        for n in 0..items {
            random.fill(&mut value);
            ingest.put(sorted_key(n), &value)?;
        }
        ingest.commit()?;
        let pairs = begun.elapsed();
        let begun = Instant::now();
        let mut ingest = db.create_keyspace(&format!("table {round}"))?.ingest();
        ingest.table(file)?;
        ingest.commit()?;
        let table = begun.elapsed();
        let each = |time: std::time::Duration| time.as_nanos() / u128::from(items.max(1));
        println!(
            "sorted: sstable::Writer {:>5}, ingest of pairs {:>5}, of that table {:>5} ns an item; pairs {:.2}x",
            each(alone),
            each(pairs),
            each(table),
            pairs.as_secs_f64() / alone.as_secs_f64()
        );
        std::fs::remove_file(file).map_err(|e| esker::Error::Invalid(e.to_string()))?;
    }
    Ok(())
}

/// A key in no order: each `n` another.
fn key(n: u64) -> [u8; 24] {
    let mut key = [0; 24];
    for (part, salt) in key.chunks_exact_mut(8).zip(1_u64..) {
        let mixed = (n + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        part.copy_from_slice(&(mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_be_bytes());
    }
    key
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (items, value_bytes) = (number(1_000_000), number(150));
    let dir = arguments.next();
    let memory = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1024_u64) << 20;
    let steps = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    let kept = tempfile::tempdir().map_err(|e| esker::Error::Invalid(e.to_string()))?;
    let dir = dir.map_or_else(|| kept.path().join("db"), Into::into);
    let db = Db::builder().memory(memory).open(&dir)?;
    let file = dir.with_extension("sst");
    let map = db.default_keyspace();
    let mut value = vec![0; value_bytes as usize];
    let mut random = fastrand::Rng::with_seed(1);
    let ordered: Keyspace = db.create_keyspace("ordered")?;
    let integers = db.create_keyspace("integers")?;
    for step in 0..steps {
        match step {
            0 => transaction(&db, "load, no order", items, |t, n| {
                random.fill(&mut value);
                t.put(&map, key(n), &value)
            })?,
            1 => transaction(&db, "remove every second", items / 2, |t, n| t.delete(&map, key(2 * n)))?,
            2 => transaction(&db, "load in order", items, |t, n| {
                random.fill(&mut value);
                t.put(&ordered, n.to_be_bytes(), &value)
            })?,
            3 => transaction(&db, "integers, no order", items, |t, _| {
                t.put(&integers, random.u32(..).to_be_bytes(), random.u64(..).to_be_bytes())
            })?,
            _ => sorted_loads(&db, &file, items, value_bytes as usize)?,
        }
    }
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
    }
    Ok(())
}
