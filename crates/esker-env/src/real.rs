//! The operating system's files.
//!
//! ```text
//!   RealFs / RealFile --portable part (std)--> here
//!                     `-direct I/O, allocation, cache hints, directory sync--> unix.rs | windows.rs
//! ```
//!
//! real.1. A direct file is opened buffered first and switched afterwards, so that a file system without direct I/O
//!     leaves no half-done `create_new` behind; one that then cannot be switched is removed.
//! real.2. A lock is the operating system's (flock, LockFileEx): it ends with its handle or its process, however that
//!     ends. The process id in the file serves only the error message of the loser, and says nothing of those who hold the
//!     lock to read.
//! real.3. Only regular files are opened; others are refused without being touched. Opening a named pipe would wait for its
//!     other end.
//! real.4. Only the file that has the name is locked: whoever held the lock may have removed the file after we had opened it, and the
//!     next one makes a new file, which a lock of the old one says nothing of.
//! real.5. A file system may grant direct I/O and refuse it in the call that needs it, as overlayfs does over one that has none: then the file
//!     goes on buffered. Its writer goes on as it was, in whole blocks.
//! real.6. A direct write that is cut short inside a block is repeated from that block's start: from the middle it would
//!     fail for its alignment and hide the true error. Where it is cut there again, the disk is full.
//! real.7. In a directory that is held (fs.5) no file is opened or made through a symbolic link, wherever it leads: whoever may make names
//!     there, and nothing else, could have files overwritten elsewhere. Renames and removals are of the link itself.
//! real.8. With a lock file in a held directory the directory itself is locked, so that one that is removed or replaced lets nobody in.
//!     Some file systems lock no directories: there the file alone counts.
//! real.9. A lock file is written to only if it is empty or holds a process id, and has no other name. A foreign file in its
//!     place stays as it is.

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

/// How often a lock file is opened that is another one once it is locked (real.4).
const LOCK_ROUNDS: u32 = 100;
/// More than a process id takes.
const LOCK_BYTES_MAX: usize = 32;

/// The operating system's file system.
#[derive(Debug, Clone, Default)]
pub struct RealFs {
    held: Option<Arc<sys::Held>>,
}

/// A path, and the directory that is held, in which it may lie (real.7).
#[derive(Clone, Copy)]
struct At<'a> {
    held: Option<&'a sys::Held>,
    path: &'a Path,
}

/// What stands at a path.
struct Meta {
    is_dir: bool,
    is_file: bool,
    is_link: bool,
    len: u64,
    /// How many names it has, 1 if the system does not tell.
    names: u64,
    /// Device and number, where the system tells them.
    identity: Option<(u64, u64)>,
    /// Permission bits, where there are such.
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
            // Another process or thread may have been faster; its directory serves as well.
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
            // A file system without links.
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

    /// Above a mount point is another file system, which may have no such sync, squashfs for one. What is in the mounted one does not
    /// hang on it.
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

    /// The system knows it, whatever links, `.` and `..` the path has. Above the root it is the root.
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

/// What stands at the path, if anything does.
fn look(at: At<'_>) -> io::Result<Option<Meta>> {
    found(sys::stat(at))
}

/// What has the name itself, be it a link.
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

/// Renames to a name that nothing has: by one call, or by `otherwise` where the system has no such call.
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

/// Whether the path is `dir/..`, and `dir` another file system's.
fn is_above_mount(at: At<'_>) -> bool {
    let device = |path| Some(sys::stat(At { path, ..at }).ok()?.identity?.0);
    let below = at.path.ends_with("..").then(|| at.path.parent()).flatten();
    below.is_some_and(|below| device(below) != device(at.path))
}

/// Whether this is the file that has the name now. Where files have no identity it is taken for that (real.4 does not hold there).
fn has_name(file: &fs::File, at: At<'_>) -> io::Result<bool> {
    let identity = sys::identity(file)?;
    Ok(look(at)?.is_some_and(|named| named.identity == identity))
}

/// The path without links, as far as it is there, and absolute.
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

/// A moment of [`lock_with`] at which others may be faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The file is open, and not yet locked.
    Opened,
    /// Somebody else has it locked.
    Refused,
}

/// Locks the file at the path, which is made if it is not there.
fn lock_with(at: At<'_>, mut when: impl FnMut(Moment)) -> Result<Box<dyn FileLock>, LockError> {
    for _ in 0..LOCK_ROUNDS {
        // Not cut on open: until the lock is ours, the content belongs to the holder.
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
                // real.2: those who hold it only read, and the id in the file is that of an earlier holder; or nobody has it any more.
                file.unlock().map_err(LockError::Io)?;
                if file.try_lock().is_err() {
                    return Err(LockError::Held { path: at.path.to_owned(), pid: None });
                }
            }
            Err(fs::TryLockError::Error(e)) => return Err(LockError::Io(e)),
        }
        if !has_name(&file, at).map_err(LockError::Io)? {
            // real.4: each time round somebody else has held the lock and removed its file.
            continue;
        }
        refuse_other_content(&file)?;
        let dir = lock_held_dir(at, fs::File::try_lock)?;
        // Of one length whatever the number, so that the file mostly need not be cut: that takes longer than all else here.
        let pid = format!("{:<10}\n", std::process::id());
        let is_longer = file.metadata().is_ok_and(|meta| meta.len() > pid.len() as u64);
        // real.2: a full disk is no reason to refuse the lock; at worst a loser's message lacks the id.
        let cut = || if is_longer { file.set_len(0) } else { Ok(()) };
        // real.9
        if look(at).is_ok_and(|meta| meta.is_none_or(|meta| meta.names == 1)) {
            let _ = cut().and_then(|()| sys::write_at(&file, pid.as_bytes(), 0));
        }
        return Ok(Box::new(RealLock { file, dir }));
    }
    Err(never_the_same())
}

