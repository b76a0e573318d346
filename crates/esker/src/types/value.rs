//! `Value`: a cheap handle to the bytes of a value, wherever they are.
//!
//! ```text
//!   Value: up to 30 bytes in the handle, or a reference-counted copy
//!     or   --pointer, length--> bytes inside a cached block or another buffer
//!          --owner------------> keeps them alive
//! ```
//!
//! value.1. The bytes neither move nor change while an owner is held.
#![expect(unsafe_code, reason = "a handle into shared bytes holds a pointer beside the owner")]

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;

use super::small_copy::copy_small;
use crate::sync::fault::{self, Fault};

/// An owner of bytes that values point into.
///
/// # Safety
/// While the owner lives (wherever an `Arc` of it is moved), `bytes` must return the same address, length and
/// content.
pub unsafe trait SharedBytes: Send + Sync + 'static {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

// SAFETY: a Vec behind an Arc is never touched again, and its heap buffer does not move.
unsafe impl SharedBytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A value smaller than this part (1 / N) of its owner's bytes is copied instead of keeping the owner in
/// memory.
const UNPINNED_PART: usize = 8;

/// Maximum size of a value that is copied into the handle. The copy costs less than sharing, and keeps
/// nothing else in memory.
const INLINE_BYTES_MAX: usize = 30;

/// The bytes of a value. Derefs to `[u8]`. A clone shares the bytes.
///
/// A value of more than 30 bytes that was read from a table keeps its whole block in memory until it is
/// dropped: some 8 KiB, or the value's size if that is more, on top of
/// [`Builder::memory`](crate::Builder::memory). `multi_get` copies instead. To keep many small values for
/// long, copy them (`to_vec`).
#[derive(Clone)]
pub struct Value(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_BYTES_MAX] },
    Own(Arc<[u8]>),
    Shared { len: u32, ptr: *const u8, owner: Arc<dyn SharedBytes> },
}

const _: () = assert!(size_of::<Value>() == 32);

// SAFETY: shared bytes are immutable (value.1) and their owner is Send + Sync.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    /// The empty value.
    pub const fn empty() -> Self {
        Value(Repr::Inline { len: 0, bytes: [0; INLINE_BYTES_MAX] })
    }

    /// Returns whether a value of this length is copied into its handle.
    #[inline(always)]
    pub(crate) fn is_small(len: usize) -> bool {
        len <= INLINE_BYTES_MAX
    }

    /// A value with its bytes in the handle. They must fit.
    #[inline]
    fn inline(value: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES_MAX];
        copy_small(&mut bytes, value);
        Value(Repr::Inline { len: value.len() as u8, bytes })
    }

    /// A part of shared bytes, which it keeps in memory.
    ///
    /// # Panics
    /// If the range is not within the bytes, or longer than a value can be.
    #[inline(always)]
    pub fn slice_of<T: SharedBytes>(owner: Arc<T>, range: Range<usize>) -> Self {
        let bytes = &owner.bytes()[range];
        let (ptr, len) = (bytes.as_ptr(), u32::try_from(bytes.len()).expect("values have 32-bit lengths"));
        if fault::is_on(Fault::ValueNotKept) {
            return Value(Repr::Shared { len, ptr, owner: Arc::new(Vec::new()) });
        }
        Value(Repr::Shared { len, ptr, owner })
    }

    /// A part of shared bytes, copied if that is cheaper.
    #[inline]
    pub(crate) fn part_of<T: SharedBytes>(owner: &Arc<T>, range: Range<usize>) -> Self {
        if Self::is_small(range.len()) {
            Self::inline(&owner.bytes()[range])
        } else {
            Self::slice_of(owner.clone(), range)
        }
    }

    /// Copies the value if it is small beside the bytes that it keeps in memory.
    pub(crate) fn unpinned(self) -> Self {
        match &self.0 {
            Repr::Shared { len, owner, .. } if owner.bytes().len() / UNPINNED_PART > *len as usize => {
                Self::copy_of(&self)
            }
            _ => self,
        }
    }

    /// A value with its own copy of the bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        if Self::is_small(bytes.len()) { Self::inline(bytes) } else { Value(Repr::Own(bytes.into())) }
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self::slice_of(Arc::new(bytes), 0..len)
    }
}

impl Deref for Value {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Own(bytes) => bytes,
            // SAFETY: ptr and len describe a part of the owner's bytes (value.1).
            Repr::Shared { len, ptr, .. } => unsafe { std::slice::from_raw_parts(*ptr, *len as usize) },
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Default for Value {
    fn default() -> Self {
        Value::empty()
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Value::copy_of(bytes)
    }
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(bytes: [u8; N]) -> Self {
        Value::copy_of(&bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Self {
        Value::copy_of(bytes)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::copy_of(text.as_bytes())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.to_vec()
    }
}

/// Shares the bytes, as a clone of the value does.
#[cfg(feature = "bytes")]
impl From<Value> for bytes::Bytes {
    fn from(value: Value) -> Self {
        bytes::Bytes::from_owner(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_1_a_value_outlives_its_maker() {
        let text = b"hello world, which is a text of more than thirty bytes";
        for (range, is_kept) in [(6..11, 0), (6..54, 1)] {
            let shared = Arc::new(text.to_vec());
            let value = Value::part_of(&shared, range.clone());
            assert_eq!(Arc::strong_count(&shared) - 1, is_kept);
            let clone = value.clone();
            drop((shared, value));
            assert_eq!(clone, text[range]);
        }
        assert_eq!(Value::copy_of(b""), Value::empty());
        assert_eq!(format!("{:?}", Value::copy_of(b"a\0")), "b\"a\\x00\"");
    }

    #[test]
    fn a_small_part_of_shared_bytes_is_copied_out_of_them_and_a_large_one_is_not() {
        let shared = Arc::new(vec![7; 1000]);
        let owners_of = |len| {
            let value = Value::slice_of(shared.clone(), 100..100 + len).unpinned();
            assert_eq!(value, vec![7; len]);
            Arc::strong_count(&shared) - 1
        };
        assert_eq!(
            [owners_of(0), owners_of(31), owners_of(124), owners_of(125), owners_of(900)],
            [0, 0, 0, 1, 1]
        );
        assert_eq!(Value::empty().unpinned(), b"");
    }

    #[test]
    #[should_panic(expected = "range end index 12")]
    fn a_range_outside_is_refused() {
        Value::slice_of(Arc::new(b"hello world".to_vec()), 6..12);
    }
}
