//! Suite `keyspaces`: many keyspaces in one database with few items in each, as a service has one for each of its users.
//!
//! ```text
//! create all -> load, at random -> commits over several -> reads -> close, open -> every byte checked -> remove half -> every byte checked -> size
//! ```
//!
//! One thread, 8-byte keys, 128-byte values that compress to a half; 512 MiB of cache and 4 GiB of memory in all.
//!
//! An engine with one order has prefixes of 4 bytes in front of its keys instead, as its users make them: the notes of its rows and its options
//! say so. To make and to remove keyspaces is synced, the load and the commits are async; an engine without async commits has the reads all the same.
//!
//! bench_suites_keyspaces.1. Only calls of the engine are between two looks at the clock, and every answer is verified (bench_mixed.1, bench_mixed.2 of `mixed.rs`): opened again, and
//!      after half has been removed, each keyspace has its items in their newest versions and no other.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::keyspaces::KeyspaceItems;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::keyspaces;
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Engine, Failure, Feature, Keyspaces, OpenOptions};

use crate::recorder::Outcome;
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::budget::Budget;
use crate::suites::calls::Calls;
use crate::suites::verify::{check_scan, expect};
use crate::suites::{Stream, Suite, Turn};

/// Operations of a row at scale `test`.
const TEST_OPS: u64 = 200;
const SEED: u64 = 37;
const KEY_BYTES: usize = 8;
const VALUE_BYTES: usize = 128;
const ITEM_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;
const CACHE_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 30;
const LOAD_BATCH: u64 = 1000;
/// Keyspaces that a random commit writes to.
const COMMIT_KEYSPACES: usize = 5;

const CREATE: &str = "create";
const LOAD: &str = "load";
const COMMITS: &str = "random commits";
const READS: &str = "random read";
const OPEN: &str = "open";
const DROP: &str = "drop";
const SIZE: &str = "size";

const PREFIXES: &str = "keyspaces are prefixes of 4 bytes in one order";
const NOT_OPENED: &str = "not run: the database could not be opened again";

pub(crate) struct KeyspacesSuite;

fn keyspace_count(scale: Scale) -> u32 {
    match scale {
        Scale::Quick => 200,
        Scale::Seed => 1_000,
        Scale::Full => 10_000,
        Scale::Test => 5,
    }
}

/// In all keyspaces together.
fn item_count(scale: Scale) -> u64 {
    let in_each = match scale {
        Scale::Quick => 200,
        Scale::Seed | Scale::Full => 2_000,
        Scale::Test => 10,
    };
    in_each * u64::from(keyspace_count(scale))
}

/// Those that the row `drop` removes.
fn removed(scale: Scale) -> Range<u32> {
    0..keyspace_count(scale) / 2
}

fn budget(scale: Scale) -> Budget {
    Budget::of(scale, TEST_OPS)
}

fn options(durability: Durability) -> OpenOptions {
    OpenOptions { value_bytes: VALUE_BYTES as u64, durability, ..OpenOptions::with_cache(CACHE_BYTES) }
}

