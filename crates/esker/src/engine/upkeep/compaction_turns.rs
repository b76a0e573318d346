//! Turns of compactions: plans whose claims do not meet run at the same time, all other work runs alone.
//!
//! ```text
//!   choose --Choosing: one thread at a time--> begin --RunningPlan, with a claim--> installed, released
//!   lock ----> ExclusiveTurn: no thread chooses, and no plan runs
//! ```
//!
//! compaction_turns.1. Claims of running plans do not meet (compaction/claim.rs).
//! compaction_turns.2. A plan installs its edit before it releases its claim. A thread that chooses reads the
//!     claims before the version. So it sees either the claim of a plan or its outcome.
//!
//! Why other work is right beside running plans:
//! - Another plan reads and writes tables apart (claim.1). It puts nothing below the output of a plan at the
//!   bottom: it would have an input there, which the picker would have seen.
//! - Flushes, large commits and ingests add runs of L0 above all inputs. A large commit joins the base only
//!   with the exclusive turn.
//! - The removal of covered tables leaves out every table with claimed keys, in all levels: inputs, what they
//!   resolve, and what their tombstones cover.
//! - A blob collection copies what the version's tables reference. Inputs are among these tables, and outputs
//!   reference no more.
//! - A copy takes the version and the manifest's state of one moment, or takes the exclusive turn.
//! - Each plan reads its horizons before the history rules (engine_history.2). Floors rise before its edit is
//!   installed.
//! - Unresolved counts are in the edit that replaces the tables in which they were found.
//! - Sweeps, maximum sizes, range removals, filters and changes of keyspaces are commits. They do not change
//!   the version.
//! - Unloading changes handles of tables only. A plan keeps its own.
//!
//! - Lock order: `choosing`, `running`, `placing`, then the manifest.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::compaction::claim::Claim;
use crate::compaction::plan::Plan;
use crate::manifest::version::Version;
use crate::types::FileId;

/// The turns of one database.
#[derive(Default)]
pub(crate) struct CompactionTurns {
    /// Held by the thread that chooses a plan, and by exclusive work.
    choosing: Mutex<()>,
    /// Shared by running plans.
    running: RwLock<()>,
    /// Claims of running plans, by the first input table.
    claims: Mutex<BTreeMap<FileId, Claim>>,
    /// Held while a plan's output is assigned to runs of the newest version and installed.
    placing: Mutex<()>,
}

/// The turn of a thread that chooses a plan. Other plans may run.
pub(in crate::engine) struct Choosing<'a> {
    turns: &'a CompactionTurns,
    choosing: MutexGuard<'a, ()>,
}

/// The turn of work that runs alone.
pub(in crate::engine) struct ExclusiveTurn<'a> {
    _running: RwLockWriteGuard<'a, ()>,
    _choosing: MutexGuard<'a, ()>,
}

/// The turn of a running plan.
pub(in crate::engine) struct RunningPlan<'a> {
    turns: &'a CompactionTurns,
    first: FileId,
    _running: RwLockReadGuard<'a, ()>,
    /// Kept if no other plan may run at the same time.
    _choosing: Option<MutexGuard<'a, ()>>,
}

impl CompactionTurns {
    /// Waits for the exclusive turn. No plan begins meanwhile.
    pub(in crate::engine) fn lock(&self) -> ExclusiveTurn<'_> {
        let choosing = self.choosing.lock();
        ExclusiveTurn { _running: self.running.write(), _choosing: choosing }
    }

    /// Returns the exclusive turn if it is free.
    pub(in crate::engine) fn try_lock(&self) -> Option<ExclusiveTurn<'_>> {
        let choosing = self.choosing.try_lock()?;
        Some(ExclusiveTurn { _running: self.running.try_write()?, _choosing: choosing })
    }

    /// Waits for the turn to choose a plan.
    pub(in crate::engine) fn choose(&self) -> Choosing<'_> {
        Choosing { turns: self, choosing: self.choosing.lock() }
    }

    /// Returns the claims of running plans.
    pub(in crate::engine) fn claims(&self) -> Vec<Claim> {
        self.claims.lock().values().cloned().collect()
    }

    /// Returns the number of running plans.
    pub(in crate::engine) fn count(&self) -> usize {
        self.claims.lock().len()
    }

    /// Returns whether a plan runs that lets others run.
    pub(in crate::engine) fn is_shared(&self) -> bool {
        self.count() > 0 && !self.choosing.is_locked()
    }

    /// Waits until no other plan assigns and installs its output.
    pub(in crate::engine) fn place(&self) -> MutexGuard<'_, ()> {
        self.placing.lock()
    }
}

impl<'a> Choosing<'a> {
    /// Begins a plan made from `version`. Others can be chosen meanwhile, unless it is to be the only one.
    pub(in crate::engine) fn begin<T>(
        self,
        plan: &Plan,
        version: &Version<T>,
        is_only: bool,
    ) -> RunningPlan<'a> {
        let (turns, claim, first) = (self.turns, Claim::of(plan, version), plan.inputs[0].files[0]);
        // At once: exclusive work waits for this with `choosing` held.
        let running = turns.running.read();
        let mut claims = turns.claims.lock();
        assert!(!claims.values().any(|other| other.meets(&claim)), "compaction_turns.1");
        claims.insert(first, claim);
        drop(claims);
        RunningPlan { turns, first, _running: running, _choosing: is_only.then_some(self.choosing) }
    }
}

impl Drop for RunningPlan<'_> {
    fn drop(&mut self) {
        self.turns.claims.lock().remove(&self.first);
    }
}
