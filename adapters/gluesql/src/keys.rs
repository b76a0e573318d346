//! Keys: parts that are ordered and end by themselves, and GlueSQL's ordered bytes of a value.
//!
//! | keyspace | key |
//! |---|---|
//! | schemas | name of the table |
//! | rows | part: name of the table; bytes of the row's key |
//! | indexes | parts: name of the table, name of the index, bytes of the value; bytes of the row's key |
//!
//! A part is its bytes, with 0x00 as 0x00 0xff, and 0x00 0x00 at the end.

use gluesql_core::data::{Key, Value};

use crate::error::Result;

fn add_part(key: &mut Vec<u8>, part: &[u8]) {
    for byte in part {
        key.push(*byte);
        if *byte == 0 {
            key.push(0xff);
        }
    }
    key.extend([0, 0]);
}

/// Returns the prefix of all keys of a table.
pub(crate) fn table(table: &str) -> Vec<u8> {
    let mut key = Vec::new();
    add_part(&mut key, table.as_bytes());
    key
}

pub(crate) fn row(table_name: &str, key: &Key) -> Result<Vec<u8>> {
    let mut bytes = table(table_name);
    bytes.extend(key.to_cmp_be_bytes()?);
    Ok(bytes)
}

/// Returns the prefix of all keys of an index.
pub(crate) fn index(table_name: &str, index: &str) -> Vec<u8> {
    let mut key = table(table_name);
    add_part(&mut key, index.as_bytes());
    key
}

/// Returns the prefix of the keys of a value in an index.
pub(crate) fn index_value(index: &[u8], value: &Value) -> Result<Vec<u8>> {
    let mut key = index.to_vec();
    add_part(&mut key, &value.to_cmp_be_bytes()?);
    Ok(key)
}

/// Returns the first key behind all keys with a prefix that ends with a part.
pub(crate) fn behind(mut prefix: Vec<u8>) -> Vec<u8> {
    // A part ends with 0x00 0x00, and the byte behind a 0x00 within a part is 0xff.
    if let Some(last) = prefix.last_mut() {
        *last = 1;
    }
    prefix
}

/// Returns the bytes of the row's key in a key of an index.
pub(crate) fn row_of_index_key<'a>(index: &[u8], key: &'a [u8]) -> Option<&'a [u8]> {
    let rest = key.get(index.len()..)?;
    let mut position = 0;
    loop {
        match rest.get(position..position + 2)? {
            [0, 0] => return rest.get(position + 2..),
            [0, _] => position += 2,
            _ => position += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_the_order_and_end_by_themselves() {
        let values = ["", "\0", "\0\0", "\0a", "\u{1}", "a", "a\0", "a\0b", "a\u{1}", "ab", "b"];
        let index = index("t", "i");
        let keys: Vec<_> = values
            .iter()
            .map(|value| index_value(&index, &Value::Str((*value).to_owned())).unwrap())
            .collect();
        for (key, next) in keys.iter().zip(&keys[1..]) {
            let with_row = [&key[..], b"\0\xffrow"].concat();
            assert!(key < &with_row && with_row < behind(key.clone()) && behind(key.clone()) <= *next);
            assert_eq!(row_of_index_key(&index, &with_row), Some(&b"\0\xffrow"[..]));
        }
        assert_eq!(row_of_index_key(&index, &index), None);
        assert!(!table("ab").starts_with(&table("a")));
    }
}