impl Suite for KeyspacesSuite {
    fn name(&self) -> &'static str {
        "keyspaces"
    }

    fn summary(&self) -> &'static str {
        "many keyspaces (prefixes of keys where an engine has one order): 8-byte keys, 128-byte values of which half repeats, one thread, async"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(MEMORY_BYTES_MAX)
    }

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new("items", format!("keyspaces::KeyspaceItems, seed {SEED}")),
            Stream::new("draws", format!("rng::Rng, seed {SEED}; uniform")),
        ]
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let (seconds, keyspaces, items) =
            (budget(scale).time.as_secs(), keyspace_count(scale), item_count(scale));
        let removed = removed(scale).len();
        vec![
            Row {
                commits: Commits::Sync(1),
                weight: 1 + u64::from(keyspaces) / 100,
                ..Row::time(CREATE, format!("a database with {keyspaces} keyspaces and one item, synced"))
            },
            Row {
                ops: items,
                commits: Commits::Async(0),
                weight: 1 + items / 50_000,
                ..Row::rate(
                    Unit::OpsPerSecond,
                    LOAD,
                    format!(
                        "{items} items, each in a random keyspace, transactions of 1,000, async; items a second"
                    ),
                )
            },
            Row {
                commits: Commits::Async(0),
                weight: seconds,
                ..Row::rate(
                    Unit::OpsPerSecond,
                    COMMITS,
                    format!("one overwrite in each of 5 random keyspaces a transaction, async; {seconds} s"),
                )
            },
            Row {
                weight: seconds,
                ..Row::rate(
                    Unit::OpsPerSecond,
                    READS,
                    format!("gets of random items in random keyspaces; {seconds} s"),
                )
            },
            Row::time(OPEN, format!("all of {keyspaces} keyspaces, closed before, and the first get")),
            Row {
                commits: Commits::Sync(1),
                weight: 1 + items / 100_000,
                ..Row::time(DROP, format!("{removed} keyspaces with their items, synced; time of one"))
            },
            Row::size(SIZE, "bytes that the files occupy after it, closed and opened"),
        ]
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, recorder, .. } = turn;
        let dir = recorder.dir().to_path_buf();
        let mut run = Run::new(engine, scale, dir);
        let (no_sync, no_async) = (engine.cannot(Feature::SyncCommits), engine.cannot(Feature::AsyncCommits));
        match no_sync {
            Some(why) => recorder.cannot(CREATE, why)?,
            None => {
                let mut created = None;
                if !recorder.groundwork(CREATE, || run.create(&mut created))? {
                    return Ok(());
                }
                if let Some(keyspaces) = created {
                    recorder.drain_by(|deadline| keyspaces.drain(deadline))?;
                }
            }
        }

        let durability = engine.first_of(&[Durability::Async, Durability::NoSync, Durability::Sync]);
        let options = options(durability.unwrap_or(Durability::Sync));
        let keyspaces = run.open(&options)?;
        match no_async {
            Some(why) => {
                recorder.cannot(LOAD, why)?;
                run.load(&*keyspaces)?;
                recorder.drain_by(|deadline| keyspaces.drain(deadline))?;
                recorder.cannot(COMMITS, why)?;
            }
            None => {
                if !recorder.groundwork(LOAD, || run.load(&*keyspaces))? {
                    return Ok(());
                }
                recorder.drain_by(|deadline| keyspaces.drain(deadline))?;
                recorder.row(COMMITS, || run.commits(&*keyspaces))?;
                recorder.drain_by(|deadline| keyspaces.drain(deadline))?;
            }
        }
        recorder.row(READS, || run.reads(&*keyspaces))?;
        drop(keyspaces);

        let mut reopened = None;
        recorder.row(OPEN, || run.open_and_get(&options, &mut reopened))?;
        let Some(mut keyspaces) = reopened else { return recorder.cannot_rest(NOT_OPENED) };
        recorder.check(|| run.check(&*keyspaces, &(0..0)))?;

        if let Some(why) = no_sync {
            return recorder.cannot_rest(why);
        }
        let removed = removed(scale);
        recorder.row(DROP, || run.remove(&mut *keyspaces, removed.clone()))?;
        recorder.drain_by(|deadline| keyspaces.drain(deadline))?;
        recorder.check(|| run.check(&*keyspaces, &removed))?;
        drop(keyspaces);
        let keyspaces = run.open(&options)?;
        recorder.drain_by(|deadline| keyspaces.drain(deadline))?;
        recorder.size_row(SIZE, run.staying(&removed) * ITEM_BYTES)
    }
}

/// An item as it is written.
struct Item {
    keyspace: u32,
    key: [u8; KEY_BYTES],
    value: [u8; VALUE_BYTES],
}

fn write(keyspaces: &dyn Keyspaces, items: &[Item]) -> Result<(), Failure> {
    keyspaces.write(&mut |writer| {
        items.iter().try_for_each(|item| writer.put(item.keyspace, &item.key, &item.value))
    })
}

/// Says of a row that it had prefixes.
fn noted(keyspaces: &dyn Keyspaces, outcome: Outcome) -> Outcome {
    let note = if keyspaces.are_prefixes() { PREFIXES } else { "" };
    Outcome { note: note.to_owned(), ..outcome }
}

struct Run<'a> {
    engine: &'a dyn Engine,
    scale: Scale,
    dir: PathBuf,
    items: KeyspaceItems,
    /// The newest version of each item.
    versions: Vec<u32>,
    rng: Rng,
}

impl<'a> Run<'a> {
    fn new(engine: &'a dyn Engine, scale: Scale, dir: PathBuf) -> Self {
        let items = KeyspaceItems::new(SEED, keyspace_count(scale));
        let versions = vec![0; item_count(scale) as usize];
        Self { engine, scale, dir, items, versions, rng: Rng::new(SEED) }
    }

    fn count(&self) -> u64 {
        self.versions.len() as u64
    }

    fn item(&self, i: u64, version: u64) -> Item {
        let mut value = [0; VALUE_BYTES];
        self.items.value(i, version, &mut value);
        Item { keyspace: self.items.keyspace(i), key: self.items.key(i), value }
    }

    fn newest(&self, i: u64) -> Item {
        self.item(i, u64::from(self.versions[i as usize]))
    }

    fn open(&self, options: &OpenOptions) -> Result<Box<dyn Keyspaces>, Failure> {
        keyspaces::open(self.engine, &self.dir, options, keyspace_count(self.scale))
    }

    /// Opens a database that is not there yet.
    fn create(&self, created: &mut Option<Box<dyn Keyspaces>>) -> Result<Outcome, Failure> {
        let (options, first) = (options(Durability::Sync), [self.item(0, 0)]);
        let start = Instant::now();
        let keyspaces = self.open(&options)?;
        // Where keyspaces are prefixes, nothing is synced but this.
        write(&*keyspaces, &first)?;
        let seconds = Some(start.elapsed().as_secs_f64());
        let bytes = Outcome { user_written_bytes: ITEM_BYTES, live_bytes: ITEM_BYTES, ..Outcome::default() };
        let outcome = noted(&*keyspaces, Outcome { seconds, ..bytes });
        *created = Some(keyspaces);
        Ok(outcome)
    }

