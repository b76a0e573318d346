//! Suite `badger`: the badger-bench form, as the notes on Badger and BoltDB ran it: 16 KB, 1 KB and 128 B values.
//!
//! ```text
//! for each size: populate in sync batches of 1,000 -> drain -> close -> drop the page cache -> open
//!                -> iterate keys only (cold) -> random read -> iterate with values -> iterate keys only
//! ```
//!
//! Keys are drawn with replacement, so about 63 % of the key range exists; reads draw from the range, misses included.
//! Where the page cache cannot be dropped (that takes a privilege), the cold row says so.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_bench_api::generate::badger::{BadgerItems, KEY_BYTES};
use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Engine, Failure, Feature, OpenOptions, Store};

use crate::machine;
use crate::recorder::{Outcome, Recorder};
use crate::scale::Scale;
use crate::suites::verify::{expect, full_scan};
use crate::suites::{Commits, Row, Suite, may_outgrow};
use crate::track::Track;

const SEED: u64 = 13;
const CACHE_BYTES: u64 = 4 << 30;
const MEMORY_BYTES_MAX: u64 = 2 * CACHE_BYTES;
const BATCH: u64 = 1000;
const ITERATE_KEYS: u64 = 2_000_000;
const SIZES: [(usize, &str); 3] = [(16 << 10, "16 KB"), (1 << 10, "1 KB"), (128, "128 B")];
const PERIOD: Duration = Duration::from_millis(250);

pub(crate) struct BadgerSuite;

/// Keys to write, and how long random reads go on or after how many they end.
fn counts(scale: Scale, group: usize) -> (u64, Duration, u64) {
    let keys = match scale {
        Scale::Quick => [5_000, 50_000, 200_000],
        Scale::Seed => [1_000_000, 10_000_000, 50_000_000],
        Scale::Full => [5_000_000, 75_000_000, 250_000_000],
        Scale::Test => [300, 500, 1_000],
    };
    let (seconds, reads) = match scale {
        Scale::Quick => (1, u64::MAX),
        Scale::Seed => (20, u64::MAX),
        Scale::Full => (180, u64::MAX),
        Scale::Test => (3600, 500),
    };
    (keys[group], Duration::from_secs(seconds), reads)
}

impl Suite for BadgerSuite {
    fn name(&self) -> &'static str {
        "badger"
    }

    fn summary(&self) -> &'static str {
        "keys drawn with replacement, random values, batches of 1,000, synced, 4 GiB of cache (badger-bench)"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(MEMORY_BYTES_MAX)
    }

    fn disk_bytes_max(&self, scale: Scale) -> u64 {
        (0..SIZES.len())
            .map(|group| counts(scale, group).0 * (SIZES[group].0 as u64 + 200) * 5 / 2)
            .max()
            .unwrap_or(0)
            + (1 << 30)
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let mut rows = Vec::new();
        for (group, (bytes, size)) in SIZES.into_iter().enumerate() {
            let (keys, time, _) = counts(scale, group);
            let iterated = keys.min(ITERATE_KEYS);
            let row = |name: &str, work: String| Row { group, ..Row::time(format!("{name} ({size})"), work) };
            rows.extend([
                Row {
                    ops: keys,
                    commits: Commits::Sync(keys.div_ceil(BATCH)),
                    weight: 1 + keys * (bytes as u64 + 200) / 100_000_000,
                    ..row("populate", format!("{keys} keys with values of {size}, sync batches of 1,000"))
                },
                row(
                    "iterate keys only, cold",
                    format!("{iterated} keys from the start, page cache dropped, opened anew"),
                ),
                Row {
                    weight: 1 + time.as_secs().min(200),
                    ..row(
                        "random read",
                        format!("{} s of gets below the key range, misses included", time.as_secs()),
                    )
                },
                row("iterate with values", format!("{iterated} keys from the start")),
                row("iterate keys only", format!("{iterated} keys from the start")),
            ]);
        }
        rows
    }

    fn run(
        &self,
        engine: &dyn Engine,
        scale: Scale,
        group: usize,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        if let Some(why) = engine.cannot(Feature::SyncCommits) {
            let rows = self.rows(scale).into_iter().filter(|row| row.group == group);
            return rows.into_iter().try_for_each(|row| recorder.cannot(&row.name, why));
        }
        let (bytes, size) = SIZES[group];
        let (keys, time, reads) = counts(scale, group);
        let mut run = Run {
            items: BadgerItems::new(SEED, bytes),
            keys,
            exists: vec![0; keys.div_ceil(64) as usize],
            live: 0,
        };
        let dir = recorder.dir().to_path_buf();
        let options = OpenOptions {
            value_bytes: bytes as u64,
            random_beyond_memory: may_outgrow(keys, bytes, MEMORY_BYTES_MAX),
            ..OpenOptions::with_cache(CACHE_BYTES)
        };
        let store = engine.open(&dir, &options)?;
        if !recorder.groundwork(&format!("populate ({size})"), || run.populate(&*store))? {
            return Ok(());
        }
        recorder.drain(&*store)?;
        drop(store);
        let is_cold = machine::drop_page_cache();
        let store = engine.open(&dir, &options)?;
        recorder.row(&format!("iterate keys only, cold ({size})"), || {
            if is_cold { run.iterate_keys(&*store) } else { Err(Failure::Unsupported(NOT_COLD.to_owned())) }
        })?;
        recorder.row(&format!("random read ({size})"), || run.random_reads(&*store, time, reads, &dir))?;
        recorder.row(&format!("iterate with values ({size})"), || run.iterate(&*store))?;
        recorder.row(&format!("iterate keys only ({size})"), || run.iterate_keys(&*store))?;
        recorder.check(|| run.full_check(&*store))
    }
}

