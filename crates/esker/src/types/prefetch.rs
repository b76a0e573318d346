//! Prefetches memory that is about to be read.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the processor's hint"))]

/// Asks the processor for the cache line at an address. Any address is allowed: nothing is read.
#[inline(always)]
pub(crate) fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
