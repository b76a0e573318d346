//! Finished segments: those that recovery needs, those kept for readers of the log, and those to release.
//!
//! ```text
//!   WalWriter --push--> finished --obsolete, on the shelf--> kept --off the shelf--> recycled or removed
//!                          `-----obsolete----------------------------------------------^
//!   recovery ---------> of earlier processes ------obsolete, off the shelf-----------> removed
//! ```
//!
//! An obsolete segment whose file cannot be removed does not delay the removal of others. Their order does
//! not matter, because recovery reads none of them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use super::file_name;
use super::pool::WalPool;
use super::spare::Spare;
use crate::types::Result;

/// The segments before the active one.
#[derive(Debug)]
pub(super) struct OldSegments {
    pool: Arc<WalPool>,
    /// Finished segments of this process, oldest first.
    finished: VecDeque<Finished>,
    /// Segments of earlier processes with their file sizes, oldest first. Deleted when obsolete, never
    /// recycled.
    of_earlier: VecDeque<(u64, u64)>,
    /// Finished segments that recovery does not need, oldest first. They stay while they are on the shelf
    /// (shelf.rs).
    kept: VecDeque<Kept>,
    /// Recovery needs no segment below this number.
    obsolete: u64,
}

/// A finished segment of this process.
#[derive(Debug)]
struct Finished {
    number: u64,
    spare: Spare,
    /// Bytes used.
    used: u64,
    /// Whether the file has its whole length.
    is_whole: bool,
}

/// A finished segment whose file is closed.
#[derive(Debug)]
struct Kept {
    number: u64,
    path: PathBuf,
    bytes: u64,
    /// Whether the file has its whole length and no sync of it is outstanding.
    is_reusable: bool,
}

impl OldSegments {
    /// Returns the list with the segments that recovery found.
    pub(super) fn new(pool: Arc<WalPool>, of_earlier: &[u64]) -> OldSegments {
        let with_length = |number: &u64| {
            // Only for statistics.
            let length = pool.env.fs.file_size(&file_name::segment_path(&pool.dir, *number));
            (*number, length.unwrap_or(0))
        };
        let of_earlier = of_earlier.iter().map(with_length).collect();
        let (finished, kept) = (VecDeque::new(), VecDeque::new());
        OldSegments { pool, finished, of_earlier, kept, obsolete: 0 }
    }

    /// Adds the segment that was active.
    pub(super) fn push(&mut self, number: u64, spare: Spare, used: u64) {
        self.finished.push_back(Finished { number, spare, used, is_whole: true });
    }

    /// Excludes the newest segment's file from recycling, because it is truncated.
    pub(super) fn forbid_reuse_of_newest(&mut self) {
        self.finished.back_mut().into_iter().for_each(|finished| finished.is_whole = false);
    }

    /// Records that recovery needs no segment below `segment`.
    pub(super) fn note_obsolete(&mut self, segment: u64) {
        self.obsolete = self.obsolete.max(segment);
    }

    /// Returns the bytes of the segments that recovery needs.
    pub(super) fn needed_bytes(&self) -> u64 {
        let finished = self.finished.iter().map(|finished| (finished.number, finished.used));
        let all = self.of_earlier.iter().copied().chain(finished);
        all.filter(|(number, _)| *number >= self.obsolete).map(|(_, bytes)| bytes).sum()
    }

    /// Recycles or deletes the files of segments below `segment`, except those on the shelf (shelf.2).
    /// Returns the first number that it does not touch. After an error the next call retries the segments
    /// that are left.
    pub(super) fn release_below(&mut self, segment: u64) -> (u64, Result<()>) {
        self.note_obsolete(segment);
        let segment = self.pool.shelf().map_or(self.obsolete, |shelf| shelf.first().min(self.obsolete));
        let pool = &self.pool;
        let mut failure = None;
        let mut is_released = |released: Result<()>| match released {
            Ok(()) => true,
            Err(error) => {
                failure.get_or_insert(error);
                false
            }
        };
        self.of_earlier.retain(|(number, _)| {
            *number >= segment || !is_released(pool.remove(&file_name::segment_path(&pool.dir, *number)))
        });
        self.finished.retain(|Finished { number, spare, is_whole, .. }| {
            // sync.1: a sync that has not started yet could take the report of a failed writeback of the
            // recycled file.
            let is_free = *is_whole && Arc::strong_count(&spare.file) == 1;
            let release = || if is_free { pool.recycle(spare) } else { pool.remove(&spare.path) };
            *number >= segment || !is_released(release())
        });
        self.kept.retain(|kept| {
            kept.number >= segment
                || !is_released(pool.recycle_closed(&kept.path, kept.bytes, kept.is_reusable))
        });
        self.shelve();
        (segment, failure.map_or(Ok(()), Err))
    }

    /// Closes the files of obsolete segments that stay on the shelf.
    fn shelve(&mut self) {
        if self.pool.shelf().is_none() {
            return;
        }
        while let Some(Finished { number, spare, is_whole, .. }) =
            self.finished.pop_front_if(|finished| finished.number < self.obsolete)
        {
            // sync.1, as in `release_below`.
            let is_reusable = is_whole && Arc::strong_count(&spare.file) == 1;
            self.kept.push_back(Kept { number, path: spare.path, bytes: spare.bytes, is_reusable });
        }
    }
}
