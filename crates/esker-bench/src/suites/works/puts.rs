//! Puts and removals in transactions of one size.
//!
//! Every item is written even if the row gets no value, so that later rows do the same work. An engine that
//! cannot put all items in one transaction gets several, and the row has no value.

use std::time::Instant;

use esker_bench_api::generate::order::Order;
use esker_bench_api::{Result, Store};

use super::state::State;
use super::{Done, OnProgress};
use crate::suites::plan::Work;
use crate::track::Track;

/// Items per transaction if one transaction cannot have all.
const STEP: u64 = 1000;
/// Seed offset of the draws of suite `badger`.
const DRAWS: u64 = 0xBAD6_E400;

/// Returns why work in transactions of `size` does not count, and the size to use instead.
fn split(size: u64, too_large: Option<&str>) -> (u64, Option<&str>) {
    if size > STEP && too_large.is_some() { (STEP, too_large) } else { (size, None) }
}

fn void(why: Option<&str>, seconds: f64) -> Option<String> {
    why.map(|why| format!("{why}; the same items in transactions of {STEP} took {seconds:.3} s"))
}

impl State {
    pub(super) fn put(
        &mut self,
        store: &dyn Store,
        work: &Work,
        too_large: Option<&str>,
        on_progress: OnProgress<'_>,
    ) -> Result<Done> {
        let Work::Put { count, size, below, period } = *work else { unreachable!("dispatched by kind") };
        let ((size, why), items) = (split(size, too_large), &self.items);
        let mut draws = esker_bench_api::generate::rng::Rng::new(items.source.seed ^ DRAWS);
        if below > 0 {
            self.content.clear_to(below);
        }
        let mut track = (!period.is_zero()).then(|| Track::new(&["write"], period, &self.dir)).transpose()?;
        let (first, mut put) = (self.content.to, 0);
        let (mut key, mut value, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
        let start = Instant::now();
        while put < count {
            let next = size.min(count - put);
            if below > 0 {
                drawn.clear();
                drawn.extend((0..next).map(|_| draws.below(below)));
            }
            let number = |j: u64| drawn.get(j as usize).copied().unwrap_or(first + put + j);
            let from = Instant::now();
            store.write(&mut |writer| {
                (0..next).try_for_each(|j| {
                    items.key(number(j), &mut key);
                    writer.put(&key, items.value(number(j), 0, &mut value))
                })
            })?;
            let to = Instant::now();
            if let Some(track) = &mut track {
                track.record(0, from, to, next);
            }
            drawn.iter().for_each(|i| self.content.set(*i, true));
            put += next;
            on_progress(put, to)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        self.content.to = if below > 0 { below } else { first + count };
        let written_bytes = count * items.source.item_bytes();
        Ok(Done {
            seconds,
            written_bytes: if first == 0 && below == 0 { self.live_bytes() } else { written_bytes },
            live_bytes: self.live_bytes(),
            detail: track.map(|track| track.finish("closed")),
            void: void(why, seconds),
            ..Done::default()
        })
    }

    pub(super) fn remove_half(&mut self, store: &dyn Store, too_large: Option<&str>) -> Result<Done> {
        let all = self.content.to;
        let (count, mut order, mut key) = (all / 2, Order::new(all, all / 3), Vec::new());
        let (size, why) = split(count, too_large);
        let mut removed = order.clone().take(count as usize);
        let start = Instant::now();
        for from in (0..count).step_by(size.max(1) as usize) {
            // After a conflict, the transaction runs again from its first item.
            let numbers = order.clone();
            store.write(&mut |writer| {
                numbers.clone().take(size.min(count - from) as usize).try_for_each(|i| {
                    self.items.key(i, &mut key);
                    writer.remove(&key)
                })
            })?;
            order = order.skip_to(size);
        }
        let seconds = start.elapsed().as_secs_f64();
        removed.by_ref().for_each(|i| self.content.set(i, false));
        Ok(Done { seconds, void: void(why, seconds), ..Done::default() })
    }
}
