//! A version: the sorted runs of tables at one moment. Immutable.
//!
//! ```text
//!   L0    run 9   [a--f][g--m]      newest: one run for each flush
//!         run 8   [a----k]
//!   tier  run 5   [b--h][i--z]      compacted L0 runs; below them larger tiers
//!   base  run 1   [a-c][d-h][i-z]   oldest: everything else
//! ```
//!
//! version.1. Runs are ordered newest first: for any key, the entries of a run are newer than those of later
//!     runs.
//! version.2. The tables of a run are in key order and do not overlap. All versions of a key in a run are in
//!     one table.
//! version.3. Runs are ordered by level, then by descending run id. The base level has at most one run.
//!
//! `T` is the open table (`Arc<Table>`). Policy and its tests work with `Version<()>` or any other `T`.

use std::cmp;
use std::collections::HashMap;
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::edit::{AddedTable, VersionEdit};
use super::level::{Level, RunId};
use super::overcounts::Overcounts;
use crate::blob::BlobSet;
use crate::sstable::{Counts, Table, TableMeta};
use crate::types::bounds::BoundKey;
use crate::types::key::{common_prefix_len, head8};
use crate::types::key_range::{End, KeyRange};
use crate::types::{FileId, SeqNo};

/// A table that is part of a version.
#[derive(Debug)]
pub struct LiveTable<T = Arc<Table>> {
    /// Its file.
    pub file: FileId,
    /// Its metadata, known without opening it.
    pub meta: TableMeta,
    /// The open table.
    pub table: T,
}

/// Whether lookups in a run mostly hit. If they do, asking its filters first only costs a cache miss. Counts
/// a sample, so that readers on many cores do not contend for the counters. Relaxed: they order nothing.
#[derive(Debug, Default)]
pub struct Probes {
    hits: AtomicU32,
    misses: AtomicU32,
}

impl Probes {
    /// One lookup in this many is counted, chosen by the key's hash.
    const SAMPLE: u64 = 64;

    /// Records the outcome of a lookup.
    #[inline]
    pub fn note(&self, hash: u64, hit: bool) {
        if hash.is_multiple_of(Self::SAMPLE) {
            let counter = if hit { &self.hits } else { &self.misses };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns whether to ask the filter: unless four of five lookups hit, once 64 hits were counted.
    #[inline]
    pub fn filter_pays(&self) -> bool {
        let (hits, misses) = (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed));
        u64::from(hits) < 64 || u64::from(hits) < 4 * u64::from(misses)
    }
}

/// The first keys of a run's tables, in a form that can be searched without reading the keys.
#[derive(Debug)]
struct Starts {
    /// Common prefix of all keys. Empty, unless some heads would be equal without it.
    prefix: Vec<u8>,
    /// `head8` of each key without the prefix.
    heads: Vec<u64>,
}

impl Starts {
    /// For these keys, in order.
    fn of(keys: &[&[u8]]) -> Self {
        let heads = |from: usize| keys.iter().map(|key| head8(&key[from..])).collect::<Vec<_>>();
        let plain = heads(0);
        match (keys.first(), keys.last()) {
            (Some(first), Some(last)) if plain.windows(2).any(|pair| pair[0] == pair[1]) => {
                let shared = common_prefix_len(first, last);
                Starts { prefix: first[..shared].to_vec(), heads: heads(shared) }
            }
            _ => Starts { prefix: Vec::new(), heads: plain },
        }
    }

    /// `head8` of the key without the prefix. `Err`: the key does not have the prefix, and compares like this
    /// with all of them.
    #[inline]
    fn head(&self, key: &[u8]) -> Result<u64, cmp::Ordering> {
        if self.prefix.is_empty() {
            return Ok(head8(key));
        }
        key.strip_prefix(&*self.prefix).map(head8).ok_or_else(|| key.cmp(&self.prefix))
    }

    /// The keys that the heads cannot distinguish from this one. All earlier keys are smaller, all later ones
    /// greater.
    #[inline]
    fn like(&self, key: &[u8]) -> Range<usize> {
        match self.head(key) {
            Ok(head) => {
                let from = self.heads.partition_point(|&h| h < head);
                match self.heads.get(from) {
                    Some(&h) if h == head => from..from + self.heads[from..].partition_point(|&h| h == head),
                    _ => from..from,
                }
            }
            Err(cmp::Ordering::Greater) => self.heads.len()..self.heads.len(),
            Err(_) => 0..0,
        }
    }

    /// Returns whether the heads show that all keys are greater.
    #[inline]
    fn all_above(&self, key: &[u8]) -> bool {
        self.head(key).map_or_else(|order| order.is_lt(), |head| head < self.heads[0])
    }

