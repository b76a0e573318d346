//! From what a source holds to the value: the only place that may have to read another file for it.

use crate::blob::BlobSet;
use crate::types::stored::Stored;
use crate::types::{Result, Value};

/// The value.
#[inline(always)]
pub fn value(stored: Stored<Value>, blobs: &BlobSet) -> Result<Value> {
    match stored {
        Stored::Inline(value) => Ok(value),
        Stored::Blob(pointer) => blobs.read(&pointer),
    }
}

/// The same for a walk, which comes by once.
#[inline(always)]
pub fn value_in_passing(stored: Stored<Value>, blobs: &BlobSet) -> Result<Value> {
    match stored {
        Stored::Inline(value) => Ok(value),
        Stored::Blob(pointer) => blobs.read_in_passing(&pointer),
    }
}

/// The value, copied out of its source.
#[inline]
pub fn copy(stored: Stored<&[u8]>, blobs: &BlobSet) -> Result<Value> {
    match stored {
        Stored::Inline(bytes) => Ok(Value::copy_of(bytes)),
        Stored::Blob(pointer) => blobs.read(pointer),
    }
}

/// Its bytes, where they are; none if they are in a blob file.
#[inline]
pub fn bytes(stored: Stored<&[u8]>) -> Option<&[u8]> {
    match stored {
        Stored::Inline(bytes) => Some(bytes),
        Stored::Blob(_) => None,
    }
}