/// Refuses a file that holds anything but what this module writes into lock files (real.9).
fn refuse_other_content(file: &fs::File) -> Result<(), LockError> {
    let mut bytes = [0; LOCK_BYTES_MAX + 1];
    let len = sys::read_at(file, &mut bytes, 0).map_err(LockError::Io)?;
    let is_ours = |byte: &u8| byte.is_ascii_digit() || [0, b' ', b'\n'].contains(byte);
    if len <= LOCK_BYTES_MAX && bytes[..len].iter().all(is_ours) {
        return Ok(());
    }
    let text = "it is no lock file of Esker's: something else has this name";
    Err(LockError::Io(io::Error::new(io::ErrorKind::InvalidInput, text)))
}

/// Keeps others from locking the file at the path, if there is one; `opened` is called between its opening and its locking.
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
            // A file system without locks: then nobody else has it locked either.
            Err(fs::TryLockError::Error(_)) => return Ok(None),
        }
        if has_name(&file, at).map_err(LockError::Io)? {
            let dir = lock_held_dir(at, fs::File::try_lock_shared)?;
            return Ok(Some(Box::new(RealLock { file, dir })));
        }
        // real.4: somebody has removed the file meanwhile.
    }
    Err(never_the_same())
}

/// Locks the held directory, too (real.8); none where directories cannot be locked.
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

/// After so many rounds of real.4.
fn never_the_same() -> LockError {
    LockError::Io(io::Error::other("the lock file is another one each time it is looked at"))
}

/// Opens a file; `make_direct` switches it to unbuffered I/O, if it can.
fn open_with(
    at: At<'_>,
    options: OpenOptions,
    make_direct: impl FnOnce(&fs::File) -> io::Result<bool>,
) -> io::Result<Arc<dyn File>> {
    let file = open_file(at, options)?;
    let switched = if options.direct { make_direct(&file) } else { Ok(false) };
    let direct = switched.inspect_err(|_| {
        if options.create_new {
            // real.1. The error that matters is the one above.
            let _ = sys::remove_file(at);
        }
    })?;
    Ok(Arc::new(RealFile { file, direct }))
}

fn open_file(at: At<'_>, options: OpenOptions) -> io::Result<fs::File> {
    let create = options.create || options.create_new;
    // What is created anew is a regular file.
    let is_there = !options.create_new && refuse_special(at)?;
    let options = OpenOptions { write: options.write || create || options.truncate, create, ..options };
    let file = sys::open(at, options)?;
    if create && !is_there {
        sys::give_mode(at, &file)?;
    }
    Ok(file)
}

/// Refuses what is there and is no regular file (real.3), or a link where none is followed (real.7); whether there is anything. What cannot be
/// looked at is for the opening to tell.
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

/// real.7.
fn link_refused() -> io::Error {
    let text = "it is a symbolic link, and no file of a database is reached through one: put the file itself there, or remove the \
                link; the directory as a whole may be reached by a link";
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The holder's process id, if the platform lets us read a locked file (Windows does not).
fn read_pid(file: &fs::File) -> Option<u32> {
    let mut bytes = [0; 16];
    let n = sys::read_at(file, &mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..n]).ok()?.trim().parse().ok()
}

/// A lock on a file, of this handle or of this process.
#[derive(Debug)]
struct RealLock {
    file: fs::File,
    /// The directory, if it is held (real.8).
    dir: Option<fs::File>,
}

impl FileLock for RealLock {}

impl Drop for RealLock {
    /// Closing the file would not do: a child process, between its fork and its exec, has a descriptor of the same lock.
    fn drop(&mut self) {
        // What cannot be unlocked is unlocked by closing, or never was locked. The directory first: who has the file finds it free.
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
    /// Whether a call that failed so may be tried again: it was direct, and is buffered now (real.5).
    fn is_buffered_now(&self, error: &io::Error) -> bool {
        self.direct
            && error.kind() == io::ErrorKind::InvalidInput
            && sys::make_buffered(&self.file).unwrap_or(false)
    }
}

/// Writes all of `buf` by calls of `write` that may write less; in whole blocks, if it is to (real.6).
fn write_all_by(
    buf: &[u8],
    offset: u64,
    in_blocks: bool,
    mut write: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    // Whether the last call wrote less than the block that it began with.
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
        // Whatever was the matter with that, this says it.
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
