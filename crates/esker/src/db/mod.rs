//! The database: the handles of the public API.
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
mod expire;
mod feed;
mod figures;
mod follower;
mod handles;
mod ingest;
mod key_handle;
mod keyspace;
mod locks;
mod part;
mod past;
mod points;
mod range;
mod reads;
mod restart;
mod savepoint;
mod sequence;
mod size;
mod snapshot;
#[cfg(feature = "tokio")]
mod stream;
mod transact;
mod transaction;
mod ttl;
mod tuning;
mod updates;
mod watch;
mod write_options;
mod writes;

use std::path::Path;
use std::sync::Arc;

use esker_env::Env;

pub use self::batch::WriteBatch;
pub use self::builder::{Builder, check_offline, repair};
pub use self::commit_error::{CommitError, CommittingAll};
pub use self::cursor::Cursor;
pub use self::feed::{Feed, FeedChange, FeedCommit, FeedOperand, FeedValue};
pub use self::follower::Follower;
pub use self::ingest::Ingest;
pub use self::key_handle::Key;
pub use self::keyspace::Keyspace;
pub use self::locks::NamedLock;
pub use self::part::PartWrite;
pub use self::past::{Changes, Past, Version, Versions};
pub use self::range::{Keys, Range};
pub use self::reads::{ReadCore, Reads, View};
pub use self::savepoint::Savepoint;
pub use self::sequence::Sequence;
pub use self::snapshot::Snapshot;
#[cfg(feature = "tokio")]
pub use self::stream::{EntryStream, EventStream, FeedStream};
pub use self::transact::{Committed, TransactionOptions};
pub use self::transaction::Transaction;
pub use self::ttl::Ttl;
pub use self::tuning::Tuning;
pub use self::updates::{Swap, Update, ViewMut};
pub use self::watch::{Change, Listener, Notice, Watch};
pub use self::write_options::WriteOptions;

use crate::engine::base::info::Info;
use crate::engine::base::stats::Stats;
use crate::engine::life::background::BackgroundStep;
use crate::engine::life::copies::checkpoint::Checkpoint;
use crate::engine::life::handle::Handle;
use crate::engine::state::catalog::{DEFAULT_NAME, KeyspaceState};
use crate::engine::state::keyspace_options::KeyspaceOptions;
use crate::rescue::check::{CheckReport, check};
use crate::txn::commit::Durability;
use crate::types::{Error, KeyspaceId, Result};

