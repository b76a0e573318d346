//! Keyspaces with a maximum size: what they lose, and what readers, counts, history, the feed and copies see.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{dir, simulated};
use esker::backup::Backup;
use esker::replay::{Replay, encode};
use esker::unload::{Load, Unload};
use esker::{BackgroundStep, Blobs, Db, Durability, Error, FeedChange, History, Keyspace, KeyspaceOptions};
use esker_env::{Env, ManualClock, MemFs};

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
        assert!((15_000..46_000).contains(&size), "seed {seed}: {size}");
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

/// Returns the number of keys left of `0..count`.
fn left(map: &Keyspace, count: u32) -> usize {
    (0..count).filter(|n| map.contains(key(*n)).unwrap()).count()
}

#[test]
fn overwritten_values_cost_no_live_entry() {
    for seed in 0..9 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let db = simulated(Arc::new(MemFs::new())).blobs(Blobs::From(400)).open(dir()).unwrap();
        let map = db.create_keyspace_with("a", KeyspaceOptions::new().bytes_max(60_000)).unwrap();
        if seed % 3 == 1 {
            map.set_history(History::Versions(1000)).unwrap();
        }
        (0..100).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
        let snapshot = (seed % 3 == 2).then(|| db.snapshot());
        let hot = [150, 1000, 4000][seed as usize / 3 % 3];
        for n in 0..1500_u32 {
            map.put("hot", (0..hot).map(|_| rng.u8(..)).collect::<Vec<_>>()).unwrap();
            match rng.u32(0..100) {
                0..10 => assert!(db.default_keyspace().put(key(n), "x").is_ok()),
                10..13 => assert!(db.step(BackgroundStep::Flush).is_ok()),
                13..16 => assert!(db.step(BackgroundStep::Compact { idle: rng.bool() }).is_ok()),
                16..20 => assert_eq!(db.sweep().unwrap(), 0, "seed {seed}"),
                // Removed entries do not count either.
                20 => (0..99).for_each(|n| assert!(map.put(key(1000 + n), value(&mut rng)).is_ok())),
                21 => assert!(map.delete_range(key(1000)..key(1100)).is_ok()),
                _ => {}
            }
        }
        map.delete_range(key(1000)..key(1100)).unwrap();
        assert_eq!((db.sweep().unwrap(), left(&map, 100)), (0, 100), "seed {seed}");
        drop(snapshot);
        // The commits of other keyspaces do not make these entries old.
        (0..200).for_each(|n| assert!(map.put(key(2000 + n), value(&mut rng)).is_ok()));
        (0..3000).for_each(|n| assert!(db.default_keyspace().put(key(n % 7), "x").is_ok()));
        (0..300).for_each(|n| assert!(map.put(key(3000 + n), value(&mut rng)).is_ok()));
        db.compact().unwrap();
        assert!(left(&map, 100) == 0, "seed {seed}");
        let newest = (0..300).filter(|n| map.contains(key(3000 + n)).unwrap()).count();
        assert_eq!(newest, 300, "seed {seed}: at least seven eighths of 60,000 bytes stay");
    }
}

#[test]
fn a_limit_that_was_lifted_holds_again() {
    let db = simulated(Arc::new(MemFs::new())).open(dir()).unwrap();
    let (map, mut rng) = (db.keyspace("a").unwrap(), fastrand::Rng::with_seed(1));
    for _ in 0..3 {
        map.set_bytes_max(30_000).unwrap();
        (0..600).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
        assert!(db.sweep().unwrap() > 300);
        map.set_bytes_max(None).unwrap();
        (600..1200).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
        // The entries lose their numbers.
        db.compact().unwrap();
        map.set_bytes_max(30_000).unwrap();
        (1200..1500).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
        db.compact().unwrap();
        db.compact().unwrap();
        let size = map.approximate_size(..).unwrap();
        assert!((15_000..34_000).contains(&size), "{size}");
        assert!(map.contains(key(1499)).unwrap());
    }
}

