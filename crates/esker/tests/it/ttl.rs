//! Entries that expire: what readers see, what counts include, and how they are removed.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::env::{Env, Fs, ManualClock, MemFs};
use esker::{Blobs, Builder, Change, Db, Error, Isolation, Keyspace, Reads, TableCompression, Ttl};

const SECOND: Duration = Duration::from_secs(1);

/// An in-memory directory, and a clock that tests set.
struct World {
    fs: Arc<MemFs>,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        World { fs: Arc::new(MemFs::new()), clock: Arc::new(ManualClock::new()) }
    }

    fn builder(&self) -> Builder {
        let env = Env { clock: self.clock.clone(), ..Env::simulated(self.fs.clone(), 1) };
        Db::builder().background(false).env(env)
    }

    fn open(&self) -> Db {
        self.builder().open(Path::new("db")).unwrap()
    }
}

fn check(db: &Db) {
    let problems = db.check().unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

/// What each way to read finds for the keys, in any view.
fn found(view: &impl Reads, keys: &[&str]) -> Vec<String> {
    let there = |key: &&&str| view.get(key).unwrap().is_some();
    let expected: Vec<String> = keys.iter().filter(there).map(|key| (*key).to_owned()).collect();
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    for key in keys {
        let is_there = expected.iter().any(|there| there == key);
        assert_eq!(view.contains(key).unwrap(), is_there, "{key}");
        assert_eq!(view.reader(key).unwrap().is_some(), is_there, "{key}");
    }
    let many: Vec<_> = view.multi_get(keys).unwrap();
    let many = keys.iter().zip(many).filter(|(_, value)| value.is_some()).map(|(key, _)| (*key).to_owned());
    assert_eq!(many.collect::<Vec<_>>(), expected);
    let walked: Vec<_> = view.iter().map(|item| text(&item.unwrap().0)).collect();
    assert_eq!(walked, expected);
    let mut back: Vec<_> = view.iter().rev().map(|item| text(&item.unwrap().0)).collect();
    back.reverse();
    assert_eq!(back, expected);
    let mut visited = Vec::new();
    let shown = view.iter().visit(|key, value| {
        assert_eq!(view.get(key).unwrap().as_deref(), Some(value));
        visited.push(text(key));
        ControlFlow::Continue(())
    });
    shown.unwrap();
    assert_eq!(visited, expected);
    assert_eq!(view.keys(..).map(|key| text(&key.unwrap())).collect::<Vec<_>>(), expected);
    let mut cursor = view.cursor().unwrap();
    let mut seen = Vec::new();
    while cursor.next().unwrap() {
        seen.push(text(cursor.key()));
    }
    assert_eq!(seen, expected);
    assert_eq!(view.first().unwrap().map(|entry| text(&entry.0)).as_ref(), expected.first());
    assert_eq!(view.last().unwrap().map(|entry| text(&entry.0)).as_ref(), expected.last());
    assert_eq!(view.is_empty().unwrap(), expected.is_empty());
    expected
}

/// Same as `found`, in all kinds of views.
fn found_everywhere(db: &Db, map: &Keyspace, older: &esker::Snapshot, keys: &[&str]) -> Vec<String> {
    let expected = found(map, keys);
    assert_eq!(found(&older.keyspace(map), keys), expected);
    let cached = keys.iter().filter(|key| matches!(map.get_if_cached(key), Ok(esker::Cached::Value(_))));
    assert!(cached.clone().all(|key| expected.iter().any(|there| there == key)), "{cached:?}");
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let mut transaction = db.transaction().isolation(isolation).begin();
        assert_eq!(found(&transaction.keyspace(map), keys), expected);
        // With a write of its own, the transaction reads in another way.
        transaction.put(map, "z", "own").unwrap();
        let own: Vec<_> = [expected.clone(), vec!["z".to_owned()]].concat();
        assert_eq!(found(&transaction.keyspace(map), &[keys, &["z"]].concat()), own);
    }
    expected
}

