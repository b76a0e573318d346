//! The rows of reads of suite `obigstore`: ranges on one thread, requests of several look-ups on more.
//!
//! ```text
//! each thread: draw a request -> clock -> call of the engine -> clock -> Track; its sum is folded into one number
//! then:        draw the same requests again -> the sums that they must have -> the same number
//! ```
//!
//! bench_reads.1. No answer is verified while the clock of the row runs. Making the values that a range must have takes as long as the fastest engines take to
//!      read it, and where there are more threads than cores it would take the cores from the calls of the others.
//! bench_reads.2. The value of the ranges is keys over the time within calls (bench_mixed.1 of `mixed.rs`); the rate on the wall's clock stands beside it. That of the
//!      look-ups is over the time on the wall: a thread waits for a core, or for the Track, within a call or between two as it happens, and in that time
//!      the others are faster. What they do between calls is drawing, folding, looking at the clock and recording, the same for every engine.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use esker_bench_api::Failure;
use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::obigstore::{Key, sequential_key, value};
use esker_bench_api::generate::rng::Rng;

use super::{Run, SEED, VALUE_BYTES};
use crate::recorder::Outcome;
use crate::scale::Scale;
use crate::suites::verify::expect;
use crate::track::Track;

const RANGE_KEYS: u64 = 512;
const LOOK_UPS: u64 = 20;
const READERS: u64 = 5;
/// Requests of a row at scale `test`. The number is fixed, so that the program in Go can be compared with it.
const TEST_REQUESTS: u64 = 20;

/// What a request was answered, and when.
struct Answer {
    from: Instant,
    to: Instant,
    sum: u64,
}

/// What a thread was answered by all its requests, and the time within them.
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

impl Run<'_> {
    /// Ranges of keys and values, on one thread.
    pub(super) fn ranges(&self, keys: u64) -> Result<Outcome, Failure> {
        self.requests(1, RANGE_KEYS, |rng| self.one_range(rng, keys), |rng| range_expected(rng, keys))
    }

    /// Look-ups among the first `set` keys, on several threads.
    pub(super) fn random_reads(&self, set: u64) -> Result<Outcome, Failure> {
        self.requests(READERS, LOOK_UPS, |rng| self.look_ups(rng, set), |rng| look_ups_expected(rng, set))
    }

    /// Runs requests on `threads` threads for the row's time; each counts as `keys` operations. `expected` draws what `request` draws, and says what
    /// sum the answer must have (bench_reads.1).
    fn requests(
        &self,
        threads: u64,
        keys: u64,
        request: impl Fn(&mut Rng) -> Result<Answer, Failure> + Sync,
        expected: impl Fn(&mut Rng) -> u64,
    ) -> Result<Outcome, Failure> {
        let (time, most) = match self.scale {
            Scale::Test => (Duration::MAX, TEST_REQUESTS),
            _ => (Duration::from_secs(self.counts.seconds), u64::MAX),
        };
        let left = AtomicU64::new(most);
        // A plain count, so `Relaxed` is enough.
        let another = |left: u64| left.checked_sub(1);
        let is_left = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, another).is_ok();
        let track = Mutex::new(Track::new(&["request"], self.counts.period, self.dir)?);
        let start = Instant::now();
        let read = |thread: u64| -> Result<Answers, Failure> {
            let (mut rng, mut answers) = (Rng::new(SEED + thread), Answers::default());
            while start.elapsed() < time && is_left() {
                let Answer { from, to, sum } = request(&mut rng)?;
                answers.add(to - from, sum);
                track.lock().unwrap_or_else(PoisonError::into_inner).record(0, from, to, keys);
            }
            Ok(answers)
        };
        let read = &read;
        let answers = thread::scope(|scope| {
            let readers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || read(thread))).collect();
            let panicked = |_| Failure::engine("a reader thread panicked");
            readers
                .into_iter()
                .map(|reader| reader.join().map_err(panicked)?)
                .collect::<Result<Vec<_>, Failure>>()
        })?;
        let wall = start.elapsed();
        let track = track.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ops = track.ops();
        let mut detail = track.finish("closed");
        verify(&answers, expected)?;
        let mut counted = wall;
        if threads == 1 {
            // bench_reads.2.
            counted = answers.iter().map(|answers| answers.busy).sum();
            detail.figures.insert("wall ops/s".to_owned(), ops as f64 / wall.as_secs_f64());
        }
        Ok(Outcome {
            seconds: Some(counted.as_secs_f64()),
            ops: Some(ops),
            detail: Some(detail),
            ..Outcome::default()
        })
    }

    fn one_range(&self, rng: &mut Rng, keys: u64) -> Result<Answer, Failure> {
        let first = sequential_key(first_of_range(rng, keys));
        let mut sum = 0;
        let from = Instant::now();
        let seen = self.store.range(&first, RANGE_KEYS, &mut |key, value| sum = add_pair(sum, key, value))?;
        let to = Instant::now();
        expect("keys in a range", seen, RANGE_KEYS.min(keys))?;
        Ok(Answer { from, to, sum })
    }

    /// One request: one snapshot, several look-ups.
    fn look_ups(&self, rng: &mut Rng, set: u64) -> Result<Answer, Failure> {
        let keys = looked_up(rng, set);
        let mut sum = 0_u64;
        let from = Instant::now();
        let mut reader = self.store.reader()?;
        for key in &keys {
            reader.get(key, &mut |value| sum = sum.wrapping_add(probe(value)))?;
        }
        drop(reader);
        let to = Instant::now();
        Ok(Answer { from, to, sum })
    }
}

