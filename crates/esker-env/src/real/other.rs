//! What `std` does not offer, on systems other than Unix (that is Windows): mostly nothing, said honestly.
//!
//! Direct I/O, allocation and cache hints are left out; directories have no sync of their own.

use std::fs::File;
use std::io;
use std::os::windows::fs::FileExt;
use std::path::Path;

// These move the handle's position, which nothing here uses.
pub(super) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    match file.seek_read(buf, offset) {
        // ERROR_HANDLE_EOF: reading at or behind the end is no error to us.
        Err(e) if e.raw_os_error() == Some(38) => Ok(0),
        other => other,
    }
}

pub(super) fn write_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(buf, offset)
}

/// Not asked: `std` tells no identity of files there. R4 does not hold on these systems.
/// Links stay: a path without them may be one of another kind, in which `..` is a name.
pub(super) fn canonical(path: &Path) -> io::Result<std::path::PathBuf> {
    std::path::absolute(path)
}

pub(super) fn is_above_mount(_path: &Path) -> bool {
    false
}

pub(super) fn has_name(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(true)
}

pub(super) fn make_direct(_file: &File) -> io::Result<bool> {
    Ok(false)
}

pub(super) fn start_writeback(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

pub(super) fn allocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn drop_cache(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

pub(super) fn sync_dir(_path: &Path) -> io::Result<()> {
    Ok(())
}

pub(super) fn can_sync_dir(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Unknown: `std` has no call for it.
pub(super) fn free_bytes(_path: &Path) -> io::Result<u64> {
    Ok(u64::MAX)
}
