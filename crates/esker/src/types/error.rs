//! The engine's one error type.
//!
//! - A variant exists only if callers act on it differently.
//! - Every corruption is reported by [`Error::corrupt`], with file and offset.
//! - A refusal that the user can lift says how (`remedy`). Its message does not mention repair: nothing is
//!   damaged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::LockError;

use super::conflict::Contended;
use super::{EncryptionProblem, SeqNo};

/// The error of all calls.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation.
    #[error("{op} {}: {source}{}", .path.display(), remedy(.source).map_or(String::new(), |what| format!("; {what}")))]
    Io {
        /// The operation.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// No space left. Acknowledged data is safe, and reads continue. Writes succeed again once there is
    /// space.
    #[error("no space left on the disk to {op} {}: free some space and try again", .path.display())]
    NoSpace {
        /// The operation.
        op: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Bytes on disk are not what was written.
    #[error("corrupt {what} in {} at offset {offset}: {detail}", .path.display())]
    Corrupt {
        /// The kind of object: `block`, `footer`, `WAL record`, ...
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Position in the file, in bytes.
        offset: u64,
        /// What is wrong.
        detail: String,
    },
    /// A file was written by a newer version of Esker.
    #[error("{what} {} has format version {found}{}: use a newer esker", .path.display(), not_read(*.found, *.supported))]
    UnsupportedVersion {
        /// The kind of file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The version found. If it is not above `supported`, the file has features that this build does not
        /// know, or says 0.
        found: u32,
        /// The newest version this build reads.
        supported: u32,
    },
    /// Encrypted files cannot be read, or files that should be encrypted are not.
    #[error("{}: {problem}", .path.display())]
    Encryption {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        problem: EncryptionProblem,
    },
    /// The directory holds no database and creating one was not allowed.
    #[error("no database in {}: create one with `create_if_missing`, or check the path", .0.display())]
    NotFound(PathBuf),
    /// A repair into the directory is running or was killed. The directory holds no complete database.
    #[error("a repair into {} did not finish: remove the directory and repair again", .0.display())]
    UnfinishedRepair(PathBuf),
    /// Another process, or another handle in this one, has the database open.
    #[error("{} {}", .path.parent().unwrap_or(.path).display(), locked_by(*.pid, *.in_this_process))]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The holder, if known.
        pid: Option<u32>,
        /// The holder has the process id of this process. A process in another container may have it as well.
        in_this_process: bool,
    },
    /// The database was opened to read it: see [`Db::open_read_only`](crate::Db::open_read_only) and
    /// [`Db::open_follower`](crate::Db::open_follower). Nothing was changed.
    #[error("database {} is open for reading only: open it with `Db::open` to change it", .0.display())]
    ReadOnly(PathBuf),
    /// The files of a live database changed at each attempt to read a state of it. Try again.
    #[error("database {} changed during all of {attempts} attempts to follow it: try again", .path.display())]
    Behind {
        /// The database's directory.
        path: PathBuf,
        /// Number of attempts.
        attempts: u32,
    },
    /// Another commit has written a key that this transaction writes, or into a range that it removes, since
    /// it began. For a [serializable](crate::Isolation::Serializable) transaction: has changed what it read.
    /// Nothing was written. Run the transaction again.
    #[error(
        "transaction conflict over {contended} in keyspace {keyspace:?}: another commit has written it; run the transaction again"
    )]
    Conflict {
        /// The name of the keyspace.
        keyspace: String,
        /// The first conflict found in it.
        contended: Contended,
    },
    /// The transaction waits in a cycle of lock owners and began last. Drop it, and run it again.
    #[error("deadlock: {0}; drop the transaction and run it again")]
    Deadlock(String),
    /// Another owner has held a lock, or an exclusive transaction its turn, for too long.
    #[error("{lock} was not free within {waited:?}: wait longer, or find its holder")]
    LockTimeout {
        /// The lock and its key or name, for people.
        lock: String,
        /// How long the call waited.
        waited: std::time::Duration,
    },
    /// A write or sync of the log failed, now or earlier, or background work panicked. Writes are refused;
    /// reads continue. Reopen the database to write again. Only then is it known whether the commit that
    /// failed first exists.
    #[error("a failure has stopped writes; reads still work, reopen to write again: {0}")]
    Poisoned(Arc<Error>),
    /// The key is longer than 65,535 bytes.
    #[error("key of {len} bytes: the longest key is {} bytes", crate::KEY_BYTES_MAX)]
    KeyTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The value is longer than 4 GiB - 1.
    #[error("value of {len} bytes: the longest value is {} bytes", crate::VALUE_BYTES_MAX)]
    ValueTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// Commits requested from the [change feed](crate::Db::feed_after) are no longer kept, or never were.
    /// Read a snapshot, and the feed from there on.
    #[error(
        "the change feed begins with commit {oldest}: older ones are not kept; read a snapshot, and the feed from there on"
    )]
    FeedTruncated {
        /// The oldest commit that can be read, or the next one if there is none.
        oldest: SeqNo,
    },
    /// There is no keyspace of this name, or it was dropped.
    #[error("no keyspace named {0:?}")]
    KeyspaceNotFound(String),
    /// There is a keyspace of this name already.
    #[error("keyspace {0:?} exists already")]
    KeyspaceExists(String),
    /// Operands cannot be merged into the value of a key: the value or an operand is not what the keyspace's
    /// merge operator expects. A write that fails with this changes nothing. If a read fails, a `put` or
    /// `delete` gives the key a new value.
    #[error("cannot merge into key \"{}\" of keyspace {keyspace:?} by {operator:?}: {detail}", .key.escape_ascii())]
    Merge {
        /// The name of the keyspace.
        keyspace: String,
        /// The name of its merge operator.
        operator: String,
        /// The key.
        key: Vec<u8>,
        /// What is wrong.
        detail: String,
    },
    /// A keyspace has a merge operator that this program has not registered.
    #[error(
        "keyspace {keyspace:?} needs merge operator {operator:?}: register it by `Builder::merge_operator` before opening"
    )]
    MergeOperatorMissing {
        /// The name of the keyspace.
        keyspace: String,
        /// The name of the operator.
        operator: String,
    },
    /// The keyspace no longer keeps its state at that commit: see
    /// [`Keyspace::set_history`](crate::Keyspace::set_history).
    #[error(
        "keyspace {keyspace:?} can be read as of commit {oldest} or a later one: it keeps nothing older; `set_history` has a keyspace keep its past"
    )]
    HistoryGone {
        /// The name of the keyspace.
        keyspace: String,
        /// The oldest commit at which it can be read.
        oldest: SeqNo,
    },
    /// The keyspace has no merge operator.
    #[error("keyspace {keyspace:?} has no merge operator: set one with `set_merge_operator`")]
    NoMergeOperator {
        /// The name of the keyspace.
        keyspace: String,
    },
    /// A handle of another database was passed, or of this one before it was closed and opened again.
    #[error(
        "the handle of keyspace {keyspace:?} is of another database, or of this one before it was closed: get one from the `Db` in use"
    )]
    ForeignHandle {
        /// The name of the keyspace.
        keyspace: String,
    },
    /// The savepoint cannot be used by this transaction.
    #[error("the savepoint was released or rolled back, or belongs to another transaction")]
    SavepointGone,
    /// The database was opened without a [change feed](crate::Db::feed_after).
    #[error("there is no change feed: open the database with `feed_retention`")]
    NoFeed,
    /// A reader of the change feed has a position beyond the newest commit. It has read another database, or
    /// commits that this one has lost since.
    #[error(
        "the change feed cannot begin after commit {after}: the newest commit is {newest}, so the reader knows of commits that this database does not have"
    )]
    FeedAhead {
        /// The position of the reader.
        after: SeqNo,
        /// The newest commit.
        newest: SeqNo,
    },
    /// There is no such backup, or the archive does not reach the commit from it.
    #[error("{0}")]
    NoBackup(String),
    /// A backup, an archive or encoded changes have commits that this database does not have: they are those
    /// of another database, or this one was reset to an older state. Nothing was changed. Make a new backup,
    /// or a new copy of the source.
    #[error("{0}")]
    OtherHistory(String),
    /// A [load](crate::unload::Load) into this database is unfinished. Nothing was changed. Finish it, or
    /// drop what it has created.
    #[error("{0}")]
    UnfinishedLoad(String),
    /// A newer version of Esker has written a change, which this one does not know.
    #[error("{0}: use a newer esker")]
    UnknownChange(String),
    /// Something exists where a call would create a file or directory.
    #[error("{} exists already: choose a path where nothing is", .0.display())]
    AlreadyExists(PathBuf),
    /// Keys or entries were not given in their order.
    #[error("{0}")]
    OutOfOrder(String),
    /// A thread of the engine, or a function given to it, panicked. This is a bug.
    #[error("{0}")]
    Panicked(String),
    /// An argument or option is not valid: a mistake of the caller.
    #[error("{0}")]
    Invalid(String),
    /// This process was forked from the process that opened the database, and only that one can use it.
    /// Nothing was changed. Open the database again in the child.
    #[error(
        "this process was forked from the one that opened the database, and only that one can use it: close the database before the fork, or open it again in the child"
    )]
    Forked,
    /// The database was closed.
    #[error("the database is closed")]
    Closed,
}

