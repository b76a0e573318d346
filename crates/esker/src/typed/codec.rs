//! Codecs: how values are stored.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes values as bytes.
pub trait Codec<V> {
    /// Encodes a value.
    ///
    /// # Errors
    /// A description of why the value cannot be encoded.
    fn encode(value: &V) -> Result<Vec<u8>, String>;

    /// Decodes a value.
    ///
    /// # Errors
    /// A description of why the bytes cannot be decoded.
    fn decode(bytes: &[u8]) -> Result<V, String>;
}

/// With debug assertions, refuses bytes that cannot be decoded again.
fn readable<V, C: Codec<V>>(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    if cfg!(debug_assertions) {
        C::decode(&bytes).map_err(|e| format!("it could not be read back: {e}"))?;
    }
    Ok(bytes)
}

/// Encodes values with serde in the format of the crate `postcard`, which stores fields without names: the
/// smallest and fastest of the codecs.
///
/// A value can only be read as the type that wrote it: a field that is added later cannot be read from old
/// values, not even with `#[serde(default)]`. For types that will gain fields use `MessagePack` or `Json`,
/// which store the names of fields. Types with the serde attributes `skip_serializing_if`, `flatten`, `tag`
/// and `untagged` need names, so they cannot be read back: builds with debug assertions refuse to store them.
#[derive(Clone, Copy, Debug)]
pub struct Postcard;

impl<V: Serialize + DeserializeOwned> Codec<V> for Postcard {
    fn encode(value: &V) -> Result<Vec<u8>, String> {
        readable::<V, Self>(postcard::to_stdvec(value).map_err(|e| e.to_string())?)
    }

    fn decode(bytes: &[u8]) -> Result<V, String> {
        let (value, rest) = postcard::take_from_bytes(bytes).map_err(|e| e.to_string())?;
        if rest.is_empty() { Ok(value) } else { Err(format!("{} bytes follow the value", rest.len())) }
    }
}

/// Encodes values with serde as MessagePack, with the names of fields. A field that is added later with
/// `#[serde(default)]` reads old values, and a field that is gone is skipped. Every language can read the
/// values. `Some(None)` and `Some(())` are read as `None`. Feature `msgpack`.
#[cfg(feature = "msgpack")]
#[derive(Clone, Copy, Debug)]
pub struct MessagePack;

#[cfg(feature = "msgpack")]
impl<V: Serialize + DeserializeOwned> Codec<V> for MessagePack {
    fn encode(value: &V) -> Result<Vec<u8>, String> {
        readable::<V, Self>(rmp_serde::to_vec_named(value).map_err(|e| e.to_string())?)
    }

    fn decode(bytes: &[u8]) -> Result<V, String> {
        let mut rest = bytes;
        let value = rmp_serde::from_read(&mut rest).map_err(|e| e.to_string())?;
        if rest.is_empty() { Ok(value) } else { Err(format!("{} bytes follow the value", rest.len())) }
    }
}

/// Encodes values with serde as JSON, with the names of fields. A field that is added later with
/// `#[serde(default)]` reads old values, and a field that is gone is skipped. People can read the values.
/// JSON has one null for infinite floats, NaN, `None`, `Some(None)` and `Some(())`: an `Option` reads each as
/// `None`, a float cannot be read back. Feature `json`.
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug)]
pub struct Json;

#[cfg(feature = "json")]
impl<V: Serialize + DeserializeOwned> Codec<V> for Json {
    fn encode(value: &V) -> Result<Vec<u8>, String> {
        readable::<V, Self>(serde_json::to_vec(value).map_err(|e| e.to_string())?)
    }

    fn decode(bytes: &[u8]) -> Result<V, String> {
        serde_json::from_slice(bytes).map_err(|e| e.to_string())
    }
}

/// Stores bytes and text as they are, `i64`, `u64` and `f64` as 8 bytes in little-endian order, and `()` as
/// nothing. These are the values of the built-in [merge operators](crate::Keyspace::set_merge_operator).
#[derive(Clone, Copy, Debug)]
pub struct Plain;

macro_rules! numbers {
    ($($type:ty),*) => {
        $(impl Codec<$type> for Plain {
            fn encode(value: &$type) -> Result<Vec<u8>, String> {
                Ok(value.to_le_bytes().to_vec())
            }
            fn decode(bytes: &[u8]) -> Result<$type, String> {
                let bytes = bytes.try_into().map_err(|_| format!("a number has 8 bytes, not {}", bytes.len()))?;
                Ok(<$type>::from_le_bytes(bytes))
            }
        })*
    };
}

numbers!(i64, u64, f64);

impl Codec<Vec<u8>> for Plain {
    fn encode(value: &Vec<u8>) -> Result<Vec<u8>, String> {
        Ok(value.clone())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.to_vec())
    }
}

impl Codec<String> for Plain {
    fn encode(value: &String) -> Result<Vec<u8>, String> {
        Ok(value.clone().into_bytes())
    }

    fn decode(bytes: &[u8]) -> Result<String, String> {
        String::from_utf8(bytes.to_vec()).map_err(|e| e.to_string())
    }
}

impl Codec<()> for Plain {
    fn encode(_: &()) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    fn decode(bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() { Ok(()) } else { Err(format!("{} bytes where none are expected", bytes.len())) }
    }
}
