//! The `esker` tool: inspects, fills, dumps and checks a database from the command line.
//!
//! ```text
//!   command line --args--> commands/NAME --> Answer --> exit code 0 (yes) | 1 (no) | 2 (error)
//!                              |-- database: opens the database; messages say what to do
//!                              |-- target:   the file that export writes
//!                              |-- text:     bytes as text (escaped, raw, hex)
//!                              `-- formats:  rows from and to TSV, CSV, JSON lines, word lists
//! ```
//!
//! - Standard output contains only the answer. Progress and messages go to standard error.
//! - Keys and values are bytes: import restores exactly what export wrote.
//! - Only `put`, `import` and `serve` create a database, and commands that copy one: `load`, `checkpoint`,
//!   `backup restore` and `repair`.
//!
//! For users: docs/cli.md
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program around the engine: it reads and writes the user's own files and times its work"
)]

mod args;
mod backup_target;
mod bounds;
#[cfg(target_os = "linux")]
mod closed;
mod commands;
mod database;
mod expiry;
mod failure;
mod formats;
#[cfg(feature = "server")]
mod migration;
mod moment;
mod numbers;
mod output;
mod pager;
mod progress;
mod target;
mod text;

use std::process::ExitCode;

#[cfg(not(feature = "server"))]
use clap::Parser;

use crate::failure::Failure;

/// The answer of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done, or found: exit code 0.
    Yes,
    /// Not found, or not sound: exit code 1.
    No,
}

fn main() -> ExitCode {
    #[cfg(feature = "server")]
    let args = commands::serve::parse();
    #[cfg(not(feature = "server"))]
    let args = Ok(args::Args::parse());
    match args.and_then(commands::run) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        // The reader of the output closed it, as in `esker scan | head`.
        Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure) => {
            output::print_message(format_args!("esker: {failure}"));
            ExitCode::from(2)
        }
    }
}
