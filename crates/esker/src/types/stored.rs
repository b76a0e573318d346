//! A value as its source holds it, until somebody wants to read it.
//!
//! ```text
//!   memtable, table, write set --Stored--> read/fetch.rs --> Value
//! ```

use super::op::Kind;

/// A value in its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// The bytes of the value.
    Inline(&'a [u8]),
}

impl<'a> Stored<'a> {
    /// What stands beside a key of this kind.
    #[inline(always)]
    pub fn new(_kind: Kind, bytes: &'a [u8]) -> Self {
        Stored::Inline(bytes)
    }

    /// The bytes that stand beside the key.
    #[inline(always)]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Stored::Inline(bytes) => bytes,
        }
    }
}
