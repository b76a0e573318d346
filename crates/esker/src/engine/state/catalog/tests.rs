//! Keyspaces: what their catalog refuses, and what changes that fail or panic leave.

use std::path::Path;

use esker_env::{Env, MemFs};

use super::*;
use crate::Db;
use crate::engine::writes::catalog_changes::Changes;
use crate::txn::commit::Durability;
use crate::txn::write_set::WriteSet;

#[test]
fn catalog_3_a_keyspace_whose_drop_fails_was_there_all_the_time() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
    let map = db.create_keyspace("map").unwrap();
    map.put("a", "1").unwrap();
    // As between the drop's entry in the log and its end, which fails.
    map.state.dropping.set();
    assert_eq!(map.get("a").unwrap().as_deref(), Some(&b"1"[..]), "readers find it");
    assert!(matches!(map.put("b", "2"), Err(Error::KeyspaceNotFound(_))), "nothing is written behind it");
    map.state.dropping.clear();
    // A drop that is refused marks nothing (drop_mark.2).
    let mut transaction = db.begin();
    transaction.drop_keyspace("map").unwrap();
    map.put("b", "2").unwrap();
    assert!(matches!(transaction.commit().unwrap_err().error, Error::Conflict { .. }));
    map.put("b", "3").unwrap();
    assert_eq!(map.len().unwrap(), 2);
    db.drop_keyspace("map").unwrap();
    assert!(matches!(map.get("a"), Err(Error::KeyspaceNotFound(_))));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a real thread, and real time for it to look")]
fn a_keyspace_that_others_create_and_drop_meanwhile_is_there_in_the_end() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
    let map = db.create_keyspace("map").unwrap();
    // Gone for those who open it and there for those who create it, as if each came too late.
    map.state.dropping.set();
    map.state.dropped.store(true, Ordering::Release);
    assert!(matches!(db.open_keyspace("map"), Err(Error::KeyspaceNotFound(_))));
    assert!(matches!(db.create_keyspace("map"), Err(Error::KeyspaceExists(_))));
    let made = std::thread::scope(|scope| {
        let making = scope.spawn(|| db.keyspace("map"));
        std::thread::sleep(std::time::Duration::from_millis(100));
        db.handle.core.catalog.names.write().made.remove("map");
        making.join().unwrap()
    });
    let made = made.unwrap();
    made.put("a", "1").unwrap();
    assert!(made.state.id > map.state.id, "catalog.2: another one");
}

#[test]
fn catalog_5_names_of_an_earlier_opening_are_found_dropped_renamed_and_listed() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let open = || Db::builder().background(false).env(env.clone()).open(Path::new("db")).unwrap();
    let name = |n: u32| format!("user {n}");
    let db = open();
    let mut batch = db.batch();
    (0..300).for_each(|n| drop(batch.create_keyspace(&name(n)).unwrap()));
    batch.commit().unwrap();
    for n in 0..300 {
        db.open_keyspace(&name(n)).unwrap().put("n", n.to_be_bytes()).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let db = open();
    assert_eq!(db.handle.core.catalog.names.read().made.len(), 1, "the default one");
    db.drop_keyspace(&name(7)).unwrap();
    db.rename_keyspace(&name(8), "eight").unwrap();
    let nine = [db.open_keyspace(&name(9)).unwrap(), db.open_keyspace(&name(9)).unwrap()];
    assert!(Arc::ptr_eq(&nine[0].state, &nine[1].state), "one state for all handles");
    let is_gone = |db: &Db, n| matches!(db.open_keyspace(&name(n)), Err(Error::KeyspaceNotFound(_)));
    db.close().unwrap();
    for _ in 0..2 {
        let db = open();
        assert!(is_gone(&db, 7) && is_gone(&db, 8) && is_gone(&db, 300));
        let eight = db.open_keyspace("eight").unwrap();
        assert_eq!(
            (eight.get("n").unwrap().as_deref(), eight.len().unwrap()),
            (Some(&8_u32.to_be_bytes()[..]), 1)
        );
        let listed = db.keyspaces().unwrap();
        assert!(listed.len() == 300 && listed.is_sorted() && listed[0] == "default" && listed[1] == "eight");
        assert!(db.check().unwrap().problems.is_empty());
        db.close().unwrap();
    }
}

