//! One version of one key.

use super::SeqNo;
use super::op::Kind;

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
