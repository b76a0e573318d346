//! The operations. They refer to everything by small numbers, so that any subsequence is valid.

mod process;

use std::time::Duration;

use esker::{BackgroundStep, Durability, History};

pub use self::process::{Calls, End, Failure, Fault, GuestEvent, Loss, Mishap, Opening, Restart};
use crate::model::keys::{KeyBounds, KeyNo};
use crate::model::values::ValueNo;

/// Names of keyspaces.
pub const NAMES: [&str; 13] = [
    "users",
    "a",
    "long name \u{e9} with / and spaces",
    "zz",
    "tmp",
    "b0",
    "b1",
    "b2",
    "b3",
    "b4",
    "b5",
    "b6",
    "b7",
];
/// Number of names that generated operations use. Seeds with many keyspaces create the others first.
pub const DRAWN_NAMES: u8 = 5;
/// Slots for transactions, snapshots, iterators and cursors held over time.
pub const SLOTS: usize = 3;

/// A keyspace: an index into the existing ones, modulo their number.
#[derive(Clone, Copy, Debug)]
pub struct KeyspaceNo(pub u8);

/// When an operand was merged, and the lifetime of a value that starts with it.
#[derive(Clone, Copy, Debug)]
pub struct Merged {
    /// The engine's time at the call, in milliseconds.
    pub at_ms: u64,
    /// The lifetime of a value that the operand begins, in milliseconds; 0 means none.
    pub lifetime_ms: u64,
}

impl Merged {
    /// An operand of a call with a [`lifetime`]. A lifetime of zero is one of a millisecond that has passed.
    fn lasting(at_ms: u64, ms: u32) -> Self {
        match ms {
            0 => Merged { at_ms: at_ms.saturating_sub(1), lifetime_ms: 1 },
            ms => Merged { at_ms, lifetime_ms: until(0, ms) },
        }
    }
}

/// A change of one keyspace.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    /// Sets a key.
    Put(KeyNo, ValueNo),
    /// Sets a key for a [`lifetime`].
    PutFor(KeyNo, ValueNo, u32),
    /// In the model: sets a key until this engine time in milliseconds.
    PutUntil(KeyNo, ValueNo, u64),
    /// Applies a merge operand to a key.
    Merge(KeyNo, ValueNo),
    /// Applies a merge operand to a key. A value that it begins has a [`lifetime`]. Guests have no such call.
    MergeFor(KeyNo, ValueNo, u32),
    /// In the model: a merge at an engine time.
    MergeAt(KeyNo, ValueNo, Merged),
    /// Removes a key.
    Remove(KeyNo),
    /// Removes the keys within bounds.
    RemoveRange(KeyBounds),
    /// Removes all keys.
    Clear,
}

impl Write {
    /// Converts a write at this time, in a keyspace with this default lifetime, to absolute expiry times.
    pub fn dated(self, at_ms: u64, lifetime_ms: u64) -> Self {
        match self {
            Write::PutFor(key, value, ms) => Write::PutUntil(key, value, until(at_ms, ms)),
            Write::Put(key, value) if lifetime_ms > 0 => Write::PutUntil(key, value, at_ms + lifetime_ms),
            Write::Merge(key, operand) => Write::MergeAt(key, operand, Merged { at_ms, lifetime_ms }),
            Write::MergeFor(key, operand, ms) => Write::MergeAt(key, operand, Merged::lasting(at_ms, ms)),
            other => other,
        }
    }

    /// Returns whether it sets an expiry time.
    pub fn expires(&self) -> bool {
        match self {
            Write::PutUntil(..) => true,
            Write::MergeAt(.., merged) => merged.lifetime_ms > 0,
            _ => false,
        }
    }

    /// Returns the write without an expiry time.
    pub fn unlimited(self) -> Self {
        match self {
            Write::PutFor(key, value, _) | Write::PutUntil(key, value, _) => Write::Put(key, value),
            Write::MergeFor(key, operand, _) | Write::MergeAt(key, operand, _) => Write::Merge(key, operand),
            other => other,
        }
    }

    /// Returns whether it needs a merge operator.
    pub fn is_merge(&self) -> bool {
        matches!(self, Write::Merge(..) | Write::MergeFor(..) | Write::MergeAt(..))
    }
}

