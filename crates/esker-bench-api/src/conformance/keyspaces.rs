//! The conformance test of keyspaces: a write appears in one keyspace only, and disappears with it.
//!
//!   one transaction over all, one key in several, ranges that end, rollback, removal, reopening
#![expect(clippy::unwrap_used, reason = "a test, in the library so that adapters in other crates can run it")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::{CACHE_BYTES, Items, drain_deadline};
use crate::engine::{Engine, Isolation};
use crate::keyspaces::{KeyspaceWriter, Keyspaces};
use crate::store::{Durability, Failure, OpenOptions};

const COUNT: u32 = 6;
const REMOVED: Range<u32> = 2..4;
const KEYS: u32 = 40;
/// After all other keys. A range that finds a later key has read another keyspace.
const LAST_KEY: [u8; 8] = [0xff; 8];

/// The items of each keyspace.
type Model = BTreeMap<u32, BTreeMap<Vec<u8>, Vec<u8>>>;

fn key(i: u32) -> Vec<u8> {
    if i == KEYS - 1 { LAST_KEY.to_vec() } else { format!("key {i:05}").into_bytes() }
}

fn put(keyspaces: &dyn Keyspaces, model: &mut Model, items: &[(u32, u32)], what: &str) {
    let value = |keyspace: u32, i: u32| format!("{what} {i} of {keyspace}").into_bytes();
    let put_all = &mut |writer: &mut dyn KeyspaceWriter| {
        items.iter().try_for_each(|(keyspace, i)| writer.put(*keyspace, &key(*i), &value(*keyspace, *i)))
    };
    keyspaces.write(put_all).expect("a write succeeds");
    for (keyspace, i) in items {
        model.entry(*keyspace).or_default().insert(key(*i), value(*keyspace, *i));
    }
}

fn range(keyspaces: &dyn Keyspaces, keyspace: u32, from: &[u8], limit: u64) -> Items {
    let mut items = Items::new();
    let seen = keyspaces
        .range(keyspace, from, limit, &mut |key, value| items.push((key.to_vec(), value.to_vec())))
        .unwrap();
    assert_eq!(seen, items.len() as u64);
    items
}

fn check(keyspaces: &dyn Keyspaces, model: &Model) {
    for keyspace in 0..COUNT {
        let live = model.get(&keyspace).cloned().unwrap_or_default();
        for i in 0..KEYS {
            let mut value = None;
            let found = keyspaces.get(keyspace, &key(i), &mut |bytes| value = Some(bytes.to_vec()));
            let found = found.expect("a read succeeds");
            assert_eq!(found, value.is_some());
            assert_eq!(value.as_ref(), live.get(&key(i)), "key {i} of keyspace {keyspace}");
        }
        assert!(!keyspaces.get(keyspace, b"no such key", &mut |_| ()).expect("a read succeeds"));
        let items: Items = live.into_iter().collect();
        assert_eq!(range(keyspaces, keyspace, b"", u64::MAX), items, "all of keyspace {keyspace}");
        assert_eq!(range(keyspaces, keyspace, &key(1), 3), items.get(1..4).unwrap_or_default());
        let last = items.last().cloned().into_iter().collect::<Items>();
        assert_eq!(range(keyspaces, keyspace, &LAST_KEY, 10), last, "the end of keyspace {keyspace}");
    }
}

/// Runs the test on `engine` in the empty directory `dir`.
///
/// # Panics
/// When the adapter or its engine is wrong.
pub fn check_keyspaces(engine: &dyn Engine, dir: &Path) {
    let first_of = |of: [Durability; 3]| engine.first_of(&of).expect("each engine has one of them");
    let durability = first_of([Durability::Sync, Durability::Async, Durability::NoSync]);
    let fast = first_of([Durability::Async, Durability::NoSync, Durability::Sync]);
    let open = |durability| {
        let options = OpenOptions { durability, ..OpenOptions::with_cache(CACHE_BYTES) };
        engine.open_keyspaces(dir, &options, COUNT).expect("it opens")
    };
    let mut model = Model::new();
    {
        let keyspaces = open(durability);
        check(&*keyspaces, &model);
        // Neighbours in the transaction belong to different keyspaces, and every key is in all of them.
        let all: Vec<_> = (0..KEYS).flat_map(|i| (0..COUNT).map(move |keyspace| (keyspace, i))).collect();
        put(&*keyspaces, &mut model, &all, "value");
        check(&*keyspaces, &model);
    }
    {
        let mut keyspaces = open(fast);
        check(&*keyspaces, &model);
        put(&*keyspaces, &mut model, &[(5, 7), (0, 7), (3, 9), (3, 9), (0, KEYS - 1)], "replaced");
        check(&*keyspaces, &model);

        // Single operations cannot be rolled back.
        if engine.isolation() != Isolation::Operation {
            let rolled_back = keyspaces.write(&mut |writer| {
                writer.put(1, &key(3), b"never seen")?;
                writer.put(4, &key(3), b"never seen")?;
                Err(Failure::Engine("stop".to_owned()))
            });
            assert!(rolled_back.is_err());
            check(&*keyspaces, &model);
        }

        keyspaces.remove_keyspaces(REMOVED).expect("keyspaces are removed");
        model.retain(|keyspace, _| !REMOVED.contains(keyspace));
        check(&*keyspaces, &model);
        put(&*keyspaces, &mut model, &[(1, 0), (4, 0)], "beside what is gone");
        keyspaces.drain(drain_deadline()).expect("background work ends");
        check(&*keyspaces, &model);
    }
    let keyspaces = open(durability);
    check(&*keyspaces, &model);
    put(&*keyspaces, &mut model, &[(1, 1), (5, 1)], "opened again");
    check(&*keyspaces, &model);
}
