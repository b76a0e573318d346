//! Estimates the time that readers lose to extra sources. The compaction picker compacts early once this cost
//! exceeds the cost of a compaction, as in the ski-rental problem (compaction/picker.rs).
//!
//! Counting costs a reader about a nanosecond, because each thread counts for itself and rarely adds to the
//! shared total.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::view::ReadView;

/// Estimated cost of positioning one more source for an iterator (measured: 150 to 300 ns).
const WALK_NS: u32 = 250;
/// Estimated cost of one more source for a lookup: a cache line of a filter (measured: 15 to 60 ns).
const LOOK_UP_NS: u32 = 40;
/// A thread reports its estimate after this much time per extra source.
const REPORT_NS: u32 = 16_000;

thread_local! {
    static GATHERED_NS: Cell<u32> = const { Cell::new(0) };
}

/// Estimated time that readers lost, in nanoseconds.
#[derive(Debug, Default)]
pub struct ReadCost {
    lost_ns: AtomicU64,
}

impl ReadCost {
    /// Counts an iterator over a view.
    #[inline]
    pub fn walk_started(&self, view: &ReadView) {
        self.gather(WALK_NS, view);
    }

    /// Counts the lookup of a key in a view.
    #[inline]
    pub fn looked_up(&self, view: &ReadView) {
        self.gather(LOOK_UP_NS, view);
    }

    #[inline]
    fn gather(&self, ns: u32, view: &ReadView) {
        GATHERED_NS.with(|gathered| {
            let sum = gathered.get() + ns;
            gathered.set(if sum < REPORT_NS { sum } else { 0 });
            if sum >= REPORT_NS {
                self.report(sum, view);
            }
        });
    }

    #[cold]
    fn report(&self, ns: u32, view: &ReadView) {
        let memtables = view.memtables().filter(|m| !m.is_empty()).count();
        let extra = (memtables + view.version.runs().len()).saturating_sub(1) as u64;
        self.lost_ns.fetch_add(extra * u64::from(ns), Ordering::Relaxed);
    }

    /// Time lost since the last reset.
    pub fn lost_ns(&self) -> u64 {
        self.lost_ns.load(Ordering::Relaxed)
    }

    /// Deducts the cost of a compaction that left several sources.
    pub fn deduct(&self, ns: u64) {
        let _ = self
            .lost_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |lost| Some(lost.saturating_sub(ns)));
    }

    /// Resets the estimate after the sources were compacted into one.
    pub fn reset(&self) {
        self.lost_ns.store(0, Ordering::Relaxed);
    }
}