/// Converts milliseconds to a lifetime. The largest number means the maximum lifetime.
pub fn lifetime(ms: u32) -> Duration {
    if ms == u32::MAX { Duration::MAX } else { Duration::from_millis(u64::from(ms)) }
}

/// Returns the expiry time of a lifetime that begins now.
pub fn until(now_ms: u64, ms: u32) -> u64 {
    if ms == u32::MAX { u64::MAX } else { now_ms + u64::from(ms) }
}

/// A read-modify-write change of a key.
#[derive(Clone, Copy, Debug)]
pub enum Update {
    /// Updates it by a function that merges a value into it.
    Change(KeyNo, ValueNo),
    /// Compares and swaps; with `false`, the comparison fails.
    Swap(KeyNo, ValueNo, bool),
    /// Adds so that the result is this number.
    Add(KeyNo, u32),
    /// Takes a number from the sequence under the key, with a lease of this length.
    Lease(KeyNo, u8),
    /// Takes and removes it.
    Take(KeyNo),
    /// Takes and removes the first entry.
    PopFirst,
    /// Takes and removes the last entry.
    PopLast,
    /// Sets its lifetime.
    Expire(KeyNo, u32),
    /// Removes its expiry time.
    Persist(KeyNo),
}

impl Update {
    /// Returns the key, unless the change concerns the first or last entry.
    pub fn key(&self) -> Option<KeyNo> {
        match *self {
            Update::Change(key, _)
            | Update::Swap(key, ..)
            | Update::Add(key, _)
            | Update::Lease(key, _)
            | Update::Take(key)
            | Update::Expire(key, _)
            | Update::Persist(key) => Some(key),
            Update::PopFirst | Update::PopLast => None,
        }
    }

    /// Returns whether the harness reads the key before the call.
    pub fn looks_first(&self) -> bool {
        matches!(self, Update::Swap(..) | Update::Add(..) | Update::Lease(..))
    }
}

/// A change of keyspaces and their contents within a commit.
#[derive(Clone, Debug)]
pub enum NameChange {
    /// Creates a keyspace and writes to it.
    Create(u8, Vec<Write>),
    /// Drops a keyspace.
    Drop(KeyspaceNo),
    /// Renames a keyspace.
    Rename(KeyspaceNo, u8),
    /// Drops a keyspace, creates a new one with its name and writes to it.
    Replace(KeyspaceNo, Vec<Write>),
    /// Writes to a keyspace under its name at that point.
    Write(KeyspaceNo, Write),
}

/// An operation on savepoints of a transaction. The number counts back from the last savepoint.
#[derive(Clone, Copy, Debug)]
pub enum Point {
    /// Sets a savepoint.
    Set,
    /// Rolls back to a savepoint.
    Back(u8),
    /// Releases a savepoint and later ones.
    Forget(u8),
}

/// A move of a cursor. On an invalid cursor, `Next` and `Prev` move to the first and the last key.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// To the first key at or after this one.
    Seek(KeyNo),
    /// To the last key before this one.
    SeekBefore(KeyNo),
    /// To the first key.
    First,
    /// To the last key.
    Last,
    /// To the next key.
    Next,
    /// To the previous key.
    Prev,
}

/// A past commit: an index into the remembered ones, counted from the newest.
#[derive(Clone, Copy, Debug)]
pub struct CommitsAgo(pub u8);

/// History settings of keyspaces.
pub const HISTORIES: [History; 5] = [
    History::Versions(2),
    History::For(Duration::from_secs(4_000)),
    History::Versions(1),
    History::For(Duration::from_secs(40)),
    History::None,
];

/// A way to read one keyspace.
#[derive(Clone, Debug)]
pub enum Read {
    /// The value of a key.
    Get(KeyNo),
    /// Whether a key exists.
    Contains(KeyNo),
    /// The values of several keys.
    MultiGet(Vec<KeyNo>),
    /// The first and the last entry.
    Ends,
    /// The number of keys.
    Len,
    /// Takes entries from the front (`false`) and the back (`true`), then all others from the front.
    Range {
        /// The range.
        bounds: KeyBounds,
        /// The ends from which entries are taken.
        takes: Vec<bool>,
        /// Without values.
        keys_only: bool,
    },
    /// The entries with the first `len` bytes of the key as prefix.
    Prefix {
        /// The key.
        key: KeyNo,
        /// Length of the prefix.
        len: u16,
        /// Backwards.
        backwards: bool,
    },
    /// Moves of a cursor.
    Cursor(Vec<Move>),
}

