//! Keys of the catalog, the keyspace that holds the names and options of all others.
//!
//! ```text
//!   n | name --> the number of the keyspace        o | number --> its options
//! ```

use super::bytes::{ByteReader, put_varint};
use crate::types::KeyspaceId;
use crate::types::key::encode_key;

const NAME_PREFIX: u8 = b'n';
const OPTIONS_PREFIX: u8 = b'o';

/// The encoded key of a name's entry.
pub(crate) fn name_key(name: &str) -> Vec<u8> {
    encode_key(KeyspaceId::CATALOG, &[&[NAME_PREFIX], name.as_bytes()].concat())
}

/// The name whose entry has this user key; `None` if it is no name's.
pub(crate) fn name_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.strip_prefix(&[NAME_PREFIX])?).ok()
}

/// The encoded key of a keyspace's options.
pub(crate) fn options_key(id: KeyspaceId) -> Vec<u8> {
    let mut key = vec![OPTIONS_PREFIX];
    put_varint(&mut key, u64::from(id.get()));
    encode_key(KeyspaceId::CATALOG, &key)
}

/// The keyspace whose options have this user key; `None` if it is no options'.
pub(crate) fn options_of(key: &[u8]) -> Option<KeyspaceId> {
    let mut reader = ByteReader::new(key.strip_prefix(&[OPTIONS_PREFIX])?);
    let id = reader.varint().ok().filter(|_| reader.is_empty())?;
    u32::try_from(id).ok().map(KeyspaceId::new)
}
