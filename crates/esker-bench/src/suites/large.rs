//! Suite `large`: redb's large_values_benchmark, as canopydb's page ran it: values of 2 MB and small items in one transaction.
//!
//! Large values are slices of a pool of random bytes made beforehand, so that making them costs the timed part nothing.

use esker_bench_api::generate::checksum::checksum;
use esker_bench_api::generate::items::{Items, KEY_BYTES, VALUE_BYTES};
use esker_bench_api::generate::pool::Pool;
use esker_bench_api::{Failure, Feature, OpenOptions};

use crate::recorder::Outcome;
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::verify::full_scan;
use crate::suites::{Stream, Suite, Turn, needs};

const SMALL_SEED: u64 = 3;
const LARGE_SEED: u64 = 4;
const LARGE_BYTES: usize = 2_000_000;
const CACHE_BYTES: u64 = 4 << 30;
/// More than any engine has been seen to need.
const DISK_FACTOR_MAX: u64 = 4;

pub(crate) struct LargeSuite;

/// Large values and small items.
fn counts(scale: Scale) -> (u64, u64) {
    match scale {
        Scale::Quick => (400, 100_000),
        Scale::Seed | Scale::Full => (4_000, 1_000_000),
        Scale::Test => (3, 1_000),
    }
}

impl Suite for LargeSuite {
    fn name(&self) -> &'static str {
        "large"
    }

    fn summary(&self) -> &'static str {
        "values of 2 MB and small items (24 B, 150 B) in one sync transaction, 4 GiB of cache (redb's large_values_benchmark)"
    }

    /// Engines whose transactions live in memory hold 8 GB in one.
    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        None
    }

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new("large values", format!("pool::Pool, seed {LARGE_SEED}")),
            Stream::new("their keys", format!("items::Items, seed {LARGE_SEED}")),
            Stream::new("small items", format!("items::Items, seed {SMALL_SEED}")),
        ]
    }

    fn disk_bytes_max(&self, scale: Scale, _group: usize) -> u64 {
        let (large, small) = counts(scale);
        DISK_FACTOR_MAX * large * LARGE_BYTES as u64 + small * 4000
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let (large, small) = counts(scale);
        let work =
            format!("{large} values of 2 MB and {small} small items, one transaction, one sync commit");
        vec![Row {
            ops: large + small,
            commits: Commits::Sync(1),
            weight: 20,
            ..Row::time("bulk load", work)
        }]
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, recorder, .. } = turn;
        for feature in [Feature::SyncCommits, Feature::LargeTransactions, Feature::LargeValues] {
            needs(engine, feature)?;
        }
        let (large, small) = counts(scale);
        let (pool, keys, items) = (Pool::new(LARGE_SEED), Items::new(LARGE_SEED), Items::new(SMALL_SEED));
        let options = OpenOptions { value_bytes: LARGE_BYTES as u64, ..OpenOptions::with_cache(CACHE_BYTES) };
        let store = engine.open(recorder.dir(), &options)?;
        recorder.row("bulk load", || {
            store.write(&mut |writer| {
                (0..large).try_for_each(|i| writer.put(&keys.key(i), pool.value(i, LARGE_BYTES)))?;
                (0..small).try_for_each(|i| writer.put(&items.key(i), &items.value(i)))
            })?;
            let bytes = large * (KEY_BYTES + LARGE_BYTES) as u64 + small * (KEY_BYTES + VALUE_BYTES) as u64;
            Ok(Outcome { user_written_bytes: bytes, live_bytes: bytes, ..Outcome::default() })
        })?;
        recorder.drain(&*store)?;
        recorder.check(|| {
            let large_sums = (0..large).map(|i| checksum(&keys.key(i), pool.value(i, LARGE_BYTES)));
            let small_sums = (0..small).map(|i| checksum(&items.key(i), &items.value(i)));
            let expected = large_sums.chain(small_sums).fold(0, u64::wrapping_add);
            full_scan(&mut *store.reader()?, large + small, expected)
        })
    }
}
