//! `esker check`: read everything and verify it.

use esker::CheckReport;
use serde_json::json;

use crate::Answer;
use crate::args::{Args, Check};
use crate::database::{self, Database};
use crate::failure::{Failure, Result};
use crate::output;

pub(super) fn run(args: &Args, check: &Check) -> Result<Answer> {
    let report = if check.offline { offline(args)? } else { online(args)? };
    if args.json {
        output::print_json(&json!({
            "tables": report.tables, "blocks": report.blocks, "entries": report.entries, "bytes": report.bytes,
            "log_segments": report.log_segments, "commits": report.commits, "live_keys": report.live_keys,
            "problems": report.problems, "notes": report.notes,
        }))?;
    } else {
        print(&report);
    }
    Ok(if report.problems.is_empty() { Answer::Yes } else { Answer::No })
}

fn online(args: &Args) -> Result<CheckReport> {
    let found =
        Database::open(args).and_then(|database| database.db.check().map_err(|e| database.failure(e)));
    match found {
        // Damage that keeps the database from being opened is what this command is asked about, too.
        Err(Failure::Engine(_, error)) if error.is_corrupt() => offline(args),
        found => found,
    }
}

fn offline(args: &Args) -> Result<CheckReport> {
    let directory = database::directory(args)?;
    esker::check_offline(&directory).map_err(|error| Failure::Engine(directory, error))
}

fn print(report: &CheckReport) {
    for note in &report.notes {
        println!("note: {note}");
    }
    for problem in &report.problems {
        println!("{problem}");
    }
    println!(
        "{}: {} live keys; {} tables, {} blocks, {} entries, {} read; {} commits in the log",
        if report.problems.is_empty() {
            "sound".to_owned()
        } else {
            format!("{} PROBLEMS", report.problems.len())
        },
        output::count(report.live_keys),
        output::count(report.tables),
        output::count(report.blocks),
        output::count(report.entries),
        output::size(report.bytes),
        output::count(report.commits),
    );
}
