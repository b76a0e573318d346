//! `esker-bench load` and `esker-bench makedata`: obigstore's `bm_write` and `bm_makedata`, on an engine in
//! this process or on a server.
//!
//!   makedata --stream of pairs--> load --> engine or server --> a line of figures for each period

use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_bench_api::generate::obigstore::Hotspots;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Durability, Engine, Failure, OpenOptions, Result};

use super::lines::Lines;
use super::server::Server;
use super::{KeySource, Load, Pair, Source, write};

pub(super) const DEFAULT_SEED: u64 = 29;

/// Arguments of `load`.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub(crate) struct LoadArguments {
    /// Engine to load
    #[arg(long, default_value = "esker", conflicts_with = "server")]
    pub(crate) engine: String,
    /// Directory of the database; what is there is added to
    #[arg(long, group = "target")]
    dir: Option<PathBuf>,
    /// Write rows to this server (`esker serve`) instead; its --fsync says what a request waits for
    #[arg(long, value_name = "HOST:PORT", group = "target")]
    server: Option<String>,
    /// Table of the rows, with --server
    #[arg(long, default_value = "load", conflicts_with = "dir")]
    table: String,
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    pace: Pace,
    /// Pairs to write at most; a stream may end before
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    pairs: u64,
    /// Pairs in a request; a request is one transaction
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    multi: u64,
    /// Do not wait for the device
    #[arg(long, conflicts_with = "server")]
    no_fsync: bool,
    /// Cache in MiB
    #[arg(long, default_value_t = 512, conflicts_with = "server")]
    cache: u64,
}

/// Number of requests in flight, and interval between lines of figures.
#[derive(clap::Args)]
pub(super) struct Pace {
    /// Requests in flight; with --server each has a connection
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(super) concurrency: u64,
    /// Pairs a second: an open loop, whose latencies count from when a request was due [default: a closed
    /// loop]
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Stop after this time, in seconds, also if there are keys left
    #[arg(long)]
    seconds: Option<f64>,
    /// Seconds between lines
    #[arg(long, default_value_t = 5.0)]
    period: f64,
    /// Print latencies too
    #[arg(long)]
    pub(super) latency: bool,
}

impl Pace {
    /// Returns the load, with requests of `multi` pairs.
    pub(super) fn load(&self, multi: u64) -> Load {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Load {
            concurrency: self.concurrency,
            multi,
            rate: self.rate,
            time: self.seconds.map_or(Duration::MAX, seconds),
            period: Duration::from_secs_f64(self.period.clamp(0.01, 3600.0)),
        }
    }
}

/// Arguments of `makedata`.
#[derive(clap::Args)]
pub(crate) struct MakedataArguments {
    /// Pairs to make
    #[arg(value_parser = number::<u64>)]
    pairs: u64,
    #[command(flatten)]
    keys: Keys,
}

/// The kind of keys, and the size of their values.
#[derive(clap::Args)]
struct Keys {
    /// Hotspots: with probability P a write stays at one of 2^N hotspots (source: 0.99999:13)
    #[arg(long, value_name = "P:N", value_parser = hotspot, group = "mode")]
    hotspot: Option<(f64, u32)>,
    /// N sequential keys
    #[arg(long, value_name = "N", value_parser = number::<u64>, group = "mode")]
    seq: Option<u64>,
    /// N random keys below M; all different when M is left out
    #[arg(long, value_name = "N[:M]", value_parser = count_and_range, group = "mode")]
    rand: Option<(u64, Option<u64>)>,
    /// N random keys, each with probability P an earlier one
    #[arg(long, value_name = "N:P", value_parser = count_and_probability, group = "mode")]
    rand_update: Option<(u64, f64)>,
    /// Bytes in a value; half of them repeat the other half
    #[arg(long, default_value_t = 32)]
    value_size: usize,
    /// Another seed, other keys
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,
}

fn two(text: &str) -> Result<(&str, &str), String> {
    text.split_once(':').ok_or_else(|| format!("{text} is not of the form A:B"))
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text} is not a number of the right kind"))
}

fn probability(text: &str) -> Result<f64, String> {
    let number = number(text)?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err(format!("{text} is not between 0 and 1")) }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = number(text)?;
    if rate > 0.0 { Ok(rate) } else { Err(format!("a rate of {text}")) }
}

