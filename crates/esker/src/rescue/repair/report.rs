//! The report of a repair.

use std::fmt;
use std::path::PathBuf;

use crate::types::key::decode_key;
use crate::types::key_range::KeyRange;
use crate::types::{Error, KeyspaceId};

/// The results of a repair, and what it could not save.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// The keyspaces of the new database, by name.
    pub keyspaces: Vec<RepairedKeyspace>,
    /// Tables read.
    pub tables: u64,
    /// Blocks of tables read and found sound.
    pub blocks: u64,
    /// Versions of keys in these blocks.
    pub entries: u64,
    /// Segments of the log read.
    pub log_segments: u64,
    /// Commits taken from the log.
    pub commits: u64,
    /// What may be missing or outdated in the new database. Empty: nothing was lost.
    pub losses: Vec<Loss>,
    /// Damage and oddities without a loss.
    pub notes: Vec<String>,
}

impl RepairReport {
    /// Number of live keys in all keyspaces.
    pub fn live_keys(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.keys).sum()
    }

    /// Reports a loss of `bytes` bytes at the place of the error.
    pub(super) fn lose(&mut self, error: Error, bytes: u64, keys: LostKeys) {
        let start = if let Error::Corrupt { offset, .. } = error { offset } else { 0 };
        self.lose_from(start, error, bytes, keys);
    }

    /// Reports a loss of `bytes` bytes at `offset`. The error may concern a later place.
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
    /// Its number, the same as in the source.
    pub id: KeyspaceId,
    /// Its name. If the name is lost: one made from its number.
    pub name: String,
    /// Number of live keys.
    pub keys: u64,
}

/// Data that a repair could not save.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The file.
    pub path: PathBuf,
    /// Where the lost data begins in the file, in bytes. The error may lie further on: for a block of a
    /// table, at its checksum.
    pub offset: u64,
    /// Number of lost bytes. 0 if unknown, or if no bytes are lost. For a commit that cannot be used although
    /// some of its records are sound, this counts only the payloads of the records, not their headers.
    pub bytes: u64,
    /// Description of the damage.
    pub detail: String,
    /// The keys that may be affected.
    pub keys: LostKeys,
    /// Sequence numbers of the first and the last lost commit, if known.
    pub commits: Option<(u64, u64)>,
}

/// Keys whose newest versions may be lost. In the new database they are missing, or have an older value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostKeys {
    /// Keys between these two, both included. `None`: from the first, or up to the last key of the database.
    Between(Option<(KeyspaceId, Vec<u8>)>, Option<(KeyspaceId, Vec<u8>)>),
    /// Any keys: it is not known which.
    Any,
    /// Names of keyspaces.
    Names,
}

impl LostKeys {
    /// Keys between two encoded keys.
    pub(super) fn between(low: Option<&[u8]>, high: Option<&[u8]>) -> LostKeys {
        let place = |key: &[u8]| decode_key(key).map(|(id, key)| (id, key.to_vec()));
        LostKeys::Between(low.and_then(place), high.and_then(place))
    }

    /// Keys that a table with this range may hold, or any if the range is unknown.
    pub(super) fn of_table(range: Option<&KeyRange>) -> LostKeys {
        range.map_or(LostKeys::Any, |range| LostKeys::between(Some(&range.start), Some(range.end.key())))
    }

    /// Returns whether this key of the keyspace may be among them.
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
