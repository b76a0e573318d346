//! Tests of suites at scale `test`, on an engine that records its calls and can lose puts.

mod rehearse;

use std::time::Duration;

use esker_bench_api::generate::checksum::probe;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::generate::storage::StorageItems;
use esker_bench_api::results::Record;
use esker_bench_api::{Engine, OpenOptions, Result, Store};

use super::*;
use crate::engines;
use crate::suites::items::{Items, Kind, Source};
use crate::suites::page_cache::{NOT_COLD, NOT_EMPTY};
use crate::suites::plan::{Budget, Draw, Mix, Step, Work};
use crate::suites::works::{Executor, Native, reads};
pub(super) use rehearse::{Rehearsed, Victim};

/// Returns the records of a group, on a machine where the page cache can or cannot be dropped.
fn records(engine: &Rehearsed, suite: &Suite, group: usize, is_cold: bool) -> Vec<Record> {
    engine.records(suite, group, |recorder| match (suite.parts)(Scale::Test).swap_remove(group) {
        Part::Steps(steps) => {
            let turn = Turn { engine, scale: Scale::Test, group, recorder };
            interpret::run_with(&steps, turn, &|| is_cold)
        }
        Part::Program(..) => panic!("a plan"),
    })
}

fn errors(engine: &Rehearsed, suite: &Suite, group: usize) -> Vec<Option<String>> {
    records(engine, suite, group, true).into_iter().map(|record| record.error).collect()
}

fn starts_with(error: Option<&String>, text: &str) -> bool {
    error.is_some_and(|error| error.starts_with(text))
}

#[test]
fn stores_are_opened_for_ascending_keys_where_keys_ascend() {
    let suites: [(&Suite, &[usize]); 3] =
        [(&storage_bench::SUITE, &[1]), (&obigstore::SUITE, &[2, 3, 4, 6]), (&churn::SUITE, &[0])];
    for (suite, ascending) in suites {
        for group in 0..suite.groups(Scale::Test) {
            let engine = Rehearsed::default();
            engine.run(suite, group);
            let opened = engine.opened_ascending.lock().unwrap().clone();
            let expected = vec![ascending.contains(&group); opened.len()];
            assert!(!opened.is_empty() && opened == expected, "{}, group {group}: {opened:?}", suite.name);
        }
    }
}

#[test]
fn every_suite_says_what_its_work_is_made_of() {
    for suite in SUITES {
        let streams = (suite.streams)();
        assert!(streams.iter().any(|stream| stream.generator.contains("seed ")), "{}", suite.name);
        for stream in &streams {
            let is_known = stream.generator.contains("::") || stream.generator.contains("seed");
            assert!(is_known && !stream.what.is_empty(), "{}: {stream:?}", suite.name);
        }
    }
}

/// Every suite finds a lost item when it reads it.
#[test]
fn a_lost_put_is_found_by_every_suite() {
    for (suite, group, earlier_puts) in [
        (&redb::SUITE, 0, 0),
        (&int::SUITE, 0, 0),
        (&large::SUITE, 0, 0),
        (&storage_bench::SUITE, 0, 0),
        (&obigstore::SUITE, 2, 0),
        (&obigstore::SUITE, 6, 0),
        (&ycsb::SUITE, 0, 0),
        (&churn::SUITE, 0, 0),
        // The oldest items are removed without a read.
        (&churn::SUITE, 1, 120),
        (&churn::SUITE, 2, 0),
        (&keyspaces::SUITE, 0, 0),
    ] {
        let name = suite.name;
        let sound = Rehearsed::default().errors(suite, group);
        assert!(sound.iter().all(Option::is_none), "{name}: {sound:?}");
        let victim = Victim::after(earlier_puts);
        let lost = Rehearsed { kept_puts: Some(0), victim, ..Rehearsed::default() }.errors(suite, group);
        let is_found = lost.iter().any(|error| starts_with(error.as_ref(), "wrong answer"));
        assert!(is_found, "{name}: {lost:?}");
    }
}

