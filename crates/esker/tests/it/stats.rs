//! The statistics report what was done.
//!
//! - Each block that a get wants counts as a hit or a miss.
//! - Waiting writers are counted, with the time that they wait.
//! - Latencies of gets, commits and syncs are recorded.
//! - The statistics of keyspaces divide up the tables.
//! - Snapshots and iterators that keep old states are reported with their age.
//! - The log's bytes shrink with its segments.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{dir, tiny};
use esker::{Blobs, Builder, Db, Durability, Latency, TableLevel};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};

fn stepped(env: &Env) -> Builder {
    tiny(env.clone()).stepped().tuning(|t| t.memtable_bytes(1 << 20))
}

fn simulated() -> Env {
    Env::simulated(Arc::new(MemFs::new()), 1)
}

fn fill(db: &Db, keyspace: &str, items: u32, bytes: usize) {
    let map = db.keyspace(keyspace).unwrap();
    let mut batch = db.batch();
    (0..items).for_each(|n| batch.put(&map, n.to_be_bytes(), vec![n as u8; bytes]).unwrap());
    batch.commit().unwrap();
}

#[test]
fn hits_and_misses_add_up() {
    const ITEMS: u32 = 1000;
    let env = simulated();
    let db = stepped(&env).open(dir()).unwrap();
    fill(&db, "default", ITEMS, 50);
    db.compact().unwrap();
    db.close().unwrap();
    let db = stepped(&env).open(dir()).unwrap();
    let map = db.default_keyspace();
    let get_all = || {
        let before = db.stats();
        (0..ITEMS).for_each(|n| drop(map.get(n.to_be_bytes()).unwrap().unwrap()));
        let after = db.stats();
        assert_eq!(after.gets - before.gets, u64::from(ITEMS));
        (after.cache_hits - before.cache_hits, after.cache_misses - before.cache_misses)
    };
    let (hits, misses) = get_all();
    assert_eq!(hits + misses, u64::from(ITEMS));
    assert!(misses > 100, "there is more than one block: {misses}");
    assert_eq!(get_all(), (u64::from(ITEMS), 0), "all is in the cache");
    let ratio = 1.0 - misses as f64 / f64::from(2 * ITEMS);
    assert!(db.stats().cache_hit_ratio().is_some_and(|reported| (reported - ratio).abs() < 1e-9));
    let before = db.stats();
    assert_eq!(map.iter().count(), ITEMS as usize);
    let walked = db.stats().cache_hits - before.cache_hits;
    assert!((misses..2 * misses).contains(&walked), "a walk wants each block about once: {walked}");
}

#[test]
fn stalls_take_time() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::with_fs(Arc::new(faults.clone()));
    let db = Db::builder()
        .env(env)
        .memory(4 << 20)
        .tuning(|t| t.memtable_bytes(16 << 10))
        .durability(Durability::Buffered);
    let db = db.open(dir()).unwrap();
    assert_eq!((db.stats().stalls, db.stats().stall_time), (0, Duration::ZERO));
    let slow = FaultAction::Delay(Duration::from_millis(20));
    faults.add(FaultRule::new(&[OpKind::Create], slow).on_path(".sst").forever());
    let map = db.default_keyspace();
    let mut n = 0u32;
    while db.stats().stalls == 0 {
        map.put(n.to_be_bytes(), [7; 500]).unwrap();
        n += 1;
    }
    let stats = db.stats();
    assert!(stats.stall_time > Duration::from_micros(100), "{:?}", stats.stall_time);
    assert_eq!(stats.writers_waiting, 0);
    faults.clear();
}

fn assert_is_in_order(latency: &Latency) {
    let Latency { p50, p99, p99_9, max, .. } = *latency;
    let is_in_order = Duration::ZERO < p50 && p50 <= p99 && p99 <= p99_9 && p99_9 <= max;
    assert!(is_in_order && latency.samples > 0, "{latency:?}");
}

