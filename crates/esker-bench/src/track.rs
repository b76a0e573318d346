//! Latencies of single operations, and the course of a row over time.
//!
//! ```text
//! operation --record(kind, due, ended)--> Track --period ends--> one figure per series
//!                                               --finish-------> Detail: percentiles, series, longest stall
//! Sampler, a thread of its own: memory and files at the end of each period ------^
//! ```
//!
//! - An operation belongs to the period in which it ended. A period without operations has a zero, not a gap.
//! - Percentiles come from HDR histograms with three digits, never from means of percentiles.
//! - The sampler's thread looks at memory and walks the directory of the database, never between two
//!   operations.
//! - The delay of operations that a thread waited for is due to the machine and the lab. It is a separate
//!   figure, and the latencies contain it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use esker_bench_api::results::{Detail, Latency};
use esker_bench_api::{Failure, Result};
use hdrhistogram::Histogram;

use crate::measure::{Sample, Walks, sample};

const NS: f64 = 1e-9;
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;
/// Percentiles of each period, besides mean and maximum.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];

/// For each name, one figure per period.
pub(crate) type Series = BTreeMap<String, Vec<f64>>;

/// Records the operations of a row.
pub(crate) struct Track {
    kinds: Vec<Kind>,
    period: Duration,
    period_ends: Instant,
    period_ops: u64,
    start: Instant,
    last_end: Instant,
    longest_stall: Duration,
    /// Delays of operations that were waited for.
    lateness: Histogram<u64>,
    ops: u64,
    series: BTreeMap<String, Vec<f64>>,
    sampler: Sampler,
}

struct Kind {
    name: &'static str,
    all: Histogram<u64>,
    period: Histogram<u64>,
}

