//! Checks a database that is not open, and that opening may refuse: its files one by one, then together.
//!
//! ```text
//!   CURRENT --> MANIFEST --> each table --> log --> unnamed files --> all sound? --> all keys, counts
//! ```
//!
//! Files are only read. All damage is reported, not only the first.
//!
//! - If opening refuses because of a file, the report never says that opening removes it.
//! - For an unfinished repair (unfinished.1 of unfinished.rs) the report says only that.

use std::collections::BTreeSet;
use std::path::Path;

use esker_env::Env;

use super::{CheckReport, content, log, tables};
use crate::cache::MemoryBudget;
use crate::encryption::{self, Unlock};
use crate::engine::base::options::Options;
use crate::engine::disk::{unfinished, unnamed};
use crate::engine::life::look::look_into;
use crate::engine::life::open::reading::lock_to_read;
use crate::engine::life::open::{first_number, is_data};
use crate::manifest::edit::VersionEdit;
use crate::manifest::file_name::{CURRENT, FileKind, is_too_far, manifest_name, parse, table_path};
use crate::manifest::log::read_current;
use crate::manifest::salvage;
use crate::sstable::{BlockCache, SalvageTable, Table};
use crate::types::{Error, FileId, Result};
use crate::wal;

/// Memory for the indexes and blocks of the current table.
const CACHE_BYTES: u64 = 1 << 20;

/// Checks a database that is not open.
pub(crate) fn check_offline(options: &Options, dir: &Path) -> Result<CheckReport> {
    let (env, _lock) = lock_to_read(options.env(), dir)?;
    let mut report = CheckReport::default();
    match unfinished::refuse(&env, dir) {
        Err(error @ Error::UnfinishedRepair(_)) => report.problem(error),
        looked => {
            looked?;
            let current = dir.join(CURRENT);
            let is_there = env.fs.exists(&current).map_err(|e| Error::io("look for", &current, e))?;
            // Without CURRENT nothing is read that could be encrypted.
            let env = if is_there { encryption::unlock(&env, dir, Unlock::Read)? } else { env };
            check(&env, dir, options, &mut report)?;
        }
    }
    Ok(report)
}

fn check(env: &Env, dir: &Path, options: &Options, report: &mut CheckReport) -> Result<()> {
    let names = env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
    let Some((id, state)) = find_state(env, dir, &names, report)? else { return Ok(()) };
    tables::check_state(&state, None, dir, report);
    let flushed = state.flushed_seq.unwrap_or_default();
    let cache = BlockCache::new(MemoryBudget::new(CACHE_BYTES));
    for added in &state.added {
        let path = table_path(dir, added.file);
        if !env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
            report.problem(Error::corrupt("table", &path, 0, "the manifest names it, but it is missing"));
            continue;
        }
        match Table::open_at(env, &path, &cache, added.meta.base_seq) {
            Ok(table) => tables::check_table(&table, &added.meta, state.newest_in_tables(), report),
            Err(error) => list_damage(env, &path, error, report),
        }
    }
    let in_log = log::check_all(env, dir, state.log_extent(), flushed, report)?;
    log::check_kept(env, dir, &state, report)?;
    let known = in_log.max(state.newest_in_tables());
    if let Err(error) = first_number(dir, &names, &state) {
        report.problem(error);
    }
    let added = state.added.iter().map(|added| added.file);
    let mut kept: BTreeSet<FileId> = added.chain(state.feed.tables()).collect();
    for (file, error) in unnamed::needed(env, dir, &names, &state, known)? {
        kept.insert(file);
        report.problem(error);
    }
    note_leftovers(env, dir, &names, (id, &state), &kept, report);
    if report.is_sound() {
        check_content(env, dir, options, &state, report)?;
    }
    Ok(())
}

