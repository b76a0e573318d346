//! `check`: reads everything and compares all things that must agree.
//!
//! ```text
//!   manifest file <--> manifest in force <--> tables (tables.rs) <--> runs and keys (content.rs) <--> counts
//!   log segments (log.rs)                                          offline.rs: all of it from the files
//! ```
//!
//! All problems found are in the report. An error means that the check was impossible.
//!
//! Nothing is changed. Reads and writes continue; the check covers the state at one commit.

mod content;
mod log;
pub(crate) mod offline;
mod tables;
#[cfg(test)]
mod tests;

use crate::engine::core::Core;
use crate::manifest::file_name::{CURRENT, manifest_name};
use crate::manifest::log::read_current;
use crate::manifest::salvage;
use crate::types::{Error, Result};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Tables read.
    pub tables: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Versions of keys in the tables.
    pub entries: u64,
    /// Bytes of all tables.
    pub bytes: u64,
    /// Segments of the log read.
    pub log_segments: u64,
    /// Commits in them. The newest segment of a log in use is not read.
    pub commits: u64,
    /// Live keys of all keyspaces, counted one by one. `None` if a problem prevented counting. An offline
    /// check counts only if all files are sound.
    pub live_keys: Option<u64>,
    /// The problems, with file and offset where known. Empty: the database is sound.
    pub problems: Vec<String>,
    /// Harmless findings: files that nothing names, a torn end of the log.
    pub notes: Vec<String>,
}

impl CheckReport {
    /// Returns whether there are no problems.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, problem: impl ToString) {
        self.problems.push(problem.to_string());
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

/// Verifies the manifest, every block of every table, the order of keys and of memtables and runs, and
/// the log: no segment is lost, and the finished ones are sound and complete. Verifies that the number of
/// live keys of each keyspace equals `len`.
pub(crate) fn check(core: &Core) -> Result<CheckReport> {
    core.check_open()?;
    let mut report = CheckReport::default();
    let (state, view, snapshot, keyspaces) = {
        // Edits change file, state and view under this lock. So they agree here.
        let manifest = core.tables.manifest();
        if !manifest.is_broken() {
            check_manifest(core, &manifest.path(), manifest.state(), &mut report);
            check_current(core, &manifest.path(), &mut report);
        }
        let snapshot = core.snapshot();
        let keyspaces: Vec<_> = core.catalog.all().into_iter().map(|(_, state)| state).collect();
        (manifest.state().clone(), core.view.get(), snapshot, keyspaces)
    };
    let known = view.version.tables().map(|(run, live)| (live.file, run.level, run.id)).collect();
    tables::check_state(&state, Some(known), &core.dir, &mut report);
    let flushed = state.flushed_seq.unwrap_or_default();
    for (_, live) in view.version.tables() {
        tables::check_table(&live.table, &live.meta, state.newest_in_tables(), &mut report);
    }
    content::check_order(&view, &core.dir, &mut report);
    log::check_named(&core.env, &core.dir, || core.tables.manifest().state().log_extent(), &mut report)?;
    log::check_finished(&core.env, &core.dir, state.log_extent(), flushed, &mut report)?;
    let stated = |id| {
        let keyspace = keyspaces.iter().find(|keyspace| keyspace.id == id)?;
        // Unreadable tables were reported already.
        core.len_at(keyspace, &snapshot).ok()
    };
    let counted = core.exact_counts(&snapshot).unwrap_or_default();
    content::check_counts(&view, snapshot.seq(), stated, &counted, &core.dir, &mut report);
    // If the database was closed meanwhile, another process may use the files: they do not compare to
    // this state.
    core.check_open()?;
    Ok(report)
}

/// Checks that the next opening finds the manifest in force.
fn check_current(core: &Core, manifest: &std::path::Path, report: &mut CheckReport) {
    let path = core.dir.join(CURRENT);
    match read_current(&core.env, &core.dir) {
        Ok(Some(id)) if core.dir.join(manifest_name(id)) == manifest => {}
        Ok(Some(id)) => {
            let detail = format!("it names {}, not {}", manifest_name(id), manifest.display());
            report.problem(Error::corrupt("CURRENT", path, 0, detail));
        }
        Ok(None) => report.problem(Error::corrupt("CURRENT", path, 0, "the file is missing")),
        Err(error) => report.problem(error),
    }
}

/// Checks that the manifest file holds the state in force.
fn check_manifest(
    core: &Core,
    path: &std::path::Path,
    state: &crate::manifest::edit::VersionEdit,
    report: &mut CheckReport,
) {
    match salvage::salvage(&core.env, path) {
        Ok(found) => {
            found.damage.iter().for_each(|error| report.problem(error));
            if found.complete && found.state.as_ref() != Some(state) {
                report.problem(format!("{} is not the manifest in force", path.display()));
            }
        }
        Err(error) => report.problem(error),
    }
}
