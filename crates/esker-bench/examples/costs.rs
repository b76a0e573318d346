//! What single operations cost: 1,000,000 items of 24-byte random keys and 150-byte values, in one merged
//! run, cached.
//!
//! ```text
//! cargo run --release -p esker-bench --no-default-features --example costs
//! ```
#![expect(clippy::disallowed_methods, reason = "a program that measures time")]

use std::time::Instant;

use esker::{Db, Durability};

const ITEMS: usize = 1_000_000;
const ROUNDS: usize = 5;

fn main() -> esker::Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut rng = fastrand::Rng::with_seed(3);
    let db = Db::builder().memory(4 << 30).open(dir.path())?;
    let map = db.keyspace("map")?;
    let mut keys = vec![[0; 24]; ITEMS];
    let mut batch = db.batch();
    for key in &mut keys {
        let mut value = [0; 150];
        rng.fill(key);
        rng.fill(&mut value);
        batch.put(&map, *key, value)?;
    }
    batch.commit()?;
    db.compact()?;

    per_op("get", ITEMS, || {
        keys.iter().try_fold(0, |sum, key| Ok(sum + map.get(key)?.map_or(0, |value| u64::from(value[0]))))
    })?;
    per_op("range of 10, cursor", ITEMS / 2, || {
        keys[..ITEMS / 2].iter().try_fold(0, |sum, key| {
            let mut cursor = map.cursor()?;
            cursor.seek(key)?;
            let (mut seen, mut own) = (0, 0);
            while cursor.valid() {
                own += u64::from(cursor.key()[0]) + u64::from(cursor.value()?[0]);
                seen += 1;
                if seen == 10 {
                    break;
                }
                cursor.next()?;
            }
            Ok(sum + own)
        })
    })?;
    scans("24 + 150 bytes", &map)?;
    let small = db.keyspace("small")?;
    let mut batch = db.batch();
    for n in 0..ITEMS as u64 {
        batch.put(&small, n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), [7; 16])?;
    }
    batch.commit()?;
    db.compact()?;
    scans("8 + 16 bytes", &small)?;
    per_op("len()", ITEMS, || (0..ITEMS).try_fold(0, |sum, _| Ok(sum + map.len()?)))?;
    let few = &keys[..100_000];
    for (what, durability) in
        [("not waited for", Durability::None), ("handed to the system", Durability::Buffered)]
    {
        per_op(&format!("commit of one overwrite, {what}"), few.len(), || {
            for key in few {
                let mut batch = db.batch();
                batch.put(&map, key, [7; 150])?;
                batch.commit_with(durability)?;
            }
            Ok(0)
        })?;
    }
    per_op("commit of one overwrite, synced", 1000, || {
        few[..1000].iter().try_for_each(|key| map.put(key, b"newer").map(drop))?;
        Ok(0)
    })
}

/// Walks over everything, in each way there is.
fn scans(what: &str, map: &esker::Keyspace) -> esker::Result<()> {
    per_op(&format!("scan of {what}, iterator"), ITEMS, || {
        map.iter().try_fold(0, |sum, entry| {
            let (key, value) = entry?;
            Ok(sum + u64::from(key[0]) + u64::from(value[0]))
        })
    })?;
    per_op(&format!("scan of {what}, iterator, backwards"), ITEMS, || {
        map.iter().rev().try_fold(0, |sum, entry| Ok(sum + u64::from(entry?.1[0])))
    })?;
    per_op(&format!("scan of {what}, keys"), ITEMS, || {
        map.iter().keys().try_fold(0, |sum, key| Ok(sum + u64::from(key?[0])))
    })?;
    per_op(&format!("scan of {what}, cursor"), ITEMS, || {
        let mut cursor = map.cursor()?;
        cursor.seek_first()?;
        let mut sum = 0;
        while cursor.valid() {
            sum += u64::from(cursor.key()[0]) + u64::from(cursor.value()?[0]);
            cursor.next()?;
        }
        Ok(sum)
    })
}

/// Prints the median of several rounds, in nanoseconds an operation.
fn per_op(name: &str, ops: usize, mut round: impl FnMut() -> esker::Result<u64>) -> esker::Result<()> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        std::hint::black_box(round()?);
        times.push(start.elapsed().as_nanos() as usize / ops);
    }
    times.sort_unstable();
    println!("{name}: {} ns", times[ROUNDS / 2]);
    Ok(())
}