#[test]
fn a_load_that_cannot_be_one_transaction_is_whole_and_says_how_long_it_took() {
    /// redb, with advice against large transactions.
    struct Small;
    impl Engine for Small {
        fn name(&self) -> &'static str {
            "small"
        }
        fn version(&self) -> String {
            String::new()
        }
        fn options(&self) -> &'static [esker_bench_api::EngineOption] {
            &[]
        }
        fn isolation(&self) -> esker_bench_api::Isolation {
            esker_bench_api::Isolation::Serializable
        }
        fn async_commits(&self) -> Option<esker_bench_api::AsyncCommits> {
            None
        }
        fn cannot(&self, feature: Feature) -> Option<&'static str> {
            (feature == Feature::LargeTransactions).then_some("too large")
        }
        fn open(&self, dir: &std::path::Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
            engines::find("redb").unwrap().open(dir, options)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let source = Source::new(Kind::Items, 3, 150);
    let mut native = Native::new(&Small, source, None, dir.path().to_path_buf());
    native.open(&OpenOptions::with_cache(16 << 20)).unwrap();
    let put = Work::put(2500, 2500);
    let done = native.work(&put, &mut |_, _| Ok(())).unwrap();
    assert!(done.void.unwrap().starts_with("too large; the same items in transactions of 1000 took "));
    native.work(&Work::Check, &mut |_, _| Ok(())).unwrap();
    let done = native.work(&Work::Remove, &mut |_, _| Ok(())).unwrap();
    assert!(done.void.is_some());
    native.work(&Work::Check, &mut |_, _| Ok(())).unwrap();
}

#[test]
fn one_wrong_byte_or_one_item_more_or_less_among_thousands_is_found() {
    const KEYS: u64 = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let source = Source::new(Kind::Sequential, 29, 32);
    let items = Items::new(source);
    let put = |numbers: std::ops::Range<u64>, flipped: u8| {
        let engine = engines::find("redb").unwrap();
        let store = engine.open(dir.path(), &OpenOptions::with_cache(1 << 24)).unwrap();
        let work = &mut |writer: &mut dyn esker_bench_api::Writer| {
            let mut buffer = Vec::new();
            numbers.clone().try_for_each(|i| {
                let mut value = items.value(i, 0, &mut buffer).to_vec();
                value[16] ^= flipped;
                writer.put(&items.key_of(i), &value)
            })
        };
        store.write(work).unwrap();
    };
    let check = |keys| {
        let content = content::Content::loaded(keys);
        let engine = engines::find("redb").unwrap();
        let store = engine.open(dir.path(), &OpenOptions::with_cache(1 << 24)).unwrap();
        verify::full_scan(&mut *store.reader().unwrap(), keys, content.checksum(&items))
    };
    put(0..KEYS, 0);
    check(KEYS).unwrap();
    for keys in [KEYS - 1, KEYS + 1] {
        assert!(matches!(check(keys), Err(Failure::Wrong(_))), "{keys}");
    }
    put(1..2, 1);
    assert!(matches!(check(KEYS), Err(Failure::Wrong(_))));
}

#[test]
fn ranges_are_expected_in_the_order_of_keys() {
    let items = Items::new(Source::new(Kind::Sequential, 29, 32));
    let ranges = |limit| Work::Ranges { count: 1, every: 1, limit, keys_ahead: false };
    let mut buffer = Vec::new();
    // The first item of the order is item 0.
    let one = probe(&items.key_of(0)) ^ probe(items.value(0, 0, &mut buffer));
    assert_eq!(reads::expected(&ranges(1), &items, 9), Some(one));
    let two = one.rotate_left(7) ^ probe(&items.key_of(1)) ^ probe(items.value(1, 0, &mut buffer));
    assert_eq!(reads::expected(&ranges(2), &items, 9), Some(two));
}

mod sizes_and_badger {
    use super::*;

    const TEST_OPS: usize = 200;
    const ROWS: [&str; 3] =
        ["reads, data in cache", "updates, data in cache", "reads after updates, data in cache"];
    const COLD: &str = "iterate keys only, cold (128 B)";
    const POPULATE: &str = "populate (128 B)";

    #[test]
    fn both_rows_of_reads_begin_with_a_store_opened_again_and_say_where_the_page_cache_was_not_empty() {
        for (is_cold, note) in [(true, ""), (false, NOT_EMPTY)] {
            let engine = Rehearsed::default();
            let rows = records(&engine, &sizes::SUITE, 0, is_cold);
            assert_eq!(engine.opened_in(), ["", "", ROWS[1], ROWS[1]]);
            assert_eq!(rows.iter().map(|row| row.note.as_str()).collect::<Vec<_>>(), [note, "", note]);
            assert!(rows.iter().all(|row| row.value.is_some()), "{rows:?}");
        }
    }

    #[test]
    fn the_check_is_not_of_a_store_for_reads_at_random() {
        for (group, at_random) in [(1, false), (2, true)] {
            let engine = Rehearsed::default();
            records(&engine, &sizes::SUITE, group, true);
            let opened_so = engine.opened_at_random.lock().unwrap().clone();
            assert_eq!(opened_so, [at_random, at_random, false, at_random]);
            assert_eq!(*engine.opened_ascending.lock().unwrap(), [true, false, false, false]);
        }
    }

