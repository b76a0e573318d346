//! The timed sync: what was committed without waiting for the disk gets there some time later.
//!
//! timed_sync.1. The timed sync does not wait for a long commit: before that begins, its leader hands to the system what was committed earlier, and
//!     leaves it where the sync finds it without the commit lock.

use std::time::Duration;

use parking_lot::MutexGuard;

use super::commit::{CommitRequest, Pipeline, WriteState};
use crate::types::Result;
use crate::types::canary::{self, Canary};
use crate::wal::{SyncHandle, SyncOutcome};

/// A group with this many operations or bytes, or with a range removal, may take long (timed_sync.1): each key is looked up, perhaps on the disk.
const LONG_OPS: usize = 1000;
const LONG_BYTES: usize = 1 << 20;
/// How long the timed sync waits for the commit lock before it looks for what a long commit has left to it.
const LOCK_PATIENCE: Duration = Duration::from_millis(10);

/// Whether this may take longer than commits of some keys do.
pub(super) fn may_take_long(group: &[CommitRequest]) -> bool {
    let sets = || group.iter().map(|request| &request.set);
    sets().map(|set| set.op_count()).sum::<usize>() >= LONG_OPS
        || sets().map(|set| set.byte_len()).sum::<usize>() >= LONG_BYTES
        || sets().any(|set| !set.ranges().is_empty())
}

impl Pipeline {
    /// timed_sync.1: before a long commit the timed sync gets what is not yet synced of the log.
    pub(super) fn leave_unsynced(&self, state: &mut WriteState, is_long: bool) -> Result<()> {
        if is_long {
            let written = state.wal()?.write();
            written.map_err(|error| state.poison.stop(error))?;
            *self.unsynced.lock() = state.wal()?.sync_handle();
        }
        Ok(())
    }

    /// Makes all commits so far durable.
    pub fn sync(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.poison.check()?;
        let synced = state.wal()?.sync();
        synced.map_err(|error| state.poison.stop(error))
    }

    /// Makes durable what was committed without waiting for it. The sync itself does not hold up commits.
    pub fn sync_unsynced(&self) -> Result<()> {
        let handle = match self.lock_or_left() {
            Ok(mut state) => {
                if state.poison.check().is_err() {
                    return Ok(());
                }
                let wal = state.wal()?;
                let written = wal.write();
                written.map_err(|error| state.poison.stop(error))?;
                state.wal()?.sync_handle()
            }
            Err(left) => Some(left),
        };
        let Some(handle) = handle.filter(|_| !canary::is_set(Canary::TimedSyncSkipped)) else {
            return Ok(());
        };
        self.note_synced(handle.sync())
    }

    /// Tells the log of a sync, and goes on with what long commits leave to sync meanwhile (timed_sync.1).
    pub(super) fn note_synced(&self, mut outcome: SyncOutcome) -> Result<()> {
        loop {
            match self.lock_or_left() {
                Ok(mut state) => {
                    let noted = state.wal()?.synced(outcome);
                    return noted.map_err(|error| state.poison.stop(error));
                }
                // It covers what the last one did: it is of the same segment, or of a later one, before which that was made durable.
                Err(left) if outcome.is_ok() => outcome = left.sync(),
                Err(_) => {}
            }
        }
    }

    /// The commit lock, or what a long commit that holds it has left to sync (timed_sync.1).
    fn lock_or_left(&self) -> std::result::Result<MutexGuard<'_, WriteState>, SyncHandle> {
        loop {
            if let Some(state) = self.state.try_lock_for(LOCK_PATIENCE) {
                return Ok(state);
            }
            if let Some(left) = self.unsynced.lock().take() {
                return Err(left);
            }
        }
    }
}
