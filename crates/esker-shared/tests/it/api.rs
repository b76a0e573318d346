//! A guest's calls do what the host's do.

use std::path::Path;
use std::time::{Duration, SystemTime};

use esker::{Blobs, Counting, Db, Durability, Error as DbError, History, KeyspaceOptions, LockMode, Ttl};
use esker_shared::{Error, Shared, SharedKeyspace};

/// Opens a host, and a guest of it.
fn pair(dir: &Path) -> (Shared, Shared) {
    let open = || Shared::builder().engine(Db::builder().durability(Durability::Buffered)).open(dir).unwrap();
    let (host, guest) = (open(), open());
    assert!(host.is_host() && !guest.is_host(), "inner.1");
    (host, guest)
}

fn entries(range: esker_shared::SharedRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    range.map(|entry| entry.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn all_calls_of_host_and_guest_have_the_same_results() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = pair(dir.path());
    let results = [&host, &guest].map(|shared| {
        let options = KeyspaceOptions::new().merge_operator("add-u64");
        let name = if shared.is_host() { "of host" } else { "of guest" };
        let ks = shared.create_keyspace_with(name, &options).unwrap();
        run_all(shared, &ks)
    });
    assert_eq!(results[0], results[1]);
    assert_eq!(guest.keyspaces().unwrap(), ["default", "of guest", "of host"], "not that of the records");
    for name in ["of host", "of guest"] {
        let by = [&host, &guest].map(|shared| entries(shared.open_keyspace(name).unwrap().iter()));
        assert_eq!(by[0], by[1]);
    }
    assert_eq!(host.db().unwrap().check().unwrap().problems, Vec::<String>::new());
}

/// Makes each call once. Returns their results as text.
fn run_all(shared: &Shared, ks: &SharedKeyspace) -> Vec<String> {
    let mut results = Vec::new();
    let mut note = |result: String| results.push(result);
    for n in 0..300_u32 {
        ks.put(format!("{n:03}"), vec![n as u8; 10]).unwrap();
    }
    let missing: [&str; 0] = [];
    note(format!("{:?} {:?}", ks.get("007"), ks.get("x")));
    note(format!("{:?} {:?}", ks.contains("007"), ks.contains("x")));
    note(format!("{:?} {:?}", ks.multi_get(&["x", "001", "299"]), ks.multi_get(&missing)));
    note(format!("{:?} {:?} {:?}", ks.len(), ks.first(), ks.last()));
    note(format!("{:?}", entries(ks.range("100"..="110"))));
    note(format!("{:?}", entries(ks.prefix("29"))));
    note(format!("{:?}", ks.range("1".."2").rev().map(|e| e.unwrap().0).collect::<Vec<_>>()));
    note(format!("{:?}", ks.range(.."2").keys().map(Result::unwrap).collect::<Vec<_>>()));
    let mut both = ks.iter();
    let mut ends = Vec::new();
    while let Some(entry) = if ends.len() % 3 == 0 { both.next_back() } else { both.next() } {
        ends.push(entry.unwrap().0);
    }
    assert_eq!(ends.len(), 300, "each once, from both ends");
    note(format!("{ends:?}"));
    note(format!("{:?} {:?}", ks.remove("000"), ks.remove("000")));
    note(format!("{:?} {:?}", ks.pop_first(), ks.pop_last()));
    note(format!("{:?} {:?}", ks.fetch_add("n", 5), ks.fetch_add("n", -7)));
    note(format!("{:?}", ks.compare_and_swap("002", Some(b"no"), Some(b"new"))));
    note(format!("{:?}", ks.compare_and_swap("none", None, Some(b"new"))));
    note(format!("{:?}", ks.update("none", |old| old.map(|old| [old, b"er"].concat()))));
    ks.put("sum", 1_u64.to_le_bytes()).unwrap();
    ks.merge("sum", 2_u64.to_le_bytes()).unwrap();
    note(format!("{:?}", ks.get("sum")));
    ks.delete("003").unwrap();
    ks.delete_range("01".."02").unwrap();
    ks.delete_prefix("03").unwrap();
    let end = SystemTime::now() + Duration::from_secs(1000);
    set_lifetimes(ks, end, &mut note);

    let mut batch = shared.batch();
    batch.put(ks, "b", "1").unwrap();
    batch.put_until(ks, "b for ever", "1", None).unwrap();
    batch.put_until(ks, "b until", "1", Some(end)).unwrap();
    batch.delete(ks, "004").unwrap();
    batch.merge(ks, "sum", 4_u64.to_le_bytes()).unwrap();
    batch.delete_range(ks, "05".."06").unwrap();
    batch.commit_with(Durability::Sync).unwrap();

    let snapshot = shared.snapshot().unwrap();
    shared
        .transact(|t| -> esker_shared::Result<()> {
            t.lock(ks, "b", LockMode::Exclusive)?;
            t.put(ks, "t", "1")?;
            t.delete(ks, "b")?;
            t.delete_range(ks, "06".."08")?;
            t.merge(ks, "sum", 8_u64.to_le_bytes())?;
            note(format!("{:?} {:?} {:?}", t.get(ks, "t"), t.contains(ks, "b"), t.len(ks)));
            note(format!("{:?}", entries(t.range(ks, "n"..))));
            Ok(())
        })
        .unwrap();
    note(format!("{:?} {:?}", snapshot.get(ks, "t"), snapshot.get(ks, "b")));
    note(format!("{:?}", ks.ttl("b for ever")));
    assert!(matches!(ks.ttl("b until"), Ok(Some(Ttl::Left(left))) if left > Duration::from_secs(980)));
    undo_parts(shared, ks, &mut note);
    note(format!("{:?} {:?}", snapshot.len(ks), entries(snapshot.range(ks, ..)).len()));
    note(format!("{:?}", entries(ks.iter())));
    results
}

/// Makes the calls that concern lifetimes.
fn set_lifetimes(ks: &SharedKeyspace, end: SystemTime, note: &mut impl FnMut(String)) {
    ks.put_with_ttl("mortal", "x", Duration::from_secs(1000)).unwrap();
    note(format!("{:?}", ks.ttl("n")));
    assert!(matches!(ks.ttl("mortal"), Ok(Some(Ttl::Left(left))) if left > Duration::from_secs(990)));
    // `update` keeps the expiry of what it replaces, also by requests.
    ks.update("mortal", |_| Some("y")).unwrap();
    assert!(matches!(ks.ttl("mortal"), Ok(Some(Ttl::Left(_)))));

    ks.put_until("until", "x", Some(end)).unwrap();
    ks.put_until("past", "x", Some(SystemTime::UNIX_EPOCH - Duration::from_secs(1))).unwrap();
    assert!(matches!(ks.ttl("until"), Ok(Some(Ttl::Left(left))) if left > Duration::from_secs(990)));
    note(format!("{:?} {:?}", ks.persist("until"), ks.ttl("until")));
    note(format!("{:?} {:?}", ks.expire("until", Duration::ZERO), ks.get("until")));
    note(format!("{:?} {:?} {:?}", ks.get("past"), ks.expire("past", Duration::MAX), ks.persist("past")));
}

/// Makes the calls of savepoints and lifetimes in a transaction.
fn undo_parts(shared: &Shared, ks: &SharedKeyspace, note: &mut impl FnMut(String)) {
    let mut t = shared.begin().unwrap();
    t.lock_name("parts", LockMode::Shared).unwrap();
    t.put(ks, "p1", "1").unwrap();
    let first = t.savepoint().unwrap();
    t.put_until(ks, "p2", "2", None).unwrap();
    let second = t.savepoint().unwrap();
    t.put(ks, "p1", "undone").unwrap();
    note(format!("{:?} {:?}", t.expire(ks, "p2", Duration::ZERO), t.get(ks, "p2")));
    t.rollback_to(&second).unwrap();
    note(format!("{:?} {:?} {:?}", t.get(ks, "p1"), t.get(ks, "p2"), t.ttl(ks, "p2")));
    t.rollback_to(&first).unwrap();
    note(format!("{:?} {:?}", t.get(ks, "p2"), t.rollback_to(&second)));
    t.put(ks, "p3", "3").unwrap();
    t.expire(ks, "p3", Duration::from_secs(1000)).unwrap();
    note(format!("{:?} {:?}", t.persist(ks, "p3"), t.persist(ks, "none")));
    let failed: Result<(), Error> = t.nested(|t| {
        t.put(ks, "p4", "4")?;
        t.nested(|t| t.delete(ks, "p3"))?;
        Err(Error::HostGone)
    });
    note(format!("{failed:?} {:?} {:?}", t.get(ks, "p3"), t.get(ks, "p4")));
    t.nested(|t| t.put(ks, "p5", "5")).unwrap();
    t.release(first.clone()).unwrap();
    note(format!("{:?} {:?}", t.rollback_to(&first), t.release(first)));
    let of_another = shared.begin().unwrap().savepoint().unwrap();
    note(format!("{:?}", t.rollback_to(&of_another)));
    t.commit().unwrap();
    note(format!("{:?}", entries(ks.prefix("p"))));
}

#[test]
fn what_replaces_a_value_that_expires_meanwhile_has_expired_too() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = pair(dir.path());
    for shared in [&host, &guest] {
        let ks = shared.keyspace("k").unwrap();
        let mut lifetime = Duration::from_millis(50);
        let mut was_found = false;
        while !was_found {
            // On a busy machine the value expires before it is read.
            lifetime *= 2;
            ks.put_with_ttl("lease", "1", lifetime).unwrap();
            ks.update("lease", |old| {
                was_found = old.is_some();
                std::thread::sleep(lifetime + Duration::from_millis(5));
                was_found.then_some("2")
            })
            .unwrap();
        }
        assert_eq!((ks.get("lease").unwrap(), ks.ttl("lease").unwrap()), (None, None));
        ks.update("lease", |old| Some(if old.is_none() { "new" } else { "old" })).unwrap();
        assert_eq!(ks.get("lease").unwrap().as_deref(), Some(&b"new"[..]));
    }
}

