//! Tests of the reader of snapshots.

use super::*;
use crate::{checksum, value_of_dump};

fn snapshot(body: &[u8]) -> Vec<u8> {
    let mut bytes = b"REDIS0011".to_vec();
    bytes.extend_from_slice(body);
    bytes.push(END);
    let sum = checksum::add(0, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn all(bytes: &[u8]) -> Result<Vec<Item>> {
    let mut reader = Reader::new(bytes)?;
    let mut items = Vec::new();
    while let Some(item) = reader.read()? {
        items.push(item);
    }
    assert!(reader.offset() <= bytes.len() as u64);
    Ok(items)
}

#[test]
fn databases_deadlines_and_strings() {
    let mut body = vec![AUXILIARY, 1, b'a', 1, b'b', DATABASE, 2, SIZES, 1, 1, EXPIRES_MS];
    body.extend_from_slice(&7_u64.to_le_bytes());
    body.extend_from_slice(&[IDLE, 3, 0, 1, b'k', 0xc1, 0x39, 0x30, FREQUENCY, 9, 0, 1, b'l', 1, b'v']);
    let mut bytes = snapshot(&body);
    let key = |name: &[u8], value: &[u8], expires_ms| {
        let value = Value::String(value.to_vec());
        Item::Key(Box::new(Key { name: name.to_vec(), value, expires_ms }))
    };
    let wanted = [Item::Database(2), key(b"k", b"12345", 7), key(b"l", b"v", 0)];
    assert_eq!(all(&bytes).unwrap(), wanted);
    // Commands of the replication follow the snapshot.
    bytes.extend_from_slice(b"*1\r\n");
    let mut reader = Reader::new(&bytes[..]).unwrap();
    while reader.read().unwrap().is_some() {}
    assert_eq!(reader.offset(), bytes.len() as u64 - 4);
    bytes.truncate(bytes.len() - 4);
    for at in 9..bytes.len() {
        assert!(all(&bytes[..at]).is_err(), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert!(all(&damaged).is_err(), "damaged at {at}");
    }
}

#[test]
fn modules_are_refused_with_key_and_offset() {
    // The id of "ReJSON-RL", version 3.
    let name = b"ReJSON-RL";
    let index = |c: &u8| {
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".iter().position(|x| x == c)
    };
    let id = name.iter().fold(0_u64, |id, c| id << 6 | index(c).unwrap() as u64) << 10 | 3;
    let mut body = vec![MODULE, 3, b'd', b'o', b'c', 0x81];
    body.extend_from_slice(&id.to_be_bytes());
    let error = all(&snapshot(&body)).unwrap_err().to_string();
    assert_eq!(error, "key 'doc': at offset 14: values of modules are not supported (module type ReJSON-RL)");
    let error = all(&snapshot(&[99, 1, b'k', 0])).unwrap_err().to_string();
    assert_eq!(error, "key 'k': at offset 12: values of type 99 are not supported");
    let mut data = vec![MODULE_DATA, 0x81];
    data.extend_from_slice(&id.to_be_bytes());
    data.extend_from_slice(&[2, 1, 1, 5, 3, 0, 0, 0, 0, 5, 1, b'x', 0]);
    assert_eq!(all(&snapshot(&data)).unwrap(), [Item::ModuleData("ReJSON-RL".to_owned())]);
    for head in ["REDIS0013", "VALKEY080", "REDIS000x"] {
        assert!(all(head.as_bytes()).is_err(), "{head}");
    }
}

#[test]
fn fields_with_deadlines() {
    let field = |name: &str, expires_ms| crate::Field { name: name.into(), value: b"v".to_vec(), expires_ms };
    let mut body = vec![24, 1, b'h'];
    body.extend_from_slice(&1000_u64.to_le_bytes());
    body.extend_from_slice(&[2, 0, 1, b'a', 1, b'v', 6, 1, b'b', 1, b'v']);
    let Item::Key(key) = &all(&snapshot(&body)).unwrap()[0] else { panic!() };
    assert_eq!(key.value, Value::Hash(vec![field("a", 0), field("b", 1005)]));
    let pack = [
        25, 0, 0, 0, 6, 0, 0x81, b'a', 2, 0x81, b'v', 2, 0, 1, 0x81, b'b', 2, 0x81, b'v', 2, 0xc3, 0xe8, 2,
        0xff,
    ];
    let mut body = vec![25, 1, b'h'];
    body.extend_from_slice(&1000_u64.to_le_bytes());
    let mut pack = pack.to_vec();
    pack[0] = pack.len() as u8;
    body.push(pack.len() as u8);
    body.extend_from_slice(&pack);
    let Item::Key(key) = &all(&snapshot(&body)).unwrap()[0] else { panic!() };
    assert_eq!(key.value, Value::Hash(vec![field("a", 0), field("b", 1000)]));
}

#[test]
fn random_bytes_never_panic() {
    // A generator of our own: this crate has no dependencies.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    for kind in (0..26_u8).cycle().take(20_000) {
        let mut body = vec![kind, 1, b'k'];
        body.extend((0..next() % 64).map(|_| if next() < 128 { next() % 8 } else { next() }));
        let _ = all(&snapshot(&body));
        let mut dumped = body[..1].iter().chain(&body[3..]).copied().collect::<Vec<_>>();
        dumped.extend_from_slice(&[11, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let _ = value_of_dump(&dumped, 1 << 20);
    }
}
