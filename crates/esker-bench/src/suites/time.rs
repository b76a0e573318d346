//! Suite `time`: entries that expire, and the change feed.
//!
//! ```text
//! expiry  puts, nine of ten with a time to live -> reads while they expire -> all have expired -> size       time/expiry.rs
//! feed    commits without a feed, commits with a reader behind -> reading the feed, reading the log's files  time/feed.rs
//! ```
//!
//! Keys of 16 bytes, values of 100 of which half repeats; 512 MiB of cache and 4 GiB of memory in all; async commits of one item, one writer. An engine whose
//! reads may find what has expired has no part in the rows of expiry. Of the engines here Esker alone has a feed that is durable.

mod expiry;
mod feed;

use std::time::Duration;

use esker_bench_api::generate::entries::{Entries, VALUE_BYTES};
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Failure, Feature, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::budget::Budget;
use crate::suites::{Stream, Suite, Turn, needs};

/// Operations of a row at scale `test`.
const TEST_OPS: u64 = 200;
const SEED: u64 = 47;
const ITEM_BYTES: u64 = 16 + VALUE_BYTES as u64;
const CACHE_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 30;
const FEED_GROUP: usize = 1;

const PUTS: &str = "puts with a time to live";
const READS: &str = "reads while entries expire";
const SIZE: &str = "size after expiry";
const NO_FEED: &str = "commits without a feed";
const FEED: &str = "commits with a feed reader";
const READ_FEED: &str = "reading the feed";
const READ_LOG: &str = "reading the log's files";

pub(crate) struct TimeSuite;

/// What the rows of expiry do at a scale.
#[derive(Clone, Copy)]
struct Expiry {
    count: u64,
    /// From the first put to the first expiry: the load of a slow engine has to fit in.
    hold: Duration,
    /// From the first expiry to the last.
    spread: Duration,
    /// From the first put to the first read.
    reads_after: Duration,
}

impl Expiry {
    fn of(scale: Scale) -> Self {
        let spread = budget(scale).time;
        let of = |count, hold| {
            let hold = Duration::from_secs(hold);
            Self { count, hold, spread, reads_after: hold }
        };
        match scale {
            Scale::Quick => of(50_000, 4),
            Scale::Seed => of(500_000, 30),
            Scale::Full => of(5_000_000, 300),
            // The few reads come when half of the entries have expired.
            Scale::Test => {
                let spread = Duration::from_secs(2);
                Self { spread, reads_after: Duration::from_secs(2), ..of(60, 1) }
            }
        }
    }

    fn entries(self) -> Entries {
        Entries::new(SEED, self.hold.as_millis() as u64, self.spread.as_millis() as u64)
    }
}

fn budget(scale: Scale) -> Budget {
    Budget::of(scale, TEST_OPS)
}

fn options() -> OpenOptions {
    OpenOptions {
        value_bytes: VALUE_BYTES as u64,
        durability: Durability::Async,
        ..OpenOptions::with_cache(CACHE_BYTES)
    }
}

impl Suite for TimeSuite {
    fn name(&self) -> &'static str {
        "time"
    }

    fn summary(&self) -> &'static str {
        "entries that expire while they are read, and the change feed: 16-byte keys, 100-byte values, async commits of one item"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(MEMORY_BYTES_MAX)
    }

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new("items, and when they expire", format!("entries::Entries, seed {SEED}")),
            Stream::new("reads", format!("rng::Rng, seed {SEED}; uniform")),
        ]
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let Expiry { count, hold, spread, .. } = Expiry::of(scale);
        let (hold, spread, seconds) = (hold.as_secs(), spread.as_secs(), budget(scale).time.as_secs());
        let rate = |name: &str, work: String| Row::rate(Unit::OpsPerSecond, name, work);
        let writes = |row| Row { commits: Commits::Async(0), weight: seconds, ..row };
        let of_feed = |row| Row { group: FEED_GROUP, ..row };
        vec![
            Row {
                weight: hold,
                ..writes(rate(
                    PUTS,
                    format!(
                        "{count} items, a transaction each; nine of ten expire {hold} to {} s after the first put",
                        hold + spread
                    ),
                ))
            },
            Row {
                weight: seconds,
                ..rate(
                    READS,
                    format!("gets of random items, {seconds} s, from {hold} s after the first put on"),
                )
            },
            Row::size(SIZE, "bytes that the files occupy when nine of ten have expired, closed and opened"),
            of_feed(writes(rate(NO_FEED, format!("commits of one item; {seconds} s")))),
            of_feed(writes(rate(
                FEED,
                format!("the same, while another thread reads each commit from the feed; {seconds} s"),
            ))),
            of_feed(rate(READ_FEED, "all these commits, from the first on, once more".to_owned())),
            of_feed(rate(
                READ_LOG,
                "the files that hold them, read whole, with a checksum; the same commits a second".to_owned(),
            )),
        ]
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, group, recorder } = turn;
        needs(engine, Feature::AsyncCommits)?;
        match group {
            FEED_GROUP => feed::run(engine, budget(scale), recorder),
            _ => expiry::run(engine, Expiry::of(scale), budget(scale), recorder),
        }
    }
}
