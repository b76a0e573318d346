//! Load: keys from a source, written or read by many threads, in requests of several pairs.
//!
//! ```text
//! Source (one, behind a lock) --keys of a request--> thread 1..C, which makes the values --Request--> engine or server
//!                                              `--latency--> Track (one, behind a lock)
//! ```
//!
//! bench_load.1. Closed loop: a thread takes its next request when its last one has ended; latency counts from the call.
//! bench_load.2. Open loop (a rate is given): request n is due at start + n / rate, a free thread takes it, and its latency counts from
//!      when it was due, so that waiting behind a stall counts.
//! bench_load.3. A thread that is free before its request is due sleeps in the system, which is some 50 us late (the timer slack of a thread of
//!      Linux). That is in the latencies, so it is also reported by itself (bench_track.4 of `track.rs`).

pub(crate) mod command;
mod lines;
pub(crate) mod read;
mod server;
mod source;

pub(crate) use source::{KeySource, Pair, Source};

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use esker_bench_api::results::Detail;
use esker_bench_api::{Failure, Store};

use crate::track::{Series, Track};

/// How to load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests in flight.
    pub(crate) concurrency: u64,
    /// Pairs in a request.
    pub(crate) multi: u64,
    /// Pairs a second; none is a closed loop.
    pub(crate) rate: Option<f64>,
    /// The load ends after so long, if its source has not ended before.
    pub(crate) time: Duration,
    pub(crate) period: Duration,
}

/// What came of it.
pub(crate) struct Loaded {
    pub(crate) pairs: u64,
    pub(crate) bytes: u64,
    pub(crate) commits: u64,
    pub(crate) seconds: f64,
    pub(crate) detail: Box<Detail>,
    /// How far the last request ended behind the time at which it was due; zero in a closed loop.
    pub(crate) backlog: Duration,
}

struct Shared<'a> {
    source: &'a mut Source,
    requests: u64,
}

/// A request of these pairs: says when it was answered.
pub(crate) type Request<'a> = &'a (dyn Fn(&[Pair]) -> Result<Instant, Failure> + Sync);

/// Writes what the source gives until it ends.
pub(crate) fn drive(
    store: &dyn Store,
    source: &mut Source,
    load: Load,
    dir: &Path,
) -> Result<Loaded, Failure> {
    drive_watched("write", &|pairs| write(store, pairs), source, load, dir, &mut |_| {})
}

/// One transaction.
fn write(store: &dyn Store, pairs: &[Pair]) -> Result<Instant, Failure> {
    store.write(&mut |writer| pairs.iter().try_for_each(|pair| writer.put(&pair.key, &pair.value)))?;
    Ok(Instant::now())
}

/// Makes requests of what the source gives until it ends, and shows `watch` the series whenever a period has ended. `kind` names them there.
pub(crate) fn drive_watched(
    kind: &'static str,
    request: Request<'_>,
    source: &mut Source,
    load: Load,
    dir: &Path,
    watch: &mut (dyn FnMut(&Series) + Send),
) -> Result<Loaded, Failure> {
    let track = Mutex::new((Track::new(&[kind], load.period, dir)?, Duration::ZERO, watch));
    let values = source.values();
    let shared = Mutex::new(Shared { source, requests: 0 });
    let start = Instant::now();
    // Pairs and their bytes.
    let worker = || -> Result<(u64, u64), Failure> {
        let mut all_pairs = vec![Pair::default(); load.multi as usize];
        let (mut written, mut bytes) = (0, 0);
        loop {
            let (taken, number) = {
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let taken =
                    if start.elapsed() < load.time { shared.source.take(&mut all_pairs)? } else { 0 };
                shared.requests += u64::from(taken > 0);
                (taken, shared.requests)
            };
            let pairs = &mut all_pairs[..taken];
            if pairs.is_empty() {
                return Ok((written, bytes));
            }
            values.fill(pairs);
            // bench_load.1, bench_load.2
            let (due, lateness) = match load.rate {
                None => (Instant::now(), None),
                Some(rate) => {
                    let due = start + Duration::from_secs_f64((number - 1) as f64 * load.multi as f64 / rate);
                    (due, wait_until(due))
                }
            };
            let end = request(pairs)?;
            written += pairs.len() as u64;
            bytes += pairs.iter().map(Pair::bytes).sum::<u64>();
            let (track, backlog, watch) = &mut *track.lock().unwrap_or_else(PoisonError::into_inner);
            let periods = |track: &Track| track.series().get("ops/s").map_or(0, Vec::len);
            let before = periods(track);
            if let Some(lateness) = lateness {
                track.began_late(lateness);
            }
            track.record(0, due, end, pairs.len() as u64);
            if periods(track) > before {
                watch(track.series());
            }
            *backlog = if load.rate.is_some() { end.saturating_duration_since(due) } else { Duration::ZERO };
        }
    };
    let worker = &worker;
    let written = thread::scope(|scope| {
        let workers: Vec<_> = (0..load.concurrency).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_fold((0, 0), |(pairs, bytes), worker| {
            let of_one = worker.join().map_err(|_| Failure::engine("a writer thread panicked"))??;
            Ok::<_, Failure>((pairs + of_one.0, bytes + of_one.1))
        })
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let (track, backlog, _) = track.into_inner().unwrap_or_else(PoisonError::into_inner);
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Loaded {
        pairs: written.0,
        bytes: written.1,
        commits: shared.requests,
        seconds,
        detail: track.finish(if load.rate.is_some() { "open" } else { "closed" }),
        backlog,
    })
}

/// Sleeps until then, and says how late it ended (bench_load.3). `None`: that time had gone by before, which is the engine's lateness.
fn wait_until(due: Instant) -> Option<Duration> {
    let left = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
    thread::sleep(left);
    Some(due.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_load_3_a_wait_ends_no_sooner_than_its_time_and_what_has_gone_by_is_not_waited_for() {
        for _ in 0..20 {
            let due = Instant::now() + Duration::from_micros(300);
            // A thread that is held up for so long before it looks has nothing to wait for.
            let lateness = wait_until(due);
            let now = Instant::now();
            assert!(now >= due && lateness.is_none_or(|lateness| lateness <= now - due));
        }
        assert_eq!(wait_until(Instant::now()), None);
    }
}