/// The view that is read.
#[derive(Clone, Copy, Debug)]
pub enum Reader {
    /// The newest state.
    Latest,
    /// The snapshot in this slot.
    Snapshot(usize),
    /// The transaction in this slot.
    Transaction(usize),
}

/// How an unloaded file is loaded.
#[derive(Clone, Debug)]
pub struct Loading {
    /// Default lifetime, in milliseconds, of empty keyspaces created before the load, if any.
    pub lifetime_ms: Option<u32>,
    /// Processes that end while loading: number of file changes before, and bytes of the last write that are
    /// written.
    pub cuts: Vec<(u32, u32)>,
    /// The power loss at each end; `None` means a kill.
    pub loss: Option<Loss>,
}

/// Large commits on a disk that gets full.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// Free bytes at the start.
    pub bytes: u32,
    /// Operations of commits that put, up to the first that finds no space.
    pub fills: Vec<Op>,
    /// Operations of commits that only remove.
    pub empties: Vec<Op>,
    /// Whether the disk stays limited.
    pub stays: bool,
}

/// How a replica follows.
#[derive(Clone, Copy, Debug)]
pub struct Following {
    /// Maximum number of commits to replay; 0 for all.
    pub commits: u8,
    /// Durability of the replayed commits.
    pub durability: Durability,
    /// A power loss of its machine afterwards.
    pub loss: Option<Loss>,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Commits one write.
    Write(KeyspaceNo, Write),
    /// Commits several writes.
    Batch(Vec<(KeyspaceNo, Write)>, Durability),
    /// Commits a read-modify-write change.
    Update(KeyspaceNo, Update),
    /// Creates a keyspace.
    Create(u8),
    /// Drops a keyspace.
    Drop(KeyspaceNo),
    /// Renames a keyspace.
    Rename(KeyspaceNo, u8),
    /// Commits several changes of keyspaces and their contents, without those that would fail.
    Names(Vec<NameChange>, Durability),
    /// Commits sorted pairs by an ingest, without the log.
    Ingest(KeyspaceNo, Vec<(KeyNo, ValueNo)>),
    /// Begins a transaction.
    Begin(usize),
    /// Begins an exclusive transaction.
    BeginExclusive(usize),
    /// Commits three writes to a keyspace: by a transaction that has conflicted, by an exclusive transaction,
    /// and by a commit that waits for both meanwhile.
    TakeTurns(KeyspaceNo, [Write; 3]),
    /// Fills a limited disk by large commits, and removes.
    Crowd(Crowd),
    /// Something happens to the processes that share the database.
    Guest(GuestEvent),
    /// Adds a write to it.
    TransactionWrite(usize, KeyspaceNo, Write),
    /// Adds a read-modify-write change to it.
    TransactionUpdate(usize, KeyspaceNo, Update),
    /// Opens a keyspace by name within it.
    TransactionOpen(usize, u8),
    /// Uses its savepoints.
    Point(usize, Point),
    /// Commits it.
    Commit(usize, Durability),
    /// Rolls it back.
    Rollback(usize),
    /// Takes a snapshot.
    Snapshot(usize),
    /// Drops a snapshot.
    ReleaseSnapshot(usize),
    /// Reads.
    Read(Reader, KeyspaceNo, Read),
    /// Sets the default lifetime of later writes to a keyspace, in milliseconds; 0 means none.
    SetLifetime(KeyspaceNo, u32),
    /// Sets whether commits leave counting the keys of a keyspace to compactions.
    SetLazyCounting(KeyspaceNo, bool),
    /// Sets the history of a keyspace to one of `HISTORIES`.
    SetHistory(KeyspaceNo, u8),
    /// Sets the maximum size of a keyspace; 0 means none.
    SetBytesMax(KeyspaceNo, u32),
    /// Reads a past state of a keyspace.
    Past(CommitsAgo, KeyspaceNo, Read),
    /// Reads the versions of a key.
    Versions(KeyspaceNo, KeyNo),
    /// Reads the changes of a keyspace since a past commit.
    Since(CommitsAgo, KeyspaceNo),
    /// Opens an iterator to be used later.
    Iterate(usize, Reader, KeyspaceNo, KeyBounds),
    /// Takes entries from the front (`false`) and the back (`true`).
    IterateOn(usize, Vec<bool>),
    /// Opens a cursor to be moved later.
    HoldCursor(usize, Reader, KeyspaceNo),
    /// Moves a cursor, opening it on the newest state if necessary.
    MoveCursor(usize, Vec<Move>),
    /// Flushes memtables.
    Flush,
    /// Compacts everything.
    Compact,
    /// Compacts a range of a keyspace.
    CompactRange(KeyspaceNo, KeyBounds),
    /// Runs a step of background work.
    Step(BackgroundStep),
    /// Syncs the log.
    Sync,
    /// Makes a checkpoint and compares it.
    Checkpoint,
    /// Makes a backup, restores it and compares the result.
    Backup,
    /// Adds to the archive of the newest backup, making a backup first if necessary. Restores an archived
    /// commit chosen by the number and compares the result.
    Archive(u16),
    /// Unloads the database to a file, loads it into another database and compares that.
    Unload(Loading),
    /// Replays commits of the change feed in a replica and compares it.
    Follow(Following),
    /// Interleaves these operations with the steps of the next operation that has such a point.
    Between(Vec<Op>),
    /// Reads the directory beside the process that has it open.
    Beside,
    /// Reads everything in every way and checks the files.
    Check,
    /// Advances the clock by milliseconds.
    Clock(u32),
    /// Sets the wall clock forward or back by milliseconds.
    SetClock(i32),
    /// Ends the process and starts another one.
    Restart(Restart),
    /// Schedules the end of the process inside a call that changes a file.
    RestartIn {
        /// Number of changes before.
        after: u32,
        /// Bytes of the last write that are written.
        keep: u32,
        /// How it ends and restarts.
        restart: Restart,
    },
    /// Schedules a fault.
    Fault(Fault),
    /// Limits the disk to this many more bytes.
    DiskFull(u32),
    /// Removes all faults and limits. If the log has failed, also restarts the process.
    Mend(Restart),
}

