//! Bytes and numbers: the bounded reader that every decoder uses, varints, checksums, hashes, filters, codecs.

pub(crate) mod bloom;
pub(crate) mod bytes;
pub(crate) mod catalog_key;
pub(crate) mod checksum;
pub(crate) mod compression;
pub(crate) mod digest;
#[doc(hidden)]
pub mod fuzzing;
pub(crate) mod hash;
pub(crate) mod operand;

pub use compression::Compression;
