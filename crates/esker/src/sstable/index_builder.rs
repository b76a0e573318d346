//! Collects the index of a table that is being written.
//!
//! ```text
//!   begin(separator) --> finish_block --> note_written(extent) --> encode
//! ```
//!
//! Blocks are finished in order and written in the same order, perhaps later: the first ones wait until their
//! codec is chosen.

use std::ops::Range;

use super::index::{self, IndexEntry, IndexLimits};
use crate::types::key::common_prefix_len;
use crate::types::{Error, Result};

/// The index of an unfinished table.
pub(super) struct IndexBuilder {
    /// The finished blocks.
    entries: Vec<IndexEntry>,
    /// Number of blocks written.
    written: usize,
    /// The separator of the current block, and whether the block continues the versions of a key.
    separator: (Vec<u8>, bool),
    /// Bytes of all separators, including the current one.
    separator_bytes: u64,
    pub(super) limits: IndexLimits,
}

impl IndexBuilder {
    pub(super) fn new() -> Self {
        IndexBuilder {
            entries: Vec::new(),
            written: 0,
            separator: (Vec::new(), false),
            separator_bytes: 0,
            limits: IndexLimits::MAX,
        }
    }

    /// Number of finished blocks.
    pub(super) fn blocks(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the index has reached half of its limits.
    pub(super) fn is_half_full(&self) -> bool {
        !self.limits.holds(2 * (self.blocks() as u64 + 1), 2 * self.separator_bytes)
    }

    /// Approximate size of the encoded index.
    pub(super) fn estimated_bytes(&self) -> u64 {
        self.separator_bytes + 8 * self.blocks() as u64
    }

    /// Returns the separator between the current block, which ends with `last`, and the next one, which
    /// starts with `key`. Fails if it exceeds the limits.
    pub(super) fn next_separator(&self, last: &[u8], key: &[u8]) -> Result<(Vec<u8>, bool)> {
        let continues = key == last;
        let separator = if continues { key } else { shortest_separator(last, key) };
        let separator_bytes = self.separator_bytes + separator.len() as u64;
        if !self.limits.holds(self.blocks() as u64 + 2, separator_bytes) {
            return Err(self.full());
        }
        Ok((separator.to_vec(), continues))
    }

    #[cold]
    fn full(&self) -> Error {
        let IndexLimits { blocks, separator_bytes } = self.limits;
        Error::Invalid(format!(
            "the table is full: it has {} blocks of at most {blocks}, and about {} bytes of at most {separator_bytes} in its index: \
             finish it, and go on in another; larger blocks make room for more",
            self.blocks() + 1,
            self.separator_bytes,
        ))
    }

    /// Begins the next block, with a separator that [`next_separator`](Self::next_separator) has returned.
    pub(super) fn begin(&mut self, separator: (Vec<u8>, bool)) {
        self.separator_bytes += separator.0.len() as u64;
        self.separator = separator;
    }

    /// Ends the current block.
    pub(super) fn finish_block(&mut self) {
        let (separator, continues) = std::mem::take(&mut self.separator);
        self.entries.push(IndexEntry { stored_len: 0, separator, continues });
    }

    /// Notes the position of the first finished block that has none.
    pub(super) fn note_written(&mut self, extent: Range<u64>) {
        self.entries[self.written].stored_len = extent.end - extent.start;
        self.written += 1;
    }

    /// Returns the blocks of each page, if the table is large enough for pages of `page_blocks` blocks.
    pub(super) fn pages(&self, page_blocks: usize) -> Option<impl Iterator<Item = &[IndexEntry]>> {
        (self.blocks() > page_blocks.saturating_mul(2)).then(|| self.entries.chunks(page_blocks))
    }

    /// Encodes the index of a table without pages. `prefix` must be a prefix of all separators except the
    /// first.
    pub(super) fn encode(&self, prefix: &[u8], out: &mut Vec<u8>) {
        index::encode(prefix, &self.entries, out);
    }
}

/// Returns the shortest key that is larger than `low` and not larger than `high`. Requires `low < high`.
fn shortest_separator<'a>(low: &[u8], high: &'a [u8]) -> &'a [u8] {
    &high[..(common_prefix_len(low, high) + 1).min(high.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_short() {
        let sep =
            |a: &str, b: &'static str| std::str::from_utf8(shortest_separator(a.as_bytes(), b.as_bytes()));
        assert_eq!(sep("abc", "abd"), Ok("abd"));
        assert_eq!(sep("abc", "xyz"), Ok("x"));
        assert_eq!(sep("a", "a\0b"), Ok("a\0"));
        assert_eq!(sep("", "b"), Ok("b"));
    }
}
