//! Suite `int`: redb's int_benchmark, as canopydb's page ran it: 1,000,000 u32 keys with u64 values, in random order, in one transaction.

use esker_bench_api::generate::checksum::checksum;
use esker_bench_api::generate::int::Ints;
use esker_bench_api::{Failure, Feature, OpenOptions};

use crate::recorder::Outcome;
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::one_transaction::{cannot_be_large, in_one_transaction};
use crate::suites::verify::{expect, full_scan};
use crate::suites::{Stream, Suite, Turn, needs};

const SEED: u64 = 5;
const CACHE_BYTES: u64 = 4 << 30;
const DISK_BYTES_PER_ITEM_MAX: u64 = 1000;

pub(crate) struct IntSuite;

fn items(scale: Scale) -> u32 {
    match scale {
        Scale::Quick | Scale::Seed | Scale::Full => 1_000_000,
        Scale::Test => 2_000,
    }
}

impl Suite for IntSuite {
    fn name(&self) -> &'static str {
        "int"
    }

    fn summary(&self) -> &'static str {
        "u32 keys with u64 values, random order, one sync transaction, 4 GiB of cache (redb's int_benchmark)"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(2 * CACHE_BYTES)
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::new("items", format!("int::Ints, seed {SEED}"))]
    }

    fn disk_bytes_max(&self, scale: Scale, _group: usize) -> u64 {
        u64::from(items(scale)) * DISK_BYTES_PER_ITEM_MAX
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let ops = u64::from(items(scale));
        let work = format!("{ops} u32 keys with u64 values, random order, one transaction, one sync commit");
        vec![Row { ops, commits: Commits::Sync(1), weight: 20, ..Row::time("bulk load", work) }]
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, recorder, .. } = turn;
        needs(engine, Feature::SyncCommits)?;
        let (ints, count) = (Ints::new(SEED), items(scale));
        let store = engine.open(recorder.dir(), &OpenOptions::with_cache(CACHE_BYTES))?;
        recorder.row("bulk load", || {
            in_one_transaction(&*store, cannot_be_large(engine), u64::from(count), |writer, mut items| {
                items.try_for_each(|i| writer.put(&ints.key(i as u32), &ints.value(i as u32)))
            })?;
            let bytes = u64::from(count) * 12;
            Ok(Outcome { user_written_bytes: bytes, live_bytes: bytes, ..Outcome::default() })
        })?;
        recorder.drain(&*store)?;
        recorder.check(|| {
            let expected =
                (0..count).fold(0, |sum: u64, i| sum.wrapping_add(checksum(&ints.key(i), &ints.value(i))));
            let mut reader = store.reader()?;
            expect("number of items by len()", reader.len()?, u64::from(count))?;
            full_scan(&mut *reader, u64::from(count), expected)
        })
    }
}
