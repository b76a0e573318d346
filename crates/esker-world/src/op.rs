//! The operations. They name everything by small numbers, so that any part of a sequence is a sequence too.

use std::time::Duration;

use esker::{BackgroundStep, Durability, FileSizes, History, TableCompression};

use crate::model::keys::{KeyBounds, KeyNo};
use crate::model::values::ValueNo;

/// Names that keyspaces can get.
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
/// So many of them, the first, are drawn. The others are those of seeds that begin with many keyspaces.
pub const DRAWN_NAMES: u8 = 5;
/// Slots for transactions, snapshots, iterators and cursors held over time.
pub const SLOTS: usize = 3;

/// Which of the keyspaces that exist, modulo their number.
#[derive(Clone, Copy, Debug)]
pub struct KeyspaceNo(pub u8);

/// When an operand was merged, and how long a value lasts that begins with it.
#[derive(Clone, Copy, Debug)]
pub struct Merged {
    /// The engine's time at the call, in milliseconds.
    pub at_ms: u64,
    /// The keyspace's default lifetime then, in milliseconds; 0: none.
    pub lifetime_ms: u64,
}

/// A change of one keyspace.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    /// Sets a key.
    Put(KeyNo, ValueNo),
    /// Sets a key for a [`lifetime`].
    PutFor(KeyNo, ValueNo, u32),
    /// The same as the model has it: until this time of the engine's, in milliseconds.
    PutUntil(KeyNo, ValueNo, u64),
    /// Merges an operand into a key, by the operator of perform.rs.
    Merge(KeyNo, ValueNo),
    /// The same as the model has it: merged at a time of the engine's.
    MergeAt(KeyNo, ValueNo, Merged),
    /// Removes a key.
    Remove(KeyNo),
    /// Removes the keys between bounds.
    RemoveRange(KeyBounds),
    /// Removes all keys.
    Clear,
}

impl Write {
    /// The write as the model has it, done at this time in a keyspace of this default lifetime; 0: none.
    pub fn dated(self, at_ms: u64, lifetime_ms: u64) -> Self {
        match self {
            Write::PutFor(key, value, ms) => Write::PutUntil(key, value, until(at_ms, ms)),
            Write::Put(key, value) if lifetime_ms > 0 => Write::PutUntil(key, value, at_ms + lifetime_ms),
            Write::Merge(key, operand) => Write::MergeAt(key, operand, Merged { at_ms, lifetime_ms }),
            other => other,
        }
    }

    /// Whether a dated write gives something an end.
    pub fn expires(&self) -> bool {
        match self {
            Write::PutUntil(..) => true,
            Write::MergeAt(.., merged) => merged.lifetime_ms > 0,
            _ => false,
        }
    }

    /// The same, for ever.
    pub fn unlimited(self) -> Self {
        match self {
            Write::PutFor(key, value, _) | Write::PutUntil(key, value, _) => Write::Put(key, value),
            Write::MergeAt(key, operand, _) => Write::Merge(key, operand),
            other => other,
        }
    }
}

/// The lifetime that a number of milliseconds stands for. The largest number is the longest lifetime there is.
pub fn lifetime(ms: u32) -> Duration {
    if ms == u32::MAX { Duration::MAX } else { Duration::from_millis(u64::from(ms)) }
}

/// When something expires that gets this lifetime now.
pub fn until(now_ms: u64, ms: u32) -> u64 {
    if ms == u32::MAX { u64::MAX } else { now_ms + u64::from(ms) }
}

/// A change of a key that depends on what it has.
#[derive(Clone, Copy, Debug)]
pub enum Update {
    /// Merges a value into it by a function.
    Change(KeyNo, ValueNo),
    /// Sets it, provided that it has what it has; or something else, in vain.
    Swap(KeyNo, ValueNo, bool),
    /// Makes it this number, by an addition.
    Add(KeyNo, u32),
    /// Takes a number of the sequence under the key, with a lease of this length.
    Lease(KeyNo, u8),
    /// Takes it out.
    Take(KeyNo),
    /// Takes the first entry out.
    PopFirst,
    /// Takes the last entry out.
    PopLast,
    /// Has it expire after this lifetime.
    Expire(KeyNo, u32),
    /// Has it last for ever.
    Persist(KeyNo),
}

