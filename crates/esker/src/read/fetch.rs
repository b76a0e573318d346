//! From what a source holds to the value: the only place that may have to read another file for it.

use crate::types::stored::Stored;
use crate::types::{Result, Value};

/// The value.
#[inline(always)]
pub fn value(stored: Stored<Value>) -> Result<Value> {
    match stored {
        Stored::Inline(value) => Ok(value),
    }
}

/// The value, copied out of its source.
#[inline]
pub fn copy(stored: Stored<&[u8]>) -> Result<Value> {
    match stored {
        Stored::Inline(bytes) => Ok(Value::copy_of(bytes)),
    }
}

/// Its bytes, where they are.
#[inline]
pub fn bytes(stored: Stored<&[u8]>) -> Result<&[u8]> {
    match stored {
        Stored::Inline(bytes) => Ok(bytes),
    }
}
