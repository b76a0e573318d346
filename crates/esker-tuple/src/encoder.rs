//! Writes the fields of a key.

use crate::escaped::{append_bytes, append_escaped};
use crate::{DEPTH_MAX, KeyError};

/// Type codes of fields.
pub(crate) mod code {
    pub const NULL: u8 = 0x00;
    pub const BYTES: u8 = 0x01;
    pub const TEXT: u8 = 0x02;
    pub const TUPLE: u8 = 0x05;
    /// A negative integer of 9 to 16 bytes.
    pub const NEGATIVE_LONG: u8 = 0x0B;
    /// Zero. An integer of n bytes has the code ZERO + n, or ZERO - n if it is negative.
    pub const ZERO: u8 = 0x14;
    /// A positive integer of 9 to 16 bytes.
    pub const POSITIVE_LONG: u8 = 0x1D;
    pub const FLOAT: u8 = 0x20;
    pub const DOUBLE: u8 = 0x21;
    pub const FALSE: u8 = 0x26;
    pub const TRUE: u8 = 0x27;
    pub const UUID: u8 = 0x30;
}

/// Ends text, bytes and tuples.
pub(crate) const END: u8 = 0x00;
/// Follows a zero byte that ends nothing.
pub(crate) const ESCAPE: u8 = 0xFF;
/// Maximum size of an integer whose code has its size.
pub(crate) const SHORT_BYTES_MAX: usize = 8;

/// Collects the bytes of a key.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// Number of tuples around the next field.
    depth: u32,
    /// Same, with those around the reversed field that this encodes.
    level: u32,
    is_too_deep: bool,
}

impl Encoder {
    /// Begins a key.
    pub fn new() -> Self {
        Encoder::default()
    }

    /// Returns the bytes of the key.
    ///
    /// # Errors
    /// [`KeyError::TooDeep`].
    pub fn finish(self) -> Result<Vec<u8>, KeyError> {
        if self.is_too_deep { Err(KeyError::TooDeep) } else { Ok(self.bytes) }
    }

    /// Appends the absent value.
    pub fn null(&mut self) {
        self.bytes.push(code::NULL);
        if self.depth > 0 {
            self.bytes.push(ESCAPE);
        }
    }

    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        append_bytes(&mut self.bytes, bytes);
    }

    /// Appends text.
    pub fn text(&mut self, text: &str) {
        append_escaped(&mut self.bytes, code::TEXT, text.as_bytes());
    }

    /// Appends an integer.
    pub fn int(&mut self, value: i128) {
        if value >= 0 {
            return self.uint(value.unsigned_abs());
        }
        let bytes = (!value.unsigned_abs()).to_be_bytes();
        let len = len_of(value.unsigned_abs());
        match len {
            ..=SHORT_BYTES_MAX => self.bytes.push(code::ZERO - len as u8),
            _ => self.bytes.extend_from_slice(&[code::NEGATIVE_LONG, !(len as u8)]),
        }
        self.bytes.extend_from_slice(&bytes[bytes.len() - len..]);
    }

    /// Appends an integer that is not negative.
    pub fn uint(&mut self, value: u128) {
        let bytes = value.to_be_bytes();
        let len = len_of(value);
        match len {
            ..=SHORT_BYTES_MAX => self.bytes.push(code::ZERO + len as u8),
            _ => self.bytes.extend_from_slice(&[code::POSITIVE_LONG, len as u8]),
        }
        self.bytes.extend_from_slice(&bytes[bytes.len() - len..]);
    }

    /// Appends a float of 32 bits.
    pub fn float(&mut self, value: f32) {
        let bits = value.to_bits();
        let sorted = if bits >> 31 == 1 { !bits } else { bits ^ (1 << 31) };
        self.bytes.push(code::FLOAT);
        self.bytes.extend_from_slice(&sorted.to_be_bytes());
    }

    /// Appends a float of 64 bits.
    pub fn double(&mut self, value: f64) {
        let bits = value.to_bits();
        let sorted = if bits >> 63 == 1 { !bits } else { bits ^ (1 << 63) };
        self.bytes.push(code::DOUBLE);
        self.bytes.extend_from_slice(&sorted.to_be_bytes());
    }

    /// Appends a boolean.
    pub fn bool(&mut self, value: bool) {
        self.bytes.push(if value { code::TRUE } else { code::FALSE });
    }

    /// Appends a UUID.
    pub fn uuid(&mut self, uuid: &[u8; 16]) {
        self.bytes.push(code::UUID);
        self.bytes.extend_from_slice(uuid);
    }

    /// Appends a tuple. `fields` appends its fields.
    pub fn tuple(&mut self, fields: impl FnOnce(&mut Encoder)) {
        self.is_too_deep |= self.level >= DEPTH_MAX;
        if self.is_too_deep {
            return;
        }
        self.bytes.push(code::TUPLE);
        (self.depth, self.level) = (self.depth + 1, self.level + 1);
        fields(self);
        (self.depth, self.level) = (self.depth - 1, self.level - 1);
        self.bytes.push(END);
    }

    /// Appends a field in reverse order: bytes that are the complement of what `field` appends, and a last
    /// byte that sorts the shorter of two fields behind the longer one.
    pub fn descending(&mut self, field: impl FnOnce(&mut Encoder)) {
        self.is_too_deep |= self.level >= DEPTH_MAX;
        if self.is_too_deep {
            return;
        }
        let mut inner = Encoder { level: self.level + 1, ..Encoder::new() };
        field(&mut inner);
        self.is_too_deep |= inner.is_too_deep;
        inner.bytes.iter_mut().for_each(|byte| *byte = !*byte);
        inner.bytes.push(ESCAPE);
        self.bytes(&inner.bytes);
    }
}

/// Number of bytes that an integer needs.
pub(crate) fn len_of(value: u128) -> usize {
    (u128::BITS - value.leading_zeros()).div_ceil(8) as usize
}
