//! The command line.
//!
//! The command that is stored in run.json and shown on the page has no path. The same parser reads it again.

use std::any::TypeId;
use std::path::PathBuf;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::load::command::{LoadArguments, MakedataArguments};
use crate::load::read::ReadArguments;
use crate::scale::Scale;
use crate::suites::open::End;

const EXAMPLES: &str = "\
Examples:
  esker-bench                                      suite redb, scale quick, Esker, LMDB and redb, 5 runs
  esker-bench list                                 what can be run
  esker-bench run redb --scale seed --runs 5       the published sizes
  esker-bench run redb --engine esker --engine lmdb --dir /mnt/fast
  esker-bench run all --resume                     every suite; goes on after an interruption
  esker-bench report a/results.jsonl b/results.jsonl
  esker-bench picture redb/results.jsonl --out redb.svg
  esker-bench compare before.jsonl after.jsonl     significance by pairs of runs
  esker-bench async-commits --engine esker         what async commits are there after a kill
  esker-bench makedata 1_000_000 --hotspot 0.99999:13 | esker-bench load --dir /tmp/db --concurrency 64 --multi 20 --latency
  esker-bench load --server 127.0.0.1:6379 --seq 1_000_000 --rate 15_000 --multi 2 --concurrency 50 --latency
  esker-bench read --server 127.0.0.1:6379 --seq 1_000_000 --multi 20 --concurrency 5 --latency

A run prints a table and leaves in --out:
  results.jsonl   one JSON object per row and run: suite, row, engine, version, scale, run, value, unit, better, ...
  run.json        machine, commit, command, versions and options of the engines
  report.html     the table with bars, to open in a browser

Build with --release: figures of any other build mean nothing. Leave the machine alone while it runs.
docs/benchmarking.md says how the figures are made and how to add an engine or a suite.";

/// Arguments for a call without any: about three minutes, for a first look.
pub(crate) const FIRST_LOOK: [&str; 9] =
    ["esker-bench", "run", "redb", "--engine", "esker", "--engine", "lmdb", "--engine", "redb"];

/// Features of this build, as `cargo run` takes them.
const FEATURES: &str = if cfg!(feature = "rocksdb") { " --features rocksdb" } else { "" };

/// Measures Esker beside other embedded key-value engines: same data, same durability, same memory, every
/// read checked.
#[derive(Parser)]
#[command(name = "esker-bench", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List suites with their rows, engines with their options, and scales
    List,
    /// Run a suite on engines that take turns, in a fresh process and directory each time
    Run(RunArguments),
    /// Print the tables of existing results and write the report page
    Report {
        /// Files of results
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Directory for report.html
        #[arg(long, default_value = "bench-out")]
        out: PathBuf,
    },
    /// Draw a suite as one SVG: Esker beside the best other engine, a bar a row
    Picture {
        /// Results of one suite
        results: PathBuf,
        /// File for the picture
        #[arg(long)]
        out: PathBuf,
    },
    /// Compare two files of results, row by row, run by run
    Compare {
        /// Results before
        before: PathBuf,
        /// Results after
        after: PathBuf,
    },
    /// Write pairs into an engine or a server, as obigstore's bm_write does; without a mode it reads a stream
    /// of pairs from stdin
    Load(LoadArguments),
    /// Read rows of a server at random, as obigstore's bm_read does: look-ups, or ranges; each answer is
    /// verified
    Read(ReadArguments),
    /// Write a stream of pairs to stdout (lengths are u32, little-endian), as obigstore's bm_makedata does
    Makedata(MakedataArguments),
    /// Print the tables that the workloads' sources published, beside ours
    SeedTables {
        /// Result files to compare; the machine is read from their run.json
        #[arg(value_name = "RESULTS.jsonl")]
        results: Vec<PathBuf>,
    },
    /// Kill a process of each engine after async commits; compare what survived with what the adapter claims
    AsyncCommits {
        /// Engine to look at, repeatable; by default all except those in Go
        #[arg(long = "engine", value_name = "NAME")]
        engines: Vec<String>,
        /// Directory in which databases are made and removed
        #[arg(long, default_value = "bench-out")]
        dir: PathBuf,
    },
    /// A process that makes async commits and waits to be killed
    #[command(hide = true)]
    AsyncWriter {
        /// Engine
        engine: String,
        /// How many
        commits: u64,
        /// Directory of the database
        dir: PathBuf,
    },
    /// Prints how many of those commits survived
    #[command(hide = true)]
    AsyncSurvivors {
        /// Engine
        engine: String,
        /// How many there were
        commits: u64,
        /// Directory of the database
        dir: PathBuf,
    },
    /// A process that writes a database for suite `open`, and started by it
    #[command(hide = true)]
    OpenWriter {
        /// Engine
        engine: String,
        /// Items to load first
        count: u64,
        /// How it ends
        end: End,
        /// Directory of the database
        dir: PathBuf,
    },
    /// One run of one engine, started by `run`
    #[command(hide = true)]
    Child(ChildArguments),
}

