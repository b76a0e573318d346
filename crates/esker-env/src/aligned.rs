//! A byte buffer aligned for direct I/O.
#![expect(unsafe_code, reason = "aligned allocation")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const TOO_LONG: &str = "a buffer fits the address space";

/// A fixed-size, zero-initialised buffer, aligned to [`AlignedBuf::ALIGN`] bytes.
pub struct AlignedBuf {
    /// Start of the allocation, which is larger than the buffer by the alignment.
    base: NonNull<u8>,
    /// The first aligned byte of the allocation.
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns its memory, like a Box<[u8]>.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// The alignment that O_DIRECT requires of buffers, offsets and lengths. 4096 suits every disk in use.
    pub const ALIGN: usize = 4096;

    /// Returns a zeroed buffer of `len` bytes, rounded up to a positive multiple of [`Self::ALIGN`].
    ///
    /// Requests zeros without alignment: the allocator then uses fresh pages of the system without touching
    /// them. For aligned zeros it would write the whole buffer.
    ///
    /// # Panics
    /// If the size exceeds the address space.
    pub fn zeroed(len: usize) -> Self {
        let len = len.max(1).checked_next_multiple_of(Self::ALIGN).expect(TOO_LONG);
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        let skip = base.as_ptr().align_offset(Self::ALIGN);
        assert!(skip < Self::ALIGN, "bytes can be aligned");
        // SAFETY: the allocation has len + ALIGN bytes, and skip is less than ALIGN.
        let ptr = unsafe { base.add(skip) };
        AlignedBuf { base, ptr, len }
    }

    fn layout(len: usize) -> Layout {
        let room = len.checked_add(Self::ALIGN).expect(TOO_LONG);
        Layout::from_size_align(room, 1).expect(TOO_LONG)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: ptr is valid for len initialised bytes while self lives.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: ptr is valid for len initialised bytes, and &mut self makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout.
        unsafe { dealloc(self.base.as_ptr(), Self::layout(self.len)) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_whole_blocks() {
        // Miri needs minutes for a mebibyte.
        let longest = if cfg!(miri) { 3 << 12 } else { 1 << 20 };
        for len in [0, 1, 4095, 4096, 4097, longest] {
            let mut buf = AlignedBuf::zeroed(len);
            assert!(buf.len() >= len.max(1) && buf.len() - len <= AlignedBuf::ALIGN, "{len}");
            assert!(buf.len().is_multiple_of(AlignedBuf::ALIGN));
            assert!(buf.as_ptr().addr().is_multiple_of(AlignedBuf::ALIGN));
            assert!(buf.iter().all(|b| *b == 0));
            buf.fill(1);
        }
    }

    /// The refusal must not depend on overflow checks, which release builds lack.
    #[test]
    fn a_buffer_longer_than_the_address_space_is_refused() {
        for len in [usize::MAX, usize::MAX - 4095, usize::MAX - 8191, isize::MAX as usize] {
            let refused = std::panic::catch_unwind(|| AlignedBuf::zeroed(len)).unwrap_err();
            assert!(
                crate::panic_text(&*refused).contains(TOO_LONG),
                "{len}: {}",
                crate::panic_text(&*refused)
            );
        }
    }
}
