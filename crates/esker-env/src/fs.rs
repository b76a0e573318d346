//! The interface to files and directories.
//!
//! ```text
//!   Fs::open(path, OpenOptions) -> Arc<dyn File>;  File::{read_at, write_all_at, sync_data, ...}
//! ```
//!
//! A [`File`] has no position: reads and writes specify their offset, so threads can share a file.
//! Directories made by `create_dir_all` are durable when it returns.
//!
//! - Bytes survive a crash after `sync_data` returned. A directory entry survives after `sync_dir` returned.
//! - A directory with write and search but no read permission (mode 0711 or 0733) cannot be synced. Callers
//!   that do not own the directory ignore this failure (`sync_dir_if_readable`).
//!
//! fs.5. A held directory stays the same directory when it is moved or replaced: names are looked up and
//!     changed only in it.

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{AlignedBuf, FileWindow};

/// A shared file system.
pub type FsRef = Arc<dyn Fs>;

/// How to open a file. The default opens an existing file for reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Allow writing.
    pub write: bool,
    /// Create the file if it is missing (implies `write`).
    pub create: bool,
    /// Fail with `AlreadyExists` if the file exists (implies `create`).
    pub create_new: bool,
    /// Truncate an existing file to length 0 (implies `write`).
    pub truncate: bool,
    /// Request unbuffered I/O (O_DIRECT). If the file system refuses it, the file is opened buffered: see
    /// [`File::is_direct`].
    pub direct: bool,
}

impl OpenOptions {
    /// Opens an existing file for reading.
    pub fn read() -> Self {
        Self::default()
    }
    /// Opens an existing file for reading and writing.
    pub fn write() -> Self {
        OpenOptions { write: true, ..Self::default() }
    }
    /// Creates a file that must not exist, for reading and writing.
    pub fn create_new() -> Self {
        OpenOptions { write: true, create: true, create_new: true, ..Self::default() }
    }
    /// Creates a file or truncates an existing one, for reading and writing.
    pub fn create() -> Self {
        OpenOptions { write: true, create: true, truncate: true, ..Self::default() }
    }
    /// Additionally requests unbuffered I/O.
    pub fn direct(self) -> Self {
        OpenOptions { direct: true, ..self }
    }
}

/// The kind of a directory entry. Symbolic links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File {
        /// Its length in bytes.
        len: u64,
        /// Its number of names; 1 if the system does not report it.
        names: u64,
    },
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Special,
}

/// A file system: directories, names, locks.
pub trait Fs: Send + Sync + Debug + 'static {
    /// Opens a regular file. Directories, pipes and the like are refused.
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;
    /// Returns this file system with `dir` held open: paths that begin with `dir` refer to names in that
    /// directory (fs.5). Below it, no file or directory is opened or created through a symbolic link. A held
    /// file system can hold a subdirectory. New files get the permission bits in `mode`, or without it those
    /// of the directory, restricted by the process's umask. Returns `None` if the platform only has paths;
    /// the caller then uses this file system.
    fn hold(&self, dir: &Path, mode: Option<u32>) -> io::Result<Option<FsRef>> {
        let _ = (dir, mode);
        Ok(None)
    }
    /// Creates a directory and its missing parents durably. An existing directory is not an error.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Does the same. If it creates the directory itself, the directory gets these permission bits.
    fn create_dir_all_as(&self, path: &Path, mode: u32) -> io::Result<()> {
        let _ = mode;
        self.create_dir_all(path)
    }
    /// Creates a directory durably in an existing parent. Fails with `AlreadyExists` if the name exists.
    fn create_dir(&self, path: &Path, mode: Option<u32>) -> io::Result<()> {
        if self.entry(path)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match mode {
            Some(mode) => self.create_dir_all_as(path, mode),
            None => self.create_dir_all(path),
        }
    }
    /// Returns the names in a directory, of files and directories, in no particular order. In a name that is
    /// not UTF-8, invalid bytes are replaced.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Renames a file (not a directory), atomically replacing `to` if it exists. After a crash before the
    /// directory was synced, the file has exactly one of the two names.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames a file to a name that must not exist (`AlreadyExists`). After a crash before the directory was
    /// synced, the file has its old name, its new name, or both.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.entry(to)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(from, to)
    }
    /// Removes a file's name.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must not exist. Fails if the file system has no links, and for a
    /// name in another file system.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Renames a directory to a name that must not exist. After a crash before the parent directories were
    /// synced, it has its old or new name. The durability of its contents does not change.
    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes created, renamed and removed entries of a directory durable. Does nothing on platforms without
    /// such a call.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Fails where [`sync_dir`](Self::sync_dir) would fail for lack of descriptors or permissions. Callers
    /// check this before they change names.
    fn can_sync_dir(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }
    /// Like [`sync_dir`](Self::sync_dir), but ignores a directory that may not be read.
    fn sync_dir_if_readable(&self, path: &Path) -> io::Result<()> {
        match self.sync_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        }
    }
    /// Returns the parent of the directory at `path`, to be synced to make its name durable. `None` at the
    /// root. This implementation is right for paths without links, `.` and `..`.
    fn dir_above(&self, path: &Path) -> Option<PathBuf> {
        path.parent().map(Path::to_owned)
    }
    /// Returns a path that remains valid when the process changes its working directory or a link in `path`
    /// changes.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }
    /// Returns whether a file or directory of this name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Returns what has this name, if anything. Does not follow links.
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        if !self.exists(path)? {
            return Ok(None);
        }
        Ok(Some(self.file_size(path).map_or(Entry::Dir, |len| Entry::File { len, names: 1 })))
    }
    /// Returns the length of a file in bytes.
    fn file_size(&self, path: &Path) -> io::Result<u64>;
    /// Returns the permission bits of a file or directory, if the platform has them.
    fn mode(&self, path: &Path) -> io::Result<Option<u32>> {
        let _ = path;
        Ok(None)
    }
    /// Returns the free bytes of the file system that contains `path`, or `u64::MAX` if unknown.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
    /// Returns the bytes of memory available to the page cache for files of this process, if known.
    fn page_cache_room(&self) -> Option<u64> {
        None
    }
    /// Takes the exclusive lock on the file at `path`, creating it if missing, and writes this process's id
    /// into it. The lock is held until the handle drops. The existence of the file alone means nothing.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError>;
    /// Takes the lock at `path` in shared mode without changing the file. Fails if another process holds it
    /// exclusively. Returns `None` if the file does not exist or the file system has no locks.
    fn lock_to_read(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, LockError> {
        let _ = path;
        Ok(None)
    }
}

