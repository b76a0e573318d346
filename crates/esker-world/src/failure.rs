//! Failures of runs and campaigns, and panics turned into failures.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// Prefix of the failures of writes.
const OF_WRITE: &str = "a write failed: ";

/// A failure, described as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong, and where it was noticed.
    pub cause: String,
    /// Number of operations before it, if counted.
    pub ops: u64,
}

/// A result with a [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Creates a failure.
    pub fn new(cause: impl Into<String>) -> Self {
        Failure { cause: cause.into(), ops: 0 }
    }

    /// Returns whether a fault injected by the harness caused it. `FaultFs` marks its errors.
    pub fn is_injected(&self) -> bool {
        self.cause.contains("injected")
    }

    /// Returns whether the disk is full. False for a log that stopped because of that.
    pub fn is_of_full_disk(&self) -> bool {
        self.cause.starts_with("no space left on the disk")
    }

    /// Returns whether writes are refused until the database is reopened.
    pub fn is_of_stopped_writes(&self) -> bool {
        self.cause.contains("a failure has stopped writes")
    }

    /// Returns whether the end of an earlier log could not be made durable again before the first write. The
    /// write has no effect, and the next one tries again.
    pub fn is_of_earlier_log(&self) -> bool {
        self.cause.starts_with("make durable ")
    }

    /// Returns whether a keyspace does not exist.
    pub fn is_of_gone_keyspace(&self) -> bool {
        self.cause.starts_with("no keyspace named")
    }

    /// Prefixes the failure with what was being done.
    pub fn during(self, what: &str) -> Self {
        Failure { cause: format!("{what}: {}", self.cause), ..self }
    }

    /// Marks a failure of a write, the only kind that [`or_stopped`] excuses.
    pub fn of_write(self) -> Self {
        Failure { cause: format!("{OF_WRITE}{}", self.cause), ..self }
    }
}

/// Excuses a write that failed because an injected fault stopped all writes. Reads continue after such a
/// fault, so they have no excuse.
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
    /// Message and location of the first panic since then.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work` and turns a panic into a failure instead of printing it.
///
/// # Errors
/// `work` panicked.
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

/// Forgets an expected panic.
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
            (stopped("real").of_write(), "the fault was not injected"),
        ] {
            assert!(or_stopped(Err(unexcused)).is_err(), "{why}");
        }
    }
}
