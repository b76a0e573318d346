//! The merge of sorted sources: all versions of all their keys, in the order of tables.
//!
//! ```text
//!   memtable  --MemtableScan-.
//!   run       --TableScan, table after table--> MergeScan --> EntryRef, EntryRef, ...
//! ```
//!
//! compaction_merge.1. Entries come by key ascending, then sequence number descending, then newest source first.
//! compaction_merge.2. Nothing is copied: an entry borrows from the source that it comes from.
//!
//! Sources are few, and neighbouring entries mostly come from the same one. So the merge keeps the leader and the
//! runner-up: while the leader's next entry still comes before the runner-up's, that is one comparison, and none with a
//! single source; else all sources are looked through.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::memtable::MemtableScan;
use crate::sstable::{Table, TableScan};
use crate::types::Result;
use crate::types::entry::EntryRef;
use crate::types::key::head8;

/// The tables of one run, in key order, one after the other.
pub(crate) struct RunScan {
    tables: std::vec::IntoIter<Arc<Table>>,
    scan: Option<TableScan>,
}

impl RunScan {
    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(scan) = &mut self.scan
                && scan.advance()?
            {
                return Ok(true);
            }
            match self.tables.next() {
                Some(table) => self.scan = Some(table.scan()),
                None => return Ok(false),
            }
        }
    }
}

/// One sorted source.
pub(crate) enum Source {
    /// A memtable.
    Memtable(MemtableScan),
    /// A run.
    Run(RunScan),
}

impl Source {
    /// The tables of a run, in key order.
    pub(crate) fn run(tables: Vec<Arc<Table>>) -> Self {
        Source::Run(RunScan { tables: tables.into_iter(), scan: None })
    }

    fn advance(&mut self) -> Result<bool> {
        match self {
            Source::Memtable(scan) => Ok(scan.next().is_some()),
            Source::Run(run) => run.advance(),
        }
    }

    /// The key of the entry.
    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Source::Memtable(scan) => scan.current().key,
            Source::Run(run) => run.scan.as_ref().expect("advance found an entry").key(),
        }
    }

    #[inline]
    fn current(&self) -> EntryRef<'_> {
        match self {
            Source::Memtable(scan) => scan.current(),
            Source::Run(run) => run.scan.as_ref().expect("advance found an entry").current(),
        }
    }
}

/// A source that stands on an entry.
struct Standing {
    source: Source,
    /// `head8` of the entry's key.
    head: u64,
    /// Place among the sources, 0 is the newest.
    rank: usize,
}

impl Standing {
    fn order(&self, other: &Standing) -> Ordering {
        let newer_first = || other.source.current().seq.cmp(&self.source.current().seq);
        let by_key = || self.source.key().cmp(other.source.key());
        self.head.cmp(&other.head).then_with(by_key).then_with(newer_first).then(self.rank.cmp(&other.rank))
    }

    /// Moves on; false at the end.
    fn advance(&mut self) -> Result<bool> {
        let found = self.source.advance()?;
        if found {
            self.head = head8(self.source.key());
        }
        Ok(found)
    }
}

/// The merge.
pub(crate) struct MergeScan {
    /// Those that have entries left.
    standing: Vec<Standing>,
    leader: usize,
    runner_up: Option<usize>,
    started: bool,
}

impl MergeScan {
    /// A merge of these sources, newest first, before its first entry.
    pub(crate) fn new(sources: impl IntoIterator<Item = Source>) -> Result<Self> {
        let mut standing = Vec::new();
        for (rank, source) in sources.into_iter().enumerate() {
            let mut one = Standing { source, head: 0, rank };
            if one.advance()? {
                standing.push(one);
            }
        }
        let mut merge = MergeScan { standing, leader: 0, runner_up: None, started: false };
        merge.find_leaders();
        Ok(merge)
    }

