//! Defines the commands of the shell: those of the tool that work on an open database, and a few of its own.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use super::words;
use crate::args::{Common, Count, Del, FeedArgs, Get, Keyspaces, Merge, Put, RangeArgs, Scan, Versions};
use crate::commands::stats::StatsArgs;
use crate::commands::ttl::TtlArgs;
use crate::failure::{Failure, Result};

const AFTER_HELP: &str = "\
Words with spaces stand in quotes of either kind; a backslash is a backslash, unless the line has
--escapes. What has no answer prints nothing. `help COMMAND` explains a command; a dot in front of a
command changes nothing.

Examples:
  put ann 'Ann Smith'
  get ann
  prefix a --limit 10
  use users
  begin                                  from here on, what is written waits for `commit`";

/// One parsed line of the shell.
#[derive(Debug, Parser)]
#[command(
    name = "esker shell",
    about = "The commands of the shell, one per line.",
    no_binary_name = true,
    override_usage = "COMMAND [ARGUMENTS]",
    after_help = AFTER_HELP,
    max_term_width = 100
)]
pub(super) struct Line {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(subcommand)]
    pub(super) command: ShellCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ShellCommand {
    /// Print the value of a key
    #[command(after_help = "Examples:\n  get ann\n  get -k mails ann")]
    Get(Get),
    /// Set a key to a value
    #[command(after_help = "Examples:\n  put ann 'Ann Smith'\n  put --escapes a 'two\\nlines'")]
    Put(Put),
    /// Apply the merge operator of the keyspace to a key
    #[command(after_help = "Examples:\n  merge --as i64 visits 1")]
    Merge(Merge),
    /// Remove keys, or all keys of a range
    #[command(after_help = "Examples:\n  del ann bob\n  del --prefix session:")]
    Del(Del),
    /// Print entries in key order, a page at a time
    #[command(
        after_help = "Examples:\n  scan\n  scan --from m --to n --keys-only\n  scan --reverse --limit 3"
    )]
    Scan(Scan),
    /// Print the remaining time to live of a key
    #[command(after_help = "Examples:\n  ttl ann")]
    Ttl(TtlArgs),
    /// Print the versions of a key, newest first
    #[command(after_help = "Examples:\n  versions ann\n  versions ann --limit 3")]
    Versions(Versions),
    /// Print the entries whose keys have a prefix
    #[command(after_help = "Examples:\n  prefix app\n  prefix app --limit 10")]
    Prefix {
        /// The prefix
        #[arg(value_name = "KEY", allow_negative_numbers = true)]
        prefix: OsString,
        /// Stop after this many entries per keyspace
        #[arg(short = 'n', long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Print the first entry
    #[command(after_help = "Examples:\n  first")]
    First,
    /// Print the last entry
    #[command(after_help = "Examples:\n  last")]
    Last,
    /// Print the number of entries
    #[command(after_help = "Examples:\n  count\n  count --prefix app")]
    Count(Count),
    /// Print what each commit changed
    #[command(after_help = "Examples:\n  feed\n  feed --since 100 --limit 10")]
    Feed(FeedArgs),
    /// Make another keyspace the current one
    #[command(after_help = "Examples:\n  use users")]
    Use {
        /// Name of the keyspace
        name: String,
    },
    /// List keyspaces, and create, drop, rename, clear and copy them
    #[command(after_help = "Examples:\n  keyspaces\n  keyspaces create users\n  keyspaces drop users")]
    Keyspaces {
        #[command(subcommand)]
        action: Option<Keyspaces>,
    },
    /// Print the options in force and the keyspaces
    #[command(after_help = "Examples:\n  info")]
    Info,
    /// Print the engine's statistics
    #[command(after_help = "Examples:\n  stats\n  stats --watch 2 --count 5")]
    Stats(StatsArgs),
    /// Compact everything into one run
    #[command(after_help = "Examples:\n  compact")]
    Compact,
    /// Read and verify everything
    #[command(after_help = "Examples:\n  check")]
    Check,
    /// Begin a transaction: it reads a snapshot, and its writes take effect at `commit`
    #[command(after_help = "Examples:\n  begin")]
    Begin,
    /// Commit the transaction, all or nothing
    #[command(after_help = "Examples:\n  commit")]
    Commit,
    /// Set a savepoint in the transaction
    #[command(after_help = "Examples:\n  savepoint before")]
    Savepoint {
        /// A name for `rollback`
        name: String,
    },
    /// Discard the transaction, or what it wrote since a savepoint
    #[command(after_help = "Examples:\n  rollback\n  rollback before")]
    Rollback {
        /// The savepoint, which stays
        savepoint: Option<String>,
    },
    /// Leave the shell
    #[command(visible_alias = "quit", after_help = "Examples:\n  exit")]
    Exit,
}

