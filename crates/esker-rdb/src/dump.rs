//! Values that `DUMP` returns, and libraries that `FUNCTION DUMP` returns.
//!
//! ```text
//!   type value | version (2) | CRC-64 (8)            245 library ... | version (2) | CRC-64 (8)
//! ```

use crate::checksum;
use crate::error::{Error, Result, VERSION_MAX};
use crate::input::Input;
use crate::value::{self, Value};

/// Opcode of a library.
pub(crate) const LIBRARY: u8 = 245;

/// Verifies the version and the checksum at the end. Returns the bytes before them.
fn body(bytes: &[u8]) -> Result<&[u8]> {
    let too_short = || Error::Damaged { offset: bytes.len() as u64, problem: "too short for a dumped value" };
    let (summed, sum) = bytes.split_last_chunk::<8>().ok_or_else(too_short)?;
    let (body, version) = summed.split_last_chunk::<2>().ok_or_else(too_short)?;
    match u64::from_le_bytes(*sum) {
        stated if stated == 0 || stated == checksum::add(0, summed) => {}
        _ => return Err(Error::Checksum { offset: summed.len() as u64 }),
    }
    match u32::from(u16::from_le_bytes(*version)) {
        version if version > VERSION_MAX => Err(Error::Version(version.to_string())),
        _ => Ok(body),
    }
}

/// Returns the value that `DUMP` of Redis or Valkey has dumped. `memory_max`: about how many bytes of memory
/// it may take, each piece with 64 beside its content. Few bytes can stand for thousands of times their
/// number.
///
/// # Errors
/// Any [`Error`].
pub fn value_of_dump(bytes: &[u8], memory_max: u64) -> Result<Value> {
    let body = body(bytes)?;
    let mut input = Input::new(body, memory_max);
    let number = input.byte()?;
    let value = value::read(&mut input, number)?;
    if input.offset() < body.len() as u64 {
        return Err(input.damaged("bytes behind the value"));
    }
    Ok(value)
}

/// Returns the sources of the libraries that `FUNCTION DUMP` of Redis or Valkey has dumped. `memory_max`: as
/// of [`value_of_dump`].
///
/// # Errors
/// Any [`Error`].
pub fn libraries_of_dump(bytes: &[u8], memory_max: u64) -> Result<Vec<Vec<u8>>> {
    let body = body(bytes)?;
    let mut input = Input::new(body, memory_max);
    let mut libraries = Vec::new();
    while input.offset() < body.len() as u64 {
        if input.byte()? != LIBRARY {
            return Err(input.damaged("this is no library of functions"));
        }
        libraries.push(input.string()?);
    }
    Ok(libraries)
}