#[test]
fn a_conflict_in_a_part_has_the_whole_transaction_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = pair(dir.path());
    for shared in [&host, &guest] {
        let ks = shared.keyspace("k").unwrap();
        let mut runs = 0;
        shared
            .transact(|t| {
                runs += 1;
                t.get(&ks, "a")?;
                if runs == 1 {
                    host.keyspace("k")?.put("b", "1")?;
                }
                t.nested(|t| t.lock(&ks, "b", LockMode::Exclusive))?;
                t.put(&ks, "b", "2")
            })
            .unwrap();
        assert_eq!((runs, ks.get("b").unwrap().as_deref()), (2, Some(&b"2"[..])));
    }
}

#[test]
fn large_values_and_large_batches_pass_the_socket() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = pair(dir.path());
    let ks = guest.keyspace("large").unwrap();
    let large: Vec<u8> = (0..20 << 20).map(|n: u32| ((n * 31) >> 7) as u8).collect();
    ks.put("20 MiB", &large).unwrap();
    assert!(ks.get("20 MiB").unwrap().unwrap() == large[..]);
    let mut batch = guest.batch();
    for n in 0..40_u32 {
        batch.put(&ks, n.to_be_bytes(), &large[..1 << 20]).unwrap();
    }
    batch.commit().unwrap();
    let keys: Vec<_> = (0..40_u32).map(u32::to_be_bytes).collect();
    let values = ks.multi_get(&keys).unwrap();
    assert!(values.iter().all(|value| value.as_deref() == Some(&large[..1 << 20])), "several parts");
    assert_eq!(entries(ks.range(keys[0]..)).len(), 41);
    assert_eq!(host.keyspace("large").unwrap().len().unwrap(), 41);
}