#[test]
fn no_read_and_no_walk_finds_what_has_expired_wherever_it_is() {
    let keys = ["a", "b", "c", "d", "e"];
    let large = [7; 5000];
    for place in 0..5 {
        let world = World::new();
        let db = world.builder().blobs(Blobs::From(4000)).open(Path::new("db")).unwrap();
        let map = db.default_keyspace();
        map.put("b", "older, for ever").unwrap();
        if place == 4 {
            db.compact().unwrap();
        }
        map.put("a", "1").unwrap();
        map.put_with_ttl("b", "2", 2 * SECOND).unwrap();
        map.put_with_ttl("c", large, SECOND).unwrap();
        map.put_with_ttl("d", "4", 3 * SECOND).unwrap();
        map.put("e", large).unwrap();
        match place {
            1 => db.flush().unwrap(),
            2 | 3 => db.compact().unwrap(),
            _ => {}
        }
        if place == 3 {
            map.put("e", "newer").unwrap();
        }
        let snapshot = db.snapshot();
        assert_eq!(map.get("c").unwrap().as_deref(), Some(&large[..]));
        assert_eq!(map.get("b").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(map.ttl("c").unwrap(), Some(Ttl::Left(SECOND)));
        for (after, left) in [
            (999, &["a", "b", "c", "d", "e"][..]),
            (1, &["a", "b", "d", "e"]),
            (1000, &["a", "d", "e"]),
            (1000, &["a", "e"]),
        ] {
            world.clock.advance(Duration::from_millis(after));
            assert_eq!(found_everywhere(&db, &map, &snapshot, &keys), left, "place {place}");
            assert_eq!(map.len().unwrap(), 5, "what has expired counts until it is swept");
            check(&db);
        }
        assert_eq!((map.ttl("c").unwrap(), map.ttl("a").unwrap()), (None, Some(Ttl::Unlimited)));
        assert_eq!((db.sweep().unwrap(), db.sweep().unwrap()), (3, 0));
        assert_eq!((map.len().unwrap(), snapshot.len(&map).unwrap()), (2, 5));
        found_everywhere(&db, &map, &snapshot, &keys);
        check(&db);
        drop(snapshot);
        for key in ["a", "e"] {
            assert!(map.expire(key, Duration::ZERO).unwrap());
        }
        db.compact().unwrap();
        // Only the stored time is left.
        let tables = db.stats().tables;
        assert_eq!((map.len().unwrap(), tables), (0, 1), "merges drop it");
        check(&db);
    }
}

#[test]
fn a_walk_that_has_begun_passes_by_what_expires_meanwhile() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    for key in ["a", "b", "c"] {
        map.put_with_ttl(key, key, if key == "b" { SECOND } else { 9 * SECOND }).unwrap();
    }
    for compacted in [false, true] {
        if compacted {
            map.put_with_ttl("b", "b", SECOND).unwrap();
            db.compact().unwrap();
        }
        let mut walk = map.iter();
        assert_eq!(walk.next().unwrap().unwrap().0[..], b"a"[..]);
        world.clock.advance(SECOND);
        assert_eq!(walk.next().unwrap().unwrap().0[..], b"c"[..]);
    }
}

