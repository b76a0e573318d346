//! The error of keys.

use std::fmt;

/// Why a key cannot be encoded or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The bytes end within a field, or before one.
    Ended,
    /// A field is of another type.
    Mismatch {
        /// The type of the field that was to be read.
        expected: &'static str,
        /// The type code in the bytes.
        code: u8,
    },
    /// A number or an enum does not have this value.
    OutOfRange,
    /// Text is not UTF-8.
    NotUtf8,
    /// A number is stored in more bytes than it needs.
    NotShortest,
    /// Tuples are nested more than [`DEPTH_MAX`](crate::DEPTH_MAX) deep.
    TooDeep,
    /// There are more fields than expected.
    MoreFields,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Ended => f.write_str("the key ends within its fields"),
            KeyError::Mismatch { expected, code } => {
                write!(f, "a field is not {expected}: its type code is {code:#04x}")
            }
            KeyError::OutOfRange => f.write_str("a field has a value that its type does not have"),
            KeyError::NotUtf8 => f.write_str("text is not UTF-8"),
            KeyError::NotShortest => f.write_str("a number is stored in more bytes than it needs"),
            KeyError::TooDeep => write!(f, "tuples are nested more than {} deep", crate::DEPTH_MAX),
            KeyError::MoreFields => f.write_str("the key has more fields than its type"),
        }
    }
}

impl std::error::Error for KeyError {}
