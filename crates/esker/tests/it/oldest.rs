//! Keyspaces with a maximum size: what they lose, and what readers, counts, history, the feed and copies see.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{dir, simulated};
use esker::{BackgroundStep, Error, FeedChange, History, Keyspace, KeyspaceOptions};
use esker_env::MemFs;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn value(rng: &mut fastrand::Rng) -> Vec<u8> {
    (0..rng.usize(50..150)).map(|_| rng.u8(..)).collect()
}

/// The keys with the commit that wrote each last.
type Written = BTreeMap<u32, u64>;

/// Checks that a suffix of the order of writing is left, and forgets the rest.
fn check_suffix(map: &Keyspace, written: &mut Written) {
    let left: Vec<u32> =
        map.keys(..).map(|key| u32::from_be_bytes(key.unwrap()[..].try_into().unwrap())).collect();
    let oldest_left = left.iter().map(|n| written[n]).min().unwrap_or(u64::MAX);
    written.retain(|_, seqno| *seqno >= oldest_left);
    assert!(written.keys().eq(&left), "engine_oldest.1");
    assert_eq!(map.len().unwrap(), left.len() as u64);
}

#[test]
fn engine_oldest_1_a_suffix_of_the_order_of_writing_stays() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = Arc::new(MemFs::new());
        let mut db = simulated(fs.clone()).open(dir()).unwrap();
        let options = KeyspaceOptions::new().bytes_max(40_000);
        let mut map = db.create_keyspace_with("recent", options).unwrap();
        let (mut written, mut removals) = (Written::new(), 0);
        for n in 0..3000_u32 {
            let no = if seed % 2 == 0 { n } else { rng.u32(0..2000) };
            written.insert(no, map.put(key(no), value(&mut rng)).unwrap().get());
            match rng.u32(0..100) {
                0..10 => assert!(db.default_keyspace().put(key(n), "x").is_ok()),
                10 => {
                    let start = rng.u32(0..3000);
                    map.delete_range(key(start)..key(start + 50)).unwrap();
                    written.retain(|n, _| !(start..start + 50).contains(n));
                }
                11..14 => assert!(db.step(BackgroundStep::Flush).is_ok()),
                14..18 => assert!(db.step(BackgroundStep::Compact { idle: rng.bool() }).is_ok()),
                18..22 => {
                    removals += db.sweep().unwrap();
                    check_suffix(&map, &mut written);
                }
                22 if rng.u8(0..10) == 0 => {
                    db.close().unwrap();
                    db = simulated(fs.clone()).open(dir()).unwrap();
                    map = db.keyspace("recent").unwrap();
                }
                _ => {}
            }
        }
        db.compact().unwrap();
        db.compact().unwrap();
        check_suffix(&map, &mut written);
        let (size, others) = (map.approximate_size(..).unwrap(), db.default_keyspace().len().unwrap());
        assert!(removals > 100 && others > 0, "seed {seed}: {removals}");
        assert!((15_000..44_000).contains(&size), "seed {seed}: {size}");
        assert!(db.check().unwrap().problems.is_empty());
    }
}

#[test]
fn readers_and_copies_see_the_removals_as_such() {
    let fs = Arc::new(MemFs::new());
    let db = simulated(fs.clone()).feed_retention(1 << 30, Duration::from_secs(1 << 30)).open(dir()).unwrap();
    let map = db.keyspace("recent").unwrap();
    map.set_merge_operator("append").unwrap();
    map.set_bytes_max(20_000).unwrap();
    map.set_history(History::Versions(3)).unwrap();
    assert!(matches!(map.set_bytes_max(0), Err(Error::Invalid(_))));
    let mut rng = fastrand::Rng::with_seed(1);
    // The base of these operands is the oldest entry of all.
    map.put(key(9999), "base").unwrap();
    let large = map.put(key(9998), vec![1; 5000]).unwrap();
    (0..150).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
    let snapshot = db.snapshot();
    let before = snapshot.len(&map).unwrap();
    let mut transaction = db.begin();
    assert!(transaction.get(&map, key(0)).unwrap().is_some());
    transaction.put(&map, key(20_000), "late").unwrap();
    (150..300).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
    map.merge(key(9999), "+more").unwrap();
    db.flush().unwrap();
    let at = db.snapshot().seqno();
    assert!(db.sweep().unwrap() > 50);
    assert!(matches!(transaction.commit(), Err(e) if matches!(e.error, Error::Conflict { .. })));
    db.compact().unwrap();
    assert_eq!(map.get(key(9999)).unwrap().as_deref(), Some(&b"base+more"[..]));
    assert_eq!((map.get(key(0)).unwrap(), map.get(key(9998)).unwrap()), (None, None));
    // Snapshot and history still have them.
    assert_eq!((snapshot.len(&map).unwrap(), snapshot.range(&map, ..).count() as u64), (before, before));
    assert_eq!(map.at(at).unwrap().get(key(9998)).unwrap().unwrap().len(), 5000);
    let mut removed = 0;
    let mut feed = db.feed_after(large).unwrap();
    while let Some(mut commit) = feed.try_next().unwrap() {
        while let Some(change) = commit.next_change().unwrap() {
            let is_removal = matches!(change, FeedChange::Delete { .. } | FeedChange::DeleteRange { .. });
            removed += u64::from(is_removal);
        }
    }
    assert!(removed > 0);
    db.checkpoint("copy").unwrap();
    let copy = simulated(fs).open("copy").unwrap();
    let copied = copy.keyspace("recent").unwrap();
    assert_eq!((copied.len().unwrap(), copied.bytes_max()), (map.len().unwrap(), Some(20_000)));
    assert!(db.check().unwrap().problems.is_empty() && copy.check().unwrap().problems.is_empty());
}
