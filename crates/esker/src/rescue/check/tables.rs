//! Checks tables against the manifest, and the state of the manifest in itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::CheckReport;
use crate::manifest::edit::VersionEdit;
use crate::manifest::file_name::table_path;
use crate::manifest::level::{Level, RunId};
use crate::sstable::{Table, TableMeta};
use crate::types::key::decode_key;
use crate::types::{FileId, SeqNo};

/// Checks the state of the manifest in itself: tables of a run do not overlap, numbers were allocated, and
/// everything in tables was flushed. `known`: the tables that readers use.
pub(super) fn check_state(
    state: &VersionEdit,
    known: Option<BTreeSet<(FileId, Level, RunId)>>,
    dir: &Path,
    report: &mut CheckReport,
) {
    let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut files = BTreeSet::new();
    for added in &state.added {
        let path = table_path(dir, added.file);
        let mut wrong = |text: &str| report.problem(format!("{}: {text}", path.display()));
        if !files.insert(added.file) {
            wrong("the manifest names it twice");
        }
        if state.next_file.is_some_and(|next| added.file >= next) {
            wrong("its number has not been allocated yet");
        }
        if state.next_run.is_some_and(|next| added.run >= next) {
            wrong("the number of its run has not been allocated yet");
        }
        if added.meta.counts.max_seq > state.newest_in_tables() {
            wrong("it holds commits that were not flushed yet");
        }
        if added.meta.counts.min_seq > added.meta.counts.max_seq {
            wrong("its smallest sequence number is above its largest");
        }
        let ends = [&added.meta.range.start[..], added.meta.range.end.key()];
        if decode_key(ends[0]).is_none() {
            wrong("its keys belong to no keyspace");
        }
        runs.entry((added.level, added.run)).or_default().push(added);
    }
    for tables in runs.values_mut() {
        tables.sort_by(|a, b| a.meta.range.start.cmp(&b.meta.range.start));
        for pair in tables.windows(2).filter(|pair| pair[0].meta.range.overlaps(&pair[1].meta.range)) {
            let path = table_path(dir, pair[1].file);
            report.problem(format!("{} overlaps table {} of its run", path.display(), pair[0].file));
        }
    }
    if runs.keys().filter(|(level, _)| *level == Level::BASE).count() > 1 {
        report.problem("the manifest has more than one base run");
    }
    let stated: BTreeSet<_> = state.added.iter().map(|t| (t.file, t.level, t.run)).collect();
    if known.is_some_and(|known| known != stated) {
        report.problem("readers use other tables than the manifest names");
    }
}

/// Checks a table in itself, and against the manifest. `flushed`: the newest commit that is in tables.
pub(super) fn check_table(table: &Arc<Table>, meta: &TableMeta, flushed: SeqNo, report: &mut CheckReport) {
    report.tables += 1;
    if let Err(error) = table.ready() {
        return report.problem(error);
    }
    report.bytes += table.file_bytes();
    let check = table.verify_all(&mut |error| report.problem(error));
    report.blocks += check.blocks;
    report.entries += check.entries;
    let found = table.meta();
    if found != *meta {
        let path = table.path().display();
        report
            .problem(format!("{path} is not the table that the manifest describes: {found:?}, not {meta:?}"));
    }
    // Includes commits whose numbers the table has dropped (compaction_output.4).
    let newest = table.newest_commit().unwrap_or_default();
    if newest > flushed {
        let path = table.path().display();
        report.problem(format!(
            "{path}: commit {newest} went into it, and only those up to {flushed} were flushed"
        ));
    }
}
