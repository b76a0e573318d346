//! Work on entries that expire.
//!
//! ```text
//! first put --hold--> first expiry --spread--> last expiry --> swept, closed, opened --> size
//!    | puts             | reads, at random, of all that was put
//! ```
//!
//! - Each entry is put with the rest of its time to live, so that the entries of all engines expire at the
//!   same times, counted from the first put. An entry that is put too late lives for one second.
//! - Every read is checked. An entry must be found until a second before its end, and never after its end. In
//!   between both are allowed, but a value that is found must be correct. At the end a scan must show exactly
//!   the entries that do not expire.

use std::thread;
use std::time::{Duration, Instant};

use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::entries::Entries;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Expiring, Failure, Result};

use super::state::State;
use super::window::Calls;
use super::{Done, OnProgress, expect};
use crate::suites::plan::{Budget, Work};
use crate::suites::verify::check_scan;

/// How early an engine may expire an entry: it may count whole seconds.
const EARLY_MAX: Duration = Duration::from_secs(1);
/// Shortest time to live of an entry.
const TTL_MIN: Duration = Duration::from_secs(1);
/// Largest difference between clocks.
const CLOCKS_APART_MAX: Duration = Duration::from_millis(50);

impl State {
    pub(super) fn on_expiring(
        &mut self,
        store: &dyn Expiring,
        work: &Work,
        on_progress: OnProgress<'_>,
    ) -> Result<Done> {
        match work {
            Work::PutExpiring { count, hold_ms, spread_ms } => {
                self.moments.hold_spread_ms = (*hold_ms, *spread_ms);
                self.put_expiring(store, *count, on_progress)
            }
            Work::WaitExpiring { ms, swept } => {
                let moment = self.moments.begin.map(|begin| begin + Duration::from_millis(*ms));
                let last_due = self.moments.last_due.filter(|_| *swept);
                let until = moment.max(last_due.map(|due| due + Duration::from_secs(2)));
                thread::sleep(
                    until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now())),
                );
                Ok(Done::default())
            }
            Work::ReadExpiring { budget } => self.read_expiring(store, *budget),
            Work::Check => self.check_expiring(store).map(|()| Done::default()),
            _ => Err(Failure::Engine(format!("not the work of entries that expire: {work:?}"))),
        }
    }

    fn entries(&self) -> Entries {
        let (hold_ms, spread_ms) = self.moments.hold_spread_ms;
        Entries::new(self.items.source.seed, hold_ms, spread_ms)
    }

    fn due(&self, i: u64) -> Option<Instant> {
        let expires = Duration::from_millis(self.entries().expires_ms(i)?);
        self.moments.begin.map(|begin| begin + expires)
    }

    pub(super) fn lasting_bytes(&self) -> u64 {
        Entries::lasting(self.content.to) * self.items.source.item_bytes()
    }

    fn put_expiring(
        &mut self,
        store: &dyn Expiring,
        count: u64,
        on_progress: OnProgress<'_>,
    ) -> Result<Done> {
        let mut calls = Calls::new(&["put"], Budget::of_ops(count), &self.dir)?;
        let (mut late, entries) = (0, self.entries());
        self.moments.begin = Some(Instant::now());
        for i in 0..count {
            let (key, value) = (entries.key(i), entries.value(i));
            let from = Instant::now();
            let left = self.due(i).map(|due| due.saturating_duration_since(from));
            late += u64::from(left.is_some_and(|left| left < TTL_MIN));
            calls.call(0, || store.put(&key, &value, left.map(|left| left.max(TTL_MIN))))?;
            let to = Instant::now();
            self.moments.longest_put = self.moments.longest_put.max(to - from);
            self.moments.last_due = Some(to + TTL_MIN);
            on_progress(i + 1, to)?;
        }
        self.content.to = count;
        let bytes = self.live_bytes();
        let mut done = calls.finish(count, bytes, bytes);
        done.figures.insert("entries put too late".to_owned(), late as f64);
        Ok(done)
    }

    /// Returns whether a read between these times must find entry `i`, or `None` if both answers are allowed.
    fn must_be_there(&self, i: u64, from: Instant, to: Instant) -> Option<bool> {
        let Some(due) = self.due(i) else { return Some(true) };
        if to + EARLY_MAX + CLOCKS_APART_MAX < due {
            return Some(true);
        }
        let last = Some(due).max(self.moments.last_due).unwrap_or(due);
        (from > last + self.moments.longest_put + CLOCKS_APART_MAX).then_some(false)
    }

    fn read_expiring(&self, store: &dyn Expiring, budget: Budget) -> Result<Done> {
        let mut calls = Calls::new(&["read"], budget, &self.dir)?;
        let (mut rng, mut reads, mut hits) = (Rng::new(self.items.source.seed), 0_u64, 0_u64);
        let entries = self.entries();
        while calls.are_left() {
            let i = rng.below(self.content.to);
            let (key, mut got) = (entries.key(i), 0);
            let from = Instant::now();
            let found = calls.call(0, || store.get(&key, &mut |value| got = probe(value)))?;
            match (self.must_be_there(i, from, Instant::now()), found) {
                (Some(true), false) => return Err(Failure::Wrong("an entry was gone too early".to_owned())),
                (Some(false), true) => return Err(Failure::Wrong("an expired entry was found".to_owned())),
                _ => {}
            }
            if found {
                expect("the value of an entry", got, probe(&entries.value(i)))?;
            }
            reads += 1;
            hits += u64::from(found);
        }
        let mut done = calls.finish(0, 0, self.lasting_bytes());
        done.figures.insert("hit rate".to_owned(), hits as f64 / reads.max(1) as f64);
        Ok(done)
    }

    /// Checks that exactly the entries that do not expire are there, byte for byte.
    fn check_expiring(&self, store: &dyn Expiring) -> Result<()> {
        let entries = self.entries();
        let lasting = (0..self.content.to).filter(|i| entries.expires_ms(*i).is_none());
        let expected =
            lasting.fold(0, |sum: u64, i| sum.wrapping_add(checksum(&entries.key(i), &entries.value(i))));
        check_scan(Entries::lasting(self.content.to), expected, |visit| store.scan(visit))
    }
}
