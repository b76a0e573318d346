//! Options that a keyspace has from its creation on.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use esker::env::{Env, MemFs};
use esker::{Counting, Db, Error, History, Keyspace, KeyspaceOptions, Result, Ttl};

const DAY: Duration = Duration::from_secs(86_400);

fn open(fs: &MemFs) -> Db {
    Db::builder().stepped().env(Env::simulated(Arc::new(fs.clone()), 1)).open("db").unwrap()
}

fn all_options() -> KeyspaceOptions {
    let options = KeyspaceOptions::new().counting(Counting::Lazy).default_ttl(DAY);
    options.history(History::Versions(3)).merge_operator("append")
}

/// Creates a keyspace and writes to it in one commit, if the handle can.
type Create = fn(&Db) -> Result<Keyspace>;
const WAYS: [Create; 3] = [
    |db| {
        let map = db.create_keyspace_with("new", all_options())?;
        map.put("put", "1")?;
        map.merge("merged", "1")?;
        Ok(map)
    },
    |db| {
        let mut batch = db.batch();
        let map = batch.create_keyspace_with("new", all_options())?;
        batch.put(&map, "put", "1")?;
        batch.merge(&map, "merged", "1")?;
        batch.commit()?;
        Ok(map)
    },
    |db| {
        let mut transaction = db.begin();
        let point = transaction.savepoint();
        transaction.create_keyspace_with("new", KeyspaceOptions::new().merge_operator("max"))?;
        transaction.rollback_to(&point)?;
        let map = transaction.create_keyspace_with("new", all_options())?;
        transaction.put(&map, "put", "1")?;
        transaction.merge(&map, "merged", "1")?;
        transaction.merge(&map, "merged", "2")?;
        assert_eq!(transaction.get(&map, "merged")?.as_deref(), Some(&b"12"[..]));
        transaction.delete(&map, "merged")?;
        transaction.merge(&map, "merged", "1")?;
        transaction.commit()?;
        Ok(map)
    },
];

fn assert_has_all(map: &Keyspace) {
    assert_eq!(map.options(), all_options());
    assert_eq!(map.len().unwrap(), 2);
    for key in ["put", "merged"] {
        assert_eq!(map.get(key).unwrap().as_deref(), Some(&b"1"[..]));
        assert!(matches!(map.ttl(key).unwrap(), Some(Ttl::Left(left)) if left <= DAY), "{key}");
    }
}

#[test]
fn the_writes_of_the_commit_that_creates_a_keyspace_have_its_options() {
    for create in WAYS {
        let fs = MemFs::new();
        let db = open(&fs);
        let map = create(&db).unwrap();
        assert_has_all(&map);
        let made = db.checkpoint("copy").unwrap();
        map.put("put", "2").unwrap();
        assert_eq!(map.get_at("put", made.seqno).unwrap().as_deref(), Some(&b"1"[..]), "it has a history");
        assert!(matches!(create(&db), Err(Error::KeyspaceExists(_))));
        assert_eq!(map.options(), all_options(), "it stays as it is");
        map.put("put", "1").unwrap();
        db.close().unwrap();
        let db = open(&fs);
        assert_has_all(&db.open_keyspace("new").unwrap());
        assert!(db.check().unwrap().is_sound());
        let copy = Db::builder().env(Env::simulated(Arc::new(fs.clone()), 1)).open("copy").unwrap();
        assert_has_all(&copy.open_keyspace("new").unwrap());
    }
}

#[test]
fn a_keyspace_that_is_not_created_leaves_no_options() {
    let db = open(&MemFs::new());
    let mut batch = db.batch();
    batch.create_keyspace_with("new", all_options()).unwrap();
    drop(batch);
    let mut transaction = db.begin();
    transaction.create_keyspace_with("new", all_options()).unwrap();
    transaction.drop_keyspace("new").unwrap();
    transaction.commit().unwrap();
    let unknown = db.create_keyspace_with("new", KeyspaceOptions::new().merge_operator("unknown"));
    assert!(matches!(unknown, Err(Error::MergeOperatorMissing { .. })), "{unknown:?}");
    assert!(matches!(db.open_keyspace("new"), Err(Error::KeyspaceNotFound(_))));
    let map = db.keyspace("new").unwrap();
    assert_eq!(map.options(), KeyspaceOptions::new());
    map.put("a", "1").unwrap();
    assert_eq!((map.ttl("a").unwrap(), db.stats().unresolved), (Some(Ttl::Unlimited), 0));
}
