//! Suite `obigstore`: obigstore's own benchmark, in process: there is no network and no server between the
//! load and the engine.
//!
//! 16-byte keys, 32-byte values whose second half repeats the first. `fsync'ed` rows sync every request;
//! engines with group commit sync several at once. The limited-rate rows are open loops: latency counts from
//! the intended start.

use std::time::Duration;

use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Budget, Drive, Measure, Part, Step, Value, Work};
use crate::suites::{Stream, Suite};

const SEED: u64 = 29;
const CACHE_BYTES: u64 = 4 << 30;
const VALUE_BYTES: usize = 32;
const LARGE_BYTES: usize = 20_000;
const LARGE_RATE: f64 = 1_000.0;
/// Pairs per second of the row with a limited rate. All engines get the same rate; most sustain more.
const LIMITED_RATE: f64 = 10_000.0;
/// Number of requests in flight, and number of writes in a request.
type Requests = (u64, u64);
const HOTSPOT_REQUESTS: Requests = (64, 20);
const SEQUENTIAL_REQUESTS: Requests = (200, 16);
const LARGE_REQUESTS: Requests = (50, 1);
const LIMITED_REQUESTS: Requests = (50, 2);
const LOAD_REQUESTS: Requests = (1, 1000);
const RANGE_KEYS: u64 = 512;
const LOOK_UPS: u64 = 20;
const READERS: u64 = 5;
/// Requests of a row that reads, at scale `test`.
const TEST_REQUESTS: u64 = 20;
/// Requests in flight of each group.
const CONCURRENCY: [u64; 7] = [64, 64, 200, 200, 50, 64, 1];

pub(crate) static SUITE: Suite = Suite {
    name: "obigstore",
    summary: "16-byte keys, 32-byte values of which half repeats, many requests in flight, in process (obigstore)",
    memory_bytes_max: |_| Some(2 * CACHE_BYTES),
    disk_bytes_max: |scale, _| {
        let counts = Counts::of(scale);
        (counts.uniform * 400).max(counts.large * LARGE_BYTES as u64 * 3) + (1 << 30)
    },
    // A sync serves at most all requests in flight.
    syncs_per_commit_min: |group| 1.0 / CONCURRENCY[group] as f64,
    streams: || {
        vec![
            Stream::new(
                "keys of hotspot writes",
                format!("obigstore::Hotspots, seed {SEED}, stay 0.99999, 2^13 spots"),
            ),
            Stream::new("keys of sequential inserts, large payload and reads", "obigstore::sequential_key"),
            Stream::new("keys of uniform random", format!("obigstore::random_key, seed {SEED}")),
            Stream::new("values", "obigstore::value of the key"),
            Stream::new("reads", format!("rng::Rng, seed {SEED} and the number of the thread")),
        ]
    },
    parts,
    ..Suite::EMPTY
};

struct Counts {
    hotspot: u64,
    sequential: u64,
    large: u64,
    uniform: u64,
    read: u64,
    /// Seconds of a row that reads.
    seconds: u64,
    /// Time limit of a row that writes. Its value is a rate, so it may end before everything is written.
    time: Duration,
    period: Duration,
}

impl Counts {
    fn of(scale: Scale) -> Self {
        let counts = |[hotspot, sequential, large, uniform, read]: [u64; 5], seconds, time, period_ms| Self {
            hotspot,
            sequential,
            large,
            uniform,
            read,
            seconds,
            time: Duration::from_secs(time),
            period: Duration::from_millis(period_ms),
        };
        let forever = u64::from(u32::MAX);
        match scale {
            Scale::Quick => counts([200_000, 200_000, 2_000, 500_000, 200_000], 2, 2, 100),
            Scale::Seed => counts([100_000_000, 50_000_000, 200_000, 100_000_000, 10_000_000], 10, 20, 1000),
            Scale::Full => counts(
                [1_000_000_000, 200_000_000, 20_000_000, 1_000_000_000, 1_000_000_000],
                60,
                forever,
                5000,
            ),
            Scale::Test => counts([2_000, 2_000, 100, 2_000, 2_000], 1, forever, 100),
        }
    }

    fn drive(&self, pairs: u64, (concurrency, multi): Requests, rate: f64) -> Work {
        let budget = Budget { time: self.time, ops: u64::MAX };
        Work::Drive(Drive { pairs, concurrency, multi, rate, budget, period: self.period })
    }

    /// Expected seconds of a row that writes, for the progress bar.
    fn weight(&self) -> u64 {
        self.time.as_secs().min(600)
    }

    /// Describes when a row that writes ends.
    fn ends(&self) -> String {
        if self.weight() < 600 { format!(", or {} s", self.weight()) } else { String::new() }
    }

    fn rate(&self, name: &str, commits: Commits, work: String) -> Row {
        Row { commits, weight: self.weight(), ..Row::rate(Unit::OpsPerSecond, name, work) }
    }

    /// Returns a row with an open loop, whose value is the 99th percentile.
    fn p99(&self, name: &str, work: String, load: Work) -> Measure {
        let work = format!("{work}, open loop{}; 99th percentile", self.ends());
        let row = Row { commits: Commits::Async(0), weight: self.weight(), ..Row::time(name, work) };
        Measure { value: Value::P99, ..Measure::new(row, load) }
    }

    fn large(&self) -> Measure {
        let work = format!("{} values of 20 KB at 1,000 a second, async", self.large);
        self.p99("large payload", work, self.drive(self.large, LARGE_REQUESTS, LARGE_RATE))
    }

