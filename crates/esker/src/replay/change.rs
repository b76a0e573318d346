//! The changes of a commit as bytes.
//!
//! change.1. They name keyspaces by their numbers (replay.2).
//! change.2. Nothing is read beyond the end, and nothing is allocated for a length that was not checked. Changes may break off anywhere.
//!
//! Bytes: docs/formats/changes.md

use crate::db::FeedChange;
use crate::encoding::bytes::{ByteReader, Decoded};
use crate::encoding::operand::Operand;
use crate::engine::state::keyspace_options::{KeyspaceOptions, StoredOptions};
use crate::types::{Error, Result};

/// A change. Keyspaces are their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change<'a> {
    /// A key gets a value, which expires then (in ms since 1970), or never (0).
    Put {
        /// The keyspace.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// When it expires.
        expires: u64,
    },
    /// An operand is merged into a key.
    Merge {
        /// The keyspace.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
        /// When it was merged, in ms since 1970.
        at_ms: u64,
        /// How long the value lasts, in ms, if it begins with this operand; 0: without end.
        lifetime_ms: u64,
    },
    /// A key is removed.
    Remove {
        /// The keyspace.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
    },
    /// The keys of a range are removed.
    RemoveRange {
        /// The keyspace.
        keyspace: u32,
        /// The first key.
        start: &'a [u8],
        /// The first key behind the range.
        end: Option<&'a [u8]>,
    },
    /// A keyspace has this name from now on.
    Named {
        /// The keyspace.
        keyspace: u32,
        /// Its name.
        name: &'a str,
    },
    /// No keyspace has this name any more.
    Unnamed {
        /// The name.
        name: &'a str,
    },
    /// A keyspace has these options from now on.
    Options {
        /// The keyspace.
        keyspace: u32,
        /// All of its options.
        options: KeyspaceOptions,
    },
}

const PUT: u8 = 1;
const MERGE: u8 = 2;
const REMOVE: u8 = 3;
const REMOVE_RANGE: u8 = 4;
const NAMED: u8 = 5;
const UNNAMED: u8 = 6;
const OPTIONS: u8 = 7;

/// Appends the bytes of a change of the feed.
///
/// # Errors
/// A value cannot be read.
pub fn encode(change: &FeedChange<'_>, out: &mut Vec<u8>) -> Result<()> {
    match change {
        FeedChange::Put { keyspace, key, value } => {
            // expiry.2
            let expires = value.expiry().map_or(0, |expiry| expiry.ms());
            let read;
            let value = match value.bytes() {
                Some(bytes) => bytes,
                None => {
                    read = value.read()?;
                    &read
                }
            };
            Change::Put { keyspace: keyspace.get(), key, value, expires }.encode(out);
        }
        FeedChange::Merge { keyspace, key, operands } => {
            for operand in operands {
                let Operand { at_ms, lifetime_ms, bytes: operand } = operand.0;
                Change::Merge { keyspace: keyspace.get(), key, operand, at_ms, lifetime_ms }.encode(out);
            }
        }
        FeedChange::Remove { keyspace, key } | FeedChange::Expire { keyspace, key } => {
            Change::Remove { keyspace: keyspace.get(), key }.encode(out);
        }
        FeedChange::RemoveRange { keyspace, start, end } => {
            Change::RemoveRange { keyspace: keyspace.get(), start, end: *end }.encode(out);
        }
        FeedChange::Named { keyspace, name } => Change::Named { keyspace: keyspace.get(), name }.encode(out),
        FeedChange::Unnamed { name } => Change::Unnamed { name }.encode(out),
        FeedChange::Options { keyspace, options } => {
            Change::Options { keyspace: keyspace.get(), options: options.clone() }.encode(out);
        }
        // The other database makes the like of it itself.
        FeedChange::Internal { .. } => {}
    }
    Ok(())
}

