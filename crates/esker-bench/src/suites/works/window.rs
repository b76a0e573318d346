//! A moving window of live items: a queue, and items that are replaced by newer ones.
//!
//! Every answer is verified: a pop takes the head, and a removed item is gone.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_bench_api::generate::checksum::probe;
use esker_bench_api::{Failure, Result, Store};

use super::state::State;
use super::{Done, expect, of_calls};
use crate::suites::plan::Budget;
use crate::track::Track;

/// Times calls of an engine, each between two looks at the clock.
pub(crate) struct Calls {
    track: Track,
    busy: Duration,
    budget: Budget,
}

impl Calls {
    /// Starts the clock. `kinds` are the names of operations in results.
    pub(crate) fn new(kinds: &[&'static str], budget: Budget, dir: &Path) -> Result<Self> {
        Ok(Self { track: Track::new(kinds, budget.period(), dir)?, busy: Duration::ZERO, budget })
    }

    /// Returns whether the budget has anything left.
    pub(crate) fn are_left(&self) -> bool {
        self.track.ops() < self.budget.ops && self.track.elapsed() < self.budget.time
    }

    /// Runs one operation.
    pub(crate) fn call<T>(&mut self, kind: usize, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.call_for(kind, 1, call)
    }

    /// Runs one call that does `ops` operations.
    pub(crate) fn call_for<T>(
        &mut self,
        kind: usize,
        ops: u64,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let from = Instant::now();
        let answer = call()?;
        let to = Instant::now();
        self.busy += to - from;
        self.track.record(kind, from, to, ops);
        Ok(answer)
    }

    /// Ends the row: `commits` commits wrote `written_bytes` bytes of keys and values, of which `live_bytes`
    /// are live.
    pub(crate) fn finish(self, commits: u64, written_bytes: u64, live_bytes: u64) -> Done {
        let (ops, wall) = (self.track.ops(), self.track.elapsed());
        let done = of_calls(self.track.finish("closed"), ops, self.busy, wall);
        Done { commits, written_bytes, live_bytes, ..done }
    }
}

impl State {
    fn probe(&self, i: u64, buffer: &mut Vec<u8>) -> u64 {
        probe(self.items.value(i, 0, buffer))
    }

    /// Ends a window whose steps each pushed and removed one item.
    fn moved(&self, calls: Calls, from: u64, commits_per_step: u64) -> Done {
        let steps = self.content.from - from;
        let source = self.items.source;
        let written_bytes = steps * (source.item_bytes() + source.key_bytes() as u64);
        calls.finish(commits_per_step * steps, written_bytes, self.live_bytes())
    }

    pub(super) fn queue(&mut self, store: &dyn Store, budget: Budget) -> Result<Done> {
        const PUSH: usize = 0;
        const POP: usize = 1;
        let (mut calls, mut buffer) = (Calls::new(&["push", "pop"], budget, &self.dir)?, Vec::new());
        let first = self.content.from;
        while calls.are_left() {
            let key = self.items.key_of(self.content.to);
            let value = self.items.value(self.content.to, 0, &mut buffer);
            calls.call(PUSH, || store.write(&mut |writer| writer.put(&key, value)))?;
            self.content.to += 1;
            let (mut head, mut got) = (Vec::new(), 0);
            calls.call(POP, || {
                store.range(&[], 1, &mut |key, value| {
                    head = key.to_vec();
                    got = probe(value);
                })?;
                store.write(&mut |writer| writer.remove(&head))
            })?;
            if head != self.items.key_of(self.content.from) {
                return Err(Failure::Wrong("what was popped was not the head".to_owned()));
            }
            expect("the value that was popped", got, self.probe(self.content.from, &mut buffer))?;
            self.content.from += 1;
        }
        Ok(self.moved(calls, first, 2))
    }

    pub(super) fn replace(&mut self, store: &dyn Store, budget: Budget) -> Result<Done> {
        const REPLACE: usize = 0;
        const READ: usize = 1;
        const READ_EXPIRED: usize = 2;
        let kinds = ["replace", "read", "read of an expired item"];
        let (mut calls, mut buffer) = (Calls::new(&kinds, budget, &self.dir)?, Vec::new());
        let (first, live) = (self.content.from, self.content.len());
        while calls.are_left() {
            let (new, old) = (self.items.key_of(self.content.to), self.items.key_of(self.content.from));
            let value = self.items.value(self.content.to, 0, &mut buffer);
            calls.call(REPLACE, || {
                store.write(&mut |writer| {
                    writer.put(&new, value)?;
                    writer.remove(&old)
                })
            })?;
            self.content.from += 1;
            self.content.to += 1;
            let alive = self.content.from + self.rng.below(live);
            let (key, mut got) = (self.items.key_of(alive), 0);
            calls.call(READ, || store.get(&key, &mut |value| got = probe(value)))?;
            expect("the value of a live item", got, self.probe(alive, &mut buffer))?;
            let key = self.items.key_of(self.rng.below(self.content.from));
            let found = calls.call(READ_EXPIRED, || store.get(&key, &mut |_| ()))?;
            expect("an expired item that is there", u64::from(found), 0)?;
        }
        Ok(self.moved(calls, first, 1))
    }
}
