//! `esker scan`: print entries in key order.

use crate::Answer;
use crate::args::{Args, Scan};
use crate::database::Database;
use crate::failure::Result;
use crate::formats::{JsonlWriter, RowWriter, TsvWriter, WordsWriter};
use crate::output;

pub(super) fn run(args: &Args, scan: &Scan) -> Result<Answer> {
    let bounds = scan.range.bounds(args)?;
    let database = Database::open(args)?;
    let keyspace = database.keyspace(args)?;
    let mut writer = writer(args, scan)?;
    let Some(range) = bounds.range() else { return Ok(Answer::Yes) };
    let entries = keyspace.range(range);
    let limit = scan.limit.unwrap_or(usize::MAX);
    if scan.keys_only {
        let keys = entries.keys();
        let keys: &mut dyn Iterator<Item = _> = if scan.reverse { &mut keys.rev() } else { &mut { keys } };
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
    writer.finish()?;
    Ok(Answer::Yes)
}

fn writer(args: &Args, scan: &Scan) -> Result<Box<dyn RowWriter>> {
    let out = Box::new(output::stdout());
    if args.json {
        let writer = JsonlWriter::new(out, args.bytes)?;
        return Ok(Box::new(if scan.keys_only { writer.keys_only() } else { writer }));
    }
    Ok(if scan.keys_only {
        Box::new(WordsWriter::new(out, args.form()).lenient())
    } else {
        Box::new(TsvWriter::new(out, args.form()).lenient())
    })
}
