//! The mark of a keyspace that has been dropped, or has not been created yet.
//!
//! ```text
//!   leader: enters a drop in the log and the memtable, sets the mark; meets a commit behind it: refused
//!   reader: finds the mark set: asks whether the newest state has the keyspace (catalog.4)
//! ```
//!
//! drop_mark.1. The leader sets the mark as it enters the drop, so that it refuses every commit behind it (catalog.3), and before the drop is
//!      visible, so that a reader of a state without the keyspace finds it set.
//! drop_mark.2. A drop that is refused sets no mark: others go on writing while it is tried. Of one that was entered and could not be stored the mark is
//!     taken back: the log has stopped, and that is what those behind it are told.

use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, Ordering};

/// Shared by a keyspace and all commits to it.
///
/// Ordering: leaders see it by the locks of the queue, and a reader of a state without the keyspace by the publishing of that state. Relaxed
/// would do; Release and Acquire spare those who look this argument.
#[derive(Clone, Debug, Default)]
pub struct DropMark(Arc<AtomicBool>);

impl DropMark {
    /// One that is set: of a keyspace that has not been created yet.
    pub fn new_set() -> Self {
        let mark = Self::default();
        mark.set();
        mark
    }

    /// Whether the keyspace has been dropped, or has not been created yet.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The keyspace goes with the commit that is being entered; whether it was there.
    pub fn set(&self) -> bool {
        !self.0.swap(true, Ordering::Release)
    }

    /// The keyspace has been created.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }
}
