//! Suite `shapes`: keys and values of other forms than those of the sources' benchmarks, as they were loaded and after a compaction.
//!
//! ```text
//! a database for each shape: load, in a write buffer that holds all -> gets, ranges, a walk over all      "in memtable"
//!                            -> compact, open anew                  -> gets, ranges, a walk over all      "in tables"  -> size
//! ```
//!
//! One thread; 4 GiB of cache, so all data is in memory. Every item is read once in a pass of gets, at random; ranges of 10 begin at every fourth of
//! these keys. A row is the median of three passes over one snapshot. The keys that are asked for lie in memory in the order in which they are
//! asked for, since making a URL takes longer than finding it.
//!
//! An engine without a write buffer has its tree in both halves. One without a compaction has the rows of tables as it is, and a note says so.
//!
//! bench_suites_shapes.1. Every value that is read is in a sum, which is held against the generator. At the end every byte is compared.

use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::order::Order;
use esker_bench_api::generate::shapes::Shape;
use esker_bench_api::{Durability, Failure, Feature, OpenOptions, Reader, Store};

use crate::how_far::HowFar;
use crate::recorder::{Outcome, Recorder};
use crate::row::Row;
use crate::scale::Scale;
use crate::suites::verify::{expect, full_scan};
use crate::suites::{Stream, Suite, Turn};

use std::time::Instant;

const SEED: u64 = 43;
const CACHE_BYTES: u64 = 4 << 30;
const LOAD_BATCH: u64 = 1000;
const RANGE_ITEMS: u64 = 10;
/// Every fourth key that is asked for begins a range.
const ITEMS_PER_RANGE: usize = 4;
const PASSES: usize = 3;
const PLACES: [&str; 2] = ["in memtable", "in tables"];
const READS: [&str; 3] = ["get", "range of 10", "scan"];

pub(crate) struct ShapesSuite;

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

fn item_bytes(shape: Shape) -> u64 {
    (shape.key_bytes() + shape.value_bytes()) as u64
}

/// The number of items of a shape: the scale's number, or fewer where they would be more bytes than the scale allows.
fn item_count(scale: Scale, shape: Shape) -> u64 {
    let (items, bytes) = match scale {
        Scale::Quick => (200_000, 64 << 20),
        Scale::Seed => (1_000_000, 512 << 20),
        Scale::Full => (4_000_000, 1 << 30),
        Scale::Test => return 120,
    };
    items.min(bytes / item_bytes(shape))
}

fn row_name(shape: Shape, read: &str, place: &str) -> String {
    format!("{}, {read}, {place}", name(shape))
}

fn size_row(shape: Shape) -> String {
    format!("{}, size", name(shape))
}

