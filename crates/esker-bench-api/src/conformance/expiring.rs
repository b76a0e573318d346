//! The conformance test of entries that expire. They are found while they live and not afterwards, also after
//! reopening.
#![expect(clippy::unwrap_used, reason = "a test, in the library so that adapters in other crates can run it")]

use std::path::Path;
use std::thread;
use std::time::Duration;

use super::{CACHE_BYTES, Items};
use crate::engine::Engine;
use crate::expiring::Expiring;
use crate::store::{Durability, Failure, OpenOptions};

/// Time to live of entries that expire within the test. Engines that count whole seconds may end it a second
/// early.
const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(3600);

fn found(store: &dyn Expiring, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = None;
    let found = store.get(key, &mut |bytes| value = Some(bytes.to_vec())).unwrap();
    assert_eq!(found, value.is_some());
    value
}

fn check(store: &dyn Expiring, live: &[(&str, &str)]) {
    for key in ["a", "b", "c", "d"] {
        let expected =
            live.iter().find(|(there, _)| *there == key).map(|(_, value)| value.as_bytes().to_vec());
        assert_eq!(found(store, key.as_bytes()), expected, "{key}");
    }
    let mut items = Items::new();
    let seen = store.scan(&mut |key, value| items.push((key.to_vec(), value.to_vec()))).unwrap();
    let live: Items =
        live.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
    assert_eq!((seen, items), (live.len() as u64, live), "a scan");
}

/// Runs the test on `engine` in the empty directory `dir`, if its entries can expire.
///
/// # Panics
/// When the adapter or its engine is wrong.
#[expect(
    clippy::disallowed_methods,
    reason = "the lab measures the real machine: it needs no replaceable Env"
)]
pub fn check_expiring(engine: &dyn Engine, dir: &Path) {
    let durability = engine.first_of(&[Durability::Async, Durability::NoSync, Durability::Sync]).unwrap();
    let options = OpenOptions { durability, ..OpenOptions::with_cache(CACHE_BYTES) };
    let store = match engine.open_expiring(dir, &options) {
        Err(Failure::Unsupported(_)) => return,
        opened => opened.unwrap(),
    };
    store.put(b"a", b"for ever", None).unwrap();
    store.put(b"b", b"long", Some(LONG)).unwrap();
    store.put(b"c", b"short", Some(LONG)).unwrap();
    check(&*store, &[("a", "for ever"), ("b", "long"), ("c", "short")]);
    store.put(b"c", b"short", Some(SHORT)).unwrap();
    store.put(b"d", b"short", Some(SHORT)).unwrap();
    thread::sleep(SHORT + Duration::from_millis(100));
    check(&*store, &[("a", "for ever"), ("b", "long")]);
    drop(store);
    let store = engine.open_expiring(dir, &options).unwrap();
    check(&*store, &[("a", "for ever"), ("b", "long")]);
    store.put(b"d", b"again", None).unwrap();
    check(&*store, &[("a", "for ever"), ("b", "long"), ("d", "again")]);
}