fn hotspot(text: &str) -> Result<(f64, u32), String> {
    let (stay, spots) = two(text)?;
    let spots = number(spots)?;
    if spots > 24 {
        return Err("at most 2^24 hotspots".to_owned());
    }
    Ok((probability(stay)?, spots))
}

fn count_and_range(text: &str) -> Result<(u64, Option<u64>), String> {
    match text.split_once(':') {
        None => Ok((number(text)?, None)),
        Some((count, range)) => Ok((number(count)?, Some(number(range)?).filter(|range| *range > 0))),
    }
}

fn count_and_probability(text: &str) -> Result<(u64, f64), String> {
    let (count, update) = two(text)?;
    Ok((number(count)?, probability(update)?))
}

impl Keys {
    /// Returns the source of pairs: stdin if no mode is given.
    fn source(&self, pairs: u64) -> Source {
        let rng = Rng::new(self.seed);
        let (keys, count) = match (self.hotspot, self.seq, self.rand, self.rand_update) {
            (Some((stay, spots)), ..) => (KeySource::Hotspots(Hotspots::new(self.seed, stay, spots)), pairs),
            (_, Some(count), ..) => (KeySource::Sequential, count),
            (_, _, Some((count, None)), _) => (KeySource::Random, count),
            (_, _, Some((count, Some(range))), _) => (KeySource::RandomBelow(range, rng), count),
            (.., Some((count, update))) => (KeySource::RandomUpdate(update, rng), count),
            _ => (KeySource::Stream(Box::new(BufReader::new(std::io::stdin()))), pairs),
        };
        Source::new(keys, self.seed, self.value_size, count.min(pairs), 0)
    }

    fn has_mode(&self) -> bool {
        self.hotspot.is_some() || self.seq.is_some() || self.rand.is_some() || self.rand_update.is_some()
    }
}

/// Writes pairs to stdout.
pub(crate) fn makedata(arguments: &MakedataArguments) -> Result<()> {
    let mut source = arguments.keys.source(arguments.pairs);
    if !arguments.keys.has_mode() {
        return Err(Failure::Engine("one of --hotspot, --seq, --rand, --rand-update is needed".to_owned()));
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut pairs = vec![Pair::default(); 1000];
    loop {
        let taken = source.take(&mut pairs)?;
        if taken == 0 {
            return out.flush().map_err(Failure::engine);
        }
        source.values().fill(&mut pairs[..taken]);
        pairs[..taken].iter().try_for_each(|pair| pair.write_to(&mut out))?;
    }
}

/// Loads an engine or a server, and prints figures for each period. `engine` is the engine with the name in
/// `arguments`.
pub(crate) fn load(engine: &dyn Engine, arguments: &LoadArguments) -> Result<()> {
    let load = arguments.pace.load(arguments.multi);
    let mut source = arguments.keys.source(arguments.pairs);
    let lines = Lines::new("write", arguments.pace.latency, load.period);
    if let Some(address) = &arguments.server {
        let server = Server::connect(address, &arguments.table, load.concurrency)?;
        return lines.follow(&|pairs| server.put(pairs), &mut source, load, Path::new(""));
    }
    let dir = arguments.dir.as_deref().unwrap_or(Path::new("."));
    let durability = if arguments.no_fsync { Durability::Async } else { Durability::Sync };
    std::fs::create_dir_all(dir)?;
    // As suites open engines.
    let options = OpenOptions {
        durability,
        value_bytes: arguments.keys.value_size as u64,
        concurrent_writes: load.concurrency,
        ascending_keys: arguments.keys.seq.is_some(),
        ..OpenOptions::with_cache(arguments.cache << 20)
    };
    let store = engine.open(dir, &options)?;
    lines.follow(&|pairs| write(&*store, pairs), &mut source, load, dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_forms_are_understood() {
        assert_eq!(hotspot("0.99999:13"), Ok((0.99999, 13)));
        assert_eq!(count_and_range("1_000_000"), Ok((1_000_000, None)));
        assert_eq!(count_and_range("10:5"), Ok((10, Some(5))));
        assert_eq!(count_and_probability("10:0.5"), Ok((10, 0.5)));
        for wrong in ["1.5:13", "0.5", "0.5:25", "x:1"] {
            assert!(hotspot(wrong).is_err(), "{wrong}");
        }
    }
}
