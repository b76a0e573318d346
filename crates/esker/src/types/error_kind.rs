//! `ErrorKind`: errors by what a caller does about them, for tables and for other languages.

use std::path::Path;

use super::Error;

/// What kind of error it is. Several variants of [`Error`] can be of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or option is not valid: a mistake of the caller.
    Invalid,
    /// The operating system refused an operation.
    Io,
    /// No space left. Acknowledged data is safe, reads continue.
    NoSpace,
    /// Bytes on disk are not what was written.
    Corrupt,
    /// A file was written by a newer version of Esker.
    UnsupportedVersion,
    /// Encrypted files cannot be read, or files that should be encrypted are not.
    Encryption,
    /// The directory holds no database, or an unfinished one.
    NoDatabase,
    /// Another process, or another handle in this one, has the database open.
    Locked,
    /// The database was opened to read it.
    ReadOnly,
    /// Another commit has changed what the transaction wrote or read: run it again.
    Conflict,
    /// The transaction waits in a cycle of locks: drop it, and run it again.
    Deadlock,
    /// A lock or turn was not free in time.
    LockTimeout,
    /// A failure has stopped writes; reads still work. Open the database again.
    Poisoned,
    /// The key or the value is too long.
    TooLong,
    /// There is no keyspace of this name, or it was dropped.
    KeyspaceNotFound,
    /// There is a keyspace of this name already.
    KeyspaceExists,
    /// A merge operator refused an operand or value, or the keyspace or program lacks the operator.
    Merge,
    /// The change feed, or a keyspace's history, no longer has what was asked for, or never had.
    Gone,
    /// The database has no change feed.
    NoFeed,
    /// The reader of the change feed knows of commits that this database does not have.
    FeedAhead,
    /// Something exists where a call would create a file or directory.
    AlreadyExists,
    /// A bug: a thread or a function panicked.
    Panicked,
    /// This process was forked from the one that opened the database.
    Forked,
    /// The database was closed.
    Closed,
}

impl Error {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        // Without `_`, so that a new variant gets a kind.
        match self {
            Error::Io { .. } | Error::Behind { .. } => ErrorKind::Io,
            Error::NoSpace { .. } => ErrorKind::NoSpace,
            Error::Corrupt { .. } => ErrorKind::Corrupt,
            Error::UnsupportedVersion { .. } | Error::UnknownChange(_) => ErrorKind::UnsupportedVersion,
            Error::Encryption { .. } => ErrorKind::Encryption,
            Error::NotFound(_) | Error::UnfinishedRepair(_) => ErrorKind::NoDatabase,
            Error::Locked { .. } => ErrorKind::Locked,
            Error::ReadOnly(_) => ErrorKind::ReadOnly,
            Error::Conflict { .. } => ErrorKind::Conflict,
            Error::Deadlock(_) => ErrorKind::Deadlock,
            Error::LockTimeout { .. } => ErrorKind::LockTimeout,
            Error::Poisoned(_) => ErrorKind::Poisoned,
            Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => ErrorKind::TooLong,
            Error::KeyspaceNotFound(_) => ErrorKind::KeyspaceNotFound,
            Error::KeyspaceExists(_) => ErrorKind::KeyspaceExists,
            Error::Merge { .. } | Error::MergeOperatorMissing { .. } | Error::NoMergeOperator { .. } => {
                ErrorKind::Merge
            }
            Error::FeedTruncated { .. } | Error::HistoryGone { .. } => ErrorKind::Gone,
            Error::NoFeed => ErrorKind::NoFeed,
            Error::FeedAhead { .. } => ErrorKind::FeedAhead,
            Error::AlreadyExists(_) => ErrorKind::AlreadyExists,
            Error::Panicked(_) => ErrorKind::Panicked,
            Error::Forked => ErrorKind::Forked,
            Error::Closed => ErrorKind::Closed,
            Error::Invalid(_)
            | Error::ForeignHandle { .. }
            | Error::SavepointGone
            | Error::OutOfOrder(_)
            | Error::NoBackup(_)
            | Error::OtherHistory(_)
            | Error::UnfinishedLoad(_) => ErrorKind::Invalid,
        }
    }

    /// Returns the file or directory that the error is about.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Error::Io { path, .. }
            | Error::NoSpace { path, .. }
            | Error::Corrupt { path, .. }
            | Error::UnsupportedVersion { path, .. }
            | Error::Encryption { path, .. }
            | Error::Locked { path, .. }
            | Error::Behind { path, .. }
            | Error::NotFound(path)
            | Error::UnfinishedRepair(path)
            | Error::ReadOnly(path)
            | Error::AlreadyExists(path) => Some(path),
            Error::Poisoned(cause) => cause.path(),
            _ => None,
        }
    }

    /// Returns the offset of damage in [`path`](Self::path), in bytes.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Error::Corrupt { offset, .. } => Some(*offset),
            _ => None,
        }
    }

    /// Returns the number of the operating system's error (errno).
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_poisons_says_where() {
        let damaged = Error::corrupt("block", "db/000001.sst", 7, "checksum mismatch");
        assert_eq!((damaged.kind(), damaged.offset()), (ErrorKind::Corrupt, Some(7)));
        let poisoned = Error::Poisoned(Arc::new(damaged));
        assert_eq!((poisoned.kind(), poisoned.offset()), (ErrorKind::Poisoned, None));
        assert_eq!(poisoned.path(), Some(Path::new("db/000001.sst")));
        let missing = Error::io("open", "db/LOCK", std::io::Error::from_raw_os_error(2));
        assert_eq!((missing.errno(), missing.path()), (Some(2), Some(Path::new("db/LOCK"))));
    }
}
