//! Why bytes are no snapshot that can be read.

use std::fmt;
use std::io;

/// The newest version of the format that is read.
pub(crate) const VERSION_MAX: u32 = 12;

/// A result with an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why an input cannot be read.
#[derive(Debug)]
pub enum Error {
    /// The input failed or ended early.
    Io {
        /// Bytes before the place.
        offset: u64,
        /// The error of the input.
        source: io::Error,
    },
    /// The bytes are not those of a snapshot, or of a dumped value.
    Damaged {
        /// Bytes before the place.
        offset: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// The snapshot has a version that this crate does not know.
    Version(String),
    /// A type that is not supported: that of a module, or of a newer version.
    Type {
        /// Bytes before the value.
        offset: u64,
        /// The type's number in the format.
        number: u8,
        /// The name of the module, if it is known.
        module: Option<String>,
    },
    /// The checksum is not that of the bytes.
    Checksum {
        /// Bytes before the checksum.
        offset: u64,
    },
    /// The value takes more memory than allowed.
    TooLarge {
        /// Bytes before the place.
        offset: u64,
    },
    /// An error in the value of a key.
    Key {
        /// The key.
        key: Vec<u8>,
        /// What is wrong.
        source: Box<Error>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { offset, source } if source.kind() == io::ErrorKind::UnexpectedEof => {
                write!(f, "the input ends at offset {offset}, in the middle of the snapshot")
            }
            Error::Io { offset, source } => write!(f, "read at offset {offset}: {source}"),
            Error::Damaged { offset, problem } => write!(f, "damaged at offset {offset}: {problem}"),
            Error::Version(version) => {
                write!(f, "version {version} of the format is not supported (1 to {})", VERSION_MAX)
            }
            Error::Type { offset, module: Some(module), .. } => {
                write!(f, "at offset {offset}: values of modules are not supported (module type {module})")
            }
            Error::Type { offset, number, module: None } => {
                write!(f, "at offset {offset}: values of type {number} are not supported")
            }
            Error::Checksum { offset } => write!(f, "the checksum at offset {offset} is wrong: damaged"),
            Error::TooLarge { offset } => {
                write!(f, "at offset {offset}: the value takes more memory than allowed")
            }
            Error::Key { key, source } => {
                write!(f, "key '{}': {source}", key.escape_ascii())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Key { source, .. } => Some(source),
            _ => None,
        }
    }
}
