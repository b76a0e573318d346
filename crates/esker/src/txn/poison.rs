//! Poison: after a failure that leaves unknown what reached the disk, nothing more is written.
//!
//! poison.1. After a failed write or sync of the WAL nothing more is written or published ("poisoned"): what reached the
//!     disk is unknown. Reads go on. A disk that is full before anything was written only fails the commit. A panic
//!     between the first log record of a group and its publishing has the same effect: what it left, uncounted, must not
//!     become a table. So has one while a memtable is sealed: a segment may be at its end, and the memtable be known to nobody.

use std::sync::{Arc, OnceLock};

use super::commit::Pipeline;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result};
use crate::wal::Shelf;

/// What stopped writes, for those who look without the commit lock.
pub(super) type Cause = Arc<OnceLock<Arc<Error>>>;

/// Whether writes may go on.
#[derive(Default)]
pub(super) struct Poison {
    cause: Cause,
    /// Who reads the log is told.
    shelf: Option<Arc<Shelf>>,
    /// A commit is in the log and not yet published, or a memtable is being sealed. Seen by others only if its thread has panicked.
    is_halfway: bool,
}

impl Poison {
    /// One that tells who reads the log.
    pub(super) fn telling(shelf: Option<Arc<Shelf>>) -> Poison {
        Poison { shelf, ..Poison::default() }
    }

    /// From here on to `settle` a panic leaves a state that nobody knows.
    pub(super) fn begin(&mut self) {
        self.is_halfway = true;
    }

    /// What was begun has ended, in a state that is known.
    pub(super) fn settle(&mut self) {
        self.is_halfway = false;
    }

    /// What stopped writing, panics left aside.
    pub(super) fn cause(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(Error::Poisoned(cause.clone())))
    }

    /// Refuses after a failure.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_halfway && !canary::is_set(Canary::PoisonForgotten) {
            let text = "a thread panicked while it committed: reopen the database".to_owned();
            return Err(Error::Poisoned(Arc::new(Error::Invalid(text))));
        }
        self.cause()
    }

    /// Stops all further writes; the error to report.
    pub(super) fn stop(&mut self, error: Error) -> Error {
        let cause = match error {
            Error::Poisoned(cause) => cause,
            error => Arc::new(error),
        };
        if canary::is_set(Canary::PoisonForgotten) {
            return Error::Poisoned(cause);
        }
        let error = Error::Poisoned(self.cause.get_or_init(|| cause).clone());
        self.shelf.iter().for_each(|shelf| shelf.tell());
        error
    }

    /// Where the cause will stand.
    pub(super) fn shared_cause(&self) -> Cause {
        self.cause.clone()
    }
}

impl Pipeline {
    /// Refuses after a failure.
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.state.lock().poison.check()
    }

    /// Stops all further writes; the error to report.
    pub(crate) fn stop(&self, error: Error) -> Error {
        self.state.lock().poison.stop(error)
    }

    /// What stopped writes, if anything did. Waits for no commit that goes on.
    pub fn stopped_by(&self) -> Option<Arc<Error>> {
        if let Some(cause) = self.stopped.get() {
            return Some(cause.clone());
        }
        // A panic leaves no cause. Who has the lock has found that there was none.
        match self.state.try_lock()?.poison.check() {
            Err(Error::Poisoned(cause)) => Some(cause),
            _ => None,
        }
    }
}
