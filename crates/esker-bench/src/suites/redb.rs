//! Suite `redb`: the workload of redb's own lmdb_benchmark, as canopydb's page ran it too.
//!
//!   bulk load -> individual writes -> batch writes -> nosync writes -> len() -> random reads -> random range reads
//!   -> random reads from 4 to 32 threads -> bulk removals -> size -> compaction -> size
//!
//! Differences from the source, the same for every engine: reads visit all items in an order unlike that of insertion
//! (the source reads them in the order in which it wrote them); what a read must give is computed outside the timed part,
//! so a timed read makes a key (3 ns) and no value; after each phase that changes data, an untimed scan checks every byte; after bulk load,
//! nosync writes, bulk removals and compaction background work is waited for.
//!
//! bench_redb.1. Item numbers are handed out in order of writing; all items below `Counts::items` exist until the removals.
//! bench_redb.2. Every timed read is summed up and compared; a difference fails the row (`Failure::Wrong`).

use std::ops::Range;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::recorder::{Outcome, Recorder};
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::one_transaction::{cannot_be_large, in_one_transaction};
use crate::suites::verify::{expect, full_scan};
use crate::suites::{Stream, Suite, Turn};
use crate::track::Track;
use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::items::{Items, KEY_BYTES, VALUE_BYTES};
use esker_bench_api::generate::order::Order;
use esker_bench_api::{Durability, Failure, Feature, OpenOptions, Reader, Store, Writer};

const SEED: u64 = 3;
const READ_PASSES: usize = 2;
const PERIOD: Duration = Duration::from_millis(100);
const SCAN_ITEMS: u64 = 10;
const THREADS: [(&str, u64); 4] = [
    ("random reads (4 threads)", 4),
    ("random reads (8 threads)", 8),
    ("random reads (16 threads)", 16),
    ("random reads (32 threads)", 32),
];
/// The source's cache size.
const CACHE_BYTES: u64 = 4 << 30;
/// More than any engine has been seen to need for an item of 174 bytes, with room for a copy while compacting.
const DISK_BYTES_PER_ITEM_MAX: u64 = 4000;

pub(crate) struct RedbSuite;

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
        let source = Self {
            bulk: 1_000_000,
            individual: 1_000,
            batches: 100,
            batch: 1_000,
            nosync: 50_000,
            reads: 1_000_000,
            scans: 500_000,
        };
        match scale {
            Scale::Quick => Self { bulk: 250_000, reads: 500_000, scans: 250_000, ..source },
            Scale::Seed => source,
            Scale::Full => Self { bulk: 5_000_000, ..source },
            Scale::Test => Self {
                bulk: 2_000,
                individual: 20,
                batches: 5,
                batch: 100,
                nosync: 100,
                reads: 3_000,
                scans: 500,
            },
        }
    }

    /// Items in the database once everything is written.
    fn items(self) -> u64 {
        self.bulk + self.individual + self.batches * self.batch + self.nosync
    }

    fn removals(self) -> u64 {
        self.items() / 2
    }
}

