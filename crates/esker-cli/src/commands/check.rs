//! `esker check`: reads and verifies everything.

use std::io::Write;

use esker::{CheckReport, Db, Error};
use serde_json::json;

use crate::Answer;
use crate::args::Check;
use crate::database::{self, Session};
use crate::failure::{Failure, Refusal, Result};
use crate::output;
use crate::text::shown;

pub(super) fn run(session: &Session<'_>, check: &Check) -> Result<Answer> {
    let report = if check.offline { offline(session)? } else { online(session)? };
    let printed = if session.common.json {
        output::print_json(&json!({
            "tables": report.tables, "blocks": report.blocks, "entries": report.entries, "bytes": report.bytes,
            "log_segments": report.log_segments, "commits": report.commits, "live_keys": report.live_keys,
            "problems": report.problems, "notes": report.notes,
        }))
    } else {
        print(&report)
    };
    output::printed(if report.is_sound() { Answer::Yes } else { Answer::No }, printed)
}

fn online(session: &Session<'_>) -> Result<CheckReport> {
    let found =
        session.open_to_read().and_then(|database| database.db.check().map_err(|e| database.failure(e)));
    match found {
        // A reason that prevents opening is part of the answer.
        Err(Failure::Engine(directory, error))
            if !matches!(error, Error::Locked { .. } | Error::NotFound(_)) =>
        {
            let refusal = Refusal::of(&error);
            if refusal == Some(Refusal::Descriptors) {
                return Err(Failure::Engine(directory, error));
            }
            let mut report = match offline(session) {
                // The process that has the database open excludes this check, not the one that failed.
                Err(Failure::Engine(_, Error::Locked { .. })) => {
                    return Err(Failure::Engine(directory, error));
                }
                report => report?,
            };
            match refusal {
                // A refusal by the system is not damage.
                Some(_) => report.notes.push(format!("checked without opening it: {error}")),
                // The database cannot be opened although the contents of its files are sound.
                None if report.is_sound() => report.problems.push(error.to_string()),
                None => {}
            }
            Ok(report)
        }
        found => found,
    }
}

fn offline(session: &Session<'_>) -> Result<CheckReport> {
    let directory = database::directory(session.opening)?;
    let env = database::env(session.opening)?;
    let check = || Db::builder().env(env.clone()).check_offline(&directory);
    database::when_free(session.opening.wait, check).map_err(|error| Failure::Engine(directory, error))
}

fn print(report: &CheckReport) -> Result<()> {
    let mut out = output::stdout();
    for note in &report.notes {
        writeln!(out, "note: {}", shown(note))?;
    }
    for problem in &report.problems {
        writeln!(out, "{}", shown(problem))?;
    }
    writeln!(
        out,
        "{}: {}; {}, {}, {}, {} read; {} in the log",
        if report.is_sound() {
            "sound".to_owned()
        } else {
            output::plural(report.problems.len() as u64, "problem")
        },
        report
            .live_keys
            .map_or("live keys not counted".to_owned(), |keys| { output::plural(keys, "live key") }),
        output::plural(report.tables, "table"),
        output::plural(report.blocks, "block"),
        output::plural_as(report.entries, "entry", "entries"),
        output::size(report.bytes),
        output::plural(report.commits, "commit"),
    )?;
    Ok(out.flush()?)
}
