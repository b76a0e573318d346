//! Computes the checksum of every stream, over a thousand items of each generator with seed 3.
//!
//! The golden tests pin these checksums. The tests of the generators in Go pin the same ones.

use crate::generate::accounts::{self, Account, Accounts, Transfers};
use crate::generate::badger::BadgerItems;
use crate::generate::checksum::checksum;
use crate::generate::entries::Entries;
use crate::generate::int::Ints;
use crate::generate::keyspaces::KeyspaceItems;
use crate::generate::obigstore;
use crate::generate::pool::Pool;
use crate::generate::shapes::Shape;
use crate::generate::storage::StorageItems;
use crate::generate::ycsb;

/// Combines checksums, in their order.
fn sum(pairs: impl Iterator<Item = u64>) -> u64 {
    pairs.fold(0, |sum: u64, pair| sum.rotate_left(1) ^ pair)
}

fn storage(sequential: bool) -> u64 {
    let (items, mut value) = (StorageItems::new(3, sequential), [0; 512]);
    sum((0..1000).map(|i| {
        items.value(i, i % 3, &mut value);
        checksum(&items.key(i), &value)
    }))
}

fn keyspaces() -> u64 {
    let (items, mut value) = (KeyspaceItems::new(3, 1000), [0; 128]);
    sum((0..1000).map(|i| {
        items.value(i, i % 3, &mut value);
        checksum(&[&items.keyspace(i).to_be_bytes()[..], &items.key(i)].concat(), &value)
    }))
}

/// A hundred items of each shape.
fn shapes() -> u64 {
    let mut key = Vec::new();
    sum(Shape::ALL.into_iter().flat_map(|shape| (0..100).map(move |i| (shape, i))).map(|(shape, i)| {
        let mut value = vec![0; shape.value_bytes()];
        shape.key(3, i, &mut key);
        shape.value(3, i, &mut value);
        checksum(&key, &value)
    }))
}

/// Returns the name and the checksum of each stream. Values of the obigstore streams have `pair_bytes` bytes.
pub fn streams(pair_bytes: usize) -> Vec<(&'static str, u64)> {
    let ints = Ints::new(3);
    let badger = BadgerItems::new(3, 128);
    let mut draws = badger.draws();
    let pool = Pool::new(3);
    let ycsb = ycsb::YcsbRecords::new(3);
    let mut hotspots = obigstore::Hotspots::new(3, 0.99, 4);
    let pair = |key: obigstore::Key| {
        let mut value = vec![0; pair_bytes];
        obigstore::value(&key, &mut value);
        checksum(&key, &value)
    };
    let accounts = Accounts::new(3);
    let account_of = |i: u64| {
        let mut value = [0; accounts::VALUE_BYTES];
        accounts.value(i, Account { balance: 7 - i as i64, changes: i }, &mut value);
        checksum(&accounts.key(i), &value)
    };
    let mut transfers = Transfers::new(accounts, 2, 100);
    let mut transfer = || {
        let mut drawn = [0; 4];
        let amount = transfers.draw(&mut drawn) as u64;
        drawn.iter().fold(amount, |sum: u64, i| sum.rotate_left(7) ^ i)
    };
    let entries = Entries::new(3, 1000, 500);
    let entry_of = |i: u64| checksum(&entries.key(i), &entries.value(i)) ^ entries.expires_ms(i).unwrap_or(0);
    vec![
        ("entries", sum((0..1000).map(entry_of))),
        ("shapes", shapes()),
        ("int", sum((0..1000).map(|i| checksum(&ints.key(i), &ints.value(i))))),
        ("large", sum((0..3).map(|i| checksum(&[], pool.value(i, 2_000_000))))),
        (
            "badger",
            sum((0..1000).map(|_| draws.below(1000)).map(|k| checksum(&badger.key(k), badger.value(k)))),
        ),
        ("storage-bench random", storage(false)),
        ("storage-bench sequential", storage(true)),
        ("keyspaces", keyspaces()),
        (
            "ycsb",
            sum((0..1000).map(|i| {
                let mut value = [0; ycsb::VALUE_BYTES];
                ycsb.value(i, i % 3, &mut value);
                checksum(&ycsb.key(i), &value)
            })),
        ),
        ("obigstore sequential", sum((0..1000).map(|i| pair(obigstore::sequential_key(i))))),
        ("obigstore random", sum((0..1000).map(|i| pair(obigstore::random_key(3, i))))),
        ("obigstore hotspots", sum((0..1000).map(|_| pair(hotspots.next_key().0)))),
        ("accounts", sum((0..1000).map(account_of))),
        ("transfers", sum((0..1000).map(|_| transfer()))),
    ]
}
