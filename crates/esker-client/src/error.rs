//! Why a request was not done.

use redis::RedisError;

/// Why a request was not done. Callers act differently on each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that the transaction watches has changed. It is rolled back: begin again.
    #[error("something that was watched has changed: begin the transaction again")]
    Dirty,
    /// Others have changed what the transaction has read or written. It is rolled back: begin again.
    #[error("others have changed what the transaction has read or written: begin it again")]
    Conflict,
    /// The transaction would wait for others that wait for it: abort it, and begin again.
    #[error("deadlock: abort the transaction, and begin it again")]
    Deadlock,
    /// A lock was not given in time. Those that were free are held.
    #[error("a lock was not given back in time")]
    LockTimeout,
    /// The transaction was left alone for too long, and is rolled back.
    #[error("the transaction was left alone for too long, and is rolled back: abort it, and begin again")]
    TransactionTimeout,
    /// More topics were said than the server keeps for a connection: read again what you were waiting for.
    #[error("more topics were said than the server keeps: read again what you were waiting for")]
    Overflow,
    /// The server refused for another reason.
    #[error("the server refused: {code} {message}")]
    Server {
        /// The first word of its error, such as `ERR` or `NOAUTH`.
        code: String,
        /// The rest.
        message: String,
    },
    /// The connection failed. Whether the request was done is not known.
    #[error("the connection failed: {0}")]
    Connection(RedisError),
    /// The server replied something else than expected: it may be of another version.
    #[error("a reply of another form: {0}")]
    Reply(String),
    /// Fields that cannot be a key, or a key that does not hold these fields.
    #[error("a key of other fields: {0}")]
    Key(String),
}

/// What requests return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the transaction may succeed if it begins again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Dirty | Error::Conflict | Error::Deadlock)
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        let Some(code) = error.code() else { return Error::Connection(error) };
        match code {
            "DIRTY" => Error::Dirty,
            "CONFLICT" => Error::Conflict,
            "DEADLOCK" => Error::Deadlock,
            "LOCKTIMEOUT" => Error::LockTimeout,
            "TXTIMEOUT" => Error::TransactionTimeout,
            "OVERFLOW" => Error::Overflow,
            code => Error::Server {
                code: code.to_owned(),
                message: error.detail().unwrap_or_default().to_owned(),
            },
        }
    }
}
