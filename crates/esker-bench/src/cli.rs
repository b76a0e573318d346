//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::load::command::{LoadArguments, MakedataArguments};
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
  esker-bench compare before.jsonl after.jsonl     significance by pairs of runs
  esker-bench makedata 1_000_000 --hotspot 0.99999:13 | esker-bench load --dir /tmp/db --concurrency 64 --multi 20 --latency

A run prints a table and leaves in --out:
  results.jsonl   one JSON object per row and run: suite, row, engine, version, scale, run, value, unit, better, ...
  run.json        machine, commit, command, versions and options of the engines
  report.html     the table with bars, to open in a browser

Build with --release: figures of any other build mean nothing. Leave the machine alone while it runs.
docs/benchmarking.md says how the figures are made and how to add an engine or a suite.";

/// Measures Esker beside other embedded key-value engines: same data, same durability, same memory, every read checked.
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
    /// Show the tables and make the page of results that are there, of several files if need be
    Report {
        /// Files of results
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Directory for report.html
        #[arg(long, default_value = "bench-out")]
        out: PathBuf,
    },
    /// Compare two files of results, row by row, run by run
    Compare {
        /// Results before
        before: PathBuf,
        /// Results after
        after: PathBuf,
    },
    /// Write pairs into an engine, as obigstore's bm_write does; without a mode it reads a stream of pairs from stdin
    Load(LoadArguments),
    /// Write a stream of pairs to stdout (lengths are u32, little-endian), as obigstore's bm_makedata does
    Makedata(MakedataArguments),
    /// Print the tables that the workloads' sources published, beside ours
    SeedTables(SeedTablesArguments),
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
    /// Engine to run, repeatable; all of them when left out
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
    /// Do not count syncs under strace first; sync rows are then believed, and the report says so
    #[arg(long)]
    pub(crate) no_trace: bool,
    /// Tell the device before each turn which blocks are free (`fstrim`, which takes a privilege), so that each engine finds it in one state
    #[arg(long)]
    pub(crate) trim: bool,
    /// Longest time for one row, or for a load; past it the engine is stopped, and this row and its later ones fail [default: by scale]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
}

#[derive(clap::Args)]
pub(crate) struct SeedTablesArguments {
    /// Files of results to show beside them; their run.json tells the machine
    #[arg(value_name = "RESULTS.jsonl")]
    pub(crate) results: Vec<PathBuf>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
