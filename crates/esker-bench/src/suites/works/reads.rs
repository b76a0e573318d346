//! Reads of one snapshot, timed as a whole, and their expected answers.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use esker_bench_api::generate::checksum::probe;
use esker_bench_api::generate::order::Order;
use esker_bench_api::{Failure, Reader, Result, Store};

use super::state::State;
use super::{Done, expect, timed};
use crate::suites::items::Items;
use crate::suites::plan::Work;

/// The keys of numbers in order, made one at a time or all in advance: making a URL takes longer than finding
/// it.
enum Keys<'a> {
    Made(&'a Items, Vec<u8>),
    Ahead { keys: Vec<u8>, ends: Vec<usize>, next: usize },
}

impl<'a> Keys<'a> {
    fn new(items: &'a Items, ahead: Option<impl Iterator<Item = u64>>) -> Self {
        let Some(numbers) = ahead else { return Self::Made(items, Vec::new()) };
        let (mut keys, mut ends, mut key) = (Vec::new(), Vec::new(), Vec::new());
        for i in numbers {
            items.key(i, &mut key);
            keys.extend_from_slice(&key);
            ends.push(keys.len());
        }
        Self::Ahead { keys, ends, next: 0 }
    }

    fn next(&mut self, i: u64) -> &[u8] {
        match self {
            Self::Made(items, key) => {
                items.key(i, key);
                key
            }
            Self::Ahead { keys, ends, next } => {
                let from = next.checked_sub(1).map_or(0, |before| ends[before]);
                *next += 1;
                &keys[from..ends[*next - 1]]
            }
        }
    }
}

/// Adds an item of a range to its checksum. The order, the key and the value all count.
fn add(acc: u64, key: &[u8], value_probe: u64) -> u64 {
    acc.rotate_left(7) ^ probe(key) ^ value_probe
}

/// Returns what an item of a walk adds to the sum.
fn walked(key: &[u8], value: &[u8]) -> u64 {
    probe(key).rotate_left(1) ^ probe(value)
}

/// Returns the expected sum of [`Work::Gets`] or [`Work::Ranges`] among the first `all` items, or `None` for
/// other work.
pub(crate) fn expected(work: &Work, items: &Items, all: u64) -> Option<u64> {
    let mut buffer = Vec::new();
    let mut probe_of = |i| probe(items.value(i, 0, &mut buffer));
    match work {
        Work::Gets { count, .. } => Some(
            Order::new(all, 0).take(*count as usize).fold(0, |sum: u64, i| sum.wrapping_add(probe_of(i))),
        ),
        Work::Ranges { count, every, limit, .. } => {
            let probes: Vec<u64> = (0..all).map(probe_of).collect();
            let mut sorted: Vec<(Vec<u8>, u64)> = (0..all).map(|i| (items.key_of(i), i)).collect();
            sorted.sort_unstable();
            let mut rank_of = vec![0; sorted.len()];
            sorted.iter().enumerate().for_each(|(rank, (_, i))| rank_of[*i as usize] = rank);
            let firsts = Order::new(all, 0).step_by(*every as usize).take(*count as usize);
            Some(firsts.fold(0, |sum: u64, i| {
                let ranged = sorted[rank_of[i as usize]..].iter().take(*limit as usize);
                sum.wrapping_add(ranged.fold(0, |acc, (key, i)| add(acc, key, probes[*i as usize])))
            }))
        }
        _ => None,
    }
}

impl State {
    pub(super) fn len(&self, store: &dyn Store) -> Result<Done> {
        let (mut reader, mut len) = (store.reader()?, 0);
        let seconds = timed(|| {
            len = reader.len()?;
            Ok(())
        })?;
        expect("number of items", len, self.content.len())?;
        Ok(Done { seconds, ..Done::default() })
    }

    pub(super) fn gets(&self, store: &dyn Store, count: u64, threads: u64, keys_ahead: bool) -> Result<Done> {
        let (order, live_bytes) = (Order::new(self.content.to, 0), self.live_bytes());
        if threads > 1 {
            return self.gets_on_threads(store, &order, threads);
        }
        let mut keys = Keys::new(&self.items, keys_ahead.then(|| order.clone().take(count as usize)));
        let (mut reader, mut sum) = (store.reader()?, 0);
        let seconds = timed(|| {
            sum = sum_of_gets(&mut *reader, &mut keys, order, count)?;
            Ok(())
        })?;
        Ok(Done { seconds, sum, live_bytes, ..Done::default() })
    }

