//! Typed tables, together with what else touches their data.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use esker::backup::Backup;
use esker::typed::{Codec, Descending, Json, MessagePack, Multimap, Plain, Postcard, Table, TypedKey};
use esker::{Blobs, Change, Db, Error, History, KeyspaceOptions, Ttl, WriteOptions};
use esker_env::{Env, MemFs};
use serde::{Deserialize, Serialize};

use crate::common::simulated;

/// A table returns what was put, sorted. Ranges agree with it.
fn check<K: TypedKey + PartialOrd + Clone + Debug>(mut keys: Vec<K>) {
    let db = Db::in_memory().unwrap();
    let table: Table<K, u32> = Table::new(db.default_keyspace());
    for (n, key) in keys.iter().enumerate() {
        db.default_keyspace().put(encoded(key), [n as u8]).unwrap();
    }
    keys.sort_by(|a, b| a.partial_cmp(b).unwrap());
    keys.dedup_by(|a, b| (*a).partial_cmp(&*b) == Some(std::cmp::Ordering::Equal));
    let found: Vec<K> = table.keys(..).unwrap().collect::<Result<_, _>>().unwrap();
    assert!(found.partial_cmp(&keys) == Some(std::cmp::Ordering::Equal), "{found:?} {keys:?}");
    let mut back: Vec<K> = table.keys(..).unwrap().rev().collect::<Result<_, _>>().unwrap();
    back.reverse();
    assert!(back.partial_cmp(&keys) == Some(std::cmp::Ordering::Equal), "{back:?} {keys:?}");
}

fn encoded<K: TypedKey>(key: &K) -> Vec<u8> {
    let mut out = esker::typed::Encoder::new();
    key.encode_fields(&mut out);
    out.finish().unwrap()
}

#[derive(TypedKey, Clone, Debug, PartialEq, PartialOrd)]
enum Kind {
    None,
    Number(i32),
    Named { name: String, of: Option<u8> },
}

#[derive(TypedKey, Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Level {
    Low = -300,
    High = 7,
}

#[derive(TypedKey, Clone, Debug, PartialEq, PartialOrd)]
struct User<T>(T);

#[derive(TypedKey, Clone, Debug, PartialEq, PartialOrd)]
struct Visit {
    user: User<String>,
    level: Level,
    second: u64,
}

#[test]
fn keys_come_in_the_order_of_their_type() {
    let mut rng = fastrand::Rng::with_seed(1);
    let texts: Vec<String> = (0..200)
        .map(|_| (0..rng.usize(0..5)).map(|_| ['\0', '\u{1}', 'a', '\u{e9}'][rng.usize(0..4)]).collect())
        .collect();
    let numbers: Vec<i64> = (0..200).map(|_| rng.i64(..) >> rng.u32(0..64)).collect();
    check(numbers.clone());
    check(texts.clone());
    check(texts.iter().map(|t| Descending(t.clone())).collect());
    let pairs = texts.iter().cloned().zip(numbers.iter().copied());
    check(pairs.clone().map(|(t, n)| (Descending(n % 4), t, n as u16)).collect());
    let kinds = pairs.clone().map(|(name, n)| match n.rem_euclid(3) {
        0 => Kind::None,
        1 => Kind::Number(n as i32),
        _ => Kind::Named { name, of: (n % 2 == 0).then_some(n as u8) },
    });
    check(kinds.collect());
    let visits = pairs.map(|(name, n)| Visit {
        user: User(name),
        level: if n > 0 { Level::High } else { Level::Low },
        second: n as u64 % 4,
    });
    check(visits.collect());
}

