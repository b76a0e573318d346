//! The keys and values of the keyspaces, and the values' encoding.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | NAME/log | index, 8 bytes, big-endian | the entry |
//! | NAME/meta | `vote`, `committed`, `purged` | the vote; log ids |
//! | NAME/meta | `applied` | the last applied log id and membership |
//! | NAME/snapshot | `meta`, `data` | the current snapshot |
//!
//! All values but `data` are MessagePack with the names of fields.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

pub(crate) const VOTE: &str = "vote";
pub(crate) const COMMITTED: &str = "committed";
pub(crate) const PURGED: &str = "purged";
pub(crate) const APPLIED: &str = "applied";
pub(crate) const META: &str = "meta";
pub(crate) const DATA: &str = "data";

/// Returns the key of an entry.
pub(crate) fn key_of(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

pub(crate) fn encode(what: &'static str, value: &impl Serialize) -> Result<Vec<u8>, Error> {
    rmp_serde::to_vec_named(value).map_err(|source| Error::Encode { what, source })
}

pub(crate) fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, Error> {
    rmp_serde::from_slice(bytes).map_err(|source| Error::Decode { what, source })
}
