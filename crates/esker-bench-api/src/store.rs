//! The interface of an open database with one ordered map.
//!
//! ```text
//! Store --write(txn)--> Writer   put, remove
//!       --reader()----> Reader   get, range, keys, len, at one snapshot
//! ```
//!
//! - `Store::write` is one atomic transaction, unless [`Isolation`](crate::Isolation) says otherwise. In mode
//!   `Sync`, the data is on the device when it returns.
//! - A `Reader` is a snapshot. It sees each transaction as a unit, and none that committed after it began.
//! - A visitor receives the values. An engine that can lend its bytes copies nothing, and every engine pays
//!   the same virtual call.
//! - Setting the mode back to `Sync` makes all earlier commits durable, so that no row pays for the syncs of
//!   an earlier one.

use std::pin::Pin;
use std::time::Instant;

/// A result whose error says why a row has no value.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Receives items, in key order.
pub type VisitItem<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

/// The work of one transaction.
pub type Work<'a> = &'a mut dyn FnMut(&mut dyn Writer) -> Result<()>;

/// A commit that the engine makes: whether it was made, or false after a conflict.
pub type Committing = Pin<Box<dyn Future<Output = Result<bool>>>>;

/// An open database with one ordered map.
pub trait Store: Send + Sync {
    /// Sets the durability of the next transactions. Fails with [`Failure::Unsupported`] if the engine lacks
    /// it.
    fn set_durability(&mut self, durability: Durability) -> Result<()>;

    /// Runs `work` in one transaction and commits it. An error from `work` rolls back, except with
    /// [`Isolation::Operation`](crate::Isolation::Operation). Many threads may call it. On a conflict the
    /// adapter runs `work` again.
    fn write(&self, work: Work<'_>) -> Result<()>;

    /// Returns whether the engine has [`begin_write`](Self::begin_write), and two threads with it are its
    /// cheapest way to keep many commits in flight.
    fn begins_writes(&self) -> bool {
        false
    }

    /// Like [`write`](Self::write), for a caller that does not wait for the commit. Commits are made in the
    /// order in which they began. On a conflict the caller begins again.
    fn begin_write(&self, _work: Work<'_>) -> Result<Option<Committing>> {
        Ok(None)
    }

    /// Opens a snapshot.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;

    /// Reads the newest state once, in the engine's cheapest way.
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reader()?.get(key, visit)
    }

    /// Reads a range of the newest state once, in the engine's cheapest way.
    fn range(&self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        self.reader()?.range(from, limit, visit)
    }

    /// Runs the engine's most complete compaction. The default is for an engine that lacks
    /// [`Feature::Compaction`], whose rows say why.
    fn compact(&mut self) -> Result<()> {
        Err(Failure::Unsupported("it has no compaction".to_owned()))
    }

    /// Closes and opens the database after each `compact`, untimed. Some engines remove replaced files only
    /// then, or were opened with other options for the compaction. If closing or opening does a part of the
    /// compaction, `compact` does it instead.
    fn reopen(&mut self) -> Result<()> {
        Ok(())
    }

    /// Waits until the engine has no more background work (flushes, compactions) than it leaves when idle, or
    /// until `deadline`. Engines that do all work within their calls return at once.
    fn drain(&self, _deadline: Instant) -> Result<()> {
        Ok(())
    }

    /// Returns the engine's own count of syncs, if it keeps one.
    fn sync_count(&self) -> Option<u64> {
        None
    }
}

/// The open transaction of a [`Store::write`].
pub trait Writer {
    /// Inserts or replaces an item.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes `key`, which need not exist.
    fn remove(&mut self, key: &[u8]) -> Result<()>;

    /// Passes the value of `key`, as the transaction sees it, to `visit`. Returns false if there is none.
    /// Only suite `transactions` uses it.
    fn get(&mut self, _key: &[u8], _visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Err(Failure::Unsupported("its adapter writes without reading".to_owned()))
    }
}

/// A snapshot.
#[expect(clippy::len_without_is_empty, reason = "the lab never asks whether an engine is empty")]
pub trait Reader {
    /// Passes the value of `key` to `visit`. Returns false if there is none.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes up to `limit` items from the first key >= `from` to `visit`, in key order. Returns their
    /// number.
    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64>;

    /// The same for keys alone, for engines that can leave values unread.
    fn keys(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        self.range(from, limit, &mut |key, _| visit(key))
    }

    /// The exact number of items.
    fn len(&mut self) -> Result<u64>;
}

/// Passes up to `limit` items of an engine's iterator to `visit`. Returns their number.
pub fn visit_some<T, E>(
    items: impl Iterator<Item = Result<T, E>>,
    limit: u64,
    mut visit: impl FnMut(T),
) -> Result<u64>
where
    Failure: From<E>,
{
    let mut seen = 0;
    for item in items.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
        visit(item?);
        seen += 1;
    }
    Ok(seen)
}