#[test]
fn borrowed_keys_prefixes_and_ranges() {
    let db = Db::in_memory().unwrap();
    let table: Table<Visit, String> = Table::new(db.default_keyspace());
    for (user, second) in [("a", 1), ("a", 2), ("a\0", 1), ("b", 1), ("c", 1)] {
        let visit = Visit { user: User(user.to_owned()), level: Level::High, second };
        table.put(&visit, &format!("{user}{second}")).unwrap();
        assert!(table.contains(&visit).unwrap());
    }
    let user = |name: &str| User(name.to_owned());
    let names =
        |entries: esker::typed::Entries<Visit, String>| entries.map(|e| e.unwrap().1).collect::<Vec<_>>();
    assert_eq!(table.get(&(user("a"), Level::High, 2)).unwrap().as_deref(), Some("a2"));
    assert_eq!(names(table.prefix(&(user("a"),)).unwrap()), ["a1", "a2"]);
    assert_eq!(names(table.range((user("a"),)..=(user("b"),)).unwrap()), ["a1", "a2", "a\x001", "b1"]);
    assert_eq!(names(table.range((user("a\0"),)..(user("c"),)).unwrap()), ["a\x001", "b1"]);
    table.delete_prefix(&(user("a"),)).unwrap();
    table.delete_range((user("c"),)..).unwrap();
    assert_eq!(names(table.iter()), ["a\x001", "b1"]);

    let pairs: Table<(u64, String), u32> = Table::new(db.keyspace("pairs").unwrap());
    pairs.put(&(7, "a"), &1).unwrap();
    pairs.put(&(7, "b"), &2).unwrap();
    assert_eq!(pairs.multi_get([(7, "b"), (8, "b")]).unwrap(), [Some(2), None]);
    assert_eq!(pairs.range((7, "b")..).unwrap().count(), 1);
    assert_eq!(pairs.keys((7,)..(8,)).unwrap().count(), 2);
    pairs.put(&(8, "a"), &3).unwrap();
    assert_eq!(pairs.keys(((7, "b").., ..=(7,))).unwrap().count(), 1);
    assert_eq!(pairs.keys(((7,).., ..(8, "a"))).unwrap().count(), 2);
    assert_eq!(pairs.keys((((8,).., ..(9, "a")), ..(8,))).unwrap().count(), 0);
    assert_eq!(pairs.keys(((Bound::Excluded((7, "a")), Bound::Unbounded), ..=(7,))).unwrap().count(), 1);
    pairs.delete(&(8, "a")).unwrap();
    assert_eq!(pairs.first().unwrap(), Some(((7, "a".to_owned()), 1)));
    assert_eq!(pairs.last().unwrap(), Some(((7, "b".to_owned()), 2)));
}

#[test]
fn transactions_batches_savepoints_and_snapshots() {
    let db = Db::in_memory().unwrap();
    let table: Table<(u32, String), i64, Plain> = Table::new(db.keyspace("t").unwrap());
    table.put(&(1, "a"), &10).unwrap();
    let snapshot = db.snapshot();
    let mut t = db.begin();
    assert_eq!(table.on(&mut t).remove(&(1, "a")).unwrap(), Some(10));
    let point = t.savepoint();
    table.on(&mut t).put(&(1, "b"), &20).unwrap();
    table.on(&mut t).delete_prefix(&(1,)).unwrap();
    assert_eq!(table.on(&mut t).fetch_add(&(2, "n"), 5).unwrap(), 0);
    assert_eq!(table.at(&t).iter().count(), 1);
    t.rollback_to(&point).unwrap();
    assert!(table.at(&t).is_empty().unwrap());
    table.on(&mut t).put(&(1, "c"), &30).unwrap();
    t.commit().unwrap();
    assert_eq!(table.at(&snapshot).get(&(1, "a")).unwrap(), Some(10));
    let mut batch = db.batch();
    table.on(&mut batch).put(&(3, "x"), &1).unwrap();
    table.on(&mut batch).delete_range((1,)..(2,)).unwrap();
    batch.commit().unwrap();
    assert_eq!(table.pop_last().unwrap(), Some(((3, "x".to_owned()), 1)));
    assert!(table.is_empty().unwrap());

    assert_eq!(table.update(&(1, "n"), |old| Some(old.unwrap_or(1) + 1)).unwrap().new, Some(2));
    let failed =
        table.try_update(&(1, "n"), |_| -> Result<_, Box<dyn std::error::Error>> { Err("no".into()) });
    assert_eq!(failed.unwrap_err().to_string(), "no");
    assert!(!table.compare_and_swap(&(1, "n"), None, Some(&9)).unwrap().swapped);
    let swap = table.compare_and_swap(&(1, "n"), Some(&2), Some(&9)).unwrap();
    assert_eq!((swap.swapped, swap.old, table.get(&(1, "n")).unwrap()), (true, Some(2), Some(9)));
    db.drop_keyspace("t").unwrap();
    assert!(matches!(table.get(&(1, "n")), Err(esker::Error::KeyspaceNotFound(_))));
}