#[test]
fn time_1_time_2_engine_sweep_2_a_clock_that_is_set_back_revives_nothing() {
    let world = World::new();
    let mut db = world.open();
    let map = db.default_keyspace();
    map.put_with_ttl("a", "1", SECOND).unwrap();
    world.clock.advance(SECOND);
    assert_eq!(map.get("a").unwrap(), None);
    world.clock.set_wall(-3_600_000);
    assert_eq!((map.get("a").unwrap(), map.iter().count()), (None, 0), "time.1");
    map.put_with_ttl("b", "2", 10 * SECOND).unwrap();
    world.clock.advance(9 * SECOND);
    assert!(map.contains("b").unwrap(), "it lasts as long as it should");
    for _ in 0..3 {
        db.close().unwrap();
        world.clock.set_wall(-3_600_000);
        db = world.open();
        assert_eq!(db.default_keyspace().get("a").unwrap(), None, "time.2: after a clean close");
        assert!(db.default_keyspace().contains("b").unwrap());
    }
    let map = db.default_keyspace();
    world.clock.advance(SECOND);
    assert_eq!(map.get("b").unwrap(), None);
    assert_eq!(db.sweep().unwrap(), 2);
    map.put_with_ttl("c", "3", SECOND).unwrap();
    map.put("d", "durable").unwrap();
    let world = World { fs: Arc::new(world.fs.crash_strict()), clock: world.clock.clone() };
    world.clock.set_wall(-3_600_000);
    let db = world.open();
    let map = db.default_keyspace();
    assert_eq!((map.len().unwrap(), map.get("a").unwrap()), (2, None), "engine_sweep.2: after a power cut");
    assert_eq!(
        map.ttl("c").unwrap(),
        Some(Ttl::Left(SECOND)),
        "engine_sweep.2: the time is that of the sweep"
    );
    check(&db);
}

#[test]
fn engine_sweep_1_what_is_put_again_is_not_swept_and_counts_once() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    for flushed in [false, true] {
        for key in ["a", "b", "c", "d"] {
            map.put_with_ttl(key, "1", SECOND).unwrap();
        }
        if flushed {
            db.compact().unwrap();
        }
        world.clock.advance(SECOND);
        map.put("a", "2").unwrap();
        map.put_with_ttl("b", "2", SECOND).unwrap();
        map.delete("c").unwrap();
        assert_eq!(map.len().unwrap(), 3, "counts.1: d has expired, and was not swept");
        check(&db);
        assert_eq!(db.sweep().unwrap(), 1);
        assert_eq!((map.len().unwrap(), map.iter().count()), (2, 2));
        world.clock.advance(SECOND);
        assert_eq!((db.sweep().unwrap(), map.len().unwrap()), (1, 1));
        map.delete_range("a"..="z").unwrap();
        assert_eq!(map.len().unwrap(), 0);
        check(&db);
    }
}

#[test]
fn conflict_3_a_sweep_is_no_reason_for_a_conflict() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    for key in ["a", "b", "c"] {
        map.put_with_ttl(key, "1", SECOND).unwrap();
    }
    let mut reads_it = db.begin();
    assert!(reads_it.get(&map, "a").unwrap().is_some());
    world.clock.advance(SECOND);
    let mut finds_nothing = db.begin();
    assert_eq!(finds_nothing.iter(&map).count(), 0);
    let mut conflicts = db.begin();
    assert_eq!(conflicts.get(&map, "c").unwrap(), None);
    assert_eq!(db.sweep().unwrap(), 3);
    reads_it.put(&map, "a", "2").unwrap();
    reads_it.commit().unwrap();
    map.put_with_ttl("c", "2", Duration::ZERO).unwrap();
    assert_eq!(db.sweep().unwrap(), 1);
    conflicts.put(&map, "x", "").unwrap();
    let refused = conflicts.commit().map_err(Error::from);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "another commit has put it: {refused:?}");
    finds_nothing.put(&map, "b", "3").unwrap();
    let refused = finds_nothing.commit().map_err(Error::from);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "a is there: {refused:?}");
    map.put_with_ttl("b", "1", SECOND).unwrap();
    let mut large = db.begin();
    assert_eq!(large.len(&map).unwrap(), 2);
    large.put(&map, "b", "9").unwrap();
    world.clock.advance(SECOND);
    db.sweep().unwrap();
    assert!(large.commit().is_err(), "its length has changed");
    check(&db);
}

