//! What of a damaged database is to be read: which tables, and from where the log.
//!
//! ```text
//!   CURRENT --> MANIFEST-n sound? --yes--> the tables that it names; log from `wal_from`, commits after `flushed_seq`
//!      `-no--> newest other manifest      `-in parts, not at all, or out of date--> in addition all tables that nothing removed
//! ```
//!
//! sources.1. With a whole manifest exactly its tables are read, so that a table that was replaced but not yet removed
//!      brings nothing back.
//! sources.2. A table that can say what it is and is none of those that the manifest describes is not read: it is foreign.
//! sources.3. If tables or log segments that a whole manifest names are gone, and finished tables are there that it does not know, it may be
//!      an earlier one: those tables may hold what was in them, so all are read.
//! sources.4. A file that nobody names and that cannot be read costs nothing else.
//! sources.5. Where the manifest that CURRENT names cannot be read and another one is gone by, that is told as a loss, whatever is there: what
//!      only the one in force named may be gone without a trace.
//! sources.6. Entries of an adopted table have no number of their own (table.5 in sstable/table.rs): it is the manifest's to say. Where that is lost, it
//!      is told as a loss: what the table holds may be newer than what is taken, or never have been committed (tables.6).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use esker_env::Env;

use super::blobs;
use super::report::{LostKeys, RepairReport};
use crate::blob::BlobSet;
use crate::engine::disk::unnamed;
use crate::manifest::edit::{AddedTable, VersionEdit};
use crate::manifest::file_name::{CURRENT, FileKind, manifest_name, parse, table_path};
use crate::manifest::log::read_current;
use crate::manifest::salvage::{self, SalvagedManifest};
use crate::sstable::stated_newest_commit;
use crate::types::{Error, FileId, Result, SeqNo};
use crate::wal::{self, LogExtent, LogPiece};

/// What is to be read.
pub(super) struct Sources {
    /// The tables, with what the manifest says of them.
    pub tables: Vec<TableSource>,
    /// What is known of the log.
    pub log: LogExtent,
    /// Commits up to this one are in tables, as far as is known.
    pub flushed: SeqNo,
    /// Whether the manifest is whole.
    pub complete: bool,
    /// What a whole manifest describes: for sources.2.
    pub described: Vec<AddedTable>,
    /// The commits of which a manifest says that they were adopted.
    pub adopted: BTreeSet<SeqNo>,
    /// Where values are that are not in tables.
    pub blobs: BlobSet,
}

/// A table to read.
pub(super) struct TableSource {
    pub file: FileId,
    pub path: PathBuf,
    /// What a manifest says of the file of this name, be it whole or not.
    pub named: Option<AddedTable>,
}

/// Looks what is there.
pub(super) fn find(env: &Env, dir: &Path, report: &mut RepairReport) -> Result<Sources> {
    let names = env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
    let manifest = choose_manifest(env, dir, &names, report)?;
    let on_disk: BTreeSet<FileId> = names
        .iter()
        .filter_map(|name| match parse(name) {
            FileKind::Table(id) if table_path(dir, id) == dir.join(name) => Some(id),
            _ => None,
        })
        .collect();
    let has_log = names.iter().any(|name| crate::wal::file_name::parse_segment(name).is_some());
    if manifest.is_none() && on_disk.is_empty() && !has_log {
        return Err(Error::NotFound(dir.to_path_buf()));
    }
    // Of none, nothing is known.
    let SalvagedManifest { state, complete: whole, removed, .. } = manifest.unwrap_or_default();
    let state = state.unwrap_or_default();
    let complete = whole && !has_lost_its_end(env, dir, (&state, &removed), &on_disk, report)?;
    // Parts of a manifest do not tell what of the log is obsolete.
    let log = match complete {
        true => state.log_extent(),
        false => LogExtent {
            from: state.wal_from.unwrap_or(0),
            database_id: state.database_id,
            ..LogExtent::default()
        },
    };
    let blobs = blobs::find(env, dir, &names, &state.blobs.added);
    let VersionEdit { flushed_seq, added, adopted, .. } = state;
    let mut files: BTreeSet<FileId> = added.iter().map(|table| table.file).collect();
    if complete {
        let orphans: Vec<_> = on_disk.difference(&files).map(ToString::to_string).collect();
        if !orphans.is_empty() {
            let text = format!("tables that the manifest does not name are left out: {}", orphans.join(", "));
            report.notes.push(text);
        }
    } else {
        files.extend(on_disk.iter().filter(|id| !removed.contains(id)));
    }
    for file in files.iter().filter(|id| !on_disk.contains(id)) {
        let meta = added.iter().find(|table| table.file == *file).map(|table| &table.meta);
        let path = table_path(dir, *file);
        let error = Error::corrupt("table", &path, 0, "the manifest names it, but it is missing");
        let keys = LostKeys::of_table(meta.map(|meta| &meta.range));
        report.lose(error, meta.map_or(0, |meta| meta.file_bytes), keys);
    }
    let tables = files.iter().filter(|id| on_disk.contains(id));
    let named = |file| added.iter().find(|table| table.file == file).cloned();
    let source = |&file| TableSource { file, path: table_path(dir, file), named: named(file) };
    let tables = tables.map(source).collect();
    Ok(Sources {
        tables,
        log,
        flushed: flushed_seq.unwrap_or_default(),
        complete,
        adopted: adopted.iter().map(|adopted| adopted.seq).collect(),
        described: if complete { added } else { Vec::new() },
        blobs,
    })
}

