//! Deliberate faults. Each breaks one promise of the engine, so that a test harness can show that it would
//! notice.
//!
//! ```text
//!   feature `canaries`, unit tests:   set(Some(fault)) --thread---> is_set(fault) --> broken variant runs
//!                                     ESKER_CANARY ------process--^
//!   otherwise:                        is_set is constant false: the broken variant is compiled away
//! ```
//!
//! Without the feature there is no switch: nothing can turn a fault on.
//!
//! A fault is on for the thread that set it. If its name is in the environment, it is on for the whole
//! process: for harnesses in which the engine runs threads. The feature serves the tests of `esker-sim`,
//! `esker-torture` and `esker-fuzz-targets`, which take it as a development dependency, and fuzzers that are
//! to be seen to fail. Programs for users are built without it.

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Records of a segment's earlier use are read as current (wal.4).
    WalGenerationIgnored,
    /// A `Sync` commit is acknowledged once the operating system has its record (commit.1).
    WalSyncSkipped,
    /// The timed sync passes records to the operating system without syncing them.
    TimedSyncSkipped,
    /// A segment gets its successor before it is durable (wal.3).
    WalEndNotSynced,
    /// A segment is used before its name is durable (wal.1).
    WalNameNotSynced,
    /// Recovery treats what it read from the log as durable (recovery.4).
    WalTailNotSynced,
    /// The log continues after a failed write or sync, or a panic in one (wal.6, poison.1).
    PoisonForgotten,
    /// A flush releases the log before the manifest names its tables (flush.1).
    WalReleasedEarly,
    /// A compaction drops tombstones above older versions (compaction_judge.3).
    TombstoneDroppedEarly,
    /// A compaction drops range tombstones (compaction_judge.3).
    RangeTombstoneForgotten,
    /// A compaction ignores the snapshots (compaction_judge.1, snapshots.2).
    SnapshotIgnored,
    /// Tables below a range tombstone are removed although a snapshot sees them (covered.1).
    CoveredTableDroppedEarly,
    /// Tables are removed because of a range tombstone that only the log has, not durably (covered.3).
    CoverNotSynced,
    /// Tables are adopted below a memtable with older versions of their keys (adoption.1).
    AdoptedUnderMemtable,
    /// After opening, the last sequence number is used again (commit.2).
    SeqNoReused,
    /// Filters leave out some keys (bloom.1).
    FilterForgets,
    /// A transaction commits without checking what others wrote (conflict.1).
    ConflictCheckSkipped,
    /// A serializable transaction commits without checking whether its reads still hold (read_set.1).
    ReadCheckSkipped,
    /// A transaction releases its locks before it commits. Found by the tests of db/locks.rs: the
    /// simulator has one thread.
    LockReleasedEarly,
    /// Dropped keyspaces accept commits (catalog.3).
    DropNotMarked,
    /// Removals do not change the count (counts.1).
    CountNotUpdated,
    /// Commits forget which keys they wrote (recent_writes.1).
    RecentWritesForgotten,
    /// An edit takes effect before it is durable (manifest_log.1).
    ManifestNotSynced,
    /// `CURRENT` is renamed into place before its content is durable (manifest_log.2).
    CurrentNotSynced,
    /// A compaction removes its inputs before the manifest stops naming them (execute.2).
    TableRemovedEarly,
    /// Tables are used although the sync of their names failed (execute.1).
    TableNameFailureIgnored,
    /// Tables are used before their content is durable (execute.1).
    TableNotSynced,
    /// A commit with a torn value is replayed (recovery.9).
    TornBlobAccepted,
    /// A blob file is removed although commits that are in no table yet refer to it (collect.2).
    BlobDroppedEarly,
    /// Tables do not count the values that they refer to in blob files (collect.1). Forgetting only some
    /// would make garbage collection run for ever.
    BlobReferenceForgotten,
    /// Compactions drop unresolved versions (compaction_judge.6).
    UnresolvedForgotten,
    /// Expired versions are returned (time.1).
    ExpiredReturned,
    /// Tables of large transactions are adopted before their content is durable.
    AdoptedTableNotSynced,
    /// The change feed leaves out some commits (follow.1).
    FeedSkips,
    /// The change feed shows commits before they are durable (follow.2). Found by the simulation of
    /// replication in `esker-server`.
    FeedBeforeDurable,
    /// Of several operands only the newest is merged (fold.1).
    OperandDropped,
    /// Compactions ignore the rules of history (compaction_judge.7).
    HistoryForgotten,
    /// A checkpoint returns before its name is durable (workplace.1).
    CopyNameNotSynced,
    /// A large transaction is adopted below what a sweep has written meanwhile (adoption.1).
    SweptAboveAdopted,
    /// A copy is taken although its tables lack what a later commit removed (capture.5).
    CaptureMissesCovered,
    /// An operand applies to a value that had expired before the merge (fold.3).
    OperandOutlivesBase,
    /// A merge drops the expiry of a value (fold.3).
    MergeForgetsExpiry,
    /// A merge that creates a value does not give it the default lifetime of its keyspace (fold.3).
    MergeIgnoresDefault,
    /// A value replaced by an update gets the default lifetime of its keyspace, or none, instead of keeping
    /// its own.
    UpdateForgetsExpiry,
    /// The record of a sequence gets the default lifetime of its keyspace.
    SequenceExpires,
    /// A serializable transaction forgets what a length revealed about keys whose writes are rolled back.
    UndoneReadForgotten,
    /// A serializable transaction forgets that it looked up the name of a keyspace.
    NameReadForgotten,
    /// The versions of a key include the bare removal that a compaction leaves in place of a value
    /// (compaction_judge.6).
    BareRemovalShown,
    /// A transaction that merges into an entry swept meanwhile commits (conflict.3).
    OperandPassesSweep,
    /// Segments of the archive are used only if their wall clock is not before the backup's
    /// (restore_point.3).
    ArchiveByClock,
    /// Replay refuses a commit that creates a keyspace under a name that the same commit frees.
    RecreatedNameRefused,
    /// Replayed operands apply to what their key holds at the time of the replay (fold.3).
    ReplayForgetsTime,
    /// A load sets options of keyspaces in commits after the one that records its position (unload.3).
    LoadOptionsLate,
    /// Loaded entries without expiry get the default lifetime that their keyspace had before (unload.2).
    LoadTakesDefault,
    /// The oldest entries of a keyspace go at a quarter of its maximum size.
    OldestRemovedEarly,
    /// A commit that has waited for another holder of the turn passes an exclusive transaction.
    WaiterPassesExclusive,
}