const NOT_COLD: &str = "the page cache could not be dropped (/proc/sys/vm/drop_caches takes a privilege)";

struct Run {
    items: BadgerItems,
    keys: u64,
    /// A bit for each number of the key range.
    exists: Vec<u64>,
    live: u64,
}

impl Run {
    fn has(&self, k: u64) -> bool {
        self.exists[k as usize / 64] >> (k % 64) & 1 == 1
    }

    fn item_bytes(&self) -> u64 {
        (KEY_BYTES + self.items.value(0).len()) as u64
    }

    fn populate(&mut self, store: &dyn Store) -> Result<Outcome, Failure> {
        let mut draws = self.items.draws();
        let mut written = 0;
        while written < self.keys {
            let batch = BATCH.min(self.keys - written);
            let numbers: Vec<u64> = (0..batch).map(|_| draws.below(self.keys)).collect();
            store.write(&mut |writer| {
                numbers.iter().try_for_each(|k| writer.put(&self.items.key(*k), self.items.value(*k)))
            })?;
            for k in numbers {
                self.live += u64::from(!self.has(k));
                self.exists[k as usize / 64] |= 1 << (k % 64);
            }
            written += batch;
        }
        Ok(Outcome {
            user_written_bytes: self.keys * self.item_bytes(),
            live_bytes: self.live * self.item_bytes(),
            ..Outcome::default()
        })
    }

    /// The value is the time of one read.
    fn random_reads(
        &self,
        store: &dyn Store,
        time: Duration,
        reads: u64,
        dir: &Path,
    ) -> Result<Outcome, Failure> {
        let mut rng = Rng::new(SEED + 1);
        let mut track = Track::new(&["read"], PERIOD, dir)?;
        let (mut hits, mut busy) = (0, Duration::ZERO);
        while track.elapsed() < time && track.ops() < reads {
            let k = rng.below(self.keys);
            let key = self.items.key(k);
            let mut got = None;
            let from = Instant::now();
            store.get(&key, &mut |value| got = Some(probe(value)))?;
            let to = Instant::now();
            busy += to - from;
            track.record(0, from, to, 1);
            let expected = self.has(k).then(|| probe(self.items.value(k)));
            if got != expected {
                return Err(Failure::Wrong(format!("get of number {k}: {got:?}, not {expected:?}")));
            }
            hits += u64::from(got.is_some());
        }
        let ops = track.ops();
        let mut detail = track.finish("closed");
        detail.figures.insert("hit rate".to_owned(), hits as f64 / ops as f64);
        Ok(Outcome {
            value: Some(busy.as_secs_f64() / ops as f64),
            detail: Some(detail),
            live_bytes: self.live * self.item_bytes(),
            ..Outcome::default()
        })
    }

    /// The first numbers that exist.
    fn first_numbers(&self) -> impl Iterator<Item = u64> {
        (0..self.keys).filter(|k| self.has(*k)).take(ITERATE_KEYS as usize)
    }

    fn iterate(&self, store: &dyn Store) -> Result<Outcome, Failure> {
        let mut sum = 0_u64;
        let start = Instant::now();
        let count = store.range(&[], ITERATE_KEYS, &mut |key, value| {
            sum = sum.rotate_left(1).wrapping_add(probe(key)) ^ probe(value);
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let expected = self.first_numbers().fold(0_u64, |sum, k| {
            sum.rotate_left(1).wrapping_add(probe(&self.items.key(k))) ^ probe(self.items.value(k))
        });
        expect("sum of the items", sum, expected)?;
        Ok(Outcome { seconds: Some(seconds), ops: Some(count), ..Outcome::default() })
    }

    fn iterate_keys(&self, store: &dyn Store) -> Result<Outcome, Failure> {
        let mut sum = 0_u64;
        let start = Instant::now();
        let count = store.reader()?.keys(&[], ITERATE_KEYS, &mut |key| {
            sum = sum.rotate_left(1).wrapping_add(probe(key));
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let expected = self
            .first_numbers()
            .fold(0_u64, |sum, k| sum.rotate_left(1).wrapping_add(probe(&self.items.key(k))));
        expect("sum of the keys", sum, expected)?;
        Ok(Outcome { seconds: Some(seconds), ops: Some(count), ..Outcome::default() })
    }

    fn full_check(&self, store: &dyn Store) -> Result<(), Failure> {
        let all = (0..self.keys).filter(|k| self.has(*k));
        let expected =
            all.fold(0_u64, |sum, k| sum.wrapping_add(checksum(&self.items.key(k), self.items.value(k))));
        full_scan(&mut *store.reader()?, self.live, expected)
    }
}
