//! The changes of a commit as they are sent.
//!
//! change.1. They name keyspaces by their numbers. All databases that descend from one another have the same: apply.rs sees to it.
//!
//! Bytes: docs/formats/replication.md

use esker::{Counting, Db, FeedChange, KeyspaceId, Result};

use super::bytes::{Broken, Reader, put_string};

/// A change.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A key gets a value, which expires then (in ms since 1970), or never (0).
    Put { keyspace: u32, key: &'a [u8], value: &'a [u8], expires: u64 },
    /// An operand is merged into a key.
    Merge { keyspace: u32, key: &'a [u8], operand: &'a [u8] },
    /// A key is removed.
    Remove { keyspace: u32, key: &'a [u8] },
    /// The keys of a range are removed.
    RemoveRange { keyspace: u32, start: &'a [u8], end: Option<&'a [u8]> },
    /// A keyspace has this name from now on.
    Named { keyspace: u32, name: &'a str, is_lazy: bool },
    /// No keyspace has this name any more.
    Unnamed { name: &'a str },
}

const PUT: u8 = 1;
const MERGE: u8 = 2;
const REMOVE: u8 = 3;
const REMOVE_RANGE: u8 = 4;
const NAMED: u8 = 5;
const UNNAMED: u8 = 6;

impl<'a> Change<'a> {
    /// Its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, keyspace: u32| {
            out.push(kind);
            out.extend_from_slice(&keyspace.to_le_bytes());
        };
        match *self {
            Change::Put { keyspace, key, value, expires } => {
                head(PUT, keyspace);
                out.extend_from_slice(&expires.to_le_bytes());
                put_string(out, key);
                put_string(out, value);
            }
            Change::Merge { keyspace, key, operand } => {
                head(MERGE, keyspace);
                put_string(out, key);
                put_string(out, operand);
            }
            Change::Remove { keyspace, key } => {
                head(REMOVE, keyspace);
                put_string(out, key);
            }
            Change::RemoveRange { keyspace, start, end } => {
                head(REMOVE_RANGE, keyspace);
                put_string(out, start);
                out.push(u8::from(end.is_some()));
                put_string(out, end.unwrap_or_default());
            }
            Change::Named { keyspace, name, is_lazy } => {
                head(NAMED, keyspace);
                out.push(u8::from(is_lazy));
                put_string(out, name.as_bytes());
            }
            Change::Unnamed { name } => {
                head(UNNAMED, 0);
                put_string(out, name.as_bytes());
            }
        }
    }

    /// The change that bytes begin with, and how long it is; none if there is more to come.
    pub fn decode(bytes: &'a [u8]) -> std::result::Result<Option<(Change<'a>, usize)>, Broken> {
        match bytes.first() {
            None | Some(PUT..=UNNAMED) => {}
            Some(_) => return Err(Broken("a change is of a kind that is not known")),
        }
        let mut reader = Reader::new(bytes);
        match Self::read(&mut reader) {
            Ok(change) => Ok(Some((change?, bytes.len() - reader.left()))),
            Err(_) => Ok(None),
        }
    }

    /// The outer error: it ends too early.
    fn read(reader: &mut Reader<'a>) -> std::result::Result<std::result::Result<Change<'a>, Broken>, Broken> {
        let (kind, keyspace) = (reader.u8()?, reader.u32()?);
        let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).map_err(|_| Broken("a name is not UTF-8"));
        Ok(match kind {
            PUT => {
                let expires = reader.u64()?;
                let (key, value) = (reader.string()?, reader.string()?);
                Ok(Change::Put { keyspace, key, value, expires })
            }
            MERGE => Ok(Change::Merge { keyspace, key: reader.string()?, operand: reader.string()? }),
            REMOVE => Ok(Change::Remove { keyspace, key: reader.string()? }),
            REMOVE_RANGE => {
                let (start, has_end, end) = (reader.string()?, reader.u8()?, reader.string()?);
                Ok(Change::RemoveRange { keyspace, start, end: (has_end != 0).then_some(end) })
            }
            NAMED => {
                let (is_lazy, name) = (reader.u8()? != 0, reader.string()?);
                text(name).map(|name| Change::Named { keyspace, name, is_lazy })
            }
            _ => text(reader.string()?).map(|name| Change::Unnamed { name }),
        })
    }
}

/// Encodes a change of the feed.
///
/// # Errors
/// A value cannot be read.
pub fn encode_change(db: &Db, change: &FeedChange<'_>, out: &mut Vec<u8>) -> Result<()> {
    let id = |keyspace: &KeyspaceId| keyspace.get();
    match change {
        FeedChange::Put { keyspace, key, value } => {
            let expires = value.expires_at().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            let expires = expires.map_or(0, |since| since.as_millis() as u64);
            let read;
            let value = match value.bytes() {
                Some(bytes) => bytes,
                None => {
                    read = value.read()?;
                    &read
                }
            };
            Change::Put { keyspace: id(keyspace), key, value, expires }.encode(out);
        }
        FeedChange::Merge { keyspace, key, operands } => {
            for operand in operands {
                Change::Merge { keyspace: id(keyspace), key, operand }.encode(out);
            }
        }
        FeedChange::Remove { keyspace, key } | FeedChange::Expire { keyspace, key } => {
            Change::Remove { keyspace: id(keyspace), key }.encode(out);
        }
        FeedChange::RemoveRange { keyspace, start, end } => {
            Change::RemoveRange { keyspace: id(keyspace), start, end: *end }.encode(out);
        }
        FeedChange::Named { keyspace, name } => {
            let found = db.open_keyspace(name).ok().filter(|found| found.id() == *keyspace);
            let is_lazy = found.is_some_and(|found| found.counting() == Counting::Lazy);
            Change::Named { keyspace: id(keyspace), name, is_lazy }.encode(out);
        }
        FeedChange::Unnamed { name } => Change::Unnamed { name }.encode(out),
        // Options of keyspaces are those of the copy that a replica has begun with.
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_written_and_read_wherever_they_break_off() {
        let all = [
            Change::Put { keyspace: 2, key: b"k", value: b"value", expires: 9 },
            Change::Merge { keyspace: 3, key: b"k", operand: b"1" },
            Change::Remove { keyspace: 300, key: b"" },
            Change::RemoveRange { keyspace: 2, start: b"a", end: Some(b"b") },
            Change::RemoveRange { keyspace: 2, start: b"", end: None },
            Change::Named { keyspace: 9, name: "r1", is_lazy: true },
            Change::Unnamed { name: "r2" },
        ];
        for change in &all {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            for len in 0..bytes.len() {
                assert_eq!(Change::decode(&bytes[..len]), Ok(None), "{change:?}");
            }
            let len = bytes.len();
            bytes.push(UNNAMED);
            let (decoded, used) = Change::decode(&bytes).unwrap().unwrap();
            assert_eq!((&decoded, used), (change, len));
        }
        let mut golden = Vec::new();
        all[1].encode(&mut golden);
        assert_eq!(golden, [2, 3, 0, 0, 0, 1, 0, 0, 0, b'k', 1, 0, 0, 0, b'1']);
        assert!(Change::decode(&[99]).is_err());
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..8)).collect();
            let _ = Change::decode(&bytes);
        }
    }
}
