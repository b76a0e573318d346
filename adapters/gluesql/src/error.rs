//! Errors of the database as errors of GlueSQL, which hold text only.

use gluesql_core::error::Error;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns an error with the text of another and of its causes.
pub(crate) fn storage(error: impl std::error::Error) -> Error {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors repeat the text of their cause.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    Error::StorageMsg(text)
}

/// The error inside of a transaction, which has to take errors of the engine.
pub(crate) struct Failed(pub(crate) Error);

impl From<esker::Error> for Failed {
    fn from(error: esker::Error) -> Self {
        Failed(storage(error))
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed(error)
    }
}
