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
    /// The manifest names a segment before its prepared file is durable (P4).
    WalNamedEarly,
    /// Recovery takes what it read from the log for durable (R4).
    WalTailNotSynced,
    /// Opening goes on behind a torn tail without finishing it (R3).
    WalTearLeft,
    /// Recovery does not miss segments that the manifest names (R6).
    LostSegmentIgnored,
    /// Recovery syncs the log's last segment, and does not write it again (R4).
    WalTailOnlySynced,
    /// After a failed write or sync, or a panic in one, the log goes on (W6, T3).
    PoisonForgotten,
    /// Recovery does not look at a record's payload checksum (W5).
    WalPayloadUnchecked,
    /// A flush gives up the log before the manifest names its tables (MT1).
    WalReleasedEarly,
    /// A flush that fails gives up the log all the same (MT2).
    FlushFailureForgotten,
    /// A merge drops tombstones under which older versions still lie (GC3).
    TombstoneDroppedEarly,
    /// A merge takes its output for the bottom, although there are runs below it (PK2).
    BottomMistaken,
    /// A merge forgets range tombstones (GC3).
    RangeTombstoneForgotten,
    /// A memtable's range tombstones are asked only about keys that its filter knows (M3).
    RangeTombstoneBehindFilter,
    /// A merge does not know the snapshots (GC1, SN2).
    SnapshotIgnored,
    /// A merge at the bottom forgets sequence numbers that a snapshot still tells apart (GC4).
    SeqNoZeroedEarly,
    /// After opening, the last sequence number is given out again (T2).
    SeqNoReused,
    /// The filters do not take every key (BF1).
    FilterForgets,
    /// A transaction commits without a look at what others wrote (CF1).
    ConflictCheckSkipped,
    /// Keyspaces that are dropped take commits (CT3).
    DropNotMarked,
    /// The number of a keyspace that is dropped is given to the next one (CT2).
    KeyspaceIdReused,
    /// Removals do not change the count (A1).
    CountNotUpdated,
    /// An edit counts before it is durable (ML1).
    ManifestNotSynced,
    /// After a failed append the manifest goes on in the same file (ML3).
    ManifestGoesOn,
    /// An edit is written before the marker in front of it is durable (ML5).
    ManifestMarkerNotSynced,
    /// Tables of an edit whose append has failed are removed at once, although the manifest may name them (ML4).
    FailedTablesRemoved,
    /// `CURRENT` is renamed into place before its bytes are durable (ML2).
    CurrentNotSynced,
    /// A manifest that replaces another is in force before its bytes are durable (ML2).
    ReplacementNotSynced,
    /// A manifest is removed if the rename that puts its name into `CURRENT` fails (ML2).
    ManifestTakenBack,
    /// Opening takes what it read from the manifest for durable (R5).
    ManifestTailTrusted,
    /// A merge removes its inputs before the manifest stops to name them (EX2).
    TableRemovedEarly,
    /// Records of other record files are taken for a file's own (F1 of recordio/frame.rs).
    RecordSaltIgnored,
    /// Tables count although the sync of their names has failed (EX1).
    TableNameFailureIgnored,
    /// Tables count before their bytes are durable (EX1).
    TableNotSynced,
    /// Opening takes tables that are not those which the manifest describes.
    TableIdentityIgnored,
    /// Opening removes tables although they hold commits that neither manifest nor log knows (UT1).
    NeededTablesRemoved,
    /// Tables do not tell of commits whose numbers they do not hold any more (OU4).
    NewestCommitForgotten,
    /// The parts of tables are taken whatever their checksums say (ST1).
    TableChecksumIgnored,
    /// Parts of other tables are taken for a table's own (ST1).
    TableSaltIgnored,
    /// A new database is made in a directory whose own name is not durable (OP7).
    ParentNotSynced,
    /// A log that has lost its end is taken as it is (R7).
    WalEndTrusted,
    /// Of the records behind a damaged one only the first is asked for proof of damage (R1).
    EvidenceShort,
    /// A check does not compare the keys with their count (CK2).
    CountsUnchecked,
    /// A repair does not tell of the keys that a damaged block held (RP3).
    RepairLossForgotten,
    /// A repair does commits again that tables hold (LG1).
    HeldCommitsRepeated,
    /// A repair does not tell of commits that the log has lost (LG2).
    RepairGapForgotten,
    /// A repair brings back what range tombstones hide (RP2).
    RepairTombstoneIgnored,
    /// A repair takes a manifest for whole that tables prove to have lost its end (SO3).
    RepairManifestTrusted,
    /// A repair by an earlier manifest does not tell that the one in force is lost (SO5).
    ManifestLossForgotten,
}

#[cfg(any(test, feature = "canaries"))]
impl Canary {
    /// Every one.
    pub const ALL: [Canary; 53] = [
        Canary::WalGenerationIgnored,
        Canary::WalSyncSkipped,
        Canary::TimedSyncSkipped,
        Canary::WalEndNotSynced,
        Canary::WalNameNotSynced,
        Canary::WalNamedEarly,
        Canary::WalTailNotSynced,
        Canary::WalTearLeft,
        Canary::LostSegmentIgnored,
        Canary::WalTailOnlySynced,
        Canary::PoisonForgotten,
        Canary::WalPayloadUnchecked,
        Canary::WalReleasedEarly,
        Canary::FlushFailureForgotten,
        Canary::TombstoneDroppedEarly,
        Canary::BottomMistaken,
        Canary::RangeTombstoneForgotten,
        Canary::RangeTombstoneBehindFilter,
        Canary::SnapshotIgnored,
        Canary::SeqNoZeroedEarly,
        Canary::SeqNoReused,
        Canary::FilterForgets,
        Canary::ConflictCheckSkipped,
        Canary::DropNotMarked,
        Canary::KeyspaceIdReused,
        Canary::CountNotUpdated,
        Canary::ManifestNotSynced,
        Canary::ManifestGoesOn,
        Canary::ManifestMarkerNotSynced,
        Canary::FailedTablesRemoved,
        Canary::CurrentNotSynced,
        Canary::ReplacementNotSynced,
        Canary::ManifestTakenBack,
        Canary::ManifestTailTrusted,
        Canary::TableRemovedEarly,
        Canary::RecordSaltIgnored,
        Canary::TableNameFailureIgnored,
        Canary::TableNotSynced,
        Canary::TableIdentityIgnored,
        Canary::NeededTablesRemoved,
        Canary::NewestCommitForgotten,
        Canary::TableChecksumIgnored,
        Canary::TableSaltIgnored,
        Canary::ParentNotSynced,
        Canary::WalEndTrusted,
        Canary::EvidenceShort,
        Canary::CountsUnchecked,
        Canary::RepairLossForgotten,
        Canary::HeldCommitsRepeated,
        Canary::RepairGapForgotten,
        Canary::RepairTombstoneIgnored,
        Canary::RepairManifestTrusted,
        Canary::ManifestLossForgotten,
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
