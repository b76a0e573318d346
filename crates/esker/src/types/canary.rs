//! Deliberate faults: each breaks one promise of the engine, so that a test harness can show that it would notice.
//!
//! ```text
//!   feature `canaries`, or unit tests:   set(Some(fault)) --thread---> is_set(fault) --> the broken variant runs
//!                                        ESKER_CANARY ------process--^
//!   everybody else:                      is_set is a constant false, and the compiler removes what depends on it
//! ```
//!
//! CA1. Without the feature there is no switch: nothing can turn a fault on.
//! CA2. A fault is on for the thread that turned it on, and no other; or for the whole of a process that was started with its
//!      name in the environment, for harnesses whose engine has threads of its own.
//!
//! The feature is for the tests of `esker-sim`, `esker-torture` and `esker-fuzz-targets`, which take it as a development
//! dependency, and for fuzzers that are to be seen to fail: programs that are built for users never have it.

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Records of a segment's earlier life are taken for its own (W4).
    WalGenerationIgnored,
    /// A `Sync` commit is acknowledged when its record is with the operating system (T1).
    WalSyncSkipped,
    /// The timed sync hands records to the operating system, and does not sync them (BG4).
    TimedSyncSkipped,
    /// A segment gets its successor before it is durable itself (W3).
    WalEndNotSynced,
    /// A segment is put to use before its name is durable (W1).
    WalNameNotSynced,
    /// Recovery takes what it read from the log for durable (R4).
    WalTailNotSynced,
    /// After a failed write or sync, or a panic in one, the log goes on (W6, T3).
    PoisonForgotten,
    /// A flush gives up the log before the manifest names its tables (MT1).
    WalReleasedEarly,
    /// A merge drops tombstones under which older versions still lie (GC3).
    TombstoneDroppedEarly,
    /// A merge forgets range tombstones (GC3).
    RangeTombstoneForgotten,
    /// A merge does not know the snapshots (GC1, SN2).
    SnapshotIgnored,
    /// After opening, the last sequence number is given out again (T2).
    SeqNoReused,
    /// The filters do not take every key (BF1).
    FilterForgets,
    /// A transaction commits without a look at what others wrote (CF1).
    ConflictCheckSkipped,
    /// Keyspaces that are dropped take commits (CT3).
    DropNotMarked,
    /// Removals do not change the count (A1).
    CountNotUpdated,
    /// An edit counts before it is durable (ML1).
    ManifestNotSynced,
    /// `CURRENT` is renamed into place before its bytes are durable (ML2).
    CurrentNotSynced,
    /// A merge removes its inputs before the manifest stops to name them (EX2).
    TableRemovedEarly,
    /// Tables count although the sync of their names has failed (EX1).
    TableNameFailureIgnored,
    /// Tables count before their bytes are durable (EX1).
    TableNotSynced,
}

#[cfg(any(test, feature = "canaries"))]
impl Canary {
    /// Every one.
    pub const ALL: [Canary; 21] = [
        Canary::WalGenerationIgnored,
        Canary::WalSyncSkipped,
        Canary::TimedSyncSkipped,
        Canary::WalEndNotSynced,
        Canary::WalNameNotSynced,
        Canary::WalTailNotSynced,
        Canary::PoisonForgotten,
        Canary::WalReleasedEarly,
        Canary::TombstoneDroppedEarly,
        Canary::RangeTombstoneForgotten,
        Canary::SnapshotIgnored,
        Canary::SeqNoReused,
        Canary::FilterForgets,
        Canary::ConflictCheckSkipped,
        Canary::DropNotMarked,
        Canary::CountNotUpdated,
        Canary::ManifestNotSynced,
        Canary::CurrentNotSynced,
        Canary::TableRemovedEarly,
        Canary::TableNameFailureIgnored,
        Canary::TableNotSynced,
    ];
}

#[cfg(any(test, feature = "canaries"))]
mod switch {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use super::Canary;

    /// The environment variable that breaks a whole process: the name of a canary.
    const VARIABLE: &str = "ESKER_CANARY";

    thread_local!(static ACTIVE: Cell<Option<Canary>> = const { Cell::new(None) });

    static EVERYWHERE: LazyLock<Option<Canary>> = LazyLock::new(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let named = Canary::ALL.into_iter().find(|canary| format!("{canary:?}") == name);
        Some(named.unwrap_or_else(|| panic!("{VARIABLE}: there is no fault of the name {name}")))
    });

    /// Breaks this, and nothing else, for the calling thread.
    pub fn set(canary: Option<Canary>) {
        ACTIVE.set(canary);
    }

    /// Whether this is broken.
    pub(crate) fn is_set(canary: Canary) -> bool {
        ACTIVE.get() == Some(canary) || *EVERYWHERE == Some(canary)
    }
}

#[cfg(not(any(test, feature = "canaries")))]
mod switch {
    use super::Canary;

    /// Nothing is broken.
    #[inline(always)]
    pub(crate) const fn is_set(_: Canary) -> bool {
        false
    }
}

pub(crate) use switch::is_set;
#[cfg(any(test, feature = "canaries"))]
pub use switch::set;