impl<'a> Change<'a> {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, keyspace: u32| {
            out.push(kind);
            out.extend_from_slice(&keyspace.to_le_bytes());
        };
        match self {
            Change::Put { keyspace, key, value, expires } => {
                head(PUT, *keyspace);
                out.extend_from_slice(&expires.to_le_bytes());
                put_string(out, key);
                put_string(out, value);
            }
            Change::Merge { keyspace, key, operand, at_ms, lifetime_ms } => {
                head(MERGE, *keyspace);
                out.extend_from_slice(&at_ms.to_le_bytes());
                out.extend_from_slice(&lifetime_ms.to_le_bytes());
                put_string(out, key);
                put_string(out, operand);
            }
            Change::Remove { keyspace, key } => {
                head(REMOVE, *keyspace);
                put_string(out, key);
            }
            Change::RemoveRange { keyspace, start, end } => {
                head(REMOVE_RANGE, *keyspace);
                put_string(out, start);
                out.push(u8::from(end.is_some()));
                put_string(out, end.unwrap_or_default());
            }
            Change::Named { keyspace, name } => {
                head(NAMED, *keyspace);
                put_string(out, name.as_bytes());
            }
            Change::Unnamed { name } => {
                head(UNNAMED, 0);
                put_string(out, name.as_bytes());
            }
            Change::Options { keyspace, options } => {
                head(OPTIONS, *keyspace);
                let mut bytes = Vec::new();
                options.encode(&mut bytes);
                put_string(out, &bytes);
            }
        }
    }

    /// The change that bytes begin with, and how long it is; none if there is more to come.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none that this build knows.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Change<'a>, usize)>> {
        match bytes.first() {
            None | Some(PUT..=OPTIONS) => {}
            Some(kind) => {
                return Err(Error::Invalid(format!(
                    "a change of kind {kind}, which is not known: a newer version has written it"
                )));
            }
        }
        let mut reader = ByteReader::new(bytes);
        match Self::read(&mut reader) {
            Ok(change) => Ok(Some((change?, reader.position()))),
            Err(_) => Ok(None),
        }
    }

    /// The outer error: it ends too early.
    fn read(reader: &mut ByteReader<'a>) -> Decoded<Result<Change<'a>>> {
        let (kind, keyspace) = (reader.u8()?, reader.u32()?);
        let text = |bytes: &'a [u8]| {
            std::str::from_utf8(bytes)
                .map_err(|_| Error::Invalid("the name of a keyspace is not UTF-8".to_owned()))
        };
        Ok(match kind {
            PUT => {
                let expires = reader.u64()?;
                let (key, value) = (string(reader)?, string(reader)?);
                Ok(Change::Put { keyspace, key, value, expires })
            }
            MERGE => {
                let (at_ms, lifetime_ms) = (reader.u64()?, reader.u64()?);
                let (key, operand) = (string(reader)?, string(reader)?);
                Ok(Change::Merge { keyspace, key, operand, at_ms, lifetime_ms })
            }
            REMOVE => Ok(Change::Remove { keyspace, key: string(reader)? }),
            REMOVE_RANGE => {
                let (start, has_end, end) = (string(reader)?, reader.u8()?, string(reader)?);
                Ok(Change::RemoveRange { keyspace, start, end: (has_end != 0).then_some(end) })
            }
            NAMED => text(string(reader)?).map(|name| Change::Named { keyspace, name }),
            UNNAMED => text(string(reader)?).map(|name| Change::Unnamed { name }),
            _ => match StoredOptions::decode(string(reader)?) {
                Ok(options) => Ok(Change::Options { keyspace, options: options.given }),
                Err(_) => Err(Error::Invalid(format!(
                    "options of keyspace {keyspace} that are not known: a newer version has written them"
                ))),
            },
        })
    }
}

/// Writes a string behind its length. No key, value or name comes near 4 GiB.
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

    #[test]
    fn change_2_changes_are_written_and_read_wherever_they_break_off() {
        let options =
            KeyspaceOptions { merge_operator: Some("max".to_owned()), ..KeyspaceOptions::default() };
        let all = [
            Change::Put { keyspace: 2, key: b"k", value: b"value", expires: 9 },
            Change::Merge { keyspace: 3, key: b"k", operand: b"1", at_ms: 258, lifetime_ms: 7 },
            Change::Remove { keyspace: 300, key: b"" },
            Change::RemoveRange { keyspace: 2, start: b"a", end: Some(b"b") },
            Change::RemoveRange { keyspace: 2, start: b"", end: None },
            Change::Named { keyspace: 9, name: "r1" },
            Change::Unnamed { name: "r2" },
            Change::Options { keyspace: 9, options },
        ];
        for change in &all {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            for len in 0..bytes.len() {
                assert!(matches!(Change::decode(&bytes[..len]), Ok(None)), "{change:?}");
            }
            let len = bytes.len();
            bytes.push(UNNAMED);
            assert_eq!(Change::decode(&bytes).unwrap().unwrap(), (change.clone(), len));
        }
        let golden = |change: &Change<'_>| {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            bytes
        };
        assert_eq!(
            golden(&all[1]),
            [
                &[2, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0][..],
                &[1, 0, 0, 0, b'k', 1, 0, 0, 0, b'1']
            ]
            .concat()
        );
        assert_eq!(golden(&all[7]), [7, 9, 0, 0, 0, 5, 0, 0, 0, 4, 3, b'm', b'a', b'x']);
        assert!(Change::decode(&[99]).is_err());
        assert!(Change::decode(&[7, 9, 0, 0, 0, 2, 0, 0, 0, 99, 0]).is_err(), "an option of tomorrow");
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..8)).collect();
            let _ = Change::decode(&bytes);
        }
    }
}
