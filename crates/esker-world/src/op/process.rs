//! How processes begin and end, and the faults that they meet.

use esker::{Blobs, Durability, FileSizes, TableCompression};

/// Which unsynced state a power loss leaves.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// Chosen by a seed: writes are kept, lost or torn, independently per file and name.
    Seed(u64),
    /// Loses all of it.
    All,
    /// Loses none of it.
    Nothing,
}

/// How a process ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// Closes the database.
    Close,
    /// Drops all handles.
    Drop,
    /// Is killed: the operating system keeps what was written, but nothing more is synced.
    Kill,
    /// Is killed, and then the system silently fails to write some of its data to disk.
    KillUnheard {
        /// Selects that data.
        seed: u64,
        /// Whether the next process does not see that data.
        evicted: bool,
    },
    /// The machine loses power.
    Power(Loss),
}

/// An event while a process opens the database.
#[derive(Clone, Copy, Debug)]
pub enum Mishap {
    /// The process ends at a change of a file.
    End {
        /// Number of changes before.
        after: u32,
        /// Bytes of the last write that are written.
        keep: u32,
        /// How it ends.
        end: End,
    },
    /// A call fails; then opening is retried.
    Fault(Fault),
    /// The disk has this many bytes left; later it has more.
    Full(u32),
}

/// The end of a process and the beginning of the next.
#[derive(Clone, Debug)]
pub struct Restart {
    /// How the process ends.
    pub end: End,
    /// Events of processes that fail to open the database.
    pub mishaps: Vec<Mishap>,
    /// Options with which the database is finally opened.
    pub opening: Opening,
}

/// The calls that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Any.
    All,
    /// Calls that change something.
    Changes,
    /// Writes.
    Writes,
    /// Syncs of files and directories.
    Syncs,
    /// Reads.
    Reads,
}

/// How calls fail.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// With an I/O error.
    Error,
    /// The disk is full.
    NoSpace,
    /// A write stores this many bytes and fails.
    Short(u16),
    /// A sync of a file fails, and its data is never written.
    LostSync,
    /// A read silently returns one wrong byte.
    Misread,
}

/// A fault of future calls.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The calls.
    pub calls: Calls,
    /// The first call that fails, counted from 1.
    pub nth: u32,
    /// The number of calls that fail; 0 for all.
    pub times: u32,
    /// How they fail.
    pub failure: Failure,
}

/// The options of an opening.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Default durability of commits.
    pub durability: Durability,
    /// The memory budget.
    pub memory: u64,
    /// Data larger than this counts as larger than the cache.
    pub miniature: Option<u64>,
    /// Sizes of log segments and of the manifest.
    pub file_sizes: FileSizes,
    /// Size of a memtable. Log segments are a quarter of it, at least 4 KiB.
    pub memtable_bytes: usize,
    /// Memory of a large transaction, or the default.
    pub transaction_memory: Option<u64>,
    /// Size from which a commit becomes tables instead of log records, or the default.
    pub adoption_bytes: Option<u64>,
    /// Which values go to blob files.
    pub blobs: Blobs,
    /// Bytes retained for the change feed; `None` disables it.
    pub feed_bytes: Option<u64>,
    /// Size of a block.
    pub block_bytes: usize,
    /// Size of a table.
    pub table_bytes: u64,
    /// How tables are compressed.
    pub compression: TableCompression,
    /// Whether background work runs only in explicit steps; otherwise writers do it.
    pub stepped: bool,
}

impl Opening {
    /// Returns the maximum size of log segments.
    pub fn segment_bytes_max(self) -> u64 {
        (self.memtable_bytes as u64 / 4).next_multiple_of(512).max(4 << 10)
    }
}

/// What happens to the processes that share a database.
#[derive(Clone, Copy, Debug)]
pub enum GuestEvent {
    /// Of the next operation of a guest, the request after this many does not reach the host.
    LoseRequest(u32),
    /// The reply to that request is lost.
    LoseReply(u32),
    /// The guest waits for that reply in vain, and the host runs the request later.
    Delay(u32),
    /// The guest is killed.
    Kill,
    /// The guest opens the database when the host has gone.
    TakeOver,
}
