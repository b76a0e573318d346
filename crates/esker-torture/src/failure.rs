//! Why a campaign ended before its time.

use std::fmt;

/// What the failures of writes begin with.
const OF_WRITE: &str = "a write failed: ";

/// A failure, as a text for people: what is wrong, what is kept, and the command that tries again.
#[derive(Debug)]
pub struct Failure(pub(crate) String);

/// A result with a [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Failure(text.into())
    }

    /// Whether it tells of a fault that the harness has put in: `FaultFs` says so of each of its own.
    pub(crate) fn is_injected(&self) -> bool {
        self.0.contains("injected")
    }

    /// Whether it says that the disk is full; one that tells of a log that stopped for that does not.
    pub(crate) fn is_of_full_disk(&self) -> bool {
        self.0.starts_with("no space left on the disk")
    }

    /// Whether it says that no more writes are accepted until the database is opened again.
    pub(crate) fn is_of_stopped_writes(&self) -> bool {
        self.0.contains("writes stopped by an earlier failure")
    }

    /// Whether it says that there is no such keyspace.
    pub(crate) fn is_of_gone_keyspace(&self) -> bool {
        self.0.starts_with("no keyspace named")
    }

    /// The failure with what was being done in front.
    pub(crate) fn during(self, what: &str) -> Self {
        Failure(format!("{what}: {}", self.0))
    }

    /// The failure of a call that writes: [`or_stopped`] excuses no other.
    pub(crate) fn of_write(self) -> Self {
        Failure(format!("{OF_WRITE}{}", self.0))
    }
}

/// A success in place of a write that was refused, or failed, since a fault that the harness has put in has stopped all writes. Reads
/// meet no such fault, and go on when writes have stopped: they have no excuse.
pub(crate) fn or_stopped(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(failure)
            if failure.0.starts_with(OF_WRITE) && failure.is_of_stopped_writes() && failure.is_injected() =>
        {
            Ok(())
        }
        other => other,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure(error.to_string())
    }
}

impl From<esker::Error> for Failure {
    fn from(error: esker::Error) -> Self {
        Failure(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure(text)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_writes_that_an_injected_fault_has_stopped_are_excused() {
        let failed = |what: &str| esker::Error::Invalid(format!("{what} fault: SyncData db/000001.wal"));
        let stopped = |what| Failure::from(esker::Error::Poisoned(Arc::new(failed(what))));
        or_stopped(Err(stopped("injected").of_write())).unwrap();
        or_stopped(Err(stopped("injected").during("flushing").of_write())).unwrap();
        for (unexcused, why) in [
            (stopped("injected"), "a read"),
            (Failure::from(failed("injected")), "a read that fails itself"),
            (Failure::from(failed("injected")).of_write(), "nothing says that writes have stopped"),
            (stopped("real").of_write(), "nobody has put it in"),
        ] {
            assert!(or_stopped(Err(unexcused)).is_err(), "{why}");
        }
    }
}