#[test]
fn a_transactions_own_entries_expire_too() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    map.put("a", "0").unwrap();
    let mut transaction = db.begin();
    transaction.put_with_ttl(&map, "a", "1", SECOND).unwrap();
    transaction.put_with_ttl(&map, "b", "1", 2 * SECOND).unwrap();
    assert_eq!(found(&transaction.keyspace(&map), &["a", "b"]), ["a", "b"]);
    assert_eq!(transaction.ttl(&map, "a").unwrap(), Some(Ttl::Left(SECOND)));
    world.clock.advance(SECOND);
    assert_eq!(found(&transaction.keyspace(&map), &["a", "b"]), ["b"]);
    assert!(!transaction.keyspace_mut(&map).expire("a", SECOND).unwrap());
    transaction.commit().unwrap();
    assert_eq!(found(&map, &["a", "b"]), ["b"]);
    assert_eq!((map.len().unwrap(), db.sweep().unwrap(), map.len().unwrap()), (2, 1, 1));
    let mut batch = db.batch();
    batch.put_with_ttl(&map, "b", "2", SECOND).unwrap();
    batch.commit().unwrap();
    assert!(map.persist("b").unwrap());
    world.clock.advance(SECOND);
    assert_eq!(map.get("b").unwrap().as_deref(), Some(&b"2"[..]));
    check(&db);
}

#[test]
fn a_transaction_larger_than_memory_has_entries_that_expire() {
    let world = World::new();
    let db = world
        .builder()
        .tuning(|t| t.transaction_memory(64 << 10))
        .adoption_bytes(100_000)
        .open(Path::new("db"))
        .unwrap();
    let map = db.default_keyspace();
    let mut transaction = db.begin();
    let count = 20_000_u32;
    for n in 0..count {
        let ttl = SECOND * (1 + n % 2);
        transaction.put_with_ttl(&map, n.to_be_bytes(), [7; 100], ttl).unwrap();
    }
    let there = |transaction: &esker::Transaction| {
        let got = (0..count).filter(|n| transaction.get(&map, n.to_be_bytes()).unwrap().is_some()).count();
        assert_eq!(transaction.iter(&map).count(), got);
        got as u32
    };
    assert_eq!(there(&transaction), count);
    world.clock.advance(SECOND);
    assert_eq!(there(&transaction), count / 2);
    transaction.commit().unwrap();
    assert!(db.stats().adoptions > 0, "it was adopted");
    assert_eq!((map.iter().count() as u32, map.len().unwrap() as u32), (count / 2, count));
    assert_eq!(db.sweep().unwrap() as u32, count / 2);
    assert_eq!(map.len().unwrap() as u32, count / 2);
    check(&db);
}

#[test]
fn watchers_hear_of_what_expires() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    let mut watch = map.watch(..).unwrap();
    map.put_with_ttl("a", "1", SECOND).unwrap();
    map.put_with_ttl("b", "2", SECOND).unwrap();
    db.compact().unwrap();
    world.clock.advance(SECOND);
    map.put("b", "3").unwrap();
    db.sweep().unwrap();
    let reported: Vec<_> = std::iter::from_fn(|| watch.try_next()).map(|(_, change)| change).collect();
    let put = |key: &str, value: &str| {
        let is_it = |change: &Change| match change {
            Change::Put { key: k, value: Some(v) } => k[..] == *key.as_bytes() && v[..] == *value.as_bytes(),
            _ => false,
        };
        reported.iter().position(is_it)
    };
    let expired =
        reported.iter().position(|change| matches!(change, Change::Expire { key } if key[..] == b"a"[..]));
    assert_eq!(
        [put("a", "1"), put("b", "2"), put("b", "3"), expired],
        [0, 1, 2, 3].map(Some),
        "{reported:?}"
    );
    assert_eq!(reported.len(), 4);
}

