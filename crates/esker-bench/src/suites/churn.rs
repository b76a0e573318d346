//! Suite `churn`: as much is removed as is written, and the database has to stay small and quick all the same.
//!
//! ```text
//! queue        push at the tail, pop at the head: a scan from the start finds the head behind everything that was popped
//! expiry       a transaction writes one item and removes the oldest; then one live item and one expired item are read
//! long reader  all items are overwritten while one snapshot from before is held; the snapshot is read to its end afterwards
//! ```
//!
//! One thread, 8-byte keys, 512-byte values that compress to a half; 512 MiB of cache and 4 GiB of memory in all.
//!
//! Sizes after a row are those of the database closed and opened again: only then has each engine let go of what it keeps to write over, or
//! has replaced. What stands under the long reader contains that.
//!
//! bench_churn.1. Only calls of the engine are between two looks at the clock (bench_mixed.1 of `mixed.rs`), and every answer is verified: what a pop takes is
//!      the head, an expired item is gone, the snapshot has every byte of the time when it was taken.

use std::path::PathBuf;

use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::distribution::Distribution;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::generate::storage::StorageItems;
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Failure, Feature, OpenOptions, Store};

use crate::recorder::{Outcome, Recorder};
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::budget::Budget;
use crate::suites::calls::Calls;
use crate::suites::mixed::{Mix, Mixed};
use crate::suites::storage_bench::VersionedItems;
use crate::suites::verify::{expect, full_scan};
use crate::suites::{Stream, Suite, Turn, needs};

/// Operations of a row at scale `test`.
const TEST_OPS: u64 = 300;
const SEED: u64 = 31;
const KEY_BYTES: u64 = 8;
const VALUE_BYTES: usize = 512;
const ITEM_BYTES: u64 = KEY_BYTES + VALUE_BYTES as u64;
const CACHE_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 30;
const LOAD_BATCH: u64 = 1000;
/// Part of the items that is overwritten once more after the long reader has gone: several engines give space back within later commits only.
const LATER_PART: u64 = 10;
const UPDATES: Mix = Mix { percent: [0, 0, 100, 0, 0], scan_items: 0, scan_is_uniform: false };

const QUEUE: [&str; 2] = ["queue", "size of the queue"];
const EXPIRY: [&str; 2] = ["expiry", "size with expiry"];
const LONG_READER: [&str; 3] =
    ["overwrites under a long reader", "size under a long reader", "size after the long reader"];
const LONG_READER_GROUP: usize = 2;

pub(crate) struct ChurnSuite;

/// Items that are alive at any time.
fn live_items(scale: Scale) -> u64 {
    match scale {
        Scale::Quick => 20_000,
        Scale::Seed => 200_000,
        Scale::Full => 2_000_000,
        Scale::Test => 50,
    }
}

fn budget(scale: Scale) -> Budget {
    Budget::of(scale, TEST_OPS)
}

