//! What keeps a thing alive that was taken out of a shared place while others may still read it.
//!
//! ```text
//!   reader:  pin -- load the pointer -- read -- unpin
//!   writer:  pin -- take the pointer out -- defer(free) . . . . free, when every pin of that moment has ended
//! ```
//!
//! pin.1. The garbage is Esker's alone: its collector runs what other crates of the process have deferred under no lock of a database, on
//!      no thread of one. They have the default collector, Esker one of its own.
#![expect(unsafe_code, reason = "what is deferred outlives what it borrows")]

use std::sync::LazyLock;

use crossbeam_epoch::{Collector, Guard, LocalHandle};

static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::new);

thread_local! {
    static HANDLE: LocalHandle = COLLECTOR.register();
}

/// Keeps alive what the thread loads from here on (pin.1).
#[inline]
pub(crate) fn pin() -> Guard {
    // A thread that ends has lost its handle when other values of its own are dropped.
    HANDLE.try_with(LocalHandle::pin).unwrap_or_else(|_| COLLECTOR.register().pin())
}

/// Frees what nobody can hold any more. For simulations, which begin from the same state each time.
pub fn settle_garbage() {
    for _ in 0..64 {
        pin().flush();
    }
}

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

    /// Has what was deferred run soon.
    fn flush(&self);
}

// SAFETY: it is what epochs are for.
unsafe impl Pin for Guard {
    #[inline]
    unsafe fn defer(&self, work: impl FnOnce()) {
        // SAFETY: the caller's.
        unsafe { self.defer_unchecked(work) };
    }

    fn flush(&self) {
        Guard::flush(self);
    }
}
