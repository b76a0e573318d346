//! What all clients of a history share: its clock, and what currently may fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::canary::Canary;
use esker_world::failure::Failure;

/// Each process issues unique numbers of its own; this is the base-2 logarithm of their count.
const LIFE_SHIFT: u32 = 24;

/// State shared by all clients of a history, across all lives of its database.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    clock: AtomicU64,
    unique: AtomicU32,
    /// Number of calls.
    pub(crate) progress: AtomicU64,
    /// Whether clients must end.
    pub(crate) stop: AtomicBool,
    /// Whether the disk is sometimes full.
    pub(crate) may_be_full: AtomicBool,
    /// Whether writes of tables, manifest and names may fail.
    pub(super) may_fail: AtomicBool,
    /// Number of commits that failed for one of these reasons.
    pub(crate) refused: AtomicU64,
    pub(super) canary: Option<Canary>,
    /// The canary's keys and their values, by keyspace.
    pub(super) ghosts: Mutex<BTreeMap<(usize, u64), Vec<u8>>>,
}

impl Shared {
    pub(crate) fn new(canary: Option<Canary>) -> Self {
        Shared { canary, ..Shared::default() }
    }

    /// Creates the state for a life that starts at a tick, after lives of other processes.
    pub(crate) fn resumed(canary: Option<Canary>, clock: u64, life: u64) -> Self {
        let unique = AtomicU32::new((life as u32) << LIFE_SHIFT);
        Shared { clock: AtomicU64::new(clock), unique, canary, ..Shared::default() }
    }

    /// Returns the next tick. Sequentially consistent, because it orders the calls of different threads.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns whether a write may fail with this error, without effect.
    pub(super) fn excuses(&self, failure: &Failure) -> bool {
        let is_of_disk = failure.is_injected() && !failure.is_of_stopped_writes();
        is_of_disk && failure.is_of_earlier_log()
            || self.may_be_full.load(Ordering::Relaxed) && failure.is_of_full_disk()
            || self.may_fail.load(Ordering::Relaxed) && is_of_disk
    }

    pub(super) fn unique(&self) -> u32 {
        // Relaxed: only uniqueness matters.
        self.unique.fetch_add(1, Ordering::Relaxed)
    }
}
