//! The lock of an open database's directory, and what may still be removed there.
//!
//! ```text
//!   Core --owns--> DirLock <--asks-- a replaced table whose last user goes: is the directory still ours?
//! ```
//!
//! dir_lock.1. Once the lock has been given back no table is removed any more; giving it back waits for the removal that goes on. A table that an
//!      iterator outlives the database with stays behind, for the next opening to remove.
//! dir_lock.2. The lock is of the process that took it. A fork's child has the same lock, and would give back its parent's: there it is kept, and
//!      nothing is removed.

use std::sync::Arc;

use esker_env::{Env, FileLock, FsRef, Threads};
use parking_lot::RwLock;

use crate::sstable::Remover;

/// See the module's text.
pub(crate) struct DirLock {
    lock: RwLock<Option<Arc<dyn FileLock>>>,
    threads: Arc<dyn Threads>,
    /// Who took it.
    process: u32,
}

impl DirLock {
    /// Of a lock that this process has taken.
    pub(crate) fn new(lock: Arc<dyn FileLock>, env: &Env) -> Arc<Self> {
        let (threads, process) = (env.threads.clone(), env.threads.process_id());
        Arc::new(DirLock { lock: RwLock::new(Some(lock)), threads, process })
    }

    /// Whether this is the process that took it, and not a child of a fork (dir_lock.2).
    pub(crate) fn is_ours(&self) -> bool {
        self.threads.process_id() == self.process
    }

    /// Gives the lock back (dir_lock.1).
    pub(crate) fn give_back(&self) {
        let lock = self.lock.write().take();
        self.end(lock);
    }

    /// dir_lock.2
    fn end(&self, lock: Option<Arc<dyn FileLock>>) {
        if !self.is_ours() {
            std::mem::forget(lock);
        }
    }

    /// Removes files for as long as the directory is locked (dir_lock.1).
    pub(crate) fn remover(self: &Arc<Self>, fs: FsRef) -> Remover {
        let lock = self.clone();
        Arc::new(move |path| {
            let held = lock.lock.read();
            if held.is_some() && lock.is_ours() {
                // A file that stays behind is an orphan: the next open of the database removes it.
                let _ = fs.remove_file(path);
            }
        })
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        let lock = self.lock.get_mut().take();
        self.end(lock);
    }
}
