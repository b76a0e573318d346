//! Unix calls that `std` lacks: relative to an open directory, direct I/O, allocation, cache hints, directory
//! sync, free space.
//!
//! Linux has all of them. Apple's systems have direct I/O as F_NOCACHE. Other systems lack the hints.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "sync_file_range has no safe wrapper"))]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode, linkat, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use super::{At, Meta, or_here};
use crate::OpenOptions;

pub(super) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    retry(|| file.read_at(buf, offset))
}

pub(super) fn write_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    retry(|| file.write_at(buf, offset))
}

/// Repeats a call that a signal interrupted. `std` does so for opening, syncing and truncating, but not for
/// these.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Resolves the links of a path.
pub(super) fn canonical(path: &Path) -> io::Result<std::path::PathBuf> {
    retry(|| std::fs::canonicalize(path))
}

/// A directory that is held open (fs.5).
#[derive(Debug)]
pub(super) struct Held {
    fd: OwnedFd,
    path: PathBuf,
    /// Mode of new files.
    mode: Mode,
    /// Whether the mode was requested, so that the umask does not apply.
    is_exact: bool,
}

impl Held {
    pub(super) fn open(at: At<'_>, mode: Option<u32>) -> io::Result<Self> {
        let fd = match open_dir(at) {
            // A directory with search but no read permission can be held, too.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => open_dir_unread(at)?,
            opened => opened?,
        };
        let of_files = mode.map_or_else(|| retry(|| fd.metadata()).map(|meta| meta.mode()), Ok)?;
        // The owner can always read and write.
        let of_files = Mode::from_raw_mode((of_files & 0o666 | 0o600) as RawMode);
        Ok(Held { fd: fd.into(), path: at.path.to_owned(), mode: of_files, is_exact: mode.is_some() })
    }
}

impl<'a> At<'a> {
    /// Returns the name in the held directory, if the path leads there.
    fn held_name(self) -> Option<(&'a Held, &'a Path)> {
        let held = self.held?;
        Some((held, or_here(self.path.strip_prefix(&held.path).ok()?)))
    }

    /// Returns the held directory, if the path is its own.
    fn held_itself(self) -> Option<&'a Held> {
        self.held_name().filter(|(_, name)| *name == or_here(Path::new(""))).map(|(held, _)| held)
    }

    /// Returns the directory in which to look up the name, and the name. Below a held directory no link is
    /// followed (real.7).
    fn place(self) -> io::Result<(DirFd<'a>, &'a Path)> {
        let Some((held, path)) = self.held_name() else {
            return Ok((DirFd::Borrowed(CWD), or_here(self.path)));
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok((DirFd::Borrowed(held.fd.as_fd()), path));
        };
        let mut dir = DirFd::Borrowed(held.fd.as_fd());
        for part in parent.components() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let part = part.as_os_str();
            let below = retry_on_intr(|| openat(&dir, part, flags, Mode::empty())).map_err(|error| {
                // The system reports a link as not being a directory.
                let found = statat(&dir, part, AtFlags::SYMLINK_NOFOLLOW);
                let is_link = found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
                refused_link(if is_link { Errno::LOOP } else { error })
            });
            dir = DirFd::Owned(below?);
        }
        Ok((dir, Path::new(name)))
    }

    fn is_held(self) -> bool {
        self.held_name().is_some()
    }
}

/// A directory that is open.
enum DirFd<'a> {
    Borrowed(BorrowedFd<'a>),
    Owned(OwnedFd),
}

impl AsFd for DirFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            DirFd::Borrowed(fd) => *fd,
            DirFd::Owned(fd) => fd.as_fd(),
        }
    }
}

/// Translates the error for a link that was not followed.
fn refused_link(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::MLINK => super::link_refused(),
        other => other.into(),
    }
}

pub(super) fn open(at: At<'_>, options: OpenOptions) -> io::Result<File> {
    let mut flags = OFlags::CLOEXEC | if options.write { OFlags::RDWR } else { OFlags::RDONLY };
    flags.set(OFlags::CREATE, options.create);
    flags.set(OFlags::EXCL, options.create_new);
    flags.set(OFlags::TRUNC, options.truncate);
    flags.set(OFlags::NOFOLLOW, at.is_held());
    let mode = at.held_name().map_or(Mode::from_raw_mode(0o666), |(held, _)| held.mode);
    let (dir, name) = at.place()?;
    match retry_on_intr(|| openat(&dir, name, flags, mode)) {
        Err(error) if flags.contains(OFlags::NOFOLLOW) => Err(refused_link(error)),
        opened => Ok(opened?.into()),
    }
}

/// Reopens the held directory, so that a lock on it belongs to this caller.
pub(super) fn open_held_dir(at: At<'_>) -> io::Result<Option<File>> {
    let Some((held, _)) = at.held_name() else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Some(retry_on_intr(|| openat(&held.fd, ".", flags, Mode::empty()))?.into()))
}

