//! Forks: a child must not use what its parent opened.
//!
//! `os.register_at_fork` counts the forks on the way to this process. An object notes the count when it is
//! made, and every call compares. So calls in a child fail before they touch locks of the engine, which
//! another thread may have held at the fork.

use std::sync::atomic::{AtomicU32, Ordering};

use esker::Error;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

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

    /// Returns whether the end of a `with` block has anything to do. It fails in a forked child, unless an
    /// exception is on its way, which says more.
    pub(crate) fn may_leave(self, py: Python<'_>, has_failed: bool) -> PyResult<bool> {
        match self.check(py) {
            Err(_) if has_failed => Ok(false),
            checked => checked.map(|()| true),
        }
    }

    /// Fails in a forked child of the process.
    #[inline]
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        if self == Process::current() { Ok(()) } else { Err(raise(py, &Error::Forked)) }
    }
}

/// Returns whether the arguments of `__exit__` have an exception.
pub(crate) fn has_failed(exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
    Ok(!exception.is_empty() && !exception.get_item(0)?.is_none())
}

/// Called in each forked child.
#[pyfunction]
pub(crate) fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