impl Suite for ShapesSuite {
    fn name(&self) -> &'static str {
        "shapes"
    }

    fn summary(&self) -> &'static str {
        "small and large keys and values, all in memory, one thread: gets, ranges of 10 and a walk over all, as loaded and after a compaction"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(2 * CACHE_BYTES)
    }

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new("items", format!("shapes::Shape, seed {SEED}")),
            Stream::new("reads", "order::Order over the items, from 0 on"),
        ]
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let mut rows = Vec::new();
        for (group, shape) in Shape::ALL.into_iter().enumerate() {
            let items = item_count(scale, shape);
            let of = format!("{items} items of {} + {} bytes", shape.key_bytes(), shape.value_bytes());
            let ranges = items.div_ceil(ITEMS_PER_RANGE as u64);
            for place in PLACES {
                for (read, ops) in READS.into_iter().zip([items, ranges, items]) {
                    let work = match read {
                        "get" => format!("each of {of}, at random"),
                        "scan" => format!("a walk over {of}"),
                        _ => format!("{ranges} ranges of 10 items, of {of}"),
                    };
                    let weight = 1 + items / 500_000;
                    rows.push(Row { group, ops, weight, ..Row::time(row_name(shape, read, place), work) });
                }
            }
            let work = format!("bytes that the files occupy: {of}, compacted");
            rows.push(Row { group, ..Row::size(size_row(shape), work) });
        }
        rows
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, group, recorder } = turn;
        let items = Items::new(Shape::ALL[group], item_count(scale, Shape::ALL[group]));
        // The load is no row.
        let durability = engine.first_of(&[Durability::NoSync, Durability::Async, Durability::Sync]);
        let options = OpenOptions {
            value_bytes: items.shape.value_bytes() as u64,
            key_bytes: items.longest_key_bytes(),
            write_buffer_bytes: Some((4 * items.bytes()).clamp(64 << 20, CACHE_BYTES / 2)),
            ascending_keys: items.shape == Shape::Sequential,
            durability: durability.unwrap_or(Durability::Sync),
            ..OpenOptions::with_cache(CACHE_BYTES)
        };
        let mut store = engine.open(recorder.dir(), &options)?;
        recorder.load("items", items.count, |how_far| items.load(&*store, how_far))?;
        recorder.drain(&*store)?;
        items.reads(&*store, PLACES[0], "", recorder)?;
        let note = match engine.cannot(Feature::Compaction) {
            Some(_) => "not compacted: it has no compaction",
            None => {
                store.compact()?;
                store.reopen()?;
                ""
            }
        };
        recorder.settle(&*store)?;
        items.reads(&*store, PLACES[1], note, recorder)?;
        recorder.drain(&*store)?;
        recorder.size_row(&size_row(items.shape), items.bytes())?;
        recorder.check(|| full_scan(&mut *store.reader()?, items.count, items.checksum()))
    }
}

/// The items of one shape, and what reads of them must find.
struct Items {
    shape: Shape,
    count: u64,
    /// All keys one behind the other, in the order in which they are asked for.
    asked: Vec<u8>,
    /// Where each key ends in `asked`.
    ends: Vec<usize>,
    /// For each of [`READS`], the sum of what it must find.
    expected: [u64; 3],
}

/// Adds an item to a sum. A wrong item changes the sum wherever it comes.
fn sum(acc: u64, key: &[u8], value: u64) -> u64 {
    acc.rotate_left(1) ^ probe(key) ^ value
}

impl Items {
    fn new(shape: Shape, count: u64) -> Self {
        let (mut asked, mut ends, mut key) = (Vec::new(), Vec::new(), Vec::new());
        let mut value = vec![0; shape.value_bytes()];
        let mut values = Vec::new();
        for i in Order::new(count, 0).take(count as usize) {
            shape.key(SEED, i, &mut key);
            asked.extend_from_slice(&key);
            ends.push(asked.len());
            shape.value(SEED, i, &mut value);
            values.push(probe(&value));
        }
        let mut items = Self { shape, count, asked, ends, expected: [0; 3] };
        items.expected = items.expected(&values);
        items
    }

    /// The `n`th key that is asked for, from 0.
    fn key(&self, n: usize) -> &[u8] {
        let from = n.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.asked[from..self.ends[n]]
    }

    /// [`Items::expected`] for these probes of the values, in the order in which their keys are asked for.
    fn expected(&self, values: &[u64]) -> [u64; 3] {
        let mut sorted: Vec<usize> = (0..values.len()).collect();
        sorted.sort_unstable_by_key(|n| self.key(*n));
        let mut rank_of = vec![0; sorted.len()];
        sorted.iter().enumerate().for_each(|(rank, n)| rank_of[*n] = rank);
        let add = |acc, n: &usize| sum(acc, self.key(*n), values[*n]);
        let gets = values.iter().fold(0, |acc: u64, value| acc.rotate_left(1) ^ value);
        let ranges = (0..values.len())
            .step_by(ITEMS_PER_RANGE)
            .fold(0, |acc, n| sorted[rank_of[n]..].iter().take(RANGE_ITEMS as usize).fold(acc, add));
        [gets, ranges, sorted.iter().fold(0, add)]
    }

    fn longest_key_bytes(&self) -> u64 {
        (0..self.ends.len()).map(|n| self.key(n).len()).max().unwrap_or(0) as u64
    }

