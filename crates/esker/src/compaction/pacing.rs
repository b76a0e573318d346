//! Computes how far compaction is behind, and how long a writer waits so that it stays within bounds.
//!
//! ```text
//!   delay of a write = its share of compaction work * pressure^2
//!   pressure: 0 up to the soft limit, 1 at the hard limit, larger beyond it
//! ```
//!
//! - The delay is a continuous function of the backlog, without steps and without memory of earlier stalls.
//! - At the hard limit writers get exactly the speed that compaction sustains. Beyond it they get less,
//!   because the estimates were wrong.
//! - What cannot be compacted does not count: waiting would not help.
//!
//! If the data exceeds the cache, a backlog affects all tiers alike (tiers.rs), so the runs of L0 measure all
//! of them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::partition::{free_bytes, stuck};
use super::plan::Limits;
use crate::manifest::level::Level;
use crate::manifest::version::Version;
use crate::types::FileId;

/// L0 runs at the hard limit, as a multiple of the soft limit.
const HARD_RUNS_FACTOR: usize = 2;
const PRESSURE_MAX: f64 = 4.0;
/// Maximum delay of one commit.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// How far compaction is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Backlog {
    /// Flushed runs that are not compacted yet.
    pub l0_runs: usize,
    /// Bytes above the base that exceed the target shape.
    pub pending_bytes: u64,
    /// 0 up to the soft limit, 1 at the hard limit.
    pub pressure: f64,
}

impl Backlog {
    /// Returns whether the hard limit is reached.
    pub(crate) fn is_hard(&self) -> bool {
        self.pressure >= 1.0
    }
}

/// Returns the backlog of a version without the tables that wait for unreadable ones.
pub(crate) fn backlog<T>(version: &Version<T>, limits: &Limits, unreadable: &BTreeSet<FileId>) -> Backlog {
    let stuck = stuck(version, unreadable, limits.fits_cache);
    let above_base = version.runs().iter().filter(|run| run.level != Level::BASE);
    let (mut l0_runs, mut l0_bytes, mut upper) = (0, 0, 0);
    for (level, bytes) in above_base.filter_map(|run| Some((run.level, free_bytes(run, &stuck)?))) {
        upper += bytes;
        if level == Level::L0 {
            (l0_runs, l0_bytes) = (l0_runs + 1, l0_bytes + bytes);
        }
    }
    let base_bytes = version.base().map_or(0, |run| run.bytes());
    // A small base may have a few tables above it in any case.
    let floor = 4 * limits.table_bytes;
    // Beyond the cache, the tiers above the last one hold half as much again, and each tier waits for its
    // turn.
    let parts = if limits.fits_cache { 1 } else { 2 };
    let upper_soft = (parts * base_bytes / limits.base_ratio.max(1)).max(floor);
    let upper_hard = base_bytes.max(4 * floor).max(2 * upper_soft);
    let excess = upper.saturating_sub(upper_soft);
    let over_runs = l0_runs > limits.l0_runs_max;
    let pending_bytes = if over_runs { excess.max(l0_bytes) } else { excess };
    let runs_soft = limits.l0_runs_max.max(1);
    let pressure_of_runs = (l0_runs as f64 - runs_soft as f64) / (runs_soft * (HARD_RUNS_FACTOR - 1)) as f64;
    let pressure_of_bytes = excess as f64 / (upper_hard - upper_soft).max(1) as f64;
    let pressure = pressure_of_runs.max(pressure_of_bytes).clamp(0.0, PRESSURE_MAX);
    Backlog { l0_runs, pending_bytes, pressure }
}

/// Returns how long a commit of `bytes` waits. `write_amplification` is the number of bytes that compaction
/// writes per byte written.
pub(crate) fn write_delay(
    backlog: &Backlog,
    bytes: u64,
    bytes_per_second: u64,
    write_amplification: f64,
) -> Duration {
    let share = bytes as f64 * write_amplification / bytes_per_second.max(1) as f64;
    let seconds = share * backlog.pressure * backlog.pressure;
    Duration::try_from_secs_f64(seconds).unwrap_or(DELAY_MAX).min(DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::picker::tests::parse_version;
    use super::*;

    fn runs(n: usize) -> Backlog {
        let tables: Vec<_> = (0..n).map(|i| format!("{}[a-z]1", i + 10)).collect();
        let version = parse_version(&format!("L0: {}  base: 1[a-z]1000", tables.join(" / ")));
        backlog(&version, &Limits::default(), &BTreeSet::new())
    }

    #[test]
    fn the_delay_grows_smoothly_from_the_soft_limit_to_merging_speed() {
        let delay = |n| write_delay(&runs(n), 1 << 20, 100 << 20, 5.0).as_micros();
        assert_eq!([delay(1), delay(4)], [0, 0]);
        assert_eq!([delay(5), delay(6), delay(8)], [3125, 12_500, 50_000]);
        assert_eq!(delay(12), 200_000, "beyond the hard limit it goes on growing");
        assert!(!runs(7).is_hard() && runs(8).is_hard());
        assert_eq!((runs(4).pending_bytes, runs(5).pending_bytes), (0, 5 << 20));
    }

    #[test]
    fn too_much_above_the_base_counts_as_well() {
        let of = |upper: u64| {
            let text = format!("tier: 2[a-z]{upper}  base: 1[a-z]4000");
            backlog(&parse_version(&text), &Limits::default(), &BTreeSet::new())
        };
        assert_eq!((of(1000).pressure, of(2500).pressure, of(4000).pressure), (0.0, 0.5, 1.0));
        assert_eq!(of(1010).pending_bytes, 10 << 20);
        let empty = backlog(&Version::<()>::empty(), &Limits::default(), &BTreeSet::new());
        assert_eq!(empty, Backlog { l0_runs: 0, pending_bytes: 0, pressure: 0.0 });
    }

    #[test]
    fn what_cannot_be_compacted_does_not_count() {
        let tables: Vec<_> = (0..8).map(|i| format!("{}[a-b]1 {}[m-n]1", i + 10, i + 20)).collect();
        let version = parse_version(&format!("L0: {}  base: 1[a-c]1000 2[m-p]1000", tables.join(" / ")));
        let of = |unreadable: &[u64]| {
            let unreadable = unreadable.iter().map(|&f| FileId::new(f)).collect();
            let backlog = backlog(&version, &Limits::default(), &unreadable);
            (backlog.l0_runs, backlog.pending_bytes >> 20, backlog.is_hard())
        };
        assert_eq!(of(&[]), (8, 16, true));
        assert_eq!(of(&[1]), (8, 8, true), "the other half is still to be merged");
        assert_eq!(of(&[1, 22]), (0, 0, false));
    }
}
