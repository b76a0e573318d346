//! Salvages the tables of a damaged database: the newest readable version of each key, tombstones applied.
//!
//! ```text
//!   tables by first key --opened when reached--> heap by (key, newest first) --> put, or nothing
//!   all range tombstones ---------------------------'
//! ```
//!
//! A table with an unknown first key is opened first, so keys come out in ascending order.
//!
//! - Versions with one number come from runs of one large commit, or from copies of one table. The one in the
//!   newest run of the manifest counts, or without a manifest the one in the newest file.
//! - For a table that the manifest describes, keys outside its stated range are ignored: a table without
//!   properties may be another one.
//! - A table whose parts are sound but do not match its fingerprint is reported as a whole: some parts belong
//!   to another database's table.
//! - A table is opened twice, for the survey and for reading. Damage that only the second pass finds is also
//!   reported.
//!
//! tables.6. The entries of an adopted table belong to the commit that the manifest names.
//!     Without that, the table looks like a private table of a transaction that never committed: neither the
//!     file nor the log has its number. It may hold all of a large import, so it is kept. It counts as older
//!     than all other tables, and its keys are reported as a loss.
//! - A large commit may consist of several runs with one number. If the newest run with a key is
//!   damaged, which is reported, the key may get a value that the commit itself replaced.
//! - Operands are taken down to the version that ends the search. The new database merges them. Without a
//!   whole manifest, inputs of a compaction may exist next to its output. If a key has operands in one table
//!   and versions in another, they may be merged twice. That is reported.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use esker_env::Env;

use super::report::{LostKeys, RepairReport};
use super::sources::{Sources, TableSource};
use super::target::Target;
use crate::manifest::edit::AddedTable;
use crate::manifest::level::{Level, RunId};
use crate::sstable::{LostContent, SalvageScan, SalvageTable, TableDamage, TableMeta};
use crate::types::entry::EntryRef;
use crate::types::expiry::{Expiry, value_of};
use crate::types::key_range::KeyRange;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Error, FileId, Result, SeqNo};

/// A table that the merge has not reached.
struct Waiting<'s> {
    source: &'s TableSource,
    lower_bound: Vec<u8>,
    /// Its description in the manifest.
    described: Option<&'s AddedTable>,
    /// The commit of all its entries (tables.6), or zero.
    base: SeqNo,
    /// Damage that the survey has reported.
    reported: Vec<Reported>,
}

/// Reported damage: offset, number of bytes, content.
type Reported = (u64, u64, LostContent);

/// Puts the live entries of all tables into the target.
pub(super) fn salvage(
    env: &Env,
    mut surveyed: Survey<'_>,
    is_complete: bool,
    target: &mut Target,
    report: &mut RepairReport,
) -> Result<()> {
    // Tables are popped from the end.
    surveyed.waiting.sort_by(|a, b| b.lower_bound.cmp(&a.lower_bound));
    target.newest_flushed = target.newest_flushed.max(surveyed.newest_commit);
    let tombstones = RangeTombstones::union(&surveyed.tombstones);
    let mut merge = Merge { env, waiting: surveyed.waiting, open: Vec::new(), heap: BinaryHeap::new() };
    let mut last: Option<Vec<u8>> = None;
    let mut operands = Operands::default();
    while let Some((key, seq, at)) = merge.next(report)? {
        // An equal key is an older version. A smaller one comes from a table that does not begin where it
        // says, and is skipped.
        let is_new = last.as_ref().is_none_or(|last| *last < key);
        if is_new && let Some(last) = last.replace(key.clone()) {
            operands.finish(&last, target)?;
        }
        if is_new || operands.is_open && last.as_ref() == Some(&key) {
            let entry = merge.entry(at);
            let is_hidden = seq < tombstones.cover(&key, SeqNo::MAX);
            if !is_hidden && operands.are_doubtful(entry, at, is_complete) {
                let detail = "a key has operands in several tables, and without a manifest nothing says whether one has been made of \
                              the others: they may be merged twice";
                let error = Error::corrupt("table", merge.path(at), 0, detail);
                report.lose(error, 0, LostKeys::between(Some(&key), Some(&key)));
            }
            let beside = value_of(entry.kind, entry.value);
            let expiry = Expiry::of_version(entry.kind, entry.value);
            operands.is_open = entry.kind.is_operand() && !is_hidden;
            if operands.is_open {
                operands.lists.push((entry.value.to_vec(), at));
            } else if entry.kind.needs_fetch() && !is_hidden {
                match target.blobs.read(beside) {
                    Ok(value) => target.put(&key, expiry, &value, report)?,
                    Err(error) => report.lose(error, 0, LostKeys::between(Some(&key), Some(&key))),
                }
            } else if entry.kind.is_live() && !is_hidden {
                target.put(&key, expiry, beside, report)?;
            }
        } else if last.as_ref().is_some_and(|last| *last > key) {
            let error =
                Error::corrupt("table", merge.path(at), 0, "it begins below the first key that it states");
            report.lose(error, 0, LostKeys::between(Some(&key), Some(&key)));
        }
        merge.advance(at, report);
    }
    last.map_or(Ok(()), |last| operands.finish(&last, target))
}

