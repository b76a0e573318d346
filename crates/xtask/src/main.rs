//! The project's own checks, beyond rustfmt and clippy.
//!
//! ```text
//!   git ls-files --> Repo --each of checks::ALL--> findings --> file:line: message, exit status
//! ```
//!
//! A check is a pure function from [`Repo`] to findings, so tests run it on a repository in memory.
#![expect(clippy::disallowed_methods, reason = "a developer's tool, outside the engine and its Env")]

mod bindings;
mod book;
mod cargo;
mod checks;
mod finding;
mod frameworks;
mod fuzz;
mod platforms;
mod repo;
mod sanitize;
mod sinks;
mod source;
mod stores;

use std::process::ExitCode;

use crate::finding::Severity;
use crate::repo::Repo;

const USAGE: &str = "\
The project's own checks.

Usage: cargo xtask <COMMAND>

Commands:
  tidy           Check every file of the repository; exit 1 if there is an error
  goldens        List the golden bytes that the lock does not hold, or that differ from it
  goldens --add  Add new golden bytes to the lock; if old ones changed or are gone, refuse
  ratchet        Write down what still exceeds a limit; refuse if it has grown
  sanitize KIND [--long]
                 Test the parts with unsafe or lock-free code under loom, address, thread, valgrind or miri
  fuzz [--minutes N] [--corpus DIR] [TARGET..]
                 Fuzz each of these targets, or all, for this many minutes (10); exit 1 if something is found
  fuzz --minimise [--corpus DIR] [TARGET..]
                 Write the smallest corpus with the coverage of all that was found to fuzz/corpus
  frameworks [WORD..]
                 Run the scripts in which frameworks of others work against the server, or those with such a name
  sinks          Test `esker feed --to` against a NATS server and a Kafka broker
  stores         Test the stores of esker-kv against servers
  platforms [NAME..]
                 Test the engine on Windows, arm and s390x, under emulators
  book           Test the blocks of the book, build its site with mdbook, and check the links of the site
  header         Make crates/esker-c/include/esker.h
  bindings       Check the header, and test the bindings for other languages
  help           Print this text";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        ["tidy"] => Repo::load().map(|repo| tidy(&repo)),
        ["goldens"] => Repo::load().map(|repo| report(&checks::goldens::check(&repo))),
        ["goldens", "--add"] => Repo::load().and_then(|repo| checks::goldens::add(&repo)),
        ["ratchet"] => Repo::load().and_then(|repo| checks::ratchet::tighten(&repo)),
        ["sanitize", kind] => sanitize::run(kind, false),
        ["sanitize", kind, "--long"] => sanitize::run(kind, true),
        ["fuzz", ref rest @ ..] => fuzz::run(rest),
        ["frameworks", ref words @ ..] => frameworks::run(words),
        ["sinks"] => sinks::run(),
        ["stores"] => stores::run(),
        ["platforms", ref names @ ..] => platforms::run(names),
        ["book"] => book::run(),
        ["header"] => bindings::header(true),
        ["bindings"] => bindings::run(),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(true)
        }
        _ => Err(format!("not a command: {:?}\n\n{USAGE}", args.join(" "))),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

fn tidy(repo: &Repo) -> bool {
    let findings: Vec<_> = checks::ALL.iter().flat_map(|(_, check)| check(repo)).collect();
    let sound = report(&findings);
    let warnings = findings.iter().filter(|f| f.severity == Severity::Warning).count();
    println!(
        "tidy: {} files, {} checks, {} errors, {warnings} warnings",
        repo.files.len(),
        checks::ALL.len(),
        findings.len() - warnings,
    );
    sound
}

/// Prints the findings. Returns whether none is an error.
fn report(findings: &[finding::Finding]) -> bool {
    for finding in findings {
        println!("{finding}");
    }
    findings.iter().all(|f| f.severity == Severity::Warning)
}
