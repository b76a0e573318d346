//! Decides which tables of a damaged database a repair reads, and from where it reads the log.
//!
//! ```text
//!   CURRENT --> MANIFEST-n sound? --yes--> its tables; log from `wal_from`, commits after `flushed_seq`
//!      `-no--> newest other manifest      `-in parts, missing, outdated--> also all tables not removed
//! ```
//!
//! With a whole manifest exactly its tables are read. So a table that was replaced but not deleted yet brings
//! no old values back.
//!
//! - A table with properties that match no table of the manifest is foreign and not read.
//! - A whole manifest may be an earlier one if tables or log segments that it names are missing, and it does
//!   not know some finished tables. These may hold the missing data, so all tables are read.
//! - An unreadable file that no manifest names causes no other loss.
//! - If the manifest that CURRENT names is unreadable and another one is used, the report says so as a loss.
//!   Files that only the current manifest named may be missing without a trace.
//! - Entries of an adopted table have no sequence number of their own (sstable/table.rs); the
//!   manifest holds it. Without the manifest the report lists the keys as a loss. The table may be newer than
//!   the taken values, or never have been committed (tables.6).

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

/// What a repair reads.
pub(super) struct Sources {
    /// The tables, with their descriptions in the manifest.
    pub tables: Vec<TableSource>,
    /// What the manifest says about the log.
    pub log: LogExtent,
    /// Commits up to this one are in tables, as far as is known.
    pub flushed: SeqNo,
    /// Whether the manifest is whole and current.
    pub complete: bool,
    /// The tables that a whole manifest describes.
    pub described: Vec<AddedTable>,
    /// The commits that the manifest lists as adopted.
    pub adopted: BTreeSet<SeqNo>,
    /// Blob files with values that are not in tables.
    pub blobs: BlobSet,
}

/// A table to read.
pub(super) struct TableSource {
    pub file: FileId,
    pub path: PathBuf,
    /// The description in a manifest, whole or not, of the file with this name.
    pub named: Option<AddedTable>,
}

/// Finds the sources of a repair.
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
    // Without a manifest nothing is known.
    let SalvagedManifest { state, complete: whole, removed, .. } = manifest.unwrap_or_default();
    let state = state.unwrap_or_default();
    let complete = whole && !has_lost_its_end(env, dir, (&state, &removed), &on_disk, report)?;
    // A partial manifest does not tell which part of the log is obsolete.
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

/// Returns whether a manifest that looks whole has lost its end, as proven by tables or suggested by missing
/// files. `(state, removed)`: what the manifest holds, and the tables that it has removed.
fn has_lost_its_end(
    env: &Env,
    dir: &Path,
    (state, removed): (&VersionEdit, &BTreeSet<FileId>),
    on_disk: &BTreeSet<FileId>,
    report: &mut RepairReport,
) -> Result<bool> {
    let (mut known, extent) = (state.newest_in_tables(), state.log_extent());
    // Commits after an unfinished one never count, even if they can be read. They do not
    // account for the contents of a table.
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

/// Returns the finished tables, each with its newest commit. Unreadable tables are noted.
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

/// Returns the manifest to use: the current one, or the newest that can be read.
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
            report.notes.push(format!("using {}, the newest manifest that can be read", path.display()));
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
            let text = "an unfinished edit, which never took effect";
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