/// What the user can do about an error of the operating system, if anything.
fn remedy(error: &io::Error) -> Option<&'static str> {
    // EMFILE and ENFILE everywhere; std has no kinds for them.
    let (of_process, of_system) = if cfg!(windows) { (4, None) } else { (24, Some(23)) };
    match error.raw_os_error() {
        Some(code) if code == of_process => {
            return Some(
                "this process has too many files open: raise its limit (`ulimit -n`); larger tables (`Tuning::table_bytes`) are fewer files",
            );
        }
        code if code.is_some() && code == of_system => {
            return Some("the system has too many files open: raise its limit (`fs.file-max` on Linux)");
        }
        _ => {}
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Some("give this user the right to read and write there, or run as the database's owner")
        }
        io::ErrorKind::ReadOnlyFilesystem => Some(
            "opening a database writes to its directory: open it with `Db::open_read_only`, or make the disk writable",
        ),
        io::ErrorKind::FileTooLarge => Some("raise the limit on the size of files (`ulimit -f`)"),
        _ => None,
    }
}

/// Names the holder of a lock and what to do about it.
fn locked_by(pid: Option<u32>, in_this_process: bool) -> String {
    match pid {
        Some(pid) if in_this_process => format!(
            "is already open in this process ({pid}): use that handle, or drop it with all keyspaces and snapshots made from it"
        ),
        Some(pid) => format!("is in use by process {pid}: close it there, or wait"),
        None => "is in use, perhaps by readers, in another process or this one: close it there, or wait"
            .to_owned(),
    }
}

