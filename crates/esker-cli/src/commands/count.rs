//! `esker count`: prints the number of entries.

use std::io::Write;

use serde_json::json;

use crate::Answer;
use crate::args::{Common, Count};
use crate::database::Session;
use crate::failure::Result;
use crate::output;
use crate::text::shown;

pub(super) fn run(session: &Session<'_>, count: &Count) -> Result<Answer> {
    let common = &session.common;
    let bounds = count.range.bounds(common)?;
    let database = session.open_to_read()?;
    let keyspaces = database.keyspaces(common)?;
    let mut out = output::stdout();
    for (name, keyspace) in &keyspaces {
        let entries = database.count(keyspace, &bounds)?;
        print(&mut out, common, name, ("entries", entries))?;
    }
    out.flush()?;
    Ok(Answer::Yes)
}

/// Prints a figure of a keyspace: its name and its value.
pub(super) fn print(
    out: &mut impl Write,
    common: &Common,
    keyspace: &str,
    (name, value): (&str, u64),
) -> Result<()> {
    match (common.json, common.has_several()) {
        (true, true) => writeln!(out, "{}", json!({ "keyspace": keyspace, name: value }))?,
        (true, false) => writeln!(out, "{}", json!({ name: value }))?,
        (false, true) => writeln!(out, "{}\t{value}", shown(keyspace))?,
        (false, false) => writeln!(out, "{value}")?,
    }
    Ok(())
}
