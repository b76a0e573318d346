//! The API for programs: each convenience does what its documentation says, even while others write.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use esker::env::{Env, MemFs};
use esker::{Contended, Db, Durability, Error, Key, Keyspace, KeyspaceOptions, LockMode, Reads, Value};

fn db() -> Db {
    Db::in_memory().unwrap()
}

fn names(db: &Db) -> Vec<String> {
    db.keyspaces().unwrap()
}

#[test]
fn a_database_in_memory_takes_every_kind_of_work_and_each_is_another() {
    let (db, other) = (db(), Db::builder().memory(1 << 20).open_in_memory().unwrap());
    let map = db.default_keyspace();
    for n in 0..2000_u32 {
        map.with(Durability::None).put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    db.compact().unwrap();
    assert_eq!((map.len().unwrap(), other.default_keyspace().len().unwrap()), (2000, 0));
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn commits_are_numbered_one_after_the_other() {
    let db = db();
    let map = db.default_keyspace();
    let put = map.put("a", "1").unwrap();
    let removed = map.with(Durability::Buffered).delete("a").unwrap();
    let cleared = map.clear().unwrap();
    let mut batch = db.batch();
    batch.put(&map, "b", "2").unwrap();
    let batch = batch.commit().unwrap();
    let done = db.transaction().durability(Durability::None).run(|t| t.put(&map, "c", "3")).unwrap();
    let numbers: Vec<_> = [put, removed, cleared, batch, done.seqno].iter().map(|n| n.get()).collect();
    let first = numbers[0];
    assert_eq!(numbers, (first..first + 5).collect::<Vec<_>>());
    assert_eq!((done.attempts, db.snapshot().seqno()), (1, done.seqno));
}

#[test]
fn a_commit_that_finds_no_space_can_be_tried_again_and_so_can_a_transaction() {
    let fs = MemFs::new();
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let db = Db::builder().background(false).env(env).open("db").unwrap();
    let map = db.default_keyspace();
    let large = vec![1; 4 << 20];
    let mut batch = db.batch();
    batch.put(&map, "batch", &large).unwrap();
    let fresh = batch.create_keyspace("fresh").unwrap();
    batch.put(&fresh, "a", "1").unwrap();
    fs.set_capacity(Some(fs.used_bytes() + 1000));
    let failed = batch.commit().unwrap_err();
    assert!(matches!(failed.error, Error::NoSpace { .. }), "{failed:?}");
    assert!(fresh.put("b", "2").is_err() && names(&db) == ["default"]);
    let mut transaction = db.begin();
    transaction.put(&map, "transaction", &large).unwrap();
    let again = transaction.commit().unwrap_err();
    fs.set_capacity(None);
    failed.given_back.commit().unwrap();
    again.given_back.commit().unwrap();
    fresh.put("b", "2").unwrap();
    assert_eq!((map.len().unwrap(), fresh.len().unwrap(), names(&db).len()), (2, 2, 2));
}

#[test]
fn a_conflict_names_its_keyspace_and_its_key_or_range() {
    let db = db();
    let users = db.keyspace("users").unwrap();
    let conflict = |write: &dyn Fn(&mut esker::Transaction)| {
        let mut transaction = db.begin();
        write(&mut transaction);
        users.put("k", "other").unwrap();
        let failed = transaction.commit().unwrap_err();
        let text = failed.to_string();
        assert!(text.contains("\"users\"") || text.contains("\"new\""), "{text}");
        let Error::Conflict { keyspace, contended } = failed.error else { panic!("{text}") };
        (keyspace, contended)
    };
    let on_users = |contended| ("users".to_owned(), contended);
    let (a, z) = (b"a".to_vec(), Some(b"z".to_vec()));
    assert_eq!(conflict(&|t| t.put(&users, "k", "1").unwrap()), on_users(Contended::Key(b"k".to_vec())));
    let range = Contended::Range { start: a.clone(), end: z };
    assert_eq!(conflict(&|t| t.delete_range(&users, "a".."z").unwrap()), on_users(range));
    assert_eq!(
        conflict(&|t| t.clear(&users).unwrap()),
        on_users(Contended::Range { start: vec![], end: None })
    );
    let twice = conflict(&|t| {
        t.create_keyspace("new").unwrap();
        db.create_keyspace("new").unwrap();
    });
    assert_eq!(twice, ("new".to_owned(), Contended::Keyspace));
}

#[derive(Debug)]
enum Trouble {
    Engine,
    Mine,
}

impl From<Error> for Trouble {
    fn from(_: Error) -> Self {
        Trouble::Engine
    }
}

#[test]
fn a_transaction_can_be_given_up_with_an_error_of_its_own() {
    let db = db();
    let map = db.default_keyspace();
    let given_up = db.transact(|t| {
        t.put(&map, "a", "1")?;
        Err::<(), _>(Trouble::Mine)
    });
    assert!(matches!(given_up, Err(Trouble::Mine)) && map.is_empty().unwrap());
    let refused = db.transact(|t| -> Result<(), Trouble> { Ok(t.put(&map, vec![0; 1 << 20], "1")?) });
    assert!(matches!(refused, Err(Trouble::Engine)));
}

/// Slow transactions add to a key while others write the same key as fast as they can.
#[test]
fn a_slow_transaction_commits_against_a_hot_key() {
    let db = db();
    let map = db.default_keyspace();
    map.fetch_add("hot", 0).unwrap();
    let (begun, attempts, stop) = (Barrier::new(3), AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                begun.wait();
                while !stop.load(Ordering::Relaxed) {
                    map.put("hot", 5_i64.to_le_bytes()).unwrap();
                }
            });
        }
        begun.wait();
        for _ in 0..3 {
            let done = db.transaction().durability(Durability::None).run(|t| {
                let before = t.get(&map, "hot")?;
                std::thread::sleep(Duration::from_millis(5));
                t.put(&map, "hot", before.unwrap())
            });
            attempts.fetch_max(done.unwrap().attempts, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let attempts = attempts.into_inner();
    assert!((8..16).contains(&attempts), "{attempts} tries");
    assert!(db.stats().conflicts >= u64::from(attempts) - 1);
}

#[test]
fn a_body_that_commits_by_another_way_is_not_stopped_by_its_own_turn() {
    let db = db();
    let map = db.default_keyspace();
    let done = db.transaction().durability(Durability::None).run(|t| {
        if t.attempt() < 12 {
            map.put("own", "by another way")?;
        }
        t.put(&map, "own", "1")
    });
    assert_eq!(done.unwrap().attempts, 12);
}

#[test]
fn a_keyspace_whose_creation_was_rolled_back_takes_no_writes() {
    let db = db();
    let map = db.default_keyspace();
    let mut t = db.begin();
    let point = t.savepoint();
    let gone = t.create_keyspace("k").unwrap();
    t.put(&gone, "a", "0").unwrap();
    t.rollback_to(&point).unwrap();
    let is_gone = |put: Result<(), Error>| matches!(put, Err(Error::KeyspaceNotFound(name)) if name == "k");
    assert!(is_gone(t.put(&gone, "a", "b")));
    let kept = t.create_keyspace("k").unwrap();
    assert!(is_gone(t.put(&gone, "a", "b")) && is_gone(t.delete(&gone, "a")));
    t.put(&kept, "a", "1").unwrap();
    t.put(&map, "x", "y").unwrap();
    t.commit().unwrap();
    assert_eq!(kept.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    let too_long = map.put_from("a", &mut &b""[..], 1 << 33);
    assert!(matches!(too_long, Err(Error::ValueTooLong { len }) if len == 1 << 33));
}

/// Reads everything by every method of the trait.
fn read(map: &impl Reads) -> (Vec<(Key, Value)>, u64) {
    let all: Vec<_> = map.iter().map(Result::unwrap).collect();
    let keys: Vec<_> = map.keys(..).map(Result::unwrap).collect();
    assert!(keys.iter().eq(all.iter().map(|(key, _)| key)));
    assert_eq!(map.first().unwrap(), all.first().cloned());
    assert_eq!(map.last().unwrap(), all.last().cloned());
    assert_eq!(map.is_empty().unwrap(), all.is_empty());
    let values: Vec<_> = all.iter().map(|(_, value)| Some(value.clone())).collect();
    assert_eq!(map.multi_get(&keys).unwrap(), values);
    for (key, value) in &all {
        assert!(map.contains(key).unwrap() && map.get(key).unwrap().as_ref() == Some(value));
        assert_eq!(map.range(key..=key).count(), 1);
        let mut cursor = map.cursor_in(key..).unwrap();
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.peek().unwrap(), Some((&**key, &**value)));
    }
    let mut cursor = map.cursor().unwrap();
    let mut backward = 0;
    while cursor.prev().unwrap() {
        backward += 1;
    }
    assert!(!cursor.next().unwrap() && cursor.peek().unwrap().is_none(), "it stays behind the first");
    assert_eq!(backward, all.len());
    assert_eq!(map.prefix("").count(), all.len());
    (all, map.len().unwrap())
}

#[test]
fn all_views_of_a_keyspace_read_alike() {
    let db = db();
    let (map, other) = (db.keyspace("map").unwrap(), db.keyspace("other").unwrap());
    for n in 0..20_u8 {
        map.put([n], [n]).unwrap();
    }
    let snapshot = db.snapshot();
    let mut transaction = db.begin();
    transaction.delete_range(&map, [3_u8]..[9]).unwrap();
    transaction.put(&map, [4], "new").unwrap();
    transaction.put(&map, [19], "changed").unwrap();
    transaction.delete(&map, [11]).unwrap();
    transaction.delete(&map, [99]).unwrap();
    transaction.put(&other, [1], "").unwrap();
    map.delete_prefix([0]).unwrap();
    assert_eq!(read(&map).1, 19);
    assert_eq!(read(&snapshot.keyspace(&map)).1, 20);
    let (entries, len) = read(&transaction.keyspace(&map));
    assert_eq!((entries.len() as u64, len), (14, 14));
    assert_eq!(read(&transaction.keyspace_mut(&map)).0, entries);
    assert_eq!(transaction.len(&other).unwrap(), 1);
}

/// The same calls on a keyspace and on a keyspace of a transaction.
macro_rules! update {
    ($map:expr) => {{
        let map = $map;
        assert_eq!(map.fetch_add("n", 5).unwrap(), 0);
        assert_eq!(map.fetch_add("n", -7).unwrap(), 5);
        assert_eq!(map.fetch_add("n", i64::MIN).unwrap(), -2);
        assert_eq!(map.fetch_add("n", i64::MIN).unwrap(), i64::MAX - 1);
        let swaps: [(Option<&[u8]>, Option<&[u8]>, bool, Option<&[u8]>); 4] = [
            (Some(b"1"), Some(b"2"), false, None),
            (None, Some(b"2"), true, None),
            (None, Some(b"3"), false, Some(b"2")),
            (Some(b"2"), None, true, Some(b"2")),
        ];
        for (expected, new, swapped, old) in swaps {
            let swap = map.compare_and_swap("c", expected, new).unwrap();
            assert_eq!((swap.swapped, swap.old.as_deref()), (swapped, old));
        }
        map.put("c", "2").unwrap();
        assert!(map.fetch_add("c", 1).is_err());
        map.delete("c").unwrap();
        let update = map.update("u", |old| Some(if old.is_none() { "new" } else { "" })).unwrap();
        assert_eq!((update.old, update.new.unwrap()), (None, "new".into()));
        let update = map.update("u", |old| old.map(|old| [old, b"er"].concat())).unwrap();
        assert_eq!((update.old.unwrap(), update.new.unwrap()), ("new".into(), "newer".into()));
        let closed = map.try_update("u", |_| Err::<Option<Vec<u8>>, _>(esker::Error::Closed));
        assert!(matches!(closed, Err(esker::Error::Closed)));
        assert_eq!(map.remove("u").unwrap().unwrap(), "newer");
        assert_eq!(map.remove("u").unwrap(), None);
        map.put("a", "first").unwrap();
        map.put("z", "last").unwrap();
        map.put("za", "very last").unwrap();
        assert_eq!(map.pop_first().unwrap().unwrap().1, "first");
        map.delete_prefix("za").unwrap();
        assert_eq!(map.pop_last().unwrap().unwrap().0, "z");
        assert_eq!(map.get("n").unwrap().unwrap(), (-2_i64).to_le_bytes());
        assert_eq!(map.pop_last().unwrap().unwrap().0, "n");
        assert_eq!(map.pop_last().unwrap(), None);
    }};
}

#[test]
fn updates_do_what_they_say_on_a_keyspace_and_in_a_transaction() {
    let db = db();
    let map = db.default_keyspace();
    update!(&map);
    let mut transaction = db.begin();
    let mut view = transaction.keyspace_mut(&map);
    update!(&mut view);
    assert!(view.is_empty().unwrap());
}

#[test]
fn updates_of_many_threads_are_all_done() {
    let db = Db::builder().durability(Durability::None).open_in_memory().unwrap();
    let (map, queue) = (db.default_keyspace(), db.keyspace("queue").unwrap());
    (0..200_u8).for_each(|n| queue.put([n], "").map(drop).unwrap());
    let popped: Vec<Vec<Key>> = std::thread::scope(|scope| {
        let threads = (0..4).map(|_| {
            scope.spawn(|| {
                (0..50).for_each(|_| map.fetch_add("n", 1).map(drop).unwrap());
                (0..50).map(|_| queue.pop_first().unwrap().unwrap().0).collect()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(map.fetch_add("n", 0).unwrap(), 200);
    let mut popped: Vec<_> = popped.concat();
    popped.sort();
    assert!(popped.iter().map(|key| key[0]).eq(0..200), "each once");
}

#[test]
fn keyspaces_change_together_with_what_is_written_to_them() {
    let fs = Arc::new(MemFs::new());
    let open = || Db::builder().background(false).env(Env::simulated(fs.clone(), 1)).open("db").unwrap();
    let db = open();
    let [old, gone] = ["old", "gone"].map(|name| db.create_keyspace(name).unwrap());
    for map in [&old, &gone] {
        map.put("a", "1").unwrap();
    }
    let mut batch = db.batch();
    let new = batch.create_keyspace("new").unwrap();
    batch.put(&new, "b", "2").unwrap();
    batch.put(&gone, "b", "forgotten").unwrap();
    batch.rename_keyspace("old", "renamed").unwrap();
    batch.drop_keyspace("gone").unwrap();
    assert!(matches!(batch.put(&gone, "c", "3"), Err(Error::KeyspaceNotFound(_))));
    let again = batch.create_keyspace("gone").unwrap();
    batch.put(&again, "again", "1").unwrap();
    let passing = batch.create_keyspace("passing").unwrap();
    batch.put(&passing, "a", "1").unwrap();
    batch.drop_keyspace("passing").unwrap();
    batch.clear(&old).unwrap();
    assert_eq!(names(&db), ["default", "gone", "old"], "nothing before the commit");
    assert!(matches!(new.put("c", "3"), Err(Error::KeyspaceNotFound(_))), "catalog_changes.3");
    assert!(matches!(new.get("b"), Err(Error::KeyspaceNotFound(_))));
    batch.commit().unwrap();
    new.put("c", "3").unwrap();
    let expect = |db: &Db| {
        let lens: BTreeMap<_, _> = names(db)
            .into_iter()
            .map(|name| (name.clone(), db.open_keyspace(&name).unwrap().len().unwrap()))
            .collect();
        let expected = [("default", 0), ("gone", 1), ("new", 2), ("renamed", 0)];
        assert_eq!(lens, expected.map(|(name, len)| (name.to_owned(), len)).into());
        assert!(db.check().unwrap().problems.is_empty());
    };
    expect(&db);
    assert!([&gone, &passing].iter().all(|map| matches!(map.get("a"), Err(Error::KeyspaceNotFound(_)))));
    db.close().unwrap();
    expect(&open());
}

#[test]
fn a_batch_or_transaction_that_others_have_overtaken_changes_nothing() {
    let db = db();
    let mut batch = db.batch();
    let map = batch.create_keyspace("map").unwrap();
    batch.put(&map, "a", "1").unwrap();
    batch.put(&db.default_keyspace(), "a", "1").unwrap();
    let mut transaction = db.begin();
    transaction.create_keyspace("map").unwrap();
    let other = db.create_keyspace("map").unwrap();
    assert!(matches!(batch.commit().unwrap_err().error, Error::KeyspaceExists(_)));
    assert!(matches!(transaction.commit().unwrap_err().error, Error::Conflict { .. }));
    assert!(other.is_empty().unwrap() && db.default_keyspace().is_empty().unwrap());
    let mut batch = db.batch();
    batch.rename_keyspace("map", "else").unwrap();
    db.drop_keyspace("map").unwrap();
    assert!(matches!(batch.commit().unwrap_err().error, Error::KeyspaceNotFound(_)));
    // Another keyspace has the name by now.
    db.create_keyspace("map").unwrap();
    let mut batch = db.batch();
    batch.drop_keyspace("map").unwrap();
    db.drop_keyspace("map").unwrap();
    db.create_keyspace("map").unwrap();
    assert!(matches!(batch.commit().unwrap_err().error, Error::KeyspaceNotFound(_)));
    // A failed call leaves the batch unchanged.
    let mut batch = db.batch();
    assert!(matches!(batch.create_keyspace("map"), Err(Error::KeyspaceExists(_))));
    assert!(matches!(batch.drop_keyspace("nothing"), Err(Error::KeyspaceNotFound(_))));
    batch.put(&db.default_keyspace(), "b", "2").unwrap();
    db.drop_keyspace("map").unwrap();
    batch.commit().unwrap();
    db.default_keyspace().clear().unwrap();
    // A transaction reads what it creates, and finds it by its name.
    let made = db.transact(|t| {
        let own = t.create_keyspace("own")?;
        t.put(&own, "a", "1")?;
        let found = t.open_keyspace("own")?;
        assert_eq!((t.len(&found)?, t.iter(&found).count(), t.get(&own, "a")?.is_some()), (1, 1, true));
        t.rename_keyspace("own", "final")?;
        Ok::<_, Error>(own)
    });
    assert_eq!(
        (made.unwrap().name(), names(&db)),
        ("final".to_owned(), vec!["default".to_owned(), "final".to_owned()])
    );
}

#[test]
fn an_iterator_turns_after_a_commit_into_a_memtable_that_was_empty() {
    let db = db();
    let map = db.default_keyspace();
    (0..9_u8).for_each(|n| map.put([n], "").map(drop).unwrap());
    db.compact().unwrap();
    for turns in [false, true] {
        let mut range = map.range([0]..=[8]);
        let ends = |range: &mut esker::Range, back: bool| if back { range.next_back() } else { range.next() };
        let first = ends(&mut range, turns).unwrap().unwrap().0;
        map.put([99], "new").unwrap();
        let last = ends(&mut range, !turns).unwrap().unwrap().0;
        assert_eq!((first[0].min(last[0]), first[0].max(last[0]), range.count()), (0, 8, 7));
        db.compact().unwrap();
    }
}

#[test]
fn drop_mark_2_a_drop_that_conflicts_blocks_no_writer() {
    let db = Db::builder().durability(Durability::None).open_in_memory().unwrap();
    let map = db.keyspace("map").unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..20_000_u32).all(|n| map.put(n.to_be_bytes(), "").is_ok()));
        while !writer.is_finished() {
            let mut transaction = db.begin();
            transaction.drop_keyspace("map").unwrap();
            map.put("in its way", "").unwrap();
            assert!(matches!(transaction.commit().unwrap_err().error, Error::Conflict { .. }));
        }
        assert!(writer.join().unwrap(), "drop_mark.2");
    });
}

#[test]
fn view_2_handles_fail_after_a_close_even_if_the_directory_is_open_again() {
    let fs = Arc::new(MemFs::new());
    let open = || Db::builder().background(false).env(Env::simulated(fs.clone(), 1)).open("db").unwrap();
    let db = open();
    let map = db.keyspace("map").unwrap();
    for n in 0..9_u8 {
        map.put([n], "old").unwrap();
    }
    let (snapshot, mut transaction, mut range) = (db.snapshot(), db.begin(), map.iter());
    transaction.put(&map, "own", "1").unwrap();
    let mut cursor = map.cursor().unwrap();
    assert!(range.next().unwrap().is_ok() && cursor.next().unwrap());
    db.clone().close().unwrap();
    open().keyspace("map").unwrap().clear().unwrap();
    let failures: Vec<Result<(), Error>> = vec![
        map.get([1]).map(drop),
        map.contains([1]).map(drop),
        map.multi_get(&[[1]]).map(drop),
        map.first().map(drop),
        map.len().map(drop),
        map.cursor().map(drop),
        map.put([1], "").map(drop),
        map.fetch_add("n", 1).map(drop),
        snapshot.get(&map, [1]).map(drop),
        snapshot.len(&map).map(drop),
        transaction.get(&map, "own").map(drop),
        transaction.len(&map).map(drop),
        transaction.commit().map(drop).map_err(Error::from),
        range.next().unwrap().map(drop),
        cursor.next().map(drop),
        db.keyspaces().map(drop),
        db.keyspace("map").map(drop),
        db.snapshot().first(&map).map(drop),
    ];
    for (n, failure) in failures.iter().enumerate() {
        assert!(matches!(failure, Err(Error::Closed)), "view.2: {n}: {failure:?}");
    }
}

#[test]
fn opening_waits_for_the_lock_as_long_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let held = Db::open(dir.path()).unwrap();
    let open = |timeout| Db::builder().lock_timeout(Duration::from_millis(timeout)).open(dir.path());
    assert!(matches!(open(30), Err(Error::Locked { .. })));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| open(60_000));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        held.close().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn keys_and_values_fit_into_the_standard_collections() {
    let map: Keyspace = db().default_keyspace();
    let long = "a value of more than thirty bytes, which it shares";
    map.put("k", long).unwrap();
    let (key, value) = map.first().unwrap().unwrap();
    let mut by_value = HashMap::from([(value.clone(), key.clone())]);
    assert_eq!(by_value.get(long.as_bytes()), Some(&key));
    assert_eq!(BTreeMap::from([(key.clone(), 1)]).get(&b"k"[..]), Some(&1));
    let mut values =
        vec![Value::from(b"b".to_vec()), Value::from("a"), Value::default(), Value::from(&b"aa"[..])];
    values.sort();
    assert_eq!(values, ["", "a", "aa", "b"]);
    assert_eq!((Vec::from(key), Vec::from(value.clone())), (b"k".to_vec(), long.as_bytes().to_vec()));
    by_value.clear();
    #[cfg(feature = "bytes")]
    assert_eq!(bytes::Bytes::from(value), long);
}

#[test]
fn low_water_key_1_a_queue_is_popped_in_order_whatever_is_put_in_front_meanwhile() {
    let db = db();
    let map = db.default_keyspace();
    let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut tail, mut snapshots) = (0_u32, Vec::new());
    for n in 0..20_000_u32 {
        match rng.u8(0..100) {
            0..45 => {
                tail += 1;
                map.with(Durability::None).put(tail.to_be_bytes(), n.to_be_bytes()).unwrap();
                model.insert(tail.to_be_bytes().to_vec(), n);
            }
            45..92 => {
                let popped = map.pop_first().unwrap().map(|(key, _)| key.to_vec());
                assert_eq!(popped, model.pop_first().map(|(key, _)| key), "low_water_key.1, step {n}");
            }
            92..95 => {
                let key = [rng.u32(0..=tail).to_be_bytes().to_vec(), vec![0; rng.usize(0..3)]].concat();
                map.with(Durability::None).put(&key, n.to_be_bytes()).unwrap();
                model.insert(key, n);
            }
            95 => snapshots.push((db.snapshot(), model.first_key_value().map(|(key, _)| key.clone()))),
            96 if rng.bool() => db.flush().unwrap(),
            97 => {
                let mut cursor = map.cursor().unwrap();
                let from = rng.u32(0..=tail).to_be_bytes();
                let found = cursor.seek(from).unwrap().then(|| cursor.key().to_vec());
                assert_eq!(
                    found,
                    model.range(from.to_vec()..).next().map(|(key, _)| key.clone()),
                    "step {n}"
                );
            }
            _ => {
                let first = map.first().unwrap().map(|(key, _)| key.to_vec());
                assert_eq!(
                    first,
                    model.first_key_value().map(|(key, _)| key.clone()),
                    "low_water_key.1, step {n}"
                );
            }
        }
        if snapshots.len() > 5 {
            let (snapshot, first) = snapshots.swap_remove(rng.usize(..6));
            let found = snapshot.first(&map).unwrap().map(|(key, _)| key.to_vec());
            assert_eq!(found, first, "low_water_key.1, step {n}: a snapshot");
        }
    }
    assert_eq!(map.len().unwrap(), model.len() as u64);
}

#[test]
fn low_water_key_1_an_empty_range_says_nothing_of_what_lies_behind_it() {
    let db = db();
    let map = db.default_keyspace();
    for n in 0..40_u8 {
        map.put([b'a', n], "").unwrap();
        map.delete([b'a', n]).unwrap();
    }
    map.put("m", "1").unwrap();
    for _ in 0..3 {
        assert_eq!(map.range(.."b").count(), 0);
        assert!(!map.cursor_in(.."b").unwrap().seek("").unwrap());
        assert_eq!(
            map.first().unwrap().map(|(key, _)| key.to_vec()).as_deref(),
            Some(&b"m"[..]),
            "low_water_key.1"
        );
        assert_eq!((map.iter().count(), db.snapshot().iter(&map).count()), (1, 1));
    }
    map.delete("m").unwrap();
    for _ in 0..3 {
        assert!(map.first().unwrap().is_none());
    }
    map.put("k", "1").unwrap();
    assert_eq!(map.iter().count(), 1);
}

/// Makes each read and write of a transaction, as a shorthand or by a view.
macro_rules! every_call {
    ($read:expr, $write:expr $(, $map:expr)?) => {{
        let lines: Vec<String> = vec![
            format!("{:?} {:?}", $write.put($($map,)? "a", "1"), $write.put_with_ttl($($map,)? "b", "2", DAY)),
            format!("{:?} {:?}", $write.put_until($($map,)? "c", "3", None), $write.delete($($map,)? "d")),
            format!("{:?}", $write.put_from($($map,)? "e", &mut &b"12345"[..], 5)),
            format!("{:?} {:?}", $write.merge($($map,)? "sum", 7_u64.to_le_bytes()), $read.get($($map,)? "sum")),
            format!("{:?} {:?}", $write.delete_range($($map,)? "x".."y"), $write.delete_prefix($($map,)? "z")),
            format!("{:?} {:?}", $read.contains($($map,)? "a"), $read.ttl($($map,)? "c")),
            format!("{:?} {:?}", $read.first($($map,)?), $read.last($($map,)?)),
            format!("{:?} {:?}", $read.len($($map,)?), $read.is_empty($($map,)?)),
            format!("{:?}", $read.multi_get($($map,)? &["a", "none"])),
            format!("{:?}", $read.multi_get_within($($map,)? &["a", "b"], 1)),
            format!("{:?}", $read.reader($($map,)? "e").unwrap().map(|value| value.len())),
            format!("{:?}", $read.range($($map,)? "b"..).map(Result::unwrap).collect::<Vec<_>>()),
            format!("{:?}", $read.prefix($($map,)? "n").map(Result::unwrap).collect::<Vec<_>>()),
            format!("{:?}", $read.iter($($map,)?).rev().map(Result::unwrap).collect::<Vec<_>>()),
            format!("{:?}", $read.keys($($map,)? ..).map(Result::unwrap).collect::<Vec<_>>()),
            format!("{:?}", $read.cursor($($map,)?).unwrap().seek_first()),
            format!("{:?}", $read.cursor_in($($map,)? "c"..).unwrap().seek_first()),
            format!("{:?}", $write.lock($($map,)? "a", LockMode::Shared)),
            format!("{:?}", $write.lock_for($($map,)? "b", LockMode::Shared, DAY)),
            format!("{:?}", $write.get_for_update($($map,)? "c")),
            format!("{:?} {:?}", $write.fetch_add($($map,)? "n", 5), $write.fetch_add($($map,)? "n", 5)),
            format!("{:?}", $write.compare_and_swap($($map,)? "a", Some(b"1"), Some(b"4"))),
            format!("{:?}", $write.update($($map,)? "a", |old| old.map(|old| [old, b"5"].concat()))),
            format!("{:?}", $write.try_update($($map,)? "a", |_| Err::<Option<Value>, _>(Error::Closed))),
            format!("{:?} {:?}", $write.remove($($map,)? "e"), $write.remove($($map,)? "e")),
            format!("{:?} {:?}", $write.expire($($map,)? "a", Duration::ZERO), $write.persist($($map,)? "b")),
            format!("{:?} {:?}", $write.pop_first($($map,)?), $write.pop_last($($map,)?)),
        ];
        lines
    }};
}

#[test]
fn calls_with_the_keyspace_as_first_argument_are_those_of_its_view() {
    const DAY: Duration = Duration::from_secs(86_400);
    let results = [true, false].map(|is_short| {
        let db = db();
        let map = db.create_keyspace_with("map", KeyspaceOptions::new().merge_operator("add-u64")).unwrap();
        let mut t = db.begin();
        let mut lines = match is_short {
            true => every_call!(t, t, &map),
            false => every_call!(t.keyspace(&map), t.keyspace_mut(&map)),
        };
        // A view for writing has the reads as well.
        let len = if is_short { t.len(&map) } else { t.keyspace_mut(&map).len() };
        t.commit().unwrap();
        map.put_until("end", "", Some(std::time::UNIX_EPOCH + DAY * 100_000)).unwrap();
        let snapshot = db.snapshot();
        lines.push(match is_short {
            true => format!("{len:?} {:?}", snapshot.expires_at(&map, "end")),
            false => format!("{len:?} {:?}", snapshot.keyspace(&map).expires_at("end")),
        });
        let mut t = db.begin();
        match is_short {
            true => t.clear(&map).unwrap(),
            false => t.keyspace_mut(&map).clear().unwrap(),
        }
        lines.push(format!("{:?}", t.is_empty(&map)));
        lines
    });
    assert_eq!(results[0], results[1]);
    assert!(results[0].iter().all(|line| !line.contains("Err(") || line == "Err(Closed)"), "{results:?}");
}