#[test]
fn lifetimes_merges_history_watches_and_the_feed() {
    let db = Db::builder().feed_retention(1 << 20, Duration::from_secs(3600)).open_in_memory().unwrap();
    let table: Table<String, u64, Plain> = Table::new(db.keyspace("views").unwrap());
    table.keyspace().set_merge_operator("add-u64").unwrap();
    table.keyspace().set_history(History::Versions(10)).unwrap();
    let before = db.snapshot().seqno();
    let mut watch = table.watch(..).unwrap();
    let first = table.put("home", &1).unwrap();
    table.merge("home", &2).unwrap();
    assert_eq!((table.get("home").unwrap(), table.get_at("home", first).unwrap()), (Some(3), Some(1)));
    assert_eq!(table.as_of(first).unwrap().get("home").unwrap(), Some(1));
    let versions: Vec<_> = table.versions("home").unwrap().map(|v| v.unwrap().value).collect();
    assert_eq!(versions, [Some(3), Some(1)]);
    table.put_with_ttl("home", &5, Duration::from_secs(60)).unwrap();
    table.merge_bytes("home", &1_u64.to_le_bytes()).unwrap();
    assert!(matches!(table.ttl("home").unwrap(), Some(Ttl::Left(_))));
    assert!(table.persist("home").unwrap() && table.expire("home", Duration::ZERO).unwrap());
    assert_eq!(table.get("home").unwrap(), None);

    let key = || "home".to_owned();
    assert_eq!(watch.try_next().unwrap(), Some((first, Change::Put { key: key(), value: Some(1) })));
    assert!(matches!(watch.next(), Some(Ok((_, Change::Put { value: None, .. })))), "a merge");
    let mut feed = db.feed_after(before).unwrap();
    let mut commit = feed.try_next().unwrap().unwrap();
    let other: Table<String, u64, Plain> = Table::new(db.default_keyspace());
    let change = commit.next_change().unwrap().unwrap();
    assert_eq!(other.change_of(&change).unwrap(), None);
    assert_eq!(table.change_of(&change).unwrap(), Some(Change::Put { key: key(), value: Some(1) }));
    table.delete_prefix("home").unwrap();
    assert!(watch.any(|change| matches!(change, Ok((_, Change::DeleteRange { .. })))));
}

