//! Suite `storage-bench`: workloads G and H of rust-storage-bench, as canopydb's page ran them.
//!
//! One thread; 8-byte keys, values that compress to a half; 512 MiB of cache, 4 GiB of memory in all. Reads,
//! scans and overwrites prefer recent items, zipfian with s = 1. Each row runs for a fixed time on its own
//! database.

use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Budget, Draw, Measure, Mix, Part, Step, Work};
use crate::suites::{Stream, Suite, may_outgrow};

/// Operations of a row at scale `test`.
const TEST_OPS: u64 = 300;
const SEED: u64 = 7;
const CACHE_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 30;
const SCAN_ITEMS: u64 = 100;
const LOAD_BATCH: u64 = 1000;
/// Items before the first operation, for reads and scans to find. The source begins with an empty database.
const FIRST_ITEMS: u64 = 100;
const H: ([u32; 5], &str) =
    ([50, 20, 10, 20, 0], "50 % reads, 20 % scans of 100 items, 10 % overwrites, 20 % inserts, async");
const G: ([u32; 5], &str) = ([5, 0, 0, 95, 0], "95 % inserts, 5 % reads, sync");

pub(crate) static SUITE: Suite = Suite {
    name: "storage-bench",
    summary: "8-byte keys, 512-byte values of which half repeats, one thread, recent items zipfian, 512 MiB of cache, 4 GiB in all \
              (rust-storage-bench)",
    memory_bytes_max: |_| Some(MEMORY_BYTES_MAX),
    disk_bytes_max: |scale, _| match scale {
        Scale::Test => 1 << 30,
        Scale::Quick => 4 << 30,
        Scale::Seed | Scale::Full => 30 << 30,
    },
    streams: || {
        vec![
            Stream::new(
                "items",
                format!("storage::StorageItems, seed {SEED}, sequential in H seq, else random"),
            ),
            Stream::new(
                "kinds of operations and items",
                format!(
                    "rng::Rng, seed {SEED}; distribution::Zipf, s = 1, over the most recent items; scans from there"
                ),
            ),
        ]
    },
    parts,
    ..Suite::EMPTY
};

fn parts(scale: Scale) -> Vec<Part> {
    let (items, large_items) = match scale {
        Scale::Quick => (100_000, 5_000),
        Scale::Seed | Scale::Full => (5_000_000, 150_000),
        Scale::Test => (300, 20),
    };
    vec![
        part("H rand", H, Kind::Storage, 512, FIRST_ITEMS, scale),
        part("H seq", H, Kind::StorageInOrder, 512, FIRST_ITEMS, scale),
        part("H large rand 512", H, Kind::Storage, 512, items, scale),
        part("H large rand 20000", H, Kind::Storage, 20_000, large_items, scale),
        part("G sync", G, Kind::Storage, 512, FIRST_ITEMS, scale),
    ]
}

fn part(
    name: &str,
    (percent, text): ([u32; 5], &str),
    kind: Kind,
    value_bytes: usize,
    loaded: u64,
    scale: Scale,
) -> Part {
    let budget = Budget::of(scale, TEST_OPS);
    let seconds = budget.time.as_secs();
    let is_sync = text == G.1;
    let durability = if is_sync { Durability::Sync } else { Durability::Async };
    let options = OpenOptions {
        value_bytes: value_bytes as u64,
        durability,
        random_beyond_memory: may_outgrow(loaded, value_bytes, MEMORY_BYTES_MAX),
        ascending_keys: kind == Kind::StorageInOrder,
        ..OpenOptions::with_cache(CACHE_BYTES)
    };
    let work = format!("{text}; values of {value_bytes} bytes; {loaded} items first; {seconds} s");
    let row = Row {
        commits: if is_sync { Commits::Sync(0) } else { Commits::Async(0) },
        weight: seconds + loaded / 50_000,
        ..Row::rate(Unit::OpsPerSecond, name, work)
    };
    let mix = Mix { scan_items: SCAN_ITEMS, ..Mix::new(percent, Draw::Latest(1.0), budget, budget.period()) };
    Part::steps(
        &[durability.feature()],
        Source::new(kind, SEED, value_bytes),
        vec![
            Step::Open(options, &[Durability::Async, Durability::NoSync]),
            Step::Load("items", Work::put(loaded, LOAD_BATCH)),
            Step::Drain,
            Step::SetDurability(durability),
            Step::row(Measure::new(row, Work::Mix(mix))),
            Step::Drain,
            Step::Check,
        ],
    )
}
