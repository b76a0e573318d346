//! Epoch-based reclamation: keeps removed objects alive while readers may still use them.
//!
//! ```text
//!   reader:  pin -- load the pointer -- read -- unpin
//!   writer:  pin -- remove the pointer -- defer(free) . . . . free, once every pin of that moment has ended
//! ```
//!
//! - Esker uses a collector of its own, not the default one of the process. It never runs garbage
//!   deferred by other crates under a lock or on a thread of a database.
#![expect(unsafe_code, reason = "what is deferred outlives what it borrows")]

use std::sync::LazyLock;

use crossbeam_epoch::{Collector, Guard, LocalHandle};

static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::new);

thread_local! {
    static HANDLE: LocalHandle = COLLECTOR.register();
}

/// Pins the current thread: pointers that it loads from now on stay valid until the guard is dropped.
#[inline]
pub(crate) fn pin() -> Guard {
    // The handle of an exiting thread may be gone when other thread-local values are dropped.
    HANDLE.try_with(LocalHandle::pin).unwrap_or_else(|_| COLLECTOR.register().pin())
}

/// Frees all garbage that no reader can hold. For simulations, which must start from the same state each
/// time.
pub fn settle_garbage() {
    for _ in 0..64 {
        pin().flush();
    }
}

/// Protection of loaded pointers: an epoch guard, or its model.
///
/// # Safety
/// Work passed to `defer` runs only after every pin that existed at the time of the call has ended.
pub(crate) unsafe trait Pin {
    /// Runs `work` once no reader can hold what it frees.
    ///
    /// # Safety
    /// `work` may run on another thread, and later than the lifetimes of what it borrows.
    unsafe fn defer(&self, work: impl FnOnce());

    /// Makes deferred work run soon.
    fn flush(&self);
}

// SAFETY: a guard defers work until all current pins have ended.
unsafe impl Pin for Guard {
    #[inline]
    unsafe fn defer(&self, work: impl FnOnce()) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.defer_unchecked(work) };
    }

    fn flush(&self) {
        Guard::flush(self);
    }
}
