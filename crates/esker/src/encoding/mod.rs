//! Encoding primitives: the bounded reader of all decoders, varints, checksums, hashes, filters and codecs.

pub(crate) mod bloom;
pub(crate) mod bytes;
pub(crate) mod catalog_key;
pub(crate) mod checksum;
pub(crate) mod compression;
pub(crate) mod digest;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub(crate) mod hash;
pub(crate) mod operand;

pub use compression::Compression;
