//! Requests: ranges on one thread, or several look-ups each on more threads.
//!
//! ```text
//! each thread: draw a request -> clock -> call of the engine -> clock -> Track; fold its sum into one number
//! then:        draw the same requests again -> expected sums -> the same number
//! ```
//!
//! - No answer is verified while the clock of the row runs. Making the values of a range takes as long as the
//!   fastest engines take to read them. With more threads than cores, it would also take the cores from the
//!   calls of other threads.
//! - The value of ranges is keys over the time within calls; the details have the rate on the wall clock. The
//!   value of look-ups is keys over wall clock time. A thread may wait for a core or for the Track within a
//!   call or between calls, and the other threads are faster meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Failure, Result, Store};

use super::state::State;
use super::{Done, expect, of_calls};
use crate::suites::items::Items;
use crate::suites::plan::Work;
use crate::track::Track;

/// The answers to one thread, and the time within its calls.
#[derive(Default)]
struct Answers {
    requests: u64,
    sum: u64,
    busy: Duration,
}

impl Answers {
    fn add(&mut self, busy: Duration, sum: u64) {
        self.requests += 1;
        self.sum = folded(self.sum, sum);
        self.busy += busy;
    }
}

/// What requests ask for.
struct Asked<'a> {
    items: &'a Items,
    /// Number of keys of a range, or of a request of look-ups.
    keys: u64,
    /// Number of keys, from the first on, from which look-ups draw.
    set: u64,
    is_range: bool,
}

impl Asked<'_> {
    /// Draws the first item of a range.
    fn first(&self, rng: &mut Rng) -> u64 {
        rng.below(self.set.saturating_sub(self.keys).max(1))
    }

    fn looked_up(&self, rng: &mut Rng) -> Vec<u64> {
        (0..self.keys).map(|_| rng.below(self.set)).collect()
    }

    /// Runs one request. Returns its start, its end and the sum of its answer.
    fn ask(&self, store: &dyn Store, rng: &mut Rng) -> Result<(Instant, Instant, u64)> {
        let mut sum = 0_u64;
        if self.is_range {
            let first = self.items.key_of(self.first(rng));
            let from = Instant::now();
            let seen = store.range(&first, self.keys, &mut |key, value| sum = add_pair(sum, key, value))?;
            let to = Instant::now();
            expect("keys in a range", seen, self.keys.min(self.set))?;
            return Ok((from, to, sum));
        }
        let keys: Vec<_> = self.looked_up(rng).into_iter().map(|i| self.items.key_of(i)).collect();
        let from = Instant::now();
        let mut reader = store.reader()?;
        for key in &keys {
            reader.get(key, &mut |value| sum = sum.wrapping_add(probe(value)))?;
        }
        drop(reader);
        Ok((from, Instant::now(), sum))
    }

    /// Draws as [`Asked::ask`] does, and returns the expected sum.
    fn expected(&self, rng: &mut Rng) -> u64 {
        let mut buffer = Vec::new();
        if self.is_range {
            let first = self.first(rng);
            let numbers = first..first + self.keys.min(self.set);
            return numbers
                .fold(0, |sum, i| add_pair(sum, &self.items.key_of(i), self.items.value(i, 0, &mut buffer)));
        }
        let numbers = self.looked_up(rng).into_iter();
        numbers.fold(0_u64, |sum, i| sum.wrapping_add(probe(self.items.value(i, 0, &mut buffer))))
    }
}

impl State {
    /// Runs requests for the time of the row. Each counts as its number of keys.
    pub(super) fn requests(&self, store: &dyn Store, work: &Work) -> Result<Done> {
        let Work::Requests { threads, keys, set, budget, period } = *work else {
            unreachable!("dispatched by kind")
        };
        let asked = Asked { items: &self.items, keys, set, is_range: threads == 1 };
        let left = AtomicU64::new(budget.ops);
        // A plain count, so `Relaxed` is enough.
        let another = |left: u64| left.checked_sub(1);
        let is_left = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, another).is_ok();
        let track = Mutex::new(Track::new(&["request"], period, &self.dir)?);
        let start = Instant::now();
        let read = |thread: u64| -> Result<Answers> {
            let mut rng = Rng::new(self.items.source.seed + thread);
            let mut answers = Answers::default();
            while start.elapsed() < budget.time && is_left() {
                let (from, to, sum) = asked.ask(store, &mut rng)?;
                answers.add(to - from, sum);
                track.lock().unwrap_or_else(PoisonError::into_inner).record(0, from, to, keys);
            }
            Ok(answers)
        };
        let read = &read;
        let answers = thread::scope(|scope| {
            let readers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || read(thread))).collect();
            let panicked = |_| Failure::engine("a reader thread panicked");
            let joined = readers.into_iter().map(|reader| reader.join().map_err(panicked)?);
            joined.collect::<Result<Vec<_>>>()
        })?;
        let wall = start.elapsed();
        let track = track.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ops = track.ops();
        let detail = track.finish("closed");
        self.verify(&answers, &asked)?;
        if asked.is_range {
            let busy = answers.iter().map(|answers| answers.busy).sum();
            return Ok(of_calls(detail, ops, busy, wall));
        }
        Ok(Done { seconds: wall.as_secs_f64(), ops, detail: Some(detail), ..Done::default() })
    }

    /// Draws the requests of each thread again, and compares the answers.
    fn verify(&self, answers: &[Answers], asked: &Asked<'_>) -> Result<()> {
        for (thread, answers) in (0_u64..).zip(answers) {
            let mut rng = Rng::new(self.items.source.seed + thread);
            let sum = (0..answers.requests).fold(0, |sum, _| folded(sum, asked.expected(&mut rng)));
            expect("sum of all answers to a thread", answers.sum, sum)?;
        }
        Ok(())
    }
}

/// Combines the pairs of a range, in their order, into one number.
fn add_pair(sum: u64, key: &[u8], value: &[u8]) -> u64 {
    sum.rotate_left(1).wrapping_add(probe(key)) ^ probe(value)
}

/// Combines all answers to a thread, in their order, into one number. A plain sum could cancel out equal
/// errors.
fn folded(sum: u64, answer: u64) -> u64 {
    checksum(&sum.to_le_bytes(), &answer.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::items::{Kind, Source};

    #[test]
    fn requests_that_are_drawn_again_have_the_same_sums() {
        let items = Items::new(Source::new(Kind::Sequential, 29, 32));
        for is_range in [false, true] {
            let asked = Asked { items: &items, keys: 20, set: 100, is_range };
            let sums = |seed| asked.expected(&mut Rng::new(seed));
            assert_eq!(sums(1), sums(1));
            assert_ne!(sums(1), sums(2));
        }
    }

    #[test]
    fn two_wrong_answers_do_not_cancel() {
        let fold = |answers: [u64; 2]| answers.into_iter().fold(0, folded);
        assert_ne!(fold([5, 7]), fold([6, 6]));
        assert_ne!(fold([5, 7]), fold([7, 5]));
    }
}
