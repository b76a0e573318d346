//! `Value`: a cheap handle to the bytes of a value, wherever they live.
//!
//! ```text
//!   Value --pointer, length--> bytes inside a cached block, or a buffer of its own
//!         --owner------------> keeps them alive
//! ```
//!
//! V1. The bytes neither move nor change while an owner is held.
#![expect(unsafe_code, reason = "a handle into shared bytes holds a pointer beside the owner")]

use std::ops::{Deref, Range};
use std::sync::Arc;

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

/// A value of less than this part of the bytes that it is in is copied rather than have them kept.
const UNPINNED_PART: usize = 8;

/// The bytes of a value. Derefs to `[u8]`; cloning shares, it does not copy.
///
/// A value that was read from a table, by anything but `multi_get`, keeps the whole block in memory that it lies in (some 8 KiB, or the value's size if that is more), beside what
/// [`Builder::memory`](crate::Builder::memory) allows, until it is dropped. Of many small values that are kept for long, keep copies (`to_vec`).
#[derive(Clone)]
pub struct Value {
    ptr: *const u8,
    len: usize,
    _owner: Option<Arc<dyn SharedBytes>>,
}

// SAFETY: the bytes are immutable (V1) and their owner is Send + Sync.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    /// The empty value; needs no owner.
    pub const fn empty() -> Self {
        Value { ptr: std::ptr::NonNull::<u8>::dangling().as_ptr(), len: 0, _owner: None }
    }

    /// A part of shared bytes.
    ///
    /// # Panics
    /// If the range is not within them.
    #[inline]
    pub fn slice_of<T: SharedBytes>(owner: Arc<T>, range: Range<usize>) -> Self {
        let bytes = &owner.bytes()[range];
        let (ptr, len) = (bytes.as_ptr(), bytes.len());
        if fault::is_on(Fault::ValueNotKept) {
            return Value { ptr, len, _owner: None };
        }
        Value { ptr, len, _owner: Some(owner) }
    }

    /// The same value, but one that is small beside the bytes that it keeps in memory copied out of them.
    pub(crate) fn unpinned(self) -> Self {
        let kept = self._owner.as_ref().map_or(0, |owner| owner.bytes().len());
        if kept / UNPINNED_PART > self.len { Self::copy_of(&self) } else { self }
    }

    /// A value with its own copy of the bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        if bytes.is_empty() { Self::empty() } else { Self::from(bytes.to_vec()) }
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
        // SAFETY: ptr and len describe a part of the owner's bytes (V1), or no bytes at all.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_a_value_outlives_its_maker() {
        let shared = Arc::new(b"hello world".to_vec());
        let value = Value::slice_of(shared.clone(), 6..11);
        let clone = value.clone();
        drop((shared, value));
        assert_eq!(clone, b"world");
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
            [owners_of(0), owners_of(10), owners_of(124), owners_of(125), owners_of(900)],
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
