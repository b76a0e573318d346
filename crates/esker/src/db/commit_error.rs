//! `CommitError`: the error of a commit, together with the writes that it did not make.

use std::fmt;

use crate::types::Error;

/// A failed commit. It returns the batch or transaction, so that the caller can commit it again, for example
/// after freeing space on [`Error::NoSpace`]. It converts into [`Error`], so `?` works where the writes are
/// not needed again.
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
///         // Free some space first.
///         Err(failed) if matches!(failed.error, esker::Error::NoSpace { .. }) => batch = *failed.given_back,
///         Err(failed) => return Err(failed.error),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct CommitError<T> {
    /// The error.
    pub error: Error,
    /// The batch or transaction, unchanged. After [`Error::Poisoned`] the next opening shows whether its
    /// writes exist.
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
