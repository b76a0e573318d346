//! `esker stats --tables`: one line, or JSON object, for each table.

use std::io::Write;

use esker::{Db, TableInfo, TableKey};
use serde_json::{Value, json};

use crate::Answer;
use crate::failure::Result;
use crate::output::{self, count, size};
use crate::text::shown;

pub(super) fn print(db: &Db, is_json: bool) -> Result<Answer> {
    let tables = db.tables();
    if is_json {
        let tables: Vec<Value> = tables.iter().map(to_json).collect();
        output::print_json(&json!(tables))?;
        return Ok(Answer::Yes);
    }
    let mut out = output::stdout();
    for table in &tables {
        writeln!(out, "{}", line(table))?;
    }
    out.flush()?;
    Ok(Answer::Yes)
}

fn line(table: &TableInfo) -> String {
    let (oldest, newest) = table.commits;
    let removals = table.tombstones + table.range_tombstones;
    format!(
        "{:8} run {:<6} table {:<6} {:>10}  {} entries, {} removals  commits {oldest} to {newest}  {} to {}  {}",
        table.level.to_string(),
        table.run,
        table.file,
        size(table.bytes),
        count(table.entries),
        count(removals),
        key(&table.first),
        key(&table.last),
        table.keyspaces.iter().map(|name| shown(name).to_string()).collect::<Vec<_>>().join(", "),
    )
}

/// Shows a key behind the number of its keyspace.
fn key(key: &TableKey) -> String {
    format!("{}:\"{}\"", key.keyspace, key.key.escape_ascii())
}

fn to_json(table: &TableInfo) -> Value {
    json!({
        "level": table.level.to_string(),
        "run": table.run,
        "file": table.file,
        "bytes": table.bytes,
        "entries": table.entries,
        "keys": table.keys,
        "tombstones": table.tombstones,
        "range_tombstones": table.range_tombstones,
        "oldest_commit": table.commits.0.get(),
        "newest_commit": table.commits.1.get(),
        "first_keyspace": table.first.keyspace.get(),
        "first_key": table.first.key.escape_ascii().to_string(),
        "last_keyspace": table.last.keyspace.get(),
        "last_key": table.last.key.escape_ascii().to_string(),
        "keyspaces": table.keyspaces,
    })
}