#[test]
fn tables_of_which_all_has_expired_go_unread() {
    let world = World::new();
    let builder =
        world.builder().tuning(|t| t.block_bytes(512).table_bytes(4096)).compression(TableCompression::None);
    let db = builder.open(Path::new("db")).unwrap();
    let map = db.default_keyspace();
    for n in 0..2000_u32 {
        let ttl = if n < 1500 { SECOND } else { 60 * SECOND };
        map.put_with_ttl(n.to_be_bytes(), [7; 50], ttl).unwrap();
    }
    db.compact().unwrap();
    let before = db.stats();
    assert!(before.tables > 20);
    world.clock.advance(SECOND);
    assert_eq!(map.iter().count(), 500);
    let swept = db.sweep().unwrap();
    assert_eq!((swept, map.len().unwrap()), (1500, 500));
    check(&db);
    while db.step(esker::BackgroundStep::Compact { idle: false }).unwrap() {}
    let after = db.stats();
    let dropped = after.tables_dropped - before.tables_dropped;
    assert!(dropped > 10 && before.tables - after.tables == dropped, "{dropped}");
    assert_eq!(after.compaction_bytes_read, before.compaction_bytes_read, "unread");
    assert_eq!((map.iter().count(), map.len().unwrap()), (500, 500));
    // The next keys have newer versions above them and older ones below.
    world.clock.advance(60 * SECOND);
    map.put(1600_u32.to_be_bytes(), "newer").unwrap();
    assert_eq!((db.sweep().unwrap(), map.len().unwrap()), (499, 1));
    check(&db);
    db.compact().unwrap();
    assert_eq!((map.iter().count(), map.len().unwrap()), (1, 1));
    assert!(db.stats().tables <= 2, "one of the keyspace, and one of the catalog");
    check(&db);
}

#[test]
fn a_keyspace_keeps_how_long_its_puts_last() {
    let world = World::new();
    let db = world.open();
    let map = db.create_keyspace("map").unwrap();
    map.put("for ever", "0").unwrap();
    map.set_default_ttl(Some(2 * SECOND)).unwrap();
    assert_eq!(map.default_ttl(), Some(2 * SECOND));
    drop(map);
    db.close().unwrap();
    let db = world.open();
    let map = db.open_keyspace("map").unwrap();
    assert_eq!(map.default_ttl(), Some(2 * SECOND));
    map.put("a", "1").unwrap();
    map.put_with_ttl("b", "1", SECOND).unwrap();
    map.put_from("c", &mut &[7_u8; 500_000][..], 500_000).unwrap();
    let mut ingest = map.ingest();
    ingest.put("i", "1").unwrap();
    ingest.commit().unwrap();
    assert_eq!(found(&map, &["a", "b", "c", "for ever", "i"]), ["a", "b", "c", "for ever", "i"]);
    assert_eq!(map.ttl("i").unwrap(), Some(Ttl::Left(2 * SECOND)));
    world.clock.advance(SECOND);
    assert_eq!(found(&map, &["a", "b", "c", "for ever", "i"]), ["a", "c", "for ever", "i"]);
    assert!(map.persist("a").unwrap() && map.expire("for ever", SECOND).unwrap());
    world.clock.advance(SECOND);
    assert_eq!(found(&map, &["a", "b", "c", "for ever", "i"]), ["a"]);
    map.set_default_ttl(None).unwrap();
    map.put("x", "1").unwrap();
    assert_eq!(map.ttl("x").unwrap(), Some(Ttl::Unlimited));
    db.sweep().unwrap();
    assert_eq!(map.len().unwrap(), 2);
    check(&db);
}

