//! Points between two steps of the engine at which a test runs other work, as another thread could.
//!
//! ```text
//!   feature `canaries`, or unit tests:   set(hook) --thread--> reached(point) --> the hook runs, in the same thread
//!   everybody else:                      reached does nothing, and the compiler removes it
//! ```
//!
//! A simulator has one thread. Without these points it would never see what happens between a look and the commit that
//! relies on it.
//!
//! interleave.1. At each point the thread holds no lock that flushes, compactions, sweeps or commits of others wait for.
//!     It may have a right of passage (engine/writes/exclusive_turn.rs): a hook must not begin an exclusive transaction.
//! interleave.2. A hook does not run inside itself.

/// Where other work may come in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The commit of a large transaction or an ingest has looked for conflicts and counted its keys, and does not have
    /// the commit lock yet (adoption.2).
    AdoptionCounted,
    /// A copy has flushed the memtables, and has not taken the manifest's state yet (capture.2).
    CaptureFlushed,
    /// The sweep has found keys that have expired, and has not committed their removal yet (engine_sweep.1).
    SweepFound,
    /// A range removal has counted the keys of its range, and does not have the commit lock yet (range_count.1).
    RangeCounted,
}

#[cfg(any(test, feature = "canaries"))]
mod switch {
    use std::cell::RefCell;

    use super::Point;

    /// What runs at the points that the thread reaches.
    pub type Hook = Box<dyn FnMut(Point)>;

    thread_local!(static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) });

    /// Runs `hook` at each point that this thread reaches from here on; none: nothing. Returns the hook before.
    pub fn set(hook: Option<Hook>) -> Option<Hook> {
        HOOK.replace(hook)
    }

    pub(crate) fn reached(point: Point) {
        // interleave.2
        let Some(mut hook) = HOOK.take() else { return };
        hook(point);
        HOOK.with_borrow_mut(|slot| {
            slot.get_or_insert(hook);
        });
    }
}

#[cfg(not(any(test, feature = "canaries")))]
mod switch {
    use super::Point;

    #[inline(always)]
    pub(crate) const fn reached(_: Point) {}
}

#[cfg(feature = "canaries")]
pub use switch::Hook;
pub(crate) use switch::reached;
#[cfg(any(test, feature = "canaries"))]
pub use switch::set;
