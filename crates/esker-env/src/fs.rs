//! Files and directories as the engine sees them.
//!
//! ```text
//!   Fs::open(path, OpenOptions) -> Arc<dyn File>;  File::{read_at, write_all_at, sync_data, ...}
//! ```
//!
//! fs.1. `File` has no position: reads and writes name their offset, so a file can be shared between threads.
//! fs.2. Bytes survive a crash after `sync_data` returned; a directory entry survives after `sync_dir` returned.
//! fs.3. A directory made by `create_dir_all` survives a crash without further calls: its parent is synced by it (fs.4).
//! fs.4. A directory that may be passed through and written to, but not read (mode 0711, 0733), cannot be synced. What was made
//!     in it is there all the same: who is not the owner of its directory takes that for done (`sync_dir_if_readable`).
//! fs.5. A directory that is held stays the same when it is moved, and when something else stands at its path: names are looked up, made
//!     and changed in it and nowhere else.

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
    /// Writing is allowed.
    pub write: bool,
    /// Create the file if it is missing (implies `write`).
    pub create: bool,
    /// Fail with `AlreadyExists` if the file is there (implies `create`).
    pub create_new: bool,
    /// Cut an existing file to length 0 (implies `write`).
    pub truncate: bool,
    /// Ask for unbuffered I/O (O_DIRECT). Where the file system refuses, the file is opened buffered and
    /// [`File::is_direct`] says so.
    pub direct: bool,
}

impl OpenOptions {
    /// Read an existing file.
    pub fn read() -> Self {
        Self::default()
    }
    /// Read and write an existing file.
    pub fn write() -> Self {
        OpenOptions { write: true, ..Self::default() }
    }
    /// Create a file that must not exist yet, for reading and writing.
    pub fn create_new() -> Self {
        OpenOptions { write: true, create: true, create_new: true, ..Self::default() }
    }
    /// Create a file, or cut the existing one to length 0, for reading and writing.
    pub fn create() -> Self {
        OpenOptions { write: true, create: true, truncate: true, ..Self::default() }
    }
    /// The same with unbuffered I/O asked for.
    pub fn direct(self) -> Self {
        OpenOptions { direct: true, ..self }
    }
}

/// What has a name in a directory. A symbolic link is an entry of its own, whatever it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File {
        /// Its length in bytes.
        len: u64,
        /// Number of names it has; 1 where the system does not tell.
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
    /// This file system with a directory that is opened once: paths that begin with `dir` mean names in that very directory (fs.5), and no
    /// file or directory below it is opened or made through a symbolic link. A held file system can hold a directory below its own. New files get the permission bits of `mode` that files have, without
    /// one those that the directory and the process's mask allow. `None` where paths are all there is: then this one serves.
    fn hold(&self, dir: &Path, mode: Option<u32>) -> io::Result<Option<FsRef>> {
        let _ = (dir, mode);
        Ok(None)
    }
    /// Creates a directory and its missing parents, durably (fs.3). Present already is success.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// The same; the directory itself, if it was missing, gets these permission bits, where there are such.
    fn create_dir_all_as(&self, path: &Path, mode: u32) -> io::Result<()> {
        let _ = mode;
        self.create_dir_all(path)
    }
    /// Creates a directory, durably (fs.3). Its parent is there; fails with `AlreadyExists` if anything has the name.
    fn create_dir(&self, path: &Path, mode: Option<u32>) -> io::Result<()> {
        if self.entry(path)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match mode {
            Some(mode) => self.create_dir_all_as(path, mode),
            None => self.create_dir_all(path),
        }
    }
    /// The names (not paths) in a directory, in no particular order; files and directories alike. A name that is
    /// not UTF-8 is not one of ours and comes with replacement characters.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Renames a file (not a directory), replacing `to` atomically if it exists. After a crash before the directory
    /// was synced, the file has its old or its new name, never both and never none.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames a file to a name that nothing has: fails with `AlreadyExists` otherwise, and replaces nothing. After a crash before
    /// the directory was synced, the file has its old name, its new name, or both.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.entry(to)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(from, to)
    }
    /// Removes a file's name.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must be free: writes and changes of the length are seen under both. Not supported is an error, and so is
    /// a name in another file system.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Renames a directory with all in it; nothing may have the new name. After a crash before the directories above were synced it has
    /// its old or its new name. What is in it is as durable as it was.
    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a directory that is empty.
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes the entries of a directory durable (created, renamed, removed names). A no-op where the platform
    /// has no such call.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Fails where [`sync_dir`](Self::sync_dir) would fail before it syncs anything: a process may have no descriptor left for the
    /// directory. Who asks before changing names there can still give up.
    fn can_sync_dir(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }
    /// Like [`sync_dir`](Self::sync_dir), for a directory of the user's: where it may not be read, it cannot be synced, and
    /// that is no error (fs.4).
    fn sync_dir_if_readable(&self, path: &Path) -> io::Result<()> {
        match self.sync_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        }
    }
    /// The directory that has the name of the directory at `path`, and is to be synced to make that name durable; `None` if nothing
    /// is above it. What the path says, which is right without links, and without `.` and `..`.
    fn dir_above(&self, path: &Path) -> Option<PathBuf> {
        path.parent().map(Path::to_owned)
    }
    /// The path that goes on to name what `path` names now when the process changes its working directory, or a link on the way is
    /// turned elsewhere.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }
    /// Whether a file or directory of this name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// What has this name, if anything does. Links are not followed.
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        if !self.exists(path)? {
            return Ok(None);
        }
        Ok(Some(self.file_size(path).map_or(Entry::Dir, |len| Entry::File { len, names: 1 })))
    }
    /// The length of a file in bytes.
    fn file_size(&self, path: &Path) -> io::Result<u64>;
    /// The permission bits of a file or directory, where there are such.
    fn mode(&self, path: &Path) -> io::Result<Option<u32>> {
        let _ = path;
        Ok(None)
    }
    /// Bytes that can still be written to the file system that holds `path`, `u64::MAX` if unknown.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
    /// Bytes of memory that the page cache has, or can have, for files of this process; `None` if unknown.
    fn page_cache_room(&self) -> Option<u64> {
        None
    }
    /// Takes the exclusive lock file at `path` (created if missing; the lock is the operating
    /// system's, not the file's presence) and writes this process's id into it. Held until the handle drops.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError>;
    /// Keeps others from taking the lock file at `path`, without changing anything; fails if somebody has it. `None` if
    /// there is no such file, or if the file system cannot do this.
    fn lock_to_read(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, LockError> {
        let _ = path;
        Ok(None)
    }
}

