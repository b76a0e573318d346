//! Reads the fields of a key. Bytes are not trusted: every length and depth is checked.

use crate::encoder::{END, ESCAPE, SHORT_BYTES_MAX, code, len_of};
use crate::escaped::{escaped_len, unescaped};
use crate::{DEPTH_MAX, KeyError};

/// Size of the largest integers.
const INT_BYTES_MAX: usize = size_of::<u128>();

/// Reads the fields of a key, one after the other.
#[derive(Debug)]
pub struct Decoder<'a> {
    /// What has not been read.
    bytes: &'a [u8],
    /// Number of tuples around the next field.
    depth: u32,
    /// Same, with those around the reversed field that this decodes.
    level: u32,
}

/// An integer.
pub(crate) struct Int {
    pub(crate) is_negative: bool,
    pub(crate) magnitude: u128,
}

impl<'a> Decoder<'a> {
    /// Begins to read a key.
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { bytes, depth: 0, level: 0 }
    }

    /// Checks that all fields were read.
    ///
    /// # Errors
    /// [`KeyError::MoreFields`].
    pub fn finish(self) -> Result<(), KeyError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(KeyError::MoreFields) }
    }

    /// Returns whether the tuple, or the key, has no further fields.
    pub fn is_at_end(&self) -> bool {
        match self.bytes {
            [] => true,
            [END, ESCAPE, ..] => false,
            [END, ..] => self.depth > 0,
            _ => false,
        }
    }

    /// Returns the type code of the next field.
    ///
    /// # Errors
    /// [`KeyError::Ended`] if there is none.
    pub fn code(&self) -> Result<u8, KeyError> {
        if self.is_at_end() {
            return Err(KeyError::Ended);
        }
        self.bytes.first().copied().ok_or(KeyError::Ended)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], KeyError> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(KeyError::Ended)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(KeyError::Ended)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn expect(&mut self, expected_code: u8, expected: &'static str) -> Result<(), KeyError> {
        match self.code()? {
            code if code == expected_code => self.take(1).map(drop),
            code => Err(KeyError::Mismatch { expected, code }),
        }
    }

    /// Reads the absent value, if it is next.
    pub fn null(&mut self) -> bool {
        let len = match (self.depth, self.bytes) {
            (0, [code::NULL, ..]) => 1,
            (1.., [code::NULL, ESCAPE, ..]) => 2,
            _ => return false,
        };
        self.take(len).is_ok()
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn bytes(&mut self) -> Result<Vec<u8>, KeyError> {
        self.expect(code::BYTES, "bytes")?;
        self.escaped()
    }

    /// Reads text.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn text(&mut self) -> Result<String, KeyError> {
        self.expect(code::TEXT, "text")?;
        String::from_utf8(self.escaped()?).map_err(|_| KeyError::NotUtf8)
    }

    fn escaped(&mut self) -> Result<Vec<u8>, KeyError> {
        let stored = self.take(escaped_len(self.bytes).ok_or(KeyError::Ended)?)?;
        Ok(unescaped(&stored[..stored.len() - 1]).into_owned())
    }

    /// Reads an integer.
    pub(crate) fn number(&mut self) -> Result<Int, KeyError> {
        let code = self.code()?;
        let is_negative = code < code::ZERO;
        let len = match code {
            0x0C..=0x1C => usize::from(code.abs_diff(code::ZERO)),
            code::POSITIVE_LONG | code::NEGATIVE_LONG => {
                let [_, len] = self.take_array()?;
                usize::from(if is_negative { !len } else { len })
            }
            _ => return Err(KeyError::Mismatch { expected: "an integer", code }),
        };
        if matches!(code, 0x0C..=0x1C) {
            self.take(1)?;
        } else if len <= SHORT_BYTES_MAX {
            return Err(KeyError::NotShortest);
        }
        if len > INT_BYTES_MAX {
            return Err(KeyError::OutOfRange);
        }
        let mut bytes = [0; INT_BYTES_MAX];
        for (to, from) in bytes[INT_BYTES_MAX - len..].iter_mut().zip(self.take(len)?) {
            *to = if is_negative { !*from } else { *from };
        }
        let magnitude = u128::from_be_bytes(bytes);
        if len_of(magnitude) != len {
            return Err(KeyError::NotShortest);
        }
        Ok(Int { is_negative, magnitude })
    }

    /// Reads an integer.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn int(&mut self) -> Result<i128, KeyError> {
        let Int { is_negative, magnitude } = self.number()?;
        let value =
            if is_negative { 0_i128.checked_sub_unsigned(magnitude) } else { magnitude.try_into().ok() };
        value.ok_or(KeyError::OutOfRange)
    }

    /// Reads an integer that is not negative.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn uint(&mut self) -> Result<u128, KeyError> {
        let Int { is_negative, magnitude } = self.number()?;
        if is_negative { Err(KeyError::OutOfRange) } else { Ok(magnitude) }
    }

    /// Reads a float of 32 bits.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn float(&mut self) -> Result<f32, KeyError> {
        self.expect(code::FLOAT, "a float of 32 bits")?;
        let sorted = u32::from_be_bytes(self.take_array()?);
        Ok(f32::from_bits(if sorted >> 31 == 0 { !sorted } else { sorted ^ (1 << 31) }))
    }

    /// Reads a float of 64 bits.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn double(&mut self) -> Result<f64, KeyError> {
        self.expect(code::DOUBLE, "a float of 64 bits")?;
        let sorted = u64::from_be_bytes(self.take_array()?);
        Ok(f64::from_bits(if sorted >> 63 == 0 { !sorted } else { sorted ^ (1 << 63) }))
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn bool(&mut self) -> Result<bool, KeyError> {
        let value = match self.code()? {
            code::TRUE => true,
            code::FALSE => false,
            code => return Err(KeyError::Mismatch { expected: "a boolean", code }),
        };
        self.take(1)?;
        Ok(value)
    }

    /// Reads a UUID.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn uuid(&mut self) -> Result<[u8; 16], KeyError> {
        self.expect(code::UUID, "a UUID")?;
        self.take_array()
    }

    /// Reads a tuple. `fields` reads all of its fields.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn tuple<T>(&mut self, fields: impl FnOnce(&mut Self) -> Result<T, KeyError>) -> Result<T, KeyError> {
        self.expect(code::TUPLE, "a tuple")?;
        self.check_level()?;
        (self.depth, self.level) = (self.depth + 1, self.level + 1);
        let value = fields(self)?;
        if self.bytes.is_empty() {
            return Err(KeyError::Ended);
        }
        if !self.is_at_end() {
            return Err(KeyError::MoreFields);
        }
        (self.depth, self.level) = (self.depth - 1, self.level - 1);
        self.take(1)?;
        Ok(value)
    }

    fn check_level(&self) -> Result<(), KeyError> {
        if self.level < DEPTH_MAX { Ok(()) } else { Err(KeyError::TooDeep) }
    }

    /// Reads a field that is stored in reverse order. `field` reads it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn descending<T>(
        &mut self,
        field: impl FnOnce(&mut Decoder<'_>) -> Result<T, KeyError>,
    ) -> Result<T, KeyError> {
        self.check_level()?;
        let mut bytes = self.bytes()?;
        if bytes.pop() != Some(ESCAPE) {
            return Err(KeyError::Ended);
        }
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        let mut inner = Decoder { bytes: &bytes, depth: 0, level: self.level + 1 };
        let value = field(&mut inner)?;
        inner.finish()?;
        Ok(value)
    }
}