impl Op {
    /// Returns whether it changes or flushes something by itself, as operations of concurrent writers do.
    pub fn is_a_writers(&self) -> bool {
        use Op::{Batch, Compact, CompactRange, Create, Drop, Flush, Names, Rename, Sync, Write};
        let is_of_names = matches!(self, Create(_) | Drop(_) | Rename(..) | Names(..));
        is_of_names || matches!(self, Write(..) | Batch(..) | Flush | Compact | CompactRange(..) | Sync)
    }

    /// Returns the operation without expiry times.
    pub fn unlimited(self) -> Self {
        match self {
            Op::SetLifetime(no, _) => Op::SetLifetime(no, 0),
            other => other.with_writes(Write::unlimited),
        }
    }

    /// Returns the operation with its writes mapped.
    pub fn with_writes(self, other: impl Fn(Write) -> Write) -> Self {
        let all = |writes: Vec<Write>| writes.into_iter().map(&other).collect();
        let change = |change: NameChange| match change {
            NameChange::Create(name, writes) => NameChange::Create(name, all(writes)),
            NameChange::Replace(no, writes) => NameChange::Replace(no, all(writes)),
            NameChange::Write(no, write) => NameChange::Write(no, other(write)),
            change => change,
        };
        match self {
            Op::Write(no, write) => Op::Write(no, other(write)),
            Op::Batch(writes, durability) => {
                Op::Batch(writes.into_iter().map(|(no, write)| (no, other(write))).collect(), durability)
            }
            Op::Names(changes, durability) => {
                Op::Names(changes.into_iter().map(change).collect(), durability)
            }
            Op::TransactionWrite(slot, no, write) => Op::TransactionWrite(slot, no, other(write)),
            op => op,
        }
    }

    /// Returns the durability that its acknowledgement promises, given the default.
    pub fn durability(&self, default: Durability) -> Durability {
        match self {
            Op::Update(_, Update::Lease(..)) => Durability::Sync,
            Op::Write(..) | Op::Update(..) => default,
            Op::Batch(_, durability) | Op::Commit(_, durability) | Op::Names(_, durability) => *durability,
            // An empty ingest commits nothing.
            Op::Ingest(_, pairs) if pairs.is_empty() => Durability::None,
            Op::Create(_) | Op::Drop(_) | Op::Rename(..) => Durability::Buffered,
            _ => Durability::Sync,
        }
    }
}
