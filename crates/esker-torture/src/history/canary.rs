//! Faults of clients, to test the checkers.

/// Faults of clients that the checkers must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Transactions commit without conflict detection.
    NoConflictCheck,
    /// Range removals in transactions detect conflicts only on keys that they see.
    NoRangeCheck,
    /// Serializable transactions do not validate scanned ranges.
    NoPhantomCheck,
    /// Transactions read the newest value of each key instead of a snapshot.
    NoSnapshot,
    /// Single keys are read from an old snapshot.
    StaleReads,
    /// A crash loses the last acknowledged commits.
    ForgetfulCrash,
    /// Writes of single keys return before they take effect.
    EarlyReply,
    /// Transactions that fail for lack of space are committed later.
    LateCommit,
    /// Dropped keyspaces still exist and accept their old handles.
    GhostKeyspace,
    /// Recreated keyspaces contain the old keys.
    GhostKeys,
    /// Background threads panic in lives that a crash ends.
    Panic,
    /// A client hangs in a child process.
    Hang,
}

impl Canary {
    /// All canaries with their names on the command line.
    const ALL: [(&'static str, Canary); 12] = [
        ("no-conflict-check", Canary::NoConflictCheck),
        ("no-range-check", Canary::NoRangeCheck),
        ("no-phantom-check", Canary::NoPhantomCheck),
        ("no-snapshot", Canary::NoSnapshot),
        ("stale-reads", Canary::StaleReads),
        ("forgetful-crash", Canary::ForgetfulCrash),
        ("early-reply", Canary::EarlyReply),
        ("late-commit", Canary::LateCommit),
        ("ghost-keyspace", Canary::GhostKeyspace),
        ("ghost-keys", Canary::GhostKeys),
        ("panic", Canary::Panic),
        ("hang", Canary::Hang),
    ];

    /// Returns the canary of this name.
    pub fn named(name: &str) -> Option<Canary> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, canary)| *canary)
    }

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, canary)| *canary == self).map_or("", |(name, _)| name)
    }
}
