//! The error of this crate, and the form in which the host sends errors of the engine.
//!
//! Each variant of `esker::Error` that a caller acts on arrives as itself. Texts that are constants in the
//! engine (`op`, `what`) arrive as part of the detail.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker::{Contended, Error as DbError};
use serde::{Deserialize, Serialize};

use crate::commit_id::CommitId;

/// The error of all calls.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine's error, of this process or of the host.
    #[error(transparent)]
    Db(#[from] DbError),
    /// No process answered in time. Nothing was written. Try again, or wait longer
    /// ([`SharedBuilder::wait`](crate::SharedBuilder::wait)).
    #[error("database {} {why} within {waited:?}: try again, or wait longer", .dir.display())]
    NoHost {
        /// The database's directory.
        dir: PathBuf,
        /// The time that the call waited.
        waited: Duration,
        /// What was seen last.
        why: String,
    },
    /// The host went away with the transaction, snapshot or iterator. Nothing of it was written. Begin again;
    /// [`Shared::transact`](crate::Shared::transact) does so by itself.
    #[error("the process that held this transaction, snapshot or iterator has gone: begin again")]
    HostGone,
    /// The reply to a commit was lost, and no host could say what became of it in time. The commit may have
    /// been applied. [`Shared::outcome`](crate::Shared::outcome) asks again.
    #[error("whether commit {0} was applied is unknown: ask again with `Shared::outcome`")]
    OutcomeUnknown(CommitId),
    /// The host and this process speak different versions of the protocol.
    #[error("the host of database {} speaks version {theirs} of the protocol, this process {ours}: \
             use the same version of esker-shared in both", .dir.display())]
    Version {
        /// The database's directory.
        dir: PathBuf,
        /// The host's version.
        theirs: u32,
        /// The version of this process.
        ours: u32,
    },
    /// The path of the database's socket is too long for this system.
    #[error("the path {} is too long for a socket: use a shorter directory", .0.display())]
    PathTooLong(PathBuf),
}

impl Error {
    /// Returns whether a transaction that failed with this error can run again: nothing of it was written.
    pub(crate) fn asks_for_restart(&self) -> bool {
        matches!(self, Error::HostGone | Error::Db(DbError::Conflict { .. } | DbError::Deadlock(_)))
    }
}

/// The error of a reply that does not belong to its request.
pub(crate) fn unexpected() -> Error {
    DbError::Panicked("the host sent a reply that does not belong to the request: this is a bug".to_owned())
        .into()
}

/// The result of all calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine, as the host sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireError {
    /// Whether the error is the engine's `Poisoned`, with this cause. A cause has no cause itself, so a
    /// message cannot make the decoder recurse.
    pub(crate) is_poisoned: bool,
    pub(crate) cause: WireCause,
}

/// The cause of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WireCause {
    Io { code: Option<i32>, detail: String },
    NoSpace,
    Corrupt { path: String, offset: u64, detail: String },
    Conflict { keyspace: String, contended: WireContended },
    Deadlock(String),
    LockTimeout { lock: String, waited: Duration },
    KeyTooLong(u64),
    ValueTooLong(u64),
    KeyspaceNotFound(String),
    KeyspaceExists(String),
    Merge { keyspace: String, operator: String, key: Vec<u8>, detail: String },
    MergeOperatorMissing { keyspace: String, operator: String },
    NoMergeOperator(String),
    ReadOnly,
    Panicked(String),
    Invalid(String),
    Closed,
    SavepointGone,
}

/// What a transaction conflicted over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WireContended {
    Key(Vec<u8>),
    Range { start: Vec<u8>, end: Option<Vec<u8>> },
    Keyspace,
}

impl From<&Contended> for WireContended {
    fn from(contended: &Contended) -> Self {
        match contended {
            Contended::Key(key) => WireContended::Key(key.clone()),
            Contended::Range { start, end } => {
                WireContended::Range { start: start.clone(), end: end.clone() }
            }
            _ => WireContended::Keyspace,
        }
    }
}

impl From<WireContended> for Contended {
    fn from(contended: WireContended) -> Self {
        match contended {
            WireContended::Key(key) => Contended::Key(key),
            WireContended::Range { start, end } => Contended::Range { start, end },
            WireContended::Keyspace => Contended::Keyspace,
        }
    }
}

impl From<&DbError> for WireError {
    fn from(error: &DbError) -> Self {
        let (mut cause, mut is_poisoned) = (error, false);
        while let DbError::Poisoned(deeper) = cause {
            (cause, is_poisoned) = (deeper, true);
        }
        WireError { is_poisoned, cause: cause.into() }
    }
}