/// Gives a new file the requested mode.
pub(super) fn give_mode(at: At<'_>, file: &File) -> io::Result<()> {
    match at.held_name() {
        Some((held, _)) if held.is_exact => Ok(retry_on_intr(|| rustix::fs::fchmod(file, held.mode))?),
        _ => Ok(()),
    }
}

pub(super) fn stat(at: At<'_>) -> io::Result<Meta> {
    stat_with(at, if at.is_held() { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() })
}

/// Returns the metadata of the name, without following a link.
pub(super) fn stat_name(at: At<'_>) -> io::Result<Meta> {
    stat_with(at, AtFlags::SYMLINK_NOFOLLOW)
}

fn stat_with(at: At<'_>, flags: AtFlags) -> io::Result<Meta> {
    let (dir, name) = at.place()?;
    let stat = retry_on_intr(|| statat(&dir, name, flags))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    Ok(Meta {
        is_dir: kind.is_dir(),
        is_file: kind.is_file(),
        is_link: kind.is_symlink(),
        len: stat.st_size as u64,
        names: stat.st_nlink as u64,
        identity: Some((stat.st_dev as u64, stat.st_ino as u64)),
        mode: Some(stat.st_mode as u32 & 0o777),
    })
}

pub(super) fn exposed_mode(file: &File) -> io::Result<Option<u32>> {
    let meta = retry(|| file.metadata())?;
    let is_own = meta.uid() == rustix::process::geteuid().as_raw();
    Ok(Some(meta.mode() & 0o777).filter(|mode| is_own && mode & 0o077 != 0))
}

pub(super) fn identity(file: &File) -> io::Result<Option<(u64, u64)>> {
    let meta = retry(|| file.metadata())?;
    Ok(Some((meta.dev(), meta.ino())))
}

pub(super) fn rename(from: At<'_>, to: At<'_>) -> io::Result<()> {
    let ((from_dir, from), (to_dir, to)) = (from.place()?, to.place()?);
    Ok(retry_on_intr(|| renameat(&from_dir, from, &to_dir, to))?)
}

/// Renames to a free name in one step. `Unsupported` if the system has no such call.
#[cfg(target_os = "linux")]
pub(super) fn rename_new(from: At<'_>, to: At<'_>) -> io::Result<()> {
    use rustix::fs::{RenameFlags, renameat_with};
    let ((from_dir, from), (to_dir, to)) = (from.place()?, to.place()?);
    match retry_on_intr(|| renameat_with(&from_dir, from, &to_dir, to, RenameFlags::NOREPLACE)) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Err(io::ErrorKind::Unsupported.into()),
        renamed => Ok(renamed?),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn rename_new(_from: At<'_>, _to: At<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Gives a file another name. A link is not followed.
pub(super) fn hard_link(from: At<'_>, to: At<'_>) -> io::Result<()> {
    let ((from_dir, from), (to_dir, to)) = (from.place()?, to.place()?);
    Ok(retry_on_intr(|| linkat(&from_dir, from, &to_dir, to, AtFlags::empty()))?)
}

pub(super) fn remove_dir(at: At<'_>) -> io::Result<()> {
    let (dir, name) = at.place()?;
    Ok(retry_on_intr(|| unlinkat(&dir, name, AtFlags::REMOVEDIR))?)
}

pub(super) fn remove_file(at: At<'_>) -> io::Result<()> {
    let (dir, name) = at.place()?;
    Ok(retry_on_intr(|| unlinkat(&dir, name, AtFlags::empty()))?)
}

pub(super) fn list_dir(at: At<'_>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::new(OwnedFd::from(open_dir(at)?))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Creates a directory in an existing one. A given mode overrides the umask.
pub(super) fn create_one_dir(at: At<'_>, mode: Option<u32>) -> io::Result<()> {
    let (dir, name) = at.place()?;
    mkdirat(&dir, name, Mode::from_raw_mode(mode.unwrap_or(0o777) as RawMode))?;
    let Some(mode) = mode else { return Ok(()) };
    let made = open_dir(at)?;
    let set = made.metadata()?.mode() & 0o7000;
    Ok(rustix::fs::fchmod(&made, Mode::from_raw_mode((set | mode & 0o777) as RawMode))?)
}

/// Creates a directory. A given mode overrides the umask.
pub(super) fn create_dir(path: &Path, mode: Option<u32>) -> io::Result<()> {
    let Some(mode) = mode else { return std::fs::create_dir(path) };
    std::fs::DirBuilder::new().mode(mode).create(path)?;
    let made = std::fs::metadata(path)?.permissions();
    // Keep bits inherited from the parent, such as setgid.
    let wanted = made.mode() & 0o7000 | mode & 0o777;
    match made.mode() & 0o7777 == wanted {
        true => Ok(()),
        false => std::fs::set_permissions(path, std::fs::Permissions::from_mode(wanted)),
    }
}

/// Switches an open file to unbuffered I/O. Returns false if its file system has none.
#[cfg(target_os = "linux")]
pub(super) fn make_direct(file: &File) -> io::Result<bool> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    match fcntl_setfl(file, fcntl_getfl(file)? | OFlags::DIRECT) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::INVAL) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(target_vendor = "apple")]
pub(super) fn make_direct(file: &File) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_nocache(file, true).is_ok())
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub(super) fn make_direct(_file: &File) -> io::Result<bool> {
    Ok(false)
}