/// Draws the requests of each thread again (bench_reads.1).
fn verify(answers: &[Answers], expected: impl Fn(&mut Rng) -> u64) -> Result<(), Failure> {
    for (thread, answers) in (0_u64..).zip(answers) {
        let mut rng = Rng::new(SEED + thread);
        let sum = (0..answers.requests).fold(0, |sum, _| folded(sum, expected(&mut rng)));
        expect("sum of all answers to a thread", answers.sum, sum)?;
    }
    Ok(())
}

fn range_expected(rng: &mut Rng, keys: u64) -> u64 {
    let first = first_of_range(rng, keys);
    let mut expected_value = [0; VALUE_BYTES];
    (first..first + RANGE_KEYS.min(keys)).fold(0, |sum, i| {
        let key = sequential_key(i);
        value(&key, &mut expected_value);
        add_pair(sum, &key, &expected_value)
    })
}

fn look_ups_expected(rng: &mut Rng, set: u64) -> u64 {
    let mut expected_value = [0; VALUE_BYTES];
    looked_up(rng, set).iter().fold(0_u64, |sum, key| {
        value(key, &mut expected_value);
        sum.wrapping_add(probe(&expected_value))
    })
}

/// Draws where a range begins.
fn first_of_range(rng: &mut Rng, keys: u64) -> u64 {
    rng.below(keys.saturating_sub(RANGE_KEYS).max(1))
}

/// Draws the keys of a request of look-ups.
fn looked_up(rng: &mut Rng, set: u64) -> [Key; LOOK_UPS as usize] {
    array::from_fn(|_| sequential_key(rng.below(set)))
}

/// Makes one number of all pairs of a range, in their order.
fn add_pair(sum: u64, key: &[u8], value: &[u8]) -> u64 {
    sum.rotate_left(1).wrapping_add(probe(key)) ^ probe(value)
}

/// Makes one number of all answers to a thread, in their order; not by adding, in which wrong answers that are all wrong by the same may cancel.
fn folded(sum: u64, answer: u64) -> u64 {
    checksum(&sum.to_le_bytes(), &answer.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines;
    use crate::suites::obigstore::counts;
    use esker_bench_api::{OpenOptions, Store, Writer};
    use std::ops::Range;

    const KEYS: u64 = 2_000;

    struct Stored {
        store: Box<dyn Store>,
        dir: tempfile::TempDir,
    }

    impl Stored {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let engine = engines::find("redb").unwrap();
            let store = engine.open(dir.path(), &OpenOptions::with_cache(1 << 24)).unwrap();
            let stored = Self { store, dir };
            stored.put(0..KEYS, 0);
            stored
        }

        /// Puts the items of these numbers; the last byte of each value is XORed with `flipped`.
        fn put(&self, numbers: Range<u64>, flipped: u8) {
            let work = &mut |writer: &mut dyn Writer| {
                let mut bytes = [0; VALUE_BYTES];
                numbers.clone().map(sequential_key).try_for_each(|key| {
                    value(&key, &mut bytes);
                    bytes[VALUE_BYTES - 1] ^= flipped;
                    writer.put(&key, &bytes)
                })
            };
            self.store.write(work).unwrap();
        }

        fn run(&self) -> Run<'_> {
            let (counts, scale) = (counts(Scale::Test), Scale::Test);
            Run { store: &*self.store, counts, scale, dir: self.dir.path() }
        }
    }

    #[test]
    fn bench_reads_1_one_wrong_value_is_found_in_each_row_of_reads() {
        let stored = Stored::new();
        let run = stored.run();
        run.ranges(KEYS).unwrap();
        run.random_reads(1).unwrap();
        // The last key of the first range.
        let in_a_range = first_of_range(&mut Rng::new(SEED), KEYS) + RANGE_KEYS - 1;
        stored.put(in_a_range..in_a_range + 1, 1);
        assert!(matches!(run.ranges(KEYS), Err(Failure::Wrong(_))));
        run.random_reads(1).unwrap();
        stored.put(0..1, 1);
        assert!(matches!(run.random_reads(1), Err(Failure::Wrong(_))));
    }

    #[test]
    fn bench_reads_1_two_answers_in_the_wrong_order_are_found() {
        let sums = [[1, 2, 3], [1, 3, 2]].map(|answers| answers.into_iter().fold(0, folded));
        assert_ne!(sums[0], sums[1]);
    }

    #[test]
    fn bench_reads_1_bench_reads_2_all_requests_come_before_the_first_check_and_one_thread_counts_its_calls_alone()
     {
        const CALL: Duration = Duration::from_secs(1);
        let stored = Stored::new();
        let run = stored.run();
        for threads in [1, READERS] {
            let requests = AtomicU64::new(0);
            let request = |rng: &mut Rng| -> Result<Answer, Failure> {
                requests.fetch_add(1, Ordering::Relaxed);
                let from = Instant::now();
                Ok(Answer { from, to: from + CALL, sum: rng.next_u64() })
            };
            let expected = |rng: &mut Rng| -> u64 {
                assert_eq!(requests.load(Ordering::Relaxed), TEST_REQUESTS, "bench_reads.1");
                rng.next_u64()
            };
            let outcome = run.requests(threads, 3, request, expected).unwrap();
            let (seconds, in_calls) = (outcome.seconds.unwrap(), TEST_REQUESTS as f64 * CALL.as_secs_f64());
            assert_eq!(outcome.ops, Some(3 * TEST_REQUESTS));
            assert_eq!(seconds >= in_calls, threads == 1, "bench_reads.2: {seconds}");
        }
    }
}
