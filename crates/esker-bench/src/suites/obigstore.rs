//! Suite `obigstore`: obigstore's own benchmark, in process: no network and no server between the load and the engine.
//!
//! ```text
//! load/ --requests of many threads--> Store::write          one request is one transaction
//! reads.rs --ranges, requests of several look-ups--> Store::range, Store::reader
//! ```
//!
//! 16-byte keys, 32-byte values whose second half repeats the first. `fsync'ed` rows sync every request; engines with group
//! commit sync several at once. The limited-rate rows are open loops: latency counts from the intended start.

mod reads;

use std::path::Path;
use std::time::Duration;

use esker_bench_api::generate::checksum::checksum;
use esker_bench_api::generate::obigstore::{Hotspots, Key, random_key, sequential_key, value};
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Failure, OpenOptions, Store};

use crate::load::{KeySource, Load, Source, drive};
use crate::recorder::{Outcome, Recorder};
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::verify::{expect, full_scan};
use crate::suites::{Stream, Suite, Turn, needs};

const SEED: u64 = 29;
const CACHE_BYTES: u64 = 4 << 30;
const VALUE_BYTES: usize = 32;
const LARGE_BYTES: usize = 20_000;
const SPOTS_LOG2: u32 = 13;
const STAY: f64 = 0.99999;
const LARGE_RATE: f64 = 1_000.0;
/// Pairs a second of the limited row: the same for all, and less than most engines' least.
const LIMITED_RATE: f64 = 10_000.0;
/// What a limited row may lag behind at its end before it counts as overloaded.
const BACKLOG_MAX: Duration = Duration::from_secs(1);
/// Requests in flight, and writes in a request.
const HOTSPOT_REQUESTS: (u64, u64) = (64, 20);
const SEQUENTIAL_REQUESTS: (u64, u64) = (200, 16);
const LARGE_REQUESTS: (u64, u64) = (50, 1);
const LIMITED_REQUESTS: (u64, u64) = (50, 2);
const LOAD_REQUESTS: (u64, u64) = (1, 1000);

pub(crate) struct ObigstoreSuite;

const HOTSPOT_SYNC: &str = "hotspot writes (fsync'ed)";
const HOTSPOT: &str = "hotspot writes (no-fsync)";
const SEQUENTIAL_SYNC: &str = "sequential inserts (fsync'ed)";
const SEQUENTIAL: &str = "sequential inserts (no-fsync)";
const LARGE: &str = "large payload";
const UNIFORM: &str = "uniform random";
const BURST: &str = "uniform random, burst";
const LIMITED: &str = "uniform random, limited rate";
const RANGES: &str = "range reads";
const LARGE_GROUP: usize = 4;
const UNIFORM_GROUP: usize = 5;
const READ_GROUP: usize = 6;

struct Counts {
    hotspot: u64,
    sequential: u64,
    large: u64,
    uniform: u64,
    read: u64,
    seconds: u64,
    period: Duration,
}

fn counts(scale: Scale) -> Counts {
    let (hotspot, sequential, large, uniform, read, seconds) = match scale {
        Scale::Quick => (200_000, 200_000, 2_000, 500_000, 200_000, 2),
        Scale::Seed => (100_000_000, 50_000_000, 200_000, 100_000_000, 10_000_000, 10),
        Scale::Full => (1_000_000_000, 200_000_000, 20_000_000, 1_000_000_000, 1_000_000_000, 60),
        Scale::Test => (2_000, 2_000, 100, 2_000, 2_000, 1),
    };
    let period = match scale {
        Scale::Full => Duration::from_secs(5),
        Scale::Seed => Duration::from_secs(1),
        Scale::Quick | Scale::Test => Duration::from_millis(100),
    };
    Counts { hotspot, sequential, large, uniform, read, seconds, period }
}

/// When a row that writes ends, although not everything is written: its value is a rate.
fn write_time(scale: Scale) -> Duration {
    Duration::from_secs(match scale {
        Scale::Quick => 2,
        Scale::Seed => 20,
        Scale::Full | Scale::Test => u64::from(u32::MAX),
    })
}

/// Transactions that write at once in a group.
fn concurrent_writes(group: usize) -> u64 {
    let requests = match group {
        0 | 1 | UNIFORM_GROUP => HOTSPOT_REQUESTS,
        2 | 3 => SEQUENTIAL_REQUESTS,
        LARGE_GROUP => LARGE_REQUESTS,
        _ => LOAD_REQUESTS,
    };
    requests.0
}

