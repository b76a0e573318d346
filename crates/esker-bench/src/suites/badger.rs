//! Suite `badger`: the benchmark of the notes on Badger and BoltDB (badger-bench), with values of 16 KB, 1 KB
//! and 128 B.
//!
//! ```text
//! for each size: populate in sync batches of 1,000 -> drain -> close -> open, every byte checked
//!                -> close, drop the page cache -> open and iterate keys only (cold)
//!                -> close, drop the page cache -> open -> random read
//!                -> close, drop the page cache -> open -> iterate with values -> iterate keys only
//! ```
//!
//! Each part begins with a freshly opened store and an empty page cache, so that no part profits from the
//! reads of another. The cold row includes the time of opening, because some engines read much when they
//! open. Walks, including the check, never use a store that was opened for random reads, because its
//! read-ahead may be off.
//!
//! Keys are drawn with replacement, so about 63 % of the key range exists. Reads draw from the whole range
//! and include misses. Dropping the page cache takes a privilege. Without it, the cold row has no value, and
//! the rows after it say so.

use std::time::Duration;

use esker_bench_api::{Durability, Feature, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Budget, Measure, Mix, PageCache, Part, Step, Value, Work};
use crate::suites::{Stream, Suite, may_outgrow};

const SEED: u64 = 13;
const CACHE_BYTES: u64 = 4 << 30;
const MEMORY_BYTES_MAX: u64 = 2 * CACHE_BYTES;
const ITERATE_KEYS: u64 = 2_000_000;
const SIZES: [(usize, &str); 3] = [(16 << 10, "16 KB"), (1 << 10, "1 KB"), (128, "128 B")];
const PERIOD: Duration = Duration::from_millis(250);
/// Period of the curves of rows that take minutes.
const POPULATE_PERIOD: Duration = Duration::from_secs(5);

pub(crate) static SUITE: Suite = Suite {
    name: "badger",
    summary: "keys drawn with replacement, random values, batches of 1,000, synced, 4 GiB of cache (badger-bench)",
    memory_bytes_max: |_| Some(MEMORY_BYTES_MAX),
    disk_bytes_max: |scale, group| counts(scale, group).0 * (SIZES[group].0 as u64 + 200) * 5 / 2 + (1 << 30),
    streams: || {
        vec![
            Stream::new("items", format!("badger::BadgerItems, seed {SEED}")),
            Stream::new("keys that are written", "badger::BadgerItems::draws, below the key range"),
            Stream::new("keys that are read", format!("rng::Rng, seed {}, below the key range", SEED + 1)),
        ]
    },
    parts: |scale| (0..SIZES.len()).map(|group| part(scale, group)).collect(),
    ..Suite::EMPTY
};

/// Returns the number of keys to write, and the budget of random reads.
fn counts(scale: Scale, group: usize) -> (u64, Budget) {
    let (keys, reads) = match scale {
        Scale::Quick => ([5_000, 50_000, 200_000], Budget::of_seconds(1)),
        Scale::Seed => ([1_000_000, 10_000_000, 50_000_000], Budget::of_seconds(20)),
        Scale::Full => ([5_000_000, 75_000_000, 250_000_000], Budget::of_seconds(180)),
        Scale::Test => ([300, 500, 1_000], Budget::test(500)),
    };
    (keys[group], reads)
}

fn part(scale: Scale, group: usize) -> Part {
    let (bytes, size) = SIZES[group];
    let (keys, reads) = counts(scale, group);
    let seconds = reads.time.as_secs();
    let iterated = keys.min(ITERATE_KEYS);
    // A test run has several batches.
    let batch = if scale == Scale::Test { 20 } else { 1000 };
    let at_random = OpenOptions {
        value_bytes: bytes as u64,
        random_beyond_memory: may_outgrow(keys, bytes, MEMORY_BYTES_MAX),
        ..OpenOptions::with_cache(CACHE_BYTES)
    };
    let to_walk = OpenOptions { random_beyond_memory: false, ..at_random };
    let row = |name: &str, work: String| Row::time(format!("{name} ({size})"), work);
    let scan = |keys_only| Work::Scan { limit: ITERATE_KEYS, keys_only };
    let noted = |row, work| Measure { cache: PageCache::Noted, ..Measure::new(row, work) };
    let populate = Row {
        ops: keys,
        commits: Commits::Sync(keys.div_ceil(batch)),
        weight: 1 + keys * (bytes as u64 + 200) / 100_000_000,
        ..row("populate", format!("{keys} keys with values of {size}, sync batches of {batch}"))
    };
    let put = Work::Put { count: keys, size: batch, below: keys, period: POPULATE_PERIOD };
    let cold = row(
        "iterate keys only, cold",
        format!("up to {iterated} keys from the start, page cache dropped; the opening counts"),
    );
    let random = row(
        "random read",
        format!("{seconds} s of gets below the key range, misses included; page cache dropped, opened again"),
    );
    let with_values = row(
        "iterate with values",
        format!("up to {iterated} keys from the start; page cache dropped, opened again"),
    );
    let keys_only =
        row("iterate keys only", format!("up to {iterated} keys from the start, after the row before"));
    let steps = vec![
        Step::Open(at_random, &[Durability::Sync]),
        Step::row(Measure { is_groundwork: true, progress: "keys", ..Measure::new(populate, put) }),
        Step::Drain,
        Step::Open(to_walk, &[Durability::Sync]),
        Step::Check,
        Step::DropPageCache,
        Step::OpenWithin(to_walk, &[Durability::Sync]),
        Step::row(Measure { cache: PageCache::Cold, ..Measure::new(cold, scan(true)) }),
        Step::DropPageCache,
        Step::Open(at_random, &[Durability::Sync]),
        Step::Settle,
        Step::row(Measure {
            value: Value::PerOperation,
            ..noted(
                Row { weight: 1 + seconds.min(200), ..random },
                Work::Mix(Mix::reads(SEED + 1, reads, PERIOD)),
            )
        }),
        Step::DropPageCache,
        Step::Open(to_walk, &[Durability::Sync]),
        Step::Settle,
        Step::row(noted(with_values, scan(false))),
        Step::row(noted(keys_only, scan(true))),
    ];
    Part::steps(&[Feature::SyncCommits], Source::new(Kind::Badger, SEED, bytes), steps)
}
