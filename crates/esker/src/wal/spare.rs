//! Files for future segments: filled with zeros, or only reserved.
//!
//! pool.1. Every block of a spare has been written and synced. A record then overwrites blocks that are
//!     already mapped, and its sync flushes data only (figures in docs/formats/wal.md). Exception: files for
//!     records larger than a segment are only reserved, because writing the data twice costs more. They are
//!     larger than a segment, too, and never recycled.
//! - Before a file is filled with zeros, its space is allocated, so a full disk is noticed at once. Otherwise
//!   each refused commit would fill the disk again with zeros.

use std::path::PathBuf;
use std::sync::Arc;

use esker_env::{Env, File, OpenOptions};

use crate::types::{Error, Result};

/// Smallest segment size; all sizes are multiples of it.
pub(super) const SEGMENT_BYTES_UNIT: u64 = 512;
/// A disk without space for a file of this size has none for the log.
const FILE_BYTES_MIN: u64 = 4 << 10;
/// Zeros are written in chunks of `ZEROS_CHUNK` and synced every `ZEROS_SYNCED` bytes, because the syncs of
/// commits wait for them.
const ZEROS_CHUNK: usize = 256 << 10;
const ZEROS_SYNCED: u64 = 1 << 20;

/// A file for a segment.
#[derive(Clone, Debug)]
pub(super) struct Spare {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    pub(super) bytes: u64,
}

/// Takes the largest spare.
pub(super) fn take_largest(spares: &mut Vec<Spare>) -> Option<Spare> {
    let largest = (0..spares.len()).max_by_key(|at| spares[*at].bytes)?;
    Some(spares.remove(largest))
}

/// Takes the smallest spare of fewer than `bytes`.
pub(super) fn take_smallest(spares: &mut Vec<Spare>, bytes: u64) -> Option<Spare> {
    let smallest = (0..spares.len()).min_by_key(|at| spares[*at].bytes)?;
    (spares[smallest].bytes < bytes).then(|| spares.remove(smallest))
}

pub(super) fn total_bytes(spares: &[Spare]) -> u64 {
    spares.iter().map(|spare| spare.bytes).sum()
}

impl Spare {
    /// Makes its content durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e))
    }

    /// Makes a file of `bytes`, or of a half, a quarter ... if the disk lacks space for it. So a removal
    /// finds space for its record as long as the disk has any (reserve.2).
    pub(super) fn fitting(mut bytes: u64, mut make: impl FnMut(u64) -> Result<Spare>) -> Result<Spare> {
        loop {
            let half = (bytes / 2).next_multiple_of(SEGMENT_BYTES_UNIT);
            match make(bytes) {
                Err(Error::NoSpace { .. }) if half >= FILE_BYTES_MIN => bytes = half,
                made => return made,
            }
        }
    }

    /// Makes a file of at least `bytes` for a record larger than a segment. Its blocks are only reserved:
    /// writing zeros first would double the work of a bulk load.
    pub(super) fn reserve(env: &Env, path: PathBuf, bytes: u64) -> Result<Spare> {
        let bytes = bytes.next_multiple_of(SEGMENT_BYTES_UNIT);
        let reserve = || {
            let file = env.fs.open(&path, OpenOptions::create())?;
            file.allocate(0, bytes)?;
            file.sync_data()?;
            Ok(file)
        };
        let reserved = |file| Spare { path: path.clone(), file, bytes };
        reserve().map(reserved).or_else(|e: std::io::Error| {
            let _ = env.fs.remove_file(&path);
            if lacks_space(&e) {
                Err(Error::io("make a WAL segment", &path, e))
            } else {
                Spare::make(env, path, bytes, true)
            }
        })
    }

    /// Makes a file of zeros. Its contents are durable if `is_durable`; else the caller syncs them. Its
    /// name is not durable.
    pub(super) fn make(env: &Env, path: PathBuf, bytes: u64, is_durable: bool) -> Result<Spare> {
        let fill = || {
            let file = env.fs.open(&path, OpenOptions::create())?;
            // If the allocation fails for another reason, the writes show whether there is space.
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
            if is_durable {
                file.sync_data()?;
            }
            Ok(file)
        };
        match fill() {
            Ok(file) => Ok(Spare { path, file, bytes }),
            Err(e) => {
                // Frees the space on a full disk. The first error is the one to report.
                let _ = env.fs.remove_file(&path);
                Err(Error::io("make a WAL segment", &path, e))
            }
        }
    }
}

/// Returns whether the disk is full or a quota is used up.
fn lacks_space(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}