    /// Returns whether the heads show that all keys are smaller.
    #[inline]
    fn all_below(&self, key: &[u8]) -> bool {
        self.head(key).map_or_else(|order| order.is_gt(), |head| head > self.heads[self.heads.len() - 1])
    }
}

/// A sorted run.
#[derive(Debug)]
pub struct Run<T = Arc<Table>> {
    /// Its level.
    pub level: Level,
    /// Its number.
    pub id: RunId,
    tables: Vec<Arc<LiveTable<T>>>,
    /// The tables' first keys, for searching.
    starts: Starts,
    max_seq: SeqNo,
    range_tombstones: bool,
    /// Outcomes of its lookups.
    pub probes: Probes,
}

impl<T> Run<T> {
    /// A run of these tables.
    ///
    /// # Panics
    /// If there are none, or if two overlap (version.2).
    pub fn new(level: Level, id: RunId, mut tables: Vec<Arc<LiveTable<T>>>) -> Self {
        assert!(!tables.is_empty(), "a run has tables");
        tables.sort_by(|a, b| a.meta.range.start.cmp(&b.meta.range.start));
        for pair in tables.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            assert!(
                !a.meta.range.overlaps(&b.meta.range),
                "version.2: tables {} and {} overlap",
                a.file,
                b.file
            );
        }
        let starts = Starts::of(&tables.iter().map(|t| t.meta.range.start.as_slice()).collect::<Vec<_>>());
        let max_seq = tables.iter().map(|t| t.meta.counts.max_seq).max().unwrap_or_default();
        let range_tombstones = tables.iter().any(|t| t.meta.counts.range_tombstones > 0);
        Run { level, id, tables, starts, max_seq, range_tombstones, probes: Probes::default() }
    }

    /// The newest sequence number in it.
    #[inline]
    pub fn max_seq(&self) -> SeqNo {
        self.max_seq
    }

    /// Returns whether any of its tables has range tombstones.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.range_tombstones
    }

    /// The tables in key order. Never empty.
    pub fn tables(&self) -> &[Arc<LiveTable<T>>] {
        &self.tables
    }

    /// Number of tables whose range starts at or before `key`.
    #[inline]
    fn starting_by(&self, key: &[u8]) -> usize {
        let same = self.starts.like(key);
        same.start + self.tables[same].partition_point(|t| t.meta.range.start.as_slice() <= key)
    }

    /// Index of the table whose range contains `key`.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let at = self.starting_by(key).checked_sub(1)?;
        self.tables[at].meta.range.end.admits(key).then_some(at)
    }

    /// Index of the first table that may have keys `>= key`; `tables().len()` if there is none.
    pub fn first_from(&self, key: &[u8]) -> usize {
        let n = self.starting_by(key);
        if n > 0 && self.tables[n - 1].meta.range.end.admits(key) { n - 1 } else { n }
    }

    /// The tables that may have keys within these bounds.
    pub fn within(&self, lower: &Bound<BoundKey>, upper: &Bound<BoundKey>) -> Range<usize> {
        let count = self.tables.len();
        // Most walks cover a keyspace that contains most runs entirely. Then no search is needed.
        let start = match lower {
            Bound::Included(key) | Bound::Excluded(key) if self.starts.all_above(key) => 0,
            Bound::Included(key) => self.first_from(key),
            Bound::Excluded(key) => self.first_behind(key),
            Bound::Unbounded => 0,
        };
        let end = match upper {
            Bound::Included(key) | Bound::Excluded(key) if self.starts.all_below(key) => count,
            Bound::Included(key) => self.starting_by(key),
            Bound::Excluded(key) => self.count_before(key),
            Bound::Unbounded => count,
        };
        start..end.max(start)
    }

    /// Index of the first table that may have keys `> key`; `tables().len()` if there is none.
    fn first_behind(&self, key: &[u8]) -> usize {
        let n = self.first_from(key);
        let ends =
            |table: &Arc<LiveTable<T>>| matches!(&table.meta.range.end, End::Included(end) if end == key);
        n + usize::from(self.tables.get(n).is_some_and(ends))
    }

    /// Number of tables that may have keys `< key`.
    pub fn count_before(&self, key: &[u8]) -> usize {
        self.tables.partition_point(|t| t.meta.range.start.as_slice() < key)
    }

    /// The tables that share a key with `range`.
    pub fn overlapping(&self, range: &KeyRange) -> &[Arc<LiveTable<T>>] {
        let start = self.first_from(&range.start);
        let end = self.tables.partition_point(|t| range.end.admits(&t.meta.range.start));
        &self.tables[start..end.max(start)]
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.meta.file_bytes).sum()
    }
}

/// All runs, newest first.
pub struct Version<T = Arc<Table>> {
    runs: Vec<Arc<Run<T>>>,
    blobs: BlobSet,
    overcounts: Overcounts,
    entries: u64,
    unresolved: u64,
    expiring: u64,
}

