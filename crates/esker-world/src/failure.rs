//! Why a run or a campaign has failed, and the panics that say so.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// What the failures of writes begin with.
const OF_WRITE: &str = "a write failed: ";

/// A failure, as a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong, and where it was noticed.
    pub cause: String,
    /// Operations done by then, if they are counted.
    pub ops: u64,
}

/// A result with a [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure for this reason.
    pub fn new(cause: impl Into<String>) -> Self {
        Failure { cause: cause.into(), ops: 0 }
    }

    /// Whether it tells of a fault that the harness has put in: `FaultFs` says so of each of its own.
    pub fn is_injected(&self) -> bool {
        self.cause.contains("injected")
    }

    /// Whether it says that the disk is full; one that tells of a log that stopped for that does not.
    pub fn is_of_full_disk(&self) -> bool {
        self.cause.starts_with("no space left on the disk")
    }

    /// Whether it says that no more writes are accepted until the database is opened again.
    pub fn is_of_stopped_writes(&self) -> bool {
        self.cause.contains("writes stopped by an earlier failure")
    }

    /// Whether it says that there is no such keyspace.
    pub fn is_of_gone_keyspace(&self) -> bool {
        self.cause.starts_with("no keyspace named")
    }

    /// The failure with what was being done in front.
    pub fn during(self, what: &str) -> Self {
        Failure { cause: format!("{what}: {}", self.cause), ..self }
    }

    /// The failure of a call that writes: [`or_stopped`] excuses no other.
    pub fn of_write(self) -> Self {
        Failure { cause: format!("{OF_WRITE}{}", self.cause), ..self }
    }
}

/// A success in place of a write that was refused, or failed, since a fault that the harness has put in has stopped all
/// writes. Reads meet no such fault, and go on when writes have stopped: they have no excuse.
pub fn or_stopped(outcome: Result<()>) -> Result<()> {
    let is_excused = |failure: &Failure| {
        failure.cause.starts_with(OF_WRITE) && failure.is_of_stopped_writes() && failure.is_injected()
    };
    outcome.or_else(|failure| if is_excused(&failure) { Ok(()) } else { Err(failure) })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::new(error.to_string())
    }
}

impl From<esker::Error> for Failure {
    fn from(error: esker::Error) -> Self {
        Failure::new(error.to_string())
    }
}

impl<T> From<esker::CommitError<T>> for Failure {
    fn from(failed: esker::CommitError<T>) -> Self {
        failed.error.into()
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure::new(text)
    }
}

thread_local! {
    /// Whether this thread is inside [`caught`].
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    /// What the first panic since then said, and where.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Does work whose panics are failures. They are kept instead of printed.
///
/// # Errors
/// It panicked.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !CATCHES.get() {
                return loud(info);
            }
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
            let at = info.location().map(|at| format!("{}:{}: ", at.file(), at.line())).unwrap_or_default();
            PANIC.with_borrow_mut(|first| {
                first.get_or_insert_with(|| format!("{at}{text}"));
            });
        }));
    });
    let outer = CATCHES.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CATCHES.set(outer);
    done.map_err(|_| Failure::new(PANIC.take().unwrap_or_else(|| "a panic".to_owned())))
}

/// Forgets a panic that was asked for.
pub fn forget_panic() {
    PANIC.take();
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