impl Track {
    /// Starts the clock. `dir` is sized at the end of each period.
    pub(crate) fn new(kinds: &[&'static str], period: Duration, dir: &Path) -> Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).map_err(Failure::engine);
        let kinds = kinds
            .iter()
            .map(|name| Ok(Kind { name, all: histogram()?, period: histogram()? }))
            .collect::<Result<Vec<_>>>()?;
        let sampler = Sampler::start(dir, period);
        let start = sampler.start;
        Ok(Self {
            kinds,
            period,
            period_ends: start + period,
            period_ops: 0,
            start,
            last_end: start,
            longest_stall: Duration::ZERO,
            lateness: histogram()?,
            ops: 0,
            series: BTreeMap::new(),
            sampler,
        })
    }

    /// Records that an operation, due or begun at `from`, ended at `to`. It counts as `ops` operations for
    /// the rate.
    pub(crate) fn record(&mut self, kind: usize, from: Instant, to: Instant, ops: u64) {
        while to >= self.period_ends {
            self.end_period();
        }
        let nanoseconds = nanoseconds(to.saturating_duration_since(from));
        self.kinds[kind].all.saturating_record(nanoseconds);
        self.kinds[kind].period.saturating_record(nanoseconds);
        self.longest_stall = self.longest_stall.max(to.saturating_duration_since(self.last_end));
        self.last_end = self.last_end.max(to);
        self.period_ops += ops;
        self.ops += ops;
    }

    /// Records how late an operation began that a thread waited for.
    pub(crate) fn began_late(&mut self, by: Duration) {
        self.lateness.saturating_record(nanoseconds(by));
    }

    /// Returns the number of operations so far.
    pub(crate) fn ops(&self) -> u64 {
        self.ops
    }

    /// Returns the series of the ended periods.
    pub(crate) fn series(&self) -> &Series {
        &self.series
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn end_period(&mut self) {
        let seconds = self.period.as_secs_f64();
        let mut push = |name: String, value: f64| self.series.entry(name).or_default().push(value);
        push("ops/s".to_owned(), self.period_ops as f64 / seconds);
        for kind in &mut self.kinds {
            push(format!("{} mean s", kind.name), kind.period.mean() * NS);
            for (name, quantile) in QUANTILES {
                push(format!("{} {name} s", kind.name), kind.period.value_at_quantile(quantile) as f64 * NS);
            }
            push(format!("{} max s", kind.name), kind.period.max() as f64 * NS);
            kind.period.reset();
        }
        self.period_ops = 0;
        self.period_ends += self.period;
    }

    /// Ends the last whole period and sums up. `load` is `open` or `closed`.
    pub(crate) fn finish(mut self, load: &str) -> Box<Detail> {
        if self.series.is_empty() && self.ops > 0 {
            // A row shorter than a period has one figure over its whole time.
            self.period = self.elapsed().max(Duration::from_nanos(1));
            self.end_period();
        }
        let periods = self.series.get("ops/s").map_or(0, Vec::len);
        self.series.extend(self.sampler.finish(periods));
        let kinds = self.kinds.iter().filter(|kind| !kind.all.is_empty());
        Box::new(Detail {
            load: load.to_owned(),
            latency: kinds.map(|kind| (kind.name.to_owned(), latency(&kind.all))).collect(),
            period_s: self.period.as_secs_f64(),
            series: self.series,
            longest_stall_s: self.longest_stall.as_secs_f64(),
            drain_s: None,
            figures: figures_of(&self.lateness),
        })
    }
}

/// Returns at least 1, because no operation takes no time.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Returns no figures if nothing was waited for.
fn figures_of(lateness: &Histogram<u64>) -> BTreeMap<String, f64> {
    if lateness.is_empty() {
        return BTreeMap::new();
    }
    let figure = |name: &str, nanoseconds: u64| (name.to_owned(), nanoseconds as f64 * NS);
    BTreeMap::from([
        figure("start lateness p50 s", lateness.value_at_quantile(0.5)),
        figure("start lateness max s", lateness.max()),
    ])
}

/// Looks at the process and its database at the end of each period.
struct Sampler {
    start: Instant,
    before: Sample,
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    fn start(dir: &Path, period: Duration) -> Self {
        let mut walks = Walks::default();
        let (dir, before) = (dir.to_path_buf(), sample(dir, &mut walks));
        let (stop, stopped) = mpsc::channel();
        let start = Instant::now();
        let thread = thread::spawn(move || {
            let mut samples = Vec::new();
            let mut period_ends = start + period;
            loop {
                let left = period_ends.saturating_duration_since(Instant::now());
                let is_over = stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout);
                samples.push(sample(&dir, &mut walks));
                if is_over {
                    return samples;
                }
                period_ends += period;
            }
        });
        Self { start, before, stop, thread }
    }

    /// Returns the series with one figure for each of `periods`. If the sampler has fewer, the last one is
    /// repeated.
    fn finish(self, periods: usize) -> BTreeMap<String, Vec<f64>> {
        // A thread that has ended needs no stop.
        self.stop.send(()).unwrap_or_default();
        let samples = self.thread.join().unwrap_or_default();
        let written = |sample: &Sample| sample.written_bytes.saturating_sub(self.before.written_bytes);
        let series = |figure: &dyn Fn(&Sample) -> u64| {
            (0..periods).filter_map(|n| samples.get(n).or(samples.last())).map(|s| figure(s) as f64).collect()
        };
        BTreeMap::from([
            ("memory bytes".to_owned(), series(&|sample| sample.rss_bytes)),
            ("disk bytes".to_owned(), series(&|sample| sample.disk_bytes)),
            ("written bytes".to_owned(), series(&written)),
        ])
    }
}

fn latency(histogram: &Histogram<u64>) -> Latency {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 * NS;
    Latency {
        count: histogram.len(),
        mean: histogram.mean() * NS,
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: histogram.max() as f64 * NS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_shows_as_empty_periods_and_as_latency() {
        let dir = tempfile::tempdir().unwrap();
        let period = Duration::from_millis(10);
        let mut track = Track::new(&["read", "write"], period, dir.path()).unwrap();
        let at = |track: &Track, ms: u64| track.start + Duration::from_millis(ms);
        for ms in 1..10 {
            let (from, to) = (at(&track, ms - 1), at(&track, ms));
            track.record(0, from, to, 1);
        }
        // Nothing ends for 31 ms; the write was due at 10 ms.
        let (from, to) = (at(&track, 10), at(&track, 40));
        track.record(1, from, to, 20);
        let (from, to) = (at(&track, 50), at(&track, 51));
        track.record(0, from, to, 1);
        let detail = track.finish("open");
        for sampled in ["memory bytes", "disk bytes", "written bytes"] {
            assert_eq!(detail.series[sampled].len(), 5, "{sampled}");
        }
        assert_eq!(detail.series["ops/s"], [900.0, 0.0, 0.0, 0.0, 2000.0]);
        let p95 = &detail.series["write p95 s"];
        assert!(p95.len() == 5 && p95[3] == 0.0 && (p95[4] - 30e-3).abs() < 1e-4, "{p95:?}");
        assert!((detail.series["read mean s"][0] - 1e-3).abs() < 1e-5);
        assert!((detail.longest_stall_s - 0.031).abs() < 1e-9);
        let (reads, writes) = (&detail.latency["read"], &detail.latency["write"]);
        assert_eq!((reads.count, writes.count), (10, 1));
        assert!((reads.p50 - 1e-3).abs() < 1e-5 && (writes.max - 30e-3).abs() < 1e-4);
        assert!(detail.figures.is_empty(), "nothing was waited for");
    }

    #[test]
    fn lateness_is_separate_from_latency() {
        let dir = tempfile::tempdir().unwrap();
        let mut track = Track::new(&["write"], Duration::from_secs(1), dir.path()).unwrap();
        [100, 300, 200].into_iter().for_each(|us| track.began_late(Duration::from_micros(us)));
        let detail = track.finish("open");
        assert!(detail.latency.is_empty() && detail.figures.len() == 2);
        for (name, seconds) in [("start lateness p50 s", 200e-6), ("start lateness max s", 300e-6)] {
            assert!((detail.figures[name] - seconds).abs() < 1e-6, "{name}: {}", detail.figures[name]);
        }
    }
}
