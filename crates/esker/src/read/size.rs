//! Estimates the bytes of a range of keys, and cuts ranges into parts of equal size, without reading entries.
//!
//! ```text
//!   memtables: inner nodes --.
//!   tables inside: manifest --+--> bytes of the range
//!   tables across its ends: index, by blocks --'`--> pieces in key order, with bytes --> split points
//! ```
//!
//! Values in blob files are divided among the entries of a table by the entries' bytes.

use super::view::ReadView;
use crate::manifest::version::LiveTable;
use crate::types::Result;
use crate::types::key_range::KeyRange;

/// Number of pieces of which a part is made.
const PIECES_PER_PART: u64 = 64;

/// Estimates the bytes of a table's file that belong to a range, with the resolution of a block.
pub(crate) fn bytes_of(live: &LiveTable, range: &KeyRange) -> Result<u64> {
    if range.includes(&live.meta.range) {
        return Ok(live.meta.file_bytes);
    }
    let end = live.table.bytes_before(range.end.key())?;
    Ok(end.saturating_sub(live.table.bytes_before(&range.start)?))
}

/// Estimates the bytes of a table and its values in blob files that belong to a range.
pub(crate) fn bytes_with_blobs(live: &LiveTable, range: &KeyRange) -> Result<u64> {
    let bytes = bytes_of(live, range)?;
    let blob_bytes = u128::from(live.meta.blobs.bytes()) * u128::from(bytes);
    Ok(bytes + (blob_bytes / u128::from(live.meta.file_bytes.max(1))) as u64)
}

impl ReadView {
    fn tables_in<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a LiveTable> {
        self.version.runs().iter().flat_map(|run| run.overlapping(range)).map(|live| &**live)
    }

    /// Estimates the bytes on disk of all versions of keys in a range, including those that are only in the
    /// log.
    pub(crate) fn approximate_size(&self, range: &KeyRange) -> Result<u64> {
        let in_memtables = self.memtables().map(|memtable| memtable.bytes_within(range)).sum::<u64>();
        self.tables_in(range).try_fold(in_memtables, |sum, live| Ok(sum + bytes_with_blobs(live, range)?))
    }

    /// Returns keys that cut a range into at most `parts` parts of about equal size, ascending.
    pub(crate) fn split_points(&self, range: &KeyRange, parts: u64) -> Result<Vec<Vec<u8>>> {
        let piece_bytes =
            (self.approximate_size(range)? / parts.max(1).saturating_mul(PIECES_PER_PART)).max(1);
        let mut pieces: Vec<(Vec<u8>, u64)> = Vec::new();
        for memtable in self.memtables() {
            let bytes = memtable.bytes_within(range);
            let keys = memtable.pieces(range, bytes / piece_bytes);
            let each = bytes / (keys.len() as u64).max(1);
            pieces.extend(keys.into_iter().map(|key| (key, each)));
        }
        for live in self.tables_in(range) {
            let bytes = bytes_with_blobs(live, range)?;
            let count = usize::try_from(bytes / piece_bytes).unwrap_or(usize::MAX);
            if count <= 1 {
                pieces.push((live.meta.range.start.clone(), bytes));
                continue;
            }
            let of_table = live.table.pieces(range, count)?;
            let block_bytes: u64 = of_table.iter().map(|(_, bytes)| bytes).sum();
            let share = |n: u64| (u128::from(bytes) * u128::from(n) / u128::from(block_bytes.max(1))) as u64;
            pieces.extend(of_table.into_iter().map(|(key, bytes)| (key, share(bytes))));
        }
        Ok(cut(pieces, &range.start, parts))
    }
}

/// Returns the keys above `start` at which the pieces, put in order, reach each multiple of an equal part.
fn cut(mut pieces: Vec<(Vec<u8>, u64)>, start: &[u8], parts: u64) -> Vec<Vec<u8>> {
    pieces.sort_unstable();
    let total: u128 = pieces.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    let (mut points, mut reached, mut before) = (Vec::<Vec<u8>>::new(), 1, 0);
    for (key, bytes) in pieces {
        let is_due = reached < u128::from(parts) && before * u128::from(parts) >= reached * total;
        if is_due && *key > *start && points.last() != Some(&key) {
            reached = before * u128::from(parts) / total.max(1) + 1;
            points.push(key);
        }
        before += u128::from(bytes);
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_into_equal_parts() {
        let cut = |text: &str, parts| {
            let piece = |word: &str| (word.as_bytes()[..1].to_vec(), word[1..].parse().unwrap());
            let points = cut(text.split_whitespace().map(piece).collect(), b"a", parts);
            points.iter().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(cut("a1 b1 c1 d1", 2), "c");
        assert_eq!(cut("d1 a1 c1 b1", 4), "b c d");
        assert_eq!(cut("a1 b1 c1 d1", 3), "c d");
        assert_eq!(cut("a1 b9 c1 d1", 4), "c", "a large piece makes fewer parts");
        assert_eq!(cut("a1 b1 b1 b1 c1", 5), "b c", "no key twice");
        assert_eq!([cut("a1", 4), cut("", 4), cut("a1 b1", 1), cut("a1 b1", 0)], ["", "", "", ""]);
        assert_eq!(cut("a0 b0", 2), "b");
    }
}
