//! Limits of keys and values.

use super::{Error, Result};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// Refuses a key that is too long.
#[inline]
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX { Err(Error::KeyTooLong { len: key.len() }) } else { Ok(()) }
}

/// Refuses a value that is too long.
#[inline]
pub fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX { Err(Error::ValueTooLong { len: value.len() }) } else { Ok(()) }
}
