//! The operating system's files.
//!
//! ```text
//!   RealFs / RealFile --portable part (std)--> here
//!                     `-direct I/O, allocation, cache hints, directory sync--> unix.rs | windows.rs
//! ```
//!
//! real.2. A lock is the operating system's (flock, LockFileEx). It ends with its handle or its process. The
//!     process id in the file only serves error messages, and shared holders do not write it.
//! real.3. Only regular files are opened. Others are refused without opening them, because opening a named
//!     pipe would block.
//! real.4. After locking, the file must still have its name. Otherwise the previous holder removed it after
//!     we opened it, and a new holder locks a new file.
//! real.6. A direct write cut short inside a block is repeated from the start of that block, because an
//!     unaligned continuation would fail and hide the true error. If it is cut there again, the disk is full.
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

#[cfg(target_os = "linux")]
mod memory;
#[cfg(all(test, unix))]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{AlignedBuf, Entry, File, FileLock, FileWindow, Fs, FsRef, LockError, OpenOptions};

/// Number of attempts to lock a file that is replaced each time (real.4).
const LOCK_ROUNDS: u32 = 100;
/// Longer than any process id.
const LOCK_BYTES_MAX: usize = 32;

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

/// Returns whether the path still refers to this file. Assumed where files have no identity, so real.4 does
/// not hold there.
fn has_name(file: &fs::File, at: At<'_>) -> io::Result<bool> {
    let identity = sys::identity(file)?;
    Ok(look(at)?.is_some_and(|named| named.identity == identity))
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

/// A point in [`lock_with`] at which tests act as another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The file is open, and not yet locked.
    Opened,
    /// Another holder has it locked.
    Refused,
}

/// Locks the file at the path, creating it if missing.
fn lock_with(at: At<'_>, mut when: impl FnMut(Moment)) -> Result<Box<dyn FileLock>, LockError> {
    for _ in 0..LOCK_ROUNDS {
        // Not truncated when opened: until we have the lock, the content belongs to the holder.
        let options = OpenOptions { create: true, ..OpenOptions::write() };
        let file = open_file(at, options).map_err(LockError::Io)?;
        when(Moment::Opened);
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                when(Moment::Refused);
                if file.try_lock_shared().is_err() {
                    return Err(LockError::Held { path: at.path.to_owned(), pid: read_pid(&file) });
                }
                // real.2: the holders are shared and the id is that of an earlier holder, or the lock was
                // just released.
                file.unlock().map_err(LockError::Io)?;
                if file.try_lock().is_err() {
                    return Err(LockError::Held { path: at.path.to_owned(), pid: None });
                }
            }
            Err(fs::TryLockError::Error(e)) => return Err(LockError::Io(e)),
        }
        if !has_name(&file, at).map_err(LockError::Io)? {
            // real.4: another holder removed the file.
            continue;
        }
        refuse_other_content(&file)?;
        let dir = lock_held_dir(at, fs::File::try_lock)?;
        // Padded to a fixed length, so that the file rarely needs truncation, which is the slowest step here.
        let pid = format!("{:<10}\n", std::process::id());
        let is_longer = file.metadata().is_ok_and(|meta| meta.len() > pid.len() as u64);
        // real.2: a full disk is no reason to refuse the lock; at worst an error message lacks the id.
        let cut = || if is_longer { file.set_len(0) } else { Ok(()) };
        if look(at).is_ok_and(|meta| meta.is_none_or(|meta| meta.names == 1)) {
            let _ = cut().and_then(|()| sys::write_at(&file, pid.as_bytes(), 0));
        }
        return Ok(Box::new(RealLock { file, dir }));
    }
    Err(never_the_same())
}

/// Refuses a file with foreign content, which is not a lock file.
fn refuse_other_content(file: &fs::File) -> Result<(), LockError> {
    let mut bytes = [0; LOCK_BYTES_MAX + 1];
    let len = sys::read_at(file, &mut bytes, 0).map_err(LockError::Io)?;
    let is_ours = |byte: &u8| byte.is_ascii_digit() || [0, b' ', b'\n'].contains(byte);
    if len <= LOCK_BYTES_MAX && bytes[..len].iter().all(is_ours) {
        return Ok(());
    }
    let text = "it is not a lock file of Esker: another file has this name";
    Err(LockError::Io(io::Error::new(io::ErrorKind::InvalidInput, text)))
}

