//! From what a source holds to the value: the only place that may have to read another file for it.

use crate::types::cursor::SourceCursor;
use crate::types::entry::Found;
use crate::types::stored::Stored;
use crate::types::{Result, Value};

/// The value, copied out of its source.
#[inline]
pub fn copy(stored: Stored<'_>) -> Result<Value> {
    match stored {
        Stored::Inline(bytes) => Ok(Value::copy_of(bytes)),
    }
}

/// The value of the version that a cursor stands on, shared with its block where that is cheaper than a copy.
#[inline]
pub fn value<C: SourceCursor>(cursor: &C) -> Result<Value> {
    shared(cursor.stored(), || cursor.share())
}

/// The value, if `share` makes a handle of the stored bytes.
#[inline]
pub fn shared(stored: Stored<'_>, share: impl FnOnce() -> Value) -> Result<Value> {
    match stored {
        Stored::Inline(_) => Ok(share()),
    }
}

/// The value of a version that was found in a table.
#[inline]
pub fn found(found: Found) -> Result<Value> {
    match Stored::new(found.kind, &found.value) {
        Stored::Inline(_) => Ok(found.value),
    }
}

/// Its bytes, where they are.
#[inline]
pub fn bytes(stored: Stored<'_>) -> Result<&[u8]> {
    match stored {
        Stored::Inline(bytes) => Ok(bytes),
    }
}