    /// Reads all items, divided over threads. The time is from the first read of any thread to the last read
    /// of any thread. The main thread cannot measure it, because with more threads than cores it may wake
    /// late.
    fn gets_on_threads(&self, store: &dyn Store, order: &Order, threads: u64) -> Result<Done> {
        let (all, barrier) = (self.content.to, Barrier::new(threads as usize));
        let read = |thread: u64| {
            let (from, to) = (all * thread / threads, all * (thread + 1) / threads);
            let (order, mut keys) = (order.skip_to(from), Keys::Made(&self.items, Vec::new()));
            barrier.wait();
            let start = Instant::now();
            let sum = sum_of_gets(&mut *store.reader()?, &mut keys, order, to - from)?;
            Ok((start, Instant::now(), sum))
        };
        let read = &read;
        let done = thread::scope(|scope| {
            let readers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || read(thread))).collect();
            let panicked = |_| Failure::engine("a reader thread panicked");
            let joined = readers.into_iter().map(|reader| reader.join().map_err(panicked)?);
            joined.collect::<Result<Vec<_>>>()
        })?;
        let first = done.iter().map(|(start, ..)| *start).min();
        let last = done.iter().map(|(_, end, _)| *end).max();
        let seconds = first.zip(last).map_or(0.0, |(first, last)| last.duration_since(first).as_secs_f64());
        let sum = done.iter().fold(0, |sum: u64, (.., of_one)| sum.wrapping_add(*of_one));
        Ok(Done { seconds, sum, ..Done::default() })
    }

    pub(super) fn ranges(&self, store: &dyn Store, work: &Work) -> Result<Done> {
        let Work::Ranges { count, every, limit, keys_ahead } = *work else {
            unreachable!("dispatched by kind")
        };
        let firsts = || Order::new(self.content.to, 0).step_by(every as usize).take(count as usize);
        let mut keys = Keys::new(&self.items, keys_ahead.then(firsts));
        let (mut reader, mut sum) = (store.reader()?, 0_u64);
        let seconds = timed(|| {
            for i in firsts() {
                let mut acc = 0;
                reader.range(keys.next(i), limit, &mut |key, value| acc = add(acc, key, probe(value)))?;
                sum = sum.wrapping_add(acc);
            }
            Ok(())
        })?;
        Ok(Done { seconds, sum, live_bytes: self.live_bytes(), ..Done::default() })
    }

    pub(super) fn scan(&mut self, store: &dyn Store, limit: u64, keys_only: bool) -> Result<Done> {
        let expected = self.expected_of_scan(limit, keys_only);
        let (mut sum, mut count) = (0_u64, 0);
        let seconds = timed(|| {
            count = if keys_only {
                store.reader()?.keys(&[], limit, &mut |key| sum = sum.wrapping_add(probe(key)))?
            } else {
                store.range(&[], limit, &mut |key, value| sum = sum.wrapping_add(walked(key, value)))?
            };
            Ok(())
        })?;
        let what = if keys_only { "sum of the keys" } else { "sum of the items" };
        expect(what, sum, expected)?;
        Ok(Done { seconds, ops: count, live_bytes: self.live_bytes(), ..Done::default() })
    }

    /// Returns the sum that a scan must find. Computed once for all passes of a row: making the items again
    /// empties the processor's caches.
    fn expected_of_scan(&mut self, limit: u64, keys_only: bool) -> u64 {
        if let Some((of_limit, of_keys, sum)) = self.scan_sum
            && (of_limit, of_keys) == (limit, keys_only)
        {
            return sum;
        }
        let of_key = |key: &[u8], _: &[u8]| probe(key);
        let of_item: &dyn Fn(&[u8], &[u8]) -> u64 = if keys_only { &of_key } else { &walked };
        let sum = self.content.sum(&self.items, limit, of_item);
        self.scan_sum = Some((limit, keys_only, sum));
        sum
    }
}

/// Returns the sum of the values of the first `count` items of `order`. A missing key shows as a wrong sum.
fn sum_of_gets(reader: &mut dyn Reader, keys: &mut Keys<'_>, order: Order, count: u64) -> Result<u64> {
    let mut sum = 0_u64;
    for i in order.take(count as usize) {
        reader.get(keys.next(i), &mut |value| sum = sum.wrapping_add(probe(value)))?;
    }
    Ok(sum)
}
