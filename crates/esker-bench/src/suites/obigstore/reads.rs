//! The rows of reads of suite `obigstore`: ranges on one thread, requests of several look-ups on more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use esker_bench_api::Failure;
use esker_bench_api::generate::checksum::probe;
use esker_bench_api::generate::obigstore::{sequential_key, value};
use esker_bench_api::generate::rng::Rng;

use super::{Run, SEED, VALUE_BYTES};
use crate::recorder::Outcome;
use crate::scale::Scale;
use crate::suites::verify::expect;
use crate::track::Track;

const RANGE_KEYS: u64 = 512;
const LOOK_UPS: u64 = 20;
const READERS: u64 = 5;

impl Run<'_> {
    /// Ranges of keys and values, on one thread.
    pub(super) fn ranges(&self, keys: u64) -> Result<Outcome, Failure> {
        self.requests(1, RANGE_KEYS, |rng| self.one_range(rng, keys))
    }

    /// Look-ups among the first `set` keys, on several threads.
    pub(super) fn random_reads(&self, set: u64) -> Result<Outcome, Failure> {
        self.requests(READERS, LOOK_UPS, |rng| self.look_ups(rng, set))
    }

    /// Runs requests on so many threads for the row's time; each counts as `keys` operations.
    fn requests(
        &self,
        threads: u64,
        keys: u64,
        request: impl Fn(&mut Rng) -> Result<(Instant, Instant), Failure> + Sync,
    ) -> Result<Outcome, Failure> {
        // A test does so many and no fewer, however slow the machine is: the program in Go is held against it.
        let (time, most) = match self.scale {
            Scale::Test => (Duration::MAX, 20),
            _ => (Duration::from_secs(self.counts.seconds), u64::MAX),
        };
        let left = AtomicU64::new(most);
        let track = Mutex::new(Track::new(&["request"], self.counts.period, self.dir)?);
        let start = Instant::now();
        let (track_ref, left, request) = (&track, &left, &request);
        thread::scope(|scope| {
            let readers: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || -> Result<(), Failure> {
                        let mut rng = Rng::new(SEED + thread);
                        // A plain count, so `Relaxed` is enough.
                        let another = |left: u64| left.checked_sub(1);
                        while start.elapsed() < time
                            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, another).is_ok()
                        {
                            let (from, to) = request(&mut rng)?;
                            track_ref
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .record(0, from, to, keys);
                        }
                        Ok(())
                    })
                })
                .collect();
            readers.into_iter().try_for_each(|reader| {
                reader.join().map_err(|_| Failure::engine("a reader thread panicked"))?
            })
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let track = track.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ops = track.ops();
        Ok(Outcome {
            seconds: Some(seconds),
            ops: Some(ops),
            detail: Some(track.finish("closed")),
            ..Outcome::default()
        })
    }

    fn one_range(&self, rng: &mut Rng, keys: u64) -> Result<(Instant, Instant), Failure> {
        let first = rng.below(keys.saturating_sub(RANGE_KEYS).max(1));
        let mut sum = 0_u64;
        let from = Instant::now();
        let seen = self.store.range(&sequential_key(first), RANGE_KEYS, &mut |key, value| {
            sum = sum.rotate_left(1).wrapping_add(probe(key)) ^ probe(value);
        })?;
        let to = Instant::now();
        let mut expected_value = [0; VALUE_BYTES];
        let expected = (first..first + seen).fold(0_u64, |sum, i| {
            let key = sequential_key(i);
            value(&key, &mut expected_value);
            sum.rotate_left(1).wrapping_add(probe(&key)) ^ probe(&expected_value)
        });
        expect("keys in a range", seen, RANGE_KEYS.min(keys))?;
        expect("sum of a range", sum, expected)?;
        Ok((from, to))
    }

    /// One request: one snapshot, several look-ups.
    fn look_ups(&self, rng: &mut Rng, set: u64) -> Result<(Instant, Instant), Failure> {
        let numbers: [u64; LOOK_UPS as usize] = std::array::from_fn(|_| rng.below(set));
        let mut sum = 0_u64;
        let from = Instant::now();
        let mut reader = self.store.reader()?;
        for i in numbers {
            reader.get(&sequential_key(i), &mut |value| sum = sum.wrapping_add(probe(value)))?;
        }
        drop(reader);
        let to = Instant::now();
        let mut expected_value = [0; VALUE_BYTES];
        let expected = numbers.iter().fold(0_u64, |sum, i| {
            value(&sequential_key(*i), &mut expected_value);
            sum.wrapping_add(probe(&expected_value))
        });
        expect("sum of the values", sum, expected)?;
        Ok((from, to))
    }
}
