//! The commands, one per file. Each takes its arguments and a [`Session`], and returns an [`Answer`].

mod backup;
mod check;
mod checkpoint;
mod compact;
#[cfg(feature = "server")]
pub(crate) mod copy;
mod count;
mod del;
mod dump;
mod export;
pub(crate) mod feed;
mod get;
mod import;
mod info;
#[cfg(feature = "encryption")]
mod keys;
mod keyspaces;
mod merge;
pub(crate) mod past;
mod put;
mod repair;
mod scan;
#[cfg(feature = "server")]
pub(crate) mod sentinel;
#[cfg(feature = "server")]
pub(crate) mod serve;
pub(crate) mod shell;
mod sink;
mod size;
pub(crate) mod stats;
#[cfg(feature = "server")]
pub(crate) mod top;
pub(crate) mod ttl;
mod unload;

use crate::Answer;
use crate::args::{Args, Command};
use crate::database::Session;
use crate::failure::Result;

/// What to do instead of copying a database that another process has open.
const COPY_BESIDE: &str = "`esker unload FILE` copies it meanwhile; that process itself can make backups: \
                           `ES.BACKUP` of a server, `esker::backup` in a program";
/// What to do instead of reading the feed of a database that another process has open.
const FEED_BESIDE: &str = "that process alone can read its feed: `esker feed --server` follows a server, `Db::feed_after` is for programs";

/// Runs the command of the command line.
pub(crate) fn run(args: Args) -> Result<Answer> {
    let session = &Session { common: args.common, opening: &args.opening, shared: None };
    match &args.command {
        Command::Put(put) => put::run(session, put),
        Command::Merge(merge) => merge::run(session, merge),
        Command::Get(get) => get::run(session, get),
        Command::Ttl(get) => ttl::run(session, get),
        Command::Del(del) => del::run(session, del),
        Command::Scan(scan) => scan::run(session, scan),
        Command::Versions(versions) => past::versions(session, versions),
        Command::Feed(feed) => feed::run(session, feed),
        Command::Count(count) => count::run(session, count),
        Command::Size(args) => size::size(session, args),
        Command::Split(split) => size::split(session, split),
        Command::Import(import) => import::run(session, import),
        Command::Export(export) => export::run(session, export),
        Command::Shell(args) => shell::run(session, args),
        Command::Keyspaces(keyspaces) => keyspaces::run(session, keyspaces),
        Command::Info => info::run(session),
        Command::Stats(stats) => stats::run(session, stats),
        Command::Check(check) => check::run(session, check),
        Command::Repair(repair) => repair::run(session, repair),
        Command::Dump(dump) => dump::run(session, dump),
        Command::Compact(range) => compact::run(session, range),
        Command::Checkpoint { directory } => checkpoint::run(session, directory),
        Command::Backup(what) => backup::run(session, what),
        #[cfg(feature = "encryption")]
        Command::Keys(what) => keys::run(session, what),
        Command::Unload { file, plain } => unload::unload(session, file, *plain),
        Command::Load { file } => unload::load(session, file),
        #[cfg(feature = "server")]
        Command::Serve(serve) => serve::run(session.opening, serve),
        #[cfg(feature = "server")]
        Command::Copy(args) => copy::run(session.opening, session.common.chosen(), args),
        #[cfg(feature = "server")]
        Command::Sentinel(args) => sentinel::run(args),
        #[cfg(feature = "server")]
        Command::Top(top) => top::run(top),
    }
}
