//! Encodes and decodes the changes of a commit.
//!
//! Changes refer to keyspaces by number (replay.2).
//!
//! The decoder never reads beyond the end, and allocates nothing for an unchecked length. The bytes may end
//! within a change.
//!
//! Bytes: docs/formats/changes.md

use crate::db::{FeedChange, FeedOperand, FeedValue};
use crate::encoding::bytes::{ByteReader, Decoded};
use crate::encoding::operand::Operand;
use crate::engine::state::keyspace_options::StoredOptions;
use crate::types::expiry::Expiry;
use crate::types::{Error, KeyspaceId, Result};

const PUT: u8 = 1;
const MERGE: u8 = 2;
const REMOVE: u8 = 3;
const REMOVE_RANGE: u8 = 4;
const NAMED: u8 = 5;
const UNNAMED: u8 = 6;
const OPTIONS: u8 = 7;

/// Encodes a change and appends it to `out`.
///
/// # Errors
/// The value cannot be read.
pub fn encode(change: &FeedChange<'_>, out: &mut Vec<u8>) -> Result<()> {
    match change {
        FeedChange::Put { keyspace, key, value } => {
            put_head(out, PUT, *keyspace);
            out.extend_from_slice(&value.expiry().map_or(0, Expiry::ms).to_le_bytes());
            put_string(out, key);
            match value.bytes() {
                Some(bytes) => put_string(out, bytes),
                None => put_string(out, &value.read()?),
            }
        }
        FeedChange::Merge { keyspace, key, operands } => {
            for FeedOperand(Operand { at_ms, lifetime_ms, bytes }) in operands {
                put_head(out, MERGE, *keyspace);
                out.extend_from_slice(&at_ms.to_le_bytes());
                out.extend_from_slice(&lifetime_ms.to_le_bytes());
                put_string(out, key);
                put_string(out, bytes);
            }
        }
        FeedChange::Delete { keyspace, key } | FeedChange::Expire { keyspace, key } => {
            put_head(out, REMOVE, *keyspace);
            put_string(out, key);
        }
        FeedChange::DeleteRange { keyspace, start, end } => {
            put_head(out, REMOVE_RANGE, *keyspace);
            put_string(out, start);
            out.push(u8::from(end.is_some()));
            put_string(out, end.unwrap_or_default());
        }
        FeedChange::Named { keyspace, name } => {
            put_head(out, NAMED, *keyspace);
            put_string(out, name.as_bytes());
        }
        FeedChange::Unnamed { name } => {
            put_head(out, UNNAMED, KeyspaceId::CATALOG);
            put_string(out, name.as_bytes());
        }
        FeedChange::Options { keyspace, options } => {
            put_head(out, OPTIONS, *keyspace);
            let mut bytes = Vec::new();
            options.encode(&mut bytes);
            put_string(out, &bytes);
        }
        // The other database writes its own entries.
        FeedChange::Internal { .. } => {}
    }
    Ok(())
}

/// Decodes the change at the start of `bytes`, and returns it with its length. `None` if it is incomplete.
///
/// # Errors
/// [`Error::UnknownChange`]; [`Error::Invalid`] if it is no change.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<(FeedChange<'_>, usize)>> {
    match bytes.first() {
        None | Some(PUT..=OPTIONS) => {}
        Some(kind) => {
            return Err(Error::UnknownChange(format!(
                "unknown kind of change {kind}, which a newer version has written"
            )));
        }
    }
    let mut reader = ByteReader::new(bytes);
    match read(&mut reader) {
        Ok(change) => Ok(Some((change?, reader.position()))),
        Err(_) => Ok(None),
    }
}

