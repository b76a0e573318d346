//! The limits of keys, values and names, and what happens beyond them.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::ops::Bound;
use std::sync::Arc;

use crate::common::contents::dump_sound;
use crate::common::{dir, simulated};
use esker::{Db, Durability, Error, KEY_BYTES_MAX, TableCompression};
use esker_env::MemFs;

fn open(mem: &MemFs) -> Db {
    simulated(Arc::new(mem.clone())).open(dir()).unwrap()
}

#[test]
fn keys_of_every_allowed_length_are_kept_in_memtable_log_and_table() {
    let mem = MemFs::new();
    let keys: Vec<Vec<u8>> =
        [0, 1, 126, 127, 128, 129, 4096, 16_383, 16_384, KEY_BYTES_MAX - 1, KEY_BYTES_MAX]
            .into_iter()
            .map(|len| vec![b'k'; len])
            .collect();
    let check = |db: &Db| {
        let keyspace = db.default_keyspace();
        for key in &keys {
            assert!(keyspace.get(key).unwrap().unwrap() == key.len().to_string().as_bytes(), "{}", key.len());
        }
        assert_eq!(keyspace.first().unwrap().unwrap().0, b"");
        assert_eq!(keyspace.last().unwrap().unwrap().0.len(), KEY_BYTES_MAX);
        dump_sound(db).unwrap();
    };
    let db = open(&mem);
    keys.iter().for_each(|key| db.default_keyspace().put(key, key.len().to_string()).map(drop).unwrap());
    check(&db);
    db.close().unwrap();
    let db = open(&mem);
    check(&db);
    db.compact().unwrap();
    check(&db);
    db.close().unwrap();
    check(&open(&mem));
}

/// A key that is short at its first reading and too long at each second one.
#[derive(Default)]
struct Shifty(std::cell::Cell<u32>);

impl AsRef<[u8]> for Shifty {
    fn as_ref(&self) -> &[u8] {
        static LONG: [u8; KEY_BYTES_MAX + 10] = [b'k'; KEY_BYTES_MAX + 10];
        self.0.set(self.0.get() + 1);
        if self.0.get().is_multiple_of(2) { &LONG } else { &LONG[..3] }
    }
}

#[test]
fn a_key_that_answers_differently_each_time_is_asked_once() {
    let mem = MemFs::new();
    let db = open(&mem);
    let keyspace = db.default_keyspace();
    let key = Shifty::default;
    keyspace.put(key(), "v").unwrap();
    keyspace.delete_range(..key()).unwrap();
    let reopened = || open(&mem.crash_strict()).default_keyspace().len().unwrap();
    assert_eq!(reopened(), 1, "what was acknowledged is accepted");
    keyspace.delete_range(key()..).unwrap();
    assert_eq!(reopened(), 0);
    keyspace.put(key(), "v").unwrap();
    assert_eq!(keyspace.multi_get(&[key()]).unwrap(), [keyspace.get(key()).unwrap()]);
    assert_eq!(keyspace.range(key()..=key()).count(), 1);
    assert_eq!(keyspace.prefix(key()).count(), 1);
    let mut batch = db.batch();
    batch.put(&keyspace, key(), "v").unwrap();
    batch.delete_range(&keyspace, ..=key()).unwrap();
    batch.commit().unwrap();
    let mut transaction = db.begin();
    transaction.delete_range(&keyspace, key()..=Shifty(1.into())).unwrap_err();
    transaction.delete_range(&keyspace, ..=key()).unwrap();
    transaction.commit().unwrap();
    assert_eq!(reopened(), 0);
}

#[test]
fn a_longer_key_is_refused_before_anything_is_written() {
    let mem = MemFs::new();
    let db = open(&mem);
    let keyspace = db.default_keyspace();
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    let refused = |result: esker::Result<()>| {
        assert!(matches!(result, Err(Error::KeyTooLong { len: 65_536 })), "{result:?}");
    };
    let before = mem.ops();
    refused(keyspace.put(&long, "v").map(drop));
    refused(keyspace.delete(&long).map(drop));
    refused(keyspace.delete_range(long.clone()..).map(drop));
    refused(keyspace.get(&long).map(drop));
    refused(keyspace.contains(&long).map(drop));
    refused(keyspace.multi_get(&[&b"a"[..], &long]).map(drop));
    let mut batch = db.batch();
    batch.put(&keyspace, "kept", "v").unwrap();
    refused(batch.put(&keyspace, &long, "v"));
    refused(batch.delete(&keyspace, &long));
    let mut transaction = db.begin();
    refused(transaction.put(&keyspace, &long, "v"));
    refused(transaction.get(&keyspace, &long).map(drop));
    assert_eq!(mem.ops(), before);
    // The batch keeps its earlier writes.
    batch.commit().unwrap();
    assert_eq!(keyspace.len().unwrap(), 1);
    // Bounds of reads may be any bytes.
    assert_eq!(keyspace.range(long.clone()..).count(), 0);
    assert_eq!(keyspace.range(..long.clone()).count(), 1);
    assert_eq!(keyspace.prefix(&long).count(), 0);
}