impl Suite for RedbSuite {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn summary(&self) -> &'static str {
        "24-byte random keys, 150-byte random values, sync commits, 4 GiB of cache (redb's lmdb_benchmark)"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(2 * CACHE_BYTES)
    }

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new("items", format!("items::Items, seed {SEED}")),
            Stream::new(
                "order of reads",
                "order::Order from 0; several threads take stretches of one from 0",
            ),
            Stream::new("order of removals", "order::Order from a third of the items on"),
        ]
    }

    fn disk_bytes_max(&self, scale: Scale, _group: usize) -> u64 {
        Counts::of(scale).items() * DISK_BYTES_PER_ITEM_MAX
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let c = Counts::of(scale);
        let row =
            |name, ops, commits, weight, work: String| Row { ops, commits, weight, ..Row::time(name, work) };
        let size = |name, work: &str| Row { weight: 0, ..Row::size(name, work) };
        let mut rows = vec![
            row(
                "bulk load",
                c.bulk,
                Commits::Sync(1),
                26,
                format!("{} items, random order, one transaction, one sync commit", c.bulk),
            ),
            row(
                "individual writes",
                c.individual,
                Commits::Sync(c.individual),
                4,
                format!("{} transactions of one item, sync", c.individual),
            ),
            row(
                "batch writes",
                c.batches * c.batch,
                Commits::Sync(c.batches),
                26,
                format!("{} transactions of {} items, sync", c.batches, c.batch),
            ),
            row(
                "nosync writes",
                c.nosync,
                Commits::NoSync(c.nosync),
                14,
                format!("{} transactions of one item, no sync", c.nosync),
            ),
            row("len()", 1, Commits::None, 1, "exact number of items, first call".to_owned()),
            row(
                "random reads",
                c.reads,
                Commits::None,
                24,
                format!("{} gets of existing keys, {READ_PASSES} passes, median", c.reads),
            ),
            row(
                "random range reads",
                c.scans,
                Commits::None,
                26,
                format!(
                    "{} seeks to an existing key, then {SCAN_ITEMS} items, {READ_PASSES} passes, median",
                    c.scans
                ),
            ),
        ];
        for (name, threads) in THREADS {
            rows.push(row(
                name,
                c.items(),
                Commits::None,
                8,
                format!("all {} items divided over {threads} threads", c.items()),
            ));
        }
        rows.extend([
            row(
                "bulk removals",
                c.removals(),
                Commits::Sync(1),
                22,
                format!("{} items, random order, one transaction, one sync commit", c.removals()),
            ),
            size("size pre-compact", "bytes that the files occupy after the removals"),
            row("compaction", 1, Commits::None, 10, "the engine's own full compaction".to_owned()),
            size("size after bench", "bytes that the files occupy after the compaction"),
        ]);
        rows
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, recorder, .. } = turn;
        let cannot_sync = engine.cannot(Feature::SyncCommits);
        let durability = if cannot_sync.is_some() { Durability::NoSync } else { Durability::Sync };
        let options = OpenOptions {
            durability,
            value_bytes: VALUE_BYTES as u64,
            ..OpenOptions::with_cache(CACHE_BYTES)
        };
        let mut run = Run {
            items: Items::new(SEED),
            counts: Counts::of(scale),
            store: engine.open(recorder.dir(), &options)?,
            cannot_sync,
            cannot_be_large: cannot_be_large(engine),
        };
        run.writes(recorder)?;
        run.reads(recorder)?;
        run.threads(recorder)?;
        run.removals_and_compaction(recorder)
    }
}

/// What one of several threads reads, and what it must find.
struct Shard {
    order: Order,
    count: u64,
    expected: u64,
}

struct Run {
    items: Items,
    counts: Counts,
    store: Box<dyn Store>,
    /// Why rows that sync have no value; their items are written all the same, so that later rows do the same work (bench_redb.1).
    cannot_sync: Option<&'static str>,
    /// Why rows of one transaction have no value; their items are written all the same.
    cannot_be_large: Option<&'static str>,
}

impl Run {
    fn writes(&mut self, recorder: &mut Recorder) -> Result<(), Failure> {
        let c = self.counts;
        self.sync_row(recorder, "bulk load", || {
            in_one_transaction(&*self.store, self.cannot_be_large, c.bulk, |writer, items| {
                self.put(writer, items)
            })?;
            Ok(written(c.bulk, c.bulk))
        })?;
        let mut next = c.bulk;
        recorder.drain(&*self.store)?;
        let dir = recorder.dir().to_path_buf();
        self.sync_row(recorder, "individual writes", || self.commits(&mut next, c.individual, 1, &dir))?;
        self.sync_row(recorder, "batch writes", || self.commits(&mut next, c.batches, c.batch, &dir))?;
        match self.store.set_durability(Durability::NoSync) {
            Ok(()) => {
                recorder.row("nosync writes", || self.commits(&mut next, c.nosync, 1, &dir))?;
                recorder.drain(&*self.store)?;
                if self.cannot_sync.is_none() {
                    self.store.set_durability(Durability::Sync)?;
                }
            }
            Err(Failure::Unsupported(why)) => {
                recorder.row("nosync writes", || Err(Failure::Unsupported(why.clone())))?;
                // The items are written all the same, so that later rows do the same work (bench_redb.1).
                self.commits(&mut next, 1, c.nosync, &dir)?;
            }
            Err(failure) => return Err(failure),
        }
        assert_eq!(next, c.items(), "bench_redb.1");
        Ok(())
    }

