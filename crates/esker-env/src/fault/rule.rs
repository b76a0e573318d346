//! Which calls a fault concerns, and what it does to them.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kinds of calls that rules can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpKind {
    /// Opening an existing file.
    Open,
    /// Opening a file that is created if missing.
    Create,
    /// Reading at an offset.
    Read,
    /// Writing at an offset.
    Write,
    /// Making a file's bytes durable.
    SyncData,
    /// Making a directory's entries durable.
    SyncDir,
    /// Changing a file's length.
    SetLen,
    /// Reserving disk space.
    Allocate,
    /// Renaming a file or a directory.
    Rename,
    /// Removing the name of a file or a directory.
    Remove,
    /// Listing a directory.
    List,
    /// Creating directories.
    CreateDir,
    /// Querying length, existence or free space.
    Stat,
    /// Taking a lock.
    Lock,
    /// Starting writeback or dropping cached pages.
    Hint,
    /// Giving a file a second name.
    Link,
}

impl OpKind {
    /// Every kind.
    pub const ALL: [OpKind; 16] = [
        OpKind::Open,
        OpKind::Create,
        OpKind::Read,
        OpKind::Write,
        OpKind::SyncData,
        OpKind::SyncDir,
        OpKind::SetLen,
        OpKind::Allocate,
        OpKind::Rename,
        OpKind::Remove,
        OpKind::List,
        OpKind::CreateDir,
        OpKind::Stat,
        OpKind::Lock,
        OpKind::Hint,
        OpKind::Link,
    ];

    /// The kinds of calls that change the state after a crash.
    pub const CHANGES: [OpKind; 10] = [
        OpKind::Create,
        OpKind::Write,
        OpKind::SyncData,
        OpKind::SyncDir,
        OpKind::SetLen,
        OpKind::Allocate,
        OpKind::Rename,
        OpKind::Remove,
        OpKind::CreateDir,
        OpKind::Link,
    ];
}

/// What a rule does to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The call fails with this kind of error and has no effect.
    Fail(io::ErrorKind),
    /// The call takes effect but returns this kind of error. A call that changes nothing only fails.
    DoneThenFail(io::ErrorKind),
    /// A write stores its first `keep` bytes (whole blocks of a direct file) and fails. Other calls fail.
    ShortWrite {
        /// Bytes that are written.
        keep: usize,
    },
    /// A read succeeds with one byte changed. No effect on other calls and on empty reads.
    CorruptRead {
        /// Bits to flip in the byte.
        xor: u8,
        /// Index of the byte, modulo the length of the read.
        at: usize,
    },
    /// A read returns at most its first `keep` bytes (at least one; whole blocks of a direct file), as a
    /// system may do at any time. No effect on other calls.
    ShortRead {
        /// Bytes that are read.
        keep: usize,
    },
    /// A sync of a file fails, and later syncs do not write its bytes, although readers see them, as on
    /// Linux: [`forget_unsynced`](crate::File::forget_unsynced). Other calls fail without effect.
    LostSync,
    /// The call fails with `StorageFull` and has no effect.
    NoSpace,
    /// The call panics and has no effect.
    Panic,
    /// The call is made after a delay.
    Delay(Duration),
    /// The process dies in this call: it and every later one fail, as after
    /// [`freeze`](crate::FaultFs::freeze). A write stores its first `keep` bytes (whole blocks of a direct
    /// file).
    Freeze {
        /// Bytes that are written.
        keep: usize,
    },
}

/// Selects calls and the fault injected into them.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// The kinds of calls that match.
    pub ops: Vec<OpKind>,
    /// Matches only paths that contain this text (either path of a rename or link).
    pub path_contains: Option<String>,
    /// Matches only this path (either path of a rename or link).
    pub file: Option<PathBuf>,
    /// Matches only reads and writes that touch these bytes of a file.
    pub bytes: Option<Range<u64>>,
    /// The first matching call on which the rule fires, counted from 1 since the rule was added.
    pub nth: u64,
    /// Number of matching calls on which the rule fires; `u64::MAX` for no limit.
    pub times: u64,
    /// The fault.
    pub action: FaultAction,
}

impl FaultRule {
    /// Fires once, on the next call of one of these kinds.
    pub fn new(ops: &[OpKind], action: FaultAction) -> Self {
        FaultRule {
            ops: ops.to_vec(),
            path_contains: None,
            file: None,
            bytes: None,
            nth: 1,
            times: 1,
            action,
        }
    }

    /// Restricts the rule to paths that contain `text`.
    pub fn on_path(self, text: &str) -> Self {
        FaultRule { path_contains: Some(text.to_owned()), ..self }
    }

    /// Restricts the rule to one file.
    pub fn on_file(self, path: &Path) -> Self {
        FaultRule { file: Some(path.to_owned()), ..self }
    }

    /// Restricts the rule to reads and writes that touch these bytes.
    pub fn on_bytes(self, bytes: Range<u64>) -> Self {
        FaultRule { bytes: Some(bytes), ..self }
    }

    /// Fires first on the `nth` matching call, counted from 1.
    pub fn nth(self, nth: u64) -> Self {
        FaultRule { nth, ..self }
    }

    /// Fires on every matching call from the first one on.
    pub fn forever(self) -> Self {
        FaultRule { times: u64::MAX, ..self }
    }
}
