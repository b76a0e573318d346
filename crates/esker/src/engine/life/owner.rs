//! The owner of locks: a transaction, or a guard that the user holds.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::handle::Handle;
use crate::engine::writes::locks::{Asked, LockMode, LockName, OwnerId};
use crate::types::Result;

/// The locks of one owner: a transaction, or a task that must not block its thread
/// ([`Db::lock_owner`](crate::Db::lock_owner)). A task asks for a lock, and is woken to ask again, in the
/// order of asking. If owners wait for each other in a cycle, one of them fails. Dropping the owner releases
/// its locks.
///
/// The name of a lock belongs to a namespace, whose meaning is up to the program.
/// [`Db::lock`](crate::Db::lock) uses the empty one.
pub struct LockOwner {
    handle: Arc<Handle>,
    id: OwnerId,
    held: Vec<LockName>,
}

impl LockOwner {
    /// An owner without locks.
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        let id = handle.core.locks.new_owner();
        LockOwner { handle, id, held: Vec::new() }
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

    /// Takes a lock, or changes the mode of a lock that the owner holds. If that is not possible at once,
    /// returns false, and the owner waits in the lock's queue: `waker` is called once it is worth asking
    /// again. Without a waker, the owner does not start to wait. The waker must neither block nor use the
    /// database. An owner waits for one lock at a time.
    ///
    /// # Errors
    /// [`Error::Deadlock`](crate::Error::Deadlock): the owner no longer waits.
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn try_lock(
        &mut self,
        space: &str,
        name: &[u8],
        mode: LockMode,
        waker: Option<&Waker>,
    ) -> Result<bool> {
        let (core, name) = (&self.handle.core, LockName::Name(space.to_owned(), name.to_owned()));
        core.check_open()?;
        let asked = core.locks.ask(self.id, &name, mode, waker, &core.exclusive_turn)?;
        if asked == Asked::Granted {
            self.held.push(name);
        }
        Ok(asked != Asked::Waits)
    }

    /// Ends the owner's wait, if it waits.
    pub fn stop_waiting(&mut self) {
        self.handle.core.locks.stop_asking(self.id);
    }

    /// Releases a lock, if the owner holds it.
    pub fn unlock(&mut self, space: &str, name: &[u8]) {
        let name = LockName::Name(space.to_owned(), name.to_owned());
        if let Some(place) = self.held.iter().position(|held| *held == name) {
            self.held.swap_remove(place);
            self.handle.core.locks.give_back(self.id, &[name]);
        }
    }

    /// Records that this thread commits on behalf of the owner.
    pub(crate) fn note_thread(&self) {
        self.handle.core.locks.note_thread(self.id);
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        self.handle.core.locks.leave(self.id, &self.held);
    }
}