    /// Bytes of all keys and values.
    fn bytes(&self) -> u64 {
        self.asked.len() as u64 + self.count * self.shape.value_bytes() as u64
    }

    /// Puts all items, item 0 first. So integers in order are put in key order.
    fn load(&self, store: &dyn Store, how_far: &mut HowFar) -> Result<(), Failure> {
        let (shape, mut key, mut value) = (self.shape, Vec::new(), vec![0; self.shape.value_bytes()]);
        for first in (0..self.count).step_by(LOAD_BATCH as usize) {
            let end = (first + LOAD_BATCH).min(self.count);
            store.write(&mut |writer| {
                (first..end).try_for_each(|i| {
                    shape.key(SEED, i, &mut key);
                    shape.value(SEED, i, &mut value);
                    writer.put(&key, &value)
                })
            })?;
            how_far.at(end, Instant::now())?;
        }
        Ok(())
    }

    fn reads(
        &self,
        store: &dyn Store,
        place: &str,
        note: &str,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        let mut reader = store.reader()?;
        for (kind, read) in READS.into_iter().enumerate() {
            recorder.row_of_passes(&row_name(self.shape, read, place), PASSES, || {
                let got = match kind {
                    0 => self.gets(&mut *reader)?,
                    1 => self.ranges(&mut *reader)?,
                    _ => self.scan(&mut *reader)?,
                };
                let found = expect(&format!("sum of what a {read} found"), got, self.expected[kind])?;
                Ok(Outcome { note: note.to_owned(), live_bytes: self.bytes(), ..found })
            })?;
        }
        Ok(())
    }

    fn gets(&self, reader: &mut dyn Reader) -> Result<u64, Failure> {
        (0..self.ends.len()).try_fold(0, |acc: u64, n| {
            let mut got = 0;
            reader.get(self.key(n), &mut |value| got = probe(value))?;
            Ok(acc.rotate_left(1) ^ got)
        })
    }

    fn ranges(&self, reader: &mut dyn Reader) -> Result<u64, Failure> {
        (0..self.ends.len()).step_by(ITEMS_PER_RANGE).try_fold(0, |mut acc, n| {
            reader.range(self.key(n), RANGE_ITEMS, &mut |key, value| acc = sum(acc, key, probe(value)))?;
            Ok(acc)
        })
    }

    fn scan(&self, reader: &mut dyn Reader) -> Result<u64, Failure> {
        let mut acc = 0;
        reader.range(&[], u64::MAX, &mut |key, value| acc = sum(acc, key, probe(value)))?;
        Ok(acc)
    }

    /// The sum of the checksums of all items, as a full scan must find it.
    fn checksum(&self) -> u64 {
        let (mut key, mut value, mut all) = (Vec::new(), vec![0; self.shape.value_bytes()], 0_u64);
        for i in 0..self.count {
            self.shape.key(SEED, i, &mut key);
            self.shape.value(SEED, i, &mut value);
            all = all.wrapping_add(checksum(&key, &value));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::rehearse::Rehearsed;

    #[test]
    fn bench_suites_shapes_1_a_lost_item_is_found_by_every_kind_of_read() {
        for (group, shape) in Shape::ALL.into_iter().enumerate() {
            let rows = Rehearsed::default().errors(&ShapesSuite, group);
            assert_eq!(rows, [const { None }; 7], "{shape:?}");
            let losing = Rehearsed { kept_puts: Some(0), ..Rehearsed::default() };
            let errors = losing.errors(&ShapesSuite, group);
            let is_found = |error: &Option<String>| {
                error.as_ref().is_some_and(|error| error.starts_with("wrong answer: sum of what a"))
            };
            assert!(errors[..6].iter().all(is_found), "{shape:?}: {errors:?}");
        }
    }

    #[test]
    fn a_row_has_as_much_data_as_its_scale() {
        assert_eq!(item_count(Scale::Seed, Shape::Integers), 1_000_000);
        let bytes = item_count(Scale::Seed, Shape::LargeValues) * item_bytes(Shape::LargeValues);
        assert!((500 << 20..=512 << 20).contains(&bytes), "{bytes}");
    }
}