#[test]
fn catalog_4_a_keyspace_that_is_being_renamed_is_listed_under_one_of_its_names() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
    for n in 0..200 {
        db.create_keyspace(&format!("a{n:03}")).unwrap();
    }
    db.create_keyspace("b").unwrap();
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| (0..500).all(|_| db.keyspaces().unwrap().len() == 202));
        while !looking.is_finished() {
            db.rename_keyspace("b", "c").unwrap();
            db.rename_keyspace("c", "b").unwrap();
        }
        assert!(looking.join().unwrap(), "catalog.4");
    });
}

#[test]
fn catalog_4_a_list_has_what_is_created_before_a_drop_or_what_is_dropped() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
    db.create_keyspace("dropped").unwrap();
    // While a list is made, one keyspace is created and then another is dropped.
    let names = db.handle.core.catalog.names(|state| {
        if state.id != KeyspaceId::DEFAULT {
            db.create_keyspace("created").unwrap();
            db.drop_keyspace("dropped").unwrap();
        }
        state.is_dropped()
    });
    assert!(names.iter().any(|name| name == "dropped" || name == "created"), "catalog.4: {names:?}");
}

#[test]
fn catalog_4_a_keyspace_is_whole_until_its_drop_is_committed_and_gone_from_then_on() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
    let map = db.create_keyspace("first name").unwrap();
    map.put("a", "1").unwrap();
    let snapshot = db.snapshot();
    db.rename_keyspace("first name", "map").unwrap();
    let mut transaction = db.begin();
    transaction.put(&map, "its own", "1").unwrap();
    transaction.delete(&map, "removed").unwrap();
    // Every way to look, and whether it finds the one entry.
    let look = || {
        let now = db.snapshot();
        let seen: Vec<Result<bool>> = vec![
            map.contains("a"),
            map.multi_get(&["a"]).map(|values| values[0].is_some()),
            map.first().map(|first| first.is_some()),
            map.cursor().map(|_| true),
            map.len().map(|len| len == 1),
            snapshot.contains(&map, "a"),
            snapshot.first(&map).map(|first| first.is_some()),
            snapshot.len(&map).map(|len| len == 1),
            now.contains(&map, "a"),
            now.len(&map).map(|len| len == 1),
            transaction.get(&map, "its own").map(|value| value.is_some()),
            transaction.contains(&map, "its own"),
            transaction.contains(&map, "removed").map(|found| !found),
            db.open_keyspace("map").map(|_| true),
        ];
        (seen, db.keyspaces().unwrap())
    };
    let assert_whole = || {
        let (seen, names) = look();
        assert!(seen.iter().all(|found| matches!(found, Ok(true))), "catalog.4: {seen:?}");
        assert_eq!(names, ["default", "map"]);
    };
    let assert_gone = || {
        let (seen, names) = look();
        let is_gone = |found: &Result<bool>| matches!(found, Err(Error::KeyspaceNotFound(_)));
        assert!(seen.iter().all(is_gone), "catalog.4: {seen:?}");
        assert_eq!(names, ["default"]);
    };
    // The steps of a drop, one by one.
    let core = &db.handle.core;
    let mut changes = Changes::default();
    let mut set = WriteSet::new();
    changes.drop(&core.catalog, &mut set, "map").unwrap();
    map.state.dropping.set();
    assert_whole();
    core.commit_encoded(set, Durability::Sync).unwrap();
    assert_gone();
    core.catalog.take(&BTreeMap::from([("map".into(), None)]));
    assert_gone();
    // Another one of that name is not it.
    db.create_keyspace("map").unwrap();
    assert!(matches!(map.get("a"), Err(Error::KeyspaceNotFound(_))));
}
