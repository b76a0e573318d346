//! Estimates how many bytes of a table belong to a range of keys, from the index alone.

use std::ops::Range;

use super::Table;
use super::loading::Loaded;
use crate::cache::pin;
use crate::sstable::caches::Wanted;
use crate::types::key_range::KeyRange;
use crate::types::{Error, Result};

impl Table {
    /// Returns approximately how many bytes of the file precede `key`, with the resolution of a block. Index
    /// and filter are distributed evenly over the blocks.
    pub(crate) fn bytes_before(&self, key: &[u8]) -> Result<u64> {
        let Loaded { properties, file_bytes, .. } = self.try_loaded()?;
        if !properties.range.end.admits(key) {
            return Ok(*file_bytes);
        }
        let end = self.blocks_end();
        let before = if self.blocks() > 0 { self.extent_of(key)?.1.start } else { end };
        Ok((u128::from(before) * u128::from(*file_bytes) / u128::from(end.max(1))) as u64)
    }

    /// Returns the number and the position of the first block that may hold `key`. The table has blocks.
    fn extent_of(&self, key: &[u8]) -> Result<(usize, Range<u64>)> {
        let pin = pin();
        let index = self.index_in(Wanted::Key(key), true, &pin)?;
        let number = index.find(key);
        Ok((number, index.extent(number)))
    }

    /// Returns approximately how many bytes of blocks hold keys in `start..end`, without the blocks at both
    /// ends. Returns 0 if the table cannot be read.
    pub(crate) fn bytes_between(&self, start: &[u8], end: &[u8]) -> u64 {
        let between = || {
            self.ready()?;
            let properties = self.properties();
            if properties.blocks == 0 || start >= end {
                return Ok(0);
            }
            let from = match start <= properties.range.start.as_slice() {
                true => 0,
                false => self.extent_of(start)?.1.end,
            };
            let to = match properties.range.end.admits(end) {
                true => self.extent_of(end)?.1.start,
                false => self.blocks_end(),
            };
            Ok::<_, Error>(to.saturating_sub(from))
        };
        between().unwrap_or(0)
    }

    /// Cuts the part of the table in `range` into at most `count` pieces. Returns the start of each, or a key
    /// in the range shortly before its first key, and the bytes of its blocks.
    pub(crate) fn pieces(&self, range: &KeyRange, count: usize) -> Result<Vec<(Vec<u8>, u64)>> {
        self.ready()?;
        let own = &self.properties().range;
        if self.blocks() == 0 || !own.overlaps(range) {
            return Ok(Vec::new());
        }
        let start = own.start.as_slice().max(&range.start);
        let (first, extent) = self.extent_of(start)?;
        let (last, end) = match own.end.admits(range.end.key()) {
            true => self.extent_of(range.end.key()).map(|(last, extent)| (last, extent.end))?,
            false => (self.blocks() - 1, self.blocks_end()),
        };
        let step = (last + 1 - first).div_ceil(count.max(1));
        let mut pieces = vec![(start.to_vec(), extent.start)];
        for block in (first..=last).step_by(step).skip(1) {
            let pin = pin();
            let index = self.index_in(Wanted::Block(block), true, &pin)?;
            let separator = index.separator(block).expect("the page has the block").concat();
            // The last block may hold only keys from the end of the range on.
            if range.end.admits(&separator) {
                pieces.push((separator, index.extent(block).start));
            }
        }
        // The end of a piece is the start of the next one.
        let ends: Vec<_> = pieces.iter().skip(1).map(|(_, start)| *start).chain([end]).collect();
        Ok(pieces.into_iter().zip(ends).map(|((key, start), end)| (key, end - start)).collect())
    }
}
