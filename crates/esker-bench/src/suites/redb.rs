//! Suite `redb`: the workload of lmdb_benchmark of redb, which canopydb's page ran too.
//!
//! These differences from the source are the same for every engine:
//!
//! - Reads visit all items in an order unlike that of insertion. The source reads them in the order in which
//!   it wrote them.
//! - Expected answers are computed outside the timed part. A timed read makes a key (3 ns) and no value.
//! - After each phase that changes data, an untimed scan checks every byte.
//! - After bulk load, nosync writes, bulk removals and compaction, the lab waits for background work.

use std::time::Duration;

use esker_bench_api::generate::items::VALUE_BYTES;
use esker_bench_api::{Durability, Feature, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Measure, Part, Step, Work};
use crate::suites::{Stream, Suite};

const SEED: u64 = 3;
const PASSES: usize = 2;
const PERIOD: Duration = Duration::from_millis(100);
const SCAN_ITEMS: u64 = 10;
/// Cache size of the source.
const CACHE_BYTES: u64 = 4 << 30;
/// More than any engine was observed to need for an item of 174 bytes, with room for a copy while compacting.
const DISK_BYTES_PER_ITEM_MAX: u64 = 4000;

pub(crate) static SUITE: Suite = Suite {
    name: "redb",
    summary: "24-byte random keys, 150-byte random values, sync commits, 4 GiB of cache (redb's lmdb_benchmark)",
    memory_bytes_max: |_| Some(2 * CACHE_BYTES),
    disk_bytes_max: |scale, _| Counts::of(scale).items() * DISK_BYTES_PER_ITEM_MAX,
    streams: || {
        vec![
            Stream::new("items", format!("items::Items, seed {SEED}")),
            Stream::new(
                "order of reads",
                "order::Order from 0; several threads take stretches of one from 0",
            ),
            Stream::new("order of removals", "order::Order from a third of the items on"),
        ]
    },
    parts,
    ..Suite::EMPTY
};

/// The counts of a scale.
#[derive(Clone, Copy)]
struct Counts {
    bulk: u64,
    individual: u64,
    batches: u64,
    batch: u64,
    nosync: u64,
    reads: u64,
    scans: u64,
}

impl Counts {
    fn of(scale: Scale) -> Self {
        let counts = |bulk, individual, batches, batch, nosync, reads, scans| Self {
            bulk,
            individual,
            batches,
            batch,
            nosync,
            reads,
            scans,
        };
        match scale {
            Scale::Quick => counts(250_000, 1_000, 100, 1_000, 50_000, 500_000, 250_000),
            Scale::Seed => counts(1_000_000, 1_000, 100, 1_000, 50_000, 1_000_000, 500_000),
            Scale::Full => counts(5_000_000, 1_000, 100, 1_000, 50_000, 1_000_000, 500_000),
            Scale::Test => counts(2_000, 20, 5, 100, 100, 3_000, 500),
        }
    }

    /// Number of items in the database after all writes.
    fn items(self) -> u64 {
        self.bulk + self.individual + self.batches * self.batch + self.nosync
    }
}

/// Returns a row that writes. An engine that lacks a feature of the row still writes the same items, so that
/// later rows do the same work.
fn writes(name: &str, count: u64, size: u64, weight: u64, work: String) -> Measure {
    let is_bulk = size == count;
    let period = if is_bulk { Duration::ZERO } else { PERIOD };
    let put = Work::Put { count, size, below: 0, period };
    let row = Row { ops: count, commits: Commits::Sync(count / size), weight, ..Row::time(name, work) };
    Measure { needs: Some(Feature::SyncCommits), instead: Some(put.clone()), ..Measure::new(row, put) }
}

fn row(name: &str, ops: u64, weight: u64, work: String) -> Row {
    Row { ops, weight, ..Row::time(name, work) }
}

fn parts(scale: Scale) -> Vec<Part> {
    let c = Counts::of(scale);
    let removals = c.items() / 2;
    let options = OpenOptions { value_bytes: VALUE_BYTES as u64, ..OpenOptions::with_cache(CACHE_BYTES) };
    let nosync = {
        let work = format!("{} transactions of one item, no sync", c.nosync);
        let measure = writes("nosync writes", c.nosync, 1, 14, work);
        let at_once = Work::put(c.nosync, c.nosync);
        let row = Row { commits: Commits::NoSync(c.nosync), ..measure.row };
        Measure { row, needs: Some(Feature::NoSyncCommits), instead: Some(at_once), ..measure }
    };
    let bulk = format!("{} items, random order, one transaction, one sync commit", c.bulk);
    let individual = format!("{} transactions of one item, sync", c.individual);
    let batches = format!("{} transactions of {} items, sync", c.batches, c.batch);
    let mut steps = vec![
        Step::Open(options, &[Durability::Sync, Durability::NoSync]),
        Step::row(writes("bulk load", c.bulk, c.bulk, 26, bulk)),
        Step::Drain,
        Step::row(writes("individual writes", c.individual, 1, 4, individual)),
        Step::row(writes("batch writes", c.batches * c.batch, c.batch, 26, batches)),
        Step::SetDurability(Durability::NoSync),
        Step::row(nosync),
        Step::Drain,
        Step::SetDurability(Durability::Sync),
    ];
    steps.extend(reads(c));
    let removal = row(
        "bulk removals",
        removals,
        22,
        format!("{removals} items, random order, one transaction, one sync commit"),
    );
    let size = |name, work: &str| Step::Size(Row { weight: 0, ..Row::size(name, work) }, None);
    steps.extend([
        Step::row(Measure {
            needs: Some(Feature::SyncCommits),
            instead: Some(Work::Remove),
            ..Measure::new(Row { commits: Commits::Sync(1), ..removal }, Work::Remove)
        }),
        Step::Drain,
        size("size pre-compact", "bytes that the files occupy after the removals"),
        Step::Check,
        Step::Compact(Some(row("compaction", 1, 10, "the engine's own full compaction".to_owned()))),
        Step::Drain,
        size("size after bench", "bytes that the files occupy after the compaction"),
        Step::Check,
    ]);
    let source = Source::new(Kind::Items, SEED, VALUE_BYTES);
    vec![Part::steps(&[], source, steps)]
}

/// Returns the rows that read, on one thread and on several.
fn reads(c: Counts) -> Vec<Step> {
    let len = row("len()", 1, 1, "exact number of items, first call".to_owned());
    let gets = row(
        "random reads",
        c.reads,
        24,
        format!("{} gets of existing keys, {PASSES} passes, median", c.reads),
    );
    let ranges = row(
        "random range reads",
        c.scans,
        26,
        format!("{} seeks to an existing key, then {SCAN_ITEMS} items, {PASSES} passes, median", c.scans),
    );
    let twice = |row, work| Step::row(Measure { passes: PASSES, ..Measure::new(row, work) });
    let all = c.items();
    let mut steps = vec![
        Step::row(Measure::new(len, Work::Len)),
        twice(gets, Work::Gets { count: c.reads, threads: 1, keys_ahead: false }),
        twice(ranges, Work::Ranges { count: c.scans, every: 1, limit: SCAN_ITEMS, keys_ahead: false }),
        Step::Check,
        // The next row must not include work that RocksDB starts when the last snapshot ends.
        Step::Drain,
    ];
    for threads in [4, 8, 16, 32] {
        let work = format!("all {all} items divided over {threads} threads");
        let row = row(&format!("random reads ({threads} threads)"), all, 8, work);
        steps.push(Step::row(Measure::new(row, Work::Gets { count: all, threads, keys_ahead: false })));
    }
    steps
}
