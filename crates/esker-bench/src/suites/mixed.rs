//! A mix of operations on one thread, each drawn at random and each verified: what `storage-bench` and `ycsb` are made of.
//!
//! ```text
//! draw operation, draw item -> clock -> one call of the engine -> clock -> Track;  then the answer is held against the generator
//! ```
//!
//! bench_mixed.1. Only the engine's call is between the two looks at the clock; drawing, making values and verifying are not, and the rate of the
//!      row is that of the calls: operations over the time within them. What the clock on the wall says stands beside it.
//! bench_mixed.2. The newest version of every item is remembered, so that an old answer is as wrong as none.

use std::mem;
use std::path::Path;
use std::time::{Duration, Instant};

use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::distribution::Distribution;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Failure, Store};

use crate::how_far::HowFar;
use crate::recorder::Outcome;
use crate::suites::budget::Budget;
use crate::suites::verify::{expect, full_scan};
use crate::track::Track;

/// Kinds of operations, as they stand in results.
pub(crate) const KINDS: [&str; 5] = ["read", "scan", "update", "insert", "read-modify-write"];
const READ: usize = 0;
const SCAN: usize = 1;
const UPDATE: usize = 2;
/// The place of inserts in a mix.
pub(crate) const INSERT: usize = 3;
const READ_MODIFY_WRITE: usize = 4;

/// Items with versions.
pub(crate) trait Records {
    /// The key of item `i`.
    fn key(&self, i: u64) -> Vec<u8>;
    /// The item of a key, or `None` if no item has it.
    fn item(&self, key: &[u8]) -> Option<u64>;
    /// Fills `value`, of the right length, with a version of item `i`.
    fn value(&self, i: u64, version: u64, value: &mut [u8]);
    /// Length of a value.
    fn value_bytes(&self) -> usize;
}

/// Per cent of the operations of each of [`KINDS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) percent: [u32; 5],
    /// Items of a scan; the most where their number is drawn.
    pub(crate) scan_items: u64,
    /// Whether the number of items of each scan is drawn, uniform from 1 to `scan_items`.
    pub(crate) scan_is_uniform: bool,
}

/// The state of a mix on one store; rows that follow each other on one store share it.
pub(crate) struct Mixed<'a, R> {
    pub(crate) records: R,
    pub(crate) store: &'a dyn Store,
    /// bench_mixed.2.
    versions: Vec<u32>,
    rng: Rng,
    value: Vec<u8>,
}

/// The same between two openings of the store.
pub(crate) struct Parted<R> {
    records: R,
    versions: Vec<u32>,
    rng: Rng,
    value: Vec<u8>,
}

impl<R> Parted<R> {
    /// Goes on with the store, opened anew.
    pub(crate) fn on(self, store: &dyn Store) -> Mixed<'_, R> {
        let Self { records, versions, rng, value } = self;
        Mixed { records, store, versions, rng, value }
    }
}

impl<'a, R: Records> Mixed<'a, R> {
    pub(crate) fn new(records: R, store: &'a dyn Store, seed: u64) -> Self {
        let value = vec![0; records.value_bytes()];
        Self { records, store, versions: Vec::new(), rng: Rng::new(seed), value }
    }

    /// Leaves the store, so that it can be closed.
    pub(crate) fn part(self) -> Parted<R> {
        let Self { records, versions, rng, value, .. } = self;
        Parted { records, versions, rng, value }
    }

    fn item_bytes(&self) -> u64 {
        (self.records.key(0).len() + self.value.len()) as u64
    }

