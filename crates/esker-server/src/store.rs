//! The seam between the server and what stores its data. Everything above is written on these traits.
//!
//! ```text
//!   commands --> Reads, Transaction, Store --> local.rs: a `Db` of this process
//! ```
//!
//! Calls may block. Nothing above may assume that files are local, or that a number of keys is known without counting.
//!
//! store.1. A transaction sees its own writes. It commits all of them, or none.
//! store.2. `Transaction::version` is larger than what any transaction got whose commit it sees.

pub(crate) mod holdings;
mod local;
pub(crate) mod spans;

use std::any::Any;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

pub use esker::backup::{BackupInfo, Segment};
pub use esker::{Durability, Error, Result, Value};

pub use self::local::LocalStore;

/// One ordered map of a store. A handle, cheap to clone.
#[derive(Clone)]
pub struct Space {
    name: Arc<str>,
    handle: Arc<dyn Any + Send + Sync>,
}

impl Space {
    /// A handle that the store understands.
    pub fn new<T: Send + Sync + 'static>(name: &str, handle: T) -> Self {
        Space { name: name.into(), handle: Arc::new(handle) }
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the store put into it; none if it is another store's.
    pub fn handle<T: 'static>(&self) -> Option<&T> {
        self.handle.downcast_ref()
    }
}

/// Bounds of a range of keys.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Where it begins.
    pub lower: Bound<&'a [u8]>,
    /// Where it ends.
    pub upper: Bound<&'a [u8]>,
}

impl<'a> Span<'a> {
    /// All keys.
    pub const ALL: Span<'static> = Span { lower: Bound::Unbounded, upper: Bound::Unbounded };

    /// From a key on, with it.
    pub fn from(key: &'a [u8]) -> Self {
        Span { lower: Bound::Included(key), upper: Bound::Unbounded }
    }

    /// From one key, with it, to another, without it.
    pub fn between(from: &'a [u8], to: &'a [u8]) -> Self {
        Span { lower: Bound::Included(from), upper: Bound::Excluded(to) }
    }

    /// Whether no key can lie in it.
    pub fn is_empty(&self) -> bool {
        match (self.lower, self.upper) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a), Bound::Excluded(b))
            | (Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
            _ => false,
        }
    }
}

/// The smallest key that is larger than all keys with a prefix; none if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// From which end a range is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Smallest key first.
    Up,
    /// Largest key first.
    Down,
}

/// Is shown the entries of a range: key and value. It breaks off when it has enough.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Reads of one state of a store.
pub trait Reads {
    /// The value of a key.
    ///
    /// # Errors
    /// The store's: see [`esker::Reads::get`].
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>>;

    /// The values of the first of several keys: of all, unless the values that were read exceed `bytes_max` bytes
    /// before. Of one key at least.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>>;

    /// Shows the entries of a range until there are no more, or `visit` breaks off.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()>;

    /// How many keys there are.
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

    /// Merges an operand into a key, by the operator of its map.
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
    fn remove_range(&mut self, space: &Space, span: Span<'_>) -> Result<()>;

    /// A number for what it makes (store.2).
    fn version(&self) -> u64;

    /// Whether it has written nothing.
    fn is_empty(&self) -> bool;

    /// Notes this point for [`undo`](Self::undo), in place of the one noted before.
    fn mark(&mut self);

    /// Undoes what was written since the last [`mark`](Self::mark).
    ///
    /// # Errors
    /// No point was noted.
    fn undo(&mut self) -> Result<()>;

    /// Notes this point for [`undo_part`](Self::undo_part). Points of [`mark`](Self::mark) that come behind it leave it as it is.
    fn begin_part(&mut self);

    /// Forgets the point of [`begin_part`](Self::begin_part). What was written since stays.
    fn end_part(&mut self);

    /// Undoes what was written since [`begin_part`](Self::begin_part), and forgets that point.
    ///
    /// # Errors
    /// The engine cannot go back.
    fn undo_part(&mut self) -> Result<()>;

    /// Commits.
    ///
    /// # Errors
    /// See [`esker::Transaction::commit`].
    fn commit(self: Box<Self>, durability: Durability) -> Result<()>;
}

/// A state of a store that does not change.
pub trait Snapshot: Reads + Send + Sync {}

/// A store. Its own reads are of the newest state, each by itself.
pub trait Store: Reads + Send + Sync {
    /// The map of this name, made if there is none. The number of keys of one that is `counted` is asked for often.
    ///
    /// # Errors
    /// See [`esker::Db::keyspace`].
    fn space(&self, name: &str, counted: bool) -> Result<Space>;