/// The operands of the current key.
#[derive(Default)]
struct Operands {
    /// Lists of operands, newest first, with the scans that they come from.
    lists: Vec<(Vec<u8>, usize)>,
    /// Whether older versions of the key are needed.
    is_open: bool,
}

impl Operands {
    /// Returns whether an older version may already contain these operands.
    fn are_doubtful(&self, entry: EntryRef<'_>, at: usize, is_complete: bool) -> bool {
        !is_complete && entry.kind.is_live() && self.lists.iter().any(|(_, of)| *of != at)
    }

    /// Ends a key: the target merges the lists.
    fn finish(&mut self, key: &[u8], target: &mut Target) -> Result<()> {
        self.is_open = false;
        let lists: Vec<u8> = self.lists.drain(..).rev().flat_map(|(list, _)| list).collect();
        if lists.is_empty() { Ok(()) } else { target.merge(key, &lists) }
    }
}

/// The result of a first pass over all tables.
pub(super) struct Survey<'s> {
    waiting: Vec<Waiting<'s>>,
    tombstones: Vec<RangeTombstones>,
    /// The newest commit that some table claims to contain.
    newest_commit: SeqNo,
}

/// Reads all parts of all tables except their blocks. Writes nothing.
pub(super) fn survey<'s>(env: &Env, sources: &'s Sources, report: &mut RepairReport) -> Result<Survey<'s>> {
    let mut out = Survey { waiting: Vec::new(), tombstones: Vec::new(), newest_commit: SeqNo::ZERO };
    let mut unaccounted: Vec<&AddedTable> = sources.described.iter().collect();
    for source in &sources.tables {
        let table = match SalvageTable::open(env, &source.path) {
            Ok(table) => table,
            Err(error @ Error::UnsupportedVersion { .. }) => return Err(error),
            Err(error) => {
                let described = sources.described.iter().find(|added| added.file == source.file);
                let bytes = described.map_or(0, |added| added.meta.file_bytes);
                report.lose(error, bytes, LostKeys::of_table(described.map(|added| &added.meta.range)));
                unaccounted.retain(|added| added.file != source.file);
                continue;
            }
        };
        let described = describe(&table, source.file, &sources.described);
        if sources.complete && described.is_none() {
            // A foreign table. The table that it replaces is reported below.
            let path = source.path.display();
            report.notes.push(format!("{path} is not a table that the manifest describes: it is left out"));
            continue;
        }
        if let Some(described) = described {
            unaccounted.retain(|added| added.file != described.file);
            if !is_proven(&table, described) {
                let detail = "nothing proves that it is the table that the manifest describes";
                let error = Error::corrupt("table", &source.path, 0, detail);
                report.lose(error, 0, LostKeys::of_table(Some(&described.meta.range)));
            }
        }
        // A flush or compaction may have dropped the numbers of entries, but records the newest commit.
        let numbered = table.properties.as_ref().map(|properties| properties.counts.max_seq);
        out.newest_commit = out.newest_commit.max(table.newest_commit().max(numbered).unwrap_or_default());
        let reported = report_new(&table, described, &[], report);
        let covered = described.map(|added| &added.meta.range);
        let base = base_of(&table, source, described, report);
        out.tombstones.push(within(&table.tombstones, covered).based(base));
        out.waiting.push(Waiting { source, lower_bound: table.lower_bound(), described, base, reported });
        report.tables += 1;
    }
    // Missing files were reported already.
    unaccounted.retain(|added| sources.tables.iter().any(|source| source.file == added.file));
    for added in unaccounted {
        let source = sources.tables.iter().find(|source| source.file == added.file);
        let path = source.map(|source| source.path.clone()).unwrap_or_default();
        let error = Error::corrupt("table", path, 0, "another file is in its place");
        report.lose(error, added.meta.file_bytes, LostKeys::of_table(Some(&added.meta.range)));
    }
    Ok(out)
}

