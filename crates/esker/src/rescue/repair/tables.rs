//! The tables of a damaged database: the newest version of each key that can be read, tombstones honoured.
//!
//! ```text
//!   tables by first key --opened when the merge gets there--> heap by (key, newest first) --> put, or nothing
//!   all range tombstones ----------------------------------------'
//! ```
//!
//! tables.1. Of versions with one number (runs of one large commit, copies of one table) the one in the newest run counts, as the manifest has them;
//!      without it, the one in the newest file.
//! tables.2. A table whose first key is not known is opened first, so keys come out in ascending order.
//! tables.3. Of a table that the manifest describes nothing counts that lies outside the range that it states: a table without properties
//!      may be another one.
//! tables.4. A table whose parts are sound and do not add up to its fingerprint is told of as a whole: some are of another database's table.
//! tables.5. A table is opened twice, to be looked at and to be read. What only the second look finds damaged is told, too.
//! tables.6. What an adopted table holds is of the commit that the manifest names (sources.6). Without that nothing tells it from a private table of
//!      a transaction that never committed: no number in the file, no name of it in the log. It may hold all of a large import, so it is kept.
//!      It counts as older than all else, and its keys are told as a loss.
//! tables.7. A large commit may be several runs, of one number (tables.1). If the newest one with a key is damaged, which is told, the key may get a
//!      value that the commit itself replaced.
//! tables.8. Operands are taken down to the version that ends the search, and are merged by the new database. Without a whole manifest there may be
//!      tables that others were made of: if a key has operands in one and versions in another, they may be merged twice. That is told.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use esker_env::Env;

use super::report::{LostKeys, RepairReport};
use super::sources::{Sources, TableSource};
use super::target::Target;
use crate::manifest::edit::AddedTable;
use crate::manifest::version::{Level, RunId};
use crate::sstable::{LostContent, SalvageScan, SalvageTable, TableDamage, TableMeta};
use crate::types::entry::EntryRef;
use crate::types::expiry::{Expiry, value_of};
use crate::types::key_range::KeyRange;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Error, FileId, Result, SeqNo};

/// A table on its way into the merge.
struct Waiting<'s> {
    source: &'s TableSource,
    lower_bound: Vec<u8>,
    /// What the manifest says of it.
    described: Option<&'s AddedTable>,
    /// The commit that all of it is of (tables.6), or zero.
    base: SeqNo,
    /// What the first look found damaged (tables.5).
    told: Vec<Told>,
}

/// Damage that was reported: where, how many bytes, of which content.
type Told = (u64, u64, LostContent);

/// Puts the live entries of all tables into the target.
pub(super) fn salvage(
    env: &Env,
    mut surveyed: Survey<'_>,
    is_complete: bool,
    target: &mut Target,
    report: &mut RepairReport,
) -> Result<()> {
    // The last one is opened first.
    surveyed.waiting.sort_by(|a, b| b.lower_bound.cmp(&a.lower_bound));
    target.newest_flushed = target.newest_flushed.max(surveyed.newest_commit);
    let tombstones = RangeTombstones::union(&surveyed.tombstones);
    let mut merge = Merge { env, waiting: surveyed.waiting, open: Vec::new(), heap: BinaryHeap::new() };
    let mut last: Option<Vec<u8>> = None;
    let mut operands = Operands::default();
    while let Some((key, seq, at)) = merge.next(report)? {
        // Equal: an older version. Below: a table that does not begin where it says; its keys are passed by.
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

/// The operands of a key (tables.8).
#[derive(Default)]
struct Operands {
    /// Lists, the newest first, and the scans that they come from.
    lists: Vec<(Vec<u8>, usize)>,
    /// Older versions are asked for.
    is_open: bool,
}

impl Operands {
    /// Whether a version below these may have them in it.
    fn are_doubtful(&self, entry: EntryRef<'_>, at: usize, is_complete: bool) -> bool {
        !is_complete && entry.kind.is_live() && self.lists.iter().any(|(_, of)| *of != at)
    }

    /// All versions have come: has the target merge the lists.
    fn finish(&mut self, key: &[u8], target: &mut Target) -> Result<()> {
        self.is_open = false;
        let lists: Vec<u8> = self.lists.drain(..).rev().flat_map(|(list, _)| list).collect();
        if lists.is_empty() { Ok(()) } else { target.merge(key, &lists) }
    }
}

/// What a first look at all tables gives.
pub(super) struct Survey<'s> {
    waiting: Vec<Waiting<'s>>,
    tombstones: Vec<RangeTombstones>,
    /// The newest commit of which some table says that it went into it.
    newest_commit: SeqNo,
}

/// Looks at all parts of all tables but their blocks. Writes nothing.
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
            // sources.2; what should have been here is reported below.
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
        // A flush or merge may have forgotten the numbers, but not what went into it.
        let numbered = table.properties.as_ref().map(|properties| properties.counts.max_seq);
        out.newest_commit = out.newest_commit.max(table.newest_commit().max(numbered).unwrap_or_default());
        let told = tell_new(&table, described, &[], report);
        let covered = described.map(|added| &added.meta.range);
        let base = base_of(&table, source, described, report);
        out.tombstones.push(within(&table.tombstones, covered).based(base));
        out.waiting.push(Waiting { source, lower_bound: table.lower_bound(), described, base, told });
        report.tables += 1;
    }
    // A missing file was reported when it was missed.
    unaccounted.retain(|added| sources.tables.iter().any(|source| source.file == added.file));
    for added in unaccounted {
        let source = sources.tables.iter().find(|source| source.file == added.file);
        let path = source.map(|source| source.path.clone()).unwrap_or_default();
        let error = Error::corrupt("table", path, 0, "another file stands in its place");
        report.lose(error, added.meta.file_bytes, LostKeys::of_table(Some(&added.meta.range)));
    }
    Ok(out)
}

