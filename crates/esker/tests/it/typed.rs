//! Typed tables: keys have the order of their type, whatever it is.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Debug;

use esker::Db;
use esker::typed::{Codec, Decode, Descending, Encode, Table};

/// A table returns what was put, sorted. Ranges agree with it.
fn check<K: Encode + Decode + PartialOrd + Clone + Debug>(mut keys: Vec<K>) {
    let db = Db::in_memory().unwrap();
    let table: Table<K, u32> = Table::new(db.default_keyspace());
    for (n, key) in keys.iter().enumerate() {
        table.put(key, &(n as u32)).unwrap();
        assert_eq!(table.get(key).unwrap(), Some(n as u32));
    }
    keys.sort_by(|a, b| a.partial_cmp(b).unwrap());
    keys.dedup_by(|a, b| (*a).partial_cmp(&*b) == Some(std::cmp::Ordering::Equal));
    let all = |entries: esker::typed::Entries<K, u32>| entries.map(|e| e.unwrap().0).collect::<Vec<_>>();
    let is_same = |found: &[K], expected: &[K]| {
        assert!(found.len() == expected.len(), "{found:?} {expected:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.partial_cmp(expected) == Some(std::cmp::Ordering::Equal), "{found:?} {expected:?}");
        }
    };
    is_same(&all(table.range(..).unwrap()), &keys);
    let (low, high) = (keys.len() / 4, keys.len() / 2);
    is_same(&all(table.range(keys[low].clone()..keys[high].clone()).unwrap()), &keys[low..high]);
    is_same(&all(table.range(keys[low].clone()..=keys[high].clone()).unwrap()), &keys[low..=high]);
    let mut back: Vec<_> = table.range(..).unwrap().rev().map(|e| e.unwrap().0).collect();
    back.reverse();
    is_same(&back, &keys);
}

#[derive(Clone, Debug, PartialEq, PartialOrd, storekey::Encode, storekey::Decode)]
enum Kind {
    None,
    Number(i32),
    Named { name: String, of: u8 },
}

#[test]
fn keys_come_in_the_order_of_their_type() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut text = || {
        (0..rng.usize(0..5)).map(|_| ['\0', '\u{1}', 'a', 'b', '\u{e9}'][rng.usize(0..5)]).collect::<String>()
    };
    let texts: Vec<String> = (0..200).map(|_| text()).collect();
    let mut rng = fastrand::Rng::with_seed(2);
    let numbers: Vec<i64> =
        (0..200).map(|n| if n < 5 { [0, 1, -1, i64::MAX, i64::MIN][n] } else { rng.i64(..) }).collect();
    check(numbers.clone());
    check(numbers.iter().map(|n| *n as u8).collect());
    check(numbers.iter().map(|n| *n as i16).collect());
    check(numbers.iter().map(|n| (*n as f64) / 3.0).chain([f64::INFINITY, -f64::INFINITY, 0.5]).collect());
    check(texts.clone());
    check(texts.iter().map(|t| Descending(t.clone())).collect());
    check(numbers.iter().map(|n| Descending(*n)).collect());
    check(numbers.iter().map(|n| (*n % 3 != 0).then_some(*n)).collect());
    let pairs = texts.iter().cloned().zip(numbers.iter().copied());
    check(pairs.clone().collect());
    check(pairs.clone().map(|(t, n)| (Descending(n % 4), t, n as u16)).collect());
    let kinds = pairs.map(|(name, n)| match n % 3 {
        0 => Kind::None,
        1 => Kind::Number(n as i32),
        _ => Kind::Named { name, of: n as u8 },
    });
    check(kinds.collect());
}

#[test]
fn a_prefix_is_of_leading_fields_and_transactions_see_their_own() {
    let db = Db::in_memory().unwrap();
    let table: Table<(String, u32), String> = Table::new(db.default_keyspace());
    for (name, n) in [("a", 1), ("a", 2), ("ab", 1), ("b", 1)] {
        table.put(&(name.to_owned(), n), &format!("{name}{n}")).unwrap();
    }
    let of_a: Vec<_> = table.prefix("a").unwrap().map(|e| e.unwrap().1).collect();
    assert_eq!(of_a, ["a1", "a2"]);
    let mut t = db.begin();
    table.put_in(&mut t, &("a".to_owned(), 3), &"new".to_owned()).unwrap();
    table.remove_in(&mut t, &("a".to_owned(), 1)).unwrap();
    let view = t.keyspace(table.keyspace());
    assert_eq!(table.get_from(&view, &("a".to_owned(), 3)).unwrap().as_deref(), Some("new"));
    let own: Vec<_> = table.prefix_of(&view, "a").unwrap().map(|e| e.unwrap().1).collect();
    assert_eq!((own, table.len().unwrap()), (vec!["a2".to_owned(), "new".to_owned()], 4));
    table.remove(&("b".to_owned(), 1)).unwrap();
    assert!(!table.contains(&("b".to_owned(), 1)).unwrap() && !table.is_empty().unwrap());
}

/// Text as it is.
struct Plain;

impl Codec<String> for Plain {
    fn encode(value: &String) -> Result<Vec<u8>, String> {
        Ok(value.clone().into_bytes())
    }
    fn decode(bytes: &[u8]) -> Result<String, String> {
        String::from_utf8(bytes.to_vec()).map_err(|e| e.to_string())
    }
}

#[test]
fn a_value_of_another_type_is_an_error() {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    let plain: Table<u32, String, Plain> = Table::new(map.clone());
    plain.put(&1, &"one".to_owned()).unwrap();
    assert_eq!(map.get(1_u32.to_be_bytes()).unwrap().as_deref(), Some(&b"one"[..]));
    map.put("longer than a number", "x").unwrap();
    map.put(2_u32.to_be_bytes(), b"\xff").unwrap();
    assert!(plain.get(&2).is_err());
    let entries: Vec<_> = plain.range(..).unwrap().map(|entry| entry.is_ok()).collect();
    assert_eq!(entries, [true, false, false]);
}
