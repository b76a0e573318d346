//! `esker info`: prints the options in force and the keyspaces.

use std::io::Write;

use serde_json::{Map, Value, json};

use crate::Answer;
use crate::bounds::Bounds;
use crate::database::Session;
use crate::failure::Result;
use crate::output;
use crate::text::shown;

pub(super) fn run(session: &Session<'_>) -> Result<Answer> {
    let database = session.open_to_read()?;
    database.say_whose_figures();
    let mut keyspaces = Vec::new();
    for name in database.names()? {
        let keyspace = database.keyspace(&name)?;
        let entries = database.count(&keyspace, &Bounds::default())?;
        keyspaces.push((name, entries, keyspace.bytes_max()));
    }
    let options = database.db.info().pairs();
    if session.common.json {
        let keyspaces: Map<String, Value> =
            keyspaces.into_iter().map(|(name, entries, _)| (name, entries.into())).collect();
        let options: Map<String, Value> =
            options.into_iter().map(|(name, value)| (name.to_owned(), output::json_figure(&value))).collect();
        let path = database.db.path().display().to_string();
        output::print_json(&json!({ "path": path, "keyspaces": keyspaces, "options": options }))?;
        return Ok(Answer::Yes);
    }
    let mut out = output::stdout();
    writeln!(out, "database {}", shown(database.db.path().display()))?;
    writeln!(out, "\nkeyspaces (entries)")?;
    let row = |(name, entries, bytes_max): (String, u64, Option<u64>)| {
        let limit = bytes_max.map_or(String::new(), |bytes| format!(", at most {bytes} bytes"));
        (shown(name), format!("{entries}{limit}"))
    };
    let rows: Vec<(String, String)> = keyspaces.into_iter().map(row).collect();
    output::write_pairs(&mut out, &rows)?;
    writeln!(out, "\noptions in force")?;
    let options: Vec<_> = options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    output::write_pairs(&mut out, &options)?;
    out.flush()?;
    Ok(Answer::Yes)
}
