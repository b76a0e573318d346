//! `esker count`: print how many entries there are.

use std::io::Write;

use serde_json::json;

use crate::Answer;
use crate::args::{Args, Count};
use crate::database::Database;
use crate::failure::Result;
use crate::output;

pub(super) fn run(args: &Args, count: &Count) -> Result<Answer> {
    let bounds = count.range.bounds(args)?;
    let database = Database::open(args)?;
    let keyspace = database.keyspace(args)?;
    let entries = if bounds.is_all() {
        keyspace.len().map_err(|e| database.failure(e))?
    } else {
        let mut entries = 0;
        for key in bounds.range().map(|range| keyspace.range(range).keys()).into_iter().flatten() {
            key.map_err(|e| database.failure(e))?;
            entries += 1;
        }
        entries
    };
    if args.json {
        output::print_json(&json!({ "entries": entries }))?;
    } else {
        let mut out = output::stdout();
        writeln!(out, "{entries}")?;
        out.flush()?;
    }
    Ok(Answer::Yes)
}
