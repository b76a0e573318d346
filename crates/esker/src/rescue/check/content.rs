//! Checks memtables and tables together: the order between them, keyspaces, and counts.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use super::CheckReport;
use crate::compaction::merge::{MergeScan, Source};
use crate::encoding::bytes::ByteReader;
use crate::encoding::catalog_key::{name_of, options_of};
use crate::engine::state::catalog;
use crate::engine::state::keyspace_options::StoredOptions;
use crate::manifest::version::Run;
use crate::memtable::Memtable;
use crate::read::view::ReadView;
use crate::types::bounds::Bounds;
use crate::types::key::decode_key;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Error, KeyspaceId, Result, SeqNo};

/// Number of listed problems of one kind. Further ones are only counted.
const LISTED_MAX: u64 = 10;

/// A memtable or a run.
struct Layer {
    name: String,
    entries: Entries,
    removed: RangeTombstones,
}

/// The source of a layer's entries.
enum Entries {
    Memtable(Arc<Memtable>),
    Run(Arc<Run>),
}

impl Entries {
    fn source(&self) -> Source {
        match self {
            Entries::Memtable(memtable) => Source::Memtable(memtable.scan()),
            Entries::Run(run) => Source::run(run.tables().iter().map(|t| t.table.clone()).collect()),
        }
    }
}

/// Checks view.1 and version.1: for any key, entries and range tombstones of a memtable or run are newer than
/// those of older ones. The tables have been checked one by one.
pub(super) fn check_order(view: &ReadView, dir: &Path, report: &mut CheckReport) {
    let memtables = view.memtables().enumerate().filter(|(_, memtable)| !memtable.is_empty());
    let memtables: Vec<Layer> = memtables
        .map(|(age, memtable)| Layer {
            name: match age {
                0 => "the active memtable".to_owned(),
                age => format!("immutable memtable {age}"),
            },
            entries: Entries::Memtable(memtable.clone()),
            removed: (*memtable.range_tombstones()).clone(),
        })
        .collect();
    let runs = view.version.runs().iter().map(|run| Layer {
        name: show(run),
        entries: Entries::Run(run.clone()),
        removed: range_tombstones(run),
    });
    let runs: Vec<Layer> = runs.collect();
    // Without problems so far, the numbers stated by tables are true. Then tables need not be read again to
    // check the memtables.
    let newest_in_tables = view.version.tables().map(|(_, table)| table.meta.counts.max_seq).max();
    if report.is_sound() && oldest(&memtables) > newest_in_tables {
        check_layers(&memtables, dir, report);
        check_layers(&runs, dir, report);
    } else {
        check_layers(&memtables.into_iter().chain(runs).collect::<Vec<_>>(), dir, report);
    }
}

/// Returns the smallest sequence number in the memtables.
fn oldest(memtables: &[Layer]) -> Option<SeqNo> {
    let mut oldest = None;
    let mut note = |seq: SeqNo| oldest = Some(oldest.map_or(seq, |before: SeqNo| before.min(seq)));
    for layer in memtables {
        layer.removed.fragments().for_each(|fragment| note(fragment.seqs.oldest()));
        if let Entries::Memtable(memtable) = &layer.entries {
            let mut scan = memtable.scan();
            while let Some(entry) = scan.next() {
                note(entry.seq);
            }
        }
    }
    oldest
}