    /// Bytes of all live keys and values.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.versions.len() as u64 * self.item_bytes()
    }

    /// Adds items in transactions of `batch`, untimed by itself.
    pub(crate) fn load(&mut self, items: u64, batch: u64, how_far: &mut HowFar) -> Result<(), Failure> {
        let end = self.versions.len() as u64 + items;
        while (self.versions.len() as u64) < end {
            let first = self.versions.len() as u64;
            let next = (first + batch).min(end);
            let (records, value) = (&self.records, &mut self.value);
            self.store.write(&mut |writer| {
                (first..next).try_for_each(|i| {
                    records.value(i, 0, value);
                    writer.put(&records.key(i), value)
                })
            })?;
            self.versions.resize(next as usize, 0);
            how_far.at(next, Instant::now())?;
        }
        Ok(())
    }

    /// Takes over the first `items` items, which were loaded before.
    pub(crate) fn adopt(&mut self, items: u64) {
        self.versions.resize(items as usize, 0);
    }

    /// How many items there are.
    pub(crate) fn items(&self) -> u64 {
        self.versions.len() as u64
    }

    /// Adds items one transaction each, tracked.
    pub(crate) fn insert_all(
        &mut self,
        items: u64,
        period: Duration,
        dir: &Path,
        how_far: &mut HowFar,
    ) -> Result<Outcome, Failure> {
        let mix = Mix { percent: [0, 0, 0, 100, 0], scan_items: 0, scan_is_uniform: false };
        self.run_telling(mix, &Distribution::Uniform, Budget::of_ops(items), period, dir, Some(how_far))
    }

    /// Runs the mix; the outcome's operations are those of all kinds.
    pub(crate) fn run(
        &mut self,
        mix: Mix,
        distribution: &Distribution,
        budget: Budget,
        period: Duration,
        dir: &Path,
    ) -> Result<Outcome, Failure> {
        self.run_telling(mix, distribution, budget, period, dir, None)
    }

    /// Reads items at random, untimed, until the budget ends, and says how many. They are drawn from a sequence of their own, so that the rows
    /// draw what they draw without it.
    pub(crate) fn warm_up(
        &mut self,
        seed: u64,
        distribution: &Distribution,
        budget: Budget,
    ) -> Result<u64, Failure> {
        let rng_of_rows = mem::replace(&mut self.rng, Rng::new(seed));
        let (start, mut reads) = (Instant::now(), 0);
        let mut read = || {
            while reads < budget.ops && start.elapsed() < budget.time {
                self.read(distribution)?;
                reads += 1;
            }
            Ok(())
        };
        let read = read();
        self.rng = rng_of_rows;
        read.map(|()| reads)
    }

    fn run_telling(
        &mut self,
        mix: Mix,
        distribution: &Distribution,
        budget: Budget,
        period: Duration,
        dir: &Path,
        mut how_far: Option<&mut HowFar>,
    ) -> Result<Outcome, Failure> {
        let items = self.versions.len() as u64;
        let mut track = Track::new(&KINDS, period, dir)?;
        let (mut commits, mut scanned, mut busy) = (0, Vec::new(), Duration::ZERO);
        while track.ops() < budget.ops && track.elapsed() < budget.time {
            let kind = if self.versions.is_empty() { INSERT } else { self.draw_kind(mix) };
            let (from, to) = match kind {
                READ => self.read(distribution)?,
                SCAN => self.scan(mix, distribution, &mut scanned)?,
                _ => {
                    commits += 1;
                    self.write(kind, distribution)?
                }
            };
            busy += to - from;
            track.record(kind, from, to, 1);
            if let Some(how_far) = &mut how_far {
                how_far.at(track.ops(), to)?;
            }
        }
        let (ops, wall) = (track.ops(), track.elapsed());
        let mut detail = track.finish("closed");
        detail.figures.insert("wall ops/s".to_owned(), ops as f64 / wall.as_secs_f64());
        Ok(Outcome {
            seconds: Some(busy.as_secs_f64()),
            ops: Some(ops),
            commits: Some(commits),
            user_written_bytes: commits * self.item_bytes(),
            live_bytes: self.live_bytes(),
            detail: Some(detail),
            ..Outcome::default()
        }
        .on(items))
    }

    fn draw_kind(&mut self, mix: Mix) -> usize {
        let mut point = self.rng.below(100) as u32;
        for (kind, percent) in mix.percent.iter().enumerate() {
            if point < *percent {
                return kind;
            }
            point -= percent;
        }
        unreachable!("the parts of a mix sum up to 100")
    }

    fn draw_item(&mut self, distribution: &Distribution) -> u64 {
        distribution.draw(&mut self.rng, self.versions.len() as u64)
    }

    fn expected(&mut self, i: u64) -> u64 {
        self.records.value(i, u64::from(self.versions[i as usize]), &mut self.value);
        probe(&self.value)
    }

    fn read(&mut self, distribution: &Distribution) -> Result<(Instant, Instant), Failure> {
        let i = self.draw_item(distribution);
        let key = self.records.key(i);
        let mut got = 0;
        let from = Instant::now();
        self.store.get(&key, &mut |value| got = probe(value))?;
        let to = Instant::now();
        let expected = self.expected(i);
        expect("the value that a get returned", got, expected)?;
        Ok((from, to))
    }

    fn scan(
        &mut self,
        mix: Mix,
        distribution: &Distribution,
        scanned: &mut Vec<(Vec<u8>, u64)>,
    ) -> Result<(Instant, Instant), Failure> {
        let item = self.draw_item(distribution);
        let first = self.records.key(item);
        let limit = if mix.scan_is_uniform { 1 + self.rng.below(mix.scan_items) } else { mix.scan_items };
        let mut seen = 0;
        let from = Instant::now();
        self.store.range(&first, limit, &mut |key, value| {
            if seen == scanned.len() {
                scanned.push((Vec::new(), 0));
            }
            let slot = &mut scanned[seen];
            slot.0.clear();
            slot.0.extend_from_slice(key);
            slot.1 = probe(value);
            seen += 1;
        })?;
        let to = Instant::now();
        if seen == 0 || scanned[0].0 != first {
            return Err(Failure::Wrong(
                "a scan did not begin with the key that it was to begin with".to_owned(),
            ));
        }
        for n in 0..seen {
            if n > 0 && scanned[n - 1].0 >= scanned[n].0 {
                return Err(Failure::Wrong("a scan was not in key order".to_owned()));
            }
            let item = self.records.item(&scanned[n].0).filter(|i| *i < self.versions.len() as u64);
            let item = item.ok_or_else(|| Failure::Wrong("a scan showed a key never written".to_owned()))?;
            let expected = self.expected(item);
            expect("a value in a scan", scanned[n].1, expected)?;
        }
        Ok((from, to))
    }

    fn write(&mut self, kind: usize, distribution: &Distribution) -> Result<(Instant, Instant), Failure> {
        let i = if kind == INSERT { self.versions.len() as u64 } else { self.draw_item(distribution) };
        let key = self.records.key(i);
        let before = if kind == READ_MODIFY_WRITE { self.expected(i) } else { 0 };
        let version = if kind == INSERT { 0 } else { self.versions[i as usize] + 1 };
        self.records.value(i, u64::from(version), &mut self.value);
        let (mut got, value) = (0, &self.value);
        let from = Instant::now();
        if kind == READ_MODIFY_WRITE {
            self.store.get(&key, &mut |value| got = probe(value))?;
        }
        self.store.write(&mut |writer| writer.put(&key, value))?;
        let to = Instant::now();
        debug_assert!(matches!(kind, UPDATE | INSERT | READ_MODIFY_WRITE));
        expect("the value read before it was modified", got, before)?;
        if kind == INSERT {
            self.versions.push(0);
        } else {
            self.versions[i as usize] = version;
        }
        Ok((from, to))
    }

    /// Compares every byte of the store with what must be there.
    pub(crate) fn full_check(&mut self) -> Result<(), Failure> {
        let mut expected = 0_u64;
        for (i, version) in (0..).zip(&self.versions) {
            self.records.value(i, u64::from(*version), &mut self.value);
            expected = expected.wrapping_add(checksum(&self.records.key(i), &self.value));
        }
        full_scan(&mut *self.store.reader()?, self.versions.len() as u64, expected)
    }
}