impl From<&DbError> for WireCause {
    fn from(error: &DbError) -> Self {
        match error {
            DbError::Io { source, .. } => {
                WireCause::Io { code: source.raw_os_error(), detail: error.to_string() }
            }
            DbError::NoSpace { .. } => WireCause::NoSpace,
            DbError::Corrupt { what, path, offset, detail } => WireCause::Corrupt {
                path: path.to_string_lossy().into_owned(),
                offset: *offset,
                detail: format!("{what}: {detail}"),
            },
            DbError::Conflict { keyspace, contended } => {
                WireCause::Conflict { keyspace: keyspace.clone(), contended: contended.into() }
            }
            DbError::Deadlock(text) => WireCause::Deadlock(text.clone()),
            DbError::LockTimeout { lock, waited } => {
                WireCause::LockTimeout { lock: lock.clone(), waited: *waited }
            }
            DbError::KeyTooLong { len } => WireCause::KeyTooLong(*len as u64),
            DbError::ValueTooLong { len } => WireCause::ValueTooLong(*len as u64),
            DbError::KeyspaceNotFound(name) => WireCause::KeyspaceNotFound(name.clone()),
            DbError::KeyspaceExists(name) => WireCause::KeyspaceExists(name.clone()),
            DbError::Merge { keyspace, operator, key, detail } => WireCause::Merge {
                keyspace: keyspace.clone(),
                operator: operator.clone(),
                key: key.clone(),
                detail: detail.clone(),
            },
            DbError::MergeOperatorMissing { keyspace, operator } => {
                WireCause::MergeOperatorMissing { keyspace: keyspace.clone(), operator: operator.clone() }
            }
            DbError::NoMergeOperator { keyspace } => WireCause::NoMergeOperator(keyspace.clone()),
            DbError::ReadOnly(_) => WireCause::ReadOnly,
            DbError::Panicked(text) => WireCause::Panicked(text.clone()),
            DbError::Closed => WireCause::Closed,
            DbError::SavepointGone => WireCause::SavepointGone,
            other => WireCause::Invalid(other.to_string()),
        }
    }
}

impl WireError {
    /// The engine's error, in a process that has the database in `dir`.
    pub(crate) fn into_db(self, dir: &Path) -> DbError {
        let cause = self.cause.into_db(dir);
        if self.is_poisoned { DbError::Poisoned(Arc::new(cause)) } else { cause }
    }

    /// Returns whether the host has closed the database.
    pub(crate) fn is_closed(&self) -> bool {
        self.cause == WireCause::Closed
    }
}

impl WireCause {
    fn into_db(self, dir: &Path) -> DbError {
        let len = |len: u64| usize::try_from(len).unwrap_or(usize::MAX);
        match self {
            WireCause::Io { code, detail } => {
                // The code decides what helps; the text is the host's.
                let kind =
                    code.map_or(io::ErrorKind::Other, |code| io::Error::from_raw_os_error(code).kind());
                let source = Arc::new(io::Error::new(kind, detail));
                DbError::Io { op: "have the host work on", path: dir.to_owned(), source }
            }
            WireCause::NoSpace => DbError::NoSpace { op: "have the host write to", path: dir.to_owned() },
            WireCause::Corrupt { path, offset, detail } => {
                DbError::corrupt("file", PathBuf::from(path), offset, detail)
            }
            WireCause::Conflict { keyspace, contended } => {
                DbError::Conflict { keyspace, contended: contended.into() }
            }
            WireCause::Deadlock(text) => DbError::Deadlock(text),
            WireCause::LockTimeout { lock, waited } => DbError::LockTimeout { lock, waited },
            WireCause::KeyTooLong(n) => DbError::KeyTooLong { len: len(n) },
            WireCause::ValueTooLong(n) => DbError::ValueTooLong { len: len(n) },
            WireCause::KeyspaceNotFound(name) => DbError::KeyspaceNotFound(name),
            WireCause::KeyspaceExists(name) => DbError::KeyspaceExists(name),
            WireCause::Merge { keyspace, operator, key, detail } => {
                DbError::Merge { keyspace, operator, key, detail }
            }
            WireCause::MergeOperatorMissing { keyspace, operator } => {
                DbError::MergeOperatorMissing { keyspace, operator }
            }
            WireCause::NoMergeOperator(keyspace) => DbError::NoMergeOperator { keyspace },
            WireCause::ReadOnly => DbError::ReadOnly(dir.to_owned()),
            WireCause::Panicked(text) => DbError::Panicked(text),
            WireCause::Invalid(text) => DbError::Invalid(text),
            WireCause::Closed => DbError::Closed,
            WireCause::SavepointGone => DbError::SavepointGone,
        }
    }
}
