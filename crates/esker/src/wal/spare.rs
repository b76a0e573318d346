//! Files for segments to come: filled with zeros, or reserved.
//!
//! pool.1. Every block of a spare has been written and synced, so that a record overwrites blocks that the
//!     file system knows already: a sync then flushes data only (figures in docs/formats/wal.md). Exception:
//!     where syncs are few beside what is written, new files are only reserved: writing all twice costs more.
//!     They are recycled only if they were written whole.
//! pool.7. A disk that has no space for a file is asked for it at once, where it can be, and not filled with
//!     zeros for each commit that it refuses: others need what is left.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, File, OpenOptions};

use super::file_name;
use super::format::SegmentHeader;
use crate::types::{Error, Result};

/// The smallest and the unit of all segment sizes.
pub(super) const SEGMENT_BYTES_UNIT: u64 = 512;
/// Zeros are written in pieces of this size, and synced by more of them: a commit's sync waits for what the
/// disk is writing.
const ZEROS_CHUNK: usize = 256 << 10;
const ZEROS_SYNCED: u64 = 1 << 20;

/// A file for a segment.
#[derive(Clone, Debug)]
pub(super) struct Spare {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    pub(super) bytes: u64,
    /// All its blocks are written (pool.1).
    pub(super) is_written: bool,
}

/// A file that will become a segment: its header is written, durably.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) number: u64,
    pub(super) spare: Spare,
}

impl Prepared {
    /// Gives a file its header and the name of a prepared one, both durable (pool.4).
    pub(super) fn new(env: &Env, dir: &Path, spare: Spare, header: SegmentHeader) -> Result<Prepared> {
        let path = file_name::prepared_path(dir, header.number);
        let write = || -> Result<()> {
            spare.file.write_all_at(&header.encode(), 0).map_err(|e| Error::io("write", &spare.path, e))?;
            spare.file.sync_data().map_err(|e| Error::io("sync", &spare.path, e))?;
            env.fs.rename(&spare.path, &path).map_err(|e| Error::io("rename", &spare.path, e))?;
            env.fs.sync_dir(dir).map_err(|e| Error::io("sync directory", dir, e))
        };
        match write() {
            Ok(()) => Ok(Prepared { number: header.number, spare: Spare { path, ..spare } }),
            Err(error) => {
                // It has one of the two names; nothing names the number yet.
                let _ = env.fs.remove_file(&spare.path);
                let _ = env.fs.remove_file(&path);
                Err(error)
            }
        }
    }
}

impl Spare {
    /// Makes a file for large records, of at least `bytes`. Its blocks are reserved, not written, because
    /// the records themselves write them. Writing zeros first would double the work of a load.
    pub(super) fn reserve(env: &Env, path: PathBuf, bytes: u64) -> Result<Spare> {
        let bytes = bytes.next_multiple_of(SEGMENT_BYTES_UNIT);
        let reserve = || {
            let file = env.fs.open(&path, OpenOptions::create())?;
            file.allocate(0, bytes)?;
            file.sync_data()?;
            Ok(file)
        };
        let reserved = |file| Spare { path: path.clone(), file, bytes, is_written: false };
        reserve().map(reserved).or_else(|e: std::io::Error| {
            let _ = env.fs.remove_file(&path);
            // pool.7, as in `make`.
            if lacks_space(&e) {
                Err(Error::io("make a WAL segment", &path, e))
            } else {
                Spare::make(env, path, bytes)
            }
        })
    }

    /// Makes a file of zeros. It is durable, its name is not.
    pub(super) fn make(env: &Env, path: PathBuf, bytes: u64) -> Result<Spare> {
        let fill = || {
            let file = env.fs.open(&path, OpenOptions::create())?;
            // pool.7. What cannot be reserved for another reason is written all the same: that tells.
            file.allocate(0, bytes).or_else(|e| if lacks_space(&e) { Err(e) } else { Ok(()) })?;
            let zeros = vec![0; ZEROS_CHUNK.min(bytes as usize)];
            let mut at = 0;
            while at < bytes {
                let n = zeros.len().min((bytes - at) as usize);
                file.write_all_at(&zeros[..n], at)?;
                at += n as u64;
                if at.is_multiple_of(ZEROS_SYNCED) {
                    file.sync_data()?;
                }
            }
            file.sync_data()?;
            Ok(file)
        };
        match fill() {
            Ok(file) => Ok(Spare { path, file, bytes, is_written: true }),
            Err(e) => {
                // A full disk should get its space back; the error that matters is the first.
                let _ = env.fs.remove_file(&path);
                Err(Error::io("make a WAL segment", &path, e))
            }
        }
    }
}

/// Whether a disk that is full, or a quota that is used up, is the reason.
fn lacks_space(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}