#[test]
fn a_repair_keeps_when_entries_expire_and_the_time() {
    let world = World::new();
    let db = world.builder().blobs(Blobs::From(1000)).open(Path::new("db")).unwrap();
    let map = db.default_keyspace();
    map.put_with_ttl("a", "1", SECOND).unwrap();
    map.put_with_ttl("b", [7; 2000], 100 * SECOND).unwrap();
    db.compact().unwrap();
    world.clock.advance(SECOND);
    assert_eq!(db.sweep().unwrap(), 1);
    map.put_with_ttl("c", "3", 100 * SECOND).unwrap();
    map.put_with_ttl("d", [7; 2000], 100 * SECOND).unwrap();
    drop(map);
    db.close().unwrap();
    world.fs.remove_file(Path::new("db/CURRENT")).unwrap();
    world.clock.set_wall(-3_600_000);
    let env = Env { clock: world.clock.clone(), ..Env::simulated(world.fs.clone(), 1) };
    Db::builder().env(env).repair(Path::new("db"), Path::new("repaired")).unwrap();
    let db = world.builder().open(Path::new("repaired")).unwrap();
    let map = db.default_keyspace();
    assert_eq!(found(&map, &["a", "b", "c", "d"]), ["b", "c", "d"]);
    let left = ["b", "c", "d"].map(|key| map.ttl(key).unwrap());
    assert_eq!(
        left,
        [Some(Ttl::Left(99 * SECOND)), Some(Ttl::Left(100 * SECOND)), Some(Ttl::Left(100 * SECOND))]
    );
    check(&db);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "real threads, and real time to wait for them")]
fn the_background_sweeps() {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    for n in 0..3000_u32 {
        map.put_with_ttl(n.to_be_bytes(), "1", Duration::from_millis(1)).unwrap();
    }
    map.put("stays", "1").unwrap();
    for _ in 0..3000 {
        if map.len().unwrap() == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((map.len().unwrap(), map.iter().count(), db.stats().swept_keys), (1, 1, 3000));
    check(&db);
}

#[test]
fn engine_sweep_2_reading_commits_nothing() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    map.put_with_ttl("a", "1", SECOND).unwrap();
    map.put_with_ttl("b", "1", SECOND * 100).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let seqno = world.open().stats().seqno;
    for _ in 0..3 {
        world.clock.advance(SECOND);
        let db = world.open();
        assert_eq!(found(&db.default_keyspace(), &["a", "b"]), ["b"]);
        assert_eq!(db.stats().seqno, seqno, "engine_sweep.2");
        db.close().unwrap();
    }
}

#[test]
fn put_until_is_the_same_by_every_handle() {
    let world = World::new();
    let db = world.open();
    let map = db.default_keyspace();
    let end = std::time::UNIX_EPOCH + esker::env::Clock::unix_time(&*world.clock) + SECOND * 10;
    map.set_default_ttl(Some(SECOND * 5)).unwrap();
    let mut batch = db.batch();
    let mut transaction = db.begin();
    for (key, end) in [("until", Some(end)), ("never", None), ("past", Some(std::time::UNIX_EPOCH))] {
        map.put_until(format!("1 {key}"), "1", end).unwrap();
        batch.put_until(&map, format!("2 {key}"), "1", end).unwrap();
        transaction.put_until(&map, format!("3 {key}"), "1", end).unwrap();
        transaction.keyspace_mut(&map).put_until(format!("4 {key}"), "1", end).unwrap();
    }
    assert!(!transaction.contains(&map, "3 past").unwrap());
    batch.commit().unwrap();
    transaction.commit().unwrap();
    let snapshot = db.snapshot();
    for by in 1..=4 {
        assert_eq!(snapshot.expires_at(&map, format!("{by} until")).unwrap(), Some(end), "{by}");
        assert_eq!(map.ttl(format!("{by} never")).unwrap(), Some(esker::Ttl::Unlimited), "{by}");
        assert!(!map.contains(format!("{by} past")).unwrap(), "{by}");
    }
    world.clock.advance(SECOND * 11);
    assert_eq!(map.iter().count(), 4, "those that never expire");
    check(&db);
}

