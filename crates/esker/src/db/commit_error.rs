//! The error of a commit of several writes, and the future of one: both return the writes that were not made.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::engine::writes::committer::Committing;
use crate::types::{Error, Result, SeqNo};

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

/// A commit of a batch or transaction that another thread makes: a future of its number, for any runtime. The
/// commit proceeds even if the future is dropped. A failed commit returns the batch or transaction.
#[must_use = "await it to learn whether the commit succeeded"]
pub struct CommittingAll<T> {
    committing: Committing,
    /// `None` once the future is done.
    writes: Option<Box<T>>,
}

impl<T> CommittingAll<T> {
    pub(super) fn new(begun: Result<Committing>, writes: T) -> Self {
        let committing = begun.unwrap_or_else(|error| Committing::done(Err(error)));
        CommittingAll { committing, writes: Some(Box::new(writes)) }
    }

    /// A finished commit.
    pub(super) fn done(outcome: Result<SeqNo, CommitError<T>>) -> Self {
        match outcome {
            Ok(seqno) => CommittingAll { committing: Committing::done(Ok(seqno)), writes: None },
            Err(CommitError { error, given_back }) => {
                CommittingAll { committing: Committing::done(Err(error)), writes: Some(given_back) }
            }
        }
    }
}

impl<T> Future for CommittingAll<T> {
    type Output = Result<SeqNo, CommitError<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(outcome) = Pin::new(&mut self.committing).poll(context) else { return Poll::Pending };
        let writes = self.writes.take();
        Poll::Ready(outcome.map_err(|error| {
            let given_back = writes.expect("a future is not polled after its end");
            CommitError { error, given_back }
        }))
    }
}

impl<T> fmt::Debug for CommittingAll<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommittingAll").finish_non_exhaustive()
    }
}
