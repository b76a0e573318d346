//! The rows of entries that expire.
//!
//! ```text
//! first put --hold--> first expiry --spread--> last expiry --> swept, closed, opened --> size
//!    | puts             | reads, at random, of all that was put
//! ```
//!
//! bench_suites_time.1. Each entry is put with what is left of its time then, so entries of all engines expire at the same moments, counted from the
//!     first put. One that is put too late lives for a second.
//! bench_suites_time.2. Every read is judged: an entry is there until a second before its moment (bench_expiring.1), and it is not there afterwards. While
//!     neither is sure, a value that is found has to be the right one. At the end a scan shows the entries that do not expire, and no other.

use std::thread;
use std::time::{Duration, Instant};

use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::entries::Entries;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Engine, Expiring, Failure};

use super::{Expiry, ITEM_BYTES, PUTS, READS, SEED, SIZE, options};
use crate::how_far::HowFar;
use crate::recorder::{Outcome, Recorder};
use crate::suites::budget::Budget;
use crate::suites::calls::Calls;
use crate::suites::verify::{check_scan, expect};

/// What the engine may be early by: it may count whole seconds.
const EARLY_MAX: Duration = Duration::from_secs(1);
/// The least time to live of an entry.
const TTL_MIN: Duration = Duration::from_secs(1);
/// How far clocks may be apart.
const CLOCKS_APART_MAX: Duration = Duration::from_millis(50);
/// From the last expiry to the look at the files: engines look for expired entries about once a second.
const SWEPT_AFTER: Duration = Duration::from_secs(2);
/// The progress bar moves once per this number of puts.
const TELL_EVERY: u64 = 1000;

