//! Merges sorted sources: returns all versions of all their keys in table order.
//!
//! ```text
//!   memtable  --MemtableScan-.
//!   piece     --PieceScan----+
//!   run       --TableScan, table after table--> MergeScan --> EntryRef, EntryRef, ...
//! ```
//!
//! Entries come by key ascending, then sequence number descending, then newest source first.
//!
//! Nothing is copied: an entry borrows from its source. The sources are in a heap. Consecutive entries mostly
//! come from the same source, which costs one or two comparisons, and none with a single source.

use std::sync::Arc;

use crate::memtable::{MemtableScan, PieceScan};
use crate::sstable::{Table, TableScan};
use crate::types::entry::EntryRef;
use crate::types::key::head8;
use crate::types::{Result, SeqNo};

/// Scans the tables of one run in key order.
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
    /// Sorted writes of a transaction.
    Piece(PieceScan),
    /// A run, and the number to give its entries; zero for their own.
    Run(RunScan, SeqNo),
}

impl Source {
    /// Returns a source for the tables of a run, in key order.
    pub(crate) fn run(tables: Vec<Arc<Table>>) -> Self {
        Self::run_as(tables, SeqNo::ZERO)
    }

    /// Returns a source for the tables of a run that gives entries of number zero the number `seq`.
    pub(crate) fn run_as(tables: Vec<Arc<Table>>, seq: SeqNo) -> Self {
        Source::Run(RunScan { tables: tables.into_iter(), scan: None }, seq)
    }

    fn advance(&mut self) -> Result<bool> {
        match self {
            Source::Memtable(scan) => Ok(scan.next().is_some()),
            Source::Piece(scan) => Ok(scan.advance()),
            Source::Run(run, _) => run.advance(),
        }
    }

    /// Returns the key of the current entry.
    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Source::Memtable(scan) => scan.current().key,
            Source::Piece(scan) => scan.key(),
            Source::Run(run, _) => run.scan.as_ref().expect("advance found an entry").key(),
        }
    }

    #[inline]
    fn current(&self) -> EntryRef<'_> {
        match self {
            Source::Memtable(scan) => scan.current(),
            Source::Piece(scan) => scan.current(),
            Source::Run(run, seq) => {
                let entry = run.scan.as_ref().expect("advance found an entry").current();
                EntryRef { seq: entry.seq.max(*seq), ..entry }
            }
        }
    }
}

/// A source that has a current entry.
#[derive(Clone, Copy)]
struct Standing {
    /// `head8` of the entry's key.
    head: u64,
    /// Index among the sources; 0 is the newest.
    rank: usize,
}

/// A scan over several sources.
pub(crate) struct MergeScan {
    /// Newest first.
    sources: Vec<Source>,
    /// The sources with entries left, as a binary heap: the children of index `i` are at `2i + 1` and `2i +
    /// 2`.
    heap: Vec<Standing>,
    started: bool,
}

impl MergeScan {
    /// Returns a scan of these sources, newest first, before its first entry.
    pub(crate) fn new(sources: impl IntoIterator<Item = Source>) -> Result<Self> {
        let mut merge =
            MergeScan { sources: sources.into_iter().collect(), heap: Vec::new(), started: false };
        for (rank, source) in merge.sources.iter_mut().enumerate() {
            if source.advance()? {
                merge.heap.push(Standing { head: head8(source.key()), rank });
            }
        }
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(at);
        }
        Ok(merge)
    }

    /// Returns the next entry; `None` after the last. Not an `Iterator`, because an entry borrows the scan.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<EntryRef<'_>>> {
        if std::mem::replace(&mut self.started, true)
            && let Some(first) = self.heap.first_mut()
        {
            let source = &mut self.sources[first.rank];
            if source.advance()? {
                first.head = head8(source.key());
            } else {
                self.heap.swap_remove(0);
            }
            self.sift_down(0);
        }
        Ok(self.heap.first().map(|first| self.sources[first.rank].current()))
    }

    /// Returns the index of the source of the last returned entry; 0 is the newest.
    pub(crate) fn rank(&self) -> usize {
        self.heap[0].rank
    }

    /// Returns whether the current entry of `a` comes before that of `b`.
    #[inline]
    fn is_before(&self, a: Standing, b: Standing) -> bool {
        let (x, y) = (&self.sources[a.rank], &self.sources[b.rank]);
        let order = a.head.cmp(&b.head).then_with(|| x.key().cmp(y.key()));
        order.then_with(|| y.current().seq.cmp(&x.current().seq)).then(a.rank.cmp(&b.rank)).is_lt()
    }

    /// Moves a source down to its position in the heap.
    #[inline]
    fn sift_down(&mut self, mut at: usize) {
        while 2 * at + 1 < self.heap.len() {
            let mut first = 2 * at + 1;
            if first + 1 < self.heap.len() && self.is_before(self.heap[first + 1], self.heap[first]) {
                first += 1;
            }
            if !self.is_before(self.heap[first], self.heap[at]) {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Memtable;
    use crate::types::op::Kind;

    fn memtable(words: &[(&str, u64)]) -> Source {
        let memtable = Memtable::new(1000);
        let mut applier = memtable.applier();
        let mut words = words.to_vec();
        words.sort_by_key(|w| w.1);
        for (key, seq) in words {
            let key = key.as_bytes();
            memtable
                .insert(&mut applier, EntryRef { key, seq: SeqNo::new(seq), kind: Kind::PUT, value: key });
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
    fn sources_come_out_as_one_sequence() {
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
    fn random_sources_agree_with_sorting() {
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
