//! Partitions: key ranges that can be compacted independently, because no table crosses their ends.
//!
//! ```text
//!   L0    [a--d]      [k---p]  [r-t]
//!   base  [a-c][d-f][g-j][k-m][n-q]
//!         `-- 1 --' `-2-'`-- 3 ---' `4-'
//! ```
//!
//! - Partitions are in key order and share no key. Each table is in exactly one; runs come newest first.
//! - A partition contains every table that shares a key with its range.
//! - Fences are first keys of base tables. For the same base tables, a coarser choice of fences is a subset
//!   of every finer one, because the choice depends on each key alone. So runs that were cut at different
//!   times share their cuts and do not join partitions.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::encoding::hash::key_hash;
use crate::manifest::level::Level;
use crate::manifest::version::{LiveTable, Run, Version};
use crate::types::FileId;
use crate::types::key_range::KeyRange;

/// An output is not cut into pieces smaller than this fraction of a table: as files they cost more than they
/// save.
const PIECE_PART: u64 = 16;

/// A table and its run.
#[derive(Debug)]
pub(crate) struct Member<'a, T> {
    /// Index of the run; 0 is the newest.
    pub run_index: usize,
    /// The run.
    pub run: &'a Run<T>,
    /// The table.
    pub table: &'a LiveTable<T>,
}

/// A closed key range with its tables.
#[derive(Debug)]
pub(crate) struct Partition<'a, T> {
    /// The range from the first to the last key of the tables.
    pub range: KeyRange,
    /// The tables, newest run first, in key order within a run.
    pub members: Vec<Member<'a, T>>,
}

impl<T> Clone for Member<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Member<'_, T> {}

impl<T> Clone for Partition<'_, T> {
    fn clone(&self) -> Self {
        Partition { range: self.range.clone(), members: self.members.clone() }
    }
}

impl<'a, T> Partition<'a, T> {
    /// Joins adjacent partitions.
    pub(crate) fn join(parts: &[Partition<'a, T>]) -> Self {
        let mut range = parts[0].range.clone();
        range.end = parts[parts.len() - 1].range.end.clone();
        let mut members: Vec<_> = parts.iter().flat_map(|p| p.members.iter().copied()).collect();
        members.sort_by_key(|m| m.run_index);
        Partition { range, members }
    }

    /// Returns the bytes of all tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.members.iter().map(|m| m.table.meta.file_bytes).sum()
    }

    /// Returns the tables above the base.
    pub(crate) fn upper(&self) -> impl Iterator<Item = &Member<'a, T>> {
        self.members.iter().filter(|m| m.run.level != Level::BASE)
    }

    /// Returns the bytes of the tables above the base.
    pub(crate) fn upper_bytes(&self) -> u64 {
        self.upper().map(|m| m.table.meta.file_bytes).sum()
    }

    /// Returns whether it contains one of these tables.
    pub(crate) fn holds_one_of(&self, files: &BTreeSet<FileId>) -> bool {
        !files.is_empty() && self.members.iter().any(|m| files.contains(&m.table.file))
    }
}

/// Returns the partitions of these runs, as small as possible. `first_index` is the index of the
/// first run in the version.
pub(crate) fn partitions<T>(runs: &[Arc<Run<T>>], first_index: usize) -> Vec<Partition<'_, T>> {
    let mut tables: Vec<Member<'_, T>> = Vec::new();
    for (offset, run) in runs.iter().enumerate() {
        let member = |table| Member { run_index: first_index + offset, run: &**run, table };
        tables.extend(run.tables().iter().map(|table| member(&**table)));
    }
    tables.sort_by(|a, b| a.table.meta.range.start.cmp(&b.table.meta.range.start));
    let mut partitions: Vec<Partition<'_, T>> = Vec::new();
    for member in tables {
        let range = &member.table.meta.range;
        match partitions.last_mut() {
            Some(open) if open.range.end.admits(&range.start) => {
                open.range.extend(range);
                open.members.push(member);
            }
            _ => partitions.push(Partition { range: range.clone(), members: vec![member] }),
        }
    }
    for partition in &mut partitions {
        partition.members.sort_by_key(|m| m.run_index);
    }
    partitions
}

/// Returns the tables that cannot be compacted because a table of their partition cannot be read. With
/// `into_base`, partitions extend over all runs, otherwise over one level.
pub(crate) fn stuck<T>(
    version: &Version<T>,
    unreadable: &BTreeSet<FileId>,
    into_base: bool,
) -> BTreeSet<FileId> {
    if unreadable.is_empty() {
        return BTreeSet::new();
    }
    let together = version.runs().chunk_by(|a, b| into_base || a.level == b.level);
    let all = together.flat_map(|runs| partitions(runs, 0));
    let stuck = all.filter(|p| p.holds_one_of(unreadable));
    stuck.flat_map(|p| p.members.iter().map(|m| m.table.file).collect::<Vec<_>>()).collect()
}

