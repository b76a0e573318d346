//! `esker size` and `esker split`: estimated bytes of a range, and keys that cut it into equal parts.

use std::io::Write;

use super::{count, scan};
use crate::Answer;
use crate::args::{Count, Split};
use crate::database::Session;
use crate::failure::Result;
use crate::output;

pub(super) fn size(session: &Session<'_>, args: &Count) -> Result<Answer> {
    let common = &session.common;
    let bounds = args.range.bounds(common)?;
    let database = session.open_to_read()?;
    let keyspaces = database.keyspaces(common)?;
    let mut out = output::stdout();
    for (name, keyspace) in &keyspaces {
        let bytes = bounds.range().map_or(Ok(0), |range| keyspace.approximate_size(range));
        let bytes = bytes.map_err(|e| database.failure(e))?;
        count::print(&mut out, common, name, ("bytes", bytes))?;
    }
    out.flush()?;
    Ok(Answer::Yes)
}

pub(super) fn split(session: &Session<'_>, split: &Split) -> Result<Answer> {
    let common = &session.common;
    let bounds = split.range.bounds(common)?;
    let database = session.open_to_read()?;
    let keyspaces = database.keyspaces(common)?;
    let mut writer = scan::writer(common, true)?;
    let Some(range) = bounds.range() else { return Ok(Answer::Yes) };
    for (name, keyspace) in &keyspaces {
        if common.has_several() {
            writer.begin_keyspace(name);
        }
        let points = keyspace.split_points(&range, split.parts.get() as usize);
        for key in points.map_err(|e| database.failure(e))? {
            writer.write(&key, b"")?;
        }
    }
    writer.finish()?;
    Ok(Answer::Yes)
}