    /// Returns the keys that were read between the start of this row and that of the next.
    fn keys_read(engine: &Rehearsed, row: &str) -> Vec<Vec<u8>> {
        let gets = engine.gets.lock().unwrap();
        gets.iter().filter(|(begun, _)| begun == row).map(|(_, key)| key.clone()).collect()
    }

    #[test]
    fn other_reads_come_before_both_rows_of_reads_and_are_no_part_of_them() {
        let engine = Rehearsed::default();
        let rows = records(&engine, &sizes::SUITE, 0, true);
        let (items, mut rng) = (StorageItems::new(29, true), Rng::new(29));
        let drawn = (0..TEST_OPS).map(|_| {
            rng.below(100); // the kind
            items.key(rng.below(40)).to_vec()
        });
        assert_eq!(keys_read(&engine, ROWS[0]), drawn.collect::<Vec<_>>(), "as without a warm-up");
        for (number, before) in [(0, ""), (2, ROWS[1])] {
            let (warm_up, timed) = (keys_read(&engine, before), keys_read(&engine, ROWS[number]));
            assert_eq!((warm_up.len(), timed.len()), (TEST_OPS / 4, TEST_OPS));
            assert_ne!(warm_up, timed[..warm_up.len()]);
            let figures = &rows[number].detail.as_ref().unwrap().figures;
            assert_eq!((rows[number].counts.ops, figures["warm-up reads"]), (TEST_OPS as u64, 50.0));
        }
        for (scale, seconds) in [(Scale::Quick, 0.5), (Scale::Seed, 5.0), (Scale::Full, 10.0)] {
            assert_eq!(sizes::warm_up(Budget::of(scale, 200)).time.as_secs_f64(), seconds);
        }
    }

    #[test]
    fn a_wrong_answer_in_the_warm_up_is_that_of_its_row() {
        // It loses the first item at the load. The timed reads alone may miss that item.
        let engine = Rehearsed { kept_puts: Some(0), ..Rehearsed::default() };
        let errors = errors(&engine, &sizes::SUITE, 0);
        assert!(starts_with(errors[0].as_ref(), "wrong answer: the value that a get returned"));
        assert!(keys_read(&engine, ROWS[0]).is_empty(), "no timed read");
    }

    #[test]
    fn a_lost_update_voids_the_updates_and_not_the_reads_before_them() {
        assert_eq!(errors(&Rehearsed::default(), &sizes::SUITE, 0), [const { None }; 3]);
        let losing = Rehearsed { kept_puts: Some(1), ..Rehearsed::default() };
        let errors = errors(&losing, &sizes::SUITE, 0);
        assert_eq!(errors[0], None);
        assert!(starts_with(errors[1].as_ref(), "wrong answer: checksum of a full scan"), "{errors:?}");
    }

    #[test]
    fn without_async_commits_there_are_reads() {
        let engine = Rehearsed { lacks_async: true, ..Rehearsed::default() };
        let errors = errors(&engine, &sizes::SUITE, 0);
        assert_eq!(errors[0], None);
        assert!(errors[1..].iter().all(|row| row.as_ref().unwrap() == "not supported: has no such mode"));
    }

    #[test]
    fn each_part_of_badger_opens_again_and_opening_counts_to_the_cold_row_only() {
        // Returns whether each of the other rows takes less than an opening.
        let are_short = || {
            let engine = Rehearsed { opening: Duration::from_millis(500), ..Rehearsed::default() };
            let records = records(&engine, &badger::SUITE, 2, true);
            assert_eq!(engine.opened_in(), ["", POPULATE, COLD, COLD, "random read (128 B)"]);
            assert!(records.iter().skip(1).all(|record| record.note.is_empty()));
            // The time of the syncs of `populate` depends on the machine.
            let (cold, others): (Vec<_>, Vec<_>) =
                records.into_iter().skip(1).partition(|record| record.row == COLD);
            assert!(cold.len() == 1 && cold[0].value.unwrap() >= 0.5, "{:?}", cold[0].value);
            others.iter().all(|record| record.value.unwrap() < 0.5)
        };
        // On a busy machine one run may be slow, but not every run.
        assert!((0..10).any(|_| are_short()));
    }

    #[test]
    fn where_the_page_cache_cannot_be_dropped_the_rows_say_so() {
        let engine = Rehearsed::default();
        let records = records(&engine, &badger::SUITE, 2, false);
        assert_eq!(engine.opened_in(), ["", POPULATE, COLD, "random read (128 B)"]);
        assert_eq!((records[0].error.as_deref(), records[0].note.as_str()), (None, ""));
        assert!(records[1].error.as_ref().unwrap().contains(NOT_COLD));
        for record in &records[2..] {
            assert_eq!((record.error.as_deref(), record.note.as_str()), (None, NOT_EMPTY), "{}", record.row);
        }
    }

