//! `check`: reads everything and compares every two things that must agree.
//!
//! ```text
//!   manifest file <--> manifest in force <--> tables (tables.rs) <--> runs and keys (content.rs) <--> counts
//!   log segments (log.rs)                                             offline.rs: all of it from the files alone
//! ```
//!
//! rescue_check.1. Nothing is changed. Reads and writes go on meanwhile; what is checked is the state at one commit.
//! rescue_check.2. Whatever is found is in the report; an error means that it was not possible to look.

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

/// What a check found.
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
    /// Commits in them. A log that is being written is read without its newest segment.
    pub commits: u64,
    /// Live keys over all keyspaces, counted one by one; none where something kept them from being counted. Offline they are counted only if
    /// all files are sound.
    pub live_keys: Option<u64>,
    /// What is wrong, each with file and offset where there is one. Empty: the database is sound.
    pub problems: Vec<String>,
    /// What is not wrong but worth knowing: files that nothing names, a torn tail of the log.
    pub notes: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong.
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

impl Core {
    /// Verifies the manifest, every block of every table, the order of keys, and of memtables and runs, that no segment of the
    /// log is lost, that the finished ones are sound and miss no commit, and that the live keys of each keyspace are as many
    /// as `len` says.
    pub(crate) fn check(&self) -> Result<CheckReport> {
        self.check_open()?;
        let mut report = CheckReport::default();
        let (state, view, snapshot, keyspaces) = {
            // Edits change file, state and view under this lock: here they agree.
            let manifest = self.tables.manifest();
            if !manifest.is_broken() {
                self.check_manifest(&manifest.path(), manifest.state(), &mut report);
                self.check_current(&manifest.path(), &mut report);
            }
            let snapshot = self.snapshot();
            let keyspaces: Vec<_> = self.catalog.all().into_iter().map(|(_, state)| state).collect();
            (manifest.state().clone(), self.view.get(), snapshot, keyspaces)
        };
        let known = view.version.tables().map(|(run, live)| (live.file, run.level, run.id)).collect();
        tables::check_state(&state, Some(known), &self.dir, &mut report);
        let flushed = state.flushed_seq.unwrap_or_default();
        for (_, live) in view.version.tables() {
            tables::check_table(&live.table, &live.meta, state.newest_in_tables(), &mut report);
        }
        content::check_order(&view, &self.dir, &mut report);
        log::check_named(&self.env, &self.dir, || self.tables.manifest().state().log_extent(), &mut report)?;
        log::check_finished(&self.env, &self.dir, state.log_extent(), flushed, &mut report)?;
        let said = |id| {
            let keyspace = keyspaces.iter().find(|keyspace| keyspace.id == id)?;
            // Tables that cannot be read have been reported.
            self.len_at(keyspace, &snapshot).ok()
        };
        let counted = self.exact_counts(&snapshot).unwrap_or_default();
        content::check_counts(&view, snapshot.seq(), said, &counted, &self.dir, &mut report);
        // Closed meanwhile: the files may be another process's by now, and are nothing to hold this one's state against.
        self.check_open()?;
        Ok(report)
    }

    /// The next opening finds the manifest in force.
    fn check_current(&self, manifest: &std::path::Path, report: &mut CheckReport) {
        let path = self.dir.join(CURRENT);
        match read_current(&self.env, &self.dir) {
            Ok(Some(id)) if self.dir.join(manifest_name(id)) == manifest => {}
            Ok(Some(id)) => {
                let detail = format!("it names {}, not {}", manifest_name(id), manifest.display());
                report.problem(Error::corrupt("CURRENT", path, 0, detail));
            }
            Ok(None) => report.problem(Error::corrupt("CURRENT", path, 0, "the file is missing")),
            Err(error) => report.problem(error),
        }
    }

    /// The file holds what is in force.
    fn check_manifest(
        &self,
        path: &std::path::Path,
        state: &crate::manifest::edit::VersionEdit,
        report: &mut CheckReport,
    ) {
        match salvage::salvage(&self.env, path) {
            Ok(found) => {
                found.damage.iter().for_each(|error| report.problem(error));
                if found.complete && found.state.as_ref() != Some(state) {
                    report.problem(format!("{} is not the manifest in force", path.display()));
                }
            }
            Err(error) => report.problem(error),
        }
    }
}
