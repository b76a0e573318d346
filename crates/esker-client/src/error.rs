//! The errors of requests.

use redis::RedisError;

/// An error of a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A watched key has changed. The transaction was rolled back and can be repeated.
    #[error("a watched key has changed: repeat the transaction")]
    Dirty,
    /// Another transaction changed what this one read or wrote. It was rolled back and can be repeated.
    #[error("another transaction changed what this one read or wrote: repeat it")]
    Conflict,
    /// Waiting would close a circle of transactions that wait for each other. Abort it and repeat it.
    #[error("deadlock: abort the transaction and repeat it")]
    Deadlock,
    /// A lock was not available in time. Locks already taken stay held.
    #[error("timeout while waiting for a lock")]
    LockTimeout,
    /// The transaction was idle for too long and was rolled back.
    #[error("the transaction was idle for too long and was rolled back: abort it and repeat it")]
    TransactionTimeout,
    /// The server discarded notifications because the connection had too many. Read the watched data again.
    #[error("too many notifications: read the watched data again")]
    Overflow,
    /// The server cannot continue the change feed from this position: it no longer keeps it, has another
    /// history, or the next commit is too large. Read all data again.
    #[error("the change feed cannot continue from this position, read all data again: {0}")]
    PositionLost(String),
    /// The server reported another error.
    #[error("server error: {code} {message}")]
    Server {
        /// The first word of its error, such as `ERR` or `NOAUTH`.
        code: String,
        /// The rest of the error.
        message: String,
    },
    /// The connection failed. The request may or may not have been executed.
    #[error("the connection failed: {0}")]
    Connection(RedisError),
    /// The reply has an unexpected form, for example from a server of another version.
    #[error("unexpected reply: {0}")]
    Reply(String),
    /// The fields cannot be encoded as a key, or a key does not contain these fields.
    #[error("invalid key: {0}")]
    Key(#[from] esker_tuple::KeyError),
}

/// What requests return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns whether the transaction may succeed when repeated.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Dirty | Error::Conflict | Error::Deadlock)
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        // An aborted `EXEC` keeps its own code.
        let is_aborted = error.code() == Some("EXECABORT");
        let (code, detail) = match error.clone().into_server_errors().filter(|_| !is_aborted) {
            // Of a pipeline, the first command that failed.
            Some(errors) if !errors.is_empty() => {
                let (_, first) = &errors[0];
                (first.code().to_owned(), first.details().unwrap_or_default().to_owned())
            }
            _ => match error.code() {
                Some(code) => (code.to_owned(), error.detail().unwrap_or_default().to_owned()),
                None => return Error::Connection(error),
            },
        };
        match &code[..] {
            "DIRTY" => Error::Dirty,
            "CONFLICT" => Error::Conflict,
            "DEADLOCK" => Error::Deadlock,
            "LOCKTIMEOUT" => Error::LockTimeout,
            "TXTIMEOUT" => Error::TransactionTimeout,
            "OVERFLOW" => Error::Overflow,
            "TRUNCATED" | "FORKED" | "TOOLARGE" => Error::PositionLost(detail),
            _ => Error::Server { code, message: detail },
        }
    }
}
