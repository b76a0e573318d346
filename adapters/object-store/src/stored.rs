//! What the keyspaces hold: keys as bytes, values as MessagePack with the names of fields.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use object_store::path::Path;
use object_store::{Attribute, AttributeValue, Attributes, Error, ObjectMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Result, generic};

/// An object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Object {
    pub(crate) content: u64,
    /// The sizes of the parts of the content.
    pub(crate) parts: Vec<u64>,
    pub(crate) modified_us: i64,
    pub(crate) attributes: Vec<StoredAttribute>,
}

/// An upload that has begun.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Upload {
    pub(crate) path: String,
    pub(crate) begun_us: i64,
    pub(crate) attributes: Vec<StoredAttribute>,
}

/// The kind of an attribute, the name of its own if it is `Metadata`, and its value.
pub(crate) type StoredAttribute = (u8, String, String);

impl Object {
    pub(crate) fn size(&self) -> u64 {
        self.parts.iter().sum()
    }

    pub(crate) fn meta(&self, location: Path) -> Result<ObjectMeta> {
        Ok(ObjectMeta {
            location,
            last_modified: time_of(self.modified_us)?,
            size: self.size(),
            e_tag: Some(e_tag(self.content)),
            version: None,
        })
    }
}

pub(crate) fn time_of(us: i64) -> Result<DateTime<Utc>> {
    DateTime::from_timestamp_micros(us).ok_or_else(|| generic(format!("a time of {us} us is out of range")))
}

/// object.2
pub(crate) fn e_tag(content: u64) -> String {
    format!("\"{content}\"")
}

pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    rmp_serde::to_vec_named(value).map_err(generic)
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    rmp_serde::from_slice(bytes).map_err(generic)
}

/// Returns the key of a chunk. Its first 8 bytes are the same in all chunks of the content, its first 12 in
/// those of the part.
pub(crate) fn chunk_key(content: u64, part: u32, chunk: u32) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&content.to_be_bytes());
    key[8..12].copy_from_slice(&part.to_be_bytes());
    key[12..].copy_from_slice(&chunk.to_be_bytes());
    key
}

pub(crate) fn part_key(content: u64, part: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key.copy_from_slice(&chunk_key(content, part, 0)[..12]);
    key
}

pub(crate) fn store_attributes(attributes: &Attributes) -> Result<Vec<StoredAttribute>> {
    let store = |(attribute, value): (&Attribute, &AttributeValue)| {
        let (kind, name) = match attribute {
            Attribute::ContentDisposition => (1, ""),
            Attribute::ContentEncoding => (2, ""),
            Attribute::ContentLanguage => (3, ""),
            Attribute::ContentType => (4, ""),
            Attribute::CacheControl => (5, ""),
            Attribute::StorageClass => (6, ""),
            Attribute::Metadata(name) => (7, name.as_ref()),
            other => {
                return Err(Error::NotSupported { source: format!("the attribute {other:?}").into() });
            }
        };
        Ok((kind, name.to_owned(), value.as_ref().to_owned()))
    };
    attributes.iter().map(store).collect()
}

pub(crate) fn load_attributes(stored: Vec<StoredAttribute>) -> Result<Attributes> {
    let load = |(kind, name, value): StoredAttribute| {
        let attribute = match kind {
            1 => Attribute::ContentDisposition,
            2 => Attribute::ContentEncoding,
            3 => Attribute::ContentLanguage,
            4 => Attribute::ContentType,
            5 => Attribute::CacheControl,
            6 => Attribute::StorageClass,
            7 => Attribute::Metadata(Cow::Owned(name)),
            _ => return Err(generic(format!("an attribute of kind {kind}: use a newer esker-object-store"))),
        };
        Ok((attribute, AttributeValue::from(value)))
    };
    stored.into_iter().map(load).collect()
}