#[test]
fn latencies_are_gathered() {
    let db = Db::builder().env(Env::with_fs(Arc::new(MemFs::new()))).open(dir()).unwrap();
    let map = db.default_keyspace();
    assert_eq!((db.stats().commit_latency, db.stats().get_latency), (Latency::default(), Latency::default()));
    for n in 0..200u32 {
        map.put(n.to_be_bytes(), "1").unwrap();
    }
    let stats = db.stats();
    assert_eq!((stats.commits, stats.commit_latency.samples), (200, 200), "all that are durable");
    assert!(stats.sync_latency.samples >= 200);
    for n in 0..2000u32 {
        let mut batch = db.batch();
        batch.put(&map, n.to_be_bytes(), "2").unwrap();
        batch.commit_with(Durability::None).unwrap();
        assert!(map.get(n.to_be_bytes()).unwrap().is_some());
    }
    let stats = db.stats();
    assert_eq!((stats.commits, stats.gets), (2200, 2000));
    assert!(
        stats.committed_bytes >= 2200 * 5 && stats.committed_bytes < 2200 * 20,
        "{}",
        stats.committed_bytes
    );
    let unsynced = stats.commit_latency.samples - 200;
    assert!((150..400).contains(&unsynced), "{unsynced} of 2000, one in 8 was to be measured");
    let gets = stats.get_latency.samples;
    assert!((15..60).contains(&gets), "{gets} of 2000, one in 64 was to be measured");
    [stats.get_latency, stats.commit_latency, stats.sync_latency].iter().for_each(assert_is_in_order);
}

#[test]
fn keyspaces_share_out_the_tables() {
    let db = stepped(&simulated()).open(dir()).unwrap();
    let sizes = [("default", 0), ("large", 2000), ("little", 10), ("middle", 500)];
    sizes.iter().for_each(|(name, items)| fill(&db, name, *items, 50));
    db.flush().unwrap();
    for _ in 0..2 {
        let (figures, stats) = (db.keyspace_stats(), db.stats());
        let reported: Vec<_> = figures.iter().map(|f| (&*f.name, f.items as u32)).collect();
        assert_eq!(reported, sizes);
        let all: u64 = figures.iter().map(|f| f.table_bytes).sum();
        assert!(all <= stats.table_bytes && all > stats.table_bytes / 10 * 9, "{all}, {stats:?}");
        let each = |items: u32| stats.table_bytes * u64::from(items) / 2510;
        for f in &figures {
            let expected = each(f.items as u32);
            // A block at each end, and the catalog.
            assert!(f.table_bytes.abs_diff(expected) < expected / 10 + 2000, "{f:?}, {expected}");
        }
        db.compact().unwrap();
    }
}

#[test]
fn pins_have_an_age() {
    let env = simulated();
    let db = stepped(&env).open(dir()).unwrap();
    let sleep = |secs| env.clock.sleep(Duration::from_secs(secs));
    let pins = || {
        let stats = db.stats();
        let oldest = stats.oldest_snapshot.map(|oldest| (oldest.seqno, oldest.age.as_secs()));
        (stats.snapshots, oldest, stats.iterators, stats.oldest_iterator.map(|age| age.as_secs()))
    };
    fill(&db, "default", 10, 50);
    assert_eq!(pins(), (0, None, 0, None));
    let map = db.default_keyspace();
    let (snapshot, iterator) = (db.snapshot(), map.iter());
    let seqno = snapshot.seqno();
    sleep(10);
    assert_eq!(pins(), (1, Some((seqno, 10)), 1, None), "nothing has changed since");
    db.flush().unwrap();
    let transaction = db.begin();
    let cursor = map.cursor().unwrap();
    sleep(20);
    assert_eq!(pins(), (2, Some((seqno, 30)), 2, Some(20)));
    drop((snapshot, iterator));
    // Both are of the same commit, which has been kept all the time.
    assert_eq!(pins(), (1, Some((seqno, 30)), 1, None));
    drop((transaction, cursor));
    assert_eq!(pins(), (0, None, 0, None));
}

#[test]
fn the_log_grows_and_goes() {
    let env = simulated();
    let db = stepped(&env).open(dir()).unwrap();
    fill(&db, "default", 1000, 50);
    let stats = db.stats();
    assert!(
        stats.log_bytes > stats.committed_bytes && stats.log_bytes_written >= stats.committed_bytes,
        "{stats:?}"
    );
    assert!(stats.log_bytes < stats.committed_bytes * 2);
    assert!(stats.write_amplification().is_some_and(|w| (1.0..1.5).contains(&w)));
    db.flush().unwrap();
    let after = db.stats();
    assert!(after.log_bytes < 1000, "{} bytes", after.log_bytes);
    assert!(after.write_amplification().is_some_and(|w| (1.5..3.0).contains(&w)));
    fill(&db, "default", 1000, 50);
    let before = db.stats().log_bytes;
    db.close().unwrap();
    let db = stepped(&env).open(dir()).unwrap();
    let earlier = db.stats();
    assert!(earlier.log_bytes >= before && earlier.log_bytes < before * 2, "{earlier:?}, {before}");
    assert_eq!((earlier.log_bytes_written, earlier.commits), (0, 0));
    db.flush().unwrap();
    assert!(db.stats().log_bytes < before / 10, "obsolete segments are gone");
}

