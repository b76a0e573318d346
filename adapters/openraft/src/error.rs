//! The error of this crate, and how it becomes one of openraft.

use openraft::{AnyError, ErrorSubject, ErrorVerb, NodeId, StorageError, StorageIOError};

/// An error of the storage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Esker(#[from] esker::Error),
    /// Something cannot be written as MessagePack.
    #[error("cannot encode {what}: {source}")]
    Encode {
        /// What it is.
        what: &'static str,
        /// The cause.
        source: rmp_serde::encode::Error,
    },
    /// Stored bytes are not what this crate writes for these types.
    #[error("cannot decode {what}: {source}")]
    Decode {
        /// What it is.
        what: &'static str,
        /// The cause.
        source: rmp_serde::decode::Error,
    },
    /// A snapshot from another node cannot be read.
    #[error("the snapshot is damaged at byte {offset}: {detail}")]
    Snapshot {
        /// The position in the snapshot.
        offset: usize,
        /// What is wrong.
        detail: &'static str,
    },
    /// The runtime shuts down.
    #[error("the runtime shut down during the operation")]
    ShutDown,
}

/// Adds what failed, and keeps the error as the source.
pub(crate) fn of<N: NodeId>(
    subject: ErrorSubject<N>,
    verb: ErrorVerb,
) -> impl FnOnce(Error) -> StorageError<N> {
    move |error| StorageIOError::new(subject, verb, AnyError::new(&error)).into()
}

/// Runs what may wait for a disk on a thread of the runtime that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Error::ShutDown),
        },
    }
}
