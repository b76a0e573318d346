//! Deliberate faults, for tests that show that the simulator finds them. Not part of the API.
//!
//! A fault is on for the thread that set it. Without the feature `canaries` there is no switch.

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A resolution does not stop a commit that is still to come (lanes.2).
    FenceForgotten,
    /// The record of a commit does not have its number (lanes.1).
    RecordForgotten,
}

#[cfg(feature = "canaries")]
mod switch {
    use std::cell::Cell;

    use super::Canary;

    thread_local!(static ACTIVE: Cell<Option<Canary>> = const { Cell::new(None) });

    /// Turns on this fault, and no other, for the calling thread.
    pub fn set(canary: Option<Canary>) {
        ACTIVE.set(canary);
    }

    pub(crate) fn is_set(canary: Canary) -> bool {
        ACTIVE.get() == Some(canary)
    }
}

#[cfg(not(feature = "canaries"))]
mod switch {
    use super::Canary;

    /// No fault is on.
    #[inline(always)]
    pub(crate) const fn is_set(_: Canary) -> bool {
        false
    }
}

pub(crate) use switch::is_set;
#[cfg(feature = "canaries")]
pub use switch::set;
