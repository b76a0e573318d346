//! Drives a store or a server with requests of several pairs on many threads.
//!
//! ```text
//! Source (behind a lock) --keys of a request--> thread 1..C, makes the values --Request--> engine or server
//!                                               `--latency--> Track (behind a lock)
//! ```
//!
//! - Closed loop: a thread takes its next request when its last one has ended. Latency counts from the call.
//! - Open loop, if a rate is given: request n is due at start + n / rate, and a free thread takes it. Latency
//!   counts from the time when the request was due, so that waiting behind a stall counts.
//! - An engine that commits for callers which do not wait gets its closed loops from two threads
//!   (futures.rs).
//! - A thread that is free before its request is due sleeps. Linux wakes it some 50 us late (timer slack).
//!   The latencies contain this delay, so it is also reported by itself.

pub(crate) mod command;
mod futures;
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
use esker_bench_api::{Failure, Result, Store};

use crate::track::{Series, Track};

/// Parameters of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests in flight.
    pub(crate) concurrency: u64,
    /// Pairs in a request.
    pub(crate) multi: u64,
    /// Pairs per second; `None` is a closed loop.
    pub(crate) rate: Option<f64>,
    /// The load ends after this time, unless its source ends before.
    pub(crate) time: Duration,
    pub(crate) period: Duration,
}

/// Result of a load.
pub(crate) struct Loaded {
    pub(crate) pairs: u64,
    pub(crate) bytes: u64,
    pub(crate) commits: u64,
    pub(crate) seconds: f64,
    pub(crate) detail: Box<Detail>,
    /// Time from when the last request was due to its end; zero in a closed loop.
    pub(crate) backlog: Duration,
}

struct Shared<'a> {
    source: &'a mut Source,
    requests: u64,
}

/// Makes a request of these pairs, and returns when it was answered.
pub(crate) type Request<'a> = &'a (dyn Fn(&[Pair]) -> Result<Instant> + Sync);

/// Writes the pairs of the source until it ends.
pub(crate) fn drive(store: &dyn Store, source: &mut Source, load: Load, dir: &Path) -> Result<Loaded> {
    if load.rate.is_none() && store.begins_writes() && load.concurrency >= futures::IN_FLIGHT_MIN {
        return drive_futures(store, source, load, dir);
    }
    drive_watched("write", &|pairs| write(store, pairs), source, load, dir, &mut |_| {})
}

/// Does the same in a closed loop, with an engine that commits for callers which do not wait.
fn drive_futures(store: &dyn Store, source: &mut Source, load: Load, dir: &Path) -> Result<Loaded> {
    let values = source.values();
    let track = Mutex::new((Track::new(&["write"], load.period, dir)?, 0));
    let (shared, start) = (Mutex::new(source), Instant::now());
    let take = |mut pairs: Vec<Pair>| {
        pairs.resize(load.multi as usize, Pair::default());
        let mut source = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = if start.elapsed() < load.time { source.take(&mut pairs)? } else { 0 };
        drop(source);
        pairs.truncate(taken);
        values.fill(&mut pairs);
        Ok(pairs)
    };
    let worker = || {
        let (mut written, mut bytes) = (0, 0);
        let done = |pairs: &[Pair], begun, end| {
            written += pairs.len() as u64;
            bytes += pairs.iter().map(Pair::bytes).sum::<u64>();
            let mut track = track.lock().unwrap_or_else(PoisonError::into_inner);
            track.0.record(0, begun, end, pairs.len() as u64);
            track.1 += 1;
        };
        futures::keep(store, load.concurrency / futures::THREADS, take, done).map(|()| (written, bytes))
    };
    let (pairs, bytes) = on_threads(futures::THREADS, &worker)?;
    let seconds = start.elapsed().as_secs_f64();
    let (track, commits) = track.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Loaded { pairs, bytes, commits, seconds, detail: track.finish("closed"), backlog: Duration::ZERO })
}

/// Writes the pairs in one transaction.
fn write(store: &dyn Store, pairs: &[Pair]) -> Result<Instant> {
    store.write(&mut |writer| pairs.iter().try_for_each(|pair| writer.put(&pair.key, &pair.value)))?;
    Ok(Instant::now())
}

/// State that the threads of a load share.
struct Recorded<'a> {
    track: Track,
    backlog: Duration,
    watch: &'a mut (dyn FnMut(&Series) + Send),
}

impl Recorded<'_> {
    /// Records a request of `pairs` pairs. Calls `watch` if a period ended with it.
    fn add(&mut self, due: Instant, end: Instant, lateness: Option<Duration>, pairs: u64) {
        let periods = |track: &Track| track.series().get("ops/s").map_or(0, Vec::len);
        let before = periods(&self.track);
        if let Some(lateness) = lateness {
            self.track.began_late(lateness);
        }
        self.track.record(0, due, end, pairs);
        if periods(&self.track) > before {
            (self.watch)(self.track.series());
        }
        self.backlog = end.saturating_duration_since(due);
    }
}

/// Makes requests from the pairs of the source until it ends. Calls `watch` with the series when a period has
/// ended; `kind` is the name of the requests in them.
pub(crate) fn drive_watched(
    kind: &'static str,
    request: Request<'_>,
    source: &mut Source,
    load: Load,
    dir: &Path,
    watch: &mut (dyn FnMut(&Series) + Send),
) -> Result<Loaded> {
    let track = Track::new(&[kind], load.period, dir)?;
    let recorded = Mutex::new(Recorded { track, backlog: Duration::ZERO, watch });
    let values = source.values();
    let shared = Mutex::new(Shared { source, requests: 0 });
    let start = Instant::now();
    // Returns the number of pairs and of their bytes.
    let worker = || -> Result<(u64, u64)> {
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
            let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
            recorded.add(due, end, lateness, pairs.len() as u64);
        }
    };
    let (pairs, bytes) = on_threads(load.concurrency, &worker)?;
    let seconds = start.elapsed().as_secs_f64();
    let Recorded { track, backlog, .. } = recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
    let commits = shared.into_inner().unwrap_or_else(PoisonError::into_inner).requests;
    let is_open = load.rate.is_some();
    let detail = track.finish(if is_open { "open" } else { "closed" });
    let backlog = if is_open { backlog } else { Duration::ZERO };
    Ok(Loaded { pairs, bytes, commits, seconds, detail, backlog })
}

/// Runs `worker` on this number of threads, and adds up what it returns.
fn on_threads(threads: u64, worker: &(dyn Fn() -> Result<(u64, u64)> + Sync)) -> Result<(u64, u64)> {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_fold((0, 0), |(pairs, bytes), worker| {
            let of_one = worker.join().map_err(|_| Failure::engine("a writer thread panicked"))??;
            Ok::<_, Failure>((pairs + of_one.0, bytes + of_one.1))
        })
    })
}

/// Sleeps until `due`, and returns how late the sleep ended. Returns `None` if the time had passed already:
/// the engine caused that delay.
fn wait_until(due: Instant) -> Option<Duration> {
    let left = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
    thread::sleep(left);
    Some(due.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_no_sooner_than_its_time_and_not_after_it_has_passed() {
        for _ in 0..20 {
            let due = Instant::now() + Duration::from_micros(300);
            // A thread that is delayed by that much has nothing to wait for.
            let lateness = wait_until(due);
            let now = Instant::now();
            assert!(now >= due && lateness.is_none_or(|lateness| lateness <= now - due));
        }
        assert_eq!(wait_until(Instant::now()), None);
    }
}