    /// Returns the rows of random keys, then a burst and a limited rate on the same data.
    fn uniform(&self) -> Vec<Measure> {
        let (all, burst, limited) = (self.uniform, self.uniform / 10, self.uniform / 100);
        let ends = self.ends();
        let load = format!("{all} random keys; 64 requests of 20, async{ends}");
        let load = self.rate("uniform random", Commits::Async(0), load);
        let more = format!("{burst} more after all is drained{ends}");
        let more = self.rate("uniform random, burst", Commits::Async(0), more);
        vec![
            Measure { is_groundwork: true, ..Measure::new(load, self.drive(all, HOTSPOT_REQUESTS, 0.0)) },
            Measure::new(more, self.drive(burst, HOTSPOT_REQUESTS, 0.0)),
            self.p99(
                "uniform random, limited rate",
                format!("{limited} more at 10,000 a second, 50 requests of 2"),
                self.drive(limited, LIMITED_REQUESTS, LIMITED_RATE),
            ),
        ]
    }
}

fn parts(scale: Scale) -> Vec<Part> {
    let c = Counts::of(scale);
    let hotspot = |name: &str, commits, text: &str| {
        let (count, ends) = (c.hotspot, c.ends());
        let work =
            format!("{count} writes at 2^13 hotspots, half overwrite; 64 requests of 20, {text}{ends}");
        vec![Measure::new(c.rate(name, commits, work), c.drive(c.hotspot, HOTSPOT_REQUESTS, 0.0))]
    };
    let sequential = |name: &str, commits, text: &str| {
        let work = format!("{} sequential keys; 200 requests of 16, {text}{}", c.sequential, c.ends());
        vec![Measure::new(c.rate(name, commits, work), c.drive(c.sequential, SEQUENTIAL_REQUESTS, 0.0))]
    };
    let (sync, not_synced) = (Commits::Sync(0), Commits::Async(0));
    let rows = [
        (Kind::Hotspots, Durability::Sync, hotspot("hotspot writes (fsync'ed)", sync, "synced")),
        (Kind::Hotspots, Durability::Async, hotspot("hotspot writes (no-fsync)", not_synced, "async")),
        (Kind::Sequential, Durability::Sync, sequential("sequential inserts (fsync'ed)", sync, "synced")),
        (
            Kind::Sequential,
            Durability::Async,
            sequential("sequential inserts (no-fsync)", not_synced, "async"),
        ),
        (Kind::Sequential, Durability::Async, vec![c.large()]),
        (Kind::Random, Durability::Async, c.uniform()),
    ];
    let written = rows.into_iter().enumerate();
    let mut parts: Vec<_> =
        written.map(|(group, (kind, durability, rows))| writes(group, kind, durability, rows)).collect();
    parts.push(reads(&c, scale));
    parts
}

fn options(group: usize, value_bytes: usize, is_ascending: bool, durability: Durability) -> OpenOptions {
    OpenOptions {
        value_bytes: value_bytes as u64,
        concurrent_writes: CONCURRENCY[group],
        // With several writers, the keys almost ascend.
        ascending_keys: is_ascending,
        durability,
        ..OpenOptions::with_cache(CACHE_BYTES)
    }
}

fn writes(group: usize, kind: Kind, durability: Durability, rows: Vec<Measure>) -> Part {
    let value_bytes = if rows[0].row.name == "large payload" { LARGE_BYTES } else { VALUE_BYTES };
    let options = options(group, value_bytes, kind == Kind::Sequential, durability);
    let mut steps = vec![Step::Open(options, &[])];
    steps.extend(rows.into_iter().flat_map(|row| [Step::row(row), Step::Drain]));
    steps.push(Step::Check);
    let source = Source::new(kind, SEED, value_bytes);
    Part::steps(&[durability.feature()], source, steps)
}

fn reads(c: &Counts, scale: Scale) -> Part {
    let (keys, seconds) = (c.read, c.seconds);
    let budget = match scale {
        Scale::Test => Budget::of_ops(TEST_REQUESTS),
        _ => Budget::of_seconds(seconds),
    };
    let row = |name: String, work: String, threads, keys, set| {
        let row = Row { weight: seconds, ..Row::rate(Unit::OpsPerSecond, name, work) };
        let requests = Work::Requests { threads, keys, set, budget, period: c.period };
        Step::row(Measure::new(row, requests))
    };
    let load = Drive {
        pairs: keys,
        concurrency: LOAD_REQUESTS.0,
        multi: LOAD_REQUESTS.1,
        rate: 0.0,
        budget: Budget::of_seconds(u64::from(u32::MAX)),
        period: c.period,
    };
    let mut steps = vec![
        Step::Open(
            options(6, VALUE_BYTES, true, Durability::Async),
            &[Durability::Async, Durability::NoSync, Durability::Sync],
        ),
        Step::Load("pairs", Work::Drive(load)),
        Step::Drain,
        row(
            "range reads".to_owned(),
            format!("{seconds} s of ranges of 512 keys, one thread; keys a second within calls"),
            1,
            RANGE_KEYS,
            keys,
        ),
    ];
    for power in (0..4).rev() {
        let set = (keys / 10_u64.pow(power)).max(1);
        let name = format!("random reads (working set of {set} keys)");
        let work = format!("{seconds} s; 5 requests of 20 look-ups at a time");
        steps.push(row(name, work, READERS, LOOK_UPS, set));
    }
    steps.push(Step::Check);
    let source = Source::new(Kind::Sequential, SEED, VALUE_BYTES);
    Part::steps(&[], source, steps)
}
