//! `esker del`: removes keys, or all keys of a range.

use std::collections::BTreeSet;

use serde_json::json;

use crate::Answer;
use crate::args::{Common, Del};
use crate::database::Session;
use crate::failure::Result;
use crate::output;

pub(super) fn run(session: &Session<'_>, del: &Del) -> Result<Answer> {
    let common = &session.common;
    let keys = del.keys.iter().map(|key| common.decode(key)).collect::<Result<BTreeSet<_>>>()?;
    let bounds = del.range.bounds(common)?;
    let database = session.open()?;
    let keyspaces = database.keyspaces(common)?;
    let mut removed = 0;
    for (_, keyspace) in &keyspaces {
        if keys.is_empty() {
            removed += database.count(keyspace, &bounds)?;
        }
        for key in &keys {
            removed += u64::from(database.contains(keyspace, key)?);
        }
    }
    database.write(|writes| {
        for (_, keyspace) in &keyspaces {
            match bounds.range() {
                Some(range) if keys.is_empty() => writes.delete_range(keyspace, range)?,
                _ => {}
            }
            for key in &keys {
                writes.remove(keyspace, key)?;
            }
        }
        Ok(())
    })?;
    database.close()?;
    answer(common, removed)
}

/// Prints how many keys were removed.
pub(super) fn answer(common: &Common, removed: u64) -> Result<Answer> {
    let printed = if common.json { output::print_json(&json!({ "removed": removed })) } else { Ok(()) };
    output::printed(if removed > 0 { Answer::Yes } else { Answer::No }, printed)
}