impl Update {
    /// The key; none for an end of the keyspace.
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

    /// Whether the harness reads the key before its call.
    pub fn looks_first(&self) -> bool {
        matches!(self, Update::Swap(..) | Update::Add(..) | Update::Lease(..))
    }
}

/// What a commit does to names of keyspaces, and to what is in them.
#[derive(Clone, Debug)]
pub enum NameChange {
    /// A new keyspace, and what is written to it.
    Create(u8, Vec<Write>),
    /// A keyspace goes.
    Drop(KeyspaceNo),
    /// A keyspace gets another name.
    Rename(KeyspaceNo, u8),
    /// A keyspace goes, a new one gets its name, and this is written to it.
    Replace(KeyspaceNo, Vec<Write>),
    /// A write to a keyspace, whatever it is called by then.
    Write(KeyspaceNo, Write),
}

/// A savepoint of a transaction. Of several, a number says how far back it is from the last one.
#[derive(Clone, Copy, Debug)]
pub enum Point {
    /// Sets one.
    Set,
    /// Undoes what came after it.
    Back(u8),
    /// Forgets it, and those after it.
    Forget(u8),
}

/// A move of a cursor. `Next` and `Prev` on a cursor that is not valid lead to the first and the last key.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// To the first key not before this one.
    Seek(KeyNo),
    /// To the last key before this one.
    SeekBefore(KeyNo),
    /// To the first key.
    First,
    /// To the last key.
    Last,
    /// To the next key.
    Next,
    /// To the key before.
    Prev,
}

/// A commit of the past: the so-manieth that is remembered, counted from the newest.
#[derive(Clone, Copy, Debug)]
pub struct Age(pub u8);

/// What keyspaces keep of the past.
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
    /// Whether a key is there.
    Contains(KeyNo),
    /// The values of several keys.
    MultiGet(Vec<KeyNo>),
    /// The first and the last entry.
    Ends,
    /// The number of keys.
    Len,
    /// Takes entries from the front (`false`) and the back (`true`), then all others from the front.
    Range {
        /// Between these.
        bounds: KeyBounds,
        /// From which end.
        takes: Vec<bool>,
        /// Without their values.
        keys_only: bool,
    },
    /// The entries that start with the first `len` bytes of the key.
    Prefix {
        /// The key.
        key: KeyNo,
        /// The bytes.
        len: u16,
        /// From the back.
        backwards: bool,
    },
    /// A walk.
    Cursor(Vec<Move>),
}

/// Who reads.
#[derive(Clone, Copy, Debug)]
pub enum Reader {
    /// Anybody.
    Latest,
    /// The snapshot in this slot.
    Snapshot(usize),
    /// The transaction in this slot.
    Transaction(usize),
}

/// What a power loss leaves of what was not synced.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// What the seed says: writes kept, lost or torn, files apart from each other, names too.
    Seed(u64),
    /// Nothing.
    All,
    /// Everything.
    Nothing,
}

/// How a process ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// It closes the database.
    Close,
    /// It lets go of all handles.
    Drop,
    /// It is killed: the operating system has all that it wrote, and nothing more of it is on the disk.
    Kill,
    /// The same, and then the system fails to write some of what it has, and nobody hears of it.
    KillUnheard {
        /// Of what.
        seed: u64,
        /// The next process does not see it either.
        evicted: bool,
    },
    /// The machine loses power.
    Power(Loss),
}

/// Something that happens to a process while it opens the database.
#[derive(Clone, Copy, Debug)]
pub enum Mishap {
    /// It ends at the so-manieth change of a file.
    End {
        /// Changes before.
        after: u32,
        /// Bytes of the last write that are written.
        keep: u32,
        /// How.
        end: End,
    },
    /// A call fails; then it is tried again.
    Fault(Fault),
    /// The disk has so many bytes left; then it has more.
    Full(u32),
}

/// The end of one process and the beginning of the next.
#[derive(Clone, Debug)]
pub struct Restart {
    /// How the first ends.
    pub end: End,
    /// Processes in between that do not get far.
    pub mishaps: Vec<Mishap>,
    /// How the last opens the database.
    pub opening: Opening,
}

