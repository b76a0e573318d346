//! The database: what its users hold in their hands.
//!
//! ```text
//!   Db -- keyspace --> Keyspace      put get remove range ...
//!      |- snapshot --> Snapshot      the same reads, at one commit
//!      |- begin, transact --> Transaction
//!      `- batch --> WriteBatch
//! ```

mod batch;
mod bounds;
mod builder;
mod commit_error;
mod cursor;
mod feed;
mod figures;
mod handles;
mod ingest;
mod key_handle;
mod keyspace;
mod locks;
mod past;
mod range;
mod reads;
mod savepoint;
mod sequence;
mod snapshot;
#[cfg(feature = "tokio")]
mod stream;
mod transact;
mod transaction;
mod ttl;
mod updates;
mod watch;
mod writes;

use std::path::Path;
use std::sync::Arc;

pub use self::batch::WriteBatch;
pub use self::builder::{Builder, check_offline, repair};
pub use self::commit_error::CommitError;
pub use self::cursor::Cursor;
pub use self::feed::{Feed, FeedChange, FeedCommit, FeedOperand, FeedValue};
pub use self::ingest::Ingest;
pub use self::key_handle::Key;
pub use self::keyspace::Keyspace;
pub use self::locks::NamedLock;
pub use self::past::{Changed, Changes, Past, RemovedRange, Version, Versions};
pub use self::range::{Keys, Range};
pub use self::reads::{Reads, View};
pub use self::savepoint::Savepoint;
pub use self::sequence::Sequence;
pub use self::snapshot::Snapshot;
#[cfg(feature = "tokio")]
pub use self::stream::{EntryStream, FeedStream};
pub use self::transact::Committed;
pub use self::transaction::Transaction;
pub use self::ttl::Ttl;
pub use self::updates::ViewMut;
pub use self::watch::{Change, Listener, Notice, Watch};

use crate::engine::base::stats::Stats;
use crate::engine::life::background::BackgroundStep;
use crate::engine::life::copies::checkpoint::Checkpoint;
use crate::engine::life::handle::Handle;
use crate::engine::state::catalog::{DEFAULT_NAME, KeyspaceState};
use crate::rescue::check::CheckReport;
use crate::txn::commit::{Durability, Isolation};
use crate::types::{Error, Result};

/// An open database. A handle: cloning is cheap, and all clones are the same database. The last one that drops, with
/// all keyspaces, snapshots, batches and transactions made from it, closes the database.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path();
/// let db = esker::Db::open(path)?;
/// let users = db.keyspace("users")?;
/// users.put("ann", "1")?;
/// assert_eq!(users.get("ann")?.as_deref(), Some(&b"1"[..]));
/// db.transact(|t| {
///     let n = t.get(&users, "ann")?.map_or(0, |v| v.len());
///     t.put(&users, "bob", vec![b'x'; n + 1])
/// })?;
/// for entry in users.range("a".."c") {
///     let (key, value) = entry?;
///     println!("{key:?} = {value:?}");
/// }
/// assert_eq!(users.len()?, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Db {
    pub(crate) handle: Arc<Handle>,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.path().display())
    }
}