#[test]
fn tables_have_their_run_keys_counts_commits_and_keyspaces() {
    let db = Db::builder().stepped().env(Env::with_fs(Arc::new(MemFs::new()))).open("db").unwrap();
    let (users, mails) = (db.create_keyspace("users").unwrap(), db.create_keyspace("mails").unwrap());
    assert_eq!(db.tables(), []);
    users.put("b", "1").unwrap();
    db.flush().unwrap();
    users.put("a", "1").unwrap();
    users.put("c", "1").unwrap();
    let first = users.put("c", "2").unwrap();
    users.delete("a").unwrap();
    let last = users.delete_range("x".."z").unwrap();
    db.flush().unwrap();
    let tables = db.tables();
    let [newest, oldest] = &tables[..] else { panic!("{tables:?}") };
    assert_eq!((newest.level, oldest.level), (TableLevel::Flushed, TableLevel::Flushed));
    assert!(newest.run > oldest.run && newest.file != oldest.file);
    assert_eq!((newest.keyspaces.as_slice(), newest.range_tombstones), (&["users".to_owned()][..], 1));
    assert_eq!((newest.first.keyspace, newest.last.keyspace), (users.id(), users.id()));
    assert_eq!((&newest.first.key[..], &newest.last.key[..]), (&b"a"[..], &b"z"[..]));
    assert_eq!((newest.keys, newest.tombstones, newest.commits), (2, 1, (first, last)));
    assert!(oldest.keyspaces.contains(&"users".to_owned()), "and the catalog");
    mails.put("m", "1").unwrap();
    users.clear().unwrap();
    db.flush().unwrap();
    assert_eq!(db.tables()[0].keyspaces, ["users", "mails"], "in the order of their ids");
    db.rename_keyspace("mails", "letters").unwrap();
    db.drop_keyspace("users").unwrap();
    db.compact().unwrap();
    let tables = db.tables();
    assert_eq!(tables.iter().map(|table| table.bytes).sum::<u64>(), db.stats().table_bytes);
    let [base] = &tables[..] else { panic!("{tables:?}") };
    assert_eq!((base.level, base.tombstones, base.range_tombstones), (TableLevel::Base, 0, 0));
    assert_eq!((base.last.keyspace, &base.last.key[..]), (mails.id(), &b"m"[..]));
    assert!(base.keyspaces.contains(&"letters".to_owned()) && !base.keyspaces.contains(&"users".to_owned()));
}

#[test]
fn info_has_the_options_in_force() {
    let db = Db::builder().memory(8 << 20).blobs(Blobs::Never).open_in_memory().unwrap();
    let info = db.info();
    assert_eq!((info.memory, info.memtable_bytes, info.blobs), (8 << 20, 1 << 20, Blobs::Never));
    assert!(info.pairs().contains(&("blobs_from", "never".to_owned())));
}

#[test]
fn the_memory_of_an_open_database_can_be_changed() {
    let db = Db::builder().memory(64 << 20).blobs(Blobs::Never).open_in_memory().unwrap();
    let map = db.default_keyspace();
    let mut batch = db.batch();
    (0..4000_u32).for_each(|n| batch.put(&map, n.to_be_bytes(), noise(n)).unwrap());
    batch.commit().unwrap();
    db.compact().unwrap();
    let read = || assert_eq!(map.iter().map(|entry| entry.unwrap().1.len()).sum::<usize>(), 8_000_000);
    read();
    assert!(db.stats().cache_bytes.total() > 7 << 20, "{:?}", db.stats());
    db.set_memory(2 << 20).unwrap();
    assert!(db.stats().cache_bytes.total() <= 2 << 20, "{:?}", db.stats());
    read();
    assert!(db.stats().cache_bytes.total() <= 2 << 20, "{:?}", db.stats());
    let held = db.stats().cache_bytes;
    assert!(held.blocks > 0 && held.indexes_and_filters > 0, "{held:?}");
    db.set_memory(64 << 20).unwrap();
    read();
    assert!(db.stats().cache_bytes.total() > 7 << 20, "{:?}", db.stats());
    assert_eq!(db.info().memory, 64 << 20);
    assert!(db.set_memory(1 << 10).is_err());
}

/// 2000 bytes that do not compress.
fn noise(seed: u32) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed.into());
    std::iter::repeat_with(|| rng.u8(..)).take(2000).collect()
}
