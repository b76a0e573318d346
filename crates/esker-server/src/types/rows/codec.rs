//! Encodes and decodes the keys and values of columns.
//!
//! - Stored keys are sorted by table, key and column, each compared byte by byte.
//! - They equal the keys of a typed table of three byte strings (feature `typed` of the engine).
//!
//! Bytes: docs/formats/obigstore.md

use std::borrow::Cow;

use crate::resp::fail::{Done, Fail};

/// Ends a part.
const END: u8 = 0;
/// Precedes a byte that is 0 or 1.
const ESCAPE: u8 = 1;
/// Maximum size of a stored key: the engine's limit.
const KEY_BYTES_MAX: usize = 65_535;
/// Size of the timestamp before a column's data.
const STAMP_BYTES: usize = 8;

/// Appends a part of a key.
pub fn push_part(out: &mut Vec<u8>, part: &[u8]) {
    out.reserve(part.len() + 1);
    for byte in part {
        if *byte <= ESCAPE {
            out.push(ESCAPE);
        }
        out.push(*byte);
    }
    out.push(END);
}

/// The prefix of the stored keys with these parts.
pub fn prefix(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    parts.iter().for_each(|part| push_part(&mut out, part));
    out
}

/// The first stored key after all keys with this prefix of whole parts.
pub fn behind(mut prefix: Vec<u8>) -> Vec<u8> {
    if let Some(end) = prefix.last_mut() {
        *end = ESCAPE;
    }
    prefix
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

/// The first part of stored bytes, including its end. `None` if it has no end.
pub fn first_part(stored: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    loop {
        match *stored.get(at)? {
            END => return Some(&stored[..=at]),
            ESCAPE => at += 2,
            _ => at += 1,
        }
    }
}

/// Decodes a stored part.
pub fn plain(part: &[u8]) -> Cow<'_, [u8]> {
    let part = part.strip_suffix(&[END]).unwrap_or(part);
    if !part.contains(&ESCAPE) {
        return Cow::Borrowed(part);
    }
    let mut bytes = part.iter();
    let mut out = Vec::with_capacity(part.len());
    while let Some(byte) = bytes.next() {
        let byte = if *byte == ESCAPE { bytes.next() } else { Some(byte) };
        out.extend(byte);
    }
    Cow::Owned(out)
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
    let (mut bytes, mut ends) = (stored.iter(), 0);
    while let Some(byte) = bytes.next() {
        match *byte {
            END => ends += 1,
            ESCAPE if !matches!(bytes.next(), Some(0..=ESCAPE)) => return false,
            _ => {}
        }
        if ends == 3 {
            return bytes.as_slice().is_empty();
        }
    }
    false
}

/// The error of an entry that is not a column.
pub fn foreign(what: &str) -> Fail {
    Fail::text(format!("ERR the keyspace holds a {what} that is no row's: see docs/formats/obigstore.md"))
}

#[cfg(test)]
mod tests {
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
            assert_eq!(stored(&a), storekey::encode_vec(&a).unwrap());
            assert_eq!(problem(&stored(&a), &[0; 8]), None);
            let bytes = stored(&a);
            let table = first_part(&bytes).unwrap();
            let key = first_part(&bytes[table.len()..]).unwrap();
            let column = &bytes[table.len() + key.len()..];
            assert_eq!([table, key, column].map(|part| plain(part).into_owned()), [a.0, a.1, a.2]);
        }
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(cell_key(b"t", b"a\0b", b"\x01").unwrap(), b"t\0a\x01\0b\0\x01\x01\0");
        assert_eq!(behind(prefix(&[b"t"])), b"t\x01");
        assert_eq!(encode_value(0x0102, b"data"), b"\x02\x01\0\0\0\0\0\0data");
        assert_eq!(decode_value(b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFx").unwrap(), (-1, &b"x"[..]));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        assert!(
            decode_value(b"short").is_err() && first_part(b"abc").is_none() && first_part(b"a\x01").is_none()
        );
        assert_eq!(*plain(b"a\x01"), *b"a");
        assert!(cell_key(b"t", &[1; 40_000], b"c").is_err());
        for key in
            [&b""[..], b"t", b"t\0k\0", b"t\0k\0c", b"t\0k\0c\0\0", b"t\0k\0c\x01", b"t\0k\0c\x01\x02\0"]
        {
            assert!(problem(key, &[0; 8]).is_some(), "{key:?}");
        }
        assert!(problem(b"t\0k\0c\0", &[0; 7]).is_some());
    }
}
