//! Deliberate faults in lock-free and unsafe code. They prove that the loom models and the sanitizers can
//! fail.
//!
//! ```text
//!   loom model:      Broken::new(fault) --thread---> is_on(fault), ordering(fault, sound): broken variant
//!   unit test:       ESKER_FAULT ---------process--^
//!   other builds:    constants; the compiler removes what depends on them
//! ```
//!
//! `cargo xtask sanitize KIND` runs single tests with the variable set and expects the sanitizer to report
//! each.
//!
//! Faults of the whole engine, for the other test harnesses, are in `types/canary.rs`.

use super::atomic::Ordering;

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A block is inserted into its slot without Release (slot.1).
    BlockNotReleased,
    /// A block is counted after it is in its slot (block_cache.1).
    BlockCountedLate,
    /// A slot of a node is exposed without Release (node.1).
    PermutationNotReleased,
    /// A view is published without Release (view_cell.1).
    ViewNotReleased,
    /// Every thread that arrives leads a group (queue.1).
    SecondLeader,
    /// A value does not keep alive the bytes that it points to (value.1).
    ValueNotKept,
    /// A slot for a sequence number is claimed by a load and a store (seqs.2).
    PlaceClaimedTwice,
}

#[cfg(all(test, not(loom)))]
impl Fault {
    /// Faults that sanitizers must detect.
    const SANITIZED: [Fault; 4] =
        [Fault::BlockNotReleased, Fault::PermutationNotReleased, Fault::ViewNotReleased, Fault::ValueNotKept];
}

#[cfg(all(test, loom))]
mod switch {
    use std::cell::Cell;

    use super::{Fault, Ordering};

    thread_local!(static ACTIVE: Cell<Option<Fault>> = const { Cell::new(None) });

    /// Enables a fault on the calling thread, where loom runs all threads of a model, until it is dropped.
    pub(crate) struct Broken(());

    impl Broken {
        pub(crate) fn new(fault: Fault) -> Broken {
            ACTIVE.set(Some(fault));
            Broken(())
        }
    }

    impl Drop for Broken {
        fn drop(&mut self) {
            ACTIVE.set(None);
        }
    }

    pub(crate) fn is_on(fault: Fault) -> bool {
        ACTIVE.get() == Some(fault)
    }

    pub(crate) fn ordering(fault: Fault, sound: Ordering) -> Ordering {
        if is_on(fault) { Ordering::Relaxed } else { sound }
    }
}

#[cfg(all(test, not(loom)))]
mod switch {
    use std::sync::LazyLock;

    use super::{Fault, Ordering};

    /// The environment variable that names the fault of a whole process.
    const VARIABLE: &str = "ESKER_FAULT";

    static ACTIVE: LazyLock<Option<Fault>> = LazyLock::new(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let named = Fault::SANITIZED.into_iter().find(|fault| format!("{fault:?}") == name);
        Some(named.unwrap_or_else(|| panic!("{VARIABLE}: there is no fault of the name {name}")))
    });

    pub(crate) fn is_on(fault: Fault) -> bool {
        *ACTIVE == Some(fault)
    }

    pub(crate) fn ordering(fault: Fault, sound: Ordering) -> Ordering {
        if is_on(fault) { Ordering::Relaxed } else { sound }
    }
}

#[cfg(not(test))]
mod switch {
    use super::{Fault, Ordering};

    /// No fault is enabled.
    #[inline(always)]
    pub(crate) const fn is_on(_: Fault) -> bool {
        false
    }

    /// Returns the sound ordering, or Relaxed if the fault is on.
    #[inline(always)]
    pub(crate) const fn ordering(_: Fault, sound: Ordering) -> Ordering {
        sound
    }
}

#[cfg(all(test, loom))]
pub(crate) use switch::Broken;
pub(crate) use switch::{is_on, ordering};