/// Whether the keys of a group come in their order; where several write at once, nearly.
fn ascending_keys(group: usize) -> bool {
    matches!(group, 2 | 3 | LARGE_GROUP | READ_GROUP)
}

fn working_sets(scale: Scale) -> Vec<u64> {
    let keys = counts(scale).read;
    (0..4).rev().map(|power| (keys / 10_u64.pow(power)).max(1)).collect()
}

fn working_set_row(keys: u64) -> String {
    format!("random reads (working set of {keys} keys)")
}

impl Suite for ObigstoreSuite {
    fn name(&self) -> &'static str {
        "obigstore"
    }

    fn summary(&self) -> &'static str {
        "16-byte keys, 32-byte values of which half repeats, many requests in flight, in process (obigstore)"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(2 * CACHE_BYTES)
    }

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new(
                "keys of hotspot writes",
                format!("obigstore::Hotspots, seed {SEED}, stay {STAY}, 2^{SPOTS_LOG2} spots"),
            ),
            Stream::new("keys of sequential inserts, large payload and reads", "obigstore::sequential_key"),
            Stream::new("keys of uniform random", format!("obigstore::random_key, seed {SEED}")),
            Stream::new("values", "obigstore::value of the key"),
            Stream::new("reads", format!("rng::Rng, seed {SEED} and the number of the thread")),
        ]
    }

    fn disk_bytes_max(&self, scale: Scale, _group: usize) -> u64 {
        let counts = counts(scale);
        (counts.uniform * 400).max(counts.large * LARGE_BYTES as u64 * 3) + (1 << 30)
    }

    /// A sync serves at most all requests in flight.
    fn syncs_per_commit_min(&self, group: usize) -> f64 {
        1.0 / concurrent_writes(group) as f64
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let c = counts(scale);
        let time = write_time(scale).as_secs().min(600);
        let ends = match scale {
            Scale::Quick | Scale::Seed => format!(", or {time} s"),
            Scale::Full | Scale::Test => String::new(),
        };
        let rate = |name: &str, group, commits, weight, work: String| Row {
            group,
            commits,
            weight,
            ..Row::rate(Unit::OpsPerSecond, name, work)
        };
        let (sync, no_sync) = (Commits::Sync(0), Commits::Async(0));
        let hotspot = |text| {
            format!("{} writes at 2^13 hotspots, half overwrite; 64 requests of 20, {text}{ends}", c.hotspot)
        };
        let sequential = |text| format!("{} sequential keys; 200 requests of 16, {text}{ends}", c.sequential);
        let p99 = |name: &str, group, weight, work: String| Row {
            group,
            commits: no_sync,
            weight,
            ..Row::time(name, work)
        };
        let mut rows = vec![
            rate(HOTSPOT_SYNC, 0, sync, time, hotspot("synced")),
            rate(HOTSPOT, 1, no_sync, time, hotspot("async")),
            rate(SEQUENTIAL_SYNC, 2, sync, time, sequential("synced")),
            rate(SEQUENTIAL, 3, no_sync, time, sequential("async")),
            p99(
                LARGE,
                LARGE_GROUP,
                time,
                format!(
                    "{} values of 20 KB at 1,000 a second, async, open loop{ends}; 99th percentile",
                    c.large
                ),
            ),
            rate(
                UNIFORM,
                UNIFORM_GROUP,
                no_sync,
                time,
                format!("{} random keys; 64 requests of 20, async{ends}", c.uniform),
            ),
            rate(
                BURST,
                UNIFORM_GROUP,
                no_sync,
                time,
                format!("{} more after all is drained{ends}", c.uniform / 10),
            ),
            p99(
                LIMITED,
                UNIFORM_GROUP,
                time,
                format!(
                    "{} more at 10,000 a second, 50 requests of 2, open loop{ends}; 99th percentile",
                    c.uniform / 100
                ),
            ),
            rate(
                RANGES,
                READ_GROUP,
                Commits::None,
                c.seconds,
                format!("{} s of ranges of 512 keys, one thread; keys a second within calls", c.seconds),
            ),
        ];
        for keys in working_sets(scale) {
            rows.push(rate(
                &working_set_row(keys),
                READ_GROUP,
                Commits::None,
                c.seconds,
                format!("{} s; 5 requests of 20 look-ups at a time", c.seconds),
            ));
        }
        rows
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, group, recorder } = turn;
        let durability = if matches!(group, 0 | 2) { Durability::Sync } else { Durability::Async };
        let fastest = engine.first_of(&[Durability::Async, Durability::NoSync, Durability::Sync]);
        let durability = if group == READ_GROUP { fastest.unwrap_or(durability) } else { durability };
        needs(engine, durability.feature())?;
        let dir = recorder.dir().to_path_buf();
        let value_bytes = if group == LARGE_GROUP { LARGE_BYTES } else { VALUE_BYTES } as u64;
        let options = OpenOptions {
            value_bytes,
            concurrent_writes: concurrent_writes(group),
            ascending_keys: ascending_keys(group),
            durability,
            ..OpenOptions::with_cache(CACHE_BYTES)
        };
        let store = engine.open(&dir, &options)?;
        let run = Run { store: &*store, counts: counts(scale), scale, dir: &dir };
        match group {
            0 | 1 => run.hotspots(if group == 0 { HOTSPOT_SYNC } else { HOTSPOT }, recorder),
            2 | 3 => run.sequential(if group == 2 { SEQUENTIAL_SYNC } else { SEQUENTIAL }, recorder),
            LARGE_GROUP => run.large(recorder),
            UNIFORM_GROUP => run.uniform(recorder),
            _ => run.reads(recorder),
        }
    }
}