/// Which calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Any.
    All,
    /// Those that change something.
    Changes,
    /// Writes.
    Writes,
    /// Syncs of files and directories.
    Syncs,
    /// Reads.
    Reads,
}

/// How they fail.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// With an I/O error.
    Error,
    /// The disk is full.
    NoSpace,
    /// Writes store so many bytes and fail.
    Short(u16),
    /// Syncs of files fail, and what they were to write is never written.
    LostSync,
    /// Reads give bytes of which one is wrong, and say nothing.
    Misread,
}

/// Calls that will fail.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Which.
    pub calls: Calls,
    /// The first to fail, from 1.
    pub nth: u32,
    /// How many; 0 is all that follow.
    pub times: u32,
    /// How.
    pub failure: Failure,
}

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Of commits that do not say it.
    pub durability: Durability,
    /// The memory budget.
    pub memory: u64,
    /// Data of more bytes counts as beyond the cache.
    pub miniature: Option<u64>,
    /// Sizes of the log's files and of the manifest.
    pub file_sizes: FileSizes,
    /// Size of a memtable; log segments are a quarter of it, 4 KiB at the least.
    pub memtable_bytes: usize,
    /// How much of a large transaction stays in memory; none: as for users.
    pub transaction_memory: Option<u64>,
    /// The size from which on a commit becomes tables, without the log; none: as for users.
    pub adoption_bytes: Option<u64>,
    /// The smallest value that goes to a blob file; 0: none does.
    pub blobs_over: usize,
    /// How many bytes are kept for the change feed; none: there is no feed.
    pub feed_bytes: Option<u64>,
    /// Size of a block.
    pub block_bytes: usize,
    /// Size of a table.
    pub table_bytes: u64,
    /// How tables are compressed.
    pub compression: TableCompression,
    /// Whether background work happens only in steps; otherwise writers do it at once.
    pub stepped: bool,
}

impl Opening {
    /// The size that log segments grow to.
    pub fn segment_bytes_max(self) -> u64 {
        (self.memtable_bytes as u64 / 4).next_multiple_of(512).max(4 << 10)
    }
}

/// How a file is loaded.
#[derive(Clone, Debug)]
pub struct Loading {
    /// The default lifetime, in milliseconds, of empty keyspaces that are there before; none: there are no keyspaces.
    pub lifetime_ms: Option<u32>,
    /// Processes that end while they load the file: changes of files before, and bytes of the last write that are written.
    pub cuts: Vec<(u32, u32)>,
    /// Each end is a power loss of this kind, or else a kill.
    pub loss: Option<Loss>,
}