#[test]
fn a_multimap_keeps_sorted_values() {
    let db = Db::in_memory().unwrap();
    let map: Multimap<String, (u32, Descending<u8>)> = Multimap::new(db.keyspace("m").unwrap());
    for (key, n) in [("a", 2), ("a", 1), ("a", 1), ("a\0", 3), ("b", 4)] {
        map.insert(key, &(n, Descending(0))).unwrap();
    }
    map.insert("a", &(1, Descending(9))).unwrap();
    let values = |map: &Multimap<_, _>, key: &str| {
        map.get(key).unwrap().map(|v: esker::Result<(u32, Descending<u8>)>| v.unwrap().0).collect::<Vec<_>>()
    };
    assert_eq!((values(&map, "a"), values(&map, "a\0"), map.len().unwrap()), (vec![1, 1, 2], vec![3], 5));
    assert_eq!(map.range("a"..="a\0").unwrap().map(|pair| pair.unwrap().1.0).last(), Some(3));
    #[cfg(feature = "tokio")]
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let mut stream = map.iter().into_stream();
        for pair in map.iter() {
            assert_eq!(stream.next().await.unwrap().unwrap(), pair.unwrap());
        }
        assert!(stream.next().await.is_none());
        let mut stream = map.get("a").unwrap().into_stream();
        for value in map.get("a").unwrap() {
            assert_eq!(stream.next().await.unwrap().unwrap(), value.unwrap());
        }
        assert!(stream.next().await.is_none());
    });
    let mut t = db.begin();
    map.on(&mut t).delete_all("a").unwrap();
    map.on(&mut t).insert("b", &(5, Descending(0))).unwrap();
    assert_eq!(map.at(&t).iter().next_back().unwrap().unwrap(), ("b".to_owned(), (5, Descending(0))));
    t.commit().unwrap();
    assert_eq!((values(&map, "a"), values(&map, "b")), (vec![], vec![4, 5]));
    map.delete_range("b"..).unwrap();
    assert_eq!(map.iter().count(), 1);
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Old {
    name: String,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct New {
    name: String,
    #[serde(default)]
    age: u32,
}

#[test]
fn fields_can_be_added_where_the_codec_says_so() {
    fn reads_old<C: Codec<Old> + Codec<New>>() -> bool {
        let map = Db::in_memory().unwrap().default_keyspace();
        Table::<u8, Old, C>::new(map.clone()).put(&1, &Old { name: "ann".to_owned() }).unwrap();
        let new = Table::<u8, New, C>::new(map).get(&1);
        new.is_ok_and(|new| new == Some(New { name: "ann".to_owned(), age: 0 }))
    }
    assert!(reads_old::<MessagePack>() && reads_old::<Json>() && !reads_old::<Postcard>());
    let refuses_more = |decoded: Result<u64, String>| decoded.is_err_and(|e| e.contains("2 bytes follow"));
    // What could not be read back is not stored.
    assert!(Json::encode(&f64::NAN).is_err() && Postcard::encode(&f64::NAN).is_ok());
    assert!(refuses_more(MessagePack::decode(&[5, 9, 9])) && refuses_more(Postcard::decode(&[5, 9, 9])));
}

#[test]
fn an_entry_of_another_type_is_an_error() {
    let map = Db::in_memory().unwrap().default_keyspace();
    let plain: Table<u32, String, Plain> = Table::new(map.clone());
    plain.put(&1, &"one".to_owned()).unwrap();
    assert_eq!(map.get(b"\x15\x01").unwrap().as_deref(), Some(&b"one"[..]));
    map.put("\x02no number\0", "x").unwrap();
    map.put(b"\x15\x02", b"\xff").unwrap();
    assert!(plain.get(&2).is_err());
    let entries: Vec<_> = plain.iter().map(|entry| entry.is_ok()).collect();
    assert_eq!(entries, [false, true, false]);
}

/// The entries of a table by all ways to walk.
fn walked(table: &Table<(u16, String), Vec<u8>>) -> Vec<((u16, String), Vec<u8>)> {
    let entries: Vec<_> = table.iter().map(Result::unwrap).collect();
    let mut cursor = table.cursor(..).unwrap();
    let mut back = Vec::new();
    let mut is_there = cursor.seek_last().unwrap();
    while is_there {
        back.push(cursor.entry().unwrap().unwrap());
        is_there = cursor.prev().unwrap();
    }
    assert!(back.iter().rev().eq(&entries));
    assert!(cursor.entry().unwrap().is_none() && cursor.key().unwrap().is_none());
    if let Some((middle, _)) = entries.get(entries.len() / 2) {
        assert!(cursor.seek(middle).unwrap());
        assert_eq!(cursor.key().unwrap().as_ref(), Some(middle));
        assert_eq!(cursor.seek_before(middle).unwrap(), entries.len() > 1);
        let first = entries.iter().position(|(key, _)| key.0 == middle.0).unwrap();
        assert!(cursor.seek(&(middle.0,)).unwrap());
        assert_eq!(cursor.key().unwrap().as_ref(), Some(&entries[first].0));
        assert_eq!(cursor.seek_before(&(middle.0,)).unwrap(), first > 0);
    }
    assert_eq!(table.len().unwrap(), entries.len() as u64);
    entries
}

#[test]
fn tables_with_blobs_large_transactions_and_copies() {
    let (fs, hour) = (Arc::new(MemFs::new()), Duration::from_secs(3600));
    let builder = || {
        let builder = simulated(fs.clone()).stepped().blobs(Blobs::From(200)).feed_retention(1 << 20, hour);
        builder.tuning(|t| t.transaction_memory(1 << 10))
    };
    let db = builder().open("db").unwrap();
    let mut options = KeyspaceOptions::default();
    options.history = History::Versions(5);
    let open = |db: &Db| Table::<(u16, String), Vec<u8>>::new(db.keyspace("t").unwrap());
    db.create_keyspace_with("t", options).unwrap();
    let table = open(&db);
    let mut large = db.begin();
    for n in 0..300_u16 {
        table.on(&mut large).put(&(n % 7, format!("{n:03}")), &vec![n as u8; usize::from(n) * 2]).unwrap();
    }
    table.on(&mut large).delete_prefix(&(3,)).unwrap();
    let loaded = large.commit().unwrap();
    let mut ingest = table.ingest();
    (0..50).for_each(|n| ingest.put(&(9, format!("{n:03}")), &vec![9; 10 * n]).unwrap());
    assert!(matches!(ingest.put(&(1, "below"), &vec![]), Err(Error::OutOfOrder { .. })));
    ingest.commit().unwrap();
    table.with(WriteOptions::default().ttl(Duration::from_secs(1))).put(&(10, "short"), &vec![1]).unwrap();
    let snapshot = db.snapshot();
    assert!(matches!(table.at(&snapshot).ttl(&(10, "short")).unwrap(), Some(Ttl::Left(_))));
    table.delete_range((0, "100")..(1, "")).unwrap();
    let expected = walked(&table);
    assert_eq!(expected.iter().filter(|((n, _), _)| *n == 3).count(), 0);

    let changes: Vec<_> = table.since(loaded).unwrap().map(|change| change.unwrap().1).collect();
    assert!(changes.contains(&Change::Put { key: (9, "001".to_owned()), value: Some(vec![9; 10]) }));
    assert_eq!(changes.iter().filter(|c| matches!(c, Change::DeleteRange { .. })).count(), 1);
    db.checkpoint("copy").unwrap();
    let mut backup = Backup::open_in(Env::simulated(fs.clone(), 7), "backups").unwrap();
    let id = backup.create(&db).unwrap().id;
    backup.restore("restored").backup(id).run().unwrap();
    for copy in ["copy", "restored"] {
        let copy = builder().open(copy).unwrap();
        assert_eq!(walked(&open(&copy)), expected);
        assert_eq!(open(&copy).as_of(loaded).unwrap().iter().count(), 300 - 43);
    }
    #[cfg(feature = "tokio")]
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let (mut entries, mut keys) = (table.iter().into_stream(), table.keys(..).unwrap().into_stream());
        let mut changes = table.watch(..).unwrap().into_stream();
        let since = || table.since(loaded).unwrap();
        let (mut stream, expected_changes) = (since().into_stream(), since().map(Result::unwrap));
        for change in expected_changes {
            assert_eq!(stream.next().await.unwrap().unwrap(), change);
        }
        assert!(stream.next().await.is_none());
        for (key, value) in &expected {
            assert_eq!(keys.next().await.unwrap().unwrap(), *key);
            assert_eq!(entries.next().await.unwrap().unwrap(), (key.clone(), value.clone()));
        }
        assert!(entries.next().await.is_none() && keys.next().await.is_none());
        let key = &expected[0].0;
        let mut versions = table.versions(key).unwrap().into_stream();
        for version in table.versions(key).unwrap() {
            assert_eq!(versions.next().await.unwrap().unwrap(), version.unwrap());
        }
        assert!(versions.next().await.is_none());
        let key = (0, "new".to_owned());
        let seqno = table.put(&key, &vec![7; 100]).unwrap();
        let put = Change::Put { key, value: Some(vec![7; 100]) };
        assert_eq!(changes.next().await.unwrap().unwrap(), (seqno, put));
    });
}

/// All names of the crate and of its typed tables at once.
mod globs {
    use esker::typed::*;
    use esker::*;

    #[derive(TypedKey, Debug, PartialEq)]
    struct Visit {
        user: String,
    }

    #[test]
    fn the_names_of_the_crate_and_of_typed_differ() {
        let table: Table<Visit, u32> = Table::new(Db::in_memory().unwrap().default_keyspace());
        table.put(&("a",), &1).unwrap();
        let key: Key = table.keyspace().first().unwrap().unwrap().0;
        assert_eq!((&key[..], table.first().unwrap().unwrap().1), (&b"\x02a\0"[..], 1));
    }
}
