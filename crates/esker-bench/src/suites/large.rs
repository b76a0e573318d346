//! Suite `large`: large_values_benchmark of redb, as canopydb's page ran it: values of 2 MB and small items
//! in one transaction.
//!
//! Large values are slices of a pool of random bytes made beforehand, so that the timed part does not include
//! making them.

use esker_bench_api::{Durability, Feature, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Measure, Part, Step, Work};
use crate::suites::{Stream, Suite};

const LARGE_SEED: u64 = 4;
const LARGE_BYTES: usize = 2_000_000;
const CACHE_BYTES: u64 = 4 << 30;
/// More than any engine was observed to need.
const DISK_FACTOR_MAX: u64 = 4;

pub(crate) static SUITE: Suite = Suite {
    name: "large",
    summary: "values of 2 MB and small items (24 B, 150 B) in one sync transaction, 4 GiB of cache (redb's large_values_benchmark)",
    // Some engines hold the 8 GB of the transaction in memory.
    memory_bytes_max: |_| None,
    disk_bytes_max: |scale, _| {
        let (large, small) = counts(scale);
        DISK_FACTOR_MAX * large * LARGE_BYTES as u64 + small * 4000
    },
    streams: || {
        vec![
            Stream::new("large values", format!("pool::Pool, seed {LARGE_SEED}")),
            Stream::new("their keys", format!("items::Items, seed {LARGE_SEED}")),
            Stream::new("small items", format!("items::Items, seed {}", LARGE_SEED - 1)),
        ]
    },
    parts,
    ..Suite::EMPTY
};

/// Returns the numbers of large values and of small items.
fn counts(scale: Scale) -> (u64, u64) {
    match scale {
        Scale::Quick => (400, 100_000),
        Scale::Seed | Scale::Full => (4_000, 1_000_000),
        Scale::Test => (3, 1_000),
    }
}

fn parts(scale: Scale) -> Vec<Part> {
    let (large, small) = counts(scale);
    let count = large + small;
    let work = format!("{large} values of 2 MB and {small} small items, one transaction, one sync commit");
    let row = Row { ops: count, commits: Commits::Sync(1), weight: 20, ..Row::time("bulk load", work) };
    let put = Work::put(count, count);
    let options = OpenOptions { value_bytes: LARGE_BYTES as u64, ..OpenOptions::with_cache(CACHE_BYTES) };
    vec![Part::steps(
        &[Feature::SyncCommits, Feature::LargeTransactions, Feature::LargeValues],
        Source { number: large, ..Source::new(Kind::Large, LARGE_SEED, LARGE_BYTES) },
        vec![
            Step::Open(options, &[Durability::Sync]),
            Step::row(Measure::new(row, put)),
            Step::Drain,
            Step::Check,
        ],
    )]
}
