//! Little-endian numbers, varints and length-prefixed strings. All lengths read from disk are checked here.
//!
//! ```text
//!   Vec<u8> <--put_*-- encoder        decoder <--ByteReader::*-- &[u8]
//! ```
//!
//! No method of [`ByteReader`] panics or allocates, for any input.
//!
//! bytes.2. A varint has exactly one valid encoding, the shortest.

use std::path::Path;

use crate::types::Error;

/// A decoding error and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset in the input of the decoder, in bytes.
    pub offset: usize,
    /// Description of the error.
    pub detail: String,
}

impl DecodeError {
    /// Creates an error at the byte at `offset` of the input.
    #[cold]
    pub fn new(offset: usize, detail: impl Into<String>) -> Self {
        DecodeError { offset, detail: detail.into() }
    }

    /// Converts to a corruption error of a file. `base` is the offset in the file where the input starts.
    #[cold]
    pub fn in_file(self, what: &'static str, path: &Path, base: u64) -> Error {
        Error::corrupt(what, path, base.saturating_add(self.offset as u64), self.detail)
    }
}

/// Result of a decoder.
pub type Decoded<T> = Result<T, DecodeError>;

/// A cursor over untrusted bytes.
#[derive(Clone, Debug)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    /// Creates a reader at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        ByteReader { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Reads the next `n` bytes. `n` may come from disk.
    pub fn take(&mut self, n: u64) -> Decoded<&'a [u8]> {
        let end = usize::try_from(n)
            .ok()
            .and_then(|n| self.at.checked_add(n))
            .filter(|&end| end <= self.bytes.len());
        let Some(end) = end else {
            return Err(self.error(format!("expected {n} bytes, {} left", self.remaining())));
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Reads all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    pub fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(self.array::<1>()?[0])
    }
    /// Reads two bytes, little-endian.
    pub fn u16(&mut self) -> Decoded<u16> {
        self.array().map(u16::from_le_bytes)
    }
    /// Reads four bytes, little-endian.
    pub fn u32(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_le_bytes)
    }
    /// Reads eight bytes, little-endian.
    pub fn u64(&mut self) -> Decoded<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads an unsigned LEB128 number (see [`put_varint`]).
    pub fn varint(&mut self) -> Decoded<u64> {
        let start = self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        Err(DecodeError::new(start, "not a varint in its shortest form"))
    }

    /// Reads a varint length, then that many bytes.
    pub fn string(&mut self) -> Decoded<&'a [u8]> {
        let len = self.varint()?;
        self.take(len)
    }

    /// Fails unless all bytes have been read.
    pub fn finish(self) -> Decoded<()> {
        if self.is_empty() { Ok(()) } else { Err(self.error(format!("{} bytes too many", self.remaining()))) }
    }

    /// Creates an error at the current position.
    #[cold]
    pub fn error(&self, detail: impl Into<String>) -> DecodeError {
        DecodeError::new(self.at, detail)
    }
}

/// Appends `value` in unsigned LEB128: 7 bits per byte, low bits first, the high bit set on all bytes except
/// the last.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint length and the bytes.
pub fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Maps a signed number to an unsigned one so that small magnitudes give small numbers.
pub fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_strings_come_back() {
        let mut out = Vec::new();
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        for n in numbers {
            put_varint(&mut out, n);
            let so_far = out.clone();
            put_string(&mut out, &so_far);
        }
        let mut reader = ByteReader::new(&out);
        let mut at = 0;
        for n in numbers {
            assert_eq!(reader.varint(), Ok(n));
            at = reader.position().max(at);
            assert_eq!(reader.string(), Ok(&out[..at]));
            at = reader.position();
        }
        assert_eq!(reader.finish(), Ok(()));
        for n in [0, 1, -1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(n)), n);
        }
    }

    #[test]
    fn bytes_2_only_the_shortest_varint_is_read() {
        for bad in [
            &[0x80, 0][..],
            &[0xFF; 10],
            &[0xFF; 11],
            &[0x80],
            &[],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2],
        ] {
            assert!(ByteReader::new(bad).varint().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn bytes_1_lengths_beyond_the_input_are_refused() {
        let mut out = Vec::new();
        put_varint(&mut out, u64::MAX);
        out.push(1);
        let err = ByteReader::new(&out).string().unwrap_err();
        assert_eq!(err.offset, 10);
        assert!(ByteReader::new(&[1, 2, 3]).u32().is_err());
        assert!(ByteReader::new(&[1]).finish().is_err());
    }
}
