//! The contents of a database as maps. Reading them checks that all ways to read agree.

use std::collections::{BTreeMap, BTreeSet};

use esker::{Db, Keyspace, Result};

/// The entries of a keyspace.
pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// The keyspaces by name.
pub type Contents = BTreeMap<String, Map>;

/// Reads everything.
pub fn dump(db: &Db) -> Result<Contents> {
    let one = |name: String| {
        let map = read_all(&db.open_keyspace(&name)?)?;
        Ok((name, map))
    };
    db.keyspaces()?.into_iter().map(one).collect()
}

/// Reads everything, and gets each of these keys from each keyspace. Keys that no walk shows must be absent.
pub fn dump_knowing(db: &Db, keys: &BTreeSet<Vec<u8>>) -> Result<Contents> {
    let contents = dump(db)?;
    for (name, map) in &contents {
        let keyspace = db.open_keyspace(name)?;
        for key in keys.iter().filter(|key| !map.contains_key(*key)) {
            let shown = key.escape_ascii();
            assert!(keyspace.get(key)?.is_none(), "get finds {name}/{shown}, which no walk shows");
        }
    }
    Ok(contents)
}

/// Reads everything and asserts that `check` reports no problem.
pub fn dump_sound(db: &Db) -> Result<Contents> {
    let contents = dump(db)?;
    let report = db.check()?;
    assert!(report.problems.is_empty(), "check: {:#?}", report.problems);
    Ok(contents)
}

/// The entries of one keyspace: read forwards, backwards, keys only, one by one, and counted.
fn read_all(keyspace: &Keyspace) -> Result<Map> {
    let mut map = Map::new();
    let mut last: Option<Vec<u8>> = None;
    for entry in keyspace.iter() {
        let (key, value) = entry?;
        assert!(last.is_none_or(|last| last[..] < key[..]), "keys ascend");
        last = Some(key.to_vec());
        map.insert(key.to_vec(), value.to_vec());
    }
    let backwards: Result<Vec<_>> = keyspace.iter().rev().collect();
    assert!(
        backwards?.iter().rev().map(|(k, v)| (&k[..], &v[..])).eq(map.iter().map(|(k, v)| (&k[..], &v[..]))),
        "backwards is forwards reversed"
    );
    let keys: Result<Vec<_>> = keyspace.iter().keys().collect();
    assert!(keys?.iter().map(|k| &k[..]).eq(map.keys().map(|k| &k[..])), "keys are the entries' keys");
    for (key, value) in &map {
        let got = keyspace.get(key)?;
        assert!(got.is_some_and(|got| got[..] == value[..]), "get finds {}", key.escape_ascii());
    }
    assert_eq!(keyspace.len()?, map.len() as u64, "len is exact");
    Ok(map)
}

/// Describes the first difference between two states.
pub fn difference(found: &Contents, expected: &Contents) -> String {
    let names = |c: &Contents| c.keys().cloned().collect::<Vec<_>>();
    if names(found) != names(expected) {
        return format!("keyspaces {:?}, expected {:?}", names(found), names(expected));
    }
    for (name, map) in found {
        let other = &expected[name];
        let show = |v: Option<&Vec<u8>>| {
            v.map(|v| format!("{} bytes {}", v.len(), v[..v.len().min(12)].escape_ascii()))
        };
        let keys = map.keys().chain(other.keys());
        if let Some(key) = keys.into_iter().find(|k| map.get(*k) != other.get(*k)) {
            let shown = key[..key.len().min(60)].escape_ascii();
            return format!("{name}/{shown}: {:?}, expected {:?}", show(map.get(key)), show(other.get(key)));
        }
    }
    "no difference".to_owned()
}
