//! One version of one key.

use super::op::Kind;
use super::{SeqNo, Value};

/// A version with its parts borrowed. Order of entries everywhere: key ascending, then sequence number
/// descending, so that the newest version of a key comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The encoded key: keyspace prefix and user key (see `types/key.rs`).
    pub key: &'a [u8],
    /// The commit that wrote it.
    pub seq: SeqNo,
    /// What it says about the key.
    pub kind: Kind,
    /// The value; empty if its kind has none.
    pub value: &'a [u8],
}

/// What a memtable or a table without a database holds for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The value of the key.
    Value(Value),
    /// A tombstone: the key was deleted. Older tables may still hold values of it.
    Deleted,
}

impl Entry {
    /// Returns the value. `None` for a tombstone.
    pub fn into_value(self) -> Option<Value> {
        match self {
            Entry::Value(value) => Some(value),
            Entry::Deleted => None,
        }
    }
}
