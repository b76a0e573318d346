//! Turns a stored value into a value. Only these functions may have to read a blob file for it.

use crate::blob::BlobSet;
use crate::types::stored::Stored;
use crate::types::{Result, Value};

/// Returns the value.
#[inline(always)]
pub fn value(stored: Stored<Value>, blobs: &BlobSet) -> Result<Value> {
    match stored {
        Stored::Inline(value) => Ok(value),
        Stored::Blob(pointer) => blobs.read(&pointer),
    }
}

/// Returns a copy of the value.
#[inline]
pub fn copy(stored: Stored<&[u8]>, blobs: &BlobSet) -> Result<Value> {
    match stored {
        Stored::Inline(bytes) => Ok(Value::copy_of(bytes)),
        Stored::Blob(pointer) => blobs.read(pointer),
    }
}

/// Returns the bytes in place. `None` if they are in a blob file.
#[inline]
pub fn bytes(stored: Stored<&[u8]>) -> Option<&[u8]> {
    match stored {
        Stored::Inline(bytes) => Some(bytes),
        Stored::Blob(_) => None,
    }
}
