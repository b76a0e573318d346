//! The mark of a keyspace that is being dropped.
//!
//! ```text
//!   drop:    set the mark -- submit the drop -- failed: take the mark back
//!   commit:                  submit -- the leader looks at the mark: refused, or written before the drop
//! ```
//!
//! drop_mark.1. The mark is set before the drop is submitted, so that a leader that meets a commit behind the drop finds it set (catalog.3).
//! drop_mark.2. It is taken back only if the drop has failed or panicked, after that.

use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::fault::{self, Fault};

/// Shared by a keyspace and all commits to it.
///
/// Ordering: a commit behind the drop sees the mark by the locks of the queue, through which the drop went before it, and a reader of a
/// state without the keyspace by the publishing of that state. Relaxed would do; Release and Acquire spare those who look this argument.
#[derive(Clone, Debug, Default)]
pub struct DropMark(Arc<AtomicBool>);

impl DropMark {
    /// Whether the keyspace is being dropped, or has been.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// One that is set: of a keyspace that has not been created yet.
    pub fn new_set() -> Self {
        let mark = Self::default();
        mark.put(true);
        mark
    }

    /// The keyspace is there now.
    pub fn clear(&self) {
        self.put(false);
    }

    /// Submits the drop of all of these, with the marks set (drop_mark.1); takes them back if it fails or panics (drop_mark.2).
    pub fn set_for<T, E>(marks: &[DropMark], drop: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let put_all = || marks.iter().for_each(|mark| mark.put(true));
        let is_set_late = fault::is_on(Fault::DropMarkedLate);
        if !is_set_late {
            put_all();
        }
        let unless_dropped = TakenBack(marks);
        let done = drop()?;
        std::mem::forget(unless_dropped);
        if is_set_late {
            put_all();
        }
        Ok(done)
    }

    fn put(&self, is_set: bool) {
        self.0.store(is_set, Ordering::Release);
    }
}

/// Takes the marks back when it goes, after an error as after a panic.
struct TakenBack<'a>(&'a [DropMark]);

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|mark| mark.put(false));
    }
}