/// An open database. A handle: a clone is cheap and refers to the same database. The database closes when the
/// last clone is dropped, together with all keyspaces, snapshots, batches and transactions made from it.
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

    /// Opens a new database in memory, for tests and for data that need not last. Its data is gone with its
    /// last handle. [`Builder::open_in_memory`] takes options.
    ///
    /// # Errors
    /// See [`Builder::open`].
    pub fn in_memory() -> Result<Db> {
        Self::builder().open_in_memory()
    }

    /// Returns options with which to open a database.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn wrap(&self, state: Arc<KeyspaceState>) -> Keyspace {
        Keyspace::new(self.handle.clone(), state)
    }

    /// Opens the keyspace with this name, or creates it.
    ///
    /// # Errors
    /// Those of [`create_keyspace`](Self::create_keyspace), except [`Error::KeyspaceExists`];
    /// [`Error::KeyspaceNotFound`] if the database is only read.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        // Other threads may create and drop it in between, any number of times.
        loop {
            match self.open_keyspace(name) {
                Err(Error::KeyspaceNotFound(_)) if !self.handle.core.options.is_read_only() => {}
                found => return found,
            }
            match self.create_keyspace(name) {
                Err(Error::KeyspaceExists(_)) => {}
                created => return created,
            }
        }
    }

    /// Opens the keyspace with this name.
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

    /// Opens the keyspace with this id. Returns `None` if it was dropped: a [feed](Self::feed_after) may
    /// contain changes of such keyspaces. Looks through all keyspaces, so keep the handle.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let users = db.keyspace("users")?;
    /// let found = db.keyspace_by_id(users.id())?;
    /// assert_eq!(found.map(|users| users.name()).as_deref(), Some("users"));
    /// db.drop_keyspace("users")?;
    /// assert!(db.keyspace_by_id(users.id())?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`], and those of reads.
    pub fn keyspace_by_id(&self, id: KeyspaceId) -> Result<Option<Keyspace>> {
        let core = &self.handle.core;
        core.check_open()?;
        let Some(state) = core.catalog.with_id(id) else { return Ok(None) };
        match core.check_there(&state) {
            Ok(()) => Ok(Some(self.wrap(state))),
            Err(Error::KeyspaceNotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a keyspace. It costs bytes, not megabytes: have as many as you like.
    ///
    /// The keyspace survives a kill at once, and a power loss once a later commit is synced, such as one to
    /// the keyspace. To wait for that, or to create many at once, create keyspaces with a
    /// [`batch`](Self::batch):
    ///
    /// ```
    /// # let db = esker::Db::in_memory()?;
    /// let mut batch = db.batch();
    /// let create = |n| batch.create_keyspace(&format!("user {n}"));
    /// let users: Result<Vec<_>, _> = (0..1_000).map(create).collect();
    /// batch.commit()?;
    /// users?[7].put("name", "Ann")?;
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyspaceExists`]; [`Error::Invalid`] for an empty name or one of more than 1024 bytes; those
    /// of a commit, see [`WriteBatch::commit`].
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.create_keyspace_with(name, KeyspaceOptions::default())
    }

    /// Same as [`create_keyspace`](Self::create_keyspace), with these options.
    ///
    /// # Errors
    /// Those of `create_keyspace`, and of the calls that change one option, for example
    /// [`Keyspace::set_history`].
    pub fn create_keyspace_with(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let mut batch = self.batch();
        let created = match options == KeyspaceOptions::default() {
            true => batch.create_keyspace(name)?,
            false => batch.create_keyspace_with(name, options)?,
        };
        batch.commit_with(Durability::Buffered)?;
        Ok(created)
    }

    /// The keyspace named `default`, which always exists.
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

    /// Drops a keyspace and all entries in it. Its handles fail from then on, including those of snapshots.
    /// Durable like [`create_keyspace`](Self::create_keyspace).
    ///
    /// # Errors
    /// [`Error::KeyspaceNotFound`]; [`Error::Invalid`] for `default`, which can only be cleared; those of a
    /// commit, see [`WriteBatch::commit`].
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let mut batch = self.batch();
        batch.drop_keyspace(name)?;
        batch.commit_with(Durability::Buffered)?;
        Ok(())
    }

    /// Renames a keyspace. Its handles stay valid. Durable like [`create_keyspace`](Self::create_keyspace).
    ///
    /// # Errors
    /// [`Error::KeyspaceNotFound`]; [`Error::KeyspaceExists`] if a keyspace, this one included, has the new
    /// name; [`Error::Invalid`] for `default`, and for a new name that is empty or of more than 1024 bytes;
    /// those of a commit, see [`WriteBatch::commit`].
    pub fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        let mut batch = self.batch();
        batch.rename_keyspace(from, to)?;
        batch.commit_with(Durability::Buffered)?;
        Ok(())
    }

    /// Returns an empty batch of writes.
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::new(self.handle.clone())
    }

    /// Returns the current state of all keyspaces, and keeps it until the snapshot is dropped.
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

    /// Compacts everything into one sorted run without garbage, and shrinks the log. In an encrypted database
    /// whose master key has changed, it writes everything again with new keys. Reads and writes continue
    /// meanwhile. Versions that a snapshot or a transaction still sees are kept until a later
    /// compaction. [`Keyspace::compact_range`] compacts a part.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`], and those of a flush or compaction that failed:
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Corrupt`].
    pub fn compact(&self) -> Result<()> {
        self.handle.core.compact_all(None)
    }

    /// Removes the entries that have expired, and the oldest entries of keyspaces beyond their
    /// [`bytes_max`](Keyspace::set_bytes_max). Returns their number. Then `len` no longer counts them, and
    /// compactions drop them. The background does the same about every quarter of a second; entries that it
    /// is just sweeping are left to it. [`compact`](Self::compact) sweeps as well. While a
    /// [`Replay`](crate::replay::Replay) of the database exists nothing is swept: the replayed commits bring
    /// the sweeps of the other database.
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

    /// Copies the database to `dir`, which must not exist, while reads and writes continue. The copy is an
    /// independent database, as of one commit: it holds everything that was visible when the call began.
    /// Tables and blob files are hard-linked where the file system allows it, and copied otherwise. So a
    /// checkpoint of many gigabytes takes milliseconds, and space only as the two databases diverge. The copy
    /// exists entirely or not at all. A crash leaves at most a directory `NAME.esker-new` beside it, which
    /// the next checkpoint there removes.
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
    /// To keep copies elsewhere, and to store only what is new in each, use [`backup`](crate::backup).
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush); [`Error::AlreadyExists`] if there is anything of this name;
    /// [`Error::Locked`] if another checkpoint of this name is being made; [`Error::Io`] and
    /// [`Error::NoSpace`] of the new files.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<Checkpoint> {
        self.handle.core.checkpoint(dir.as_ref())
    }

    /// Statistics of the database at this moment.
    pub fn stats(&self) -> Stats {
        self.handle.core.stats()
    }

    /// Verifies tables, log, manifest and counts: every block of every table, and that they agree. Reads and
    /// writes continue meanwhile. Of log segments that only the change feed keeps it reads the headers.
    ///
    /// # Errors
    /// Those that prevent the check. Its findings are in the report.
    pub fn check(&self) -> Result<CheckReport> {
        check(&self.handle.core)
    }

    /// Returns the options in force, given and derived.
    pub fn info(&self) -> Info {
        let core = &self.handle.core;
        Info { memory: core.cache.budget().capacity_bytes(), ..core.options.info() }
    }

    /// The environment that the database was opened with ([`Builder::env`]), with its master keys: to open
    /// copies and backups of it.
    pub fn env(&self) -> Env {
        self.handle.core.options.env().clone()
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.handle.core.dir
    }

    /// The random number of this database. Checkpoints, restored backups and loaded copies have numbers of
    /// their own, so it distinguishes the histories of databases.
    pub fn number(&self) -> u32 {
        self.handle.core.database_id()
    }

    /// Closes the database: ends background work, makes the log durable, and unlocks the directory. Other
    /// handles, iterators and cursors fail with [`Error::Closed`] from then on. Obsolete files that cannot be
    /// removed are no error: the next opening removes them.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if writes had been stopped or the log cannot be synced; [`Error::Panicked`] if a
    /// background thread had.
    pub fn close(self) -> Result<()> {
        self.handle.close()
    }

    /// Sets the engine's time to the system's clock, even if that is earlier. The engine's time decides what
    /// has expired. It does not go back otherwise, except as [`Keyspace::put_with_ttl`] says. So if the clock
    /// was once ahead, perhaps by years, the engine treats every moment until then as past. Call this once
    /// the clock is right again.
    ///
    /// Entries that the engine has seen expire return if they have not expired by the new time and were not
    /// [swept](Self::sweep). The background sweeps within a second, and swept entries stay removed.
    /// Concurrent readers may see either. For [`History::For`](crate::History::For), commits count as made at
    /// the new time at the latest. So history that a clock ahead has kept too long is dropped in time. The
    /// new time is durable when this returns.
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

    /// The engine's time in Unix milliseconds, for simulators.
    #[doc(hidden)]
    pub fn time_ms(&self) -> u64 {
        self.handle.core.time.now_ms()
    }

    /// Does one piece of background work, for simulators without threads. Returns false if there was none.
    #[doc(hidden)]
    pub fn step(&self, step: BackgroundStep) -> Result<bool> {
        self.handle.core.step(step)
    }
}