/// Returns the bytes of a run's tables that are not stuck; `None` if all are.
pub(crate) fn free_bytes<T>(run: &Run<T>, stuck: &BTreeSet<FileId>) -> Option<u64> {
    let bytes = |table: &LiveTable<T>| (!stuck.contains(&table.file)).then_some(table.meta.file_bytes);
    run.tables().iter().filter_map(|t| bytes(t)).reduce(|a, b| a + b)
}

/// Returns the keys at which runs above the base are cut, so that their tables fall into partitions with
/// about `partition_bytes` of base tables.
pub(crate) fn fences<T>(version: &Version<T>, partition_bytes: u64) -> Vec<Vec<u8>> {
    let Some(base) = version.base() else { return Vec::new() };
    let starts = base.tables().iter().skip(1).map(|t| t.meta.range.start.clone()).collect();
    // Half as many again, so that tables slightly below the full size do not halve the number of fences.
    let count_max = base.bytes().saturating_mul(3) / partition_bytes.max(1).saturating_mul(2);
    thinned(starts, count_max)
}

/// Returns the fences for an output of `output_bytes`: fewer if its pieces would be small compared to a
/// table.
pub(crate) fn fences_for(fences: Vec<Vec<u8>>, output_bytes: u64, table_bytes: u64) -> Vec<Vec<u8>> {
    thinned(fences, output_bytes.saturating_mul(PIECE_PART) / table_bytes.max(1))
}

/// Keeps at most `count_max` keys: those whose hash ends in the most zeros.
fn thinned(mut keys: Vec<Vec<u8>>, count_max: u64) -> Vec<Vec<u8>> {
    let mut zeros = 1;
    while keys.len() as u64 > count_max {
        keys.retain(|key| key_hash(key).trailing_zeros() >= zeros);
        zeros += 1;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::super::picker::tests::parse_version;
    use super::*;
    use crate::types::key_range::End;

    #[test]
    fn partitions_are_closed() {
        let version = parse_version("L0: 9[a-d] 8[k-p] 7[r-t]  base: 1[a-c] 2[d-f] 3[g-j] 4[k-m] 5[n-q]");
        let show = |p: &Partition<'_, ()>| {
            let files: Vec<_> = p.members.iter().map(|m| m.table.file.get()).collect();
            format!("{}-{}{files:?}", p.range.start.escape_ascii(), p.range.end.key().escape_ascii())
        };
        let shown: Vec<_> = partitions(version.runs(), 0).iter().map(show).collect();
        assert_eq!(shown, ["a-f[9, 1, 2]", "g-j[3]", "k-q[8, 4, 5]", "r-t[7]"]);
        let joined = Partition::join(&partitions(version.runs(), 0)[..2]);
        assert_eq!(show(&joined), "a-j[9, 1, 2, 3]");
        assert_eq!(joined.range.end, End::Included(b"j".to_vec()));
    }

    #[test]
    fn a_table_that_cannot_be_read_holds_up_its_partition_only() {
        let version =
            parse_version("L0: 9[a-d]3 8[k-p]4 / 7[r-t]5  base: 1[a-c] 2[d-f] 3[g-j] 4[k-m] 5[n-q]");
        let stuck = |files: &[u64]| stuck(&version, &files.iter().map(|&f| FileId::new(f)).collect(), true);
        let shown = |files: &[u64]| stuck(files).iter().map(|f| f.get()).collect::<Vec<_>>();
        assert_eq!((shown(&[]), shown(&[3]), shown(&[2])), (vec![], vec![3], vec![1, 2, 9]));
        assert_eq!(shown(&[5, 7]), [4, 5, 7, 8]);
        let free =
            |files: &[u64]| version.runs().iter().map(|r| free_bytes(r, &stuck(files))).collect::<Vec<_>>();
        let mib = |n: u64| Some(n << 20);
        assert_eq!(free(&[]), [mib(7), mib(5), mib(320)]);
        assert_eq!(free(&[5, 7]), [mib(3), None, mib(192)]);
    }

    #[test]
    fn coarser_fences_are_a_part_of_finer_ones() {
        let keys: Vec<Vec<u8>> = (0..1000).map(|i| format!("{i:04}").into_bytes()).collect();
        let mut finer = keys.clone();
        for count_max in [999, 500, 130, 20, 3, 0] {
            let coarser = thinned(keys.clone(), count_max);
            assert!(coarser.len() as u64 <= count_max && coarser.len() as u64 >= count_max / 4);
            assert!(coarser.iter().all(|key| finer.contains(key)));
            assert!(coarser.is_sorted());
            finer = coarser;
        }
        assert!(fences_for(keys, 5 << 20, 1 << 20).len() <= 80);
    }

    #[test]
    fn fences_are_first_keys_of_base_tables() {
        let version = parse_version("L0: 9[a-z]  base: 1[a-c]64 2[d-f]60 3[g-j]64");
        assert_eq!(fences(&version, 64 << 20), [b"d", b"g"]);
        assert!(fences(&version, 1 << 40).is_empty());
        assert!(fences(&parse_version("L0: 9[a-z]"), 1).is_empty());
    }
}
