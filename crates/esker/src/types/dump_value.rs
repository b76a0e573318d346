//! A value as dumps show it.

/// A part of a [`DumpItem`](crate::DumpItem).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpValue {
    /// A number.
    Number(u64),
    /// Text.
    Text(String),
    /// Bytes of any kind: keys and values.
    Bytes(Vec<u8>),
}

/// Named values, in a fixed order.
pub(crate) type Fields = Vec<(&'static str, DumpValue)>;

impl From<u64> for DumpValue {
    fn from(n: u64) -> Self {
        DumpValue::Number(n)
    }
}

impl From<&str> for DumpValue {
    fn from(text: &str) -> Self {
        DumpValue::Text(text.to_owned())
    }
}

impl From<String> for DumpValue {
    fn from(text: String) -> Self {
        DumpValue::Text(text)
    }
}

impl From<&[u8]> for DumpValue {
    fn from(bytes: &[u8]) -> Self {
        DumpValue::Bytes(bytes.to_vec())
    }
}
