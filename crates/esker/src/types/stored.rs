//! A value as its source holds it, until somebody wants to read it.
//!
//! ```text
//!   memtable, table, write set --Stored--> read/fetch.rs --> Value
//! ```

use super::expiry::value_of;
use super::op::Kind;
use super::value::Value;

/// A value in its source: `T` is its bytes there, borrowed or as a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<T> {
    /// The bytes of the value.
    Inline(T),
    /// Where the value is in a blob file.
    Blob(T),
}

impl<T> Stored<T> {
    /// The value of a version of this kind, or the pointer to it.
    #[inline(always)]
    pub fn new(kind: Kind, beside: T) -> Self {
        if kind.needs_fetch() { Stored::Blob(beside) } else { Stored::Inline(beside) }
    }

    /// The bytes of the value, or of the pointer.
    #[inline(always)]
    pub fn beside(self) -> T {
        match self {
            Stored::Inline(beside) | Stored::Blob(beside) => beside,
        }
    }
}

impl<'a> Stored<&'a [u8]> {
    /// Of all that stands beside a key of this kind.
    #[inline(always)]
    pub(crate) fn of(kind: Kind, beside: &'a [u8]) -> Self {
        Stored::new(kind, value_of(kind, beside))
    }

    /// The same, copied.
    #[inline]
    pub(crate) fn to_value(self) -> Stored<Value> {
        match self {
            Stored::Inline(bytes) => Stored::Inline(Value::copy_of(bytes)),
            Stored::Blob(bytes) => Stored::Blob(Value::copy_of(bytes)),
        }
    }
}
