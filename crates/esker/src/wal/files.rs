//! The files of a log: which of them recovery needs, which are missing, and which can be deleted.
//!
//! ```text
//!   names in the directory --LogFiles--> segments, prepared files --LogExtent--> the first missing one
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use esker_env::{Env, OpenOptions, read_range};

use super::file_name;
use super::format::{RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::encryption::KEY_HEADER_BYTES;
use crate::types::{Error, Result, SeqNo};

/// What the manifest says about the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogExtent {
    /// The first segment that is needed.
    pub from: u64,
    /// The newest segment that may be in use, if known (recovery.6). There may be newer ones.
    pub named_to: Option<u64>,
    /// A commit that was durable in the log, if one is known (recovery.7). There may be newer ones.
    pub durable_to: Option<SeqNo>,
    /// The database id, if the database has one.
    pub database_id: Option<u32>,
    /// The commit that [`first_torn`](super::first_torn) found; the log ends before it.
    pub ends_before: Option<SeqNo>,
}

/// The files of a log.
pub(super) struct LogFiles {
    /// The needed segments, in order.
    pub(super) segments: Vec<u64>,
    /// The numbers of prepared files.
    prepared: BTreeSet<u64>,
}

/// Bytes of the files of the segments from `from` on.
pub(crate) fn bytes_from(env: &Env, dir: &Path, from: u64) -> Result<u64> {
    let size = |number: &u64| {
        let path = file_name::segment_path(dir, *number);
        let file = env.fs.open(&path, OpenOptions::read()).map_err(|e| Error::io("open", &path, e))?;
        file.len().map_err(|e| Error::io("measure", &path, e))
    };
    LogFiles::list(env, dir, from)?.segments.iter().map(size).sum()
}

impl LogFiles {
    pub(super) fn list(env: &Env, dir: &Path, from: u64) -> Result<LogFiles> {
        let names = env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
        let numbers = names.iter().filter_map(|name| file_name::parse_segment(name));
        let mut segments: Vec<u64> = numbers.filter(|number| *number >= from).collect();
        segments.sort_unstable();
        let prepared = names.iter().filter_map(|name| file_name::parse_prepared(name)).collect();
        Ok(LogFiles { segments, prepared })
    }

    /// Returns the first named segment from `next` on without a prepared file: it is lost (recovery.6).
    pub(super) fn first_lost(&self, next: u64, named_to: Option<u64>) -> Option<u64> {
        (next..=named_to?).find(|number| !self.prepared.contains(number))
    }

    /// Returns the first needed segment that is missing, and what shows that it existed.
    pub(super) fn first_missing(&self, extent: LogExtent) -> Option<(u64, &'static str)> {
        let numbers = self.segments.iter().enumerate();
        let mut expected = numbers.map(|(i, found)| (extent.from.saturating_add(i as u64), *found));
        if let Some((hole, _)) = expected.find(|(expected, found)| expected != found) {
            return Some((hole, "newer segments exist"));
        }
        let lost = self.first_lost(next_number(&self.segments, extent.from), extent.named_to)?;
        Some((lost, "the manifest says that it was in use"))
    }

    /// Returns an error if a needed segment has the name of a prepared file, which opening would delete.
    pub(super) fn renamed(&self, env: &Env, dir: &Path, from: u64) -> Option<Error> {
        let in_use = |number: &&u64| is_in_use(env, &file_name::prepared_path(dir, **number), **number);
        let number = *self.prepared.range(from..).find(in_use)?;
        let detail = "the segment is missing, but its prepared file contains its records: the segment was renamed; give it \
                      this name again";
        Some(Error::corrupt("WAL", file_name::segment_path(dir, number), 0, detail))
    }
}

/// Returns the number that follows these segments, which begin with `from`.
pub(super) fn next_number(segments: &[u64], from: u64) -> u64 {
    segments.last().map_or(from, |last| last.saturating_add(1))
}

/// Returns whether the prepared file of a segment starts with a record of that segment.
pub(crate) fn is_in_use(env: &Env, path: &Path, number: u64) -> bool {
    let read = || {
        let file = env.fs.open(path, OpenOptions::read())?;
        let len = file.len()?.min((SEGMENT_HEADER_BYTES + KEY_HEADER_BYTES + RECORD_HEADER_BYTES) as u64);
        read_range(&*file, 0, len as usize)
    };
    let Ok(bytes) = read() else { return false };
    let header = SegmentHeader::decode(&bytes, number, path);
    let first = |it: &SegmentHeader| RecordHeader::decode(bytes.get(it.records_at()..)?, it.stamp());
    header.is_ok_and(|it| first(&it).is_some())
}

/// Deletes the segments among `names` that are before `from_segment`. They must be durably obsolete
/// (recovery.5). Returns those that it cannot delete, oldest first (recovery.8).
pub(crate) fn remove_obsolete(
    env: &Env,
    dir: &Path,
    names: &[String],
    from_segment: u64,
) -> Result<Vec<u64>> {
    let numbers = names.iter().filter_map(|name| file_name::parse_segment(name));
    let mut left: Vec<u64> = numbers.filter(|number| *number < from_segment).collect();
    left.sort_unstable();
    left.retain(|number| remove_if_there(env, &file_name::segment_path(dir, *number)).is_err());
    Ok(left)
}

/// Deletes the spares and prepared files among `names`, except the prepared file of the segment `kept`. No
/// current manifest may name the others (recovery.6).
pub(crate) fn remove_unused(env: &Env, dir: &Path, names: &[String], kept: Option<u64>) -> Result<()> {
    let is_unused = |name: &&String| {
        file_name::is_spare(name)
            || file_name::parse_prepared(name).is_some_and(|number| Some(number) != kept)
    };
    for name in names.iter().filter(is_unused) {
        remove_if_there(env, &dir.join(name))?;
    }
    Ok(())
}

/// Removes a file if it exists.
pub(super) fn remove_if_there(env: &Env, path: &Path) -> Result<()> {
    match env.fs.remove_file(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|e| Error::io("remove", path, e)),
    }
}