/// Returns the manifest's description of this table: that of its file, or of another if files were swapped.
/// `None` for a foreign table.
fn describe<'s>(table: &SalvageTable, file: FileId, described: &'s [AddedTable]) -> Option<&'s AddedTable> {
    let own = described.iter().find(|added| added.file == file);
    if table.properties.is_none() {
        return own;
    }
    let is = |added: &&AddedTable| is_as_stated(table, &added.meta);
    own.filter(is).or_else(|| described.iter().find(is))
}

/// Returns whether a table's properties match its description in the manifest.
fn is_as_stated(table: &SalvageTable, meta: &TableMeta) -> bool {
    table.properties.as_ref().is_some_and(|p| {
        let (range, fingerprint) = (p.range.clone(), p.fingerprint);
        let stated = TableMeta { range, fingerprint, counts: p.counts, ..meta.clone() };
        stated.based(meta.base_seq) == *meta
    })
}

/// Returns the commit of all entries of a table, or zero (tables.6).
fn base_of(
    table: &SalvageTable,
    source: &TableSource,
    described: Option<&AddedTable>,
    report: &mut RepairReport,
) -> SeqNo {
    let is_it = |added: &&AddedTable| table.properties.is_none() || is_as_stated(table, &added.meta);
    if let Some(added) = described.or(source.named.as_ref().filter(is_it)) {
        return added.meta.base_seq;
    }
    // Every flush and compaction writes the newest commit into the footer. If the footer is lost, the
    // numbers of entries still distinguish the table from a private one.
    let numbered = table.properties.as_ref().map_or(SeqNo::ZERO, |properties| properties.counts.max_seq);
    if table.newest_commit().unwrap_or(numbered) == SeqNo::ZERO {
        let detail = "a large transaction or an ingest may have made it, and the manifest that says when it was committed, or whether, \
                      cannot be read: what other tables or the log have of its keys is taken instead, and may be older; what only \
                      this table has is kept, and may never have been committed";
        let range = table.properties.as_ref().map(|properties| &properties.range);
        report.lose(Error::corrupt("table", &source.path, 0, detail), 0, LostKeys::of_table(range));
    }
    SeqNo::ZERO
}

/// Clips range tombstones to the range of the table.
fn within(tombstones: &RangeTombstones, range: Option<&KeyRange>) -> RangeTombstones {
    let Some(range) = range else { return tombstones.clone() };
    tombstones.clipped(range)
}

/// Returns whether all parts of the table, damaged or not, are known to belong to the described one, by its
/// properties or by its other parts.
fn is_proven(table: &SalvageTable, described: &AddedTable) -> bool {
    table.properties.is_some() || table.fingerprint() == Some(described.meta.fingerprint)
}

/// Reports unreadable parts of this table, except for blocks, unless they are in `reported`. Returns all
/// damage.
fn report_new(
    table: &SalvageTable,
    described: Option<&AddedTable>,
    reported: &[Reported],
    report: &mut RepairReport,
) -> Vec<Reported> {
    let stated = table.properties.as_ref().map(|properties| &properties.range);
    let range = described.map(|added| &added.meta.range).or(stated);
    let report_one = |damage: &TableDamage| {
        let this = (damage.start, damage.bytes, damage.lost.clone());
        if !reported.contains(&this) {
            report_damage(damage, range, report);
        }
        this
    };
    table.damage.iter().map(report_one).collect()
}

