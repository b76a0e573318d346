//! Points between two steps of the engine at which a test runs other work, as another thread could.
//!
//! ```text
//!   feature `canaries`, unit tests:   set(hook) --thread--> reached(point) --> hook, in the same thread
//!   otherwise:                      reached does nothing and is compiled away
//! ```
//!
//! A simulator has one thread. Without these points it would never see what happens between a check and the
//! commit that relies on it.
//!
//! - At each point the thread holds no lock that flushes, compactions, sweeps or commits of others wait for.
//!   It may have passed the exclusive turn (engine/writes/exclusive_turn.rs), so a hook must not begin an
//!   exclusive transaction. At `TurnAwaited` and `TurnPassed` it has not, and a hook must not commit. At
//!   `CompactionBuilt` a plan runs, so a hook must not do what waits for its end. A commit that changes the
//!   catalog holds its lock: a hook inside it must not change keyspaces.
//! - A hook does not run inside itself. The engine's own commits, such as those of sweeps and of compaction
//!   filters, reach no points (`without_points`): they are made under locks or inside a compaction.

/// A point at which other work may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The commit of a large transaction or an ingest has checked for conflicts and counted its keys, and
    /// does not have the commit lock yet (adoption.2).
    AdoptionCounted,
    /// A copy has flushed the memtables, and has not taken the manifest's state yet (capture.2).
    CaptureFlushed,
    /// A compaction beside which others may run has written its tables, and has not installed them yet
    /// (compaction_turns.1).
    CompactionBuilt,
    /// A sweep has found expired keys, and has not committed their removal yet (engine_sweep.1).
    SweepFound,
    /// A range removal has counted the keys of its range, and does not have the commit lock yet.
    RangeCounted,
    /// A commit has looked up its keys, and does not have the commit lock yet (ahead.1).
    KeysCounted,
    /// A commit is about to wait for the holder of the exclusive turn (exclusive_turn.1).
    TurnAwaited,
    /// A commit has waited for a transaction that had conflicted, and has not passed yet.
    TurnPassed,
}

#[cfg(any(test, feature = "canaries"))]
mod switch {
    use std::cell::RefCell;

    use super::Point;

    /// Runs at the points that the thread reaches.
    pub type Hook = Box<dyn FnMut(Point)>;

    thread_local!(static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) });

    /// Sets the hook that runs at each point this thread reaches. Returns the previous hook.
    pub fn set(hook: Option<Hook>) -> Option<Hook> {
        HOOK.replace(hook)
    }

    pub(crate) fn reached(point: Point) {
        let Some(mut hook) = HOOK.take() else { return };
        hook(point);
        HOOK.with_borrow_mut(|slot| {
            slot.get_or_insert(hook);
        });
    }

    /// Returns whether work may run at the points that this thread reaches.
    pub(crate) fn is_used() -> bool {
        HOOK.with_borrow(Option::is_some)
    }

    /// Runs work during which this thread reaches no point.
    pub(crate) fn without_points<T>(work: impl FnOnce() -> T) -> T {
        let hook = HOOK.take();
        let done = work();
        HOOK.set(hook);
        done
    }
}

#[cfg(not(any(test, feature = "canaries")))]
mod switch {
    use super::Point;

    #[inline(always)]
    pub(crate) const fn reached(_: Point) {}

    #[inline(always)]
    pub(crate) const fn is_used() -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn without_points<T>(work: impl FnOnce() -> T) -> T {
        work()
    }
}

#[cfg(feature = "canaries")]
pub use switch::Hook;
#[cfg(any(test, feature = "canaries"))]
pub use switch::set;
pub(crate) use switch::{is_used, reached, without_points};
