//! Ids and positions as newtypes, so that they cannot be confused.

use std::fmt;

/// The sequence number of a commit. All writes of a commit carry the same number. 0 means older than any
/// snapshot. Fits in 56 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SeqNo(u64);

impl SeqNo {
    /// Before every commit; visible to all.
    pub const ZERO: SeqNo = SeqNo(0);
    /// The largest number. A read at it sees everything.
    pub const MAX: SeqNo = SeqNo((1 << 56) - 1);

    /// # Panics
    /// If `n` needs more than 56 bits. Decoders check first with [`SeqNo::try_new`].
    pub const fn new(n: u64) -> Self {
        assert!(n <= Self::MAX.0, "sequence numbers have 56 bits");
        SeqNo(n)
    }
    /// Returns `None` if `n` needs more than 56 bits.
    pub const fn try_new(n: u64) -> Option<Self> {
        if n <= Self::MAX.0 { Some(SeqNo(n)) } else { None }
    }
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The number before this one. `None` for zero.
    pub const fn before(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(n) => Some(SeqNo(n)),
            None => None,
        }
    }
    /// The number before this one, or zero.
    pub const fn prev(self) -> Self {
        SeqNo(self.0.saturating_sub(1))
    }
    /// The number after this one.
    pub const fn next(self) -> Self {
        SeqNo::new(self.0 + 1)
    }
}

/// The number in a file's name. Never reused within a database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u64);

/// The number of a keyspace. Never reused within a database. 0 is the engine's catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(u32);

impl KeyspaceId {
    /// The engine's catalog, which maps names of keyspaces to ids.
    pub const CATALOG: KeyspaceId = KeyspaceId(0);
    /// The keyspace of [`Db::default_keyspace`](crate::Db::default_keyspace); it always exists, under the
    /// name `default`.
    pub const DEFAULT: KeyspaceId = KeyspaceId(1);
}

macro_rules! plain_id {
    ($name:ident, $int:ty) => {
        impl $name {
            /// Wraps the number.
            pub const fn new(n: $int) -> Self {
                $name(n)
            }
            /// The number.
            pub const fn get(self) -> $int {
                self.0
            }
            /// The id after this one.
            pub const fn next(self) -> Self {
                $name(self.0 + 1)
            }
        }
        show_as_number!($name);
    };
}

macro_rules! show_as_number {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

plain_id!(FileId, u64);
plain_id!(KeyspaceId, u32);
show_as_number!(SeqNo);