/// Decodes a change. The outer error: the bytes end too early.
fn read<'a>(reader: &mut ByteReader<'a>) -> Decoded<Result<FeedChange<'a>>> {
    let (kind, keyspace) = (reader.u8()?, KeyspaceId::new(reader.u32()?));
    let text = |bytes: &'a [u8]| {
        std::str::from_utf8(bytes)
            .map_err(|_| Error::Invalid("the name of a keyspace is not UTF-8".to_owned()))
    };
    Ok(match kind {
        PUT => {
            let expires = reader.u64()?;
            let (key, value) = (string(reader)?, string(reader)?);
            let value = FeedValue::new(value, (expires > 0).then(|| Expiry::at_ms(expires)));
            Ok(FeedChange::Put { keyspace, key, value })
        }
        MERGE => {
            let (at_ms, lifetime_ms) = (reader.u64()?, reader.u64()?);
            let (key, bytes) = (string(reader)?, string(reader)?);
            let operands = vec![FeedOperand(Operand { at_ms, lifetime_ms, bytes })];
            Ok(FeedChange::Merge { keyspace, key, operands })
        }
        REMOVE => Ok(FeedChange::Delete { keyspace, key: string(reader)? }),
        REMOVE_RANGE => {
            let (start, has_end, end) = (string(reader)?, reader.u8()?, string(reader)?);
            Ok(FeedChange::DeleteRange { keyspace, start, end: (has_end != 0).then_some(end) })
        }
        NAMED => text(string(reader)?).map(|name| FeedChange::Named { keyspace, name }),
        UNNAMED => text(string(reader)?).map(|name| FeedChange::Unnamed { name }),
        _ => match StoredOptions::decode(string(reader)?) {
            Ok(options) => Ok(FeedChange::Options { keyspace, options: options.given }),
            Err(_) => Err(Error::UnknownChange(format!(
                "unknown options of keyspace {keyspace}, which a newer version has written"
            ))),
        },
    })
}

fn put_head(out: &mut Vec<u8>, kind: u8, keyspace: KeyspaceId) {
    out.push(kind);
    out.extend_from_slice(&keyspace.get().to_le_bytes());
}

/// Appends the length of a string and the string. Keys, values and names are far below 4 GiB.
fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn string<'a>(reader: &mut ByteReader<'a>) -> Decoded<&'a [u8]> {
    let len = reader.u32()?;
    reader.take(len.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::state::keyspace_options::KeyspaceOptions;

    #[test]
    fn changes_are_written_and_read_wherever_they_break_off() {
        let options =
            KeyspaceOptions { merge_operator: Some("max".to_owned()), ..KeyspaceOptions::default() };
        let id = KeyspaceId::new;
        let value = FeedValue::new(b"value", Some(Expiry::at_ms(9)));
        let operands = vec![FeedOperand(Operand { at_ms: 258, lifetime_ms: 7, bytes: b"1" })];
        let all = [
            FeedChange::Put { keyspace: id(2), key: b"k", value },
            FeedChange::Merge { keyspace: id(3), key: b"k", operands },
            FeedChange::Delete { keyspace: id(300), key: b"" },
            FeedChange::DeleteRange { keyspace: id(2), start: b"a", end: Some(b"b") },
            FeedChange::DeleteRange { keyspace: id(2), start: b"", end: None },
            FeedChange::Named { keyspace: id(9), name: "r1" },
            FeedChange::Unnamed { name: "r2" },
            FeedChange::Options { keyspace: id(9), options },
        ];
        let golden = |change: &FeedChange<'_>| {
            let mut bytes = Vec::new();
            encode(change, &mut bytes).unwrap();
            bytes
        };
        for change in &all {
            let mut bytes = golden(change);
            for len in 0..bytes.len() {
                assert!(matches!(decode(&bytes[..len]), Ok(None)), "{change:?}");
            }
            let len = bytes.len();
            bytes.push(UNNAMED);
            let (found, found_len) = decode(&bytes).unwrap().unwrap();
            assert_eq!((format!("{found:?}"), found_len), (format!("{change:?}"), len));
            assert_eq!(golden(&found), bytes[..len]);
        }
        assert_eq!(
            golden(&all[1]),
            [
                &[2, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0][..],
                &[1, 0, 0, 0, b'k', 1, 0, 0, 0, b'1']
            ]
            .concat()
        );
        assert_eq!(golden(&all[7]), [7, 9, 0, 0, 0, 5, 0, 0, 0, 4, 3, b'm', b'a', b'x']);
        let is_unknown = |bytes: &[u8]| matches!(decode(bytes), Err(Error::UnknownChange(_)));
        assert!(is_unknown(&[99]));
        assert!(is_unknown(&[7, 9, 0, 0, 0, 2, 0, 0, 0, 99, 0]), "an option of tomorrow");
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..8)).collect();
            let _ = decode(&bytes);
        }
    }
}
