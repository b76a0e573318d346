//! A value as its source holds it: the bytes, or a pointer into a blob file.
//!
//! ```text
//!   memtable, table, write set --Stored--> read/fetch.rs --> Value
//! ```

use super::expiry::value_of;
use super::op::Kind;
use super::value::Value;

/// A value in its source. `T` is the type of its bytes there: borrowed, or a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<T> {
    /// The bytes of the value.
    Inline(T),
    /// The pointer to the value in a blob file.
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
    /// The value or pointer in the stored bytes of a version of this kind.
    #[inline(always)]
    pub(crate) fn of(kind: Kind, beside: &'a [u8]) -> Self {
        Stored::new(kind, value_of(kind, beside))
    }

    /// Copies the bytes.
    #[inline]
    pub(crate) fn to_value(self) -> Stored<Value> {
        match self {
            Stored::Inline(bytes) => Stored::Inline(Value::copy_of(bytes)),
            Stored::Blob(bytes) => Stored::Blob(Value::copy_of(bytes)),
        }
    }
}
