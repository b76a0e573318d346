//! A mix of operations on one thread. Each is drawn at random and verified.
//!
//! ```text
//! draw operation, draw item -> clock -> one call of the engine -> clock -> Track -> compare the answer
//! ```
//!
//! - The rate of the row is operations over the time within calls.
//! - The lab remembers the newest version of every item, so that an old value counts as wrong.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_bench_api::generate::checksum::probe;
use esker_bench_api::generate::distribution::{Distribution, Zipf};
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Failure, Result, Store};

use super::state::State;
use super::{Done, OnProgress, expect, of_calls};
use crate::suites::content::Content;
use crate::suites::items::Items;
use crate::suites::plan::{Draw, Mix};
use crate::track::Track;

/// Kinds of operations, with their names in results.
pub(crate) const KINDS: [&str; 5] = ["read", "scan", "update", "insert", "read-modify-write"];
const READ: usize = 0;
const SCAN: usize = 1;
/// Position of inserts in a mix.
pub(crate) const INSERT: usize = 3;
const READ_MODIFY_WRITE: usize = 4;

/// A mix in execution.
struct Mixer<'a> {
    items: &'a Items,
    content: &'a mut Content,
    store: &'a dyn Store,
    rng: &'a mut Rng,
    mix: &'a Mix,
    distribution: Distribution,
    key: Vec<u8>,
    value: Vec<u8>,
    scanned: Vec<(Vec<u8>, u64)>,
    hits: u64,
}

impl State {
    pub(super) fn mix(&mut self, store: &dyn Store, mix: &Mix, on_progress: OnProgress<'_>) -> Result<Done> {
        let on = On { items: &self.items, store, dir: &self.dir };
        run(on, &mut self.content, &mut self.rng, mix, on_progress)
    }
}

/// What a mix runs on.
pub(crate) struct On<'a> {
    pub(crate) items: &'a Items,
    pub(crate) store: &'a dyn Store,
    pub(crate) dir: &'a Path,
}

/// Runs a mix on existing items.
pub(crate) fn run(
    on: On<'_>,
    content: &mut Content,
    rng: &mut Rng,
    mix: &Mix,
    on_progress: OnProgress<'_>,
) -> Result<Done> {
    let On { items, store, dir } = on;
    content.keep_versions();
    let (began_on, mut own_rng) = (content.to, mix.reads_seed.map(Rng::new));
    let distribution = match mix.draw {
        Draw::Uniform => Distribution::Uniform,
        Draw::Latest(s) => Distribution::Latest(Zipf::new(s)),
        Draw::Zipfian(s) => {
            let inserts_max = if mix.percent[INSERT] > 0 { began_on / 4 } else { 0 };
            Distribution::Zipfian { ranks: Zipf::new(s), numbers_max: began_on + inserts_max }
        }
    };
    let mut mixer = Mixer {
        items,
        content,
        store,
        rng: own_rng.as_mut().unwrap_or(rng),
        mix,
        distribution,
        key: Vec::new(),
        value: Vec::new(),
        scanned: Vec::new(),
        hits: 0,
    };
    if mix.is_warm_up {
        return mixer.warm_up();
    }
    let track = Track::new(&KINDS, mix.period, dir)?;
    let mut done = mixer.run(track, on_progress)?;
    if mix.reads_seed.is_some() {
        let rate = mixer.hits as f64 / done.ops.max(1) as f64;
        done.figures.insert("hit rate".to_owned(), rate);
    }
    done.began_on = Some(began_on);
    done.live_bytes = content.len() * items.source.item_bytes();
    Ok(done)
}

