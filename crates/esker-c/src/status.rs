//! `esker_status`: how a call ended.

use std::ffi::CStr;

use esker::{Error, ErrorKind};

/// How a call ended. The first four are no errors. Numbers keep their meaning; expect new ones.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum esker_status {
    /// Done.
    ESKER_OK = 0,
    /// There is no such key, entry or commit. No error is made.
    ESKER_NOT_FOUND = 1,
    /// The key has another value than esker_compare_and_swap expected. No error is made.
    ESKER_NOT_SWAPPED = 2,
    /// The buffer is too small for the next entry. No error is made.
    ESKER_BUFFER_TOO_SMALL = 3,
    /// An argument or option is not valid: a mistake of the caller.
    ESKER_INVALID = 4,
    /// The operating system refused an operation.
    ESKER_IO = 5,
    /// No space left. Acknowledged data is safe, reads continue.
    ESKER_NO_SPACE = 6,
    /// Bytes on disk are not what was written: see esker_error_file and esker_error_offset.
    ESKER_CORRUPT = 7,
    /// A file was written by a newer version of Esker.
    ESKER_UNSUPPORTED_VERSION = 8,
    /// Encrypted files cannot be read, or files that should be encrypted are not.
    ESKER_ENCRYPTION = 9,
    /// The directory holds no database, or an unfinished one.
    ESKER_NO_DATABASE = 10,
    /// Another process, or another handle in this one, has the database open.
    ESKER_LOCKED = 11,
    /// The database was opened to read it.
    ESKER_READ_ONLY = 12,
    /// Another commit has changed what the transaction wrote or read: run it again.
    ESKER_CONFLICT = 13,
    /// The transaction waits in a cycle of locks: drop it, and run it again.
    ESKER_DEADLOCK = 14,
    /// A lock or turn was not free in time.
    ESKER_LOCK_TIMEOUT = 15,
    /// A failure has stopped writes; reads still work. Open the database again.
    ESKER_POISONED = 16,
    /// The key is longer than ESKER_KEY_BYTES_MAX, or the value longer than 4 GiB - 1.
    ESKER_TOO_LONG = 17,
    /// There is no keyspace of this name, or it was dropped.
    ESKER_KEYSPACE_NOT_FOUND = 18,
    /// There is a keyspace of this name already.
    ESKER_KEYSPACE_EXISTS = 19,
    /// A merge operator refused an operand or value, or the keyspace or program lacks the operator.
    ESKER_MERGE = 20,
    /// The change feed, or a keyspace's history, no longer has what was asked for, or never had.
    ESKER_GONE = 21,
    /// The database has no change feed: open it with esker_options_set_feed.
    ESKER_NO_FEED = 22,
    /// The reader of the change feed knows of commits that this database does not have.
    ESKER_FEED_AHEAD = 23,
    /// Something exists where a call would create a file or directory.
    ESKER_EXISTS = 24,
    /// A bug: a thread or a function panicked.
    ESKER_PANICKED = 25,
    /// This process was forked from the one that opened the database: open it again in the child.
    ESKER_FORKED = 26,
    /// The database was closed.
    ESKER_CLOSED = 27,
    /// An error that has no number of its own.
    ESKER_OTHER = 28,
}

use esker_status::*;

impl esker_status {
    /// The status of an error of the engine.
    pub(crate) fn of(error: &Error) -> esker_status {
        match error.kind() {
            ErrorKind::Invalid => ESKER_INVALID,
            ErrorKind::Io => ESKER_IO,
            ErrorKind::NoSpace => ESKER_NO_SPACE,
            ErrorKind::Corrupt => ESKER_CORRUPT,
            ErrorKind::UnsupportedVersion => ESKER_UNSUPPORTED_VERSION,
            ErrorKind::Encryption => ESKER_ENCRYPTION,
            ErrorKind::NoDatabase => ESKER_NO_DATABASE,
            ErrorKind::Locked => ESKER_LOCKED,
            ErrorKind::ReadOnly => ESKER_READ_ONLY,
            ErrorKind::Conflict => ESKER_CONFLICT,
            ErrorKind::Deadlock => ESKER_DEADLOCK,
            ErrorKind::LockTimeout => ESKER_LOCK_TIMEOUT,
            ErrorKind::Poisoned => ESKER_POISONED,
            ErrorKind::TooLong => ESKER_TOO_LONG,
            ErrorKind::KeyspaceNotFound => ESKER_KEYSPACE_NOT_FOUND,
            ErrorKind::KeyspaceExists => ESKER_KEYSPACE_EXISTS,
            ErrorKind::Merge => ESKER_MERGE,
            ErrorKind::Gone => ESKER_GONE,
            ErrorKind::NoFeed => ESKER_NO_FEED,
            ErrorKind::FeedAhead => ESKER_FEED_AHEAD,
            ErrorKind::AlreadyExists => ESKER_EXISTS,
            ErrorKind::Panicked => ESKER_PANICKED,
            ErrorKind::Forked => ESKER_FORKED,
            ErrorKind::Closed => ESKER_CLOSED,
            _ => ESKER_OTHER,
        }
    }
}

const NAMES: &[(esker_status, &CStr)] = &[
    (ESKER_OK, c"ok"),
    (ESKER_NOT_FOUND, c"not found"),
    (ESKER_NOT_SWAPPED, c"not swapped"),
    (ESKER_BUFFER_TOO_SMALL, c"buffer too small"),
    (ESKER_INVALID, c"invalid"),
    (ESKER_IO, c"io"),
    (ESKER_NO_SPACE, c"no space"),
    (ESKER_CORRUPT, c"corrupt"),
    (ESKER_UNSUPPORTED_VERSION, c"unsupported version"),
    (ESKER_ENCRYPTION, c"encryption"),
    (ESKER_NO_DATABASE, c"no database"),
    (ESKER_LOCKED, c"locked"),
    (ESKER_READ_ONLY, c"read only"),
    (ESKER_CONFLICT, c"conflict"),
    (ESKER_DEADLOCK, c"deadlock"),
    (ESKER_LOCK_TIMEOUT, c"lock timeout"),
    (ESKER_POISONED, c"poisoned"),
    (ESKER_TOO_LONG, c"too long"),
    (ESKER_KEYSPACE_NOT_FOUND, c"keyspace not found"),
    (ESKER_KEYSPACE_EXISTS, c"keyspace exists"),
    (ESKER_MERGE, c"merge"),
    (ESKER_GONE, c"gone"),
    (ESKER_NO_FEED, c"no feed"),
    (ESKER_FEED_AHEAD, c"feed ahead"),
    (ESKER_EXISTS, c"exists"),
    (ESKER_PANICKED, c"panicked"),
    (ESKER_FORKED, c"forked"),
    (ESKER_CLOSED, c"closed"),
    (ESKER_OTHER, c"other"),
];

/// Returns a status's name in words, such as "not found". It lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn esker_status_name(status: i32) -> *const std::ffi::c_char {
    let known = NAMES.iter().find(|(known, _)| *known as i32 == status);
    known.map_or(c"unknown", |(_, name)| name).as_ptr()
}
