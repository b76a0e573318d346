//! The operations of a test. They name everything by small numbers, so that any part of a sequence is a sequence too.

use std::ops::Bound;

use esker::Durability;

/// Names that keyspaces can get.
pub const NAMES: [&str; 5] = ["users", "a", "long name \u{e9} with / and spaces", "zz", "tmp"];
/// Slots for transactions, snapshots, iterators held over time.
pub const SLOTS: usize = 3;

/// A key of the pool; see `keys.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyNo(pub u16);

/// A value: its length and what it is filled with.
#[derive(Clone, Copy, Debug)]
pub struct ValueNo {
    pub len: u32,
    pub fill: u8,
}

/// Which of the keyspaces that exist, modulo their number.
#[derive(Clone, Copy, Debug)]
pub struct KeyspaceNo(pub u8);

/// Two ends, in any order.
pub type KeyBounds = (Bound<KeyNo>, Bound<KeyNo>);

/// A change of one keyspace.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    Put(KeyNo, ValueNo),
    Remove(KeyNo),
    RemoveRange(KeyBounds),
    Clear,
}

/// A move of a cursor. `Next` and `Prev` on a cursor that is not valid are left out.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    Seek(KeyNo),
    SeekBefore(KeyNo),
    First,
    Last,
    Next,
    Prev,
}

/// A way to read one keyspace.
#[derive(Clone, Debug)]
pub enum Read {
    Get(KeyNo),
    Contains(KeyNo),
    MultiGet(Vec<KeyNo>),
    First,
    Last,
    Len,
    /// Takes entries from the front (`false`) and the back (`true`), then all others from the front.
    Range {
        bounds: KeyBounds,
        takes: Vec<bool>,
        keys_only: bool,
    },
    /// The first `len` bytes of the key.
    Prefix {
        key: KeyNo,
        len: u16,
        backwards: bool,
    },
    Cursor(Vec<Move>),
}

/// Who reads.
#[derive(Clone, Copy, Debug)]
pub enum Reader {
    Latest,
    Snapshot(usize),
    Transaction(usize),
}

/// What a crash leaves.
#[derive(Clone, Copy, Debug)]
pub enum CrashKind {
    Seed(u64),
    Strict,
    KeepAll,
}

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    pub durability: Durability,
    pub tiny: bool,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    Write(KeyspaceNo, Write),
    Batch(Vec<(KeyspaceNo, Write)>, Durability),
    Create(u8),
    Drop(KeyspaceNo),
    Rename(KeyspaceNo, u8),
    Begin(usize),
    TransactionWrite(usize, KeyspaceNo, Write),
    Commit(usize, Durability),
    Rollback(usize),
    Snapshot(usize),
    ReleaseSnapshot(usize),
    Read(Reader, KeyspaceNo, Read),
    /// Opens an iterator that is stepped later.
    Iterate(usize, Reader, KeyspaceNo, KeyBounds),
    /// Takes from the front (`false`) and the back (`true`).
    IterateOn(usize, Vec<bool>),
    Flush,
    Compact,
    /// One piece of background work, as when nobody writes (`true`) or as when somebody does.
    Step(bool),
    Sync,
    Check,
    Reopen(Opening),
    Crash(CrashKind, Opening),
}
