//! Suite `sizes`: the same work on three sizes of data, held against the memory that there is: in the engine's cache, in memory, beyond
//! memory. An engine that is first on one size of data need not be first on the next.
//!
//! ```text
//! a database for each size: load, drain
//!                           -> close, drop the page cache -> open -> warm up -> reads for a fixed time -> updates for a fixed time, drain
//!                           -> close -> open, every byte checked
//!                           -> close, drop the page cache -> open -> warm up -> reads for a fixed time
//! ```
//!
//! bench_sizes.1. Before both rows of reads the store is opened anew on an empty page cache: neither finds what the load or the check, each in its
//!      engine's own way, left in memory, and what the end of the check's snapshot sets off is over.
//! bench_sizes.2. The check walks through a store that was opened for that: one for reads at random may have been told to read nothing ahead.
//! bench_sizes.3. Reads of other items at random, for a time that is the same for all engines, come before the timed ones and are no part of them: rows
//!      of data that memory holds are of data in memory, as far as an engine gets it there in that time. A wrong answer among them is the row's.
//!
//! The first reads are of the same database for every engine; the last ones are of what the updates have left, and of those a faster engine makes more.
//!
//! One thread, 8-byte keys, 500-byte values that compress to a half; loaded in the order of the keys, since the load is no row and costs a
//! tree beyond memory hours in any other; then all items are drawn alike. 128 MiB of cache and 512 MiB of memory in all, page cache included.

use std::time::Duration;

use esker_bench_api::generate::distribution::Distribution;
use esker_bench_api::generate::storage::StorageItems;
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Failure, OpenOptions};

use crate::machine;
use crate::recorder::{Outcome, Recorder};
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::budget::Budget;
use crate::suites::mixed::{Mix, Mixed};
use crate::suites::page_cache::begins;
use crate::suites::storage_bench::VersionedItems;
use crate::suites::{Stream, Suite, Turn};

/// Operations of a row at scale `test`.
const TEST_OPS: u64 = 200;
const SEED: u64 = 29;
/// bench_sizes.3.
const WARM_UP_SEED: u64 = 31;
/// Of the time of a row of reads, what the warm-up before it takes, as long as that is no more than the next.
const WARM_UP_PART: u32 = 4;
const WARM_UP_MAX: Duration = Duration::from_secs(10);
/// Sanakirja holds no more than 510.
const VALUE_BYTES: usize = 500;
const CACHE_BYTES: u64 = 128 << 20;
const MEMORY_BYTES_MAX: u64 = 512 << 20;
/// Several memtables and the cache have to fit into the memory.
const WRITE_BUFFER_BYTES: u64 = 16 << 20;
const LOAD_BATCH: u64 = 1000;
const UPDATES: Mix = Mix { percent: [0, 0, 100, 0, 0], scan_items: 0, scan_is_uniform: false };
const READS: Mix = Mix { percent: [100, 0, 0, 0, 0], scan_items: 0, scan_is_uniform: false };

/// The group whose data is larger than the memory.
const BEYOND_MEMORY: usize = 2;

pub(crate) struct SizesSuite;

/// What a group works on: how its rows are named, and its items: a quarter of the cache, half of the memory, three times the memory (at
/// `quick` twice).
fn sizes(scale: Scale) -> [(&'static str, u64); 3] {
    let items = match scale {
        Scale::Quick => [60_000, 500_000, 2_000_000],
        Scale::Seed | Scale::Full => [60_000, 500_000, 3_000_000],
        Scale::Test => [40, 80, 160],
    };
    let [cached, in_memory, beyond] = items;
    [("in cache", cached), ("in memory", in_memory), ("beyond memory", beyond)]
}

fn budget(scale: Scale) -> Budget {
    Budget::of(scale, TEST_OPS)
}

/// bench_sizes.3.
fn warm_up(budget: Budget) -> Budget {
    Budget { time: (budget.time / WARM_UP_PART).min(WARM_UP_MAX), ops: budget.ops / u64::from(WARM_UP_PART) }
}

fn row_names(size: &str) -> [String; 3] {
    ["reads", "updates", "reads after updates"].map(|work| format!("{work}, data {size}"))
}

impl Suite for SizesSuite {
    fn name(&self) -> &'static str {
        "sizes"
    }

    fn summary(&self) -> &'static str {
        "three sizes of data against 128 MiB of cache and 512 MiB in all: 8-byte keys, 500-byte values, all drawn alike; half of each value repeats, so \
         that data beyond memory is 3 times the memory in raw bytes (at quick 2), and about 1.5 times (1) for engines that compress"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(MEMORY_BYTES_MAX)
    }

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new("items", format!("storage::StorageItems, seed {SEED}, sequential")),
            Stream::new("reads and updates", format!("rng::Rng, seed {SEED}; uniform")),
            Stream::new("warm-up", format!("rng::Rng, seed {WARM_UP_SEED}; uniform")),
        ]
    }

    fn disk_bytes_max(&self, scale: Scale, _group: usize) -> u64 {
        if scale == Scale::Test { 1 << 30 } else { 20 << 30 }
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let seconds = budget(scale).time.as_secs();
        let warm_s = warm_up(budget(scale)).time.as_secs_f64();
        let begins = format!(
            "page cache dropped, opened anew, then {warm_s} s of other gets, the same for all, untimed"
        );
        let rows = |(group, (size, items)): (usize, (&str, u64))| {
            let [reads, updates, reads_after] = row_names(size);
            let mib = (items * (8 + VALUE_BYTES as u64)) >> 20;
            let of_items = format!("{items} items ({mib} MiB), {seconds} s");
            let row = |name, work| Row { group, ..Row::rate(Unit::OpsPerSecond, name, work) };
            [
                // The load is before it.
                Row {
                    weight: seconds + items / 50_000,
                    ..row(reads, format!("gets of the database as it was loaded; {begins}; {of_items}"))
                },
                // The check is behind it.
                Row {
                    commits: Commits::Async(0),
                    weight: seconds + items / 200_000,
                    ..row(updates, format!("one overwrite a transaction, async; {of_items}"))
                },
                Row {
                    weight: seconds,
                    ..row(
                        reads_after,
                        format!(
                            "gets, after the updates, whose number differs, have been paid for; {begins}; {of_items}"
                        ),
                    )
                },
            ]
        };
        sizes(scale).into_iter().enumerate().flat_map(rows).collect()
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        self.run_with(&machine::drop_page_cache, turn)
    }
}

