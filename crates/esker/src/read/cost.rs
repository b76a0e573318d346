//! What readers lose to extra sources: the evidence for merging early, as a ski rental: it is weighed against what
//! a compaction costs (compaction/picker.rs).
//!
//! cost.1. Counting costs a reader about a nanosecond: each thread counts for itself and adds up rarely.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::view::ReadView;

/// Positioning one more source costs a walk about so much (measured: 150 to 300 ns).
const WALK_NS: u32 = 250;
/// Asking one more source costs a look-up about so much: a filter's cache line (measured: 15 to 60 ns).
const LOOK_UP_NS: u32 = 40;
/// A thread reports when it has gathered so much for each extra source.
const REPORT_NS: u32 = 16_000;

thread_local! {
    static GATHERED_NS: Cell<u32> = const { Cell::new(0) };
}

/// The time that readers lost, in nanoseconds, by estimate.
#[derive(Debug, Default)]
pub struct ReadCost {
    lost_ns: AtomicU64,
}

impl ReadCost {
    /// A walk over a view begins.
    #[inline]
    pub fn walk_started(&self, view: &ReadView) {
        self.gather(WALK_NS, view);
    }

    /// A key is looked up in a view.
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

    /// The time lost since the last reset.
    pub fn lost_ns(&self) -> u64 {
        self.lost_ns.load(Ordering::Relaxed)
    }

    /// So much of it has paid for a merge that left several sources.
    pub fn pay(&self, ns: u64) {
        let _ = self
            .lost_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |lost| Some(lost.saturating_sub(ns)));
    }

    /// Starts again from zero: the sources were merged.
    pub fn reset(&self) {
        self.lost_ns.store(0, Ordering::Relaxed);
    }
}
