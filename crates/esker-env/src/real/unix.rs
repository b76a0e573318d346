//! What `std` does not offer on Unix: calls relative to an open directory, direct I/O, allocation, cache hints, directory sync, free space.
//!
//! Linux has all of it. Apple's systems have direct I/O as F_NOCACHE; other systems go without the hints.
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

/// Repeats a call that a signal has interrupted before it did anything. `std` does so for opening, syncing and truncating, but not for these.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// The path without links.
pub(super) fn canonical(path: &Path) -> io::Result<std::path::PathBuf> {
    retry(|| std::fs::canonicalize(path))
}

/// A directory that was opened once (fs.5).
#[derive(Debug)]
pub(super) struct Held {
    fd: OwnedFd,
    path: PathBuf,
    /// Of new files.
    mode: Mode,
    /// The mode was asked for, and the process's mask does not narrow it.
    is_exact: bool,
}

impl Held {
    pub(super) fn open(at: At<'_>, mode: Option<u32>) -> io::Result<Self> {
        let fd = match open_dir(at) {
            // A directory that may be passed through and not read serves as well (fs.4).
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => open_dir_unread(at)?,
            opened => opened?,
        };
        let of_files = mode.map_or_else(|| retry(|| fd.metadata()).map(|meta| meta.mode()), Ok)?;
        // Whatever the directory has, its owner reads and writes.
        let of_files = Mode::from_raw_mode((of_files & 0o666 | 0o600) as RawMode);
        Ok(Held { fd: fd.into(), path: at.path.to_owned(), mode: of_files, is_exact: mode.is_some() })
    }
}

impl<'a> At<'a> {
    /// The name in the directory that is held, if the path leads there.
    fn held_name(self) -> Option<(&'a Held, &'a Path)> {
        let held = self.held?;
        Some((held, or_here(self.path.strip_prefix(&held.path).ok()?)))
    }

    /// The directory that is held, if the path is its own.
    fn held_itself(self) -> Option<&'a Held> {
        self.held_name().filter(|(_, name)| *name == or_here(Path::new(""))).map(|(held, _)| held)
    }

    /// The directory to look the name up in, and the name. Below a held directory no link is passed on the way (real.7).
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
                // The system says of a link that it is no directory.
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

/// What an opening that follows no links says of one.
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

/// The directory that is held, opened anew so that a lock of it is this caller's own.
pub(super) fn open_held_dir(at: At<'_>) -> io::Result<Option<File>> {
    let Some((held, _)) = at.held_name() else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Some(retry_on_intr(|| openat(&held.fd, ".", flags, Mode::empty()))?.into()))
}

/// Gives a new file the mode that was asked for.
pub(super) fn give_mode(at: At<'_>, file: &File) -> io::Result<()> {
    match at.held_name() {
        Some((held, _)) if held.is_exact => Ok(retry_on_intr(|| rustix::fs::fchmod(file, held.mode))?),
        _ => Ok(()),
    }
}

pub(super) fn stat(at: At<'_>) -> io::Result<Meta> {
    stat_with(at, if at.is_held() { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() })
}

/// What has the name itself, be it a link.
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

pub(super) fn identity(file: &File) -> io::Result<Option<(u64, u64)>> {
    let meta = retry(|| file.metadata())?;
    Ok(Some((meta.dev(), meta.ino())))
}

pub(super) fn rename(from: At<'_>, to: At<'_>) -> io::Result<()> {
    let ((from_dir, from), (to_dir, to)) = (from.place()?, to.place()?);
    Ok(retry_on_intr(|| renameat(&from_dir, from, &to_dir, to))?)
}

/// Renames to a name that nothing has, in one step. `Unsupported` where there is no such call.
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

/// A link is not followed: it gets a second name itself.
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

/// Makes a directory in one that is there; with a mode it gets that one, whatever the process's mask.
pub(super) fn create_one_dir(at: At<'_>, mode: Option<u32>) -> io::Result<()> {
    let (dir, name) = at.place()?;
    mkdirat(&dir, name, Mode::from_raw_mode(mode.unwrap_or(0o777) as RawMode))?;
    let Some(mode) = mode else { return Ok(()) };
    let made = open_dir(at)?;
    let set = made.metadata()?.mode() & 0o7000;
    Ok(rustix::fs::fchmod(&made, Mode::from_raw_mode((set | mode & 0o777) as RawMode))?)
}

/// Makes a directory; with a mode it gets that one, whatever the process's mask.
pub(super) fn create_dir(path: &Path, mode: Option<u32>) -> io::Result<()> {
    let Some(mode) = mode else { return std::fs::create_dir(path) };
    std::fs::DirBuilder::new().mode(mode).create(path)?;
    let made = std::fs::metadata(path)?.permissions();
    // Of what the directory above gives, setgid and the like, nothing is taken away.
    let wanted = made.mode() & 0o7000 | mode & 0o777;
    match made.mode() & 0o7777 == wanted {
        true => Ok(()),
        false => std::fs::set_permissions(path, std::fs::Permissions::from_mode(wanted)),
    }
}

/// Switches an open file to unbuffered I/O; false if its file system has none.
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

/// Switches an open file back; false if there is nothing to switch.
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
    /// Start writing dirty pages; wait neither before nor after.
    const SYNC_FILE_RANGE_WRITE: std::ffi::c_uint = 2;
    sync_range(file, offset, len, SYNC_FILE_RANGE_WRITE)
}

#[cfg(target_os = "linux")]
pub(super) fn wait_for_writeback(file: &File, offset: u64, len: u64) -> io::Result<()> {
    /// Wait for pages that are being written; start none.
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
    // SAFETY: a plain system call on a descriptor that `file` keeps open; it touches no memory of ours.
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

/// One write that is durable when it returns. May write less.
#[cfg(target_os = "linux")]
pub(super) fn write_durably_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    let buffers = [std::io::IoSlice::new(buf)];
    Ok(retry_on_intr(|| rustix::io::pwritev2(file, &buffers, offset, rustix::io::ReadWriteFlags::DSYNC))?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn write_durably_at(_file: &File, _buf: &[u8], _offset: u64) -> io::Result<usize> {
    Ok(0)
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
    // Length 0 means "to the end of the file" to the system call; here it means nothing.
    let Some(len) = std::num::NonZeroU64::new(len) else { return Ok(()) };
    Ok(rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::DontNeed)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn drop_cache(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

/// A descriptor of its own sees every error; that of the directory that is held, one of several callers at once. So the latter serves only a process
/// that has no descriptor left.
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

/// Whether the process, or the system, has too many files open.
fn has_no_descriptor(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// What is no directory is not touched: opening a named pipe would wait for its other end.
fn open_dir(at: At<'_>) -> io::Result<File> {
    open_dir_with(at, OFlags::RDONLY)
}

/// Opens a directory only to look names up in it.
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
        // The system says of a link that it is no directory.
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
