//! Work on many keyspaces.
//!
//! Every answer is verified. After reopening, and after half of the keyspaces were dropped, each keyspace has
//! its items in their newest versions and no others.

use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::keyspaces::KeyspaceItems;
use esker_bench_api::{Failure, Keyspaces, Result};

use super::state::State;
use super::window::Calls;
use super::{Done, expect, timed};
use crate::suites::plan::{Budget, Work};
use crate::suites::verify::check_scan;

const BATCH: u64 = 1000;
/// Number of keyspaces that a random commit writes to.
const COMMIT_KEYSPACES: usize = 5;
const PREFIXES: &str = "keyspaces are prefixes of 4 bytes in one order";

/// An item to write.
struct Item {
    keyspace: u32,
    key: Vec<u8>,
    value: Vec<u8>,
}

fn write(keyspaces: &dyn Keyspaces, items: &[Item]) -> Result<()> {
    keyspaces.write(&mut |writer| {
        items.iter().try_for_each(|item| writer.put(item.keyspace, &item.key, &item.value))
    })
}

impl State {
    pub(super) fn on_keyspaces(&mut self, keyspaces: &mut dyn Keyspaces, work: &Work) -> Result<Done> {
        let done = match work {
            Work::CreateKeyspaces => self.create(keyspaces)?,
            Work::LoadKeyspaces { count } => self.load(keyspaces, *count)?,
            Work::CommitToKeyspaces { budget } => self.commits(keyspaces, *budget)?,
            Work::ReadKeyspaces { budget } => self.reads(keyspaces, *budget)?,
            Work::OpenKeyspaces => self.first_get(keyspaces)?,
            Work::DropKeyspaces => self.drop_half(keyspaces)?,
            Work::Check => return self.check_keyspaces(keyspaces).map(|()| Done::default()),
            _ => return Err(Failure::Engine(format!("not the work of keyspaces: {work:?}"))),
        };
        let note = if keyspaces.are_prefixes() { PREFIXES } else { "" };
        Ok(Done { note: note.to_owned(), ..done })
    }

    fn keyspace(&self, i: u64) -> u32 {
        let source = self.items.source;
        KeyspaceItems::new(source.seed, source.number as u32).keyspace(i)
    }

    fn newest(&self, i: u64) -> Item {
        let mut value = Vec::new();
        self.items.value(i, self.content.version(i), &mut value);
        Item { keyspace: self.keyspace(i), key: self.items.key_of(i), value }
    }

    /// If keyspaces are prefixes, only this item is synced.
    fn create(&self, keyspaces: &dyn Keyspaces) -> Result<Done> {
        let (first, bytes) = ([self.newest(0)], self.items.source.item_bytes());
        let seconds = timed(|| write(keyspaces, &first))?;
        Ok(Done { seconds, written_bytes: bytes, live_bytes: bytes, ..Done::default() })
    }

    fn load(&mut self, keyspaces: &dyn Keyspaces, count: u64) -> Result<Done> {
        let mut calls = Calls::new(&["transaction"], Budget::of_ops(count), &self.dir)?;
        self.content.to = count;
        self.content.keep_versions();
        for first in (0..count).step_by(BATCH as usize) {
            let next = (first + BATCH).min(count);
            let items: Vec<Item> = (first..next).map(|i| self.newest(i)).collect();
            calls.call_for(0, next - first, || write(keyspaces, &items))?;
        }
        let bytes = self.live_bytes();
        Ok(calls.finish(count.div_ceil(BATCH), bytes, bytes))
    }

    /// Draws one item from each of this number of keyspaces.
    fn draw(&mut self) -> Vec<u64> {
        let mut drawn: Vec<u64> = Vec::new();
        while drawn.len() < COMMIT_KEYSPACES {
            let i = self.rng.below(self.content.to);
            let keyspace = self.keyspace(i);
            if drawn.iter().all(|other| self.keyspace(*other) != keyspace) {
                drawn.push(i);
            }
        }
        drawn
    }

    fn commits(&mut self, keyspaces: &dyn Keyspaces, budget: Budget) -> Result<Done> {
        let (mut calls, mut commits) = (Calls::new(&["transaction"], budget, &self.dir)?, 0);
        while calls.are_left() {
            let drawn = self.draw();
            drawn.iter().for_each(|i| self.content.versions[*i as usize] += 1);
            let items: Vec<Item> = drawn.iter().map(|i| self.newest(*i)).collect();
            calls.call(0, || write(keyspaces, &items))?;
            commits += 1;
        }
        let written_bytes = commits * COMMIT_KEYSPACES as u64 * self.items.source.item_bytes();
        Ok(calls.finish(commits, written_bytes, self.live_bytes()))
    }

    fn reads(&mut self, keyspaces: &dyn Keyspaces, budget: Budget) -> Result<Done> {
        let mut calls = Calls::new(&["read"], budget, &self.dir)?;
        while calls.are_left() {
            let i = self.rng.below(self.content.to);
            let (expected, mut got) = (self.newest(i), 0);
            calls.call(0, || {
                keyspaces.get(expected.keyspace, &expected.key, &mut |value| got = probe(value))
            })?;
            expect("the value that a get returned", got, probe(&expected.value))?;
        }
        Ok(calls.finish(0, 0, self.live_bytes()))
    }

    fn first_get(&self, keyspaces: &dyn Keyspaces) -> Result<Done> {
        let (expected, mut got) = (self.newest(self.content.to / 2), 0);
        let seconds = timed(|| {
            keyspaces.get(expected.keyspace, &expected.key, &mut |value| got = probe(value)).map(drop)
        })?;
        expect("the value that the first get returned", got, probe(&expected.value))?;
        Ok(Done { seconds, live_bytes: self.live_bytes(), ..Done::default() })
    }

    fn drop_half(&mut self, keyspaces: &mut dyn Keyspaces) -> Result<Done> {
        let dropped = self.items.source.number as u32 / 2;
        let seconds = timed(|| keyspaces.remove_keyspaces(0..dropped))?;
        self.dropped = dropped;
        (0..self.content.to)
            .filter(|i| self.keyspace(*i) < dropped)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|i| self.content.set(i, false));
        let done = Done { live_bytes: self.live_bytes(), ops: u64::from(dropped), ..Done::default() };
        Ok(Done { seconds, ..done })
    }

    fn check_keyspaces(&self, keyspaces: &dyn Keyspaces) -> Result<()> {
        let mut expected = vec![(0_u64, 0_u64); self.items.source.number as usize];
        for item in self.content.numbers().map(|i| self.newest(i)) {
            let (items, sum) = &mut expected[item.keyspace as usize];
            *items += 1;
            *sum = sum.wrapping_add(checksum(&item.key, &item.value));
        }
        (0..).zip(expected).try_for_each(|(keyspace, (items, sum))| {
            check_scan(items, sum, |visit| keyspaces.range(keyspace, &[], items + 1, visit))
        })
    }
}
