//! Suite `shapes`: keys and values of other forms than in the benchmarks of the sources, right after the load
//! and after a compaction.
//!
//! ```text
//! a database for each shape:
//!   load, in a write buffer that holds all -> gets, ranges, a walk over all      "in memtable"
//!   compact, open again                    -> gets, ranges, a walk over all      "in tables"    -> size
//! ```
//!
//! One thread; 4 GiB of cache, so all data is in memory. A pass of gets reads every item once, at random.
//! Ranges of 10 items begin at every fourth of these keys. A row is the median of three passes. The keys are
//! made in advance, in the order of the reads, because making a URL takes longer than finding it.
//!
//! An engine without a write buffer uses its tree in both halves. An engine without a compaction runs the
//! rows of the second half on the database as it is, and a note says so.
//!
//! Every value read goes into a sum, which is compared with the generator. At the end every byte is compared.

use esker_bench_api::generate::shapes::Shape;
use esker_bench_api::{Durability, OpenOptions};

use crate::row::Row;
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Measure, Part, Step, Work};
use crate::suites::{Stream, Suite};

const SEED: u64 = 43;
const CACHE_BYTES: u64 = 4 << 30;
const LOAD_BATCH: u64 = 1000;
const RANGE_ITEMS: u64 = 10;
/// A range begins at each key of this number of keys.
const ITEMS_PER_RANGE: u64 = 4;
const PASSES: usize = 3;
/// Longest URL.
const URL_BYTES_MAX: u64 = 96;

pub(crate) static SUITE: Suite = Suite {
    name: "shapes",
    summary: "small and large keys and values, all in memory, one thread: gets, ranges of 10 and a walk over all, as loaded and after a compaction",
    memory_bytes_max: |_| Some(2 * CACHE_BYTES),
    streams: || {
        vec![
            Stream::new("items", format!("shapes::Shape, seed {SEED}")),
            Stream::new("reads", "order::Order over the items, from 0 on"),
        ]
    },
    parts: |scale| (0..Shape::ALL.len()).map(|number| part(scale, number)).collect(),
    ..Suite::EMPTY
};

fn name(shape: Shape) -> &'static str {
    match shape {
        Shape::Sequential => "integers in order",
        Shape::Integers => "integers",
        Shape::Small => "20 B + 1 B",
        Shape::Urls => "URLs",
        Shape::Hashes => "hashes behind a prefix",
        Shape::LongKeys => "keys of 1 KB",
        Shape::LargeValues => "values of 5 KB",
    }
}

/// Returns the number of items of a shape: that of the scale, or fewer if they would exceed the bytes of the
/// scale.
fn item_count(scale: Scale, item_bytes: u64) -> u64 {
    let (items, bytes) = match scale {
        Scale::Quick => (200_000, 64 << 20),
        Scale::Seed => (1_000_000, 512 << 20),
        Scale::Full => (4_000_000, 1 << 30),
        Scale::Test => return 120,
    };
    items.min(bytes / item_bytes)
}

fn part(scale: Scale, number: usize) -> Part {
    let shape = Shape::ALL[number];
    let source = Source { number: number as u64, ..Source::new(Kind::Shape, SEED, shape.value_bytes()) };
    let items = item_count(scale, source.item_bytes());
    let of = format!("{items} items of {} + {} bytes", shape.key_bytes(), shape.value_bytes());
    let ranges = items.div_ceil(ITEMS_PER_RANGE);
    let key_bytes = if shape == Shape::Urls { URL_BYTES_MAX } else { shape.key_bytes() as u64 };
    let options = OpenOptions {
        value_bytes: shape.value_bytes() as u64,
        key_bytes,
        write_buffer_bytes: Some((4 * items * source.item_bytes()).clamp(64 << 20, CACHE_BYTES / 2)),
        ascending_keys: shape == Shape::Sequential,
        ..OpenOptions::with_cache(CACHE_BYTES)
    };
    let reads = |place: &str| {
        let row = |read: &str, ops, work: String, reads| {
            let name = format!("{}, {read}, {place}", name(shape));
            let row = Row { ops, weight: 1 + items / 500_000, ..Row::time(name, work) };
            Step::row(Measure { passes: PASSES, ..Measure::new(row, reads) })
        };
        let gets = Work::Gets { count: items, threads: 1, keys_ahead: true };
        let of_ten =
            Work::Ranges { count: ranges, every: ITEMS_PER_RANGE, limit: RANGE_ITEMS, keys_ahead: true };
        let walk = Work::Scan { limit: u64::MAX, keys_only: false };
        [
            row("get", items, format!("each of {of}, at random"), gets),
            row("range of 10", ranges, format!("{ranges} ranges of 10 items, of {of}"), of_ten),
            row("scan", items, format!("a walk over {of}"), walk),
        ]
    };
    let load = Work::put(items, LOAD_BATCH);
    // The load is not a row.
    let modes = &[Durability::NoSync, Durability::Async, Durability::Sync];
    let mut steps = vec![Step::Open(options, modes), Step::Load("items", load), Step::Drain];
    steps.extend(reads("in memtable"));
    steps.extend([Step::Compact(None), Step::Settle]);
    steps.extend(reads("in tables"));
    let size = format!("bytes that the files occupy: {of}, compacted");
    steps.extend([
        Step::Drain,
        Step::Size(Row::size(format!("{}, size", name(shape)), size), None),
        Step::Check,
    ]);
    Part::steps(&[], source, steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_url_is_longer_than_is_said() {
        let mut key = Vec::new();
        for i in 0..20_000 {
            Shape::Urls.key(SEED, i, &mut key);
            assert!(key.len() as u64 <= URL_BYTES_MAX, "{}", key.len());
        }
    }
}
