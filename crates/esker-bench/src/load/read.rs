//! `esker-bench read`: obigstore's `bm_read` on a server that `esker-bench load` has loaded.
//!
//!   numbers of keys --> random keys among them --> look-ups or ranges --> a line of figures for each period

use std::path::Path;

use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Failure, Result};

use super::command::{DEFAULT_SEED, Pace, number};
use super::lines::Lines;
use super::server::Server;
use super::{KeySource, Source};

/// Arguments of `read`.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("mode").required(true))]
pub(crate) struct ReadArguments {
    /// The server (`esker serve`)
    #[arg(long, value_name = "HOST:PORT")]
    server: String,
    /// Table of the rows
    #[arg(long, default_value = "load")]
    table: String,
    /// Read at random among the first N keys that `load --seq` has written
    #[arg(long, value_name = "N", value_parser = number::<u64>, group = "mode")]
    seq: Option<u64>,
    /// Read at random among the first N keys that `load --rand` has written
    #[arg(long, value_name = "N", value_parser = number::<u64>, group = "mode")]
    rand: Option<u64>,
    /// The seed that `load` had
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,
    /// Keys to read, or with --range keys to begin at
    #[arg(long, value_name = "N", value_parser = number::<u64>, default_value_t = 100_000)]
    reads: u64,
    /// Keys that one request looks up (source: 20)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    multi: u64,
    /// Rows that one request reads, from a random key on (source: 512)
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "multi")]
    range: Option<u32>,
    #[command(flatten)]
    pace: Pace,
}

/// Reads, and prints what was read in each period.
pub(crate) fn read(arguments: &ReadArguments) -> Result<()> {
    let rng = Rng::new(arguments.seed);
    let keys = match (arguments.seq, arguments.rand) {
        (Some(count), _) => KeySource::RandomBelow(count, rng),
        (None, count) => KeySource::RandomOf(count.unwrap_or_default(), rng),
    };
    if arguments.seq.or(arguments.rand) == Some(0) {
        return Err(Failure::Engine(
            "there are no keys to read among: --seq and --rand begin at 1".to_owned(),
        ));
    }
    let mut source = Source::new(keys, arguments.seed, 0, arguments.reads, 0);
    let load = arguments.pace.load(arguments.multi);
    let server = Server::connect(&arguments.server, &arguments.table, load.concurrency)?;
    let lines = Lines::new("read", arguments.pace.latency, load.period);
    match arguments.range {
        None => lines.follow(&|pairs| server.get(pairs), &mut source, load, Path::new("")),
        Some(rows) => {
            let range = |pairs: &[super::Pair]| server.range(&pairs[0], rows as usize);
            lines.follow(&range, &mut source, load, Path::new(""))
        }
    }
}