/// Whether tables prove that a manifest that looks whole has lost its end, or files that are gone speak for it (sources.3). It says this
/// state, and has removed these tables.
fn has_lost_its_end(
    env: &Env,
    dir: &Path,
    (state, removed): (&VersionEdit, &BTreeSet<FileId>),
    on_disk: &BTreeSet<FileId>,
    report: &mut RepairReport,
) -> Result<bool> {
    let (mut known, extent) = (state.newest_in_tables(), state.log_extent());
    // Behind an unfinished commit nothing counts, even if it can be read (repair_log.3): it does not stand for what a table holds.
    let end = wal::verify(env, dir, extent, |_, _| Ok(())).map_or(SeqNo::MAX, |recovered| recovered.last_seq);
    wal::salvage(env, dir, extent, &mut |piece| {
        if let LogPiece::Commit { seq, .. } = piece
            && seq <= end
        {
            known = known.max(seq);
        }
        Ok(())
    })?;
    let named: BTreeSet<FileId> = state.added.iter().map(|table| table.file).collect();
    let strays = finished(env, dir, on_disk.difference(&named), report);
    let mut has_newer = false;
    for (file, newest) in strays.iter().filter(|(_, newest)| *newest > known) {
        let detail = format!(
            "{}; all tables are read, and values that were replaced may have come back",
            unnamed::detail(*newest, known)
        );
        report.lose(Error::corrupt("table", table_path(dir, *file), 0, detail), 0, LostKeys::Any);
        has_newer = true;
    }
    let unknown = strays.iter().find(|(file, _)| !removed.contains(file));
    let Some((file, _)) = unknown.filter(|_| !has_newer) else { return Ok(has_newer) };
    if named.is_subset(on_disk) && !wal::lacks_segments(env, dir, extent)? {
        return Ok(false);
    }
    let detail = "the manifest does not name it, and tables or log segments that it names are gone: it may be an earlier \
                  manifest, so all tables are read, and values that were replaced may have come back";
    report.lose(Error::corrupt("table", table_path(dir, *file), 0, detail), 0, LostKeys::Any);
    Ok(true)
}

/// Those of the tables that are finished, each with its newest commit. One that cannot be read is noted (sources.4).
fn finished<'f>(
    env: &Env,
    dir: &Path,
    files: impl Iterator<Item = &'f FileId>,
    report: &mut RepairReport,
) -> Vec<(FileId, SeqNo)> {
    let mut found = Vec::new();
    for &file in files {
        let path = table_path(dir, file);
        match stated_newest_commit(env, &path) {
            Ok(newest) => found.extend(newest.map(|newest| (file, newest))),
            Err(error @ Error::UnsupportedVersion { .. }) => {
                let detail = format!("{error}; the manifest does not name it, and it is left out");
                report.lose(Error::corrupt("table", path, 0, detail), 0, LostKeys::Any);
            }
            Err(error) => report.notes.push(format!("{error}; the manifest does not name it")),
        }
    }
    found
}

/// The manifest to go by: the one in force, or the newest that can be read.
fn choose_manifest(
    env: &Env,
    dir: &Path,
    names: &[String],
    report: &mut RepairReport,
) -> Result<Option<SalvagedManifest>> {
    let current = match read_current(env, dir) {
        Ok(Some(id)) => Some(id),
        Ok(None) => {
            report.notes.push(format!("{} is missing", dir.join(CURRENT).display()));
            None
        }
        Err(error) => {
            report.notes.push(error.to_string());
            None
        }
    };
    let mut others: Vec<FileId> = names
        .iter()
        .filter_map(|name| match parse(name) {
            FileKind::Manifest(id) if manifest_name(id) == *name && Some(id) != current => Some(id),
            _ => None,
        })
        .collect();
    others.sort_unstable_by(|a, b| b.cmp(a));
    for id in current.into_iter().chain(others) {
        let path = dir.join(manifest_name(id));
        let found = match salvage::salvage(env, &path) {
            Ok(found) => found,
            Err(error @ Error::UnsupportedVersion { .. }) => return Err(error),
            Err(error) => {
                report.notes.push(error.to_string());
                continue;
            }
        };
        report.notes.extend(found.damage.iter().map(ToString::to_string));
        if found.state.is_none() {
            continue;
        }
        if Some(id) != current {
            report.notes.push(format!("going by {}, the newest manifest that can be read", path.display()));
        }
        if let Some(named) = current.filter(|named| *named != id) {
            let in_force = dir.join(manifest_name(named));
            let detail = format!(
                "CURRENT names it, and it cannot be read: what came after {} may be missing, and values that were \
                 replaced may have come back",
                manifest_name(id)
            );
            report.lose(Error::corrupt("manifest", in_force, 0, detail), 0, LostKeys::Any);
        }
        if let Some((offset, bytes)) = found.torn {
            let text = "an edit was being written that never counted";
            report.notes.push(format!("{} at offset {offset}: {text} ({bytes} bytes)", path.display()));
        }
        if !found.complete {
            let detail = "edits are lost: which tables counted is not known, so all are read; values that were \
                          replaced may have come back";
            report.lose(Error::corrupt("manifest", &path, 0, detail), 0, LostKeys::Any);
        }
        return Ok(Some(found));
    }
    let detail = "no manifest can be read: which tables counted is not known, so all are read; values that were replaced \
                  may have come back, and commits behind the end of the log may be missing";
    report.lose(Error::corrupt("manifest", dir.join(CURRENT), 0, detail), 0, LostKeys::Any);
    Ok(None)
}
