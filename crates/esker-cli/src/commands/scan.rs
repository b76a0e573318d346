//! `esker scan`: prints entries in key order.

use super::past;
use crate::Answer;
use crate::args::{Common, Scan};
use crate::database::Session;
use crate::failure::Result;
use crate::formats::{JsonlWriter, RowWriter, TsvWriter, WordsWriter};
use crate::output;

pub(super) fn run(session: &Session<'_>, scan: &Scan) -> Result<Answer> {
    if let Some(since) = scan.since {
        return past::scan_since(session, scan, since.0);
    }
    let common = &session.common;
    let bounds = scan.range.bounds(common)?;
    let database = session.open_to_read()?;
    let keyspaces = database.keyspaces(common)?;
    let mut writer = writer(common, scan.keys_only)?;
    let Some(range) = bounds.range() else { return Ok(Answer::Yes) };
    let limit = scan.limit.unwrap_or(usize::MAX);
    for (name, keyspace) in &keyspaces {
        if common.has_several() {
            writer.begin_keyspace(name);
        }
        let entries = match scan.at {
            Some(at) => keyspace.at(at.0).map_err(|e| database.failure(e))?.range(range.clone()),
            None => database.range(keyspace, range.clone()),
        };
        if scan.keys_only {
            let keys = entries.keys();
            let keys: &mut dyn Iterator<Item = _> =
                if scan.reverse { &mut keys.rev() } else { &mut { keys } };
            for key in keys.take(limit) {
                writer.write(&key.map_err(|e| database.failure(e))?, b"")?;
            }
        } else {
            let entries: &mut dyn Iterator<Item = _> =
                if scan.reverse { &mut entries.rev() } else { &mut { entries } };
            for entry in entries.take(limit) {
                let (key, value) = entry.map_err(|e| database.failure(e))?;
                writer.write(&key, &value)?;
            }
        }
    }
    writer.finish()?;
    Ok(Answer::Yes)
}

/// Returns a writer that prints entries, or only their keys.
pub(super) fn writer(common: &Common, keys_only: bool) -> Result<Box<dyn RowWriter>> {
    let out = Box::new(output::stdout());
    if common.json {
        let writer = JsonlWriter::new(out, common.bytes)?;
        return Ok(Box::new(if keys_only { writer.keys_only() } else { writer }));
    }
    Ok(if keys_only {
        Box::new(WordsWriter::new(out, common.form()).lenient())
    } else {
        Box::new(TsvWriter::new(out, common.form()).lenient())
    })
}