/// Reports damage of a table of this range.
fn report_damage(damage: &TableDamage, range: Option<&KeyRange>, report: &mut RepairReport) {
    let LostContent::Keys(low, high) = &damage.lost else {
        return report.notes.push(damage.error.to_string());
    };
    let low = low.as_deref().or(range.map(|range| range.start.as_slice()));
    let high = high.as_deref().or(range.map(|range| range.end.key()));
    let keys = LostKeys::between(low, high);
    report.lose_from(damage.start, damage.error.clone(), damage.bytes, keys);
}

/// Merges the entries of all tables, the newest version of each key first.
struct Merge<'s> {
    env: &'s Env,
    waiting: Vec<Waiting<'s>>,
    /// The scans, at the indexes used in the heap, each with the range of its table. `None` after the end.
    open: Vec<Option<Opened<'s>>>,
    heap: BinaryHeap<Reverse<HeapEntry>>,
}

/// A scan, the range of its table, and its base.
type Opened<'s> = (SalvageScan, Option<&'s KeyRange>, SeqNo);

/// Position of a table in the manifest, and its file. Newer tables come first.
type TableRank = (Level, Reverse<RunId>, Reverse<FileId>);

/// Key, then newest version, then newest table; and the index of the scan.
type HeapEntry = (Vec<u8>, Reverse<SeqNo>, TableRank, usize);

fn age_of(file: FileId, described: Option<&AddedTable>) -> TableRank {
    let (level, run) = described.map_or((Level::L0, RunId(0)), |added| (added.level, added.run));
    (level, Reverse(run), Reverse(file))
}

impl Merge<'_> {
    /// Returns the next version: its key, its number, and its scan, which stands on it until `advance`.
    fn next(&mut self, report: &mut RepairReport) -> Result<Option<(Vec<u8>, SeqNo, usize)>> {
        while self
            .waiting
            .last()
            .is_some_and(|next| self.heap.peek().is_none_or(|Reverse((key, ..))| next.lower_bound <= *key))
        {
            let Some(next) = self.waiting.pop() else { break };
            let range = next.described.map(|added| &added.meta.range);
            let scan = match SalvageTable::open(self.env, &next.source.path) {
                Ok(table) => {
                    report_new(&table, next.described, &next.reported, report);
                    table.scan()
                }
                Err(error @ Error::UnsupportedVersion { .. }) => return Err(error),
                Err(error) => {
                    report.lose(error, 0, LostKeys::of_table(range));
                    continue;
                }
            };
            let at = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
            if at == self.open.len() {
                self.open.push(None);
            }
            self.open[at] = Some((scan, range, next.base));
            self.push_next(at, age_of(next.source.file, next.described), report);
        }
        Ok(self.heap.peek().map(|Reverse((key, Reverse(seq), _, at))| (key.clone(), *seq, *at)))
    }

    /// Moves the scan whose entry `next` returned.
    fn advance(&mut self, at: usize, report: &mut RepairReport) {
        if let Some(Reverse((_, _, age, _))) = self.heap.pop() {
            self.push_next(at, age, report);
        }
    }

    fn push_next(&mut self, at: usize, age: TableRank, report: &mut RepairReport) {
        let (scan, range, base) = self.open[at].as_mut().expect("an open scan");
        while scan.advance() {
            let entry = scan.entry();
            if range.is_none_or(|range| range.contains(entry.key)) {
                self.heap.push(Reverse((entry.key.to_vec(), Reverse(entry.seq.max(*base)), age, at)));
                report.entries += 1;
                return;
            }
        }
        report.blocks += scan.blocks_read;
        let range = *range;
        scan.damage.iter().for_each(|damage| report_damage(damage, range, report));
        if scan.holds_other_parts() {
            let detail = "its parts do not match its fingerprint: some belong to another table";
            let error = Error::corrupt("table", scan.path(), 0, detail);
            report.lose(error, 0, LostKeys::of_table(range));
        }
        self.open[at] = None;
    }

    /// Returns the current entry of a scan in the heap.
    fn entry(&self, at: usize) -> EntryRef<'_> {
        self.open[at].as_ref().expect("the heap names open scans").0.entry()
    }

    fn path(&self, at: usize) -> std::path::PathBuf {
        self.open[at].as_ref().map(|(scan, ..)| scan.path().to_path_buf()).unwrap_or_default()
    }
}
