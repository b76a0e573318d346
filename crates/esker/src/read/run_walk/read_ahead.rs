//! Decides which values in blob files to prefetch while values are read in sequence: as many of the next ones
//! as were read, up to [`AHEAD_MAX`].

use std::ops::Range;

/// Maximum number of blob values that are prefetched.
const AHEAD_MAX: usize = 32;

/// How far values in blob files have been prefetched.
#[derive(Default)]
pub(super) struct ReadAhead {
    /// The value read last: table, block, entry.
    last: (usize, usize, usize),
    /// Number of values read in sequence.
    streak: usize,
    /// All entries of the block before this one have been prefetched.
    asked: usize,
}

impl ReadAhead {
    /// Returns the entries to prefetch when a value is read. `end` is the end of its block.
    pub(super) fn after(&mut self, read: (usize, usize, usize), end: usize) -> Range<usize> {
        let ((table, block, entry), last) = (read, self.last);
        let is_same_block = (last.0, last.1) == (table, block);
        let is_next = match is_same_block {
            true => entry == last.2 + 1,
            false => (last.0, last.1 + 1) == (table, block) || last.0 + 1 == table,
        };
        self.streak = if is_next { self.streak + 1 } else { 0 };
        if !is_same_block || !is_next {
            self.asked = entry + 1;
        }
        self.last = read;
        let from = self.asked.max(entry + 1);
        let end = (entry + 1 + self.streak.min(AHEAD_MAX)).min(end);
        self.asked = self.asked.max(end);
        from..end
    }
}