    fn load(&self, keyspaces: &dyn Keyspaces) -> Result<Outcome, Failure> {
        let (count, mut commits) = (self.count(), 0);
        let mut calls = Calls::new(&["transaction"], Budget::of_ops(count), &self.dir)?;
        for first in (0..count).step_by(LOAD_BATCH as usize) {
            let next = (first + LOAD_BATCH).min(count);
            let items: Vec<Item> = (first..next).map(|i| self.item(i, 0)).collect();
            calls.call_for(0, next - first, || write(keyspaces, &items))?;
            commits += 1;
        }
        let bytes = count * ITEM_BYTES;
        Ok(noted(keyspaces, calls.finish(commits, bytes, bytes)))
    }

    /// Items in as many keyspaces.
    fn draw(&mut self) -> Vec<u64> {
        let mut drawn: Vec<u64> = Vec::new();
        while drawn.len() < COMMIT_KEYSPACES {
            let i = self.rng.below(self.count());
            let keyspace = self.items.keyspace(i);
            if drawn.iter().all(|other| self.items.keyspace(*other) != keyspace) {
                drawn.push(i);
            }
        }
        drawn
    }

    fn commits(&mut self, keyspaces: &dyn Keyspaces) -> Result<Outcome, Failure> {
        let mut calls = Calls::new(&["transaction"], budget(self.scale), &self.dir)?;
        let mut commits = 0;
        while calls.are_left() {
            let drawn = self.draw();
            for i in &drawn {
                self.versions[*i as usize] += 1;
            }
            let items: Vec<Item> = drawn.iter().map(|i| self.newest(*i)).collect();
            calls.call(0, || write(keyspaces, &items))?;
            commits += 1;
        }
        let written = commits * COMMIT_KEYSPACES as u64 * ITEM_BYTES;
        Ok(noted(keyspaces, calls.finish(commits, written, self.count() * ITEM_BYTES)))
    }

    fn reads(&mut self, keyspaces: &dyn Keyspaces) -> Result<Outcome, Failure> {
        let mut calls = Calls::new(&["read"], budget(self.scale), &self.dir)?;
        while calls.are_left() {
            let i = self.rng.below(self.count());
            let (keyspace, key, mut got) = (self.items.keyspace(i), self.items.key(i), 0);
            calls.call(0, || keyspaces.get(keyspace, &key, &mut |value| got = probe(value)))?;
            expect("the value that a get returned", got, probe(&self.newest(i).value))?;
        }
        Ok(noted(keyspaces, calls.finish(0, 0, self.count() * ITEM_BYTES)))
    }

    fn open_and_get(
        &self,
        options: &OpenOptions,
        reopened: &mut Option<Box<dyn Keyspaces>>,
    ) -> Result<Outcome, Failure> {
        let (expected, mut got) = (self.newest(self.count() / 2), 0);
        let start = Instant::now();
        let keyspaces = self.open(options)?;
        keyspaces.get(expected.keyspace, &expected.key, &mut |value| got = probe(value))?;
        let seconds = Some(start.elapsed().as_secs_f64());
        let live_bytes = self.count() * ITEM_BYTES;
        let outcome = noted(&*keyspaces, Outcome { seconds, live_bytes, ..Outcome::default() });
        *reopened = Some(keyspaces);
        expect("the value that the first get returned", got, probe(&expected.value))?;
        Ok(outcome)
    }

    /// Items that are not in any of the keyspaces `removed`.
    fn staying(&self, removed: &Range<u32>) -> u64 {
        (0..self.count()).filter(|i| !removed.contains(&self.items.keyspace(*i))).count() as u64
    }

    /// The value is the time of one keyspace.
    fn remove(&self, keyspaces: &mut dyn Keyspaces, removed: Range<u32>) -> Result<Outcome, Failure> {
        let (stay, count) = (self.staying(&removed), removed.len());
        let start = Instant::now();
        keyspaces.remove_keyspaces(removed)?;
        let value = Some(start.elapsed().as_secs_f64() / count as f64);
        Ok(noted(keyspaces, Outcome { value, live_bytes: stay * ITEM_BYTES, ..Outcome::default() }))
    }

    /// Compares every byte of each keyspace with what must be there: nothing in those that were removed.
    fn check(&self, keyspaces: &dyn Keyspaces, removed: &Range<u32>) -> Result<(), Failure> {
        let mut expected = vec![(0_u64, 0_u64); keyspace_count(self.scale) as usize];
        for item in (0..self.count()).map(|i| self.newest(i)) {
            if !removed.contains(&item.keyspace) {
                let (items, sum) = &mut expected[item.keyspace as usize];
                *items += 1;
                *sum = sum.wrapping_add(checksum(&item.key, &item.value));
            }
        }
        (0..).zip(expected).try_for_each(|(keyspace, (items, sum))| {
            check_scan(items, sum, |visit| keyspaces.range(keyspace, &[], items + 1, visit))
        })
    }
}
