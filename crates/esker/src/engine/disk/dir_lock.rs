//! The lock of an open database's directory.
//!
//! ```text
//!   Core --owns--> DirLock <--asks-- a replaced table that lost its last user: is the directory still ours?
//! ```
//!
//! dir_lock.1. No table is removed after the lock was released. The release waits for a removal in progress.
//!     A table whose iterator outlives the database stays behind; the next opening removes it.
//! - The lock belongs to the process that took it. The child of a fork inherits it and could release its
//!   parent's lock. There the lock is kept, and nothing is removed.

use std::sync::Arc;

use esker_env::{Env, FileLock, FsRef, Threads};
use parking_lot::RwLock;

use crate::sstable::Remover;

/// The directory lock. See the module's documentation.
pub(crate) struct DirLock {
    lock: RwLock<Option<Arc<dyn FileLock>>>,
    threads: Arc<dyn Threads>,
    /// The process that took it.
    process: u32,
}

impl DirLock {
    /// Wraps a lock that this process has taken.
    pub(crate) fn new(lock: Arc<dyn FileLock>, env: &Env) -> Arc<Self> {
        let (threads, process) = (env.threads.clone(), env.threads.process_id());
        Arc::new(DirLock { lock: RwLock::new(Some(lock)), threads, process })
    }

    /// Returns whether this process took the lock, and is not a fork's child.
    pub(crate) fn is_ours(&self) -> bool {
        self.threads.process_id() == self.process
    }

    /// Releases the lock (dir_lock.1).
    pub(crate) fn give_back(&self) {
        let lock = self.lock.write().take();
        self.end(lock);
    }

    /// Drops the lock, but only in the process that took it.
    fn end(&self, lock: Option<Arc<dyn FileLock>>) {
        if !self.is_ours() {
            std::mem::forget(lock);
        }
    }

    /// Returns a function that removes files while the directory is locked (dir_lock.1).
    pub(crate) fn remover(self: &Arc<Self>, fs: FsRef) -> Remover {
        let lock = self.clone();
        Arc::new(move |path| {
            let held = lock.lock.read();
            if held.is_some() && lock.is_ours() {
                // A file that stays behind is a leftover: the next opening removes it.
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