    #[test]
    fn a_lost_item_voids_what_wrote_it_and_the_walks_that_miss_it() {
        let losing = Rehearsed { kept_puts: Some(0), ..Rehearsed::default() };
        let errors = errors(&losing, &badger::SUITE, 2);
        let is = |row: usize, text| assert!(starts_with(errors[row].as_ref(), text), "{errors:?}");
        is(0, "wrong answer: number of items");
        [1, 3, 4].into_iter().for_each(|row| is(row, "wrong answer: sum of the "));
    }

    #[test]
    fn only_what_may_outgrow_the_memory_is_opened_for_reads_at_random_beyond_it() {
        let opens = |suite: &Suite, scale, group| match (suite.parts)(scale).swap_remove(group) {
            Part::Steps(group) => group
                .steps
                .iter()
                .any(|step| matches!(step, Step::Open(options, _) if options.random_beyond_memory)),
            Part::Program(..) => false,
        };
        assert!(opens(&badger::SUITE, Scale::Seed, 0) && !opens(&badger::SUITE, Scale::Quick, 0));
        for (group, expected) in [false, false, true, false, false].into_iter().enumerate() {
            assert_eq!(opens(&storage_bench::SUITE, Scale::Seed, group), expected, "{group}");
            assert!(!opens(&storage_bench::SUITE, Scale::Quick, group), "{group}");
        }
    }
}

#[test]
fn at_seed_a_mix_takes_its_time_and_elsewhere_has_a_count() {
    let work = |scale| ycsb::SUITE.rows(scale).into_iter().find(|row| row.name == "C (sync)").unwrap().work;
    assert_eq!(work(Scale::Seed), "10 s: reads, zipfian");
    assert_eq!(work(Scale::Quick), "500 operations: reads, zipfian");
}

#[test]
fn a_lost_item_is_found_by_every_kind_of_read() {
    for group in 0..shapes::SUITE.groups(Scale::Test) {
        let rows = Rehearsed::default().errors(&shapes::SUITE, group);
        assert_eq!(rows, [const { None }; 7], "{group}");
        let losing = Rehearsed { kept_puts: Some(0), ..Rehearsed::default() };
        let errors = losing.errors(&shapes::SUITE, group);
        let is_found = |error: &Option<String>| starts_with(error.as_ref(), "wrong answer: sum of");
        assert!(errors[..6].iter().all(is_found), "{group}: {errors:?}");
    }
}

mod transfers {
    use super::*;

    #[test]
    fn a_lost_write_is_found_by_the_sums() {
        assert_eq!(Rehearsed::default().errors(&transactions::SUITE, 1), [const { None }; 5]);
        // It keeps the first account as it was loaded, and loses all changes of it. Then the sum of all money
        // is wrong.
        let losing = Rehearsed { kept_puts: Some(1), ..Rehearsed::default() };
        let errors = losing.errors(&transactions::SUITE, 1);
        let text = "wrong answer: the sum of all accounts";
        assert!(errors.iter().any(|error| starts_with(error.as_ref(), text)), "{errors:?}");
    }

    #[test]
    fn each_row_says_what_kind_it_was() {
        let records = Rehearsed::default().run(&transactions::SUITE, 2);
        assert!(records.iter().all(|record| record.note == "one writer at a time"), "{records:?}");
        assert!(records.iter().all(|record| record.counts.ops == 96), "{records:?}");
    }
}

#[test]
fn an_expired_entry_that_is_found_and_a_lost_entry_fail_the_rows() {
    assert_eq!(Rehearsed::default().errors(&time::SUITE, 0), [const { None }; 3]);
    let keeping = Rehearsed { keeps_expired: true, ..Rehearsed::default() };
    let errors = keeping.errors(&time::SUITE, 0);
    let all = "wrong answer: number of items in a full scan: 60, not 6";
    assert!(starts_with(errors[0].as_ref(), all), "{errors:?}");
    assert!(starts_with(errors[1].as_ref(), "wrong answer: an expired entry was found"), "{errors:?}");
    let losing = Rehearsed { kept_puts: Some(0), ..Rehearsed::default() };
    let errors = losing.errors(&time::SUITE, 0);
    assert!(starts_with(errors[1].as_ref(), "wrong answer: an entry was gone too early"), "{errors:?}");
}

#[test]
fn work_is_written_as_json() {
    let budget = Budget { time: Duration::from_secs(2), ops: 7 };
    let mix = Work::Mix(Mix::new([50, 0, 50, 0, 0], Draw::Zipfian(0.99), budget, Duration::from_millis(250)));
    let text = serde_json::to_string(&mix).unwrap();
    for part in ["\"do\":\"mix\"", "\"ns\":2000000000", "\"ops\":7", "\"draw\":{\"zipfian\":0.99}"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