impl SizesSuite {
    fn run_with(&self, drop_page_cache: &dyn Fn() -> bool, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, group, recorder } = turn;
        let (size, count) = sizes(scale)[group];
        let [reads, updates, reads_after] = row_names(size);
        // The load is no row: an engine without async commits has the reads all the same.
        let durability = engine.first_of(&[Durability::Async, Durability::NoSync]);
        let dir = recorder.dir().to_path_buf();
        let to_walk = OpenOptions {
            value_bytes: VALUE_BYTES as u64,
            write_buffer_bytes: Some(WRITE_BUFFER_BYTES),
            durability: durability.unwrap_or(Durability::Sync),
            ..OpenOptions::with_cache(CACHE_BYTES)
        };
        let at_random = OpenOptions { random_beyond_memory: group == BEYOND_MEMORY, ..to_walk };
        let to_load = OpenOptions { ascending_keys: true, ..at_random };
        let open = |options: &OpenOptions| engine.open(&dir, options);
        let budget = budget(scale);
        let period = budget.period();
        let row_of_reads = |recorder: &mut Recorder, mixed: &mut Mixed<'_, _>, name: &str, note: &str| {
            let warmed = mixed.warm_up(WARM_UP_SEED, &Distribution::Uniform, warm_up(budget));
            recorder.row(name, || {
                let reads = warmed.clone()?;
                let mut outcome = mixed.run(READS, &Distribution::Uniform, budget, period, &dir)?;
                let figures = &mut outcome.detail.get_or_insert_default().figures;
                figures.insert("warm-up reads".to_owned(), reads as f64);
                Ok(Outcome { note: note.to_owned(), ..outcome })
            })?;
            recorder.drain(mixed.store)
        };

        let store = open(&to_load)?;
        let items = VersionedItems { items: StorageItems::new(SEED, true), value_bytes: VALUE_BYTES };
        let mut mixed = Mixed::new(items, &*store, SEED);
        recorder.load("items", count, |how_far| mixed.load(count, LOAD_BATCH, how_far))?;
        recorder.drain(&*store)?;
        let parted = mixed.part();
        drop(store);

        let note = begins(drop_page_cache());
        let store = open(&at_random)?;
        recorder.settle(&*store)?;
        let mut mixed = parted.on(&*store);
        row_of_reads(recorder, &mut mixed, &reads, note)?;
        let cannot = engine.cannot(Durability::Async.feature());
        if cannot.is_none() {
            recorder.row(&updates, || mixed.run(UPDATES, &Distribution::Uniform, budget, period, &dir))?;
            recorder.drain(mixed.store)?;
        }
        let parted = mixed.part();
        drop(store);

        let store = open(&to_walk)?;
        let mut mixed = parted.on(&*store);
        recorder.check(|| mixed.full_check())?;
        let parted = mixed.part();
        drop(store);
        if let Some(why) = cannot {
            return [updates, reads_after].iter().try_for_each(|name| recorder.cannot(name, why));
        }

        let note = begins(drop_page_cache());
        let store = open(&at_random)?;
        recorder.settle(&*store)?;
        row_of_reads(recorder, &mut parted.on(&*store), &reads_after, note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::page_cache::NOT_EMPTY;
    use crate::suites::rehearse::Rehearsed;
    use esker_bench_api::generate::rng::Rng;
    use esker_bench_api::results::Record;

    fn records(engine: &Rehearsed, group: usize, is_cold: bool) -> [Record; 3] {
        let records = engine.records(&SizesSuite, group, |recorder| {
            let turn = Turn { engine, scale: Scale::Test, group, recorder };
            SizesSuite.run_with(&|| is_cold, turn)
        });
        records.try_into().unwrap()
    }

    /// The errors of the rows of the first group.
    fn errors(engine: &Rehearsed) -> [Option<String>; 3] {
        records(engine, 0, true).map(|record| record.error)
    }

    #[test]
    fn bench_sizes_1_both_rows_of_reads_begin_with_a_store_opened_anew_and_say_where_the_page_cache_was_not_empty()
     {
        for (is_cold, note) in [(true, ""), (false, NOT_EMPTY)] {
            let engine = Rehearsed::default();
            let rows = records(&engine, 0, is_cold);
            let updates = "updates, data in cache";
            assert_eq!(engine.opened_in(), ["", "", updates, updates]);
            assert_eq!(rows.each_ref().map(|row| row.note.as_str()), [note, "", note]);
            assert!(rows.iter().all(|row| row.value.is_some()), "{rows:?}");
        }
    }

    #[test]
    fn bench_sizes_2_the_check_is_not_of_a_store_for_reads_at_random() {
        for (group, at_random) in [(1, false), (BEYOND_MEMORY, true)] {
            let engine = Rehearsed::default();
            records(&engine, group, true);
            let opened_so = engine.opened_at_random.lock().unwrap().clone();
            assert_eq!(opened_so, [at_random, at_random, false, at_random]);
        }
    }

    #[test]
    fn only_the_load_is_in_the_order_of_keys() {
        let engine = Rehearsed::default();
        records(&engine, 0, true);
        assert_eq!(*engine.opened_ascending.lock().unwrap(), [true, false, false, false]);
    }

    /// The keys that were read after the row of that name began, and before the next.
    fn keys_read(engine: &Rehearsed, row: &str) -> Vec<Vec<u8>> {
        let gets = engine.gets.lock().unwrap();
        gets.iter().filter(|(begun, _)| begun == row).map(|(_, key)| key.clone()).collect()
    }

    #[test]
    fn bench_sizes_3_other_reads_come_before_both_rows_of_reads_and_are_no_part_of_them() {
        let engine = Rehearsed::default();
        let rows = records(&engine, 0, true);
        let [reads, updates, reads_after] = row_names("in cache");
        let (items, mut rng) = (StorageItems::new(SEED, true), Rng::new(SEED));
        let drawn = (0..TEST_OPS).map(|_| {
            rng.below(100); // the kind
            items.key(Distribution::Uniform.draw(&mut rng, sizes(Scale::Test)[0].1)).to_vec()
        });
        assert_eq!(keys_read(&engine, &reads), drawn.collect::<Vec<_>>(), "as without a warm-up");
        for (row, before) in [(reads, String::new()), (reads_after, updates)] {
            let (warm_up, timed) = (keys_read(&engine, &before), keys_read(&engine, &row));
            assert_eq!((warm_up.len() as u64, timed.len() as u64), (TEST_OPS / 4, TEST_OPS), "{row}");
            assert_ne!(warm_up, timed[..warm_up.len()], "{row}");
            let record = rows.iter().find(|record| record.row == row).unwrap();
            let figures = &record.detail.as_ref().unwrap().figures;
            assert_eq!((record.ops, figures["warm-up reads"]), (TEST_OPS, (TEST_OPS / 4) as f64));
        }
        for (scale, seconds) in [(Scale::Quick, 0.5), (Scale::Seed, 5.0), (Scale::Full, 10.0)] {
            assert_eq!(warm_up(budget(scale)).time.as_secs_f64(), seconds);
        }
    }

    #[test]
    fn bench_sizes_3_a_wrong_answer_in_the_warm_up_is_that_of_its_row() {
        // It loses the first item as it is loaded, which the timed reads alone may not meet.
        let engine = Rehearsed { kept_puts: Some(0), ..Rehearsed::default() };
        let [reads, ..] = errors(&engine);
        assert!(reads.unwrap().starts_with("wrong answer: the value that a get returned"));
        assert!(keys_read(&engine, "reads, data in cache").is_empty(), "no timed read");
    }

    #[test]
    fn a_lost_update_voids_the_updates_and_not_the_reads_before_them() {
        assert_eq!(errors(&Rehearsed::default()), [None, None, None]);
        let [reads, updates, _] = errors(&Rehearsed { kept_puts: Some(1), ..Rehearsed::default() });
        assert_eq!(reads, None);
        assert!(updates.unwrap().starts_with("wrong answer: checksum of a full scan"));
    }

    #[test]
    fn without_async_commits_there_are_reads() {
        let [reads, rest @ ..] = errors(&Rehearsed { lacks_async: true, ..Rehearsed::default() });
        assert_eq!(reads, None);
        assert!(rest.iter().all(|row| row.as_ref().unwrap() == "not supported: has no such mode"));
    }
}