    /// The map of this name, if there is one.
    ///
    /// # Errors
    /// See [`esker::Db::open_keyspace`].
    fn find_space(&self, name: &str) -> Result<Option<Space>>;

    /// These keys are about to be looked up or put: a hint.
    fn prefetch(&self, space: &Space, keys: &[&[u8]]) {
        let _ = (space, keys);
    }

    /// The names of all maps.
    ///
    /// # Errors
    /// See [`esker::Db::keyspaces`].
    fn spaces(&self) -> Result<Vec<String>>;

    /// Drops a map with all it holds.
    ///
    /// # Errors
    /// See [`esker::Db::drop_keyspace`].
    fn drop_space(&self, name: &str) -> Result<()>;

    /// Gives maps other names, all at once: pairs of the old name and the new one, in this order.
    ///
    /// # Errors
    /// See [`esker::Db::rename_keyspace`].
    fn rename_spaces(&self, names: &[(&str, &str)]) -> Result<()>;

    /// The value of a key if memory knows it; none if a file or another machine has to be asked.
    ///
    /// # Errors
    /// See [`Reads::get`].
    fn get_if_cached(&self, space: &Space, key: &[u8]) -> Result<Option<Option<Value>>>;

    /// The state as of now.
    fn snapshot(&self) -> Arc<dyn Snapshot>;

    /// Begins a transaction.
    fn begin(&self) -> Box<dyn Transaction>;

    /// Makes all commits so far durable.
    ///
    /// # Errors
    /// See [`esker::Db::sync`].
    fn sync(&self) -> Result<()>;

    /// Figures for people: names and values.
    fn figures(&self) -> Vec<(String, String)>;

    /// Chooses the operator that keys of a map are merged by.
    ///
    /// # Errors
    /// See [`esker::Keyspace::set_merge_operator`].
    fn set_merge_operator(&self, space: &Space, operator: &str) -> Result<()>;

    /// Makes a copy of all data in a directory that is not there yet. Its last commit.
    ///
    /// # Errors
    /// See [`esker::Db::checkpoint`].
    fn checkpoint(&self, dir: &Path) -> Result<u64>;

    /// Adds a backup of all data to those in a directory.
    ///
    /// # Errors
    /// See [`esker::backup::Backup::create`].
    fn backup(&self, dir: &Path) -> Result<BackupInfo>;

    /// Adds to the archive of these backups what was committed since; none: nothing was.
    ///
    /// # Errors
    /// See [`esker::backup::Backup::archive`].
    fn archive(&self, dir: &Path) -> Result<Option<Segment>>;

    /// What fails now, if anything does: writes, or background work that is tried again.
    fn trouble(&self) -> Option<String>;

    /// Whether all data may fit into memory, so that reads hardly ever wait for a disk.
    fn is_in_memory(&self) -> bool;

    /// Merges all data, and gives back space.
    ///
    /// # Errors
    /// See [`esker::Db::compact`].
    fn compact(&self) -> Result<()>;

    /// The database of this process that it is, if it is one: replication sends its commits.
    fn local(&self) -> Option<&esker::Db> {
        None
    }

    /// What is wrong with what is stored, and how much was looked at.
    ///
    /// # Errors
    /// See [`esker::Db::check`].
    fn check(&self) -> Result<Vec<String>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!((prefix_end(b"\xff\xff"), prefix_end(b"")), (None, None));
    }

    #[test]
    fn spans_know_when_they_are_empty() {
        let (a, b) = (&b"a"[..], &b"b"[..]);
        assert!(!Span::between(a, b).is_empty() && Span::between(b, b).is_empty());
        assert!(!Span { lower: Bound::Included(a), upper: Bound::Included(a) }.is_empty());
        assert!(Span { lower: Bound::Excluded(a), upper: Bound::Included(a) }.is_empty());
        assert!(!Span::ALL.is_empty() && !Span::from(a).is_empty());
    }
}
