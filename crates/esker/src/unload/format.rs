//! The records of an unload file.
//!
//! Bytes: docs/formats/unload.md
//!
//! Decoding uses no more memory than the size of the input justifies.

use std::path::Path;

use crate::encoding::bytes::{ByteReader, Decoded, put_string, put_varint};
use crate::engine::state::keyspace_options::{KeyspaceOptions, StoredOptions};
use crate::types::{Error, Result};

/// The first bytes of the first record.
const MAGIC: &[u8] = b"esker unload";
/// The version that this build writes, and the newest that it reads.
const FORMAT_VERSION: u32 = 1;

const KEYSPACE: u8 = 1;
const ENTRIES: u8 = 2;
const KEYSPACE_END: u8 = 3;
const END: u8 = 4;

/// The first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Distinguishes the file from others.
    pub(super) id: u64,
    /// The commit that was unloaded.
    pub(super) seqno: u64,
    /// The keyspaces and their numbers of entries.
    pub(super) keyspaces: Vec<(String, u64)>,
}

/// A record after the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The start of a keyspace, given by its index in the head.
    Keyspace(usize, KeyspaceOptions),
    /// Entries of the current keyspace, in key order.
    Entries(Vec<Entry<'a>>),
    /// The end of a keyspace, and its number of entries.
    KeyspaceEnd(u64),
    /// The end of the file, and the total number of entries.
    End(u64),
}

/// A key, its expiry (0 if it does not expire), and its value.
pub(super) type Entry<'a> = (&'a [u8], u64, &'a [u8]);

impl Head {
    /// Returns the total number of entries, including those that expire before they are written.
    pub(super) fn entries(&self) -> u64 {
        self.keyspaces.iter().fold(0, |all, (_, entries)| all.saturating_add(*entries))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_varint(&mut out, FORMAT_VERSION.into());
        out.extend_from_slice(&self.id.to_le_bytes());
        put_varint(&mut out, self.seqno);
        put_varint(&mut out, self.keyspaces.len() as u64);
        for (name, entries) in &self.keyspaces {
            put_string(&mut out, name.as_bytes());
            put_varint(&mut out, *entries);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8], path: &Path, offset: u64) -> Result<Head> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err(Error::Invalid(format!("{} is not an unload file", path.display())));
        };
        let mut reader = ByteReader::new(rest);
        let at = offset + MAGIC.len() as u64;
        let found = reader.varint().map_err(|e| e.in_file("unload", path, at))?;
        if found != u64::from(FORMAT_VERSION) {
            return Err(Error::UnsupportedVersion {
                what: "unload",
                path: path.to_path_buf(),
                found: u32::try_from(found).unwrap_or(u32::MAX),
                supported: FORMAT_VERSION,
            });
        }
        Self::decode_rest(&mut reader).map_err(|e| e.in_file("unload", path, at))
    }

    fn decode_rest(reader: &mut ByteReader<'_>) -> Decoded<Head> {
        let (id, seqno) = (reader.u64()?, reader.varint()?);
        let mut keyspaces = Vec::new();
        for _ in 0..reader.varint()? {
            let name = std::str::from_utf8(reader.string()?).map(str::to_owned);
            let name = name.map_err(|_| reader.error("a name is not UTF-8"))?;
            keyspaces.push((name, reader.varint()?));
        }
        Ok(Head { id, seqno, keyspaces })
    }
}

impl<'a> Record<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Record::Keyspace(which, options) => {
                out.push(KEYSPACE);
                put_varint(&mut out, *which as u64);
                options.encode(&mut out);
            }
            Record::Entries(entries) => {
                begin_entries(&mut out);
                entries.iter().for_each(|entry| put_entry(&mut out, *entry));
            }
            Record::KeyspaceEnd(entries) => {
                out.push(KEYSPACE_END);
                put_varint(&mut out, *entries);
            }
            Record::End(entries) => {
                out.push(END);
                put_varint(&mut out, *entries);
            }
        }
        out
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Decoded<Record<'a>> {
        let mut reader = ByteReader::new(bytes);
        let record = match reader.u8()? {
            KEYSPACE => {
                let which = reader.varint()?;
                // Unknown options of a newer build are ignored: they do not change the entries.
                let (options, _) = StoredOptions::decode_known(&mut reader)?;
                Record::Keyspace(usize::try_from(which).unwrap_or(usize::MAX), options.given)
            }
            ENTRIES => {
                let mut entries = Vec::new();
                while !reader.is_empty() {
                    entries.push((reader.string()?, reader.varint()?, reader.string()?));
                }
                Record::Entries(entries)
            }
            KEYSPACE_END => Record::KeyspaceEnd(reader.varint()?),
            END => Record::End(reader.varint()?),
            other => return Err(reader.error(format!("unknown kind of record {other}"))),
        };
        if reader.is_empty() { Ok(record) } else { Err(reader.error("excess bytes after a record")) }
    }
}

/// Starts a record of entries.
pub(super) fn begin_entries(out: &mut Vec<u8>) {
    out.clear();
    out.push(ENTRIES);
}

/// Appends an entry to the record.
pub(super) fn put_entry(out: &mut Vec<u8>, (key, expires, value): Entry<'_>) {
    put_string(out, key);
    put_varint(out, expires);
    put_string(out, value);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::blob::Blobs;
    use crate::engine::state::history::History;
    use crate::engine::state::keyspace_options::Counting;

    #[test]
    fn golden_bytes() {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let head = Head { id: 5, seqno: 300, keyspaces: vec![("users".into(), 7)] };
        let magic = "65736b657220756e6c6f6164";
        assert_eq!(
            hex(head.encode()),
            format!("{magic}010500000000000000ac0201057573657273 07").replace(' ', "")
        );
        assert_eq!(Head::decode(&head.encode(), Path::new(""), 0).unwrap(), head);
        let options = KeyspaceOptions {
            blobs: Some(Blobs::From(200)),
            counting: Counting::Lazy,
            default_ttl: Some(Duration::from_secs(1)),
            history: History::Versions(3),
            merge_operator: Some("max".into()),
            ..KeyspaceOptions::default()
        };
        let records = [
            (Record::Keyspace(1, options), "0101 0102c801 020101 0302e807 0a0103 04036d6178"),
            (Record::Entries(vec![(b"a", 0, b"1"), (b"b", 300, b"")]), "02 0161 00 0131 0162 ac02 00"),
            (Record::KeyspaceEnd(2), "0302"),
            (Record::End(300), "04ac02"),
        ];
        for (record, bytes) in records {
            assert_eq!(hex(record.encode()), bytes.replace(' ', ""));
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn damage_is_refused_and_what_is_not_known_of_a_keyspace_is_passed_over() {
        for bytes in [&b""[..], b"\x05", b"\x02\x01", b"\x03", b"\x04\x01\x01", b"\x02\xFF\xFF\xFF\xFF\x0F"] {
            assert!(Record::decode(bytes).is_err(), "{bytes:?}");
        }
        let known = Record::Keyspace(0, KeyspaceOptions::default());
        assert_eq!(Record::decode(b"\x01\x00\x63\x02ab"), Ok(known));
        assert!(Head::decode(b"something else", Path::new("f"), 0).is_err());
    }
}
