//! Errors of stores. They tell the caller what to do, whichever store it is.

use std::fmt;

/// An error of a store.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another commit has changed what a transaction has read or written. Nothing was committed. Run the
    /// transaction again.
    Conflict,
    /// Owners of locks wait for each other in a cycle. This owner has left its queue.
    Deadlock(String),
    /// The log of the database cannot be written. Nothing was done; reads continue.
    Poisoned(String),
    /// The store does not answer. Nothing was done.
    Unavailable(String),
    /// A commit failed midway, or its answer was lost. The data may be committed or not.
    OutcomeUnknown(String),
    /// A key, a value or a transaction exceeds a limit of the store.
    TooLarge(String),
    /// The disk or the quota is full.
    NoSpace(String),
    /// The store cannot do this.
    Unsupported(String),
    /// An argument is invalid, or stored data is.
    Invalid(String),
    /// Another error of the engine.
    Engine(esker::Error),
}

/// The result of a store's methods.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Conflict => f.write_str("another transaction has written the same keys: run it again"),
            Error::Deadlock(text)
            | Error::Poisoned(text)
            | Error::Unavailable(text)
            | Error::OutcomeUnknown(text)
            | Error::TooLarge(text)
            | Error::NoSpace(text)
            | Error::Unsupported(text)
            | Error::Invalid(text) => f.write_str(text),
            Error::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<esker::Error> for Error {
    fn from(error: esker::Error) -> Self {
        use esker::Error as Engine;
        match error {
            Engine::Conflict { .. } => Error::Conflict,
            Engine::Deadlock(cycle) => Error::Deadlock(cycle),
            error @ Engine::Poisoned(..) => Error::Poisoned(error.to_string()),
            error @ (Engine::KeyTooLong { .. } | Engine::ValueTooLong { .. }) => {
                Error::TooLarge(error.to_string())
            }
            error @ Engine::NoSpace { .. } => Error::NoSpace(error.to_string()),
            Engine::Invalid(text) => Error::Invalid(text),
            error @ (Engine::ForeignHandle { .. }
            | Engine::SavepointGone
            | Engine::NoMergeOperator { .. }) => Error::Invalid(error.to_string()),
            other => Error::Engine(other),
        }
    }
}