#[test]
fn ranges_may_end_at_the_longest_keys() {
    let mem = MemFs::new();
    let longest = |last: u8| [&vec![b'k'; KEY_BYTES_MAX - 1][..], &[last]].concat();
    let db = open(&mem);
    let keyspace = db.default_keyspace();
    for last in [1, 2, 3] {
        keyspace.put(longest(last), "v").unwrap();
    }
    keyspace.delete_range((Bound::Excluded(longest(1)), Bound::Included(longest(2)))).unwrap();
    let left = |db: &Db| {
        db.default_keyspace().iter().keys().map(|k| *k.unwrap().last().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(left(&db), [1, 3]);
    db.close().unwrap();
    let db = open(&mem);
    assert_eq!(left(&db), [1, 3]);
    db.flush().unwrap();
    db.close().unwrap();
    let db = open(&mem);
    assert_eq!(left(&db), [1, 3]);
    db.compact().unwrap();
    assert_eq!(left(&db), [1, 3]);
    dump_sound(&db).unwrap();
}

#[test]
fn values_from_nothing_to_megabytes() {
    let mem = MemFs::new();
    let lens = [0usize, 1, 127, 128, 16_383, 16_384, 65_536, 1 << 20, 5 << 20];
    let value = |len: usize| (0..len).map(|i| (i * 31 / 7) as u8).collect::<Vec<u8>>();
    let check = |db: &Db| {
        for len in lens {
            let found = db.default_keyspace().get(len.to_string()).unwrap().unwrap();
            assert!(found[..] == value(len)[..], "{len}");
        }
    };
    for compression in [TableCompression::None, TableCompression::Lz4, TableCompression::Auto] {
        let open = || simulated(Arc::new(mem.clone())).compression(compression).open(dir()).unwrap();
        let db = open();
        for len in lens {
            db.default_keyspace().put(len.to_string(), value(len)).unwrap();
        }
        check(&db);
        db.close().unwrap();
        let db = open();
        check(&db);
        db.compact().unwrap();
        check(&db);
        dump_sound(&db).unwrap();
        db.close().unwrap();
    }
}

#[test]
fn keyspace_names_may_be_any_text_up_to_1024_bytes() {
    let mem = MemFs::new();
    let long = "x".repeat(1024);
    let names = ["\0", "a/b\\c", "\u{1F600}", " ", "CURRENT", "..", "Default", &long];
    let db = open(&mem);
    for (n, name) in names.iter().enumerate() {
        db.create_keyspace(name).unwrap().put("n", n.to_string()).unwrap();
    }
    for name in [String::new(), "x".repeat(1025)] {
        assert!(matches!(db.keyspace(&name), Err(Error::Invalid(_))), "{}", name.len());
        assert!(matches!(db.create_keyspace(&name), Err(Error::Invalid(_))));
        assert!(matches!(db.rename_keyspace("..", &name), Err(Error::Invalid(_))));
    }
    assert!(matches!(db.open_keyspace(""), Err(Error::KeyspaceNotFound(_) | Error::Invalid(_))));
    db.close().unwrap();
    let db = open(&mem);
    assert_eq!(db.keyspaces().unwrap().len(), names.len() + 1);
    for (n, name) in names.iter().enumerate() {
        assert!(db.open_keyspace(name).unwrap().get("n").unwrap().unwrap() == n.to_string().as_bytes());
    }
}

#[test]
fn the_default_keyspace_stays() {
    let db = open(&MemFs::new());
    assert_eq!(db.keyspaces().unwrap(), ["default"]);
    assert!(matches!(db.drop_keyspace("default"), Err(Error::Invalid(_))));
    assert!(matches!(db.rename_keyspace("default", "other"), Err(Error::Invalid(_))));
    assert!(matches!(db.create_keyspace("default"), Err(Error::KeyspaceExists(_))));
    assert!(matches!(db.drop_keyspace("absent"), Err(Error::KeyspaceNotFound(_))));
    assert!(matches!(db.rename_keyspace("absent", "other"), Err(Error::KeyspaceNotFound(_))));
    db.default_keyspace().put("a", "1").unwrap();
    assert_eq!(db.open_keyspace("default").unwrap().len().unwrap(), 1);
}

#[test]
fn a_keyspace_with_the_name_of_a_dropped_one_is_empty() {
    let mem = MemFs::new();
    let db = open(&mem);
    let first = db.create_keyspace("k").unwrap();
    first.put("a", "1").unwrap();
    let snapshot = db.snapshot();
    db.drop_keyspace("k").unwrap();
    let second = db.create_keyspace("k").unwrap();
    assert!(second.is_empty().unwrap() && second.get("a").unwrap().is_none());
    assert!(matches!(first.put("b", "2"), Err(Error::KeyspaceNotFound(_))));
    assert!(matches!(first.get("a"), Err(Error::KeyspaceNotFound(_))));
    assert_eq!(snapshot.len(&second).unwrap(), 0);
    second.put("c", "3").unwrap();
    db.compact().unwrap();
    assert_eq!(second.iter().count(), 1);
    db.close().unwrap();
    let db = open(&mem);
    assert_eq!(dump_sound(&db).unwrap()["k"].len(), 1);
}

#[test]
fn thousands_of_keyspaces_cost_little() {
    const KEYSPACES: usize = 3000;
    let mem = MemFs::new();
    let open =
        || esker::Db::builder().env(esker_env::Env::simulated(Arc::new(mem.clone()), 1)).background(false);
    let db = open().open(dir()).unwrap();
    let keyspaces: Vec<_> = (0..KEYSPACES).map(|n| db.create_keyspace(&format!("k{n}")).unwrap()).collect();
    let mut batch = db.batch();
    for (n, keyspace) in keyspaces.iter().enumerate() {
        batch.put(keyspace, "n", n.to_string()).unwrap();
    }
    batch.commit_with(Durability::Sync).unwrap();
    drop(keyspaces);
    db.compact().unwrap();
    db.close().unwrap();
    let bytes = mem.used_bytes();
    let db = open().open(dir()).unwrap();
    assert_eq!(db.keyspaces().unwrap().len(), KEYSPACES + 1);
    let value = db.open_keyspace("k2999").unwrap().get("n").unwrap().unwrap();
    assert!(value == b"2999");
    assert!(db.check().unwrap().problems.is_empty());
    // Each costs its catalog entry and its item, but no file.
    assert!(db.stats().table_bytes < 100 * KEYSPACES as u64, "{:?}", db.stats());
    assert!(bytes < 64 << 20, "{bytes} bytes of files");
}

#[test]
fn odd_sizes_are_rounded_where_they_must_be() {
    for odd in [1, 4097, 100_001] {
        let db = simulated(Arc::new(MemFs::new()))
            .tuning(|t| t.memtable_bytes(odd))
            .memory((1 << 20) + odd as u64)
            .open(dir())
            .unwrap();
        db.default_keyspace().put("k", "v").unwrap();
        db.compact().unwrap();
        assert_eq!(db.default_keyspace().len().unwrap(), 1);
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let builder = || simulated(Arc::new(MemFs::new()));
    for (what, builder) in [
        ("memory", builder().memory(0)),
        ("block_bytes", builder().tuning(|t| t.block_bytes(0))),
        ("block_bytes", builder().tuning(|t| t.block_bytes(usize::MAX))),
        ("table_bytes", builder().tuning(|t| t.table_bytes(0))),
        ("table_bytes", builder().tuning(|t| t.table_bytes((1 << 40) + 1))),
        ("table_bytes", builder().tuning(|t| t.table_bytes(u64::MAX))),
        ("memtable_bytes", builder().tuning(|t| t.memtable_bytes(0))),
        ("memtable_bytes", builder().tuning(|t| t.memtable_bytes((16 << 30) + 1))),
        ("memtable_bytes", builder().tuning(|t| t.memtable_bytes(usize::MAX))),
    ] {
        match builder.open(dir()) {
            Err(Error::Invalid(text)) => assert!(text.contains(what), "{text}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn the_largest_options_work() {
    let builder = simulated(Arc::new(MemFs::new()))
        .memory(u64::MAX)
        .tuning(|t| t.replay_bytes(u64::MAX).table_bytes(1 << 40));
    let db = builder.open(dir()).unwrap();
    for n in 0..5000_u32 {
        db.default_keyspace().put(n.to_be_bytes(), "v").unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.default_keyspace().len().unwrap(), 5000);
    db.close().unwrap();
}

#[test]
fn creating_is_as_the_options_say() {
    let mem = MemFs::new();
    let builder = || simulated(Arc::new(mem.clone()));
    assert!(
        matches!(builder().create_if_missing(false).open(dir()), Err(Error::NotFound(path)) if path == dir())
    );
    builder().error_if_exists(true).open(dir()).unwrap().close().unwrap();
    assert!(builder().error_if_exists(true).open(dir()).is_err());
    builder().create_if_missing(false).open(dir()).unwrap();
}