/// Switches an open file back to buffered I/O. Returns false if it was buffered.
#[cfg(target_os = "linux")]
pub(super) fn make_buffered(file: &File) -> io::Result<bool> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags - OFlags::DIRECT)?;
    Ok(flags.contains(OFlags::DIRECT))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn make_buffered(_file: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(target_os = "linux")]
pub(super) fn start_writeback(file: &File, offset: u64, len: u64) -> io::Result<()> {
    /// Starts writing dirty pages without waiting.
    const SYNC_FILE_RANGE_WRITE: std::ffi::c_uint = 2;
    sync_range(file, offset, len, SYNC_FILE_RANGE_WRITE)
}

#[cfg(target_os = "linux")]
pub(super) fn wait_for_writeback(file: &File, offset: u64, len: u64) -> io::Result<()> {
    /// Waits for pages being written without starting others.
    const SYNC_FILE_RANGE_WAIT_BEFORE: std::ffi::c_uint = 1;
    sync_range(file, offset, len, SYNC_FILE_RANGE_WAIT_BEFORE)
}

#[cfg(target_os = "linux")]
fn sync_range(file: &File, offset: u64, len: u64, flags: std::ffi::c_uint) -> io::Result<()> {
    use std::ffi::{c_int, c_uint};
    use std::os::fd::AsRawFd;
    unsafe extern "C" {
        fn sync_file_range(fd: c_int, offset: i64, nbytes: i64, flags: c_uint) -> c_int;
    }
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: a system call on a descriptor that `file` keeps open; it accesses no memory of ours.
    let result = unsafe { sync_file_range(file.as_raw_fd(), offset, len, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn start_writeback(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn wait_for_writeback(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
pub(super) fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    Ok(rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::empty(), offset, len))?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn allocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
pub(super) fn will_need(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let Some(len) = std::num::NonZeroU64::new(len) else { return Ok(()) };
    Ok(rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::WillNeed)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn will_need(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
pub(super) fn drop_cache(file: &File, offset: u64, len: u64) -> io::Result<()> {
    // For the system call, length 0 means "to the end of the file".
    let Some(len) = std::num::NonZeroU64::new(len) else { return Ok(()) };
    Ok(rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::DontNeed)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn drop_cache(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

/// Syncs a directory. A new descriptor sees every error, while of several concurrent callers on the held one,
/// only one does. The held descriptor is used only if the process has no descriptors left.
pub(super) fn sync_dir(at: At<'_>) -> io::Result<()> {
    match open_dir(at) {
        Ok(dir) => dir.sync_all(),
        Err(error) => match at.held_itself() {
            Some(held) if has_no_descriptor(&error) => Ok(rustix::fs::fsync(&held.fd)?),
            _ => Err(error),
        },
    }
}

pub(super) fn can_sync_dir(at: At<'_>) -> io::Result<()> {
    match open_dir(at) {
        Err(error) if at.held_itself().is_some() && has_no_descriptor(&error) => Ok(()),
        opened => opened.map(drop),
    }
}

/// Returns whether the process or the system has too many open files.
fn has_no_descriptor(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Opens a directory. Refuses other files without opening them, because opening a named pipe would block.
fn open_dir(at: At<'_>) -> io::Result<File> {
    open_dir_with(at, OFlags::RDONLY)
}

/// Opens a directory only for lookups.
#[cfg(target_os = "linux")]
fn open_dir_unread(at: At<'_>) -> io::Result<File> {
    open_dir_with(at, OFlags::PATH)
}

#[cfg(not(target_os = "linux"))]
fn open_dir_unread(at: At<'_>) -> io::Result<File> {
    open_dir(at)
}

fn open_dir_with(at: At<'_>, how: OFlags) -> io::Result<File> {
    let (dir, name) = at.place()?;
    let mut flags = how | OFlags::DIRECTORY | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, at.is_held());
    match retry_on_intr(|| openat(&dir, name, flags, Mode::empty())) {
        // The system reports a link as not being a directory.
        Err(Errno::NOTDIR) if at.is_held() && stat_name(at).is_ok_and(|meta| meta.is_link) => {
            Err(super::link_refused())
        }
        opened => Ok(opened.map_err(refused_link)?.into()),
    }
}

pub(super) fn free_bytes(at: At<'_>) -> io::Result<u64> {
    let stat = match at.held_name() {
        Some((held, _)) => retry_on_intr(|| rustix::fs::fstatvfs(&held.fd))?,
        None => retry_on_intr(|| rustix::fs::statvfs(or_here(at.path)))?,
    };
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_signal_interrupts_is_done_again() {
        let mut calls = 0;
        let read = retry(|| {
            calls += 1;
            if calls < 3 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(calls) }
        });
        assert_eq!(read.ok(), Some(3));
        assert!(retry(|| Err::<(), _>(io::ErrorKind::NotFound.into())).is_err());
    }
}
