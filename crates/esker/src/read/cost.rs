//! What readers lose to extra sources: the evidence for merging early (ski rental, DESIGN D1).
//!
//! RD1. Counting costs a reader about a nanosecond: each thread counts for itself and adds up rarely.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::view::ReadView;

/// Positioning one more source costs about so much (measured: 150 to 300 ns).
const EXTRA_SOURCE_NS: u64 = 250;
/// A thread reports every so many walks.
const REPORT_EVERY: u32 = 64;

thread_local! {
    static WALKS: Cell<u32> = const { Cell::new(0) };
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
        WALKS.with(|walks| {
            let n = walks.get() + 1;
            walks.set(n % REPORT_EVERY);
            if n == REPORT_EVERY {
                self.report(view);
            }
        });
    }

    #[cold]
    fn report(&self, view: &ReadView) {
        let memtables = view.memtables().filter(|m| !m.is_empty()).count();
        let extra = (memtables + view.version.runs().len()).saturating_sub(1) as u64;
        self.lost_ns.fetch_add(extra * EXTRA_SOURCE_NS * u64::from(REPORT_EVERY), Ordering::Relaxed);
    }

    /// The time lost since the last reset.
    pub fn lost_ns(&self) -> u64 {
        self.lost_ns.load(Ordering::Relaxed)
    }

    /// Starts again from zero: the sources were merged.
    pub fn reset(&self) {
        self.lost_ns.store(0, Ordering::Relaxed);
    }
}
