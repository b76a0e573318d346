//! A file system that promises and does not keep: its syncs say yes and do nothing. The crash tests must notice.

use std::io;
use std::path::Path;
use std::sync::Arc;

use esker_env::{File, FileLock, Fs, FsRef, LockError, Mapping, OpenOptions};

/// What is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Bytes of files are not made durable.
    SyncData,
    /// Directory entries are not made durable.
    SyncDir,
}

/// The liar.
#[derive(Debug)]
pub struct LyingFs {
    pub inner: FsRef,
    pub lie: Lie,
}

impl Fs for LyingFs {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, options)?;
        Ok(Arc::new(LyingFile { inner, lie: self.lie }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.list_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.lie == Lie::SyncDir { Ok(()) } else { self.inner.sync_dir(path) }
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
}

#[derive(Debug)]
struct LyingFile {
    inner: Arc<dyn File>,
    lie: Lie,
}

impl File for LyingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        if self.lie == Lie::SyncData { Ok(()) } else { self.inner.sync_data() }
    }
    fn start_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.start_writeback(offset, len)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.allocate(offset, len)
    }
    fn drop_cache(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.drop_cache(offset, len)
    }
    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
    fn map(&self) -> io::Result<Mapping> {
        self.inner.map()
    }
}