#[test]
fn entries_of_all_origins_count_and_go() {
    let (fs, clock) = (Arc::new(MemFs::new()), Arc::new(ManualClock::new()));
    let env = Env { clock: clock.clone(), ..Env::simulated(fs.clone(), 1) };
    let builder = simulated(fs.clone()).env(env).blobs(Blobs::From(1000));
    let db = builder.tuning(|t| t.transaction_memory(4 << 10)).open(dir()).unwrap();
    let map = db.keyspace("a").unwrap();
    map.set_bytes_max(100_000).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut bytes = |len: usize| (0..len).map(|_| rng.u8(..)).collect::<Vec<u8>>();
    let sizes =
        |map: &Keyspace, of: std::ops::Range<u32>| of.filter(|n| map.contains(key(*n)).unwrap()).count();
    // Values in blob files.
    (0..100).for_each(|n| assert!(map.put(key(n), bytes(5000)).is_ok()));
    assert_eq!((db.sweep().unwrap(), sizes(&map, 0..100)), (82, 18));
    // A large transaction, an ingest, and entries that expire.
    let mut large = db.begin();
    (100..400).for_each(|n| assert!(large.put(&map, key(n), bytes(200)).is_ok()));
    large.commit().unwrap();
    db.sweep().unwrap();
    assert_eq!(sizes(&map, 100..400), 300);
    assert!((1..8).contains(&sizes(&map, 0..100)));
    let mut ingest = map.ingest();
    (400..700).for_each(|n| assert!(ingest.put(key(n), bytes(200)).is_ok()));
    ingest.commit().unwrap();
    db.sweep().unwrap();
    assert_eq!((sizes(&map, 100..400), sizes(&map, 400..700)), (300, 300), "a commit goes as a whole");
    let day = Duration::from_secs(86_400);
    (700..1000).for_each(|n| assert!(map.put_with_ttl(key(n), bytes(200), day).is_ok()));
    db.sweep().unwrap();
    assert_eq!((sizes(&map, 100..400), sizes(&map, 400..700), sizes(&map, 700..1000)), (0, 300, 300));
    // What has expired counts no longer, so that the ingest stays, until newer entries suffice.
    clock.advance(2 * day);
    (1000..1200).for_each(|n| assert!(map.put(key(n), bytes(200)).is_ok()));
    db.compact().unwrap();
    assert_eq!((sizes(&map, 400..700), sizes(&map, 700..1000), map.len().unwrap()), (300, 0, 500));
    (1200..1450).for_each(|n| assert!(map.put(key(n), bytes(200)).is_ok()));
    db.compact().unwrap();
    assert_eq!((sizes(&map, 400..700), sizes(&map, 1200..1450)), (0, 250));
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn copies_and_watchers_learn_of_the_removals() {
    let fs = Arc::new(MemFs::new());
    let env = || Env::simulated(fs.clone(), 1);
    let home = simulated(fs.clone()).feed_retention(1 << 30, Duration::MAX).open("home").unwrap();
    let map = home.create_keyspace_with("a", KeyspaceOptions::new().bytes_max(30_000)).unwrap();
    let mut rng = fastrand::Rng::with_seed(5);
    let made = home.checkpoint("copy").unwrap();
    let copy = simulated(fs.clone()).open("copy").unwrap();
    let (mut replay, mut feed) = (Replay::new(&copy).unwrap(), home.feed_after(made.seqno).unwrap());
    let mut watch = map.watch(..).unwrap();
    (0..600).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
    home.flush().unwrap();
    while watch.try_next().is_some() {}
    let (removed, mut seen) = (home.sweep().unwrap(), 0);
    assert!(removed > 300);
    while let Some((_, change)) = watch.try_next() {
        seen += u64::from(matches!(change, esker::Change::Delete { .. }));
    }
    assert_eq!(seen, removed, "watchers are notified of single keys");
    drop(watch);
    (0..600).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
    home.compact().unwrap();
    while let Some(mut commit) = feed.try_next().unwrap() {
        let mut changes = Vec::new();
        while let Some(change) = commit.next_change().unwrap() {
            encode(&change, &mut changes).unwrap();
        }
        replay.take(&changes, |_, _| {}).unwrap();
        replay.commit(Durability::Buffered).unwrap();
        assert_eq!(copy.sweep().unwrap(), 0, "the other database removes");
    }
    let all = |db: &Db| -> Vec<_> {
        db.keyspace("a")
            .unwrap()
            .range(..)
            .map(Result::unwrap)
            .map(|(k, v)| (k.to_vec(), v.to_vec()))
            .collect()
    };
    let expected = all(&home);
    assert!(all(&copy) == expected && expected.len() > 100);
    drop(replay);
    assert_eq!(copy.sweep().unwrap(), 0, "it is not too large");
    // A backup and an unloaded file.
    let mut backup = Backup::open_in(env(), "backups").unwrap();
    let id = backup.create(&home).unwrap().id;
    backup.restore("restored").backup(id).run().unwrap();
    Unload::new().env(env()).write(&home, "file").unwrap();
    let loaded = simulated(fs.clone()).open("loaded").unwrap();
    Load::new().env(env()).read(&loaded, "file").unwrap();
    for db in [simulated(fs.clone()).open("restored").unwrap(), loaded] {
        let map = db.keyspace("a").unwrap();
        assert!(all(&db) == expected && map.bytes_max() == Some(30_000));
        assert_eq!(db.sweep().unwrap(), 0);
        (1000..1600).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
        db.compact().unwrap();
        assert!(map.len().unwrap() < 400 && left(&map, 1000) == 0);
        assert!(db.check().unwrap().problems.is_empty());
    }
}

#[test]
fn keyspaces_are_renamed_and_dropped_during_removals() {
    let db = simulated(Arc::new(MemFs::new())).open(dir()).unwrap();
    std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| (0..60).map(|_| db.sweep().unwrap()).sum::<u64>());
        for round in 0..40_u32 {
            let options = KeyspaceOptions::new().bytes_max(20_000);
            let map = db.create_keyspace_with("a", options).unwrap();
            let mut rng = fastrand::Rng::with_seed(round.into());
            (0..250).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
            db.rename_keyspace("a", "b").unwrap();
            (250..300).for_each(|n| assert!(map.put(key(n), value(&mut rng)).is_ok()));
            let entries = map.range(..).count() as u64;
            assert!(map.contains(key(299)).unwrap() && map.len().unwrap() <= entries);
            if round % 3 == 0 {
                db.sweep().unwrap();
                assert!(map.len().unwrap() < 250);
            }
            db.drop_keyspace("b").unwrap();
        }
        assert!(sweeper.join().is_ok());
    });
    assert!(db.check().unwrap().problems.is_empty());
}
