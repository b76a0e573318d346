//! Errors of stores. They tell the caller what to do, whichever store it is.

/// An error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another commit has changed what the transaction writes or has read for update. Nothing was committed.
    /// Run the transaction again.
    #[error("another transaction has changed the same keys: run it again")]
    Conflict,
    /// The store does not answer, or accepts no writes. Nothing was committed. Try again later.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The answer to a commit was lost. The transaction is committed or not; read its keys to find out.
    #[error("it is not known whether the transaction was committed: {0}")]
    OutcomeUnknown(String),
    /// A key, a value or a transaction exceeds a [limit](crate::Limits). Nothing was committed.
    #[error("too large for the store: {0}")]
    TooLarge(String),
    /// The store no longer keeps the state of a snapshot or of a transaction. Begin a new one.
    #[error("the snapshot is too old: {0}")]
    SnapshotTooOld(String),
    /// The store cannot do this.
    #[error("the store cannot do this: {0}")]
    Unsupported(String),
    /// An argument is invalid: a space that was dropped or is another store's, a savepoint that is gone.
    #[error("{0}")]
    Invalid(String),
    /// Another error, which trying again does not mend: damaged data, a full disk, a wrong password.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// The result of a store's methods.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns whether the same transaction may succeed when it is run again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Conflict | Error::SnapshotTooOld(_))
    }

    /// An error that has no variant of its own.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(error.into())
    }
}
