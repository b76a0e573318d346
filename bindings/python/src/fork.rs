//! Forks: a child must not use what its parent opened.
//!
//! `os.register_at_fork` counts the forks on the way to this process. An object notes the count when it is
//! made, and every call compares. So calls in a child fail before they touch locks of the engine, which
//! another thread may have held at the fork.

use std::sync::atomic::{AtomicU32, Ordering};

use esker::Error;
use pyo3::prelude::*;

use crate::error::raise;

/// Number of forks. Relaxed: a child begins with one thread.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process in which an object was made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This process.
    pub(crate) fn current() -> Process {
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Forgets a value in a forked child: dropping it could wait for a lock that no thread there holds.
    pub(crate) fn forget_in_child<T>(self, value: &mut Option<T>) {
        if self != Process::current() {
            std::mem::forget(value.take());
        }
    }

    /// Fails in a forked child of the process.
    #[inline]
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        if self == Process::current() { Ok(()) } else { Err(raise(py, &Error::Forked)) }
    }
}

/// Called in each forked child.
#[pyfunction]
pub(crate) fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