impl<T> Version<T> {
    /// A version without tables.
    pub fn empty() -> Self {
        Version {
            runs: Vec::new(),
            blobs: BlobSet::default(),
            overcounts: Overcounts::default(),
            entries: 0,
            unresolved: 0,
            expiring: 0,
        }
    }

    /// What has to be subtracted from the counts of commits.
    #[inline]
    pub(crate) fn overcounts(&self) -> &Overcounts {
        &self.overcounts
    }

    /// Number of versions in tables.
    #[inline]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Number of unresolved versions in tables.
    #[inline]
    pub fn unresolved(&self) -> u64 {
        self.unresolved
    }

    /// Number of versions in tables that expire.
    #[inline]
    pub(crate) fn expiring(&self) -> u64 {
        self.expiring
    }

    /// A version of these runs.
    #[cfg(test)]
    pub(crate) fn of_runs(mut runs: Vec<Arc<Run<T>>>) -> Self {
        runs.sort_by(|a, b| a.level.cmp(&b.level).then(b.id.cmp(&a.id)));
        Version { runs, ..Version::empty() }
    }

    /// The runs, newest first (version.1).
    #[inline]
    pub fn runs(&self) -> &[Arc<Run<T>>] {
        &self.runs
    }

    /// The blob files.
    #[inline]
    pub(crate) fn blobs(&self) -> &BlobSet {
        &self.blobs
    }

    /// The same tables with these blob files.
    pub(crate) fn with_blobs(&self, blobs: BlobSet) -> Self {
        Version { runs: self.runs.clone(), blobs, overcounts: self.overcounts.clone(), ..*self }
    }

    /// All tables with their runs.
    pub fn tables(&self) -> impl Iterator<Item = (&Run<T>, &Arc<LiveTable<T>>)> {
        self.runs.iter().flat_map(|run| run.tables.iter().map(move |t| (&**run, t)))
    }

    /// The base run, if there is one.
    pub fn base(&self) -> Option<&Arc<Run<T>>> {
        self.runs.last().filter(|r| r.level == Level::BASE)
    }

    /// The version after an edit of tables. `opened` holds the handle of each table that the edit adds and
    /// this version does not have. A trivial move removes and adds the same file.
    ///
    /// # Panics
    /// If the edit removes a missing table, adds one without a handle, or breaks version.2.
    pub fn apply(&self, edit: &VersionEdit, mut opened: HashMap<FileId, T>) -> Self
    where
        T: Clone,
    {
        let mut runs: HashMap<(Level, RunId), Vec<Arc<LiveTable<T>>>> = HashMap::new();
        let mut removed: HashMap<FileId, Arc<LiveTable<T>>> = HashMap::new();
        for run in &self.runs {
            for table in &run.tables {
                if edit.removed.contains(&table.file) {
                    removed.insert(table.file, table.clone());
                } else {
                    runs.entry((run.level, run.id)).or_default().push(table.clone());
                }
            }
        }
        assert_eq!(removed.len(), edit.removed.len(), "an edit removes tables that are there");
        for AddedTable { file, level, run, meta } in &edit.added {
            let live = match removed.get(file) {
                Some(moved) => moved.clone(),
                None => {
                    let table = opened.remove(file).expect("an added table is opened first");
                    Arc::new(LiveTable { file: *file, meta: meta.clone(), table })
                }
            };
            runs.entry((*level, *run)).or_default().push(live);
        }
        let mut runs: Vec<_> =
            runs.into_iter().map(|((level, id), tables)| Arc::new(Run::new(level, id, tables))).collect();
        runs.sort_by(|a, b| a.level.cmp(&b.level).then(b.id.cmp(&a.id)));
        let bases = runs.iter().filter(|r| r.level == Level::BASE).count();
        assert!(bases <= 1, "version.3: one base run");
        let mut overcounts = self.overcounts.clone();
        overcounts.extend(&edit.overcounts);
        let counts = runs.iter().flat_map(|run| &run.tables).map(|table| &table.meta.counts);
        let sum = |(entries, unresolved, expiring), counts: &Counts| {
            (entries + counts.entries, unresolved + counts.unresolved, expiring + counts.expiring)
        };
        let (entries, unresolved, expiring) = counts.fold((0, 0, 0), sum);
        Version { runs, blobs: self.blobs.clone(), overcounts, entries, unresolved, expiring }
    }
}

