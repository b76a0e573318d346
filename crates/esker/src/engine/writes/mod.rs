//! Commits: how they are admitted, what holds them back, and those that the engine makes itself.

mod admission;
mod adoption;
pub(crate) mod catalog_changes;
pub(crate) mod committer;
mod compact_all;
mod decisions;
pub(crate) mod exclusive_turn;
pub(crate) mod locks;
mod oldest;
mod set_options;
pub(crate) mod sweep;

use std::ops::Deref;

use self::committer::Committer;
use self::decisions::Decisions;
use self::exclusive_turn::ExclusiveTurn;
use self::locks::Locks;
use self::sweep::Sweeper;
use super::upkeep::Upkeep;

/// What commits wait for, and the commits that the engine makes itself.
pub(crate) struct Writes {
    pub(crate) exclusive_turn: ExclusiveTurn,
    pub(crate) locks: Locks,
    pub(crate) committer: Committer,
    pub(crate) sweeper: Sweeper,
    /// What compaction filters have decided.
    pub(crate) decisions: Decisions,
    upkeep: Upkeep,
}

impl Writes {
    pub(in crate::engine) fn new(upkeep: Upkeep, sweeper: Sweeper) -> Self {
        Writes {
            exclusive_turn: ExclusiveTurn::default(),
            locks: Locks::default(),
            committer: Committer::default(),
            sweeper,
            decisions: Decisions::default(),
            upkeep,
        }
    }
}

impl Deref for Writes {
    type Target = Upkeep;

    fn deref(&self) -> &Upkeep {
        &self.upkeep
    }
}
