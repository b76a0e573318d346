//! The operating system's files.
//!
//! ```text
//!   RealFs / RealFile --portable part (std)--> here, file.rs, lock.rs
//!                     `-direct I/O, allocation, cache hints, directory sync--> unix.rs | windows.rs
//! ```
//!
//! - A lock is the operating system's (flock, LockFileEx). It ends with its handle or its process. The
//!   process id in the file only serves error messages, and shared holders do not write it.
//! - Only regular files are opened. Others are refused without opening them, because opening a named pipe
//!   would block.
//!
//! real.4. After locking, the file must still have its name. Otherwise the previous holder removed it after
//!     we opened it, and a new holder locks a new file.
//! - A direct write cut short inside a block is repeated from the start of that block, because an unaligned
//!   continuation would fail and hide the true error. If it is cut there again, the disk is full.
//!
//! real.7. In a held directory (fs.5), no file is opened or created through a symbolic link. Otherwise a user
//!     who may only create names there could redirect writes elsewhere. Renames and removals apply to the
//!     link itself.
//!
//! A direct file is opened buffered and then switched, so that a file system without direct I/O leaves no
//! half-done `create_new`. If direct I/O is refused later, the file continues buffered, with its writer still
//! using whole blocks. A lock in a held directory also locks the directory, so that a replaced directory
//! admits no second holder; where directories cannot be locked, the file alone counts. A lock file is written
//! only if it is empty or contains a process id, and has one name.

#[cfg(unix)]
#[path = "real/unix.rs"]
mod sys;
#[cfg(windows)]
#[path = "real/windows.rs"]
mod sys;

mod file;
mod lock;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(all(test, unix))]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::file::RealFile;
use self::lock::{lock_to_read_with, lock_with};
use crate::{Entry, File, FileLock, Fs, FsRef, LockError, OpenOptions};

/// The operating system's file system.
#[derive(Debug, Clone, Default)]
pub struct RealFs {
    held: Option<Arc<sys::Held>>,
}

/// A path, and the held directory in which it may lie (real.7).
#[derive(Clone, Copy)]
struct At<'a> {
    held: Option<&'a sys::Held>,
    path: &'a Path,
}

/// Metadata of a path.
struct Meta {
    is_dir: bool,
    is_file: bool,
    is_link: bool,
    len: u64,
    /// Its number of names; 1 if the system does not report it.
    names: u64,
    /// Device and inode number, if the system reports them.
    identity: Option<(u64, u64)>,
    /// Permission bits, if the platform has them.
    mode: Option<u32>,
}

impl RealFs {
    /// The file system of this process.
    pub fn new() -> Self {
        Self::default()
    }

    fn at<'a>(&'a self, path: &'a Path) -> At<'a> {
        At { held: self.held.as_deref(), path }
    }

    fn create_dirs(&self, path: &Path, mode: Option<u32>) -> io::Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        self.create_dirs(parent, None)?;
        match sys::create_dir(path, mode) {
            // Another process or thread may have created it first.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            other => other?,
        }
        self.sync_dir_if_readable(parent)
    }
}

impl Fs for RealFs {
    fn hold(&self, dir: &Path, mode: Option<u32>) -> io::Result<Option<FsRef>> {
        let held = Some(Arc::new(sys::Held::open(self.at(dir), mode)?));
        Ok(Some(Arc::new(RealFs { held })))
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        open_with(self.at(path), options, sys::make_direct)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.create_dirs(path, None)
    }

    fn create_dir_all_as(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.create_dirs(path, Some(mode))
    }