struct Run<'a> {
    store: &'a dyn Store,
    counts: Counts,
    scale: Scale,
    dir: &'a Path,
}

impl Run<'_> {
    fn load(&self, (concurrency, multi): (u64, u64)) -> Load {
        Load { concurrency, multi, rate: None, time: write_time(self.scale), period: self.counts.period }
    }

    fn write(&self, source: &mut Source, load: Load) -> Result<Outcome, Failure> {
        let loaded = drive(self.store, source, load, self.dir)?;
        if let Some(rate) = load.rate.filter(|_| loaded.backlog > BACKLOG_MAX) {
            let got = loaded.pairs as f64 / loaded.seconds;
            return Err(Failure::Unsupported(format!("overloaded: {got:.0} of {rate:.0} pairs a second")));
        }
        let p99 = loaded.detail.latency.get("write").map(|write| write.p99);
        Ok(Outcome {
            seconds: Some(loaded.seconds),
            value: p99.filter(|_| load.rate.is_some()),
            ops: Some(if load.rate.is_some() { 1 } else { loaded.pairs }),
            commits: Some(loaded.commits),
            user_written_bytes: loaded.bytes,
            detail: Some(loaded.detail),
            ..Outcome::default()
        })
    }

    /// Reads everything: each of the new keys that a source gave is there with its value, and nothing else.
    fn verify(&self, keys: impl Iterator<Item = Key>, value_bytes: usize) -> Result<(), Failure> {
        let mut expected_value = vec![0; value_bytes];
        let (mut count, mut expected) = (0, 0_u64);
        for key in keys {
            value(&key, &mut expected_value);
            expected = expected.wrapping_add(checksum(&key, &expected_value));
            count += 1;
        }
        let mut reader = self.store.reader()?;
        expect("number of items by len()", reader.len()?, count)?;
        full_scan(&mut *reader, count, expected)
    }

    fn hotspots(&self, name: &str, recorder: &mut Recorder) -> Result<(), Failure> {
        let hotspots = || Hotspots::new(SEED, STAY, SPOTS_LOG2);
        let mut source =
            Source::new(KeySource::Hotspots(hotspots()), SEED, VALUE_BYTES, self.counts.hotspot, 0);
        let mut written = 0;
        recorder.row(name, || {
            let outcome = self.write(&mut source, self.load(HOTSPOT_REQUESTS))?;
            written = outcome.ops.unwrap_or(0);
            Ok(outcome)
        })?;
        recorder.drain(self.store)?;
        let mut again = hotspots();
        let keys = (0..written).map(move |_| again.next_key());
        let new_keys = keys.filter(|(_, is_new)| *is_new).map(|(key, _)| key);
        recorder.check(|| self.verify(new_keys, VALUE_BYTES))
    }

    fn sequential(&self, name: &str, recorder: &mut Recorder) -> Result<(), Failure> {
        let mut source = Source::new(KeySource::Sequential, SEED, VALUE_BYTES, self.counts.sequential, 0);
        recorder.row(name, || self.write(&mut source, self.load(SEQUENTIAL_REQUESTS)))?;
        recorder.drain(self.store)?;
        let keys = source.keys_given();
        recorder.check(|| self.verify((0..keys).map(sequential_key), VALUE_BYTES))
    }

    fn large(&self, recorder: &mut Recorder) -> Result<(), Failure> {
        let mut source = Source::new(KeySource::Sequential, SEED, LARGE_BYTES, self.counts.large, 0);
        let load = Load { rate: Some(LARGE_RATE), ..self.load(LARGE_REQUESTS) };
        recorder.row(LARGE, || self.write(&mut source, load))?;
        recorder.drain(self.store)?;
        let keys = source.keys_given();
        recorder.check(|| self.verify((0..keys).map(sequential_key), LARGE_BYTES))
    }

    fn uniform(&self, recorder: &mut Recorder) -> Result<(), Failure> {
        let count = self.counts.uniform;
        let source = |pairs, first| Source::new(KeySource::Random, SEED, VALUE_BYTES, pairs, first);
        let mut first = source(count, 0);
        if !recorder.groundwork(UNIFORM, || self.write(&mut first, self.load(HOTSPOT_REQUESTS)))? {
            return Ok(());
        }
        recorder.drain(self.store)?;
        let first_keys = first.keys_given();
        let mut burst = source(count / 10, first_keys);
        recorder.row(BURST, || Ok(self.write(&mut burst, self.load(HOTSPOT_REQUESTS))?.on(first_keys)))?;
        recorder.drain(self.store)?;
        let mut limited = source(count / 100, burst.keys_given());
        let burst_keys = burst.keys_given();
        recorder.row(LIMITED, || {
            let load = Load { rate: Some(LIMITED_RATE), ..self.load(LIMITED_REQUESTS) };
            let mut outcome = self.write(&mut limited, load)?;
            if let Some(detail) = &mut outcome.detail {
                detail.figures.insert("offered ops/s".to_owned(), LIMITED_RATE);
            }
            Ok(outcome.on(burst_keys))
        })?;
        recorder.drain(self.store)?;
        let keys = limited.keys_given();
        recorder.check(|| self.verify((0..keys).map(|i| random_key(SEED, i)), VALUE_BYTES))
    }

    fn reads(&self, recorder: &mut Recorder) -> Result<(), Failure> {
        let keys = self.counts.read;
        let mut source = Source::new(KeySource::Sequential, SEED, VALUE_BYTES, keys, 0);
        let load = Load { time: Duration::from_secs(u64::from(u32::MAX)), ..self.load(LOAD_REQUESTS) };
        recorder.load("pairs", keys, |_| drive(self.store, &mut source, load, self.dir).map(|_| ()))?;
        recorder.drain(self.store)?;
        recorder.row(RANGES, || self.ranges(keys))?;
        for set in working_sets(self.scale) {
            recorder.row(&working_set_row(set), || self.random_reads(set))?;
        }
        recorder.check(|| self.verify((0..keys).map(sequential_key), VALUE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_or_one_item_more_or_less_among_thousands_is_found() {
        const KEYS: u64 = 30_000;
        let dir = tempfile::tempdir().unwrap();
        let engine = crate::engines::find("redb").unwrap();
        let store = engine.open(dir.path(), &OpenOptions::with_cache(1 << 24)).unwrap();
        let put = |numbers: std::ops::Range<u64>, flipped: u8| {
            let work = &mut |writer: &mut dyn esker_bench_api::Writer| {
                let mut bytes = [0; VALUE_BYTES];
                numbers.clone().map(sequential_key).try_for_each(|key| {
                    value(&key, &mut bytes);
                    bytes[VALUE_BYTES / 2] ^= flipped;
                    writer.put(&key, &bytes)
                })
            };
            store.write(work).unwrap();
        };
        let verify = |keys| {
            let (counts, scale) = (counts(Scale::Test), Scale::Test);
            let run = Run { store: &*store, counts, scale, dir: dir.path() };
            run.verify((0..keys).map(sequential_key), VALUE_BYTES)
        };
        put(0..KEYS, 0);
        verify(KEYS).unwrap();
        for keys in [KEYS - 1, KEYS + 1] {
            assert!(matches!(verify(keys), Err(Failure::Wrong(_))), "{keys}");
        }
        put(1..2, 1);
        assert!(matches!(verify(KEYS), Err(Failure::Wrong(_))));
    }
}
