//! Suite `int`: int_benchmark of redb, as canopydb's page ran it: 1,000,000 u32 keys with u64 values, in
//! random order, in one transaction.
//! random order, in one transaction.

use std::time::Duration;

use esker_bench_api::{Durability, Feature, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Group, Measure, Part, Step, Work};
use crate::suites::{Planned, Stream};

const SEED: u64 = 5;
const CACHE_BYTES: u64 = 4 << 30;
const DISK_BYTES_PER_ITEM_MAX: u64 = 1000;

pub(crate) static SUITE: Planned = Planned {
    name: "int",
    summary: "u32 keys with u64 values, random order, one sync transaction, 4 GiB of cache (redb's int_benchmark)",
    memory_bytes_max: |_| Some(2 * CACHE_BYTES),
    disk_bytes_max: |scale, _| items(scale) * DISK_BYTES_PER_ITEM_MAX,
    syncs_per_commit_min: |_| 1.0,
    streams: || vec![Stream::new("items", format!("int::Ints, seed {SEED}"))],
    parts,
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
    let put = Work::Put { count, size: count, below: 0, period: Duration::ZERO };
    vec![Part::Steps(Group {
        needs: vec![Feature::SyncCommits],
        source: Source::new(Kind::Ints, SEED, size_of::<u64>()),
        transactions: None,
        steps: vec![
            Step::Open(OpenOptions::with_cache(CACHE_BYTES), &[Durability::Sync]),
            Step::row(Measure::new(row, put)),
            Step::Drain,
            Step::Check,
        ],
    })]
}