/// How a copy follows.
#[derive(Clone, Copy, Debug)]
pub struct Following {
    /// Commits that it makes at most; 0: all that there are.
    pub commits: u8,
    /// How durable they are.
    pub durability: Durability,
    /// Its machine then loses power in this way.
    pub loss: Option<Loss>,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// A commit of one write.
    Write(KeyspaceNo, Write),
    /// A commit of several.
    Batch(Vec<(KeyspaceNo, Write)>, Durability),
    /// A commit of one change that depends on what is there.
    Update(KeyspaceNo, Update),
    /// A new keyspace.
    Create(u8),
    /// A keyspace goes.
    Drop(KeyspaceNo),
    /// A keyspace gets another name.
    Rename(KeyspaceNo, u8),
    /// A commit of several changes of names, and of what is in keyspaces. Those that would fail are left out.
    Names(Vec<NameChange>, Durability),
    /// Sorted pairs become a commit of their own, past the log.
    Ingest(KeyspaceNo, Vec<(KeyNo, ValueNo)>),
    /// Begins a transaction.
    Begin(usize),
    /// Adds to it.
    TransactionWrite(usize, KeyspaceNo, Write),
    /// Adds a change that depends on what it sees.
    TransactionUpdate(usize, KeyspaceNo, Update),
    /// Asks it for a keyspace by its name.
    TransactionOpen(usize, u8),
    /// Sets a savepoint in it, or goes back to one.
    Point(usize, Point),
    /// Commits it.
    Commit(usize, Durability),
    /// Forgets it.
    Rollback(usize),
    /// Takes a snapshot.
    Snapshot(usize),
    /// Lets it go.
    ReleaseSnapshot(usize),
    /// Reads.
    Read(Reader, KeyspaceNo, Read),
    /// Sets the default lifetime of a keyspace's later writes, in milliseconds; 0: without end.
    SetLifetime(KeyspaceNo, u32),
    /// Whether commits leave it to others to count the keys of a keyspace.
    SetLazyCounting(KeyspaceNo, bool),
    /// A keyspace keeps one of `HISTORIES` from now on.
    SetHistory(KeyspaceNo, u8),
    /// Reads a keyspace as it was.
    Past(Age, KeyspaceNo, Read),
    /// Reads the versions of a key.
    Versions(KeyspaceNo, KeyNo),
    /// Catches up with what has changed in a keyspace since then.
    Since(Age, KeyspaceNo),
    /// Opens an iterator that is stepped later.
    Iterate(usize, Reader, KeyspaceNo, KeyBounds),
    /// Takes from the front (`false`) and the back (`true`).
    IterateOn(usize, Vec<bool>),
    /// Opens a cursor that is moved later.
    HoldCursor(usize, Reader, KeyspaceNo),
    /// Moves it; one that is not there is opened first, on the newest state.
    MoveCursor(usize, Vec<Move>),
    /// Writes memtables to tables.
    Flush,
    /// Merges everything.
    Compact,
    /// A piece of background work.
    Step(BackgroundStep),
    /// Makes everything durable.
    Sync,
    /// Copies the database, and compares the copy.
    Checkpoint,
    /// Makes a backup, restores it elsewhere, and compares that.
    Backup,
    /// Adds to the archive of the newest backup, and makes that first if need be. Restores a commit elsewhere, which the number
    /// chooses among those that the archive has, and compares.
    Archive(u16),
    /// Writes the database to a file, loads that into another one, and compares.
    Unload(Loading),
    /// Has a second database make the commits that the change feed has, and compares it.
    Follow(Following),
    /// Has this done between two steps of the first operation that follows which has such a point.
    Between(Vec<Op>),
    /// Reads everything, in every way, and checks the files.
    Check,
    /// Lets time pass, in milliseconds.
    Clock(u32),
    /// Sets the wall clock on by so many milliseconds, or back.
    SetClock(i32),
    /// The process ends now, and another one begins.
    Restart(Restart),
    /// The process will end inside the call that makes the so-manieth change of a file from now on.
    RestartIn {
        /// Changes before.
        after: u32,
        /// Bytes of the last write that are written.
        keep: u32,
        /// How it ends and goes on.
        restart: Restart,
    },
    /// Calls will fail.
    Fault(Fault),
    /// The disk has so many bytes left.
    DiskFull(u32),
    /// No calls fail any more, and the disk has space. If the log has failed, the process ends too.
    Mend(Restart),
}

impl Op {
    /// Whether it changes something, or has it written, by itself: what writers do beside others.
    pub fn is_a_writers(&self) -> bool {
        use Op::{Batch, Compact, Create, Drop, Flush, Names, Rename, Sync, Write};
        let is_of_names = matches!(self, Create(_) | Drop(_) | Rename(..) | Names(..));
        is_of_names || matches!(self, Write(..) | Batch(..) | Flush | Compact | Sync)
    }

    /// The operation without anything that expires.
    pub fn unlimited(self) -> Self {
        match self {
            Op::SetLifetime(no, _) => Op::SetLifetime(no, 0),
            other => other.with_writes(Write::unlimited),
        }
    }

    /// The operation with other writes.
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

    /// What its acknowledgement promises, in a database with this default.
    pub fn durability(&self, default: Durability) -> Durability {
        match self {
            Op::Update(_, Update::Lease(..)) => Durability::Sync,
            Op::Write(..) | Op::Update(..) => default,
            Op::Batch(_, durability) | Op::Commit(_, durability) | Op::Names(_, durability) => *durability,
            // It commits nothing.
            Op::Ingest(_, pairs) if pairs.is_empty() => Durability::None,
            Op::Create(_) | Op::Drop(_) | Op::Rename(..) => Durability::Buffered,
            _ => Durability::Sync,
        }
    }
}