impl Mixer<'_> {
    /// Runs reads that are not tracked.
    fn warm_up(&mut self) -> Result<Done> {
        let (start, mut reads, budget) = (Instant::now(), 0, self.mix.budget);
        while reads < budget.ops && start.elapsed() < budget.time {
            self.read()?;
            reads += 1;
        }
        Ok(Done { ops: reads, ..Done::default() })
    }

    fn run(&mut self, mut track: Track, on_progress: OnProgress<'_>) -> Result<Done> {
        let (mut commits, mut busy, budget) = (0, Duration::ZERO, self.mix.budget);
        let item_bytes = self.items.source.item_bytes();
        while track.ops() < budget.ops && track.elapsed() < budget.time {
            let kind = self.draw_kind();
            let (from, to) = match kind {
                READ => self.read()?,
                SCAN => self.scan()?,
                _ => {
                    commits += 1;
                    self.write(kind)?
                }
            };
            busy += to - from;
            track.record(kind, from, to, 1);
            on_progress(track.ops(), to)?;
        }
        let (ops, wall) = (track.ops(), track.elapsed());
        let done = of_calls(track.finish("closed"), ops, busy, wall);
        Ok(Done { commits, written_bytes: commits * item_bytes, ..done })
    }

    fn draw_kind(&mut self) -> usize {
        if self.mix.reads_seed.is_some() {
            return READ;
        }
        if self.content.to == 0 {
            return INSERT;
        }
        let mut point = self.rng.below(100) as u32;
        for (kind, percent) in self.mix.percent.iter().enumerate() {
            if point < *percent {
                return kind;
            }
            point -= percent;
        }
        unreachable!("the parts of a mix sum up to 100")
    }

    fn draw_item(&mut self) -> u64 {
        self.distribution.draw(self.rng, self.content.to)
    }

    fn expected(&mut self, i: u64) -> u64 {
        probe(self.items.value(i, self.content.versions[i as usize].into(), &mut self.value))
    }

    fn read(&mut self) -> Result<(Instant, Instant)> {
        let i = self.draw_item();
        self.items.key(i, &mut self.key);
        let mut got = 0;
        let from = Instant::now();
        let found = self.store.get(&self.key, &mut |value| got = probe(value))?;
        let to = Instant::now();
        self.hits += u64::from(found);
        let expected = if self.content.has(i) { self.expected(i) } else { 0 };
        expect("the value that a get returned", got, expected)?;
        Ok((from, to))
    }

    fn scan(&mut self) -> Result<(Instant, Instant)> {
        let item = self.draw_item();
        self.items.key(item, &mut self.key);
        let Mix { scan_items, scan_is_uniform, .. } = *self.mix;
        let limit = if scan_is_uniform { 1 + self.rng.below(scan_items) } else { scan_items };
        let (mut seen, scanned) = (0, &mut self.scanned);
        let from = Instant::now();
        self.store.range(&self.key, limit, &mut |key, value| {
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
        self.check_scan(seen)?;
        Ok((from, to))
    }

    fn check_scan(&mut self, seen: usize) -> Result<()> {
        let wrong = |text: &str| Err(Failure::Wrong(text.to_owned()));
        if seen == 0 || self.scanned[0].0 != self.key {
            return wrong("a scan did not begin with the key that it was to begin with");
        }
        for n in 0..seen {
            if n > 0 && self.scanned[n - 1].0 >= self.scanned[n].0 {
                return wrong("a scan was not in key order");
            }
            let item = self.items.item(&self.scanned[n].0).filter(|i| *i < self.content.to);
            let Some(item) = item else { return wrong("a scan showed a key never written") };
            let expected = self.expected(item);
            expect("a value in a scan", self.scanned[n].1, expected)?;
        }
        Ok(())
    }

    fn write(&mut self, kind: usize) -> Result<(Instant, Instant)> {
        let i = if kind == INSERT { self.content.to } else { self.draw_item() };
        self.items.key(i, &mut self.key);
        let before = if kind == READ_MODIFY_WRITE { self.expected(i) } else { 0 };
        let version = if kind == INSERT { 0 } else { self.content.versions[i as usize] + 1 };
        let value = self.items.value(i, version.into(), &mut self.value);
        let (mut got, key) = (0, &self.key);
        let from = Instant::now();
        if kind == READ_MODIFY_WRITE {
            self.store.get(key, &mut |value| got = probe(value))?;
        }
        self.store.write(&mut |writer| writer.put(key, value))?;
        let to = Instant::now();
        expect("the value read before it was modified", got, before)?;
        if kind == INSERT {
            self.content.to += 1;
            self.content.versions.push(0);
        } else {
            self.content.versions[i as usize] = version;
        }
        Ok((from, to))
    }
}