/// Checks the order of these layers, newest first.
fn check_layers(layers: &[Layer], dir: &Path, report: &mut CheckReport) {
    if layers.len() < 2 {
        return;
    }
    check_range_tombstones(layers, dir, report);
    let (mut wrong, mut wrongly_removed) = (0, 0);
    let walked = (|| -> Result<()> {
        let mut scan = MergeScan::new(layers.iter().map(|layer| layer.entries.source()))?;
        let mut last: (Vec<u8>, usize) = (Vec::new(), 0);
        while let Some(entry) = scan.next()? {
            let (key, seq) = (entry.key.to_vec(), entry.seq);
            let rank = scan.rank();
            if key == last.0 && rank < last.1 {
                wrong += 1;
                if wrong <= LISTED_MAX {
                    let (newer, older) = (&layers[rank].name, &layers[last.1].name);
                    report.problem(format!(
                        "{}: key \"{}\": {newer} holds version {seq}, older than what {older} holds below it",
                        dir.display(),
                        key.escape_ascii(),
                    ));
                }
            }
            for (other, Layer { removed, .. }) in layers.iter().enumerate() {
                let Some(fragment) = removed.fragment_of(&key) else { continue };
                let is_wrong = match other.cmp(&rank) {
                    Ordering::Less => fragment.seqs.oldest() < seq,
                    Ordering::Greater => seq < fragment.seqs.newest(),
                    Ordering::Equal => false,
                };
                wrongly_removed += u64::from(is_wrong);
                if is_wrong && wrongly_removed <= LISTED_MAX {
                    let (this, other) = (&layers[rank].name, &layers[other].name);
                    report.problem(format!(
                        "{}: key \"{}\": version {seq} in {this} and its range tombstone in {other} stand the wrong way \
                         round",
                        dir.display(),
                        key.escape_ascii(),
                    ));
                }
            }
            last = (key, rank);
        }
        Ok(())
    })();
    if wrong > LISTED_MAX {
        report.problem(format!("{}: {wrong} versions stand above newer ones", dir.display()));
    }
    if wrongly_removed > LISTED_MAX {
        let text = "versions and their range tombstones are in the wrong order";
        report.problem(format!("{}: {wrongly_removed} {text}", dir.display()));
    }
    // A damaged block was reported with its table.
    if let Err(error) = walked
        && report.is_sound()
    {
        report.problem(error);
    }
}

/// Checks that the range tombstones of a layer are newer than those over the same keys in older layers.
fn check_range_tombstones(layers: &[Layer], dir: &Path, report: &mut CheckReport) {
    let mut wrong = 0;
    for (rank, newer) in layers.iter().enumerate() {
        for older in &layers[rank + 1..] {
            let others: Vec<_> = older.removed.fragments().collect();
            for fragment in newer.removed.fragments() {
                let from = others.partition_point(|other| other.end <= fragment.start);
                for other in others[from..].iter().take_while(|other| other.start < fragment.end) {
                    let (oldest, newest) = (fragment.seqs.oldest(), other.seqs.newest());
                    wrong += u64::from(oldest < newest);
                    if oldest < newest && wrong <= LISTED_MAX {
                        let (this, below) = (&newer.name, &older.name);
                        report.problem(format!(
                            "{}: keys from \"{}\": {this} holds range tombstone {oldest}, older than what {below} \
                             holds below it",
                            dir.display(),
                            other.start.escape_ascii(),
                        ));
                    }
                }
            }
        }
    }
    if wrong > LISTED_MAX {
        report.problem(format!("{}: {wrong} range tombstones stand above newer ones", dir.display()));
    }
}

/// Returns all range tombstones of a run.
fn range_tombstones(run: &Run) -> RangeTombstones {
    RangeTombstones::union(run.tables().iter().map(|t| t.table.range_tombstones()))
}

/// Describes a run in messages.
fn show(run: &Run) -> String {
    format!("run {} of level {}", run.id.0, run.level.get())
}

/// What the catalog says about keyspaces.
struct Names {
    by_id: BTreeMap<KeyspaceId, String>,
    next_id: Option<u32>,
}

impl Names {
    /// Adds an entry of the catalog. An entry with the options of a keyspace sets its merge operator, because
    /// an offline check has not loaded merge operators. The catalog precedes all other keys.
    fn add(&mut self, view: &ReadView, key: &[u8], value: &[u8], dir: &Path, report: &mut CheckReport) {
        if let (Some(id), Ok(options)) = (options_of(key), StoredOptions::decode(value)) {
            if let Some(operator) = options.given.merge_operator.filter(|_| view.operators.of(id).is_err()) {
                view.operators.set(id, &operator, move || id.to_string());
            }
            return;
        }
        if key == catalog::TIME_KEY && ByteReader::new(value).varint().is_ok() {
            return;
        }
        let id = ByteReader::new(value).varint().ok().and_then(|id| u32::try_from(id).ok());
        match (name_of(key), id) {
            (Some(name), Some(id)) if catalog::is_stored_name(name) => {
                if let Some(other) = self.by_id.insert(KeyspaceId::new(id), name.to_owned()) {
                    report.problem(format!("keyspace {id} has two names, {other:?} and {name:?}"));
                }
            }
            (None, Some(id)) if key == catalog::NEXT_ID_KEY => self.next_id = Some(id),
            _ => report.problem(format!("{}: catalog: \"{}\"", dir.display(), key.escape_ascii())),
        }
    }

