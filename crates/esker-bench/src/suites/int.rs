//! Suite `int`: int_benchmark of redb, as canopydb's page ran it: 1,000,000 u32 keys with u64 values, in
//! random order, in one transaction.
//! random order, in one transaction.

use esker_bench_api::{Durability, Feature, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Measure, Part, Step, Work};
use crate::suites::{Stream, Suite};

const SEED: u64 = 5;
const CACHE_BYTES: u64 = 4 << 30;
const DISK_BYTES_PER_ITEM_MAX: u64 = 1000;

pub(crate) static SUITE: Suite = Suite {
    name: "int",
    summary: "u32 keys with u64 values, random order, one sync transaction, 4 GiB of cache (redb's int_benchmark)",
    memory_bytes_max: |_| Some(2 * CACHE_BYTES),
    disk_bytes_max: |scale, _| items(scale) * DISK_BYTES_PER_ITEM_MAX,
    streams: || vec![Stream::new("items", format!("int::Ints, seed {SEED}"))],
    parts,
    ..Suite::EMPTY
};

fn items(scale: Scale) -> u64 {
    match scale {
        Scale::Quick | Scale::Seed | Scale::Full => 1_000_000,
        Scale::Test => 2_000,
    }
}

fn parts(scale: Scale) -> Vec<Part> {
    let count = items(scale);
    let work = format!("{count} u32 keys with u64 values, random order, one transaction, one sync commit");
    let row = Row { ops: count, commits: Commits::Sync(1), weight: 20, ..Row::time("bulk load", work) };
    let put = Work::put(count, count);
    vec![Part::steps(
        &[Feature::SyncCommits],
        Source::new(Kind::Ints, SEED, size_of::<u64>()),
        vec![
            Step::Open(OpenOptions::with_cache(CACHE_BYTES), &[Durability::Sync]),
            Step::row(Measure::new(row, put)),
            Step::Drain,
            Step::Check,
        ],
    )]
}