/// An open file. All methods take `&self`: callers coordinate overlapping writes.
pub trait File: Send + Sync + Debug + 'static {
    /// Reads at `offset`; returns the number of bytes read, 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf` at `offset`, growing the file as needed. On an error any part may have been written.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the file's bytes and length durable (fdatasync; F_FULLFSYNC on macOS).
    fn sync_data(&self) -> io::Result<()>;
    /// Writes all of `buf` at `offset` and makes it durable, with no more than that: of a direct file, and where the bytes were written before, by
    /// one call that need not empty the device's cache. On an error any part may have been written.
    fn write_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(buf, offset)?;
        self.sync_data()
    }
    /// `len` bytes of the file from `offset` on as memory, all of them inside of the file; none where there is no such thing.
    fn window(&self, _offset: u64, _len: usize) -> Option<FileWindow> {
        None
    }
    /// Starts writing dirty bytes of the range to the device without waiting. A hint: may do nothing.
    fn start_writeback(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Waits until what [`start_writeback`](Self::start_writeback) has started of the range is written. Nothing is durable by that; an error may not
    /// be reported again by a sync.
    fn wait_for_writeback(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves disk space for the range and extends the length to cover it (fallocate). Not supported is an
    /// `Unsupported` error.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Starts to read the range into the page cache, without waiting. A hint: may do nothing.
    fn will_need(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Drops clean cached pages of the range. A hint: may do nothing.
    fn drop_cache(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Whether I/O bypasses the page cache: then offsets, lengths and buffers must be multiples of
    /// [`AlignedBuf::ALIGN`](crate::AlignedBuf::ALIGN).
    fn is_direct(&self) -> bool;
    /// What a failed sync does on Linux: bytes that are not on the disk count as clean, so that readers see them and no later
    /// sync writes them. For injected faults: real files do nothing.
    fn forget_unsynced(&self) {}
    /// The operating system's file, if it is one of those: for calls that this trait does not have.
    #[expect(clippy::disallowed_types, reason = "this is the door that the rule is about")]
    fn as_std(&self) -> Option<&std::fs::File> {
        None
    }

    /// Fills `buf` from `offset`, or fails with `UnexpectedEof`.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // Only the file's end cuts a direct read inside a block, and the rest could not be read aligned.
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

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A held lock; dropping it releases the lock.
pub trait FileLock: Send + Sync + Debug {}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Somebody else holds it; the process id is what the holder wrote, if it could be read. Those who hold it to read write
    /// none.
    Held {
        /// The lock file.
        path: PathBuf,
        /// The holder's process id.
        pid: Option<u32>,
    },
    /// The lock file could not be opened or locked.
    Io(io::Error),
}
