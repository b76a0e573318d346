//! Background work on tables: flush, compaction and blob collection, and the policies that decide when each
//! is due.

pub(in crate::engine) mod amplification;
pub(in crate::engine) mod backoff;
mod collect;
pub(in crate::engine) mod compact;
mod compaction_turns;
mod flush;
mod idle;
pub(in crate::engine) mod install;
pub(in crate::engine) mod limits;
mod memtable_age;
pub(in crate::engine) mod pace;
mod report;
pub(in crate::engine) mod throttle;

use std::ops::Deref;

use parking_lot::Mutex;

use self::backoff::CompactionBackoff;
use self::compaction_turns::CompactionTurns;
use self::idle::IdlePolicy;
use self::memtable_age::MemtableAge;
use self::pace::Pace;
use self::throttle::Throttle;
use super::state::State;

/// The state of background work.
pub(crate) struct Upkeep {
    pub(crate) turns: Turns,
    /// Failed compactions and their pauses.
    pub(crate) backoff: Mutex<CompactionBackoff>,
    pub(crate) idle: IdlePolicy,
    pub(crate) memtable_age: MemtableAge,
    pub(crate) pace: Pace,
    pub(crate) throttle: Throttle,
    pub(in crate::engine) state: State,
}

/// Turns: one thread flushes at a time, and compactions run beside each other only if they do not meet.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) flush: Mutex<()>,
    pub(crate) compact: CompactionTurns,
}

impl Upkeep {
    pub(in crate::engine) fn new(state: State) -> Self {
        Upkeep {
            turns: Turns::default(),
            backoff: Mutex::default(),
            idle: IdlePolicy::default(),
            memtable_age: MemtableAge::default(),
            pace: Pace::default(),
            throttle: Throttle::default(),
            state,
        }
    }
}

impl Deref for Upkeep {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}
