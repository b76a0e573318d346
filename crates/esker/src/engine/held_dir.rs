//! The file system as an open database sees it: names change only in the directory that it has locked.
//!
//! ```text
//!   log, tables, manifest --create, rename, remove--> HeldDir --is the lock still that of this path?--> file system
//!                         --read, list, sync-----------------------------------------------------------------^
//! ```
//!
//! All names are paths. If the directory is moved, removed or replaced while the database is open, they lead to another one, perhaps
//! of a database that somebody has opened there since.
//!
//! HD1. No file is made, renamed or removed while the lock file at the path is not the one that is locked. What the database still has open
//!      is its own, wherever it stands now.
//! HD2. Nor once the lock has been given back, which waits for the call that goes on. A table that an iterator outlives the database with
//!      stays behind, for the next opening to remove.
//!
//! Between the look and the change somebody else may move the directory: calls relative to an open directory would close that gap, too.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{File, FileLock, Fs, FsRef, LockError, OpenOptions};
use parking_lot::RwLock;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct HeldDir {
    inner: FsRef,
    /// None once it has been given back.
    lock: RwLock<Option<Arc<dyn FileLock>>>,
}

impl HeldDir {
    /// For the database in the directory that is locked by `lock`.
    pub(crate) fn new(inner: FsRef, lock: Arc<dyn FileLock>) -> Arc<Self> {
        Arc::new(HeldDir { inner, lock: RwLock::new(Some(lock)) })
    }

    /// Gives the lock back (HD2).
    pub(crate) fn give_back(&self) {
        *self.lock.write() = None;
    }

    fn change<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let lock = self.lock.read();
        match &*lock {
            None => Err(io::Error::other("the database is closed")),
            Some(lock) if lock.is_in_place()? => work(),
            Some(_) => Err(io::Error::other(
                "since the database was opened its directory was moved, removed or replaced, or the file LOCK in it: nothing is \
                 changed there any more; close the database, and open it where it is now",
            )),
        }
    }
}

impl Fs for HeldDir {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        if options == OpenOptions::read() || options == OpenOptions::read().direct() {
            return self.inner.open(path, options);
        }
        self.change(|| self.inner.open(path, options))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|| self.inner.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(|| self.inner.remove_file(path))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change(|| self.inner.create_dir_all(path))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.list_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn can_sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.can_sync_dir(path)
    }

    fn sync_dir_if_readable(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir_if_readable(path)
    }

    fn dir_above(&self, path: &Path) -> Option<PathBuf> {
        self.inner.dir_above(path)
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn file_size(&self, path: &Path) -> io::Result<u64> {
        self.inner.file_size(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.inner.free_bytes(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        self.inner.lock(path)
    }

    fn lock_to_read(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, LockError> {
        self.inner.lock_to_read(path)
    }
}