#[derive(clap::Args)]
pub(crate) struct RunArguments {
    /// Suites to run, or `all`; `esker-bench list` names them
    #[arg(default_value = "redb")]
    pub(crate) suites: Vec<String>,
    /// Engine to run, repeatable; when left out, all but those in Go, which have to be named
    #[arg(long = "engine", value_name = "NAME")]
    pub(crate) engines: Vec<String>,
    /// How much work
    #[arg(long, value_enum, default_value = "quick")]
    pub(crate) scale: Scale,
    /// How often each engine takes its turn; medians need 3 or more
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// Directory on the disk to measure; databases are made in it and removed [default: that of --out]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Directory for the results
    #[arg(long, default_value = "bench-out")]
    pub(crate) out: PathBuf,
    /// Go on with the run that was interrupted and left its results in --out
    #[arg(long)]
    pub(crate) resume: bool,
    /// With --resume: run again the rows that timed out, filled the disk, or were skipped after a failure, of
    /// the named engines
    #[arg(long, requires = "resume")]
    pub(crate) retry_failed: bool,
    /// Skip counting syncs with strace. The report notes that sync rows are unverified
    #[arg(long)]
    pub(crate) no_trace: bool,
    /// Trim the device before each turn (`fstrim`, needs a privilege), so that all engines start equal
    #[arg(long)]
    pub(crate) trim: bool,
    /// Allow a read-ahead above 128 KiB, the kernel's default, at scales seed and full
    #[arg(long)]
    pub(crate) any_read_ahead: bool,
    /// Run only part N (from 1; listed in docs/benchmarking.md). May be repeated
    #[arg(long = "part", value_name = "N", conflicts_with = "retry_failed")]
    pub(crate) parts: Vec<usize>,
    /// Start no turn after this many minutes; --resume continues
    #[arg(long, value_name = "MINUTES")]
    pub(crate) stop_after: Option<u64>,
    /// Longest time for one row, or for a load; past it the engine is stopped, and this row and its later
    /// ones fail [default: by scale]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
}

#[derive(clap::Args)]
pub(crate) struct ChildArguments {
    pub(crate) suite: String,
    pub(crate) engine: String,
    #[arg(value_enum)]
    pub(crate) scale: Scale,
    pub(crate) run: u32,
    pub(crate) dir: PathBuf,
    #[arg(long, default_value = "")]
    pub(crate) commit: String,
    #[arg(long, default_value_t = 0)]
    pub(crate) group: usize,
    #[arg(long, default_value = "")]
    pub(crate) memory_limit: String,
    #[arg(long)]
    pub(crate) traced: bool,
}

/// Returns the command that repeats a call with these arguments.
pub(crate) fn command_of(arguments: &[String]) -> String {
    let words = without_paths(arguments);
    let separator = if words.is_empty() { "" } else { " -- " };
    format!("cargo run --release -p esker-bench{FEATURES}{separator}{}", words.join(" "))
}

/// Removes the options of `run` that take a path, with their values.
fn without_paths(arguments: &[String]) -> Vec<&str> {
    let cli = Cli::command();
    let options = cli.find_subcommand("run").into_iter().flat_map(clap::Command::get_arguments);
    let paths = options.filter(|option| option.get_value_parser().type_id() == TypeId::of::<PathBuf>());
    let paths: Vec<String> = paths.filter_map(|path| Some(format!("--{}", path.get_long()?))).collect();
    let mut words = arguments.iter().map(String::as_str);
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match paths.iter().find_map(|path| word.strip_prefix(path.as_str())) {
            Some("") => {
                words.next();
            }
            Some(rest) if rest.starts_with('=') => {}
            _ => kept.push(word),
        }
    }
    kept
}

/// Parses the command of a call of `run`. Returns `None` if this program cannot parse it, for example if
/// another version wrote it.
pub(crate) fn run_arguments(command: &str) -> Option<RunArguments> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let program = words.iter().position(|word| word.ends_with("esker-bench"))?;
    let start = words.iter().position(|word| *word == "--").unwrap_or(program) + 1;
    let cli = match &words[start..] {
        words @ ["run", ..] => Cli::try_parse_from(std::iter::once(&"esker-bench").chain(words)),
        _ => Cli::try_parse_from(FIRST_LOOK),
    };
    match cli.ok()?.command? {
        Command::Run(arguments) => Some(arguments),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_names_no_path_and_is_read_as_it_was_given() {
        let given = "run int redb --dir /mnt/a --trim --out=b --engine esker --timeout 7 --out c --resume";
        let given: Vec<String> = given.split(' ').map(str::to_owned).collect();
        let command = command_of(&given);
        let own = command.split_once(" -- ").unwrap().1;
        assert_eq!(own, "run int redb --trim --engine esker --timeout 7 --resume");
        let read = run_arguments(&command).unwrap();
        assert_eq!(
            (read.suites, read.engines),
            (vec!["int".to_owned(), "redb".to_owned()], vec!["esker".to_owned()])
        );
        assert!(read.trim && read.resume && read.timeout == Some(7));
        // A flag takes no value, so the next word is a suite.
        let flags = "esker-bench run --no-trace --trim --resume --retry-failed --any-read-ahead ycsb";
        assert_eq!(run_arguments(flags).unwrap().suites, ["ycsb"]);
        assert_eq!(run_arguments(&command_of(&[])).unwrap().engines, ["esker", "lmdb", "redb"]);
        assert!(run_arguments("esker-bench run redb --of-another-version").is_none());
        assert!(run_arguments("another program").is_none());
    }
}
