//! Background work on tables: flush, compaction and blob collection, and the policies that say when each is due.

mod age;
pub(in crate::engine) mod amplification;
mod collect;
pub(in crate::engine) mod compact;
mod flush;
pub(in crate::engine) mod install;
pub(in crate::engine) mod limits;
pub(in crate::engine) mod pace;
mod report;
mod rest;
pub(in crate::engine) mod throttle;
pub(in crate::engine) mod trouble;

use std::ops::Deref;

use parking_lot::Mutex;

use self::age::Age;
use self::pace::Pace;
use self::rest::Rest;
use self::throttle::Throttle;
use self::trouble::Trouble;
use super::state::State;

/// The state of background work.
pub(crate) struct Upkeep {
    pub(crate) turns: Turns,
    /// What compactions have failed on.
    pub(crate) trouble: Mutex<Trouble>,
    pub(crate) rest: Rest,
    pub(crate) age: Age,
    pub(crate) pace: Pace,
    pub(crate) throttle: Throttle,
    pub(in crate::engine) state: State,
}

/// Held by the thread that flushes, and by the one that compacts.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) flush: Mutex<()>,
    pub(crate) compact: Mutex<()>,
}

impl Upkeep {
    pub(in crate::engine) fn new(state: State) -> Self {
        Upkeep {
            turns: Turns::default(),
            trouble: Mutex::default(),
            rest: Rest::default(),
            age: Age::default(),
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