/// Options of an opening, the same for all engines of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Size of the engine's cache, or of its one memory budget.
    pub cache_bytes: u64,
    /// Size of the memtable or write buffer, if the suite limits it. Engines without one ignore it.
    pub write_buffer_bytes: Option<u64>,
    /// Size of the suite's largest value, for engines that must be configured to store large values apart. 0
    /// if unknown.
    pub value_bytes: u64,
    /// Size of the suite's longest key if that is longer than 32 bytes, otherwise 0. For engines whose page
    /// size depends on it. Engines in Go do not receive it, because none has such an option.
    pub key_bytes: u64,
    /// Number of concurrent write transactions, for engines that gather several into one commit.
    pub concurrent_writes: u64,
    /// Whether the suite reads and writes at random, in more data than memory holds, until it closes the
    /// store. The adapter of an engine that maps its file may then turn off read-ahead. It is false for a
    /// store that is opened for a walk, which needs read-ahead. Engines in Go do not receive it, because none
    /// has such an option.
    pub random_beyond_memory: bool,
    /// Whether new keys ascend, or nearly so with several writers. An engine may then split full pages
    /// unevenly, so that the left page stays fuller. Only engines in Go have such an option.
    pub ascending_keys: bool,
    /// Durability of the next transactions. The opening fails with [`Failure::Unsupported`] if the engine
    /// lacks it.
    pub durability: Durability,
}

impl OpenOptions {
    /// Options with this cache size, sync commits and the engine's defaults.
    pub fn with_cache(cache_bytes: u64) -> Self {
        Self {
            cache_bytes,
            write_buffer_bytes: None,
            value_bytes: 0,
            key_bytes: 0,
            concurrent_writes: 1,
            random_beyond_memory: false,
            ascending_keys: false,
            durability: Durability::Sync,
        }
    }
}

/// Something that some rows need and some engines lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// [`Durability::Sync`].
    SyncCommits,
    /// [`Durability::Async`].
    AsyncCommits,
    /// [`Durability::NoSync`].
    NoSyncCommits,
    /// Transactions of any size that the disk allows.
    LargeTransactions,
    /// Values of 2 MB.
    LargeValues,
    /// [`Store::compact`].
    Compaction,
    /// A [`Reader`] does not see what is committed after it began.
    Snapshots,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 7] = [
        Self::SyncCommits,
        Self::AsyncCommits,
        Self::NoSyncCommits,
        Self::LargeTransactions,
        Self::LargeValues,
        Self::Compaction,
        Self::Snapshots,
    ];

    /// Returns the name for lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::SyncCommits => "sync commits",
            Self::AsyncCommits => "async commits",
            Self::NoSyncCommits => "nosync commits",
            Self::LargeTransactions => "large transactions",
            Self::LargeValues => "large values",
            Self::Compaction => "compaction",
            Self::Snapshots => "snapshots",
        }
    }
}

/// How far a commit has come when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On the device.
    Sync,
    /// Written later. After a power cut the database is sound and lacks only the newest commits. If the
    /// engine has a mode for it, the commit has reached the operating system, so that it outlives the
    /// process.
    Async,
    /// The engine's fastest mode that leaves a sound database after a crash of the process.
    NoSync,
}

impl Durability {
    /// Returns the feature that a row of this durability needs.
    pub fn feature(self) -> Feature {
        match self {
            Self::Sync => Feature::SyncCommits,
            Self::Async => Feature::AsyncCommits,
            Self::NoSync => Feature::NoSyncCommits,
        }
    }
}

/// Why a row has no value. `?` makes a [`Failure::Engine`] of any other error, which is why this type is not
/// an [`Error`](std::error::Error) itself.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The engine cannot do this by design: its row says so, and the run goes on.
    Unsupported(String),
    /// The row lacks something that is not the engine's, such as a program on this machine: it says so, and
    /// the run goes on.
    NotRun(String),
    /// The engine answered wrongly: the row fails, and the run goes on.
    Wrong(String),
    /// The engine failed: what follows would measure a broken database, so the run of this engine ends.
    Engine(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsupported(why) => write!(f, "not supported: {why}"),
            Self::NotRun(why) => write!(f, "not run: {why}"),
            Self::Wrong(what) => write!(f, "wrong answer: {what}"),
            Self::Engine(error) => f.write_str(error),
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::engine(error)
    }
}

impl Failure {
    /// Wraps an engine's own error, or a text.
    pub fn engine(error: impl std::fmt::Display) -> Self {
        Self::Engine(error.to_string())
    }
}