impl Suite for ChurnSuite {
    fn name(&self) -> &'static str {
        "churn"
    }

    fn summary(&self) -> &'static str {
        "a queue, items that expire, overwrites under a long reader: 8-byte keys, 512-byte values of which half repeats, one thread, async"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(MEMORY_BYTES_MAX)
    }

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new(
                "items",
                format!("storage::StorageItems, seed {SEED}, sequential in the queue, else random"),
            ),
            Stream::new("draws", format!("rng::Rng, seed {SEED}; uniform")),
        ]
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let (seconds, items) = (budget(scale).time.as_secs(), live_items(scale));
        let rate = |group, name: &str, work: String| Row {
            commits: Commits::Async(0),
            weight: seconds + items / 50_000,
            group,
            ..Row::rate(Unit::OpsPerSecond, name, work)
        };
        let size = |group, name: &str, work: &str| Row { group, ..Row::size(name, work) };
        vec![
            rate(
                0,
                QUEUE[0],
                format!(
                    "push one item, scan from the start to the head (a queue that remembers its head is quicker on some engines), remove it; {items} in the queue; {seconds} s"
                ),
            ),
            size(0, QUEUE[1], "bytes that the files occupy after it, closed and opened"),
            rate(
                1,
                EXPIRY[0],
                format!(
                    "one transaction writes an item and removes the oldest, then a live and an expired one are read; {items} alive; {seconds} s"
                ),
            ),
            size(1, EXPIRY[1], "bytes that the files occupy after it, closed and opened"),
            rate(
                2,
                LONG_READER[0],
                format!(
                    "one overwrite a transaction of {items} items, as many overwrites, while a snapshot is held; {seconds} s at most"
                ),
            ),
            size(
                2,
                LONG_READER[1],
                "bytes that the files occupy while it is held, preallocated logs included",
            ),
            size(
                2,
                LONG_READER[2],
                "bytes that the files occupy once it is gone and background work is done",
            ),
        ]
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, group, recorder } = turn;
        needs(engine, Feature::AsyncCommits)?;
        if group == LONG_READER_GROUP {
            needs(engine, Feature::Snapshots)?;
        }
        // A queue's keys are in the order in which they are pushed.
        let is_queue = group == 0;
        let options = OpenOptions {
            value_bytes: VALUE_BYTES as u64,
            durability: Durability::Async,
            ascending_keys: is_queue,
            ..OpenOptions::with_cache(CACHE_BYTES)
        };
        let dir = recorder.dir().to_path_buf();
        let store = engine.open(&dir, &options)?;
        let items = VersionedItems { items: StorageItems::new(SEED, is_queue), value_bytes: VALUE_BYTES };
        let live = live_items(scale);
        let mut mixed = Mixed::new(items, &*store, SEED);
        recorder.load("items", live, |how_far| mixed.load(live, LOAD_BATCH, how_far))?;
        recorder.drain(&*store)?;
        let size = if group == LONG_READER_GROUP {
            long_reader(&mut mixed, live, budget(scale), recorder)?;
            LONG_READER[2]
        } else {
            window(mixed.records.items, &*store, live, group, budget(scale), recorder)?
        };
        drop(mixed);
        drop(store);
        let store = engine.open(&dir, &options)?;
        recorder.drain(&*store)?;
        recorder.size_row(size, live * ITEM_BYTES)
    }
}

/// The rows of a window of live items; returns the name of the row that sizes them.
fn window(
    items: StorageItems,
    store: &dyn Store,
    live: u64,
    group: usize,
    budget: Budget,
    recorder: &mut Recorder,
) -> Result<&'static str, Failure> {
    let dir = recorder.dir().to_path_buf();
    let mut window = Window { items, store, head: 0, tail: live, rng: Rng::new(SEED), value: Vec::new() };
    let [row, size] = [QUEUE, EXPIRY][group];
    recorder.row(row, || match group {
        0 => window.queue(Calls::new(&["push", "pop"], budget, &dir)?),
        _ => window.expiry(Calls::new(&["replace", "read", "read of an expired item"], budget, &dir)?),
    })?;
    recorder.drain(store)?;
    recorder.check(|| window.check())?;
    Ok(size)
}

/// Items `head..tail` are alive; those before it were removed, the others come.
struct Window<'a> {
    items: StorageItems,
    store: &'a dyn Store,
    head: u64,
    tail: u64,
    rng: Rng,
    value: Vec<u8>,
}

