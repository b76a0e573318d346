//! Keys of the catalog, the keyspace that stores the names and options of all keyspaces.
//!
//! ```text
//!   n | name --> keyspace number        o | keyspace number --> options
//! ```

use super::bytes::{ByteReader, put_varint};
use crate::types::KeyspaceId;
use crate::types::key::encode_key;

const NAME_PREFIX: u8 = b'n';
const OPTIONS_PREFIX: u8 = b'o';

/// Returns the encoded key of the entry of a name.
pub(crate) fn name_key(name: &str) -> Vec<u8> {
    encode_key(KeyspaceId::CATALOG, &[&[NAME_PREFIX], name.as_bytes()].concat())
}

/// Returns the name that a user key of the catalog belongs to. `None` if it is not the key of a name.
pub(crate) fn name_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.strip_prefix(&[NAME_PREFIX])?).ok()
}

/// Returns the encoded key of the options of a keyspace.
pub(crate) fn options_key(id: KeyspaceId) -> Vec<u8> {
    let mut key = vec![OPTIONS_PREFIX];
    put_varint(&mut key, u64::from(id.get()));
    encode_key(KeyspaceId::CATALOG, &key)
}

/// Returns the keyspace whose options a user key of the catalog belongs to. `None` if it is not the key of
/// options.
pub(crate) fn options_of(key: &[u8]) -> Option<KeyspaceId> {
    let mut reader = ByteReader::new(key.strip_prefix(&[OPTIONS_PREFIX])?);
    let id = reader.varint().ok().filter(|_| reader.is_empty())?;
    u32::try_from(id).ok().map(KeyspaceId::new)
}