    /// The next entry; none after the last. Not an `Iterator`, since an entry borrows the scan.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<EntryRef<'_>>> {
        if std::mem::replace(&mut self.started, true) && !self.standing.is_empty() {
            if !self.standing[self.leader].advance()? {
                self.standing.swap_remove(self.leader);
                self.find_leaders();
            } else if let Some(runner_up) = self.runner_up
                && self.standing[self.leader].order(&self.standing[runner_up]).is_gt()
            {
                self.find_leaders();
            }
        }
        Ok(self.standing.get(self.leader).map(|one| one.source.current()))
    }

    /// Which source the entry that `next` returned comes from, counted from the newest.
    pub(crate) fn rank(&self) -> usize {
        self.standing[self.leader].rank
    }

    fn find_leaders(&mut self) {
        (self.leader, self.runner_up) = (0, None);
        for i in 1..self.standing.len() {
            let one = &self.standing[i];
            if one.order(&self.standing[self.leader]).is_lt() {
                (self.leader, self.runner_up) = (i, Some(self.leader));
            } else if self.runner_up.is_none_or(|second| one.order(&self.standing[second]).is_lt()) {
                self.runner_up = Some(i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Memtable;
    use crate::types::SeqNo;
    use crate::types::op::Kind;

    fn memtable(words: &[(&str, u64)]) -> Source {
        let memtable = Memtable::new(1000);
        let mut applier = memtable.applier();
        let mut words = words.to_vec();
        words.sort_by_key(|w| w.1);
        for (key, seq) in words {
            let key = key.as_bytes();
            memtable
                .insert(&mut applier, EntryRef { key, seq: SeqNo::new(seq), kind: Kind::Put, value: key });
        }
        Source::Memtable(memtable.scan())
    }

    fn merged(sources: Vec<Source>) -> String {
        let mut scan = MergeScan::new(sources).unwrap();
        let mut out = Vec::new();
        while let Some(entry) = scan.next().unwrap() {
            assert_eq!(entry.key, entry.value);
            out.push(format!("{}{}", entry.key.escape_ascii(), entry.seq));
        }
        assert!(scan.next().unwrap().is_none());
        out.join(" ")
    }

    #[test]
    fn compaction_merge_1_sources_come_out_as_one_sequence() {
        assert_eq!(merged(vec![]), "");
        assert_eq!(merged(vec![memtable(&[])]), "");
        assert_eq!(merged(vec![memtable(&[("a", 1), ("a", 2), ("b", 1)])]), "a2 a1 b1");
        let two = vec![memtable(&[("b", 9), ("c", 8)]), memtable(&[("a", 1), ("b", 2), ("d", 3)])];
        assert_eq!(merged(two), "a1 b9 b2 c8 d3");
        let long = ["same-head-0", "same-head-1", "same-head-2"];
        let three = (0..3).map(|i| memtable(&[(long[i], 10 - i as u64), (long[2 - i], 5 - i as u64)]));
        assert_eq!(
            merged(three.collect()),
            "same-head-010 same-head-03 same-head-19 same-head-14 same-head-28 same-head-25"
        );
    }

    #[test]
    fn compaction_merge_1_random_sources_agree_with_sorting() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut all = Vec::new();
            let mut sources = Vec::new();
            let count = rng.u64(1..8);
            for source in 0..count {
                let words: std::collections::BTreeSet<_> = (0..rng.usize(0..30))
                    .map(|_| (format!("key-{}", rng.u8(0..20)), (count - source) * 100 + rng.u64(0..9)))
                    .collect();
                let words: Vec<_> = words.iter().map(|(k, s)| (k.as_str(), *s)).collect();
                sources.push(memtable(&words));
                all.extend(words.iter().map(|&(k, s)| (k.to_owned(), std::cmp::Reverse(s))));
            }
            all.sort();
            let expected: Vec<_> = all.iter().map(|(k, s)| format!("{k}{}", s.0)).collect();
            assert_eq!(merged(sources), expected.join(" "), "seed {seed}");
        }
    }
}
