//! Output of a load on the terminal: a line for each period, like obigstore's bm_write, and a sum.

use std::path::Path;
use std::time::Duration;

use esker_bench_api::Result;

use super::{Load, Request, Source, drive_watched};
use crate::track::Series;

/// Columns of latencies and their series, in the order of obigstore's own bm_write.
const LATENCIES: [(&str, &str); 6] = [
    ("mean-ms", "mean"),
    ("median-ms", "p50"),
    ("90th-ms", "p90"),
    ("95th-ms", "p95"),
    ("99th-ms", "p99"),
    ("max-ms", "max"),
];

/// Prints a line for each period as soon as it has ended.
pub(super) struct Lines {
    /// Kind of the requests.
    kind: &'static str,
    latencies: &'static [(&'static str, &'static str)],
    period_s: f64,
    printed: usize,
    pairs: f64,
}

impl Lines {
    /// Prints the head.
    pub(super) fn new(kind: &'static str, latency: bool, period: Duration) -> Self {
        let latencies: &[_] = if latency { &LATENCIES } else { &[] };
        print!("   time-s     k-pairs  k-pairs/s");
        latencies.iter().for_each(|(name, _)| print!(" {name:>9}"));
        println!();
        Self { kind, latencies, period_s: period.as_secs_f64(), printed: 0, pairs: 0.0 }
    }

    /// Requests all pairs of the source, prints a line for each period, and sums them up.
    pub(super) fn follow(
        mut self,
        request: Request<'_>,
        source: &mut Source,
        load: Load,
        dir: &Path,
    ) -> Result<()> {
        let done = drive_watched(self.kind, request, source, load, dir, &mut |series| self.print(series))?;
        // The last period, which may be shorter.
        self.period_s = done.detail.period_s;
        self.print(&done.detail.series);
        println!(
            "{} pairs in {:.1} s, {:.0} a second",
            done.pairs,
            done.seconds,
            done.pairs as f64 / done.seconds
        );
        if let Some(latency) = done.detail.latency.get(self.kind) {
            println!(
                "latency of a request in ms ({} loop): mean {:.3}, median {:.3}, 90th {:.3}, 95th {:.3}, 99th {:.3}, 99.9th {:.3}, \
                 99.99th {:.3}, max {:.3}; longest stall {:.3}",
                done.detail.load,
                latency.mean * 1e3,
                latency.p50 * 1e3,
                latency.p90 * 1e3,
                latency.p95 * 1e3,
                latency.p99 * 1e3,
                latency.p999 * 1e3,
                latency.p9999 * 1e3,
                latency.max * 1e3,
                done.detail.longest_stall_s * 1e3
            );
        }
        if done.backlog > load.period {
            println!(
                "overloaded: the last request ended {:.1} s after it was due",
                done.backlog.as_secs_f64()
            );
        }
        Ok(())
    }

    /// Prints the periods that ended since the last call.
    fn print(&mut self, series: &Series) {
        for line in self.new_lines(series) {
            println!("{line}");
        }
    }

    fn new_lines(&mut self, series: &Series) -> Vec<String> {
        let at =
            |name: &str, n: usize| series.get(name).and_then(|values| values.get(n)).copied().unwrap_or(0.0);
        let periods = series.get("ops/s").map_or(0, Vec::len);
        (std::mem::replace(&mut self.printed, periods)..periods)
            .map(|n| {
                let rate = at("ops/s", n);
                self.pairs += rate * self.period_s;
                let time = (n + 1) as f64 * self.period_s;
                let latencies = self
                    .latencies
                    .iter()
                    .map(|(_, name)| format!(" {:9.3}", at(&format!("{} {name} s", self.kind), n) * 1e3));
                format!("{time:9.1} {:11.1} {:10.2}", self.pairs / 1e3, rate / 1e3)
                    + &latencies.collect::<String>()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_period_is_printed_once_with_all_its_percentiles() {
        let mut series: Series =
            LATENCIES.iter().map(|(_, name)| (format!("write {name} s"), vec![2e-3])).collect();
        series.insert("ops/s".to_owned(), vec![1000.0]);
        let mut lines = Lines { kind: "write", latencies: &LATENCIES, period_s: 5.0, printed: 0, pairs: 0.0 };
        let expected =
            "      5.0         5.0       1.00     2.000     2.000     2.000     2.000     2.000     2.000";
        assert_eq!(lines.new_lines(&series), [expected]);
        assert_eq!(lines.new_lines(&series), [""; 0]);
        series.values_mut().for_each(|values| values.extend([0.0, 500.0]));
        let more = lines.new_lines(&series);
        assert!(more.len() == 2 && more[1].starts_with("     15.0         7.5       0.50"), "{more:?}");
    }
}
