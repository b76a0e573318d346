//! `IVec`: bytes that are cheap to clone.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use esker::Value;

/// A buffer of bytes. Clones share it until one of them is changed.
#[derive(Clone)]
pub struct IVec(Bytes);

#[derive(Clone)]
enum Bytes {
    Shared(Value),
    /// After a change.
    Own(Vec<u8>),
}

impl IVec {
    /// Returns a part of the buffer.
    ///
    /// # Panics
    /// If it does not lie within the buffer.
    pub fn subslice(&self, slice_offset: usize, len: usize) -> Self {
        let rest = self.len().checked_sub(slice_offset).expect("the part begins within the buffer");
        assert!(rest >= len, "the part ends within the buffer");
        IVec::from(&self[slice_offset..slice_offset + len])
    }
}

impl Default for IVec {
    fn default() -> Self {
        IVec(Bytes::Shared(Value::default()))
    }
}

impl Deref for IVec {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Shared(value) => value,
            Bytes::Own(bytes) => bytes,
        }
    }
}

impl DerefMut for IVec {
    fn deref_mut(&mut self) -> &mut [u8] {
        if let Bytes::Shared(value) = &self.0 {
            self.0 = Bytes::Own(value.to_vec());
        }
        match &mut self.0 {
            Bytes::Own(bytes) => bytes,
            Bytes::Shared(_) => unreachable!("replaced above"),
        }
    }
}

impl AsRef<[u8]> for IVec {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for IVec {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Borrow<[u8]> for IVec {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for &IVec {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Hash for IVec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.deref().hash(state);
    }
}

impl Ord for IVec {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.deref().cmp(other)
    }
}

impl PartialOrd for IVec {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: AsRef<[u8]>> PartialEq<T> for IVec {
    fn eq(&self, other: &T) -> bool {
        self.deref() == other.as_ref()
    }
}

impl PartialEq<[u8]> for IVec {
    fn eq(&self, other: &[u8]) -> bool {
        self.deref() == other
    }
}

impl Eq for IVec {}

impl fmt::Debug for IVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

impl FromIterator<u8> for IVec {
    fn from_iter<T: IntoIterator<Item = u8>>(bytes: T) -> Self {
        bytes.into_iter().collect::<Vec<u8>>().into()
    }
}

impl From<Value> for IVec {
    fn from(value: Value) -> Self {
        IVec(Bytes::Shared(value))
    }
}

impl From<esker::Key> for IVec {
    fn from(key: esker::Key) -> Self {
        IVec::from(Vec::from(key))
    }
}

impl From<IVec> for Value {
    fn from(bytes: IVec) -> Self {
        match bytes.0 {
            Bytes::Shared(value) => value,
            Bytes::Own(bytes) => Value::from(bytes),
        }
    }
}

impl From<Vec<u8>> for IVec {
    fn from(bytes: Vec<u8>) -> Self {
        IVec(Bytes::Shared(Value::from(bytes)))
    }
}

impl From<&[u8]> for IVec {
    fn from(bytes: &[u8]) -> Self {
        IVec(Bytes::Shared(Value::from(bytes)))
    }
}

impl<const N: usize> From<&[u8; N]> for IVec {
    fn from(bytes: &[u8; N]) -> Self {
        IVec::from(&bytes[..])
    }
}

impl From<Box<[u8]>> for IVec {
    fn from(bytes: Box<[u8]>) -> Self {
        IVec::from(bytes.into_vec())
    }
}

impl From<Arc<[u8]>> for IVec {
    fn from(bytes: Arc<[u8]>) -> Self {
        IVec::from(&bytes[..])
    }
}

impl From<&str> for IVec {
    fn from(text: &str) -> Self {
        IVec::from(text.as_bytes())
    }
}

impl From<&IVec> for IVec {
    fn from(bytes: &IVec) -> Self {
        bytes.clone()
    }
}

impl From<IVec> for Arc<[u8]> {
    fn from(bytes: IVec) -> Self {
        Arc::from(&bytes[..])
    }
}
