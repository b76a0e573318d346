//! Reads the pieces of a snapshot: bytes, lengths, strings.
//!
//! ```text
//!   00xxxxxx | 01xxxxxx 8 bits | 0x80 32 bits, big-endian | 0x81 64 bits, big-endian      a length
//!   0xc0 8 bits | 0xc1 16 | 0xc2 32, little-endian | 0xc3 packed length, length, LZF      a string
//!   length, bytes                                                                        a string
//! ```

use std::io::{self, Read};

use crate::budget::Budget;
use crate::checksum;
use crate::error::{Error, Result};
use crate::lzf;

/// Strings of Redis have at most 512 MB unless an operator allows more.
const STRING_BYTES_MAX: u64 = 1 << 32;

/// An input that counts its bytes and sums them up.
#[derive(Debug)]
pub(crate) struct Input<R> {
    inner: R,
    offset: u64,
    sum: u64,
    budget: Budget,
}

/// A length, or the encoding of a string.
enum Length {
    Plain(u64),
    Encoded(u8),
}

impl<R: Read> Input<R> {
    /// `memory_max`: bytes that decoded strings and elements may take together.
    pub(crate) fn new(inner: R, memory_max: u64) -> Self {
        Input { inner, offset: 0, sum: 0, budget: Budget::new(memory_max) }
    }

    /// Returns the number of bytes read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the checksum of the bytes read.
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// The error for what could not be decoded.
    pub(crate) fn damaged(&self, problem: &'static str) -> Error {
        match self.budget.is_exceeded() {
            true => Error::TooLarge { offset: self.offset },
            false => Error::Damaged { offset: self.offset, problem },
        }
    }

    pub(crate) fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    /// Accounts for a piece of this size.
    pub(crate) fn spend(&mut self, bytes: u64) -> Result<()> {
        self.budget.spend(bytes).ok_or(Error::TooLarge { offset: self.offset })
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes).map_err(|source| Error::Io { offset: self.offset, source })?;
        self.offset += N as u64;
        self.sum = checksum::add(self.sum, &bytes);
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        if len > STRING_BYTES_MAX {
            return Err(self.damaged("a length is too large"));
        }
        let mut bytes = Vec::new();
        let read = self.inner.by_ref().take(len).read_to_end(&mut bytes);
        read.map_err(|source| Error::Io { offset: self.offset, source })?;
        self.offset += bytes.len() as u64;
        self.sum = checksum::add(self.sum, &bytes);
        if (bytes.len() as u64) < len {
            return Err(Error::Io { offset: self.offset, source: io::ErrorKind::UnexpectedEof.into() });
        }
        Ok(bytes)
    }

    fn length_or_encoding(&mut self) -> Result<Length> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => Length::Plain(u64::from(first)),
            1 => Length::Plain(u64::from(first & 63) << 8 | u64::from(self.byte()?)),
            2 if first == 0x80 => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            2 if first == 0x81 => Length::Plain(u64::from_be_bytes(self.array()?)),
            3 => Length::Encoded(first & 63),
            _ => return Err(self.damaged("an unknown form of length")),
        })
    }

    pub(crate) fn length(&mut self) -> Result<u64> {
        match self.length_or_encoding()? {
            Length::Plain(len) => Ok(len),
            Length::Encoded(_) => Err(self.damaged("a string where a length is expected")),
        }
    }

    pub(crate) fn string(&mut self) -> Result<Vec<u8>> {
        let number = match self.length_or_encoding()? {
            Length::Plain(len) => {
                let bytes = self.bytes(len)?;
                self.spend(len)?;
                return Ok(bytes);
            }
            Length::Encoded(0) => i32::from(i8::from_le_bytes(self.array()?)),
            Length::Encoded(1) => i32::from(i16::from_le_bytes(self.array()?)),
            Length::Encoded(2) => i32::from_le_bytes(self.array()?),
            Length::Encoded(3) => {
                let (packed, len) = (self.length()?, self.length()?);
                let packed = self.bytes(packed)?;
                self.spend(len)?;
                let len = usize::try_from(len).map_err(|_| self.damaged("a length is too large"))?;
                return lzf::decompress(&packed, len).ok_or_else(|| self.damaged("packed bytes are damaged"));
            }
            Length::Encoded(_) => return Err(self.damaged("an unknown encoding of a string")),
        };
        self.spend(0)?;
        Ok(number.to_string().into_bytes())
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}
