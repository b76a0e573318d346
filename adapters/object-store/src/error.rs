//! Errors of the database as errors of `object_store`, with the cause as the source.

use object_store::Error;
use object_store::path::Path;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "Esker", source: source.into() }
}

pub(crate) fn not_found(path: &Path) -> Error {
    Error::NotFound { path: path.to_string(), source: "there is no such object".into() }
}

pub(crate) fn exists(path: &Path) -> Error {
    Error::AlreadyExists { path: path.to_string(), source: "there is an object".into() }
}

pub(crate) fn precondition(path: &Path, why: String) -> Error {
    Error::Precondition { path: path.to_string(), source: why.into() }
}

/// The error inside of a transaction, which has to take errors of the engine.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) Error);

impl From<esker::Error> for Failed {
    fn from(error: esker::Error) -> Self {
        Failed(generic(error))
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed(error)
    }
}

/// Runs what may wait for a disk on a thread of the runtime that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failed> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|failed| failed.0),
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(generic("the runtime shut down during the operation")),
        },
    }
}