/// Locks an existing file at the path in shared mode. `opened` is called between opening and locking.
fn lock_to_read_with(at: At<'_>, mut opened: impl FnMut()) -> Result<Option<Box<dyn FileLock>>, LockError> {
    for _ in 0..LOCK_ROUNDS {
        let file = match open_file(at, OpenOptions::read()) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let dir = lock_held_dir(at, fs::File::try_lock_shared)?;
                return Ok(dir.map(|file| Box::new(RealLock { file, dir: None }) as Box<dyn FileLock>));
            }
            Err(e) => return Err(LockError::Io(e)),
        };
        opened();
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(LockError::Held { path: at.path.to_owned(), pid: read_pid(&file) });
            }
            // Without locks in this file system, there is no other holder either.
            Err(fs::TryLockError::Error(_)) => return Ok(None),
        }
        if has_name(&file, at).map_err(LockError::Io)? {
            let dir = lock_held_dir(at, fs::File::try_lock_shared)?;
            return Ok(Some(Box::new(RealLock { file, dir })));
        }
        // real.4: the file was removed meanwhile.
    }
    Err(never_the_same())
}

/// Also locks the held directory, if directories can be locked.
fn lock_held_dir(
    at: At<'_>,
    lock: impl FnOnce(&fs::File) -> Result<(), fs::TryLockError>,
) -> Result<Option<fs::File>, LockError> {
    let Some(dir) = sys::open_held_dir(at).map_err(LockError::Io)? else { return Ok(None) };
    match lock(&dir) {
        Ok(()) => Ok(Some(dir)),
        Err(fs::TryLockError::WouldBlock) => Err(LockError::Held { path: at.path.to_owned(), pid: None }),
        Err(fs::TryLockError::Error(_)) => Ok(None),
    }
}

/// The error after all attempts of real.4.
fn never_the_same() -> LockError {
    LockError::Io(io::Error::other("the lock file was replaced at every attempt to lock it"))
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

/// Refuses special files (real.3) and links in held directories (real.7). Returns whether the file exists.
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

/// Reads the holder's process id, if the platform allows reading a locked file (Windows does not).
fn read_pid(file: &fs::File) -> Option<u32> {
    let mut bytes = [0; 16];
    let n = sys::read_at(file, &mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..n]).ok()?.trim().parse().ok()
}

/// A lock on a file, held by this handle.
#[derive(Debug)]
struct RealLock {
    file: fs::File,
    /// The directory, if it is held and can be locked.
    dir: Option<fs::File>,
}

impl FileLock for RealLock {}

impl Drop for RealLock {
    /// Closing the file is not enough: a child process between its fork and its exec may share the lock.
    fn drop(&mut self) {
        // An unlock that fails is completed by closing. The directory is unlocked first, so that the next
        // holder of the file finds it free.
        let _ = self.dir.as_ref().map(fs::File::unlock);
        let _ = self.file.unlock();
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    direct: bool,
}

impl RealFile {
    /// Returns whether a failed call may be repeated because the file was switched from direct to buffered.
    fn is_buffered_now(&self, error: &io::Error) -> bool {
        self.direct
            && error.kind() == io::ErrorKind::InvalidInput
            && sys::make_buffered(&self.file).unwrap_or(false)
    }
}

/// Writes all of `buf` by calls of `write` that may write less, in whole blocks if `in_blocks` (real.6).
fn write_all_by(
    buf: &[u8],
    offset: u64,
    in_blocks: bool,
    mut write: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    // Whether the last call wrote less than its first block.
    let (mut done, mut is_stuck) = (0, false);
    while done < buf.len() {
        match write(&buf[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) if in_blocks && done + n < buf.len() => {
                let whole = (done + n) / AlignedBuf::ALIGN * AlignedBuf::ALIGN;
                if is_stuck && whole == done {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                (is_stuck, done) = (whole == done, whole);
            }
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match sys::read_at(&self.file, buf, offset) {
            Err(e) if self.is_buffered_now(&e) => sys::read_at(&self.file, buf, offset),
            read => read,
        }
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        write_all_by(buf, offset, self.direct, |bytes, at| match sys::write_at(&self.file, bytes, at) {
            Err(e) if self.is_buffered_now(&e) => sys::write_at(&self.file, bytes, at),
            written => written,
        })
    }

    fn write_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.direct && matches!(sys::write_durably_at(&self.file, buf, offset), Ok(n) if n == buf.len()) {
            return Ok(());
        }
        // If that failed, this reports the error.
        self.write_all_at(buf, offset)?;
        self.sync_data()
    }

    fn sync_data(&self) -> io::Result<()> {
        // std: fdatasync on Linux, F_FULLFSYNC on Apple's systems, FlushFileBuffers on Windows.
        self.file.sync_data()
    }

    fn window(&self, offset: u64, len: usize) -> Option<FileWindow> {
        if self.direct { None } else { FileWindow::new(&self.file, offset, len) }
    }

    fn start_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::start_writeback(&self.file, offset, len)
    }

    fn wait_for_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::wait_for_writeback(&self.file, offset, len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::allocate(&self.file, offset, len)
    }

    fn will_need(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::will_need(&self.file, offset, len)
    }
    fn drop_cache(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::drop_cache(&self.file, offset, len)
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn as_std(&self) -> Option<&fs::File> {
        Some(&self.file)
    }
}
