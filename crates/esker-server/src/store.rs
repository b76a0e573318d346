//! The seam between the server and what stores its data. The server above uses only these traits.
//!
//! ```text
//!   commands --> Reads, Transaction, Store --> local.rs: a `Db` of this process
//!                                          `-> remote.rs: any `esker_kv::Kv`
//! ```
//!
//! Calls may block. The server above must assume neither that the files are local, nor that a number of keys
//! is known without counting.
//!
//! store.1. A transaction sees its own writes. It commits all of them, or none.
//! store.2. `Transaction::version` is larger than the version of each transaction whose commit it sees.
//!
//! - A part is a transaction that commits inside another one, which admits it and makes its writes.
//!   Until then it blocks no commit.

pub(crate) mod database;
mod error;
mod local;
pub(crate) mod record;
mod remote;
pub(crate) mod spans;

use std::any::Any;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::task::Waker;

use esker::Figure;
pub use esker::{Durability, LockMode, PartWrite as Write, Value};
pub use esker_kv::{Order, Space, Span, prefix_end};

pub use self::error::{Error, Result};
pub use self::local::LocalStore;
pub use self::remote::{OWNER_SPACE, RemoteStore, commits_of, raise_commits};

/// The isolation of a part: what it sees of other commits, and which of them conflict with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Reads see the newest state. Writes never conflict: the last commit wins.
    ReadCommitted,
    /// Reads see the state at the beginning. Writes never conflict.
    RepeatableRead,
    /// Like `RepeatableRead`, and a later commit of a key that the part writes is a conflict.
    Snapshot,
    /// Like `Snapshot`, and a later change of what the part has read is a conflict.
    Serializable,
}

/// Called with the key and the value of each entry of a range. Returns `Break` to stop.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Reads of one state of a store.
pub trait Reads {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// The store's: see [`esker::Reads::get`].
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>>;

    /// Returns the values of several keys, in order. Stops after the value with which the total exceeds
    /// `bytes_max` bytes.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>>;

    /// Calls `visit` with each entry of a range, until it returns `Break`.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()>;

    /// Returns the number of keys.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn len(&self, space: &Space) -> Result<u64>;
}

/// A transaction: reads of one state with the writes made so far on top.
pub trait Transaction: Reads + Send {
    /// Sets a key.
    ///
    /// # Errors
    /// See [`esker::WriteBatch::put`].
    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()>;

    /// Merges an operand into a key with the merge operator of the space.
    ///
    /// # Errors
    /// See [`esker::WriteBatch::merge`].
    fn merge(&mut self, space: &Space, key: &[u8], operand: &[u8]) -> Result<()>;

    /// Removes a key.
    ///
    /// # Errors
    /// See [`put`](Self::put).
    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()>;

