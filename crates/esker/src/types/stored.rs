//! A value as its source holds it, until somebody wants to read it.
//!
//! ```text
//!   memtable, table, write set --Stored--> read/fetch.rs --> Value
//! ```

use super::op::Kind;

/// A value in its source: `T` is its bytes there, borrowed or as a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<T> {
    /// The bytes of the value.
    Inline(T),
    /// Where the value is in a blob file.
    Blob(T),
}

impl<T> Stored<T> {
    /// What stands beside a key of this kind.
    #[inline(always)]
    pub fn new(kind: Kind, beside: T) -> Self {
        if kind.needs_fetch() { Stored::Blob(beside) } else { Stored::Inline(beside) }
    }

    /// The same with other bytes.
    #[inline]
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Stored<U> {
        match self {
            Stored::Inline(beside) => Stored::Inline(f(beside)),
            Stored::Blob(beside) => Stored::Blob(f(beside)),
        }
    }

    /// The bytes that stand beside the key.
    #[inline(always)]
    pub fn beside(self) -> T {
        match self {
            Stored::Inline(beside) | Stored::Blob(beside) => beside,
        }
    }
}