/// The table of the manifest that this one is: the one of its file, or, if files were swapped, another; none, if it is a
/// foreign one.
fn describe<'s>(table: &SalvageTable, file: FileId, described: &'s [AddedTable]) -> Option<&'s AddedTable> {
    let own = described.iter().find(|added| added.file == file);
    if table.properties.is_none() {
        return own;
    }
    let is = |added: &&AddedTable| is_as_stated(table, &added.meta);
    own.filter(is).or_else(|| described.iter().find(is))
}

/// Whether a table says of itself what the manifest says of it.
fn is_as_stated(table: &SalvageTable, meta: &TableMeta) -> bool {
    table.properties.as_ref().is_some_and(|p| {
        let (range, fingerprint) = (p.range.clone(), p.fingerprint);
        let stated = TableMeta { range, fingerprint, counts: p.counts, ..meta.clone() };
        stated.based(meta.base_seq) == *meta
    })
}

/// The commit that all of a table is of, or zero (tables.6).
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
    // Every flush and merge says what went in, in the footer. If that is lost, its numbers still tell it from a private table.
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

/// The range tombstones, cut to what the table covers (tables.3).
fn within(tombstones: &RangeTombstones, range: Option<&KeyRange>) -> RangeTombstones {
    let Some(range) = range else { return tombstones.clone() };
    tombstones.clipped(range)
}

/// Whether the table tells, damaged or not, that all of it is of the one that the manifest describes: by its properties, or by its other
/// parts.
fn is_proven(table: &SalvageTable, described: &AddedTable) -> bool {
    table.properties.is_some() || table.fingerprint() == Some(described.meta.fingerprint)
}

/// Reports what of this table cannot be read, blocks apart, as far as it was not `told`; all of it is returned.
fn tell_new(
    table: &SalvageTable,
    described: Option<&AddedTable>,
    told: &[Told],
    report: &mut RepairReport,
) -> Vec<Told> {
    let stated = table.properties.as_ref().map(|properties| &properties.range);
    let range = described.map(|added| &added.meta.range).or(stated);
    let tell_one = |damage: &TableDamage| {
        let this = (damage.start, damage.bytes, damage.lost.clone());
        if !told.contains(&this) {
            tell(damage, range, report);
        }
        this
    };
    table.damage.iter().map(tell_one).collect()
}

/// Reports damage of a table of this range.
fn tell(damage: &TableDamage, range: Option<&KeyRange>, report: &mut RepairReport) {
    let LostContent::Keys(low, high) = &damage.lost else {
        return report.notes.push(damage.error.to_string());
    };
    let low = low.as_deref().or(range.map(|range| range.start.as_slice()));
    let high = high.as_deref().or(range.map(|range| range.end.key()));
    let keys = LostKeys::between(low, high);
    report.lose_from(damage.start, damage.error.duplicate(), damage.bytes, keys);
}

/// Entries of all tables, each key's newest first.
struct Merge<'s> {
    env: &'s Env,
    waiting: Vec<Waiting<'s>>,
    /// The scans that the heap knows by their place, each with the range of its table; none once at the end.
    open: Vec<Option<Opened<'s>>>,
    heap: BinaryHeap<Reverse<Place>>,
}

/// A scan, the range of its table, and its base.
type Opened<'s> = (SalvageScan, Option<&'s KeyRange>, SeqNo);

/// Where the manifest has a table, and its file: newer ones come first (tables.1).
type Age = (Level, Reverse<RunId>, Reverse<FileId>);

/// Key, then newest version, then newest table; and the scan.
type Place = (Vec<u8>, Reverse<SeqNo>, Age, usize);

fn age_of(file: FileId, described: Option<&AddedTable>) -> Age {
    let (level, run) = described.map_or((Level::L0, RunId(0)), |added| (added.level, added.run));
    (level, Reverse(run), Reverse(file))
}

impl Merge<'_> {
    /// The next version: its key, its number, its scan, which stands on it until `advance`.
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
                    // tables.5
                    tell_new(&table, next.described, &next.told, report);
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

    /// Moves the scan whose entry `next` gave.
    fn advance(&mut self, at: usize, report: &mut RepairReport) {
        if let Some(Reverse((_, _, age, _))) = self.heap.pop() {
            self.push_next(at, age, report);
        }
    }

    fn push_next(&mut self, at: usize, age: Age, report: &mut RepairReport) {
        let (scan, range, base) = self.open[at].as_mut().expect("an open scan");
        while scan.advance() {
            let entry = scan.entry();
            // tables.3
            if range.is_none_or(|range| range.contains(entry.key)) {
                self.heap.push(Reverse((entry.key.to_vec(), Reverse(entry.seq.max(*base)), age, at)));
                report.entries += 1;
                return;
            }
        }
        report.blocks += scan.blocks_read;
        let range = *range;
        scan.damage.iter().for_each(|damage| tell(damage, range, report));
        // tables.4
        if scan.holds_other_parts() {
            let detail = "its parts do not add up to what it states: some are of another table";
            let error = Error::corrupt("table", scan.path(), 0, detail);
            report.lose(error, 0, LostKeys::of_table(range));
        }
        self.open[at] = None;
    }

    /// Where a scan that the heap knows stands.
    fn entry(&self, at: usize) -> EntryRef<'_> {
        self.open[at].as_ref().expect("the heap names open scans").0.entry()
    }

    fn path(&self, at: usize) -> std::path::PathBuf {
        self.open[at].as_ref().map(|(scan, ..)| scan.path().to_path_buf()).unwrap_or_default()
    }
}
