//! What 100,000 operands on one key cost: in a memtable, in a transaction, and in a table.
//!
//! ```text
//! cargo run --release -p esker-bench --no-default-features --example operands
//! ```
#![expect(clippy::disallowed_methods, reason = "a program that measures time")]

use std::time::{Duration, Instant};

use esker::{Db, Keyspace};

const OPERANDS: u32 = 100_000;

/// An operator that leaves all operands to the read.
fn concat(existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
    Ok([&[existing.unwrap_or_default()], operands].concat().concat())
}

fn main() -> esker::Result<()> {
    println!(
        "milliseconds       merges     read    again    flush    read  | in a transaction: merges    read   again"
    );
    for operator in ["add-i64", "append", "concat"] {
        for lifetime in [None, Some(Duration::from_secs(3600))] {
            measure(operator, lifetime)?;
        }
    }
    Ok(())
}

/// One row. `lifetime`: of the value that the operands are merged into; none: there is no value.
fn measure(operator: &str, lifetime: Option<Duration>) -> esker::Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::builder().merge_operator("concat", concat).open(dir.path())?;
    let map = db.keyspace("map")?;
    map.set_merge_operator(operator)?;
    let operand = 1_i64.to_le_bytes();
    if let Some(lifetime) = lifetime {
        map.put_with_ttl("key", operand, lifetime)?;
    }
    let mut batch = db.batch();
    let merges = timed(|| {
        for n in 0..OPERANDS {
            batch.merge(&map, "key", operand)?;
            // Commits of a hundred, so that the log does not decide.
            if n % 100 == 99 {
                batch.commit()?;
                batch = db.batch();
            }
        }
        Ok(())
    })?;
    let get = |map: &Keyspace| timed(|| map.get("key").map(drop));
    let (read, again) = (get(&map)?, get(&map)?);
    let flush = timed(|| db.flush())?;
    let of_table = get(&map)?;
    let mut transaction = db.begin();
    let own = timed(|| (0..OPERANDS).try_for_each(|_| transaction.merge(&map, "other", operand)))?;
    let own_get = || timed(|| transaction.keyspace(&map).get("other").map(drop));
    let (own_read, own_again) = (own_get()?, own_get()?);
    let name = format!("{operator}{}", if lifetime.is_some() { ", expires" } else { "" });
    println!(
        "{name:17} {merges:8.2} {read:8.2} {again:8.2} {flush:8.2} {of_table:8.2} | {own:24.2} {own_read:8.2} {own_again:8.2}"
    );
    Ok(())
}

fn timed(call: impl FnOnce() -> esker::Result<()>) -> esker::Result<f64> {
    let start = Instant::now();
    call()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
