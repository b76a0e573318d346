//! Stops all writes after a failure that leaves unknown what reached the disk.
//!
//! poison.1. After a failed write or sync of the WAL, nothing more is written or published ("poisoned"),
//!     because it is unknown what reached the disk. Reads continue. A disk that is full before anything was
//!     written only fails the commit. A panic between the first log record of a group and its publication
//!     also poisons, because its uncounted writes must not reach a table. So does a panic while a memtable is
//!     sealed: a segment may have ended, and the memtable may be lost.

use std::sync::{Arc, OnceLock};

use crate::types::canary::{self, Canary};
use crate::types::{Error, Result};
use crate::wal::Shelf;

/// The error that stopped writes, readable without the commit lock.
pub(super) type Cause = Arc<OnceLock<Arc<Error>>>;

/// Whether writes may continue.
#[derive(Default)]
pub(super) struct Poison {
    cause: Cause,
    /// Readers of the log that are notified when writes stop.
    shelf: Option<Arc<Shelf>>,
    /// Set while a commit is in the log but not published, or a memtable is being sealed. Other threads see
    /// it set only after a panic.
    is_halfway: bool,
}

impl Poison {
    /// Creates the state, with readers of the log to notify.
    pub(super) fn with_shelf(shelf: Option<Arc<Shelf>>) -> Poison {
        Poison { shelf, ..Poison::default() }
    }

    /// From here to `settle`, a panic leaves an unknown state.
    pub(super) fn begin(&mut self) {
        self.is_halfway = true;
    }

    /// Ends the section started by `begin`.
    pub(super) fn settle(&mut self) {
        self.is_halfway = false;
    }

    /// Fails with the error that stopped writes, without checking for panics.
    pub(super) fn cause(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(Error::Poisoned(cause.clone())))
    }

    /// Fails after a failure or a panic.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_halfway && !canary::is_set(Canary::PoisonForgotten) {
            let text = "a thread panicked during a commit: reopen the database".to_owned();
            return Err(Error::Poisoned(Arc::new(Error::Panicked(text))));
        }
        self.cause()
    }

    /// Stops all further writes. Returns the error to report.
    pub(super) fn stop(&mut self, error: Error) -> Error {
        let cause = match error {
            Error::Poisoned(cause) => cause,
            error => Arc::new(error),
        };
        if canary::is_set(Canary::PoisonForgotten) {
            return Error::Poisoned(cause);
        }
        let error = Error::Poisoned(self.cause.get_or_init(|| cause).clone());
        self.shelf.iter().for_each(|shelf| shelf.notify());
        error
    }

    /// Returns a handle to the cause.
    pub(super) fn shared_cause(&self) -> Cause {
        self.cause.clone()
    }
}
