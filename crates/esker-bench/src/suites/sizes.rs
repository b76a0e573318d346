//! Suite `sizes`: the same work on three sizes of data: in the engine's cache, in memory, beyond memory.
//!
//! ```text
//! a database for each size: load, drain
//!   -> close, drop the page cache -> open -> warm up -> reads, then updates, for a fixed time each, drain
//!   -> close -> open, every byte checked
//!   -> close, drop the page cache -> open -> warm up -> reads for a fixed time
//! ```
//!
//! Before both rows of reads the store is closed and opened with an empty page cache, so that neither finds
//! in memory what the load or the check left. The check opens the store for a walk, because the read-ahead of
//! a store for random reads may be off. A warm-up of untimed random reads of other items brings data that
//! fits into memory there. It takes the same time for all engines. A wrong answer in it fails the row.
//!
//! The first reads see the same database for every engine. The last ones see the database after the updates,
//! and a faster engine makes more updates.
//!
//! One thread, 8-byte keys, 500-byte values that compress to a half. The load is in key order: it is not a
//! row, and in random order it would take hours for a tree beyond memory. Items are drawn uniformly. 128 MiB
//! of cache and 512 MiB of memory, page cache included.

use std::time::Duration;

use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Feature, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Budget, Draw, Measure, Mix, PageCache, Part, Step, Work};
use crate::suites::{Stream, Suite};

/// Operations of a row at scale `test`.
const TEST_OPS: u64 = 200;
const SEED: u64 = 29;
const WARM_UP_SEED: u64 = 31;
/// The warm-up takes the time of the row divided by this, up to the next constant.
const WARM_UP_PART: u32 = 4;
const WARM_UP_MAX: Duration = Duration::from_secs(10);
/// Sanakirja allows at most 510 bytes.
const VALUE_BYTES: usize = 500;
const CACHE_BYTES: u64 = 128 << 20;
/// Several memtables and the cache have to fit into the memory.
const WRITE_BUFFER_BYTES: u64 = 16 << 20;
const LOAD_BATCH: u64 = 1000;
const FAST: &[Durability] = &[Durability::Async, Durability::NoSync];

pub(crate) static SUITE: Suite = Suite {
    name: "sizes",
    summary: "three sizes of data against 128 MiB of cache and 512 MiB in all: 8-byte keys, 500-byte values, all drawn alike; half of each value repeats, so \
              that data beyond memory is 3 times the memory in raw bytes (at quick 2), and about 1.5 times (1) for engines that compress",
    memory_bytes_max: |_| Some(512 << 20),
    streams: || {
        vec![
            Stream::new("items", format!("storage::StorageItems, seed {SEED}, sequential")),
            Stream::new("reads and updates", format!("rng::Rng, seed {SEED}; uniform")),
            Stream::new("warm-up", format!("rng::Rng, seed {WARM_UP_SEED}; uniform")),
        ]
    },
    parts,
    ..Suite::EMPTY
};

/// A quarter of the cache, half of the memory, and three times the memory (twice at scale `quick`).
fn parts(scale: Scale) -> Vec<Part> {
    let [cached, in_memory, beyond] = match scale {
        Scale::Quick => [60_000, 500_000, 2_000_000],
        Scale::Seed | Scale::Full => [60_000, 500_000, 3_000_000],
        Scale::Test => [40, 80, 160],
    };
    vec![
        part(scale, "in cache", cached, false),
        part(scale, "in memory", in_memory, false),
        part(scale, "beyond memory", beyond, true),
    ]
}

pub(super) fn warm_up(budget: Budget) -> Budget {
    Budget { time: (budget.time / WARM_UP_PART).min(WARM_UP_MAX), ops: budget.ops / u64::from(WARM_UP_PART) }
}

fn part(scale: Scale, size: &str, items: u64, random_beyond_memory: bool) -> Part {
    let budget = Budget::of(scale, TEST_OPS);
    let (seconds, warm_s) = (budget.time.as_secs(), warm_up(budget).time.as_secs_f64());
    let begins =
        format!("page cache dropped, opened again, then {warm_s} s of other gets, the same for all, untimed");
    let mib = (items * (8 + VALUE_BYTES as u64)) >> 20;
    let of_items = format!("{items} items ({mib} MiB), {seconds} s");
    let row = |work: &str, weight, text| Row {
        weight,
        ..Row::rate(Unit::OpsPerSecond, format!("{work}, data {size}"), text)
    };
    let to_walk = OpenOptions {
        value_bytes: VALUE_BYTES as u64,
        write_buffer_bytes: Some(WRITE_BUFFER_BYTES),
        ..OpenOptions::with_cache(CACHE_BYTES)
    };
    let at_random = OpenOptions { random_beyond_memory, ..to_walk };
    let mix = |percent| Work::Mix(Mix::new(percent, Draw::Uniform, budget, budget.period()));
    let reads = |row| Measure {
        cache: PageCache::Noted,
        warm_up: Some(Work::Mix(Mix {
            is_warm_up: true,
            ..Mix::reads(WARM_UP_SEED, warm_up(budget), budget.period())
        })),
        ..Measure::new(row, mix([100, 0, 0, 0, 0]))
    };
    // The load is before it.
    let first = row(
        "reads",
        seconds + items / 50_000,
        format!("gets of the database as it was loaded; {begins}; {of_items}"),
    );
    // The check is after it.
    let updates = Row {
        commits: Commits::Async(0),
        ..row("updates", seconds + items / 200_000, format!("one overwrite a transaction, async; {of_items}"))
    };
    let last = row(
        "reads after updates",
        seconds,
        format!("gets, after the updates, whose number differs, have been paid for; {begins}; {of_items}"),
    );
    let load = Work::put(items, LOAD_BATCH);
    let updates =
        Measure { needs: Some(Feature::AsyncCommits), ..Measure::new(updates, mix([0, 0, 100, 0, 0])) };
    let last = Measure { needs: Some(Feature::AsyncCommits), ..reads(last) };
    let steps = steps(load, reads(first), updates, last, at_random, to_walk);
    Part::steps(&[], Source::new(Kind::StorageInOrder, SEED, VALUE_BYTES), steps)
}

/// Returns the steps in order. `to_walk` opens the database for the check, `at_random` for everything else.
fn steps(
    load: Work,
    reads: Measure,
    updates: Measure,
    reads_after: Measure,
    at_random: OpenOptions,
    to_walk: OpenOptions,
) -> Vec<Step> {
    vec![
        // The load is not a row: an engine without async commits still has the reads.
        Step::Open(OpenOptions { ascending_keys: true, ..at_random }, FAST),
        Step::Load("items", load),
        Step::Drain,
        Step::DropPageCache,
        Step::Open(at_random, FAST),
        Step::Settle,
        Step::row(reads),
        Step::Drain,
        Step::row(updates),
        Step::Drain,
        Step::Open(to_walk, FAST),
        Step::Check,
        Step::DropPageCache,
        Step::Open(at_random, FAST),
        Step::Settle,
        Step::row(reads_after),
        Step::Drain,
    ]
}
