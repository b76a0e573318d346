//! Windows equivalents of the Unix calls, as far as `std` has them.
//!
//! Direct I/O, allocation and cache hints are missing; directories have no sync.

use std::fs::{self, File};
use std::io;
use std::os::windows::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{At, Meta, or_here};
use crate::OpenOptions;

// These calls move the handle's position, which is not used.
pub(super) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    match file.seek_read(buf, offset) {
        // ERROR_HANDLE_EOF: reading at or after the end is not an error here.
        Err(e) if e.raw_os_error() == Some(38) => Ok(0),
        other => other,
    }
}

pub(super) fn write_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(buf, offset)
}

/// A directory whose files are not accessed through symbolic links. It is identified by its path, so after a
/// move or replacement the new directory is used. A link created between the check and the opening is
/// followed.
#[derive(Debug)]
pub(super) struct Held {
    path: PathBuf,
}

impl Held {
    pub(super) fn open(at: At<'_>, _mode: Option<u32>) -> io::Result<Self> {
        refuse_links(at)?;
        fs::read_dir(at.path)?;
        Ok(Held { path: at.path.to_owned() })
    }
}

pub(super) fn open(at: At<'_>, options: OpenOptions) -> io::Result<File> {
    refuse_links(at)?;
    let mut open = fs::OpenOptions::new();
    open.read(true).write(options.write).create(options.create).create_new(options.create_new);
    open.truncate(options.truncate).open(at.path)
}

/// Refuses links below a held directory. A link created after the check is followed.
fn refuse_links(at: At<'_>) -> io::Result<()> {
    let Some(held) = at.held else { return Ok(()) };
    let Ok(below) = at.path.strip_prefix(&held.path) else { return Ok(()) };
    let mut path = held.path.clone();
    for part in below.components() {
        path.push(part);
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink()) {
            return Err(super::link_refused());
        }
    }
    Ok(())
}

/// Directories cannot be locked on Windows.
pub(super) fn open_held_dir(_at: At<'_>) -> io::Result<Option<File>> {
    Ok(None)
}

/// Windows has no such modes.
pub(super) fn give_mode(_at: At<'_>, _file: &File) -> io::Result<()> {
    Ok(())
}

pub(super) fn stat(at: At<'_>) -> io::Result<Meta> {
    let is_held = at.held.is_some_and(|held| at.path.starts_with(&held.path));
    Ok(meta_of(&if is_held { fs::symlink_metadata(at.path)? } else { fs::metadata(at.path)? }))
}

/// Returns the metadata of the name, without following a link.
pub(super) fn stat_name(at: At<'_>) -> io::Result<Meta> {
    Ok(meta_of(&fs::symlink_metadata(at.path)?))
}

fn meta_of(meta: &fs::Metadata) -> Meta {
    Meta {
        is_dir: meta.is_dir(),
        is_file: meta.is_file(),
        is_link: meta.is_symlink(),
        len: meta.len(),
        names: 1,
        identity: None,
        mode: None,
    }
}

/// Windows has no such call in `std`.
pub(super) fn rename_new(_from: At<'_>, _to: At<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn create_one_dir(at: At<'_>, _mode: Option<u32>) -> io::Result<()> {
    refuse_links(at)?;
    fs::create_dir(at.path)
}

/// `std` reports no file identity on Windows.
pub(super) fn exposed_mode(_file: &File) -> io::Result<Option<u32>> {
    Ok(None)
}

pub(super) fn identity(_file: &File) -> io::Result<Option<(u64, u64)>> {
    Ok(None)
}

pub(super) fn rename(from: At<'_>, to: At<'_>) -> io::Result<()> {
    fs::rename(from.path, to.path)
}

pub(super) fn hard_link(from: At<'_>, to: At<'_>) -> io::Result<()> {
    fs::hard_link(from.path, to.path)
}

pub(super) fn remove_dir(at: At<'_>) -> io::Result<()> {
    fs::remove_dir(at.path)
}

pub(super) fn remove_file(at: At<'_>) -> io::Result<()> {
    fs::remove_file(at.path)
}

pub(super) fn list_dir(at: At<'_>) -> io::Result<Vec<String>> {
    refuse_links(at)?;
    fs::read_dir(or_here(at.path))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

pub(super) fn create_dir(path: &Path, _mode: Option<u32>) -> io::Result<()> {
    fs::create_dir(path)
}

/// Links are not resolved: a resolved path may be of a form in which `..` is a name.
pub(super) fn canonical(path: &Path) -> io::Result<PathBuf> {
    std::path::absolute(path)
}

pub(super) fn make_direct(_file: &File) -> io::Result<bool> {
    Ok(false)
}

pub(super) fn make_buffered(_file: &File) -> io::Result<bool> {
    Ok(false)
}

pub(super) fn start_writeback(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

pub(super) fn wait_for_writeback(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

pub(super) fn allocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn will_need(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

pub(super) fn drop_cache(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

pub(super) fn sync_dir(_at: At<'_>) -> io::Result<()> {
    Ok(())
}

pub(super) fn can_sync_dir(_at: At<'_>) -> io::Result<()> {
    Ok(())
}

/// Unknown: `std` has no call for it.
pub(super) fn free_bytes(_at: At<'_>) -> io::Result<u64> {
    Ok(u64::MAX)
}