    /// A row whose commits must sync.
    fn sync_row(
        &self,
        recorder: &mut Recorder,
        name: &str,
        mut work: impl FnMut() -> Result<Outcome, Failure>,
    ) -> Result<(), Failure> {
        let Some(why) = self.cannot_sync else { return recorder.row(name, work) };
        work()?;
        recorder.cannot(name, why)
    }

    /// `count` transactions of `size` new items each (bench_redb.1).
    fn commits(&self, next: &mut u64, count: u64, size: u64, dir: &Path) -> Result<Outcome, Failure> {
        let mut track = Track::new(&["write"], PERIOD, dir)?;
        for _ in 0..count {
            let (first, from) = (*next, Instant::now());
            self.store.write(&mut |writer| self.put(writer, first..first + size))?;
            track.record(0, from, Instant::now(), size);
            *next += size;
        }
        Ok(Outcome { detail: Some(track.finish("closed")), ..written(count * size, *next) })
    }

    fn put(&self, writer: &mut dyn Writer, mut items: Range<u64>) -> Result<(), Failure> {
        items.try_for_each(|i| writer.put(&self.items.key(i), &self.items.value(i)))
    }

    fn reads(&self, recorder: &mut Recorder) -> Result<(), Failure> {
        let c = self.counts;
        let order = Order::new(c.items(), 0);
        let probes: Vec<u64> = (0..c.items()).map(|i| probe(&self.items.value(i))).collect();
        let gets_expected = sum(order.clone().take(c.reads as usize).map(|i| probes[i as usize]));
        let scans_expected = self.scans_expected(&order, &probes);
        drop(probes);

        let mut reader = self.store.reader()?;
        recorder.row("len()", || expect("number of items", reader.len()?, c.items()))?;
        recorder.row_of_passes("random reads", READ_PASSES, || {
            expect(
                "sum of the values",
                gets(&mut *reader, self.items, order.clone(), c.reads)?,
                gets_expected,
            )
        })?;
        recorder.row_of_passes("random range reads", READ_PASSES, || {
            expect(
                "sum of the ranges",
                scans(&mut *reader, self.items, order.clone(), c.scans)?,
                scans_expected,
            )
        })?;
        recorder.check(|| full_check(&mut *reader, self.items, 0..c.items()))?;
        drop(reader);
        // What the end of the last snapshot sets off in RocksDB is not the next row's work.
        recorder.drain(&*self.store)
    }

    /// What [`scans`] must return, found by sorting all keys.
    fn scans_expected(&self, order: &Order, probes: &[u64]) -> u64 {
        let mut sorted: Vec<_> = (0..self.counts.items()).map(|i| (self.items.key(i), i)).collect();
        sorted.sort_unstable();
        let mut rank_of = vec![0; sorted.len()];
        for (rank, (_, i)) in sorted.iter().enumerate() {
            rank_of[*i as usize] = rank;
        }
        sum(order.clone().take(self.counts.scans as usize).map(|i| {
            let ranks = sorted[rank_of[i as usize]..].iter().take(SCAN_ITEMS as usize);
            ranks.fold(0, |acc, (key, i)| fold_scan(acc, key, probes[*i as usize]))
        }))
    }

    fn threads(&self, recorder: &mut Recorder) -> Result<(), Failure> {
        let n = self.counts.items();
        for (name, threads) in THREADS {
            let shards: Vec<Shard> = (0..threads)
                .map(|t| {
                    let (from, to) = (n * t / threads, n * (t + 1) / threads);
                    let order = Order::new(n, 0).skip_to(from);
                    let values =
                        order.clone().take((to - from) as usize).map(|i| probe(&self.items.value(i)));
                    Shard { expected: sum(values), order, count: to - from }
                })
                .collect();
            recorder.row(name, || self.read_shards(&shards))?;
        }
        Ok(())
    }