    fn create_dir(&self, path: &Path, mode: Option<u32>) -> io::Result<()> {
        sys::create_one_dir(self.at(path), mode)?;
        self.sync_dir_if_readable(path.parent().unwrap_or(Path::new("")))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        sys::list_dir(self.at(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        sys::rename(self.at(from), self.at(to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        rename_new(self.at(from), self.at(to), |from, to| match sys::hard_link(from, to) {
            Ok(()) => sys::remove_file(from),
            // The file system has no links.
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => sys::rename(from, to),
            refused => refused,
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        sys::remove_file(self.at(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        sys::hard_link(self.at(from), self.at(to))
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        if !sys::stat(self.at(from))?.is_dir {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        rename_new(self.at(from), self.at(to), sys::rename)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        sys::remove_dir(self.at(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        sys::sync_dir(self.at(path))
    }

    /// The parent of a mount point belongs to another file system, which may not support this sync, like
    /// squashfs. The mounted file system does not depend on it.
    fn sync_dir_if_readable(&self, path: &Path) -> io::Result<()> {
        match self.sync_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::InvalidInput && is_above_mount(self.at(path)) => Ok(()),
            synced => synced,
        }
    }

    fn can_sync_dir(&self, path: &Path) -> io::Result<()> {
        sys::can_sync_dir(self.at(path))
    }

    /// The system resolves links, `.` and `..`. The parent of the root is the root.
    fn dir_above(&self, path: &Path) -> Option<PathBuf> {
        Some(path.join(".."))
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        resolve(or_here(path))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(look(self.at(path))?.is_some())
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        Ok(look_at_name(self.at(path))?.map(|meta| match () {
            () if meta.is_link => Entry::Link,
            () if meta.is_dir => Entry::Dir,
            () if meta.is_file => Entry::File { len: meta.len, names: meta.names },
            () => Entry::Special,
        }))
    }

    fn file_size(&self, path: &Path) -> io::Result<u64> {
        Ok(sys::stat(self.at(path))?.len)
    }

    fn mode(&self, path: &Path) -> io::Result<Option<u32>> {
        Ok(sys::stat(self.at(path))?.mode)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        sys::free_bytes(self.at(path))
    }

    #[cfg(target_os = "linux")]
    fn page_cache_room(&self) -> Option<u64> {
        memory::page_cache_room()
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        lock_with(self.at(path), |_| ())
    }

    fn lock_to_read(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, LockError> {
        lock_to_read_with(self.at(path), || ())
    }
}

fn or_here(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

/// Returns what the path refers to, if anything.
fn look(at: At<'_>) -> io::Result<Option<Meta>> {
    found(sys::stat(at))
}

/// Returns what has the name, without following a link.
fn look_at_name(at: At<'_>) -> io::Result<Option<Meta>> {
    found(sys::stat_name(at))
}

fn found(meta: io::Result<Meta>) -> io::Result<Option<Meta>> {
    match meta {
        Ok(meta) => Ok(Some(meta)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Renames to a free name by one call, or by `otherwise` if the system has no such call.
fn rename_new<'a>(
    from: At<'a>,
    to: At<'a>,
    otherwise: impl FnOnce(At<'a>, At<'a>) -> io::Result<()>,
) -> io::Result<()> {
    match sys::rename_new(from, to) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => {}
        renamed => return renamed,
    }
    match look_at_name(to)? {
        Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
        None => otherwise(from, to),
    }
}

/// Returns whether the path is `dir/..` and `dir` is on another file system.
fn is_above_mount(at: At<'_>) -> bool {
    let device = |path| Some(sys::stat(At { path, ..at }).ok()?.identity?.0);
    let below = at.path.ends_with("..").then(|| at.path.parent()).flatten();
    below.is_some_and(|below| device(below) != device(at.path))
}

/// Makes the path absolute and resolves links in its existing part.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match sys::canonical(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let path = std::path::absolute(path)?;
            match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => Ok(resolve(parent)?.join(name)),
                _ => Ok(path),
            }
        }
        resolved => resolved,
    }
}

/// Opens a file. `make_direct` switches it to unbuffered I/O if possible.
fn open_with(
    at: At<'_>,
    options: OpenOptions,
    make_direct: impl FnOnce(&fs::File) -> io::Result<bool>,
) -> io::Result<Arc<dyn File>> {
    let file = open_file(at, options)?;
    let switched = if options.direct { make_direct(&file) } else { Ok(false) };
    let direct = switched.inspect_err(|_| {
        if options.create_new {
            // The first error matters.
            let _ = sys::remove_file(at);
        }
    })?;
    Ok(Arc::new(RealFile { file, direct }))
}

fn open_file(at: At<'_>, options: OpenOptions) -> io::Result<fs::File> {
    let create = options.create || options.create_new;
    // A newly created file is a regular file.
    let is_there = !options.create_new && refuse_special(at)?;
    let options = OpenOptions { write: options.write || create || options.truncate, create, ..options };
    let file = sys::open(at, options)?;
    if create && !is_there {
        sys::give_mode(at, &file)?;
    }
    Ok(file)
}

/// Refuses special files and links in held directories (real.7). Returns whether the file exists.
/// Other errors are left to the opening.
fn refuse_special(at: At<'_>) -> io::Result<bool> {
    match sys::stat(at) {
        Ok(meta) if meta.is_dir => Err(io::ErrorKind::IsADirectory.into()),
        Ok(meta) if meta.is_link => Err(link_refused()),
        Ok(meta) if !meta.is_file => {
            let text = "it is a pipe, a socket or a device, not a file";
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        found => Ok(found.is_ok()),
    }
}

/// The error for real.7.
fn link_refused() -> io::Error {
    let text = "it is a symbolic link, but the files of a database must not be links: put the file itself there, or remove the \
                link; the path of the whole directory may contain links";
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
