//! The lock of an open database's directory, and what may still be removed there.
//!
//! ```text
//!   Core --owns--> DirLock <--asks-- a replaced table whose last user goes: is the directory still ours?
//! ```
//!
//! dir_lock.1. Once the lock has been given back no table is removed any more; giving it back waits for the removal that goes on. A table that an
//!      iterator outlives the database with stays behind, for the next opening to remove.

use std::sync::Arc;

use esker_env::{FileLock, FsRef};
use parking_lot::RwLock;

use crate::sstable::Remover;

/// See the module's text.
pub(crate) struct DirLock(RwLock<Option<Arc<dyn FileLock>>>);

impl DirLock {
    pub(crate) fn new(lock: Arc<dyn FileLock>) -> Arc<Self> {
        Arc::new(DirLock(RwLock::new(Some(lock))))
    }

    /// Gives the lock back (dir_lock.1).
    pub(crate) fn give_back(&self) {
        *self.0.write() = None;
    }

    /// Removes files for as long as the directory is locked (dir_lock.1).
    pub(crate) fn remover(self: &Arc<Self>, fs: FsRef) -> Remover {
        let lock = self.clone();
        Arc::new(move |path| {
            let lock = lock.0.read();
            if lock.is_some() {
                // A file that stays behind is an orphan: the next open of the database removes it.
                let _ = fs.remove_file(path);
            }
        })
    }
}
