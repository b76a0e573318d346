//! Files that will become segments.
//!
//! ```text
//!   spare --header, name--> 000008.wal-next --the manifest names it--> WalWriter
//!                             |  unused and small: a clean close leaves it (pool.5)
//!                             `--the next process checks it before its first commit (pool.10)--> WalWriter
//! ```
//!
//! pool.10. A file that an earlier process left unused is put to use only as the segment that the manifest
//!     already names. Its header is that of this segment and database, it is as long as it was made, and it
//!     contains only zeros behind its header. So it holds no record of any use, and all of it is durable:
//!     the header and the zeros were synced before the manifest named the segment (pool.4).
//! - An encrypted file is never taken over: only the process that made its key may write with it (seal.1).

use std::path::Path;

use esker_env::{Env, OpenOptions, read_range};

use super::file_name;
use super::format::{SEGMENT_HEADER_BYTES, SegmentHeader};
use super::options::WalOptions;
use super::recovery::Recovered;
use super::spare::Spare;
use crate::encryption::{self, FileKind, Seal};
use crate::types::{Error, Result};

/// Free space for the first file of a new database, as a multiple of its size. The reserve is at most an
/// eighth of the free space, so it stays free, too (pool.8).
const FREE_FACTOR: u64 = 2;

/// A file that will become a segment, with a durable header.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) number: u64,
    pub(super) spare: Spare,
    /// The seal of its payloads, made for this use of the file (seal.1).
    pub(super) seal: Seal,
}

impl Prepared {
    /// Returns the number of the segment.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Makes its content durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.spare.sync()
    }

    /// Gives a file its header and its prepared name, both durably (pool.4). `is_named` says whether the
    /// manifest names the segment: then a file of an earlier process has this name, and is replaced.
    pub(super) fn new(
        env: &Env,
        dir: &Path,
        spare: Spare,
        header: SegmentHeader,
        is_named: bool,
    ) -> Result<Prepared> {
        let path = file_name::prepared_path(dir, header.number);
        let seal = Seal::create(env, FileKind::Segment)?;
        let write = || -> Result<()> {
            write_header(&spare, header, &seal)?;
            // With the header, this syncs the zeros that were written before (pool.1).
            spare.sync()?;
            env.fs.rename(&spare.path, &path).map_err(|e| Error::io("rename", &spare.path, e))?;
            env.fs.sync_dir(dir).map_err(|e| Error::io("sync directory", dir, e))
        };
        match write() {
            Ok(()) => Ok(Prepared { number: header.number, spare: Spare { path, ..spare }, seal }),
            Err(error) => {
                // The file has one of the two names.
                let _ = env.fs.remove_file(&spare.path);
                if !is_named {
                    let _ = env.fs.remove_file(&path);
                }
                Err(error)
            }
        }
    }

    /// Opens the file that an earlier process left for this segment, if it is what that process made
    /// (pool.10).
    pub(super) fn left(env: &Env, dir: &Path, expected: impl Fn(u64) -> SegmentHeader) -> Option<Prepared> {
        let number = expected(0).number;
        let path = file_name::prepared_path(dir, number);
        let file = env.fs.open(&path, OpenOptions::write()).ok()?;
        let bytes = file.len().ok().filter(|bytes| u32::try_from(*bytes).is_ok())?;
        let content = read_range(&*file, 0, bytes as usize).ok()?;
        let (header, rest) = content.split_at_checked(SEGMENT_HEADER_BYTES)?;
        let is_unused = header == expected(bytes).encode() && rest.iter().all(|byte| *byte == 0);
        is_unused.then(|| Prepared { number, spare: Spare { path, file, bytes }, seal: Seal::default() })
    }
}

/// Writes the header of a file.
fn write_header(spare: &Spare, header: SegmentHeader, seal: &Seal) -> Result<()> {
    let bytes = header.encode();
    let bytes = [&bytes[..], &seal.header(&bytes)].concat();
    spare.file.write_all_at(&bytes, 0).map_err(|e| Error::io("write", &spare.path, e))
}

/// Makes the file of the first segment of a new database. The caller makes its content ([`Prepared::sync`])
/// and its name durable, and only then the manifest that names the segment (pool.4). Returns `None` if the
/// disk lacks space: then the first commit makes the file, or is refused.
pub(crate) fn make_first(
    env: &Env,
    dir: &Path,
    options: &WalOptions,
    number: u64,
) -> Result<Option<Prepared>> {
    let bytes = options.first_segment_bytes.min(options.segment_bytes_max);
    let has_space = |free| free >= FREE_FACTOR * bytes;
    if !env.fs.free_bytes(dir).map_or(true, has_space) {
        return Ok(None);
    }
    let seal = Seal::create(env, FileKind::Segment)?;
    let path = file_name::prepared_path(dir, number);
    let made = Spare::make(env, path.clone(), bytes, false).and_then(|spare| {
        write_header(&spare, options.header_of(env, number, bytes), &seal)?;
        // Only a hint: the sync writes the rest.
        let _ = spare.file.start_writeback(0, bytes);
        Ok(Prepared { number, spare, seal })
    });
    match made {
        Ok(prepared) => Ok(Some(prepared)),
        Err(error) => {
            // Nothing names it.
            let _ = env.fs.remove_file(&path);
            if matches!(error, Error::NoSpace { .. }) { Ok(None) } else { Err(error) }
        }
    }
}

/// Returns the number of the segment for which an earlier process left a file, if this process may put it to
/// use: the manifest names the segment, and it is the next one of an intact log. The file is not read.
pub(crate) fn find_left(
    env: &Env,
    dir: &Path,
    log: &Recovered,
    named_to: Option<u64>,
    options: &WalOptions,
) -> Option<u64> {
    let number = log.next_segment;
    if named_to != Some(number) || log.is_torn() || encryption::is_on(env) {
        return None;
    }
    let bytes = env.fs.file_size(&file_name::prepared_path(dir, number)).ok()?;
    options.may_leave(bytes).then_some(number)
}
