//! `esker-bench load` and `esker-bench makedata`: obigstore's `bm_write` and `bm_makedata`, on an engine in this process.
//!
//!   makedata --stream of pairs--> load --> engine --> a line of figures for each period

use std::io::{BufReader, BufWriter, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use esker_bench_api::generate::obigstore::Hotspots;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Durability, Engine, Failure, OpenOptions};

use crate::load::{KeySource, Load, Pair, Source, drive_watched};
use crate::track::Series;

const DEFAULT_SEED: u64 = 29;

/// Arguments of `load`.
#[derive(clap::Args)]
pub(crate) struct LoadArguments {
    /// Engine to load
    #[arg(long, default_value = "esker")]
    pub(crate) engine: String,
    /// Directory of the database; what is there is added to
    #[arg(long)]
    dir: PathBuf,
    #[command(flatten)]
    keys: Keys,
    /// Pairs to write at most; a stream may end before
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    pairs: u64,
    /// Requests in flight
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    concurrency: u64,
    /// Pairs in a request; a request is one transaction
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    multi: u64,
    /// Pairs a second: an open loop, whose latencies count from when a request was due [default: a closed loop]
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Seconds between lines
    #[arg(long, default_value_t = 5.0)]
    period: f64,
    /// Print latencies too
    #[arg(long)]
    latency: bool,
    /// Do not wait for the device
    #[arg(long)]
    no_fsync: bool,
    /// Cache in MiB
    #[arg(long, default_value_t = 512)]
    cache: u64,
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

/// Which keys, and their values.
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
    /// N random keys, each with probability P one that was written before
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

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
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
    /// Without a mode the pairs are read from stdin.
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
pub(crate) fn makedata(arguments: &MakedataArguments) -> Result<(), Failure> {
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
        pairs[..taken].iter().try_for_each(|pair| pair.write_to(&mut out)).map_err(Failure::engine)?;
    }
}

/// Loads an engine and prints what it did in each period.
pub(crate) fn load(engine: &dyn Engine, arguments: &LoadArguments) -> Result<(), Failure> {
    let durability = if arguments.no_fsync { Durability::Async } else { Durability::Sync };
    std::fs::create_dir_all(&arguments.dir).map_err(Failure::engine)?;
    // What suites tell engines, too.
    let options = OpenOptions {
        durability,
        value_bytes: arguments.keys.value_size as u64,
        concurrent_writes: arguments.concurrency,
        ascending_keys: arguments.keys.seq.is_some(),
        ..OpenOptions::with_cache(arguments.cache << 20)
    };
    let store = engine.open(&arguments.dir, &options)?;
    let load = Load {
        concurrency: arguments.concurrency,
        multi: arguments.multi,
        rate: arguments.rate,
        time: Duration::MAX,
        period: Duration::from_secs_f64(arguments.period.clamp(0.01, 3600.0)),
    };
    let mut lines = Lines::new(arguments.latency, load.period);
    let mut source = arguments.keys.source(arguments.pairs);
    let loaded =
        drive_watched(&*store, &mut source, load, &arguments.dir, &mut |series| lines.print(series))?;
    // A load that was shorter than a period is told now.
    lines.period_s = loaded.detail.period_s;
    lines.print(&loaded.detail.series);
    println!(
        "{} pairs in {:.1} s, {:.0} a second",
        loaded.pairs,
        loaded.seconds,
        loaded.pairs as f64 / loaded.seconds
    );
    if let Some(write) = loaded.detail.latency.get("write") {
        println!(
            "latency of a request in ms ({} loop): mean {:.3}, median {:.3}, 90th {:.3}, 95th {:.3}, 99th {:.3}, 99.9th {:.3}, \
             99.99th {:.3}, max {:.3}; longest stall {:.3}",
            loaded.detail.load,
            write.mean * 1e3,
            write.p50 * 1e3,
            write.p90 * 1e3,
            write.p95 * 1e3,
            write.p99 * 1e3,
            write.p999 * 1e3,
            write.p9999 * 1e3,
            write.max * 1e3,
            loaded.detail.longest_stall_s * 1e3
        );
    }
    if loaded.backlog > load.period {
        println!("overloaded: the last request ended {:.1} s after it was due", loaded.backlog.as_secs_f64());
    }
    Ok(())
}

/// Columns of latencies and their series, in the order of obigstore's own bm_write.
const LATENCIES: [(&str, &str); 6] = [
    ("mean-ms", "write mean s"),
    ("median-ms", "write p50 s"),
    ("90th-ms", "write p90 s"),
    ("95th-ms", "write p95 s"),
    ("99th-ms", "write p99 s"),
    ("max-ms", "write max s"),
];

/// A line for each period, as soon as it has ended.
struct Lines {
    latencies: &'static [(&'static str, &'static str)],
    period_s: f64,
    printed: usize,
    pairs: f64,
}

impl Lines {
    /// Prints the head.
    fn new(latency: bool, period: Duration) -> Self {
        let latencies: &[_] = if latency { &LATENCIES } else { &[] };
        print!("   time-s     k-pairs  k-pairs/s");
        latencies.iter().for_each(|(name, _)| print!(" {name:>9}"));
        println!();
        Self { latencies, period_s: period.as_secs_f64(), printed: 0, pairs: 0.0 }
    }

    /// Prints what is new.
    fn print(&mut self, series: &Series) {
        for line in self.new_lines(series) {
            println!("{line}");
        }
    }

    fn new_lines(&mut self, series: &Series) -> Vec<String> {
        let at =
            |name: &str, n: usize| series.get(name).and_then(|values| values.get(n)).copied().unwrap_or(0.0);
        let periods = series.get("ops/s").map_or(0, Vec::len);
        (std::mem::replace(&mut self.printed, periods)..periods)
            .map(|n| {
                let rate = at("ops/s", n);
                self.pairs += rate * self.period_s;
                let time = (n + 1) as f64 * self.period_s;
                let latencies = self.latencies.iter().map(|(_, name)| format!(" {:9.3}", at(name, n) * 1e3));
                format!("{time:9.1} {:11.1} {:10.2}", self.pairs / 1e3, rate / 1e3)
                    + &latencies.collect::<String>()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_period_is_told_once_with_all_its_percentiles() {
        let mut series: Series = LATENCIES.iter().map(|(_, name)| ((*name).to_owned(), vec![2e-3])).collect();
        series.insert("ops/s".to_owned(), vec![1000.0]);
        let mut lines = Lines { latencies: &LATENCIES, period_s: 5.0, printed: 0, pairs: 0.0 };
        let expected =
            "      5.0         5.0       1.00     2.000     2.000     2.000     2.000     2.000     2.000";
        assert_eq!(lines.new_lines(&series), [expected]);
        assert_eq!(lines.new_lines(&series), [""; 0]);
        series.values_mut().for_each(|values| values.extend([0.0, 500.0]));
        let more = lines.new_lines(&series);
        assert!(more.len() == 2 && more[1].starts_with("     15.0         7.5       0.50"), "{more:?}");
    }

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
