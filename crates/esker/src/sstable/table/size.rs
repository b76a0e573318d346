//! Estimates how many bytes of a table belong to a range of keys, from the index alone.

use super::Table;
use super::loading::Loaded;
use crate::cache::pin;
use crate::types::Result;
use crate::types::key_range::KeyRange;

impl Table {
    /// Returns approximately how many bytes of the file precede `key`, with the resolution of a block. Index
    /// and filter are distributed evenly over the blocks.
    pub(crate) fn bytes_before(&self, key: &[u8]) -> Result<u64> {
        let Loaded { properties, file_bytes, .. } = self.try_loaded()?;
        if !properties.range.end.admits(key) {
            return Ok(*file_bytes);
        }
        let pin = pin();
        let index = self.index_in(&pin)?;
        let (number, end) = (index.find(key), index.blocks_end());
        let before = if number < index.len() { index.extent(number).start } else { end };
        Ok((u128::from(before) * u128::from(*file_bytes) / u128::from(end.max(1))) as u64)
    }

    /// Returns approximately how many bytes of blocks hold keys in `start..end`, without the blocks at both
    /// ends. Returns 0 if the table cannot be read.
    pub(crate) fn bytes_between(&self, start: &[u8], end: &[u8]) -> u64 {
        let pin = pin();
        let Ok(index) = self.index_in(&pin) else { return 0 };
        let properties = self.properties();
        if index.len() == 0 || start >= end {
            return 0;
        }
        let from = match start <= properties.range.start.as_slice() {
            true => 0,
            false => index.extent(index.find(start)).end,
        };
        let to = match properties.range.end.admits(end) {
            true => index.extent(index.find(end)).start,
            false => index.blocks_end(),
        };
        to.saturating_sub(from)
    }

    /// Cuts the part of the table in `range` into at most `count` pieces. Returns the start of each, or a key
    /// shortly before its first key, and the bytes of its blocks.
    pub(crate) fn pieces(&self, range: &KeyRange, count: usize) -> Result<Vec<(Vec<u8>, u64)>> {
        let pin = pin();
        let index = self.index_in(&pin)?;
        let own = &self.properties().range;
        if index.len() == 0 || !own.overlaps(range) {
            return Ok(Vec::new());
        }
        let start = own.start.as_slice().max(&range.start);
        let first = index.find(start);
        let last =
            if own.end.admits(range.end.key()) { index.find(range.end.key()) } else { index.len() - 1 };
        let step = (last + 1 - first).div_ceil(count.max(1));
        let piece = |block: usize| {
            let (prefix, suffix) = index.separator(block);
            let key = if block == first { start.to_vec() } else { [prefix, suffix].concat() };
            let end = index.extent((block + step - 1).min(last)).end;
            (key, end - index.extent(block).start)
        };
        Ok((first..=last).step_by(step).map(piece).collect())
    }
}
