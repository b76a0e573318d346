//! Suite `badger`: the badger-bench form, as the notes on Badger and BoltDB ran it: 16 KB, 1 KB and 128 B values.
//!
//! ```text
//! for each size: populate in sync batches of 1,000 -> drain -> close -> open, every byte checked
//!                -> close, drop the page cache -> open and iterate keys only (cold)
//!                -> close, drop the page cache -> open -> random read
//!                -> close, drop the page cache -> open -> iterate with values -> iterate keys only
//! ```
//!
//! bench_badger.1. Each part begins with a store opened anew and an empty page cache: what an engine reads in one is not there for the next.
//! bench_badger.2. Opening counts to the cold row: engines that read much when they open have read it then.
//! bench_badger.3. A walk, the check's too, is never of a store that was opened for reads at random: that may have been told to read nothing ahead.
//!
//! Keys are drawn with replacement, so about 63 % of the key range exists; reads draw from the range, misses included.
//! Where the page cache cannot be dropped (that takes a privilege), the cold row has no value, and the rows behind it say so.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_bench_api::generate::badger::{BadgerItems, KEY_BYTES};
use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Failure, Feature, OpenOptions, Store};

use crate::how_far::HowFar;
use crate::machine;
use crate::recorder::Outcome;
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::page_cache::{NOT_COLD, begins};
use crate::suites::verify::{expect, full_scan};
use crate::suites::{Stream, Suite, Turn, may_outgrow, needs};
use crate::track::Track;

const SEED: u64 = 13;
const CACHE_BYTES: u64 = 4 << 30;
const MEMORY_BYTES_MAX: u64 = 2 * CACHE_BYTES;
const ITERATE_KEYS: u64 = 2_000_000;
const SIZES: [(usize, &str); 3] = [(16 << 10, "16 KB"), (1 << 10, "1 KB"), (128, "128 B")];
const PERIOD: Duration = Duration::from_millis(250);
/// Of what takes minutes.
const POPULATE_PERIOD: Duration = Duration::from_secs(5);

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

/// Items of a commit: a test has several.
fn batch(scale: Scale) -> u64 {
    if scale == Scale::Test { 20 } else { 1000 }
}

/// What a store is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Random,
    Walk,
}

fn options(keys: u64, value_bytes: usize, purpose: Use) -> OpenOptions {
    OpenOptions {
        value_bytes: value_bytes as u64,
        random_beyond_memory: purpose == Use::Random && may_outgrow(keys, value_bytes, MEMORY_BYTES_MAX),
        ..OpenOptions::with_cache(CACHE_BYTES)
    }
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

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new("items", format!("badger::BadgerItems, seed {SEED}")),
            Stream::new("keys that are written", "badger::BadgerItems::draws, below the key range"),
            Stream::new("keys that are read", format!("rng::Rng, seed {}, below the key range", SEED + 1)),
        ]
    }

    fn disk_bytes_max(&self, scale: Scale, group: usize) -> u64 {
        counts(scale, group).0 * (SIZES[group].0 as u64 + 200) * 5 / 2 + (1 << 30)
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let mut rows = Vec::new();
        for (group, (bytes, size)) in SIZES.into_iter().enumerate() {
            let (keys, time, _) = counts(scale, group);
            let iterated = keys.min(ITERATE_KEYS);
            let batch = batch(scale);
            let row = |name: &str, work: String| Row { group, ..Row::time(format!("{name} ({size})"), work) };
            rows.extend([
                Row {
                    ops: keys,
                    commits: Commits::Sync(keys.div_ceil(batch)),
                    weight: 1 + keys * (bytes as u64 + 200) / 100_000_000,
                    ..row("populate", format!("{keys} keys with values of {size}, sync batches of {batch}"))
                },
                row(
                    "iterate keys only, cold",
                    format!("up to {iterated} keys from the start, page cache dropped; opened anew, which counts"),
                ),
                Row {
                    weight: 1 + time.as_secs().min(200),
                    ..row(
                        "random read",
                        format!(
                            "{} s of gets below the key range, misses included; page cache dropped, opened anew",
                            time.as_secs()
                        ),
                    )
                },
                row(
                    "iterate with values",
                    format!("up to {iterated} keys from the start; page cache dropped, opened anew"),
                ),
                row("iterate keys only", format!("up to {iterated} keys from the start, after the row before")),
            ]);
        }
        rows
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        self.run_with(&machine::drop_page_cache, turn)
    }
}

impl BadgerSuite {
    fn run_with(&self, drop_page_cache: &dyn Fn() -> bool, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, group, recorder } = turn;
        needs(engine, Feature::SyncCommits)?;
        let (bytes, size) = SIZES[group];
        let (keys, time, reads) = counts(scale, group);
        let mut run = Run {
            items: BadgerItems::new(SEED, bytes),
            keys,
            batch: batch(scale),
            exists: vec![0; keys.div_ceil(64) as usize],
            live: 0,
        };
        let dir = recorder.dir().to_path_buf();
        let open = |purpose| engine.open(&dir, &options(keys, bytes, purpose));
        let store = open(Use::Random)?;
        let mut how_far = recorder.how_far("keys", keys);
        if !recorder
            .groundwork(&format!("populate ({size})"), || run.populate(&*store, &dir, &mut how_far))?
        {
            return Ok(());
        }
        recorder.drain(&*store)?;
        drop(store);
        let store = open(Use::Walk)?;
        recorder.check(|| run.full_check(&*store))?;
        drop(store);

        let is_cold = drop_page_cache();
        let mut opened = None;
        recorder.row(&format!("iterate keys only, cold ({size})"), || {
            if !is_cold {
                return Err(Failure::Unsupported(NOT_COLD.to_owned()));
            }
            let start = Instant::now();
            let store = opened.insert(open(Use::Walk)?);
            run.iterate_keys(&**store, start)
        })?;
        drop(opened);

