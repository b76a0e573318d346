//! What a repair tells.

use std::fmt;
use std::path::PathBuf;

use crate::types::key::decode_key;
use crate::types::key_range::KeyRange;
use crate::types::{Error, KeyspaceId};

/// What a repair has done and what it could not save.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// The keyspaces of the new database, by name.
    pub keyspaces: Vec<RepairedKeyspace>,
    /// Tables read.
    pub tables: u64,
    /// Blocks of tables read and found sound.
    pub blocks: u64,
    /// Versions of keys in them.
    pub entries: u64,
    /// Segments of the log read.
    pub log_segments: u64,
    /// Commits taken from the log.
    pub commits: u64,
    /// What may be missing from the new database, or old in it. Empty: nothing was lost.
    pub losses: Vec<Loss>,
    /// Damage and oddities that cost nothing.
    pub notes: Vec<String>,
}

impl RepairReport {
    /// Live keys over all keyspaces.
    pub fn live_keys(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.keys).sum()
    }

    /// A loss of so many bytes from where the error is.
    pub(super) fn lose(&mut self, error: Error, bytes: u64, keys: LostKeys) {
        let start = if let Error::Corrupt { offset, .. } = error { offset } else { 0 };
        self.lose_from(start, error, bytes, keys);
    }

    /// A loss of so many bytes from `offset` on; the error may be of a place behind it.
    pub(super) fn lose_from(&mut self, offset: u64, error: Error, bytes: u64, keys: LostKeys) {
        let (path, detail) = match error {
            Error::Corrupt { what, path, detail, .. } => (path, format!("{what}: {detail}")),
            Error::Io { path, .. } | Error::NoSpace { path, .. } => (path, "it cannot be read".to_owned()),
            other => (PathBuf::new(), other.to_string()),
        };
        self.losses.push(Loss { path, offset, bytes, detail, keys, commits: None });
    }
}

/// A keyspace of the new database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedKeyspace {
    /// Its number, as it was.
    pub id: KeyspaceId,
    /// Its name: as it was, or made of its number if that is lost.
    pub name: String,
    /// How many live keys it holds.
    pub keys: u64,
}

/// Something that a repair could not save.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The file.
    pub path: PathBuf,
    /// Where in it what is lost begins, in bytes. What is wrong may have been seen further on: of a block of a table, at its checksum.
    pub offset: u64,
    /// How many bytes, from there on; 0 if that is not known, or if bytes are not what is missing. Of a commit that cannot be used although
    /// its records, or some of them, are sound, only their payloads count, not their headers.
    pub bytes: u64,
    /// What is wrong there.
    pub detail: String,
    /// The keys that it is about.
    pub keys: LostKeys,
    /// The first and the last of the commits that are lost with it, by sequence number, if that is known.
    pub commits: Option<(u64, u64)>,
}

/// The keys whose newest versions may be lost. In the new database they are missing, or have an older value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostKeys {
    /// Between these two, both included; none: from the first, or up to the last of the database.
    Between(Option<(KeyspaceId, Vec<u8>)>, Option<(KeyspaceId, Vec<u8>)>),
    /// Not known: any.
    Any,
    /// The names of keyspaces.
    Names,
}

impl LostKeys {
    /// Between two encoded keys.
    pub(super) fn between(low: Option<&[u8]>, high: Option<&[u8]>) -> LostKeys {
        let place = |key: &[u8]| decode_key(key).map(|(id, key)| (id, key.to_vec()));
        LostKeys::Between(low.and_then(place), high.and_then(place))
    }

    /// All that a table of this range may hold; any if the range is not known.
    pub(super) fn of_table(range: Option<&KeyRange>) -> LostKeys {
        range.map_or(LostKeys::Any, |range| LostKeys::between(Some(&range.start), Some(range.end.key())))
    }

    /// Whether the key of this keyspace may be among them.
    pub fn may_hold(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
        match self {
            LostKeys::Any => true,
            LostKeys::Names => false,
            LostKeys::Between(low, high) => {
                let place = (keyspace, key);
                let low = low.as_ref().is_none_or(|(id, key)| (*id, &key[..]) <= place);
                low && high.as_ref().is_none_or(|(id, key)| place <= (*id, &key[..]))
            }
        }
    }
}

impl fmt::Display for LostKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |place: &Option<(KeyspaceId, Vec<u8>)>, open: &str| match place {
            Some((id, key)) => format!("keyspace {id} \"{}\"", key.escape_ascii()),
            None => open.to_owned(),
        };
        match self {
            LostKeys::Between(low, high) => {
                write!(f, "keys from {} to {}", show(low, "the first"), show(high, "the last"))
            }
            LostKeys::Any => f.write_str("any keys"),
            LostKeys::Names => f.write_str("names of keyspaces"),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.path.display(), self.offset)?;
        if self.bytes > 0 {
            write!(f, ", {} bytes", self.bytes)?;
        }
        write!(f, ": {}; affects {}", self.detail, self.keys)?;
        match self.commits {
            Some((first, last)) => write!(f, ", commits {first} to {last}"),
            None => Ok(()),
        }
    }
}
