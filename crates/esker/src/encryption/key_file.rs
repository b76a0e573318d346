//! `KEYS`: the keys of a database, wrapped by master keys.
//!
//! ```text
//!   WrappedKey* --encode--> KEYS --decode--> WrappedKey* | damaged | newer version
//! ```
//!
//! Bytes: docs/formats/encryption.md

use std::path::Path;

use crate::encoding::bytes::{ByteReader, DecodeError, Decoded};
use crate::encoding::checksum::crc32c;
use crate::types::{Error, Result};

const MAGIC: [u8; 8] = *b"eskerKYS";
const VERSION: u32 = 1;
const WHAT: &str = "KEYS";
/// Maximum size of the file.
pub(super) const BYTES_MAX: u64 = 16 << 20;
/// Maximum length of the id of a master key.
pub(super) const ID_BYTES_MAX: usize = 255;
/// Maximum length of a wrapped key.
pub(super) const WRAPPED_BYTES_MAX: usize = 64 << 10;

/// A key of a database, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrappedKey {
    /// A random number that names the key.
    pub(super) id: u64,
    /// The id of the master key that wraps it.
    pub(super) master: String,
    /// What the provider made of the key.
    pub(super) wrapped: Vec<u8>,
}

/// Encodes keys. New files use the first.
pub(super) fn encode(keys: &[WrappedKey]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    for key in keys {
        out.extend_from_slice(&key.id.to_le_bytes());
        out.push(key.master.len() as u8);
        out.extend_from_slice(key.master.as_bytes());
        out.extend_from_slice(&(key.wrapped.len() as u32).to_le_bytes());
        out.extend_from_slice(&key.wrapped);
    }
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

/// Decodes keys, at least one.
pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Vec<WrappedKey>> {
    if !bytes.starts_with(&MAGIC) {
        return Err(Error::corrupt(WHAT, path, 0, "not a file of keys"));
    }
    let Some((content, crc)) = bytes.split_at_checked(bytes.len().saturating_sub(4)) else {
        return Err(Error::corrupt(WHAT, path, 0, "the file is too short"));
    };
    if crc32c(content).to_le_bytes() != crc {
        return Err(Error::corrupt(WHAT, path, content.len() as u64, "checksum mismatch"));
    }
    let mut reader = ByteReader::new(content.get(MAGIC.len()..).unwrap_or_default());
    let version = reader.u32().map_err(|e| e.in_file(WHAT, path, 8))?;
    if version != VERSION {
        let path = path.to_owned();
        return Err(Error::UnsupportedVersion { what: WHAT, path, found: version, supported: VERSION });
    }
    let mut keys = Vec::new();
    while !reader.is_empty() || keys.is_empty() {
        keys.push(decode_key(&mut reader).map_err(|e| e.in_file(WHAT, path, 8))?);
    }
    Ok(keys)
}

fn decode_key(reader: &mut ByteReader<'_>) -> Decoded<WrappedKey> {
    let id = reader.u64()?;
    let len = u64::from(reader.u8()?);
    let master = std::str::from_utf8(reader.take(len)?)
        .map_err(|_| DecodeError::new(0, "the id of a master key is not UTF-8"))?
        .to_owned();
    let len = u64::from(reader.u32()?);
    Ok(WrappedKey { id, master, wrapped: reader.take(len)?.to_vec() })
}
