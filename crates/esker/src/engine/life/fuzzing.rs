//! Entry for fuzzers: the keyspace catalog, from any entries.
//!
//! ```text
//!   bytes --key, value, key, value, ...--> entries, sorted --Catalog::load--> refused, or sound
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::encoding::bytes::{ByteReader, put_string};
use crate::encoding::catalog_key::name_key;
use crate::engine::state::catalog::{Catalog, DEFAULT_NAME, NEXT_ID_KEY, check_name, varint};
use crate::txn::snapshots::Published;
use crate::types::key::decode_key;
use crate::types::{Error, KeyspaceId, SeqNo};

/// Length-prefixed keys and values, as keyspace 0 may hold them. A catalog that is taken is sound: each
/// keyspace has one name, and the next one gets an id that none has.
pub fn catalog(bytes: &[u8]) {
    let mut reader = ByteReader::new(bytes);
    let mut entries = BTreeMap::new();
    while let (Ok(key), Ok(value)) = (reader.string(), reader.string()) {
        entries.insert(key.to_vec(), value.to_vec());
    }
    let published = Published::new(SeqNo::ZERO, []);
    let corrupt = |detail| Error::corrupt("keyspace catalog", Path::new("db"), 0, detail);
    let names = entries.len();
    let Ok(catalog) = Catalog::load(
        &published,
        |take| entries.iter().try_for_each(|(key, value)| take(key, value)),
        corrupt,
    ) else {
        return;
    };
    assert_eq!(catalog.get(DEFAULT_NAME).map(|state| state.id), Some(KeyspaceId::DEFAULT));
    let all = catalog.all();
    assert!(all.len() <= names + 1 && all.iter().all(|(name, _)| check_name(name).is_ok()));
    let ids: BTreeSet<_> = catalog.ids().into_iter().collect();
    assert!(ids.len() == all.len() && !ids.contains(&KeyspaceId::CATALOG), "catalog.2");
    let next = catalog.next_id();
    assert!(ids.iter().all(|id| id.get() < next), "catalog.2: {next} is given out next, of {ids:?}");
}

/// Valid catalogs, as [`catalog`] takes them.
pub fn catalogs() -> Vec<Vec<u8>> {
    let catalog = |names: &[(&str, u32)], next: Option<u32>| {
        let mut out = Vec::new();
        let mut entry = |key: &[u8], id| {
            put_string(&mut out, key);
            put_string(&mut out, &varint(id));
        };
        if let Some(next) = next {
            entry(NEXT_ID_KEY, next);
        }
        for (name, id) in names {
            let key = name_key(name);
            let (_, user_key) = decode_key(&key).expect("an encoded key");
            entry(user_key, *id);
        }
        out
    };
    vec![
        catalog(&[], None),
        catalog(&[], Some(9)),
        catalog(&[("users", 2)], Some(3)),
        catalog(&[("a", 300), ("b", 2), ("a longer name, with spaces", 70_000)], Some(u32::MAX)),
    ]
}
