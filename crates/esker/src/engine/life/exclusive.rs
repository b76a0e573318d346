//! The turn of an exclusive transaction, as its owner holds it.

use std::sync::Arc;

use super::handle::Handle;
use crate::types::Result;

/// An exclusive turn. It ends when this drops.
pub(crate) struct Turn {
    handle: Arc<Handle>,
    /// Identifies the holder.
    number: u64,
}

impl Turn {
    /// Waits for the turn, up to the patience of the options.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if this thread has it;
    /// [`Error::LockTimeout`](crate::Error::LockTimeout); [`Error::Closed`](crate::Error::Closed).
    pub(crate) fn take(handle: Arc<Handle>) -> Result<Self> {
        let core = &handle.core;
        let number = core.exclusive_turn.take_turn(&core.locks, core.options.lock_patience())?;
        Ok(Turn { handle, number })
    }

    /// Records that this thread continues the transaction.
    pub(crate) fn note_thread(&self) {
        self.handle.core.exclusive_turn.note_thread(self.number);
    }

    /// Records that the transaction belongs to no thread.
    pub(crate) fn leave_thread(&self) {
        self.handle.core.exclusive_turn.leave_thread(self.number);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.handle.core.exclusive_turn.give_back();
    }
}