#[test]
fn a_clock_that_was_far_ahead_is_got_over_by_a_reset() {
    const YEARS: i64 = 80 * 365 * 24 * 3_600_000;
    let world = World::new();
    let mut db = world.open();
    let mut map = db.default_keyspace();
    let until = |world: &World, seconds| {
        std::time::UNIX_EPOCH + esker::env::Clock::unix_time(&*world.clock) + SECOND * seconds
    };
    for key in ["kept", "swept"] {
        map.put_with_ttl(key, "1", SECOND * 1000).unwrap();
    }
    map.put("always", "1").unwrap();
    world.clock.set_wall(YEARS);
    assert_eq!(found(&map, &["always", "kept"]), ["always"]);
    map.put_with_ttl("far", "1", SECOND).unwrap();
    world.clock.set_wall(-YEARS);
    let reopen = |db: Db| {
        db.close().unwrap();
        let db = world.open();
        let map = db.default_keyspace();
        (db, map)
    };
    (db, map) = reopen(db);
    assert_eq!(found(&map, &["always", "far", "kept"]), ["always", "far"], "time.2");
    let mut batch = db.batch();
    batch.put_until(&map, "real", "1", Some(until(&world, 10))).unwrap();
    batch.commit().unwrap();
    assert!(!map.contains("real").unwrap(), "time.1");
    db.reset_time().unwrap();
    let all = ["always", "far", "kept", "real", "swept"];
    for _ in 0..2 {
        assert_eq!(found(&map, &all), all);
        assert_eq!(db.sweep().unwrap(), 0);
        (db, map) = reopen(db);
    }
    world.clock.advance(SECOND * 11);
    assert_eq!(found(&map, &all), ["always", "far", "kept", "swept"]);
    world.clock.set_wall(YEARS);
    assert_eq!(db.sweep().unwrap(), 4);
    world.clock.set_wall(-YEARS);
    db.reset_time().unwrap();
    assert_eq!((found(&map, &all), map.len().unwrap()), (vec!["always".to_owned()], 1));
    check(&db);
}

#[test]
fn conflict_3_sweeps_in_tables_and_of_whole_tables_are_no_conflicts_but_the_writes_under_them_are() {
    // `flushes`: the sweep is in a table when the transaction commits. `is_whole`: the sweep removes a table
    // unread.
    for (is_whole, flushes, is_large) in [
        (false, 0, false),
        (false, 1, false),
        (false, 2, true),
        (true, 0, false),
        (true, 1, true),
        (true, 2, false),
    ] {
        let world = World::new();
        let db = world
            .builder()
            .memory(2 << 20)
            .tuning(|t| t.memtable_bytes(256 << 10))
            .open(Path::new("db"))
            .unwrap();
        let map = db.default_keyspace();
        let put = |ttl: Duration| ["a", "b", "c"].map(|key| map.put_with_ttl(key, "1", ttl).unwrap());
        if !is_whole {
            map.put("d", "for ever").unwrap();
        }
        put(SECOND);
        db.compact().unwrap();
        let begin = || {
            let t = db.begin();
            assert_eq!(t.get(&map, "a").unwrap().is_some(), t.iter(&map).count() >= 3);
            t
        };
        let write = |mut t: esker::Transaction| {
            t.put(&map, "b", "2").unwrap();
            t.put(&map, "x", "2").unwrap();
            if is_large {
                (0..100_u32).for_each(|n| t.put(&map, n.to_be_bytes(), [7; 10_000]).unwrap());
            }
            t.commit().map_err(Error::from)
        };
        let sweep = || {
            assert_eq!(db.sweep().unwrap(), 3);
            match flushes {
                0 => {}
                1 => db.flush().unwrap(),
                _ => db.compact().unwrap(),
            }
        };
        let (reads_it, case) = (begin(), (is_whole, flushes, is_large));
        world.clock.advance(SECOND);
        let finds_nothing = begin();
        sweep();
        write(reads_it).unwrap_or_else(|error| panic!("conflict.3: {case:?}: {error}"));
        // Writes of others conflict even after they expired and were swept.
        drop(finds_nothing);
        map.clear().unwrap();
        if !is_whole {
            map.put("d", "for ever").unwrap();
        }
        db.compact().unwrap();
        let before_the_writes = begin();
        put(SECOND);
        db.flush().unwrap();
        world.clock.advance(SECOND);
        sweep();
        let refused = write(before_the_writes);
        assert!(matches!(refused, Err(Error::Conflict { .. })), "conflict.3: {case:?}: {refused:?}");
        check(&db);
    }
}
