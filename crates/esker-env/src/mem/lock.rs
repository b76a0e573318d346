//! A lock on a path.

use std::path::PathBuf;
use std::sync::Arc;

use super::Shared;
use crate::FileLock;

/// Held until it drops.
pub(super) struct MemLock {
    pub(super) shared: Arc<Shared>,
    pub(super) path: PathBuf,
}

impl FileLock for MemLock {}

impl std::fmt::Debug for MemLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemLock({})", self.path.display())
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut state = self.shared.state.write();
        match state.locks.get_mut(&self.path) {
            Some(Some(holders)) if *holders > 1 => *holders -= 1,
            _ => drop(state.locks.remove(&self.path)),
        }
    }
}
