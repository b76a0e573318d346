//! The commands, one per file. Each takes the command line and gives an [`Answer`].

mod check;
mod compact;
mod count;
mod del;
mod dump;
mod export;
mod get;
mod import;
mod info;
mod put;
mod repair;
mod scan;
pub(crate) mod stats;

use crate::Answer;
use crate::args::{Args, Command};
use crate::failure::Result;

/// Does what the command line says.
pub(crate) fn run(args: &Args) -> Result<Answer> {
    match &args.command {
        Command::Put(put) => put::run(args, put),
        Command::Get(get) => get::run(args, get),
        Command::Del(del) => del::run(args, del),
        Command::Scan(scan) => scan::run(args, scan),
        Command::Count(count) => count::run(args, count),
        Command::Import(import) => import::run(args, import),
        Command::Export(export) => export::run(args, export),
        Command::Info => info::run(args),
        Command::Stats(stats) => stats::run(args, stats),
        Command::Check(check) => check::run(args, check),
        Command::Repair(repair) => repair::run(args, repair),
        Command::Dump(dump) => dump::run(args, dump),
        Command::Compact => compact::run(args),
    }
}