        let note = begins(drop_page_cache());
        let store = open(Use::Random)?;
        recorder.settle(&*store)?;
        recorder.row(&format!("random read ({size})"), || {
            Ok(Outcome { note: note.to_owned(), ..run.random_reads(&*store, time, reads, &dir)? })
        })?;
        drop(store);

        let note = begins(drop_page_cache());
        let store = open(Use::Walk)?;
        recorder.settle(&*store)?;
        recorder.row(&format!("iterate with values ({size})"), || {
            Ok(Outcome { note: note.to_owned(), ..run.iterate(&*store)? })
        })?;
        recorder.row(&format!("iterate keys only ({size})"), || {
            Ok(Outcome { note: note.to_owned(), ..run.iterate_keys(&*store, Instant::now())? })
        })
    }
}

struct Run {
    items: BadgerItems,
    keys: u64,
    batch: u64,
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

    fn populate(&mut self, store: &dyn Store, dir: &Path, how_far: &mut HowFar) -> Result<Outcome, Failure> {
        let mut draws = self.items.draws();
        let mut track = Track::new(&["write"], POPULATE_PERIOD, dir)?;
        let mut written = 0;
        while written < self.keys {
            let batch = self.batch.min(self.keys - written);
            let numbers: Vec<u64> = (0..batch).map(|_| draws.below(self.keys)).collect();
            let from = Instant::now();
            store.write(&mut |writer| {
                numbers.iter().try_for_each(|k| writer.put(&self.items.key(*k), self.items.value(*k)))
            })?;
            let to = Instant::now();
            track.record(0, from, to, batch);
            for k in numbers {
                self.live += u64::from(!self.has(k));
                self.exists[k as usize / 64] |= 1 << (k % 64);
            }
            written += batch;
            how_far.at(written, to)?;
        }
        Ok(Outcome {
            detail: Some(track.finish("closed")),
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

    /// The clock runs from `start`.
    fn iterate_keys(&self, store: &dyn Store, start: Instant) -> Result<Outcome, Failure> {
        let mut sum = 0_u64;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::page_cache::NOT_EMPTY;
    use crate::suites::rehearse::Rehearsed;
    use esker_bench_api::results::Record;

    const GROUP: usize = 2;
    const POPULATE: &str = "populate (128 B)";

    fn records(engine: &Rehearsed, is_cold: bool) -> Vec<Record> {
        engine.records(&BadgerSuite, GROUP, |recorder| {
            let turn = Turn { engine, scale: Scale::Test, group: GROUP, recorder };
            BadgerSuite.run_with(&|| is_cold, turn)
        })
    }

    #[test]
    fn bench_badger_1_bench_badger_2_each_part_opens_anew_and_opening_counts_to_the_cold_row_only() {
        let in_cold = "iterate keys only, cold (128 B)";
        // Of the others, whether each takes less than an opening.
        let are_short = || {
            let engine = Rehearsed { opening: Duration::from_millis(500), ..Rehearsed::default() };
            let records = records(&engine, true);
            assert_eq!(engine.opened_in(), ["", POPULATE, in_cold, in_cold, "random read (128 B)"]);
            assert!(records.iter().skip(1).all(|record| record.note.is_empty()));
            // How long the syncs of `populate` take, the machine decides.
            let (cold, others): (Vec<_>, Vec<_>) =
                records.into_iter().skip(1).partition(|record| record.row == in_cold);
            assert!(cold.len() == 1 && cold[0].value.unwrap() >= 0.5, "{:?}", cold[0].value);
            others.iter().all(|record| record.value.unwrap() < 0.5)
        };
        // One may be held up for as long on a busy machine, but not each time.
        assert!((0..10).any(|_| are_short()));
    }

    #[test]
    fn where_the_page_cache_cannot_be_dropped_the_rows_say_so() {
        let engine = Rehearsed::default();
        let records = records(&engine, false);
        let in_cold = "iterate keys only, cold (128 B)";
        assert_eq!(engine.opened_in(), ["", POPULATE, in_cold, "random read (128 B)"]);
        assert_eq!((records[0].error.as_deref(), records[0].note.as_str()), (None, ""));
        assert!(records[1].error.as_ref().unwrap().contains(NOT_COLD));
        for record in &records[2..] {
            assert_eq!((record.error.as_deref(), record.note.as_str()), (None, NOT_EMPTY), "{}", record.row);
        }
    }

    #[test]
    fn a_lost_item_voids_what_wrote_it_and_the_walks_that_miss_it() {
        let records = records(&Rehearsed { kept_puts: Some(0), ..Rehearsed::default() }, true);
        let error = |row: usize| records[row].error.clone().unwrap();
        assert!(error(0).starts_with("wrong answer: number of items in a full scan"));
        for row in [1, 3, 4] {
            assert!(error(row).starts_with("wrong answer: sum of the "), "{}", records[row].row);
        }
    }

    #[test]
    fn only_stores_for_random_reads_of_much_are_opened_for_them() {
        for (keys, bytes, purpose, expected) in [
            (1_000_000, 16 << 10, Use::Random, true),
            (1_000_000, 16 << 10, Use::Walk, false),
            (5_000, 16 << 10, Use::Random, false),
        ] {
            assert_eq!(options(keys, bytes, purpose).random_beyond_memory, expected, "{keys} of {bytes}");
        }
    }

    #[test]
    fn a_test_has_several_commits() {
        let rows = BadgerSuite.rows(Scale::Test);
        assert!(
            rows.iter().filter(|row| row.name.starts_with("populate")).all(|row| row.commits.count() > 10)
        );
    }
}
