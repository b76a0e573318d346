//! Suite `churn`: as much is removed as is written, so the database should stay small and fast.
//!
//! ```text
//! queue        push at the tail, pop at the head: a scan from the start passes all popped items
//! expiry       a transaction writes an item and removes the oldest; gets of a live and an expired item
//! long reader  all items are overwritten while a snapshot from before is held; then it is read to its end
//! ```
//!
//! One thread, 8-byte keys, 512-byte values that compress to a half; 512 MiB of cache and 4 GiB of memory in
//! all.
//!
//! The size after a row is that of the database after it was closed and opened again. Only then has each
//! engine released the space that it keeps to reuse, or has replaced. The size under the long reader contains
//! that space.

use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Feature, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Budget, Draw, Measure, Mix, Part, Step, Work};
use crate::suites::{Stream, Suite};

/// Operations of a row at scale `test`.
const TEST_OPS: u64 = 300;
const SEED: u64 = 31;
const VALUE_BYTES: usize = 512;
const CACHE_BYTES: u64 = 512 << 20;
const LOAD_BATCH: u64 = 1000;
/// The number of items divided by this is overwritten after the long reader has ended, because several
/// engines free space only in later commits.
const LATER_PART: u64 = 10;

pub(crate) static SUITE: Suite = Suite {
    name: "churn",
    summary: "a queue, items that expire, overwrites under a long reader: 8-byte keys, 512-byte values of which half repeats, one thread, async",
    memory_bytes_max: |_| Some(4 << 30),
    streams: || {
        vec![
            Stream::new(
                "items",
                format!("storage::StorageItems, seed {SEED}, sequential in the queue, else random"),
            ),
            Stream::new("draws", format!("rng::Rng, seed {SEED}; uniform")),
        ]
    },
    parts,
    ..Suite::EMPTY
};

/// Number of live items.
fn live_items(scale: Scale) -> u64 {
    match scale {
        Scale::Quick => 20_000,
        Scale::Seed => 200_000,
        Scale::Full => 2_000_000,
        Scale::Test => 50,
    }
}

fn parts(scale: Scale) -> Vec<Part> {
    let (budget, items) = (Budget::of(scale, TEST_OPS), live_items(scale));
    let seconds = budget.time.as_secs();
    let rate = |name: &str, work: String| Row {
        commits: Commits::Async(0),
        weight: seconds + items / 50_000,
        ..Row::rate(Unit::OpsPerSecond, name, work)
    };
    let closed = "bytes that the files occupy after it, closed and opened";
    let queue = rate(
        "queue",
        format!(
            "push one item, scan from the start to the head (a queue that remembers its head is quicker on some engines), remove it; {items} in the queue; {seconds} s"
        ),
    );
    let expiry = rate(
        "expiry",
        format!(
            "one transaction writes an item and removes the oldest, then a live and an expired one are read; {items} alive; {seconds} s"
        ),
    );
    let window = |row, work| vec![Step::row(Measure::new(row, work)), Step::Drain, Step::Check];
    vec![
        part(
            items,
            Kind::StorageInOrder,
            window(queue, Work::Queue { budget }),
            Row::size("size of the queue", closed),
        ),
        part(
            items,
            Kind::Storage,
            window(expiry, Work::Replace { budget }),
            Row::size("size with expiry", closed),
        ),
        part(
            items,
            Kind::Storage,
            long_reader(
                budget,
                items,
                rate(
                    "overwrites under a long reader",
                    format!(
                        "one overwrite a transaction of {items} items, as many overwrites, while a snapshot is held; {seconds} s at most"
                    ),
                ),
            ),
            Row::size(
                "size after the long reader",
                "bytes that the files occupy once it is gone and background work is done",
            ),
        ),
    ]
}

fn part(items: u64, kind: Kind, rows: Vec<Step>, size: Row) -> Part {
    let mut needs = vec![Feature::AsyncCommits];
    if matches!(rows[0], Step::UnderSnapshot(_)) {
        needs.push(Feature::Snapshots);
    }
    let options = OpenOptions {
        value_bytes: VALUE_BYTES as u64,
        durability: Durability::Async,
        // Keys of a queue ascend.
        ascending_keys: kind == Kind::StorageInOrder,
        ..OpenOptions::with_cache(CACHE_BYTES)
    };
    let load = Work::put(items, LOAD_BATCH);
    let mut steps = vec![Step::Open(options, &[]), Step::Load("items", load), Step::Drain];
    steps.extend(rows);
    steps.extend([Step::Open(options, &[]), Step::Drain, Step::Size(size, None)]);
    Part::steps(&needs, Source::new(kind, SEED, VALUE_BYTES), steps)
}

fn long_reader(budget: Budget, items: u64, row: Row) -> Vec<Step> {
    let period = budget.period();
    let overwrites = |ops: u64| {
        let budget = Budget { ops: budget.ops.min(ops), ..budget };
        Work::Mix(Mix::new([0, 0, 100, 0, 0], Draw::Uniform, budget, period))
    };
    let size = Row::size(
        "size under a long reader",
        "bytes that the files occupy while it is held, preallocated logs included",
    );
    vec![
        Step::UnderSnapshot(vec![
            Step::row(Measure::new(row, overwrites(items))),
            Step::Drain,
            Step::CheckSnapshot,
            Step::Size(size, None),
        ]),
        Step::Unmeasured(overwrites((items / LATER_PART).max(1))),
        Step::Drain,
        Step::Check,
    ]
}
