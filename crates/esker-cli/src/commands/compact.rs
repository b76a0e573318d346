//! `esker compact`: compacts everything, or a range, into one run.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use crate::Answer;
use crate::args::RangeArgs;
use crate::database::{Database, Session};
use crate::failure::{Failure, Result};
use crate::output;

pub(super) fn run(session: &Session<'_>, range: &RangeArgs) -> Result<Answer> {
    let bounds = range.bounds(&session.common)?;
    if bounds.is_all() && !session.common.names_keyspace() {
        return all(session);
    }
    let compact = |database: &Database| {
        let Some(range) = bounds.range() else { return Ok(()) };
        for (_, keyspace) in database.keyspaces(&session.common)? {
            keyspace.compact_range(&range).map_err(|e| database.failure(e))?;
        }
        Ok(())
    };
    measured(session, compact)
}

/// Compacts the whole database.
pub(super) fn all(session: &Session<'_>) -> Result<Answer> {
    measured(session, |database| database.db.compact().map_err(|e| database.failure(e)))
}

/// Prints the size of the database before and after a compaction.
fn measured(session: &Session<'_>, compact: impl FnOnce(&Database) -> Result<()>) -> Result<Answer> {
    let database = session.open()?;
    let directory = database.directory().to_owned();
    let measure = || disk_bytes(&directory).map_err(|e| Failure::file("measure", &directory, &e));
    let before = measure()?;
    let start = Instant::now();
    compact(&database)?;
    // Closing deletes the files that the compaction made obsolete, so it is part of the measured work.
    database.close()?;
    let seconds = start.elapsed().as_secs_f64();
    let after = measure()?;
    if session.common.json {
        output::print_json(&json!({ "before_bytes": before, "after_bytes": after, "seconds": seconds }))?;
    } else {
        let (before, after) = (output::size(before), output::size(after));
        output::print_line(format_args!("{before} before, {after} after, {seconds:.2} s"))?;
    }
    Ok(Answer::Yes)
}

/// Returns the size of all files of a database.
fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        match entry?.metadata() {
            Ok(meta) => bytes += meta.len(),
            // A background thread deleted the file after the directory was read.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(bytes)
}