/// An open file. All methods take `&self`; callers coordinate overlapping writes.
pub trait File: Send + Sync + Debug + 'static {
    /// Reads at `offset`. Returns the number of bytes read, 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf` at `offset`, growing the file as needed. After an error, any part may have been
    /// written.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the file's bytes and length durable (fdatasync; F_FULLFSYNC on macOS).
    fn sync_data(&self) -> io::Result<()>;
    /// Maps `len` bytes of the file from `offset` into memory. Returns `None` if this is not supported.
    fn window(&self, _offset: u64, _len: usize) -> Option<FileWindow> {
        None
    }
    /// Starts writing dirty bytes of the range to the device without waiting. A hint that may do nothing.
    fn start_writeback(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Waits until the writeback started by [`start_writeback`](Self::start_writeback) for the range is
    /// finished. This makes nothing durable, and a later sync may not report its error again.
    fn wait_for_writeback(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Truncates the file or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves disk space for the range and extends the length to cover it (fallocate). Fails with
    /// `Unsupported` where the platform cannot.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Starts reading the range into the page cache without waiting. A hint that may do nothing.
    fn will_need(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Drops clean cached pages of the range. A hint that may do nothing.
    fn drop_cache(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Returns whether I/O bypasses the page cache. Offsets, lengths and buffers must then be multiples of
    /// [`AlignedBuf::ALIGN`](crate::AlignedBuf::ALIGN).
    fn is_direct(&self) -> bool;
    /// Simulates a failed sync on Linux: unsynced bytes count as clean, so readers see them but no later sync
    /// writes them. For fault injection; real files do nothing.
    fn forget_unsynced(&self) {}
    /// Returns the permission bits if the file belongs to the user of this process and others have access.
    fn exposed_mode(&self) -> io::Result<Option<u32>> {
        Ok(None)
    }
    /// Returns the operating system's file, if there is one, for calls that this trait lacks.
    #[expect(clippy::disallowed_types, reason = "this is the door that the rule is about")]
    fn as_std(&self) -> Option<&std::fs::File> {
        None
    }

    /// Fills `buf` from `offset`, or fails with `UnexpectedEof`.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // A direct read ends inside a block only at the end of the file.
                Ok(n) if n < buf.len() && self.is_direct() && n % AlignedBuf::ALIGN != 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Returns whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A held lock; dropping it releases the lock.
pub trait FileLock: Send + Sync + Debug {}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another holder has it. `pid` is the id that the holder wrote, if it could be read. Shared holders
    /// write none.
    Held {
        /// The lock file.
        path: PathBuf,
        /// The holder's process id.
        pid: Option<u32>,
    },
    /// The lock file could not be opened or locked.
    Io(io::Error),
}
