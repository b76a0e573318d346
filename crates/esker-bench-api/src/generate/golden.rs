//! The streams, pinned (G1). A program in another language proves its generators by the same figures.

use super::accounts::{self, Account, Accounts, Transfers};
use super::checksum::checksum;
use super::{
    badger::BadgerItems, int::Ints, keyspaces::KeyspaceItems, obigstore, pool::Pool, shapes::Shape,
    storage::StorageItems, ycsb,
};

fn sum(pairs: impl Iterator<Item = u64>) -> u64 {
    pairs.fold(0, |sum: u64, pair| sum.rotate_left(1) ^ pair)
}

#[test]
fn bench_generate_1_every_stream_is_pinned() {
    let ints = Ints::new(3);
    let badger = BadgerItems::new(3, 128);
    let mut draws = badger.draws();
    let pool = Pool::new(3);
    let ycsb = ycsb::YcsbRecords::new(3);
    let mut hotspots = obigstore::Hotspots::new(3, 0.99, 4);
    let storage = |sequential| {
        let (items, mut value) = (StorageItems::new(3, sequential), [0; 512]);
        sum((0..1000).map(|i| {
            items.value(i, i % 3, &mut value);
            checksum(&items.key(i), &value)
        }))
    };
    let keyspaces = || {
        let (items, mut value) = (KeyspaceItems::new(3, 1000), [0; 128]);
        sum((0..1000).map(|i| {
            items.value(i, i % 3, &mut value);
            checksum(&[&items.keyspace(i).to_be_bytes()[..], &items.key(i)].concat(), &value)
        }))
    };
    let pair = |key: obigstore::Key| {
        let mut value = [0; 32];
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
    let shapes = || {
        let mut key = Vec::new();
        sum(Shape::ALL.into_iter().flat_map(|shape| (0..100).map(move |i| (shape, i))).map(|(shape, i)| {
            let mut value = vec![0; shape.value_bytes()];
            shape.key(3, i, &mut key);
            shape.value(3, i, &mut value);
            checksum(&key, &value)
        }))
    };
    let sums = [
        ("shapes", shapes(), 18332308579107764206),
        ("int", sum((0..1000).map(|i| checksum(&ints.key(i), &ints.value(i)))), 6462110813504162550),
        ("large", sum((0..3).map(|i| checksum(&[], pool.value(i, 2_000_000)))), 5527708034191719542),
        (
            "badger",
            sum((0..1000).map(|_| draws.below(1000)).map(|k| checksum(&badger.key(k), badger.value(k)))),
            772323790396916442,
        ),
        ("storage-bench random", storage(false), 12587634721611838626),
        ("storage-bench sequential", storage(true), 1904829600286437245),
        ("keyspaces", keyspaces(), 5737417340166680337),
        (
            "ycsb",
            sum((0..1000).map(|i| {
                let mut value = [0; ycsb::VALUE_BYTES];
                ycsb.value(i, i % 3, &mut value);
                checksum(&ycsb.key(i), &value)
            })),
            5033598327530058509,
        ),
        (
            "obigstore sequential",
            sum((0..1000).map(|i| pair(obigstore::sequential_key(i)))),
            15020441381303363645,
        ),
        ("obigstore random", sum((0..1000).map(|i| pair(obigstore::random_key(3, i)))), 940400077955640208),
        ("obigstore hotspots", sum((0..1000).map(|_| pair(hotspots.next_key().0))), 11701354937994816125),
        ("accounts", sum((0..1000).map(account_of)), 8773516394753485532),
        ("transfers", sum((0..1000).map(|_| transfer())), 12395359812278096674),
    ];
    let wrong: Vec<_> = sums.iter().filter(|(_, sum, pinned)| sum != pinned).collect();
    assert!(wrong.is_empty(), "stream, sum, pinned: {wrong:?}");
}

#[test]
fn keys_look_as_they_should() {
    assert_eq!(&BadgerItems::new(1, 16384).key(1234567), b"vsz=16384-k=0001234567");
    assert_eq!(&obigstore::sequential_key(42), b"0000000000000042");
    assert!(ycsb::YcsbRecords::new(1).key(1).starts_with(b"user"));
    let mut ints: Vec<_> = (0..100_000).map(|i| Ints::new(1).key(i)).collect();
    ints.sort_unstable();
    ints.dedup();
    assert_eq!(ints.len(), 100_000);
}

#[test]
fn half_of_the_hotspot_writes_are_new_keys_next_to_the_last() {
    let mut hotspots = obigstore::Hotspots::new(1, 0.9999, 8);
    let new = (0..100_000).filter(|_| hotspots.next_key().1).count();
    assert!((49_000..52_000).contains(&new), "{new}");
}