#[test]
fn reads_of_many_keys_show_one_state_in_several_requests() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = pair(dir.path());
    let ks = guest.keyspace("k").unwrap();
    let keys: Vec<_> = (0..10_000_u32).map(u32::to_be_bytes).collect();
    let mut batch = guest.batch();
    keys.iter().step_by(2).for_each(|key| batch.put(&ks, key, key).unwrap());
    batch.commit().unwrap();
    let snapshot = guest.snapshot().unwrap();
    let transaction = guest.begin().unwrap();
    host.keyspace("k").unwrap().put(keys[9_999], "new").unwrap();
    for values in [snapshot.multi_get(&ks, &keys).unwrap(), transaction.multi_get(&ks, &keys).unwrap()] {
        let expected = keys.iter().enumerate().map(|(n, key)| (n % 2 == 0).then_some(&key[..]));
        assert!(values.iter().map(|value| value.as_deref()).eq(expected));
    }
    assert_eq!(ks.multi_get(&keys).unwrap()[9_999].as_deref(), Some(&b"new"[..]));
}

#[test]
fn iterators_show_one_state_while_others_write() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = pair(dir.path());
    let (of_host, of_guest) = (host.keyspace("k").unwrap(), guest.keyspace("k").unwrap());
    for n in 0..5000_u32 {
        of_host.put(n.to_be_bytes(), "old").unwrap();
    }
    let mut range = of_guest.iter();
    let first = range.next().unwrap().unwrap();
    of_host.clear().unwrap();
    of_host.put("new", "new").unwrap();
    let rest: Vec<_> = range.map(Result::unwrap).collect();
    assert_eq!((&*first.1, rest.len()), (&b"old"[..], 4999));
    assert!(rest.iter().all(|(_, value)| value == "old"));
}

