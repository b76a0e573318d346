//! `esker checkpoint`: copies the database, mostly by hard links.

use std::path::Path;
use std::time::Instant;

use serde_json::json;

use crate::Answer;
use crate::database::Session;
use crate::failure::Result;
use crate::output;
use crate::text::shown;

pub(super) fn run(session: &Session<'_>, directory: &Path) -> Result<Answer> {
    let database = session.open_alone(super::COPY_BESIDE)?;
    let start = Instant::now();
    let made = database.db.checkpoint(directory).map_err(|e| super::backup::failed(&database, e))?;
    let seconds = start.elapsed().as_secs_f64();
    database.close()?;
    if session.common.json {
        output::print_json(&json!({
            "commit": made.seqno.get(), "linked_files": made.linked_files, "linked_bytes": made.linked_bytes,
            "copied_files": made.copied_files, "copied_bytes": made.copied_bytes, "seconds": seconds,
        }))?;
    } else {
        output::print_line(format_args!(
            "{}: commit {}, {} linked ({}), {} copied ({}), {seconds:.2} s",
            shown(directory.display()),
            output::count(made.seqno.get()),
            output::plural(made.linked_files, "file"),
            output::size(made.linked_bytes),
            output::plural(made.copied_files, "file"),
            output::size(made.copied_bytes),
        ))?;
    }
    Ok(Answer::Yes)
}
