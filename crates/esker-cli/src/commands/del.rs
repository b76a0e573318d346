//! `esker del`: remove keys, or all keys of a range.

use serde_json::json;

use crate::Answer;
use crate::args::{Args, Del};
use crate::database::Database;
use crate::failure::Result;
use crate::output;

pub(super) fn run(args: &Args, del: &Del) -> Result<Answer> {
    let keys = del.keys.iter().map(|key| args.decode(key)).collect::<Result<Vec<_>>>()?;
    let bounds = del.range.bounds(args)?;
    let database = Database::open(args)?;
    let keyspace = database.keyspace(args)?;
    let before = keyspace.len().map_err(|e| database.failure(e))?;
    if keys.is_empty() {
        if let Some(range) = bounds.range() {
            keyspace.remove_range(range).map_err(|e| database.failure(e))?;
        }
    } else {
        // One commit: all of the keys, or none.
        let mut batch = database.db.batch();
        for key in &keys {
            batch.remove(&keyspace, key).map_err(|e| database.failure(e))?;
        }
        batch.commit().map_err(|e| database.failure(e.error))?;
    }
    let removed = before - keyspace.len().map_err(|e| database.failure(e))?;
    database.close()?;
    let printed = if args.json { output::print_json(&json!({ "removed": removed })) } else { Ok(()) };
    output::printed(if removed > 0 { Answer::Yes } else { Answer::No }, printed)
}
