//! The owner of locks: a transaction, or a guard that the user holds.

use std::sync::Arc;
use std::time::Duration;

use super::handle::Handle;
use crate::engine::writes::locks::{LockMode, LockName, OwnerId};
use crate::types::Result;

/// Locks of one owner. They are released when it drops.
pub(crate) struct Owner {
    handle: Arc<Handle>,
    id: OwnerId,
    held: Vec<LockName>,
}

impl Owner {
    /// An owner without locks.
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        let id = handle.core.locks.new_owner();
        Owner { handle, id, held: Vec::new() }
    }

    /// Takes a lock, or changes the mode of a lock that the owner holds. Waits at most `patience`.
    pub(crate) fn acquire(&mut self, name: LockName, mode: LockMode, patience: Duration) -> Result<()> {
        let core = &self.handle.core;
        core.check_open()?;
        if core.locks.acquire(self.id, &name, mode, patience, &core.exclusive_turn)? {
            self.held.push(name);
        }
        Ok(())
    }

    /// Records that this thread commits on behalf of the owner.
    pub(crate) fn note_thread(&self) {
        self.handle.core.locks.note_thread(self.id);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.handle.core.locks.give_back(self.id, &self.held);
    }
}
