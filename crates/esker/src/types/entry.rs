//! One version of one key.

use super::{SeqNo, Value};

/// What a version says about its key. The numbers stand in files: never change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key is gone.
    Tombstone = 0,
    /// The key has this value.
    Put = 1,
}

impl Kind {
    /// The kind of this number, if there is one.
    pub const fn from_u8(n: u8) -> Option<Kind> {
        match n {
            0 => Some(Kind::Tombstone),
            1 => Some(Kind::Put),
            _ => None,
        }
    }
}

/// A version with its parts borrowed. Order of entries everywhere: key ascending, then sequence number
/// descending, so that the newest version of a key comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The encoded key: keyspace prefix and user key (see `types/key.rs`).
    pub key: &'a [u8],
    /// The commit that wrote it.
    pub seq: SeqNo,
    /// Put or tombstone.
    pub kind: Kind,
    /// The value; empty for a tombstone.
    pub value: &'a [u8],
}

/// A version found for a key that the caller knows.
#[derive(Clone, Debug)]
pub struct Found {
    /// The commit that wrote it.
    pub seq: SeqNo,
    /// Put or tombstone.
    pub kind: Kind,
    /// The value; empty for a tombstone.
    pub value: Value,
}