pub(super) fn run(
    engine: &dyn Engine,
    expiry: Expiry,
    budget: Budget,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let dir = recorder.dir().to_path_buf();
    let store = engine.open_expiring(&dir, &options())?;
    let mut run = Run {
        entries: expiry.entries(),
        count: expiry.count,
        begin: Instant::now(),
        last_due: Instant::now(),
        longest_put: Duration::ZERO,
    };
    let mut how_far = recorder.how_far("entries", expiry.count);
    recorder.row(PUTS, || {
        let calls = Calls::new(&["put"], Budget::of_ops(expiry.count), &dir)?;
        run.puts(&*store, calls, &mut how_far)
    })?;
    recorder.drain_by(|deadline| store.drain(deadline))?;
    sleep_until(run.begin + expiry.reads_after);
    recorder.row(READS, || run.reads(&*store, Calls::new(&["read"], budget, &dir)?))?;
    sleep_until(run.last_due.max(run.begin + expiry.hold + expiry.spread) + SWEPT_AFTER);
    recorder.drain_by(|deadline| store.drain(deadline))?;
    recorder.check(|| run.check(&*store))?;
    drop(store);
    let store = engine.open_expiring(&dir, &options())?;
    recorder.drain_by(|deadline| store.drain(deadline))?;
    recorder.size_row(SIZE, run.lasting_bytes())?;
    recorder.check(|| run.check(&*store))
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

struct Run {
    entries: Entries,
    count: u64,
    /// The first put.
    begin: Instant,
    /// No entry that was put late expires after this.
    last_due: Instant,
    longest_put: Duration,
}

impl Run {
    fn due(&self, i: u64) -> Option<Instant> {
        self.entries.expires_ms(i).map(|ms| self.begin + Duration::from_millis(ms))
    }

    fn lasting_bytes(&self) -> u64 {
        Entries::lasting(self.count) * ITEM_BYTES
    }

    fn puts(
        &mut self,
        store: &dyn Expiring,
        mut calls: Calls,
        how_far: &mut HowFar,
    ) -> Result<Outcome, Failure> {
        self.begin = Instant::now();
        let mut late = 0;
        for i in 0..self.count {
            let (key, value) = (self.entries.key(i), self.entries.value(i));
            let from = Instant::now();
            let left = self.due(i).map(|due| due.saturating_duration_since(from));
            late += u64::from(left.is_some_and(|left| left < TTL_MIN));
            calls.call(0, || store.put(&key, &value, left.map(|left| left.max(TTL_MIN))))?;
            let to = Instant::now();
            self.longest_put = self.longest_put.max(to - from);
            self.last_due = to + TTL_MIN;
            if i % TELL_EVERY == 0 {
                how_far.at(i, to)?;
            }
        }
        let bytes = self.count * ITEM_BYTES;
        let mut outcome = calls.finish(self.count, bytes, bytes);
        let figures = &mut outcome.detail.get_or_insert_default().figures;
        figures.insert("entries put too late".to_owned(), late as f64);
        Ok(outcome)
    }

    /// Whether a read between these moments must find entry `i`; none where it may or may not.
    fn must_be_there(&self, i: u64, from: Instant, to: Instant) -> Option<bool> {
        let Some(due) = self.due(i) else { return Some(true) };
        if to + EARLY_MAX + CLOCKS_APART_MAX < due {
            return Some(true);
        }
        (from > due.max(self.last_due) + self.longest_put + CLOCKS_APART_MAX).then_some(false)
    }

    fn reads(&self, store: &dyn Expiring, mut calls: Calls) -> Result<Outcome, Failure> {
        let (mut rng, mut reads, mut hits) = (Rng::new(SEED), 0_u64, 0_u64);
        while calls.are_left() {
            let i = rng.below(self.count);
            let (key, mut got) = (self.entries.key(i), 0);
            let from = Instant::now();
            let found = calls.call(0, || store.get(&key, &mut |value| got = probe(value)))?;
            match (self.must_be_there(i, from, Instant::now()), found) {
                (Some(true), false) => return Err(Failure::Wrong("an entry was gone too early".to_owned())),
                (Some(false), true) => return Err(Failure::Wrong("an expired entry was found".to_owned())),
                _ => {}
            }
            if found {
                expect("the value of an entry", got, probe(&self.entries.value(i)))?;
            }
            reads += 1;
            hits += u64::from(found);
        }
        let mut outcome = calls.finish(0, 0, self.lasting_bytes());
        let figures = &mut outcome.detail.get_or_insert_default().figures;
        figures.insert("hit rate".to_owned(), hits as f64 / reads.max(1) as f64);
        Ok(outcome)
    }

    /// The entries that do not expire are there, whole, and no others.
    fn check(&self, store: &dyn Expiring) -> Result<(), Failure> {
        let lasting = (0..self.count).filter(|i| self.entries.expires_ms(*i).is_none());
        let expected = lasting
            .fold(0, |sum: u64, i| sum.wrapping_add(checksum(&self.entries.key(i), &self.entries.value(i))));
        check_scan(Entries::lasting(self.count), expected, |visit| store.scan(visit))
    }
}

#[cfg(test)]
mod tests {
    use super::super::TimeSuite;
    use crate::suites::rehearse::Rehearsed;

    #[test]
    fn bench_suites_time_2_an_expired_entry_that_is_found_fails_the_rows() {
        assert_eq!(Rehearsed::default().errors(&TimeSuite, 0), [const { None }; 3]);
        let errors = Rehearsed { keeps_expired: true, ..Rehearsed::default() }.errors(&TimeSuite, 0);
        let is = |error: &Option<String>, text: &str| {
            error.as_deref().is_some_and(|error| error.starts_with(text))
        };
        assert!(is(&errors[0], "wrong answer: number of items in a full scan: 60, not 6"), "{errors:?}");
        assert!(is(&errors[1], "wrong answer: an expired entry was found"), "{errors:?}");
    }

    #[test]
    fn bench_suites_time_2_an_entry_that_is_lost_fails_the_reads() {
        let losing = Rehearsed { kept_puts: Some(0), ..Rehearsed::default() };
        let errors = losing.errors(&TimeSuite, 0);
        let error = errors[1].as_deref().unwrap_or_default();
        assert_eq!(error, "wrong answer: an entry was gone too early");
    }
}
