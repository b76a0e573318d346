//! `CommitError`: why a commit failed, and what it was to write.

use std::fmt;

use crate::types::Error;

/// A commit that failed gives back what it was to write, so that it can be tried again: after [`Error::NoSpace`], once there is
/// room. It converts into [`Error`], so `?` works where that is all that matters.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let db = esker::Db::in_memory()?;
/// # let users = db.default_keyspace();
/// let mut batch = db.batch();
/// batch.put(&users, "ann", "1")?;
/// loop {
///     match batch.commit() {
///         Ok(_) => break,
///         Err(failed) if matches!(failed.error, esker::Error::NoSpace { .. }) => batch = *failed.given_back, // make room
///         Err(failed) => return Err(failed.error),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct CommitError<T> {
    /// Why it failed.
    pub error: Error,
    /// The batch or transaction, as it was. After [`Error::Poisoned`] the next opening shows whether its writes are there.
    pub given_back: Box<T>,
}

impl<T> CommitError<T> {
    pub(super) fn new(error: Error, given_back: T) -> Self {
        CommitError { error, given_back: Box::new(given_back) }
    }
}

impl<T> From<CommitError<T>> for Error {
    fn from(failed: CommitError<T>) -> Self {
        failed.error
    }
}

impl<T> fmt::Debug for CommitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for CommitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for CommitError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
