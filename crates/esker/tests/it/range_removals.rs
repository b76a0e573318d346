//! Ranges that are removed repeatedly: the cost of a commit, a walk and an opening stays in proportion.
//!
//! Retention removes `..cutoff` with a growing cutoff. The n-th removal covers all earlier ones, so there are
//! n * n / 2 pairs of a fragment and a commit that removed it. The limits below are in allocated bytes: no
//! call may copy all pairs, or the keys of each.

use std::sync::Arc;

use crate::common::dir;
use crate::memory;
use esker::{Db, Durability, Result};
use esker_env::{Env, MemFs};

const REMOVALS: u64 = 1000;
const KEYS: u64 = 1200;
/// Pairs of a fragment and a commit at the end.
const PAIRS: u64 = REMOVALS * REMOVALS / 2;
/// Limit for one call: about two copies of its list of fragments, which share keys and numbers, and what any
/// commit needs. Copies of all pairs would take a hundred times as much.
const CALL_BYTES_MAX: usize = 160 * REMOVALS as usize + 16_384;

fn open(fs: &MemFs, memtable_bytes: usize) -> Result<Db> {
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    Db::builder().env(env).background(false).tuning(|t| t.memtable_bytes(memtable_bytes)).open(dir())
}

/// A database with `KEYS` keys in a table.
fn filled(fs: &MemFs, memtable_bytes: usize) -> Result<Db> {
    let db = open(fs, memtable_bytes)?;
    let keyspace = db.default_keyspace();
    let mut batch = db.batch();
    for n in 0..KEYS {
        batch.put(&keyspace, n.to_be_bytes(), "v")?;
    }
    batch.commit()?;
    db.flush()?;
    Ok(db)
}

/// Removes ..1, ..2, ..3 and so on, and reads the first key after each.
fn remove_growing(db: &Db) -> Result<()> {
    let keyspace = db.default_keyspace();
    for cutoff in 1..=REMOVALS {
        let mut batch = db.batch();
        batch.delete_range(&keyspace, ..cutoff.to_be_bytes())?;
        batch.commit_with(Durability::Buffered)?;
        let (first, _) = keyspace.first()?.expect("keys are left");
        assert_eq!(first[..], cutoff.to_be_bytes());
    }
    Ok(())
}

fn check(db: &Db) -> Result<()> {
    let keyspace = db.default_keyspace();
    assert_eq!(keyspace.len()?, KEYS - REMOVALS);
    let left: Vec<_> = keyspace.iter().keys().collect::<Result<_>>()?;
    assert!(left.iter().map(|key| &key[..]).eq((REMOVALS..KEYS).map(u64::to_be_bytes).collect::<Vec<_>>()));
    let report = db.check()?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(())
}

#[test]
fn growing_removals_cost_what_they_cover() -> Result<()> {
    let fs = MemFs::new();
    let db = filled(&fs, 64 << 20)?;
    let mut done = Ok(());
    let allocated = memory::allocated_by(|| done = remove_growing(&db));
    done?;
    let stats = db.stats();
    assert!(stats.memtable_bytes >= 8 * PAIRS, "the memtable knows of its pairs: {stats:?}");
    assert_eq!(stats.flushes, 1, "all removals are in one memtable: {stats:?}");
    println!("{allocated} bytes for {REMOVALS} removals");
    assert!(allocated <= CALL_BYTES_MAX * REMOVALS as usize, "{allocated} bytes allocated");
    check(&db)?;

    let killed = fs.kill();
    std::mem::forget(db);
    let mut reopened = None;
    let allocated = memory::allocated_by(|| reopened = Some(open(&killed, 64 << 20)));
    let db = reopened.expect("it ran")?;
    println!("{allocated} bytes to open");
    assert!(db.stats().recovered_commits >= REMOVALS);
    assert!(allocated <= CALL_BYTES_MAX * REMOVALS as usize, "{allocated} bytes allocated to open");
    check(&db)?;
    db.compact()?;
    check(&db)
}

#[test]
fn growing_removals_fill_the_memtable() -> Result<()> {
    let fs = MemFs::new();
    let memtable_bytes = 256 << 10;
    let db = filled(&fs, memtable_bytes)?;
    remove_growing(&db)?;
    let flushes = db.stats().flushes;
    assert!((4..=12).contains(&flushes), "{flushes} flushes");
    check(&db)?;
    let killed = fs.kill();
    std::mem::forget(db);
    check(&open(&killed, memtable_bytes)?)
}

#[test]
fn clearing_again_and_again_costs_the_same_each_time() -> Result<()> {
    let db = filled(&MemFs::new(), 64 << 20)?;
    let keyspace = db.default_keyspace();
    let mut costs = Vec::new();
    for _ in 0..REMOVALS {
        let mut done = Ok(());
        costs.push(memory::allocated_by(|| done = keyspace.clear().and_then(|_| keyspace.first().map(drop))));
        done?;
    }
    let sum = |costs: &[usize]| costs.iter().sum::<usize>();
    let (early, late) = (sum(&costs[10..110]), sum(&costs[REMOVALS as usize - 100..]));
    println!("{early} bytes for the 100 from the 10th on, {late} for the last 100");
    assert!(late <= early * 2, "{early} bytes for the 100 from the 10th on, {late} for the last 100");
    assert_eq!(keyspace.len()?, 0);
    Ok(())
}

/// Ranges are counted while others write into them, flush them and remove parts of them.
#[test]
fn lengths_are_exact_although_ranges_are_counted_beside_other_commits() {
    let fs = esker_env::MemFs::new();
    let env = esker_env::Env::with_fs(std::sync::Arc::new(fs));
    let builder =
        esker::Db::builder().memory(2 << 20).tuning(|t| t.memtable_bytes(64 << 10).table_bytes(64 << 10));
    let db = builder.env(env).durability(esker::Durability::None).open("db").unwrap();
    let map = db.default_keyspace();
    let key = |n: u32| n.to_be_bytes();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (db, map) = (&db, &map);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for step in 0..3000 {
                    let (n, width) = (rng.u32(0..3000), rng.u32(1..300));
                    match rng.u8(0..20) {
                        0 => drop(map.delete_range(key(n)..key(n + width)).unwrap()),
                        1..4 => drop(map.delete(key(n)).unwrap()),
                        4 if step % 50 == 0 => db.flush().unwrap(),
                        _ => drop(map.put(key(n), [7; 100]).unwrap()),
                    }
                }
            });
        }
    });
    assert_eq!(map.len().unwrap(), map.iter().keys().count() as u64, "counts.1");
    assert!(db.check().unwrap().problems.is_empty());
}