/// Reads the state of the manifest as far as possible, and reports its damage.
fn find_state(
    env: &Env,
    dir: &Path,
    names: &[String],
    report: &mut CheckReport,
) -> Result<Option<(FileId, VersionEdit)>> {
    let mut ids: Vec<FileId> = names
        .iter()
        .filter_map(|name| match parse(name) {
            FileKind::Manifest(id) if manifest_name(id) == *name => Some(id),
            _ => None,
        })
        .collect();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    match read_current(env, dir) {
        Ok(Some(id)) if ids.contains(&id) => {
            ids.retain(|other| *other != id);
            ids.insert(0, id);
        }
        Ok(Some(id)) => {
            let detail = format!("it names {}, which is missing", manifest_name(id));
            report.problem(Error::corrupt("CURRENT", dir.join(CURRENT), 0, detail));
        }
        Ok(None) => {
            // A new database writes CURRENT before its first log segment or table. So a manifest alone comes
            // from an unfinished creation, which opening starts again.
            if !names.iter().any(|name| is_data(name)) {
                return Err(Error::NotFound(dir.to_path_buf()));
            }
            report.problem(Error::corrupt("CURRENT", dir.join(CURRENT), 0, "it is missing"));
        }
        Err(error) => report.problem(error),
    }
    for id in ids {
        let path = dir.join(manifest_name(id));
        match salvage::salvage(env, &path) {
            Ok(found) => {
                found.damage.iter().for_each(|error| report.problem(error));
                if let Some((offset, bytes)) = found.torn {
                    let text = "an unfinished edit, which never took effect";
                    report.note(format!("{} at offset {offset}: {text} ({bytes} bytes)", path.display()));
                }
                if let Some(state) = found.state {
                    return Ok(Some((id, state)));
                }
            }
            Err(error @ Error::UnsupportedVersion { .. }) => return Err(error),
            Err(error) => report.problem(error),
        }
    }
    report.problem(format!("{}: no manifest can be read", dir.display()));
    Ok(None)
}

/// Reports all damage of a table that cannot be opened.
fn list_damage(env: &Env, path: &Path, error: Error, report: &mut CheckReport) {
    let table = match SalvageTable::open(env, path) {
        Ok(table) => table,
        Err(error) => return report.problem(error),
    };
    let before = report.problems.len();
    table.damage.iter().for_each(|damage| report.problem(&damage.error));
    let mut scan = table.scan();
    while scan.advance() {
        report.entries += 1;
    }
    report.tables += 1;
    report.blocks += scan.blocks_read;
    scan.damage.iter().for_each(|damage| report.problem(&damage.error));
    if report.problems.len() == before {
        report.problem(error);
    }
}

/// Notes files that nothing names, which the next opening removes. `kept`: tables that it does not remove.
fn note_leftovers(
    env: &Env,
    dir: &Path,
    names: &[String],
    (manifest, state): (FileId, &VersionEdit),
    kept: &BTreeSet<FileId>,
    report: &mut CheckReport,
) {
    let from = state.wal_from.unwrap_or(1);
    // Older segments are kept for the change feed.
    let from = state.feed.from.map_or(from, |feed| feed.segment.min(from));
    let next = state.next_file.unwrap_or(FileId::new(1));
    for name in names {
        let left_over = match parse(name) {
            FileKind::Manifest(id) | FileKind::Table(id) | FileKind::Blob(id) if is_too_far(id, next) => {
                false
            }
            FileKind::Manifest(id) => id != manifest,
            FileKind::Table(id) => !kept.contains(&id),
            FileKind::Blob(id) => !state.blobs.added.iter().any(|(_, file)| *file == id),
            FileKind::Temporary => true,
            FileKind::Other => {
                wal::file_name::is_spare(name)
                    || wal::file_name::parse_prepared(name).is_some_and(|number| {
                        state.wal_named != Some(number) && !wal::is_in_use(env, &dir.join(name), number)
                    })
                    || wal::file_name::parse_segment(name).is_some_and(|number| number < from)
            }
        };
        if left_over {
            report.note(format!("{name} is not needed: the next open removes it"));
        }
    }
}

/// Checks the keys of all files together. The files are sound.
fn check_content(
    env: &Env,
    dir: &Path,
    options: &Options,
    state: &VersionEdit,
    report: &mut CheckReport,
) -> Result<()> {
    let look = match look_into(env, dir, options, state) {
        Ok(look) => look,
        Err(error) => {
            report.problem(error);
            return Ok(());
        }
    };
    content::check_order(&look.view, dir, report);
    let mut counted = Vec::new();
    for (&id, &count) in &look.counts {
        match look.view.overcount(id, look.last_seq) {
            Ok(owed) => counted.push((id, count.saturating_sub(owed))),
            Err(error) => {
                report.problem(error);
                return Ok(());
            }
        }
    }
    let stated = |id| Some(counted.iter().find(|counted| counted.0 == id).map_or(0, |counted| counted.1));
    content::check_counts(&look.view, look.last_seq, stated, &counted, dir, report);
    Ok(())
}
