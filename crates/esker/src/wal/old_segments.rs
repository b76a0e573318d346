//! Segments that are complete: those that recovery needs, those that are kept for readers of the log, those
//! to release.
//!
//! ```text
//!   WalWriter --push--> finished --obsolete, on the shelf--> kept --off the shelf--> recycled or removed
//!                          `-----obsolete----------------------------------------------^
//!   recovery ---------> of earlier processes ------obsolete, off the shelf-----------> removed
//! ```
//!
//! wal_writer.5. An obsolete segment whose file cannot be removed holds up no other: recovery reads none of
//!     them, so their order is nothing to it.

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
    /// Segments of earlier processes, oldest first: deleted when obsolete, never recycled. With the lengths
    /// of their files.
    of_earlier: VecDeque<(u64, u64)>,
    /// Finished segments that recovery does not need, oldest first: they stay while they are on the shelf
    /// (shelf.rs).
    kept: VecDeque<Kept>,
    /// Recovery needs no segment below.
    obsolete: u64,
}

/// A finished segment of this process.
#[derive(Debug)]
struct Finished {
    number: u64,
    spare: Spare,
    /// Bytes in use.
    used: u64,
}

/// A finished segment whose file is closed.
#[derive(Debug)]
struct Kept {
    number: u64,
    path: PathBuf,
    bytes: u64,
    /// All its blocks are written, and no sync of it is outstanding.
    is_reusable: bool,
}

impl OldSegments {
    /// Those that recovery has left.
    pub(super) fn new(pool: Arc<WalPool>, of_earlier: &[u64]) -> OldSegments {
        let with_length = |number: &u64| {
            // Only for the statistics.
            let length = pool.env.fs.file_size(&file_name::segment_path(&pool.dir, *number));
            (*number, length.unwrap_or(0))
        };
        let of_earlier = of_earlier.iter().map(with_length).collect();
        let (finished, kept) = (VecDeque::new(), VecDeque::new());
        OldSegments { pool, finished, of_earlier, kept, obsolete: 0 }
    }

    /// Adds the segment that was active.
    pub(super) fn push(&mut self, number: u64, spare: Spare, used: u64) {
        self.finished.push_back(Finished { number, spare, used });
    }

    /// Has the file of the newest segment deleted when its time comes: it is cut to what is used.
    pub(super) fn forbid_reuse_of_newest(&mut self) {
        self.finished.back_mut().into_iter().for_each(|finished| finished.spare.is_written = false);
    }

    /// Recovery needs no segment below this number.
    pub(super) fn note_obsolete(&mut self, segment: u64) {
        self.obsolete = self.obsolete.max(segment);
    }

    /// Bytes of the segments that recovery needs.
    pub(super) fn needed_bytes(&self) -> u64 {
        let finished = self.finished.iter().map(|finished| (finished.number, finished.used));
        let all = self.of_earlier.iter().copied().chain(finished);
        all.filter(|(number, _)| *number >= self.obsolete).map(|(_, bytes)| bytes).sum()
    }

    /// Recycles or deletes the files of the segments below this number, except those on the shelf (shelf.2).
    /// Returns the first number that it does not touch. After an error the next call tries the rest again.
    pub(super) fn release_below(&mut self, segment: u64) -> (u64, Result<()>) {
        self.note_obsolete(segment);
        let segment = self.pool.shelf().map_or(self.obsolete, |shelf| shelf.first().min(self.obsolete));
        let pool = &self.pool;
        let mut failure = None;
        // wal_writer.5
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
        self.finished.retain(|Finished { number, spare, .. }| {
            // sync.1: a sync that has not begun yet could take the report of a failed write-back of the
            // file's next life.
            let is_free = Arc::strong_count(&spare.file) == 1;
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

    /// Closes the files of finished segments that are obsolete and stay.
    fn shelve(&mut self) {
        if self.pool.shelf().is_none() {
            return;
        }
        while let Some(Finished { number, spare, .. }) =
            self.finished.pop_front_if(|finished| finished.number < self.obsolete)
        {
            // sync.1, as above.
            let is_reusable = spare.is_written && Arc::strong_count(&spare.file) == 1;
            self.kept.push_back(Kept { number, path: spare.path, bytes: spare.bytes, is_reusable });
        }
    }
}
