//! The timed sync makes commits durable that did not wait for the disk.
//!
//! It does not wait for a long commit. Before a long commit starts, its leader writes the earlier commits and
//! leaves a sync handle that the timed sync finds without the commit lock.

use std::time::Duration;

use parking_lot::MutexGuard;

use super::commit::{Pipeline, WriteState};
use crate::types::Result;
use crate::types::canary::{self, Canary};
use crate::wal::{SyncHandle, SyncOutcome};

/// How long the timed sync waits for the commit lock before it checks for a handle left by a long commit.
const LOCK_PATIENCE: Duration = Duration::from_millis(10);

impl Pipeline {
    /// Leaves the unsynced part of the log to the timed sync before a long commit.
    pub(super) fn leave_unsynced(&self, state: &mut WriteState, is_long: bool) -> Result<()> {
        if is_long {
            let written = state.wal()?.write();
            written.map_err(|error| state.poison.stop(error))?;
            *self.unsynced.lock() = state.wal()?.sync_handle();
        }
        Ok(())
    }

    /// Makes all earlier commits durable.
    pub fn sync(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.poison.check()?;
        let synced = state.wal()?.sync();
        synced.map_err(|error| state.poison.stop(error))
    }

    /// Makes unsynced commits durable. The sync itself does not block commits.
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

    /// Reports a sync to the log. Also performs syncs left by long commits meanwhile.
    pub(super) fn note_synced(&self, mut outcome: SyncOutcome) -> Result<()> {
        loop {
            match self.lock_or_left() {
                Ok(mut state) => {
                    let noted = state.wal()?.synced(outcome);
                    return noted.map_err(|error| state.poison.stop(error));
                }
                // This sync covers the previous one: it is for the same segment, or for a later one before
                // which the earlier segment was made durable.
                Err(left) if outcome.is_ok() => outcome = left.sync(),
                Err(_) => {}
            }
        }
    }

    /// Acquires the commit lock, or takes the sync handle left by the long commit that holds it.
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