impl<T> fmt::Debug for Version<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in &self.runs {
            write!(f, "L{} run {}:", run.level.get(), run.id.0)?;
            for t in &run.tables {
                let (start, end) = (t.meta.range.start.escape_ascii(), t.meta.range.end.key().escape_ascii());
                write!(f, " {}[{start}..{end}]", t.file)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sstable::{Counts, Fingerprint};
    use crate::types::key_range::End;

    fn added(file: u64, level: Level, run: u64, start: &str, end: &str) -> AddedTable {
        let range = KeyRange { start: start.into(), end: End::Included(end.into()) };
        let meta = TableMeta {
            blobs: Default::default(),
            file_bytes: 0,
            range,
            counts: Counts::default(),
            fingerprint: Fingerprint::default(),
            base_seq: SeqNo::ZERO,
        };
        AddedTable { file: FileId::new(file), level, run: RunId(run), meta }
    }

    fn apply(version: &Version<()>, removed: &[u64], added: Vec<AddedTable>) -> Version<()> {
        let opened = added.iter().map(|a| (a.file, ())).collect();
        let removed = removed.iter().map(|&f| FileId::new(f)).collect();
        version.apply(&VersionEdit { removed, added, ..VersionEdit::default() }, opened)
    }

    fn sample() -> Version<()> {
        let tables = vec![
            added(1, Level::BASE, 1, "a", "c"),
            added(2, Level::BASE, 1, "e", "g"),
            added(3, Level::L0, 2, "b", "f"),
            added(4, Level::L0, 3, "x", "z"),
            added(5, Level::TIER, 2, "x", "z"),
        ];
        apply(&Version::empty(), &[], tables)
    }

    #[test]
    fn tables_whose_keys_begin_alike_are_found() {
        let key = |n: u64| format!("a long prefix that all have {n:04}");
        let tables = (0..1000).map(|n| added(n + 1, Level::BASE, 1, &key(2 * n), &key(2 * n))).collect();
        let version = apply(&Version::empty(), &[], tables);
        let run = version.base().unwrap();
        for n in 0..2000 {
            let found = (n % 2 == 0).then_some(n as usize / 2);
            assert_eq!(run.find(key(n).as_bytes()), found, "{n}");
            assert_eq!(run.first_from(key(n).as_bytes()), n.div_ceil(2) as usize, "{n}");
        }
        assert_eq!((run.find(b"a long"), run.find(b"b")), (None, None));
        assert_eq!((run.first_from(b"a long"), run.first_from(b"b")), (0, 1000));
        let within = |lower: &[u8], upper: &[u8]| {
            run.within(&Bound::Included(BoundKey::copy_of(lower)), &Bound::Excluded(BoundKey::copy_of(upper)))
        };
        let (key10, key21) = (key(10), key(21));
        assert_eq!(
            [within(b"a", b"b"), within(b"a", b"a long"), within(b"b", b"c")],
            [0..1000, 0..0, 1000..1000]
        );
        assert_eq!(
            [within(key10.as_bytes(), key21.as_bytes()), within(key10.as_bytes(), b"b")],
            [5..11, 5..1000]
        );
    }

    #[test]
    fn version_1_version_3_runs_stand_newest_first() {
        let version = sample();
        let text = "L0 run 3: 4[x..z]\nL0 run 2: 3[b..f]\nL1 run 2: 5[x..z]\nL7 run 1: 1[a..c] 2[e..g]\n";
        assert_eq!(format!("{version:?}"), text);
        assert_eq!(version.base().map(|r| r.tables().len()), Some(2));
        assert_eq!(version.tables().count(), 5);
        let after = apply(&version, &[3, 4], vec![added(4, Level::BASE, 1, "x", "z")]);
        assert_eq!(format!("{after:?}"), "L1 run 2: 5[x..z]\nL7 run 1: 1[a..c] 2[e..g] 4[x..z]\n");
    }

    #[test]
    fn a_run_finds_the_table_of_a_key() {
        let version = sample();
        let base = version.base().unwrap();
        let find = |k: &str| base.find(k.as_bytes());
        assert_eq!(
            [find("Z"), find("a"), find("c"), find("d"), find("e"), find("gg")],
            [None, Some(0), Some(0), None, Some(1), None]
        );
        let first = |k: &str| base.first_from(k.as_bytes());
        assert_eq!([first(""), first("c"), first("d"), first("g"), first("h")], [0, 0, 1, 1, 2]);
        let before = |k: &str| base.count_before(k.as_bytes());
        assert_eq!([before("a"), before("b"), before("e"), before("f")], [0, 1, 1, 2]);
        let over = |s: &str, e: &str| {
            let range = KeyRange { start: s.into(), end: End::Included(e.into()) };
            base.overlapping(&range).iter().map(|t| t.file.get()).collect::<Vec<_>>()
        };
        assert_eq!((over("c", "e"), over("d", "d"), over("h", "z")), (vec![1, 2], vec![], vec![]));
    }

    #[test]
    #[should_panic(expected = "version.2")]
    fn version_2_overlapping_tables_are_refused() {
        apply(&sample(), &[], vec![added(9, Level::BASE, 1, "c", "d")]);
    }
}
