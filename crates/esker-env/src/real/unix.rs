//! What `std` does not offer on Unix: direct I/O, allocation, cache hints, directory sync, free space.
//!
//! Linux has all of it. Apple's systems have direct I/O as F_NOCACHE; other systems go without the hints.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "sync_file_range has no safe wrapper"))]

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

pub(super) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buf, offset)
}

pub(super) fn write_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(buf, offset)
}

/// The path without links.
pub(super) fn canonical(path: &Path) -> io::Result<std::path::PathBuf> {
    std::fs::canonicalize(path)
}

/// Whether the path is `dir/..`, and `dir` another file system's.
pub(super) fn is_above_mount(path: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.dev());
    let below = path.ends_with("..").then(|| path.parent()).flatten();
    below.is_some_and(|below| device(below) != device(path))
}

/// Whether this is the file that has the name now.
pub(super) fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
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
    use std::ffi::{c_int, c_uint};
    use std::os::fd::AsRawFd;
    /// Start writing dirty pages; wait neither before nor after.
    const SYNC_FILE_RANGE_WRITE: c_uint = 2;
    unsafe extern "C" {
        fn sync_file_range(fd: c_int, offset: i64, nbytes: i64, flags: c_uint) -> c_int;
    }
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: a plain system call on a descriptor that `file` keeps open; it touches no memory of ours.
    let result = unsafe { sync_file_range(file.as_raw_fd(), offset, len, SYNC_FILE_RANGE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn start_writeback(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
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
pub(super) fn drop_cache(file: &File, offset: u64, len: u64) -> io::Result<()> {
    // Length 0 means "to the end of the file" to the system call; here it means nothing.
    let Some(len) = std::num::NonZeroU64::new(len) else { return Ok(()) };
    Ok(rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::DontNeed)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn drop_cache(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    open_dir(path)?.sync_all()
}

pub(super) fn can_sync_dir(path: &Path) -> io::Result<()> {
    open_dir(path).map(drop)
}

fn open_dir(path: &Path) -> io::Result<File> {
    // Before it is opened: opening a named pipe would wait for its other end.
    if !std::fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    File::open(path)
}

pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
