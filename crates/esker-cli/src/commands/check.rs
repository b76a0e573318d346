//! `esker check`: read everything and verify it.

use serde_json::json;

use crate::Answer;
use crate::args::Args;
use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::output;

pub(super) fn run(args: &Args) -> Result<Answer> {
    let found =
        Database::open(args).and_then(|database| database.db.check().map_err(|e| database.failure(e)));
    let report = match found {
        Ok(report) => report,
        // Damage that keeps the database from being opened is what this command is asked about, too.
        Err(Failure::Engine(_, error)) if error.is_corrupt() => {
            let problem = error.to_string();
            if args.json {
                output::print_json(&json!({ "problems": [problem] }))?;
            } else {
                println!("{problem}");
            }
            return Ok(Answer::No);
        }
        Err(failure) => return Err(failure),
    };
    if args.json {
        output::print_json(&json!({
            "tables": report.tables, "blocks": report.blocks, "entries": report.entries, "bytes": report.bytes,
            "live_keys": report.live_keys,
            "problems": report.problems,
        }))?;
    } else {
        for problem in &report.problems {
            println!("{problem}");
        }
        println!(
            "{}: {} live keys; {} tables, {} blocks, {} entries, {} read",
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
        );
    }
    Ok(if report.problems.is_empty() { Answer::Yes } else { Answer::No })
}