#[test]
fn errors_of_the_engine_arrive_as_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = pair(dir.path());
    let ks = guest.keyspace("k").unwrap();
    let long = vec![0; 65_536];
    assert!(matches!(ks.put(&long, ""), Err(Error::Db(DbError::KeyTooLong { len: 65_536 }))));
    assert!(matches!(ks.merge("a", "b"), Err(Error::Db(DbError::NoMergeOperator { .. }))));
    assert!(
        matches!(guest.open_keyspace("x"), Err(Error::Db(DbError::KeyspaceNotFound(name))) if name == "x")
    );
    let options = KeyspaceOptions::new()
        .blobs(Blobs::From(100))
        .counting(Counting::Lazy)
        .default_ttl(Duration::from_secs(77))
        .history(History::Versions(3))
        .bytes_max(1 << 20);
    guest.create_keyspace_with("o", &options).unwrap();
    assert_eq!(host.db().unwrap().open_keyspace("o").unwrap().options(), options);
    let exists = guest.create_keyspace_with("o", &options);
    assert!(matches!(exists, Err(Error::Db(DbError::KeyspaceExists(_)))));
    for error in [guest.keyspace("esker.shared").map(drop), guest.drop_keyspace("esker.shared")] {
        assert!(matches!(error, Err(Error::Db(DbError::Invalid(_)))), "{error:?}");
    }
    guest.rename_keyspace("o", "p").unwrap();
    guest.drop_keyspace("p").unwrap();
    // A handle is of one keyspace, not of its name.
    guest.drop_keyspace("k").unwrap();
    guest.keyspace("k").unwrap();
    assert!(matches!(ks.get("a"), Err(Error::Db(DbError::KeyspaceNotFound(_)))));
    // Conflicts are reported as such, and `attempts` ends the repetition.
    let ks = guest.keyspace("k").unwrap();
    let conflict = guest.transaction().attempts(2).run(|t| {
        t.get(&ks, "a")?;
        host.keyspace("k").unwrap().put("a", "1")?;
        t.put(&ks, "b", "2")
    });
    assert!(matches!(conflict, Err(Error::Db(DbError::Conflict { keyspace, .. })) if keyspace == "k"));
    assert_eq!(ks.get("b").unwrap(), None);
}

#[test]
fn counters_of_many_threads_of_two_handles_miss_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = pair(dir.path());
    std::thread::scope(|scope| {
        for shared in [&host, &guest, &guest] {
            scope.spawn(move || {
                let ks = shared.keyspace("k").unwrap();
                for _ in 0..200 {
                    ks.fetch_add("n", 1).unwrap();
                }
            });
        }
    });
    assert_eq!(guest.keyspace("k").unwrap().fetch_add("n", 0).unwrap(), 600);
}

#[test]
fn records_end_with_their_guest() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = pair(dir.path());
    let db = host.db().unwrap();
    guest.keyspace("k").unwrap().put("a", "1").unwrap();
    let records = db.open_keyspace("esker.shared").unwrap();
    assert_eq!(records.iter().count(), 1, "one for each connection that commits");
    guest.close().unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while records.iter().count() > 0 {
        assert!(std::time::Instant::now() < until, "a goodbye removes the record");
        std::thread::sleep(Duration::from_millis(5));
    }
}
