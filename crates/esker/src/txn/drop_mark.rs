//! Marks a keyspace that was dropped, or was not created yet.
//!
//! ```text
//!   leader: adds a drop to the log and the memtable, then sets the mark; refuses commits after it
//!   reader: finds the mark set, and asks whether the newest state has the keyspace (catalog.4)
//! ```
//!
//! drop_mark.1. The leader sets the mark when it adds the drop, so that it refuses every later commit
//!     (catalog.3). The mark is set before the drop is visible, so a reader of a state without the keyspace
//!     finds it set.
//! drop_mark.2. A refused drop sets no mark, and other commits proceed while it is tried. If a drop was added
//!     but could not be stored, its mark is cleared: the log has stopped, and later commits fail for that
//!     reason.

use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, Ordering};

/// The drop mark of a keyspace, shared with all commits to it.
///
/// Leaders synchronize through the locks of the queue, and a reader of a state without the keyspace through
/// its publication. Relaxed would suffice; Release and Acquire make that obvious.
#[derive(Clone, Debug, Default)]
pub struct DropMark(Arc<AtomicBool>);

impl DropMark {
    /// Creates a set mark, for a keyspace that was not created yet.
    pub fn new_set() -> Self {
        let mark = Self::default();
        mark.set();
        mark
    }

    /// Returns whether the keyspace was dropped or not created yet.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Marks the keyspace as dropped by the current commit. Returns whether it existed.
    pub fn set(&self) -> bool {
        !self.0.swap(true, Ordering::Release)
    }

    /// Marks the keyspace as created.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }
}
