//! `esker check`: read everything and verify it.

use std::io::Write;

use esker::{CheckReport, Error};
use serde_json::json;

use crate::Answer;
use crate::args::{Args, Check};
use crate::database::{self, Database};
use crate::failure::{Failure, Result};
use crate::output;
use crate::text::shown;

pub(super) fn run(args: &Args, check: &Check) -> Result<Answer> {
    let report = if check.offline { offline(args)? } else { online(args)? };
    let printed = if args.json {
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

fn online(args: &Args) -> Result<CheckReport> {
    let found =
        Database::open(args).and_then(|database| database.db.check().map_err(|e| database.failure(e)));
    match found {
        // What keeps the database from being opened is what this command is asked about, too.
        Err(Failure::Engine(_, error)) if !matches!(error, Error::Locked { .. } | Error::NotFound(_)) => {
            let mut report = offline(args)?;
            // Even if nothing is wrong with what the files hold.
            if report.is_sound() {
                report.problems.push(error.to_string());
            }
            Ok(report)
        }
        found => found,
    }
}

fn offline(args: &Args) -> Result<CheckReport> {
    let directory = database::directory(args)?;
    esker::check_offline(&directory).map_err(|error| Failure::Engine(directory, error))
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
        "{}: {}; {} tables, {} blocks, {} entries, {} read; {} commits in the log",
        if report.is_sound() {
            "sound".to_owned()
        } else {
            format!("{} PROBLEM{}", report.problems.len(), if report.problems.len() == 1 { "" } else { "S" })
        },
        report.live_keys.map_or("live keys not counted".to_owned(), |keys| {
            format!("{} live keys", output::count(keys))
        }),
        output::count(report.tables),
        output::count(report.blocks),
        output::count(report.entries),
        output::size(report.bytes),
        output::count(report.commits),
    )?;
    Ok(out.flush()?)
}
