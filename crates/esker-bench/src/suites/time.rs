//! Suite `time`: entries that expire, and the change feed.
//!
//! ```text
//! expiry  puts, nine of ten with a time to live -> reads while they expire -> all have expired -> size
//! feed    commits without a feed, commits with a reader behind -> reading the feed, reading the log's files
//! ```
//!
//! Keys of 16 bytes, values of 100 bytes of which half repeats; 512 MiB of cache and 4 GiB of memory in all;
//! async commits of one item, one writer. An engine whose reads may find expired entries does not have the
//! rows of expiry. Only Esker has a durable feed.

mod feed;

use esker_bench_api::generate::entries::VALUE_BYTES;
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Feature, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Budget, Measure, Part, Step, Work};
use crate::suites::{Stream, Suite, needs};

/// Operations of a row at scale `test`.
const TEST_OPS: u64 = 200;
const SEED: u64 = 47;
const ITEM_BYTES: u64 = 16 + VALUE_BYTES as u64;
const CACHE_BYTES: u64 = 512 << 20;

const NO_FEED: &str = "commits without a feed";
const FEED: &str = "commits with a feed reader";
const READ_FEED: &str = "reading the feed";
const READ_LOG: &str = "reading the log's files";

pub(crate) static SUITE: Suite = Suite {
    name: "time",
    summary: "entries that expire while they are read, and the change feed: 16-byte keys, 100-byte values, async commits of one item",
    memory_bytes_max: |_| Some(4 << 30),
    streams: || {
        vec![
            Stream::new("items, and when they expire", format!("entries::Entries, seed {SEED}")),
            Stream::new("reads", format!("rng::Rng, seed {SEED}; uniform")),
        ]
    },
    parts,
    ..Suite::EMPTY
};

fn budget(scale: Scale) -> Budget {
    Budget::of(scale, TEST_OPS)
}

fn rate(name: &str, work: String) -> Row {
    Row::rate(Unit::OpsPerSecond, name, work)
}

fn parts(scale: Scale) -> Vec<Part> {
    let seconds = budget(scale).time.as_secs();
    let writes = |name, work| Row { commits: Commits::Async(0), weight: seconds, ..rate(name, work) };
    let feed = vec![
        writes(NO_FEED, format!("commits of one item; {seconds} s")),
        writes(FEED, format!("the same, while another thread reads each commit from the feed; {seconds} s")),
        rate(READ_FEED, "all these commits, from the first on, once more".to_owned()),
        rate(
            READ_LOG,
            "the files that hold them, read whole, with a checksum; the same commits a second".to_owned(),
        ),
    ];
    vec![
        expiry(scale),
        Part::Program(feed, |turn| {
            needs(turn.engine, Feature::AsyncCommits)?;
            feed::run(turn.engine, budget(turn.scale), turn.recorder)
        }),
    ]
}

/// Returns the group of expiry. Three durations, in seconds:
///
/// - `hold`: from the first put to the first expiry. It must be long enough for the load of a slow engine.
/// - `spread`: from the first expiry to the last.
/// - `reads_after`: from the first put to the first read.
fn expiry(scale: Scale) -> Part {
    let all = budget(scale).time.as_secs();
    let (count, hold, spread, reads_after) = match scale {
        Scale::Quick => (50_000, 4, all, 4),
        Scale::Seed => (500_000, 30, all, 30),
        Scale::Full => (5_000_000, 300, all, 300),
        // The few reads happen when half of the entries have expired.
        Scale::Test => (60, 1, 2, 2),
    };
    let options = OpenOptions {
        value_bytes: VALUE_BYTES as u64,
        durability: Durability::Async,
        ..OpenOptions::with_cache(CACHE_BYTES)
    };
    let puts = Row {
        commits: Commits::Async(0),
        weight: hold,
        ..rate(
            "puts with a time to live",
            format!(
                "{count} items, a transaction each; nine of ten expire {hold} to {} s after the first put",
                hold + spread
            ),
        )
    };
    let reads = Row {
        weight: all,
        ..rate(
            "reads while entries expire",
            format!("gets of random items, {all} s, from {hold} s after the first put on"),
        )
    };
    let size = Row::size(
        "size after expiry",
        "bytes that the files occupy when nine of ten have expired, closed and opened",
    );
    let put = Work::PutExpiring { count, hold_ms: hold * 1000, spread_ms: spread * 1000 };
    // Engines look for expired entries about once a second.
    let swept = Work::WaitExpiring { ms: (hold + spread + 2) * 1000, swept: true };
    let steps = vec![
        Step::Open(options, &[]),
        Step::row(Measure { progress: "entries", ..Measure::new(puts, put) }),
        Step::Drain,
        Step::Unmeasured(Work::WaitExpiring { ms: reads_after * 1000, swept: false }),
        Step::row(Measure::new(reads, Work::ReadExpiring { budget: budget(scale) })),
        Step::Unmeasured(swept),
        Step::Drain,
        Step::Check,
        Step::Open(options, &[]),
        Step::Drain,
        Step::Size(size, None),
        Step::Check,
    ];
    Part::steps(&[Feature::AsyncCommits], Source::new(Kind::Entries, SEED, VALUE_BYTES), steps)
}
