//! What keeps a thing alive that was taken out of a shared place while others may still read it.
//!
//! ```text
//!   reader:  pin -- load the pointer -- read -- unpin
//!   writer:  pin -- take the pointer out -- defer(free) . . . . free, when every pin of that moment has ended
//! ```
#![expect(unsafe_code, reason = "what is deferred outlives what it borrows")]

use crossbeam_epoch::Guard;

/// What protects what was loaded: an epoch guard, or its model.
///
/// # Safety
/// What `defer` was given runs only after every pin that existed at the time of the call has ended.
pub(crate) unsafe trait Pin {
    /// Runs `work` when nobody can hold what it frees any more.
    ///
    /// # Safety
    /// `work` may run on another thread, and later than the lifetimes of what it borrows.
    unsafe fn defer(&self, work: impl FnOnce());
}

// SAFETY: it is what epochs are for.
unsafe impl Pin for Guard {
    #[inline]
    unsafe fn defer(&self, work: impl FnOnce()) {
        // SAFETY: the caller's.
        unsafe { self.defer_unchecked(work) };
    }
}
