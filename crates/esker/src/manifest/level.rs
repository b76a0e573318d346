//! Where a table lies: the level and the number of its run.

/// The level of a run. 0 is freshly flushed; larger levels hold older and larger runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    /// Runs flushed from memtables.
    pub const L0: Level = Level(0);
    /// Runs compacted from L0, if data exceeds the cache. Each further tier holds runs compacted from the
    /// tier above.
    pub const TIER: Level = Level(1);
    /// The last tier.
    pub const LAST_TIER: Level = Level(6);
    /// The single run below all others.
    pub const BASE: Level = Level(7);

    /// The level with this number, if there is one.
    pub const fn from_u8(n: u8) -> Option<Level> {
        if n <= Self::BASE.0 { Some(Level(n)) } else { None }
    }
    /// Returns whether it is between L0 and the base.
    pub fn is_tier(self) -> bool {
        (Self::TIER..=Self::LAST_TIER).contains(&self)
    }
    /// The next level, with older runs. Panics for the base.
    pub(crate) fn below(self) -> Level {
        assert!(self < Self::BASE, "there is a level below");
        Level(self.0 + 1)
    }
    /// The number stored in files.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The number of a run; newer runs of a level have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);