    /// Returns whether the id of a keyspace has been allocated.
    fn is_allocated(&self, id: KeyspaceId) -> bool {
        id <= KeyspaceId::DEFAULT || self.next_id.is_some_and(|next| id.get() < next)
    }
}

/// Counts the live keys at a commit, and compares the counts with `stated`. `None`: unknown for this
/// keyspace. `counted`: all keyspaces that have a count.
pub(super) fn check_counts(
    view: &ReadView,
    at: SeqNo,
    stated: impl Fn(KeyspaceId) -> Option<u64>,
    counted: &[(KeyspaceId, u64)],
    dir: &Path,
    report: &mut CheckReport,
) {
    let by_id = BTreeMap::from([(KeyspaceId::DEFAULT, catalog::DEFAULT_NAME.to_owned())]);
    let mut names = Names { by_id, next_id: None };
    let mut counts: BTreeMap<KeyspaceId, u64> = BTreeMap::new();
    let walked = walk(view, at, |id, key, value| match id {
        KeyspaceId::CATALOG => names.add(view, key, value, dir, report),
        _ => *counts.entry(id).or_default() += 1,
    });
    if let Err(error) = walked {
        // The count is incomplete then.
        report.problem(format!("counting: {error}"));
        return;
    }
    report.live_keys = Some(counts.values().sum());
    let ids: BTreeSet<_> = names.by_id.keys().chain(counts.keys()).copied().collect();
    for &id in &ids {
        let counted = counts.get(&id).copied().unwrap_or(0);
        let Some(name) = names.by_id.get(&id) else {
            let text = format!("{counted} keys belong to keyspace {id}, which does not exist");
            report.problem(format!("{}: {text}", dir.display()));
            continue;
        };
        if let Some(stated) = stated(id).filter(|stated| *stated != counted) {
            report.problem(format!("keyspace {name:?} holds {counted} keys; its count is {stated}"));
        }
        if !names.is_allocated(id) {
            report.problem(format!("the number of keyspace {name:?}, {id}, has not been allocated yet"));
        }
    }
    // The catalog is not a keyspace of users.
    let is_unknown = |id: &KeyspaceId| *id != KeyspaceId::CATALOG && !ids.contains(id);
    for (id, count) in counted.iter().filter(|(id, count)| *count > 0 && is_unknown(id)) {
        let text = format!("{count} keys are counted for keyspace {id}, which does not exist and holds none");
        report.problem(format!("{}: {text}", dir.display()));
    }
}

/// Returns whether merging intact operands into a value has failed.
fn is_of_merging(error: &Error) -> bool {
    use Error::{Invalid, Merge, MergeOperatorMissing, ValueTooLong};
    matches!(error, Invalid(_) | Merge { .. } | MergeOperatorMissing { .. } | ValueTooLong { .. })
}

/// Iterates over all live entries at a commit.
fn walk(view: &ReadView, at: SeqNo, mut each: impl FnMut(KeyspaceId, &[u8], &[u8])) -> Result<()> {
    let bounds = Bounds { lower: Bound::Unbounded, upper: Bound::Unbounded };
    let mut cursor = view.live(at, bounds);
    cursor.seek_first()?;
    while cursor.valid() {
        match decode_key(cursor.key()) {
            Some((id, key)) => match cursor.value_bytes() {
                Some(value) => each(id, key, value),
                None => match cursor.value() {
                    Ok(value) => each(id, key, &value),
                    Err(error) if is_of_merging(&error) => each(id, key, &[]),
                    Err(error) => return Err(error),
                },
            },
            None => each(KeyspaceId::new(u32::MAX), cursor.key(), &[]),
        }
        cursor.next()?;
    }
    Ok(())
}