    /// Reads each shard on a thread of its own. The time is from the first thread's first read to the last thread's last:
    /// the main thread cannot take it, because with more threads than cores it may wake late.
    fn read_shards(&self, shards: &[Shard]) -> Result<Outcome, Failure> {
        let barrier = Barrier::new(shards.len());
        let read = |shard: &Shard| {
            barrier.wait();
            let start = Instant::now();
            let got = gets(&mut *self.store.reader()?, self.items, shard.order.clone(), shard.count)?;
            let end = Instant::now();
            expect("sum of the values", got, shard.expected)?;
            Ok((start, end))
        };
        let read = &read;
        let times = thread::scope(|scope| {
            let readers: Vec<_> = shards.iter().map(|shard| scope.spawn(move || read(shard))).collect();
            let panicked = |_| Failure::engine("a reader thread panicked");
            readers
                .into_iter()
                .map(|reader| reader.join().map_err(panicked)?)
                .collect::<Result<Vec<_>, Failure>>()
        })?;
        let (first, last) = (times.iter().map(|time| time.0).min(), times.iter().map(|time| time.1).max());
        let seconds = first.zip(last).map_or(0.0, |(first, last)| last.duration_since(first).as_secs_f64());
        Ok(Outcome { seconds: Some(seconds), ..Outcome::default() })
    }

    fn removals_and_compaction(&mut self, recorder: &mut Recorder) -> Result<(), Failure> {
        let c = self.counts;
        let order = Order::new(c.items(), c.items() / 3);
        let removals = c.removals() as usize;
        self.sync_row(recorder, "bulk removals", || {
            in_one_transaction(&*self.store, self.cannot_be_large, c.removals(), |writer, numbers| {
                let count = (numbers.end - numbers.start) as usize;
                let mut removed = order.skip_to(numbers.start).take(count);
                removed.try_for_each(|i| writer.remove(&self.items.key(i)))
            })?;
            Ok(Outcome::default())
        })?;
        recorder.drain(&*self.store)?;
        let kept: Vec<u64> = order.skip(removals).take(c.items() as usize - removals).collect();
        let live_bytes = written(0, kept.len() as u64).live_bytes;
        recorder.size_row("size pre-compact", live_bytes)?;
        recorder.check(|| full_check(&mut *self.store.reader()?, self.items, kept.iter().copied()))?;
        recorder.row("compaction", || {
            let start = Instant::now();
            self.store.compact()?;
            let seconds = Some(start.elapsed().as_secs_f64());
            self.store.reopen()?;
            Ok(Outcome { seconds, rewrites: true, ..Outcome::default() })
        })?;
        recorder.drain(&*self.store)?;
        recorder.size_row("size after bench", live_bytes)?;
        recorder.check(|| full_check(&mut *self.store.reader()?, self.items, kept.iter().copied()))
    }
}

/// The outcome of a row that wrote `items` items and left `alive` items in the database.
fn written(items: u64, alive: u64) -> Outcome {
    let item_bytes = (KEY_BYTES + VALUE_BYTES) as u64;
    Outcome { user_written_bytes: items * item_bytes, live_bytes: alive * item_bytes, ..Outcome::default() }
}

/// The sum of the values of `count` items in `order`; a key that is not found shows as a wrong sum.
fn gets(reader: &mut dyn Reader, items: Items, order: Order, count: u64) -> Result<u64, Failure> {
    let mut sum = 0_u64;
    for i in order.take(count as usize) {
        reader.get(&items.key(i), &mut |value| sum = sum.wrapping_add(probe(value)))?;
    }
    Ok(sum)
}

/// The sum of `count` range reads that begin at the items of `order`.
fn scans(reader: &mut dyn Reader, items: Items, order: Order, count: u64) -> Result<u64, Failure> {
    let mut sum = 0_u64;
    for i in order.take(count as usize) {
        let mut acc = 0;
        reader.range(&items.key(i), SCAN_ITEMS, &mut |key, value| acc = fold_scan(acc, key, probe(value)))?;
        sum = sum.wrapping_add(acc);
    }
    Ok(sum)
}

/// Adds an item of a range to its checksum, so that order, keys and values all count.
fn fold_scan(acc: u64, key: &[u8], value_probe: u64) -> u64 {
    let head = key.first_chunk::<8>().map_or(0, |head| u64::from_le_bytes(*head));
    acc.rotate_left(7) ^ head ^ value_probe
}

/// Reads everything and compares every byte with what must be there: the items numbered `live`. Untimed.
fn full_check(reader: &mut dyn Reader, items: Items, live: impl Iterator<Item = u64>) -> Result<(), Failure> {
    let (mut count, mut expected) = (0, 0_u64);
    for i in live {
        count += 1;
        expected = expected.wrapping_add(checksum(&items.key(i), &items.value(i)));
    }
    expect("number of items by len()", reader.len()?, count)?;
    full_scan(reader, count, expected)
}

fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::wrapping_add)
}
