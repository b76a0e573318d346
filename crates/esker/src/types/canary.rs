//! Deliberate faults: each breaks one promise of the engine, so that a test harness can show that it would notice.
//!
//! ```text
//!   feature `canaries`, or unit tests:   set(Some(fault)) --thread---> is_set(fault) --> the broken variant runs
//!                                        ESKER_CANARY ------process--^
//!   everybody else:                      is_set is a constant false, and the compiler removes what depends on it
//! ```
//!
//! canary.1. Without the feature there is no switch: nothing can turn a fault on.
//! canary.2. A fault is on for the thread that turned it on, and no other; or for the whole of a process that was started with its
//!      name in the environment, for harnesses whose engine has threads of its own.
//!
//! The feature is for the tests of `esker-sim`, `esker-torture` and `esker-fuzz-targets`, which take it as a development
//! dependency, and for fuzzers that are to be seen to fail: programs that are built for users never have it.

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Records of a segment's earlier life are taken for its own (wal.4).
    WalGenerationIgnored,
    /// A `Sync` commit is acknowledged when its record is with the operating system (commit.1).
    WalSyncSkipped,
    /// The timed sync hands records to the operating system, and does not sync them (engine_background.4).
    TimedSyncSkipped,
    /// A segment gets its successor before it is durable itself (wal.3).
    WalEndNotSynced,
    /// A segment is put to use before its name is durable (wal.1).
    WalNameNotSynced,
    /// Recovery takes what it read from the log for durable (recovery.4).
    WalTailNotSynced,
    /// After a failed write or sync, or a panic in one, the log goes on (wal.6, poison.1).
    PoisonForgotten,
    /// A flush gives up the log before the manifest names its tables (flush.1).
    WalReleasedEarly,
    /// A compaction drops tombstones under which older versions still lie (compaction_judge.3).
    TombstoneDroppedEarly,
    /// A compaction forgets range tombstones (compaction_judge.3).
    RangeTombstoneForgotten,
    /// A compaction does not know the snapshots (compaction_judge.1, snapshots.2).
    SnapshotIgnored,
    /// Tables that a range tombstone covers go although a snapshot sees them (covered.1).
    CoveredTableDroppedEarly,
    /// Tables go because of a range tombstone that only the log has, and it not durably (covered.3).
    CoverNotSynced,
    /// Tables are adopted under a memtable that holds older versions of their keys (adoption.1).
    AdoptedUnderMemtable,
    /// After opening, the last sequence number is given out again (commit.2).
    SeqNoReused,
    /// The filters do not take every key (bloom.1).
    FilterForgets,
    /// A transaction commits without a look at what others wrote (conflict.1).
    ConflictCheckSkipped,
    /// A serializable transaction commits without a look at whether what it read has changed (read_set.1).
    ReadCheckSkipped,
    /// A transaction gives its locks back before it commits (locks.1). The simulator has one thread: the tests of db/locks.rs find it.
    LockReleasedEarly,
    /// Keyspaces that are dropped take commits (catalog.3).
    DropNotMarked,
    /// Removals do not change the count (counts.1).
    CountNotUpdated,
    /// An edit counts before it is durable (manifest_log.1).
    ManifestNotSynced,
    /// `CURRENT` is renamed into place before its bytes are durable (manifest_log.2).
    CurrentNotSynced,
    /// A compaction removes its inputs before the manifest stops to name them (execute.2).
    TableRemovedEarly,
    /// Tables count although the sync of their names has failed (execute.1).
    TableNameFailureIgnored,
    /// Tables count before their bytes are durable (execute.1).
    TableNotSynced,
    /// A commit is replayed although a value of it is torn (recovery.9).
    TornBlobAccepted,
    /// A blob file is removed although commits point into it that are in no table yet (collect.2).
    BlobDroppedEarly,
    /// Tables do not count the values that they reference in blob files (collect.1). If they forgot some alone, collections would not end.
    BlobReferenceForgotten,
    /// Compactions drop versions that are still unresolved (compaction_judge.6).
    UnresolvedForgotten,
    /// Versions that have expired are returned (time.1).
    ExpiredReturned,
    /// Tables of large transactions are adopted before their bytes are durable (private.2).
    AdoptedTableNotSynced,
    /// The change feed leaves out a commit now and then (follow.1).
    FeedSkips,
    /// The change feed shows commits before they are durable (follow.2). The simulation of replication in `esker-server` finds it.
    FeedBeforeDurable,
    /// Of several lists of operands the newest alone is merged (fold.1).
    OperandDropped,
    /// Compactions do not know the rules of history (compaction_judge.7).
    HistoryForgotten,
    /// A checkpoint is told of before its name is durable (workplace.1).
    CopyNameNotSynced,
    /// Sweeps do not stop a large transaction from being adopted below what they have written (adoption.1).
    SweptAboveAdopted,
    /// A copy is taken although its tables lack what a later commit removed (capture.5).
    CaptureMissesCovered,
    /// An operand applies to a value that had expired before the merge (fold.3).
    OperandOutlivesBase,
    /// A merge makes a value last for ever that was to expire (fold.3).
    MergeForgetsExpiry,
    /// A merge that begins a value does not give it the default lifetime of its keyspace (fold.3).
    MergeIgnoresDefault,
    /// A value that an update replaces has the default lifetime of its keyspace, or none, in place of its own.
    UpdateForgetsExpiry,
    /// The record of a sequence gets the default lifetime of its keyspace (sequence.2).
    SequenceExpires,
    /// A serializable transaction forgets what a length has told it of keys whose writes are undone (read_set.4).
    UndoneReadForgotten,
    /// A serializable transaction forgets that it has asked for the name of a keyspace.
    NameReadForgotten,
    /// The versions of a key show the bare removal that a compaction has left in the place of a value (compaction_judge.6).
    BareRemovalShown,
    /// A transaction that merges into what a sweep has removed meanwhile commits (conflict.3).
    OperandPassesSweep,
    /// Segments of the archive count only if their wall clock is not before the backup's (restore_point.3).
    ArchiveByClock,
    /// A commit that creates a keyspace under a name that it frees is not made again (replay.1).
    RecreatedNameRefused,
    /// Operands that are made again apply to what their key has at that time (fold.3).
    ReplayForgetsTime,
    /// A load gives keyspaces their options by commits behind the one with its place (unload.3).
    LoadOptionsLate,
    /// Loaded entries that do not expire take the default lifetime that their keyspace had before (unload.2).
    LoadTakesDefault,
}

#[cfg(any(test, feature = "canaries"))]
impl Canary {
    /// Every one that the simulator is to find.
    pub const ALL: [Canary; 51] = [
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