impl Db {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        Db { handle }
    }

    /// Opens the database in a directory, creating it if there is none, with default options.
    ///
    /// # Errors
    /// See [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Self::builder().open(path)
    }

    /// A new database in memory, for tests and for data that need not last: it is gone with its last handle. [`Builder::open_in_memory`] takes
    /// options.
    ///
    /// # Errors
    /// See [`Builder::open`].
    pub fn in_memory() -> Result<Db> {
        Self::builder().open_in_memory()
    }

    /// Options to open a database with.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn wrap(&self, state: Arc<KeyspaceState>) -> Keyspace {
        Keyspace::new(self.handle.clone(), state)
    }

    /// The keyspace of this name, created if there is none.
    ///
    /// # Errors
    /// Those of [`create_keyspace`](Self::create_keyspace), except [`Error::KeyspaceExists`].
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        // Others may create it and drop it again in between, any number of times.
        loop {
            match self.open_keyspace(name) {
                Err(Error::KeyspaceNotFound(_)) => {}
                found => return found,
            }
            match self.create_keyspace(name) {
                Err(Error::KeyspaceExists(_)) => {}
                created => return created,
            }
        }
    }

    /// The keyspace of this name.
    ///
    /// # Errors
    /// [`Error::KeyspaceNotFound`].
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        let core = &self.handle.core;
        core.check_open()?;
        let state = core.catalog.get(name).ok_or_else(|| Error::KeyspaceNotFound(name.to_owned()))?;
        core.check_there(&state)?;
        Ok(self.wrap(state))
    }

    /// A new keyspace. Costs bytes, not megabytes: have as many as you like.
    ///
    /// It survives this process at once, and a power loss as soon as anything is synced that comes after it, a commit into it say. To wait for
    /// that, or to make many at once, create keyspaces by a [`batch`](Self::batch):
    ///
    /// ```
    /// # let db = esker::Db::in_memory()?;
    /// let mut batch = db.batch();
    /// let users: Result<Vec<_>, _> = (0..1_000).map(|n| batch.create_keyspace(&format!("user {n}"))).collect();
    /// batch.commit()?;
    /// users?[7].put("name", "Ann")?;
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyspaceExists`]; [`Error::Invalid`] for an empty name or one of more than 1024 bytes; those of a commit, see
    /// [`WriteBatch::commit`].
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        let mut batch = self.batch();
        let created = batch.create_keyspace(name)?;
        batch.commit_with(Durability::Buffered)?;
        Ok(created)
    }

    /// The keyspace named `default`, which is always there.
    pub fn default_keyspace(&self) -> Keyspace {
        let state =
            self.handle.core.catalog.get(DEFAULT_NAME).expect("the default keyspace is never dropped");
        self.wrap(state)
    }

    /// The names of all keyspaces, sorted.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        let core = &self.handle.core;
        core.check_open()?;
        let is_gone =
            |state: &KeyspaceState| matches!(core.check_there(state), Err(Error::KeyspaceNotFound(_)));
        Ok(core.catalog.names(is_gone))
    }

    /// Drops a keyspace with all it holds. Its handles fail from then on, those of snapshots too. Durable like
    /// [`create_keyspace`](Self::create_keyspace).
    ///
    /// # Errors
    /// [`Error::KeyspaceNotFound`]; [`Error::Invalid`] for `default`, which can only be cleared; those of a commit, see
    /// [`WriteBatch::commit`].
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let mut batch = self.batch();
        batch.drop_keyspace(name)?;
        batch.commit_with(Durability::Buffered)?;
        Ok(())
    }

    /// Gives a keyspace another name. Its handles stay good. Durable like [`create_keyspace`](Self::create_keyspace).
    ///
    /// # Errors
    /// [`Error::KeyspaceNotFound`]; [`Error::KeyspaceExists`] if a keyspace, this one included, has the new name; [`Error::Invalid`] for `default`, and for a
    /// new name that is empty or of more than 1024 bytes; those of a commit, see [`WriteBatch::commit`].
    pub fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        let mut batch = self.batch();
        batch.rename_keyspace(from, to)?;
        batch.commit_with(Durability::Buffered)?;
        Ok(())
    }

    /// An empty batch of writes.
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::new(self.handle.clone())
    }

    /// Begins a transaction, [`Isolation::Serializable`] unless [`Builder::isolation`] says something else.
    pub fn begin(&self) -> Transaction {
        self.begin_with(self.handle.core.options.isolation())
    }

    /// Begins a transaction with an isolation of its own. An exclusive one waits for its turn; if it does not get it, its operations and its commit
    /// fail, as [`Isolation::Exclusive`] says.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// # let stock = db.keyspace("stock")?;
    /// use esker::Isolation;
    /// let mut transaction = db.begin_with(Isolation::Exclusive);
    /// transaction.put(&stock, "apples", "7")?;
    /// transaction.commit()?; // never a conflict
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_with(&self, isolation: Isolation) -> Transaction {
        Transaction::new(self.handle.clone(), isolation, 1)
    }

    /// The state of all keyspaces as of now, for as long as it is held.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.handle.clone())
    }

    /// Makes all commits so far durable, whatever their durability.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Poisoned`] if the log cannot be synced, now or since an earlier failure.
    pub fn sync(&self) -> Result<()> {
        self.handle.core.check_ours()?;
        self.handle.core.pipeline.sync()
    }

    /// Writes all memtables to tables.
    ///
    /// # Errors
    /// Those of [`compact`](Self::compact).
    pub fn flush(&self) -> Result<()> {
        self.handle.core.flush_all()
    }

    /// Merges everything into one sorted run without garbage, and shrinks the log. Reads and writes go on meanwhile. Versions that a
    /// snapshot or a transaction still sees are no garbage: they stay until they are merged again after its end.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`], and those of a flush or compaction that failed: [`Error::NoSpace`], [`Error::Io`],
    /// [`Error::Corrupt`].
    pub fn compact(&self) -> Result<()> {
        self.handle.core.compact_all()
    }

    /// Removes what has expired by now, as the background does all the time, in commits of some keys: so `len` no longer counts it, and merges drop it.
    /// How many keys. What a sweep of the background is at is left to that. [`compact`](Self::compact) does it, too. While there is a
    /// [`Replay`](crate::replay::Replay) of the database, it removes nothing: sweeps come with the commits that are made again.
    ///
    /// ```
    /// use std::time::Duration;
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::builder().background(false).open_in_memory()?;
    /// let map = db.default_keyspace();
    /// map.put_with_ttl("brief", "1", Duration::ZERO)?;
    /// assert_eq!((map.contains("brief")?, map.len()?), (false, 1));
    /// assert_eq!((db.sweep()?, map.len()?), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of a read and of a commit: see [`Keyspace::get`] and [`WriteBatch::commit`].
    pub fn sweep(&self) -> Result<u64> {
        self.handle.core.sweep()
    }

    /// Makes a copy of the database in `dir`, which is not there yet, while reads and writes go on. The copy is a database of its own, as of one
    /// commit: it holds all that was visible when the call began. Tables and blob files are linked where the file system has such links, and
    /// copied elsewhere: so a checkpoint of many gigabytes takes milliseconds, and space only as the two come to differ. It is there as a whole or not
    /// at all; a crash leaves at most a directory `NAME.esker-new` beside it, which the next checkpoint there removes.
    ///
    /// ```
    /// # let temp = tempfile::tempdir().unwrap();
    /// # let (path, copy) = (temp.path().join("db"), temp.path().join("copy"));
    /// let db = esker::Db::open(&path)?;
    /// db.default_keyspace().put("a", "1")?;
    /// let made = db.checkpoint(&copy)?;
    /// db.default_keyspace().put("a", "2")?;
    ///
    /// let copy = esker::Db::open(&copy)?;
    /// assert_eq!(copy.default_keyspace().get("a")?.as_deref(), Some(&b"1"[..]));
    /// assert_eq!(copy.snapshot().seqno(), made.seqno);
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// To keep copies elsewhere, and only what is new of each, use [`backup`](crate::backup).
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush); [`Error::Invalid`] if there is anything of this name; [`Error::Locked`] if another checkpoint of this name is being
    /// made; [`Error::Io`] and [`Error::NoSpace`] of the new files.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<Checkpoint> {
        self.handle.core.checkpoint(dir.as_ref())
    }

    /// Figures about the database as it is now.
    pub fn stats(&self) -> Stats {
        self.handle.core.stats()
    }

    /// Verifies tables, log, manifest and counts: every block of every table, and that they agree. Reads and writes go on meanwhile.
    ///
    /// # Errors
    /// Those that keep it from checking; what it finds is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        self.handle.core.check()
    }

    /// The options in force, given and derived: names and values. `cache_bytes` is what full memtables leave of the memory, but at least
    /// a quarter of it: compactions go by it where they ask what fits into the cache, which itself may have less if memtables are large.
    pub fn info(&self) -> Vec<(String, String)> {
        self.handle.core.options.describe()
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.handle.core.dir
    }

    /// Closes the database: background work ends, the log is made durable, the directory can be opened again. Other
    /// handles, iterators and cursors fail with [`Error::Closed`] from then on. Files that nothing needs and that cannot be removed are no failure: the next
    /// opening removes them.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if writes had been stopped or the log cannot be synced; [`Error::Invalid`] if a background thread had panicked.
    pub fn close(self) -> Result<()> {
        self.handle.close()
    }

    /// Sets the engine's time to what the system's clock shows, also if that is earlier. The engine's time decides what has expired, and does not
    /// go back by itself, except as [`Keyspace::put_with_ttl`] says. So if the clock was ahead once, by years perhaps, the engine takes every moment until then for past: call
    /// this once the clock is right again.
    ///
    /// What the engine has seen expire is there again if it has not expired by the new time, and has not been [swept](Self::sweep). The
    /// background sweeps within a second, and what was swept stays gone. Readers that run meanwhile may see either. Commits count as made by the new
    /// time at the latest for [`History::For`](crate::History::For): so history that a clock ahead has kept too long goes in time. The new
    /// time is durable when this returns.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// db.reset_time()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::put`].
    pub fn reset_time(&self) -> Result<()> {
        self.handle.core.reset_time()
    }

    /// The engine's time, in milliseconds since 1970, for simulators.
    #[doc(hidden)]
    pub fn time_ms(&self) -> u64 {
        self.handle.core.time.now_ms()
    }

    /// One piece of background work, for simulators that run without threads; false if there was none.
    #[doc(hidden)]
    pub fn step(&self, step: BackgroundStep) -> Result<bool> {
        self.handle.core.step(step)
    }
}
