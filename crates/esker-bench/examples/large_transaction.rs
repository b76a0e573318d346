//! What large transactions cost: loads, removals, and small integers, each in one transaction. And what an
//! ingest costs beside `sstable::Writer`.
//!
//! `cargo run --release -p esker-bench --no-default-features --example large_transaction [-- ITEMS
//! VALUE_BYTES DIRECTORY MEMORY_MIB STEPS]`; of 5 steps, only the first `STEPS` are taken. With `-- walks
//! ITEMS WALKED`: loops of `ITEMS` writes and walks in one transaction, and a walk over `WALKED` own writes.
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

/// Times loops that write and walk in one transaction, and writes without walks.
fn walks(items: u64, walked: u64) -> Result<()> {
    let kept = tempfile::tempdir().map_err(|e| esker::Error::Invalid(e.to_string()))?;
    let db = Db::builder().memory(1 << 30).open(kept.path().join("db"))?;
    let names = ["first", "own", "stored", "rollbacks", "many"].map(|name| db.create_keyspace(name));
    let [first, own, stored, rollbacks, many] = names;
    let (first, own, stored, rollbacks, many) = (first?, own?, stored?, rollbacks?, many?);
    transaction(&db, "put, first of range", items, |t, n| {
        t.put(&first, key(n), b"value")?;
        t.range(&first, key(n).to_vec()..).next().transpose().map(|_| ())
    })?;
    transaction(&db, "put, pop_first of own", items, |t, n| {
        t.put(&own, key(n), b"value")?;
        if n % 2 == 0 { Ok(()) } else { t.pop_first(&own).map(|_| ()) }
    })?;
    transaction(&db, "fill", items, |t, n| t.put(&stored, key(n), b"value"))?;
    transaction(&db, "pop_first of stored", items, |t, _| t.pop_first(&stored).map(|_| ()))?;
    transaction(&db, "put, walk, roll back", items, |t, n| {
        t.put(&rollbacks, key(n), b"value")?;
        let point = t.savepoint();
        t.put(&rollbacks, key(n + items), b"value")?;
        t.range(&rollbacks, key(n).to_vec()..).next().transpose()?;
        t.rollback_to(&point)?;
        t.release(point)
    })?;
    transaction(&db, "put only", walked, |t, n| t.put(&many, key(n), b"value"))?;
    let mut t = db.begin();
    (0..walked).try_for_each(|n| t.put(&own, key(n), b"value"))?;
    for name in ["first walk over own", "second walk over own"] {
        let begun = Instant::now();
        let seen = t.range(&own, ..).filter(Result::is_ok).count();
        println!("{name:<24} {:>6} ns an item", begun.elapsed().as_nanos() / seen.max(1) as u128);
    }
    t.put(&own, key(walked), b"value")?;
    let begun = Instant::now();
    t.range(&own, key(7).to_vec()..).next().transpose()?;
    println!("{:<24} {:>6} ns", "put, first, among many", begun.elapsed().as_nanos());
    let begun = Instant::now();
    let batches = walked / 1_000;
    for number in 0..batches {
        let mut batch = db.batch();
        (0..1_000).try_for_each(|n| batch.put(&many, key(number * 1_000 + n), b"other"))?;
        batch.commit_with(esker::Durability::None)?;
    }
    println!("{:<24} {:>6} ns an item", "batches of 1,000", begun.elapsed().as_nanos() / u128::from(walked));
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
    let mut arguments = std::env::args().skip(1).peekable();
    let is_walks = arguments.next_if(|first| first == "walks").is_some();
    let mut number = |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    if is_walks {
        return walks(number(10_000), number(1_000_000));
    }
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