#[cfg(any(test, feature = "canaries"))]
impl Canary {
    /// The canaries that the simulator has to find.
    pub const ALL: [Canary; 54] = [
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
        Canary::CoveredTableDroppedEarly,
        Canary::CoverNotSynced,
        Canary::AdoptedUnderMemtable,
        Canary::SeqNoReused,
        Canary::FilterForgets,
        Canary::ConflictCheckSkipped,
        Canary::ReadCheckSkipped,
        Canary::DropNotMarked,
        Canary::CountNotUpdated,
        Canary::RecentWritesForgotten,
        Canary::ManifestNotSynced,
        Canary::CurrentNotSynced,
        Canary::TableRemovedEarly,
        Canary::TableNameFailureIgnored,
        Canary::TableNotSynced,
        Canary::TornBlobAccepted,
        Canary::BlobDroppedEarly,
        Canary::BlobReferenceForgotten,
        Canary::AdoptedTableNotSynced,
        Canary::UnresolvedForgotten,
        Canary::FeedSkips,
        Canary::ExpiredReturned,
        Canary::OperandDropped,
        Canary::HistoryForgotten,
        Canary::CopyNameNotSynced,
        Canary::SweptAboveAdopted,
        Canary::CaptureMissesCovered,
        Canary::OperandOutlivesBase,
        Canary::MergeForgetsExpiry,
        Canary::MergeIgnoresDefault,
        Canary::UpdateForgetsExpiry,
        Canary::SequenceExpires,
        Canary::UndoneReadForgotten,
        Canary::NameReadForgotten,
        Canary::BareRemovalShown,
        Canary::OperandPassesSweep,
        Canary::ArchiveByClock,
        Canary::RecreatedNameRefused,
        Canary::ReplayForgetsTime,
        Canary::LoadOptionsLate,
        Canary::LoadTakesDefault,
        Canary::OldestRemovedEarly,
        Canary::WaiterPassesExclusive,
    ];
}

#[cfg(any(test, feature = "canaries"))]
mod switch {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use super::Canary;

    /// The environment variable that names a canary for a whole process.
    const VARIABLE: &str = "ESKER_CANARY";

    thread_local!(static ACTIVE: Cell<Option<Canary>> = const { Cell::new(None) });

    static EVERYWHERE: LazyLock<Option<Canary>> = LazyLock::new(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let named = Canary::ALL.into_iter().find(|canary| format!("{canary:?}") == name);
        Some(named.unwrap_or_else(|| panic!("{VARIABLE}: there is no fault of the name {name}")))
    });

    /// Turns on this fault, and no other, for the calling thread.
    pub fn set(canary: Option<Canary>) {
        ACTIVE.set(canary);
    }

    /// Returns the fault that is on for the calling thread.
    #[cfg(feature = "canaries")]
    pub fn active() -> Option<Canary> {
        ACTIVE.get()
    }

    /// Returns whether this fault is on.
    pub(crate) fn is_set(canary: Canary) -> bool {
        ACTIVE.get() == Some(canary) || *EVERYWHERE == Some(canary)
    }
}

#[cfg(not(any(test, feature = "canaries")))]
mod switch {
    use super::Canary;

    /// No fault is on.
    #[inline(always)]
    pub(crate) const fn is_set(_: Canary) -> bool {
        false
    }
}

#[cfg(feature = "canaries")]
pub use switch::active;
pub(crate) use switch::is_set;
#[cfg(any(test, feature = "canaries"))]
pub use switch::set;