    /// Removes all keys of a range.
    ///
    /// # Errors
    /// See [`put`](Self::put).
    fn delete_range(&mut self, space: &Space, span: Span<'_>) -> Result<()>;

    /// Returns a version for the data that this transaction writes (store.2).
    fn version(&self) -> u64;

    /// Returns the number of writes.
    fn writes(&self) -> u64;

    /// Returns whether the transaction has written nothing.
    fn is_empty(&self) -> bool {
        self.writes() == 0
    }

    /// Sets a savepoint and returns its number. Numbers start at 0.
    fn savepoint(&mut self) -> usize;

    /// Undoes the writes since a savepoint, and releases later savepoints.
    ///
    /// # Errors
    /// See [`esker::Transaction::rollback_to`]. The transaction must then not commit.
    fn rollback_to(&mut self, point: usize) -> Result<()>;

    /// Releases a savepoint and later ones. The writes since then stay.
    fn release(&mut self, point: usize);

    /// Moves the transaction to the newest state, with its writes on top.
    fn refresh(&mut self);

    /// Starts or stops to depend on reads. The commit conflicts if another commit has changed what was read
    /// meanwhile.
    fn note_reads(&mut self, notes: bool);

    /// Depends on these keys as if they had been read, if the transaction is serializable.
    ///
    /// # Errors
    /// See [`esker::Transaction::depend_on`].
    fn depend_on(&self, space: &Space, span: Span<'_>) -> Result<()>;

    /// Checks that a part may commit inside this transaction, which then depends on what the part has read.
    ///
    /// # Errors
    /// [`Error::Conflict`]: a conflict as defined by the part's [`Isolation`].
    fn admit(&mut self, part: &dyn Transaction) -> Result<()>;

    /// Visits the writes to a space: first the removals of ranges, then the writes of each key, in order of
    /// keys.
    ///
    /// # Errors
    /// See [`esker::Transaction::visit_writes`].
    fn visit_writes(&self, space: &Space, visit: &mut dyn FnMut(Write<'_>)) -> Result<()>;

    /// Makes a write of a part, with the expiry that it has in the part.
    ///
    /// # Errors
    /// See [`put`](Self::put).
    fn repeat(&mut self, space: &Space, write: Write<'_>) -> Result<()>;

    /// Returns the number of writes, including repeated ones.
    fn write_count(&self) -> usize;

    /// Returns the total size of the written keys and values, in bytes.
    fn bytes(&self) -> usize;

    /// Returns the store's own type, for [`admit`](Self::admit).
    fn as_any(&self) -> &dyn Any;

    /// Makes a new write.
    ///
    /// # Errors
    /// See [`put`](Self::put).
    fn write(&mut self, space: &Space, write: Write<'_>) -> Result<()> {
        match write {
            Write::RemoveRange { from, to } => {
                let upper = to.map_or(Bound::Unbounded, Bound::Excluded);
                self.delete_range(space, Span { lower: Bound::Included(from), upper })
            }
            Write::Put { key, value } => self.put(space, key, value),
            Write::PutUntil { .. } => self.repeat(space, write),
            Write::Remove { key } => self.remove(space, key),
            Write::Merge { key, operand } => self.merge(space, key, operand),
        }
    }

    /// Commits the transaction. Returns the number of the commit, by which [`Changes`] name it.
    ///
    /// # Errors
    /// See [`esker::Transaction::commit`].
    fn commit(self: Box<Self>, durability: Durability) -> Result<u64>;
}

/// A fixed state of a store.
pub trait Snapshot: Reads + Send + Sync {}

/// What a commit has changed in a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A key was set or removed.
    Key(Vec<u8>),
    /// The keys from the first (inclusive) to the second (exclusive) were removed. `None`: to the end.
    Range(Vec<u8>, Option<Vec<u8>>),
    /// It is not known which keys.
    Any,
}

/// The changes of a space, in the order of commits, of all writers. A change is there once readers see it
/// and before its commit returns.
pub trait Changes: Send {
    /// Returns the next change with the number of its commit. Without one, `waker` is called once there is
    /// one. The call may come from a thread that is committing.
    fn next(&mut self, waker: &Waker) -> Option<(u64, Changed)>;
}

/// Named locks of one owner. Dropping the owner releases them.
pub trait Locks: Send {
    /// Takes the lock of this name in a namespace, or changes the mode of a lock that the owner holds. If
    /// that is not possible at once, returns false, and the owner waits in the lock's queue: `waker` is
    /// called once it is worth asking again. Without a waker, the owner does not start to wait. An owner
    /// waits for one lock at a time.
    ///
    /// # Errors
    /// [`Error::Deadlock`]: the owner has left the queue. Errors of the store.
    fn try_lock(&mut self, space: &str, name: &[u8], mode: LockMode, waker: Option<&Waker>) -> Result<bool>;

    /// Ends the owner's wait, if it waits.
    fn stop_waiting(&mut self);

    /// Releases a lock, if the owner holds it.
    fn unlock(&mut self, space: &str, name: &[u8]);
}

/// A store. Each of its own reads sees the newest state.
pub trait Store: Reads + Send + Sync {
    /// Opens the space of this name, and creates it if it does not exist. `counted`: the number of its keys
    /// will be asked for often.
    ///
    /// # Errors
    /// See [`esker::Db::keyspace`].
    fn space(&self, name: &str, counted: bool) -> Result<Space>;

    /// Returns the space of this name, if it exists.
    ///
    /// # Errors
    /// See [`esker::Db::open_keyspace`].
    fn find_space(&self, name: &str) -> Result<Option<Space>>;

    /// Hints that these keys will be read or written soon.
    fn prefetch(&self, space: &Space, keys: &[&[u8]]) {
        let _ = (space, keys);
    }

    /// Returns the names of all spaces.
    ///
    /// # Errors
    /// See [`esker::Db::keyspaces`].
    fn spaces(&self) -> Result<Vec<String>>;

    /// Drops a space with all its keys.
    ///
    /// # Errors
    /// See [`esker::Db::drop_keyspace`].
    fn drop_space(&self, name: &str) -> Result<()>;

    /// Renames spaces in one commit. `names` holds pairs of the old and the new name, applied in order.
    ///
    /// # Errors
    /// See [`esker::Db::rename_keyspace`].
    fn rename_spaces(&self, names: &[(&str, &str)]) -> Result<()>;

    /// Returns a snapshot of the current state.
    fn snapshot(&self) -> Arc<dyn Snapshot>;

    /// Begins a transaction. Its commit conflicts with commits of the same keys, and with changes of what its
    /// parts have read.
    fn begin(&self) -> Box<dyn Transaction>;

    /// Begins a transaction that will commit inside another one.
    fn begin_part(&self, isolation: Isolation) -> Box<dyn Transaction>;

    /// Begins a serializable part that reads nothing by itself: see [`Transaction::depend_on`].
    fn begin_watcher(&self) -> Box<dyn Transaction> {
        self.begin_part(Isolation::Serializable)
    }

    /// Returns the changes of a space from now on. `None`: the store does not report changes.
    ///
    /// # Errors
    /// See [`esker::Keyspace::watch`].
    fn changes(&self, space: &Space) -> Result<Option<Box<dyn Changes>>> {
        let _ = space;
        Ok(None)
    }

    /// Creates an owner without locks.
    fn locks(&self) -> Box<dyn Locks>;

    /// Makes all commits so far durable.
    ///
    /// # Errors
    /// See [`esker::Db::sync`].
    fn sync(&self) -> Result<()>;

    /// Returns statistics.
    fn figures(&self) -> Vec<Figure>;

    /// Sets the merge operator of a space.
    ///
    /// # Errors
    /// See [`esker::Keyspace::set_merge_operator`].
    fn set_merge_operator(&self, space: &Space, operator: &str) -> Result<()>;

    /// Describes a failure that lasts, if there is one: of writes, or of background work that is retried.
    fn health_problem(&self) -> Option<String>;

    /// Returns whether all data probably fits into memory, so that reads hardly ever wait for a disk.
    fn is_in_memory(&self) -> bool;

    /// Compacts all data and frees the space of removed data.
    ///
    /// # Errors
    /// See [`esker::Db::compact`].
    fn compact(&self) -> Result<()>;

    /// Reads all data and returns the problems found.
    ///
    /// # Errors
    /// See [`esker::Db::check`].
    fn check(&self) -> Result<Vec<String>>;
}
