//! Deliberate faults of the parts with lock-free or unsafe code, so that their models and the sanitizers can be seen to fail.
//!
//! ```text
//!   a model:         Broken::new(fault) --thread---> is_on(fault), ordering(fault, sound): the broken variant runs
//!   a unit test:     ESKER_FAULT ---------process--^
//!   everybody else:  constants, and the compiler removes what depends on them
//! ```
//!
//! `cargo xtask sanitize KIND` starts single tests with the variable set, and wants a report of the sanitizer from each.
//!
//! Faults of the whole engine, for its other test harnesses: `types/canary.rs`.

use super::atomic::Ordering;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A block is put into its slot without Release (slot.1).
    BlockNotReleased,
    /// A block is counted after it is in its slot (block_cache.1).
    BlockCountedLate,
    /// A slot of a node is shown without Release (node.1).
    PermutationNotReleased,
    /// A view is put in its place without Release (view_cell.1).
    ViewNotReleased,
    /// Whoever comes leads a group (queue.1).
    SecondLeader,
    /// A value does not keep the bytes that it points to (value.1).
    ValueNotKept,
    /// A place for a sequence number is claimed by a load and a store (seqs.2).
    PlaceClaimedTwice,
}

#[cfg(all(test, not(loom)))]
impl Fault {
    /// Those that sanitizers are to find.
    const SANITIZED: [Fault; 4] =
        [Fault::BlockNotReleased, Fault::PermutationNotReleased, Fault::ViewNotReleased, Fault::ValueNotKept];
}

#[cfg(all(test, loom))]
mod switch {
    use std::cell::Cell;

    use super::{Fault, Ordering};

    thread_local!(static ACTIVE: Cell<Option<Fault>> = const { Cell::new(None) });

    /// Breaks this for the calling thread, on which loom runs all threads of a model, until it is dropped.
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

    /// The environment variable that breaks a whole process: the name of a fault.
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

    /// Nothing is broken.
    #[inline(always)]
    pub(crate) const fn is_on(_: Fault) -> bool {
        false
    }

    /// The sound one; with the fault it is Relaxed.
    #[inline(always)]
    pub(crate) const fn ordering(_: Fault, sound: Ordering) -> Ordering {
        sound
    }
}

#[cfg(all(test, loom))]
pub(crate) use switch::Broken;
pub(crate) use switch::{is_on, ordering};