/// Explains why a file of this version is not read.
fn not_read(found: u32, supported: u32) -> String {
    match found > supported {
        true => format!("; this build reads up to {supported}"),
        false => " and in it what this build does not know".to_owned(),
    }
}

/// A result with the engine's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An I/O error with its operation (`"read"`, `"sync"`, ...) and file; a full disk becomes
    /// [`Error::NoSpace`].
    pub fn io(op: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace { op, path },
            _ => Error::Io { op, path, source: Arc::new(source) },
        }
    }

    /// Replaces the operating system's error about a file that exists, where the user chose the path.
    pub(crate) fn or_exists(self) -> Self {
        match self {
            Error::Io { source, path, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                Error::AlreadyExists(path)
            }
            other => other,
        }
    }

    /// Replaces the log's error by its cause, for a file that is not part of the log.
    pub(crate) fn not_of_the_log(self) -> Self {
        match self {
            Error::Poisoned(cause) => (*cause).clone(),
            other => other,
        }
    }

    /// The error of a read of `len` bytes at `offset`. Its text names both.
    pub(crate) fn read(path: impl AsRef<Path>, offset: u64, len: usize, source: &io::Error) -> Self {
        let placed = io::Error::new(source.kind(), format!("{source} ({len} bytes at offset {offset})"));
        Error::io("read", path, placed)
    }

    /// Adds to an error of corruption what to do about it.
    pub(crate) fn with_remedy(self) -> Error {
        match self {
            Error::Corrupt { what, path, offset, detail } if !detail.contains("esker repair") => {
                let detail = format!("{detail}; restore a backup or run `esker repair`");
                Error::corrupt(what, path, offset, detail)
            }
            other => other,
        }
    }

    /// Makes an error of corruption. The only place that does.
    #[cold]
    pub fn corrupt(
        what: &'static str,
        path: impl AsRef<Path>,
        offset: u64,
        detail: impl Into<String>,
    ) -> Self {
        Error::Corrupt { what, path: path.as_ref().to_path_buf(), offset, detail: detail.into() }
    }

    /// Makes an error about the keys of a file or directory.
    pub(crate) fn encryption(path: &Path, problem: EncryptionProblem) -> Self {
        Error::Encryption { path: path.to_owned(), problem }
    }

    /// What the user can do about an error of the operating system that is not damage: too many open files,
    /// missing rights, a read-only disk. The message ends with it.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Error::Io { source, .. } => remedy(source),
            _ => None,
        }
    }

    /// The error of a lock that is held or cannot be taken, as seen by process `own`.
    pub(crate) fn lock(path: PathBuf, error: LockError, own: u32) -> Self {
        match error {
            LockError::Held { path, pid } => Error::Locked { path, pid, in_this_process: pid == Some(own) },
            LockError::Io(e) => Error::io("lock", path, e),
        }
    }

    /// Returns whether bytes on disk were found damaged.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, Error::Corrupt { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn refusals_say_what_lifts_them_and_not_to_repair() {
        // EMFILE, ENFILE, EACCES, EPERM, EFBIG, EROFS, ENOSPC.
        let cases = [
            (24, "ulimit -n"),
            (24, "table_bytes"),
            (23, "the system"),
            (13, "the right to read and write"),
            (1, "the right to read and write"),
            (27, "ulimit -f"),
            (30, "make the disk writable"),
            (28, "no space left on the disk to sync /db/x: free some space"),
        ];
        for (code, helps) in cases {
            let error = Error::io("sync", "/db/x", io::Error::from_raw_os_error(code));
            for error in [error.clone(), error] {
                let text = error.to_string();
                assert!(text.contains(helps) && !text.contains("repair"), "{code}: {text}");
                assert_eq!(error.remedy().is_some(), code != 28, "{code}");
            }
        }
        // EIO: the user can do nothing about it.
        let error = Error::io("sync", "/db/x", io::Error::from_raw_os_error(5));
        assert_eq!(error.remedy(), None);
    }
}