/// What a line requests.
pub(super) enum Asked {
    Nothing,
    /// Print this help text.
    Help(String),
    Command(Box<Line>),
}

/// Parses a line. An empty line or a comment requests nothing.
pub(super) fn parse(line: &str) -> Result<Asked> {
    let line = line.trim();
    if line.starts_with('#') {
        return Ok(Asked::Nothing);
    }
    let mut words = words::split(line.strip_prefix('.').unwrap_or(line)).map_err(Failure::message)?;
    match words.first_mut() {
        None => return Ok(Asked::Nothing),
        Some(first) if first == "?" => "help".clone_into(first),
        Some(_) => {}
    }
    match Line::try_parse_from(words) {
        Ok(line) => Ok(Asked::Command(Box::new(line))),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Asked::Help(error.render().to_string()))
        }
        Err(error) => {
            let text = error.render().to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            Err(Failure::message(text.trim_end().replace("'--help'", "`help`")))
        }
    }
}

impl ShellCommand {
    /// Returns the equivalent `scan`, if there is one.
    pub(super) fn as_scan(&self) -> Option<Scan> {
        match self {
            ShellCommand::Prefix { prefix, limit } => {
                Some(Scan { range: RangeArgs::prefix(prefix.clone()), limit: *limit, ..Scan::default() })
            }
            ShellCommand::First => Some(Scan { limit: Some(1), ..Scan::default() }),
            ShellCommand::Last => Some(Scan { limit: Some(1), reverse: true, ..Scan::default() }),
            _ => None,
        }
    }
}

/// Returns the possible completions of a word; `before` are the preceding words.
pub(super) fn candidates(before: &[String], keyspaces: &[String]) -> Vec<String> {
    let shell = Line::command();
    let names = |command: &clap::Command| -> Vec<String> {
        let names = command.get_subcommands().map(|command| command.get_name().to_owned());
        names.chain((command.get_name() == shell.get_name()).then(|| "help".to_owned())).collect()
    };
    let options = |command: &clap::Command| -> Vec<String> {
        let own = command.get_arguments().chain(shell.get_arguments());
        own.filter_map(|argument| argument.get_long()).map(|long| format!("--{long}")).collect()
    };
    let words: Vec<&str> = before.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["help"] => names(&shell),
        [.., "-k" | "--keyspace"] | ["use"] => keyspaces.to_vec(),
        ["keyspaces"] => shell.find_subcommand("keyspaces").map(names).unwrap_or_default(),
        ["keyspaces", "drop" | "clear" | "rename" | "copy" | "history"] => keyspaces.to_vec(),
        [command, ..] => shell.find_subcommand(command).map(options).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_shell_are_consistent() {
        Line::command().debug_assert();
    }

    #[test]
    fn commands_options_and_keyspaces_are_completed() {
        let words = |line: &str| words::split(line).unwrap();
        let of = |line: &str| candidates(&words(line), &["users".to_owned()]);
        assert!(["get", "begin", "help"].iter().all(|name| of("").contains(&(*name).to_owned())));
        assert!(of("scan").contains(&"--reverse".to_owned()) && of("scan").contains(&"--json".to_owned()));
        assert!(of("keyspaces").contains(&"copy".to_owned()));
        for line in ["use", "get -k", "keyspaces drop"] {
            assert_eq!(of(line), ["users"], "{line}");
        }
        assert!(of("nonsense").is_empty());
    }
}