impl Window<'_> {
    fn fill(&mut self, i: u64) -> u64 {
        self.value.resize(VALUE_BYTES, 0);
        self.items.value(i, 0, &mut self.value);
        probe(&self.value)
    }

    fn queue(&mut self, mut calls: Calls) -> Result<Outcome, Failure> {
        const PUSH: usize = 0;
        const POP: usize = 1;
        let (live, first) = (self.tail - self.head, self.head);
        while calls.are_left() {
            self.fill(self.tail);
            let (key, value, store) = (self.items.key(self.tail), &self.value, self.store);
            calls.call(PUSH, || store.write(&mut |writer| writer.put(&key, value)))?;
            self.tail += 1;
            let (mut head, mut got) = (Vec::new(), 0);
            calls.call(POP, || {
                store.range(&[], 1, &mut |key, value| {
                    head = key.to_vec();
                    got = probe(value);
                })?;
                store.write(&mut |writer| writer.remove(&head))
            })?;
            if *head != self.items.key(self.head) {
                return Err(Failure::Wrong("what was popped was not the head".to_owned()));
            }
            let expected = self.fill(self.head);
            expect("the value that was popped", got, expected)?;
            self.head += 1;
        }
        let steps = self.head - first;
        Ok(calls.finish(2 * steps, steps * (ITEM_BYTES + KEY_BYTES), live * ITEM_BYTES))
    }

    fn expiry(&mut self, mut calls: Calls) -> Result<Outcome, Failure> {
        const REPLACE: usize = 0;
        const READ: usize = 1;
        const READ_EXPIRED: usize = 2;
        let (live, first, store) = (self.tail - self.head, self.head, self.store);
        while calls.are_left() {
            self.fill(self.tail);
            let (new, old, value) = (self.items.key(self.tail), self.items.key(self.head), &self.value);
            calls.call(REPLACE, || {
                store.write(&mut |writer| {
                    writer.put(&new, value)?;
                    writer.remove(&old)
                })
            })?;
            self.head += 1;
            self.tail += 1;
            let alive = self.head + self.rng.below(live);
            let (key, mut got) = (self.items.key(alive), 0);
            calls.call(READ, || store.get(&key, &mut |value| got = probe(value)))?;
            let expected = self.fill(alive);
            expect("the value of a live item", got, expected)?;
            let key = self.items.key(self.rng.below(self.head));
            let found = calls.call(READ_EXPIRED, || store.get(&key, &mut |_| ()))?;
            expect("an expired item that is there", u64::from(found), 0)?;
        }
        let steps = self.head - first;
        Ok(calls.finish(steps, steps * (ITEM_BYTES + KEY_BYTES), live * ITEM_BYTES))
    }

    /// Compares every byte of the store with what must be there.
    fn check(&mut self) -> Result<(), Failure> {
        let mut expected = 0_u64;
        for i in self.head..self.tail {
            self.fill(i);
            expected = expected.wrapping_add(checksum(&self.items.key(i), &self.value));
        }
        full_scan(&mut *self.store.reader()?, self.tail - self.head, expected)
    }
}

fn long_reader(
    mixed: &mut Mixed<'_, VersionedItems>,
    live: u64,
    budget: Budget,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let [overwrites, size_under, _] = LONG_READER;
    let (store, items, dir): (_, _, PathBuf) =
        (mixed.store, mixed.records.items, recorder.dir().to_path_buf());
    let period = budget.period();
    let budget = Budget { ops: budget.ops.min(live), ..budget };
    let mut reader = store.reader()?;
    recorder.row(overwrites, || mixed.run(UPDATES, &Distribution::Uniform, budget, period, &dir))?;
    recorder.drain(store)?;
    recorder.check_row(|| {
        let (mut expected, mut value) = (0_u64, vec![0; VALUE_BYTES]);
        for i in 0..live {
            items.value(i, 0, &mut value);
            expected = expected.wrapping_add(checksum(&items.key(i), &value));
        }
        full_scan(&mut *reader, live, expected)
    })?;
    recorder.size_row(size_under, live * ITEM_BYTES)?;
    drop(reader);
    let later = Budget { ops: (live / LATER_PART).max(1), ..budget };
    mixed.run(UPDATES, &Distribution::Uniform, later, period, &dir)?;
    recorder.drain(store)?;
    recorder.check(|| mixed.full_check())
}
