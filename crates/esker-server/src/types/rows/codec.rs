//! Encodes and decodes the keys and values of columns.
//!
//! - Stored keys are sorted by table, key and column, each compared byte by byte.
//! - They equal the keys of a typed table of three byte strings (feature `typed` of the engine).
//!
//! Bytes: docs/formats/obigstore.md

use esker_tuple::{append_bytes, split_bytes};

use crate::resp::fail::{Done, Fail};

/// Follows a prefix of whole parts in no stored key, and sorts behind all that do.
const BEHIND: u8 = 0xFF;
/// Maximum size of a stored key: the engine's limit.
const KEY_BYTES_MAX: usize = 65_535;
/// Size of the timestamp before a column's data.
const STAMP_BYTES: usize = 8;

/// The prefix of the stored keys with these parts.
pub fn prefix(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    parts.iter().for_each(|part| append_bytes(&mut out, part));
    out
}

/// The first stored key after all keys with this prefix of whole parts.
pub fn behind(mut prefix: Vec<u8>) -> Vec<u8> {
    prefix.push(BEHIND);
    prefix
}

/// Returns whether a stored key begins with these whole parts.
pub fn begins_with(stored: &[u8], parts: &[u8]) -> bool {
    stored.strip_prefix(parts).is_some_and(|rest| rest.first() != Some(&BEHIND))
}

/// Encodes the key of a column.
///
/// # Errors
/// If it is too long.
pub fn cell_key(table: &[u8], key: &[u8], column: &[u8]) -> Done<Vec<u8>> {
    let stored = prefix(&[table, key, column]);
    match stored.len() {
        ..=KEY_BYTES_MAX => Ok(stored),
        _ => Err("ERR table, key and column exceed 65535 bytes in their stored form".into()),
    }
}

/// The first part of stored bytes, as stored. `None` if it is not bytes, or has no end.
pub fn first_part(stored: &[u8]) -> Option<&[u8]> {
    split_bytes(stored).map(|(part, _)| part)
}

/// Encodes the value of a column.
pub fn encode_value(stamp: i64, data: &[u8]) -> Vec<u8> {
    [&stamp.to_le_bytes()[..], data].concat()
}

/// Decodes the timestamp and the data of a column.
///
/// # Errors
/// If the value is too short.
pub fn decode_value(stored: &[u8]) -> Done<(i64, &[u8])> {
    match stored.split_first_chunk::<STAMP_BYTES>() {
        Some((stamp, data)) => Ok((i64::from_le_bytes(*stamp), data)),
        None => Err(foreign("value")),
    }
}

/// Describes what is wrong with an entry of a keyspace of rows, if anything is.
pub fn problem(stored_key: &[u8], value: &[u8]) -> Option<&'static str> {
    if !is_cell_key(stored_key) {
        return Some("its key is not that of a column");
    }
    decode_value(value).is_err().then_some("its value has no timestamp")
}

/// Returns whether stored bytes are exactly three parts, as `cell_key` makes them.
fn is_cell_key(stored: &[u8]) -> bool {
    let rest = (0..3).try_fold(stored, |rest, _| split_bytes(rest).map(|(_, rest)| rest));
    rest.is_some_and(<[u8]>::is_empty)
}

/// The error of an entry that is not a column.
pub fn foreign(what: &str) -> Fail {
    Fail::text(format!("ERR the keyspace holds a {what} that is no row's: see docs/formats/obigstore.md"))
}

#[cfg(test)]
mod tests {
    use esker_tuple::bytes_of;

    use super::*;

    type Cell = (Vec<u8>, Vec<u8>, Vec<u8>);

    fn random_part(random: &mut fastrand::Rng) -> Vec<u8> {
        let len = random.usize(..4);
        (0..len).map(|_| [0, 1, 2, 0x61, 0xFF][random.usize(..5)]).collect()
    }

    #[test]
    fn keys_keep_their_order_and_are_those_of_typed_tables() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut cell = || -> Cell { [(); 3].map(|()| random_part(&mut random)).into() };
        let stored = |cell: &Cell| cell_key(&cell.0, &cell.1, &cell.2).unwrap();
        for _ in 0..20_000 {
            let (a, b) = (cell(), cell());
            assert_eq!(stored(&a).cmp(&stored(&b)), a.cmp(&b), "{a:?} {b:?}");
            assert_eq!(stored(&a), esker_tuple::encode(&a).unwrap());
            assert_eq!(problem(&stored(&a), &[0; 8]), None);
            let row = prefix(&[&a.0, &a.1]);
            let is_in = |row: Vec<u8>, cell: &Cell| row <= stored(cell) && stored(cell) < behind(row);
            assert_eq!(begins_with(&stored(&b), &row), (&a.0, &a.1) == (&b.0, &b.1), "{a:?} {b:?}");
            assert_eq!(is_in(row, &b), (&a.0, &a.1) == (&b.0, &b.1), "{a:?} {b:?}");
            let bytes = stored(&a);
            let table = first_part(&bytes).unwrap();
            let key = first_part(&bytes[table.len()..]).unwrap();
            let column = &bytes[table.len() + key.len()..];
            assert_eq!([table, key, column].map(|part| bytes_of(part).into_owned()), [a.0, a.1, a.2]);
        }
    }

    #[test]
    fn golden_bytes() {
        let stored = cell_key(b"t", b"a\0b", b"\x01").unwrap();
        assert_eq!(stored, b"\x01t\0\x01a\0\xFFb\0\x01\x01\0");
        assert_eq!(behind(prefix(&[b"t"])), b"\x01t\0\xFF");
        assert_eq!(encode_value(0x0102, b"data"), b"\x02\x01\0\0\0\0\0\0data");
        assert_eq!(decode_value(b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFx").unwrap(), (-1, &b"x"[..]));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        assert!(decode_value(b"short").is_err());
        assert!([&b"abc\0"[..], b"\x01abc", b"\x01a\0\xFF"].iter().all(|part| first_part(part).is_none()));
        assert!(cell_key(b"t", &[0; 40_000], b"c").is_err());
        let foreign = [
            &b""[..],
            b"t",
            b"\x01t\0\x01k\0",
            b"\x01t\0\x01k\0\x01c",
            b"\x01t\0\x01k\0\x01c\0\0",
            b"\x01t\0\x01k\0\x01c\0\xFF",
            b"\x01t\0\x01k\0\x02c\0",
        ];
        for key in foreign {
            assert!(problem(key, &[0; 8]).is_some(), "{key:?}");
        }
        assert!(problem(b"\x01t\0\x01k\0\x01c\0", &[0; 7]).is_some());
    }
}
