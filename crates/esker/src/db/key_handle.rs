//! `Key`: an owned key, as returned by iterators. Short keys need no allocation.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use crate::types::small_copy::copy_small;

const INLINE: usize = 38;

/// An owned key. Derefs to `[u8]`.
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl Key {
    /// Copies the bytes.
    #[inline]
    pub(crate) fn new(key: &[u8]) -> Self {
        if key.len() <= INLINE {
            let mut bytes = [0; INLINE];
            copy_small(&mut bytes, key);
            return Key(Repr::Inline { len: key.len() as u8, bytes });
        }
        Key(Repr::Heap(key.into()))
    }

    /// Concatenates the parts.
    #[inline]
    pub(crate) fn of_parts(parts: [&[u8]; 3]) -> Self {
        let len = parts[0].len() + parts[1].len() + parts[2].len();
        if len > INLINE {
            return Key(Repr::Heap(parts.concat().into()));
        }
        let mut bytes = [0; INLINE];
        let mut at = 0;
        for part in parts {
            copy_small(&mut bytes[at..], part);
            at += part.len();
        }
        Key(Repr::Inline { len: len as u8, bytes })
    }
}

impl Deref for Key {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Key {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        Key::new(key)
    }
}

impl From<Key> for Vec<u8> {
    fn from(key: Key) -> Self {
        match key.0 {
            Repr::Inline { len, bytes } => bytes[..usize::from(len)].to_vec(),
            Repr::Heap(bytes) => bytes.into(),
        }
    }
}

#[cfg(feature = "bytes")]
impl From<Key> for bytes::Bytes {
    fn from(key: Key) -> Self {
        Vec::from(key).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_keys_are_what_they_were() {
        for len in [0, 1, INLINE, INLINE + 1, 5000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(Key::new(&bytes), bytes);
            let (start, end) = bytes.split_at(len / 3);
            assert_eq!(Key::of_parts([start, &end[..end.len() / 2], &end[end.len() / 2..]]), bytes);
        }
        assert!(Key::new(b"a") < Key::new(&[b'a'; 50]));
        assert_eq!(format!("{:?}", Key::new(b"a\n")), "b\"a\\n\"");
    }
}
