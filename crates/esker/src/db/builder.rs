//! `Builder`: the options of a database, as the user sets them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_env::{Env, MemFs};

use super::tuning::Tuning;
use super::{Db, Follower};
use crate::blob::Blobs;
use crate::compaction::filter::{Decision, Filter};
use crate::encryption::{self, Unlock};
use crate::engine::base::event::Event;
use crate::engine::base::events::Listener;
use crate::engine::base::file_sizes::FileSizes;
use crate::engine::base::options::{Background, Modes, Settings};
use crate::engine::life::open::{self, reading};
use crate::manifest::feed::FeedLimits;
use crate::read::operators::{ByFunction, MergeOperator};
use crate::rescue::check::{self, CheckReport};
use crate::rescue::repair::{self, RepairReport};
use crate::sstable::TableCompression;
use crate::txn::commit::{Durability, Isolation};
use crate::types::Result;

/// How to open a database. Every option has a default that suits most programs: set the memory, and be done.
/// [`tuning`](Self::tuning) has sizes and rates.
///
/// The database stores [`feed_retention`](Self::feed_retention), and nothing else of the builder: all other
/// options hold for one opening. Tables and blob files that exist stay as they are.
///
/// An open database holds a file descriptor for each table that is read, but at most half of those that the
/// process may have (`ulimit -n`). Beyond that it closes tables, and opens them again when they are read.
/// Log, manifest and lock take up to some 30 more, and each blob file that this opening made takes one.
///
/// ```no_run
/// # fn main() -> esker::Result<()> {
/// let db = esker::Db::builder().memory(4 << 30).durability(esker::Durability::Buffered).open("data")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    pub(crate) settings: Settings,
}

impl Builder {
    /// Memory in bytes for cached blocks, indexes, filters and memtables. Default 1 GiB. Blocks get what the
    /// others leave, but at least a 16th, even if the sum then exceeds the budget. Log buffers, compactions,
    /// open transactions and the allocator take additional memory.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.settings.memory = bytes;
        self
    }
    /// When commits without a durability of their own are acknowledged. Default [`Durability::Sync`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }
    /// How tables are compressed. Default [`TableCompression::Auto`]: where a sample shows that it pays.
    pub fn compression(mut self, compression: TableCompression) -> Self {
        self.settings.compression = compression;
        self
    }
    /// Whether to create a missing database. Default yes; otherwise the error is
    /// [`Error::NotFound`](crate::Error::NotFound).
    pub fn create_if_missing(mut self, yes: bool) -> Self {
        self.settings.opening.create_if_missing = yes;
        self
    }
    /// Whether to refuse a directory that holds a database, with
    /// [`Error::AlreadyExists`](crate::Error::AlreadyExists). Default no.
    pub fn error_if_exists(mut self, yes: bool) -> Self {
        self.settings.opening.error_if_exists = yes;
        self
    }
    /// Permission bits of the directory if opening creates it, for example 0o700. The database's files get
    /// the same bits without execute permission. The bits apply as they are, whatever the process's umask.
    /// Default: what the umask allows, and for files what their directory and the umask allow. Only on Unix.
    pub fn mode(mut self, mode: u32) -> Self {
        self.settings.opening.modes = Some(Modes { dir: mode & 0o777, files: mode & 0o666 });
        self
    }
    /// How long commits that do not wait for the disk may stay without a sync: what a power loss can take.
    /// 1 ms to 1 hour. A shorter interval syncs more often. Default 100 ms. Needs the
    /// [threads](Self::background).
    pub fn sync_every(mut self, interval: Duration) -> Self {
        self.settings.log.sync_every = interval;
        self
    }
    /// The file system, clock, randomness and threads to use, for tests in memory or with faults: see
    /// [`env`](crate::env). Default: those of the operating system.
    pub fn env(mut self, env: Env) -> Self {
        let keys = env.keys.or(self.settings.env.keys);
        self.settings.env = Env { keys, ..env };
        self
    }
    /// Encrypts the database with keys that `provider` protects: see module `encryption`. A new database is
    /// created encrypted. An encrypted database is opened, repaired and checked with the same provider. If
    /// the provider has a new current master key, opening wraps the database's keys again, and new files get
    /// new keys.
    ///
    /// Opening fails with [`Error::Encryption`](crate::Error::Encryption) if the key is missing or wrong, or
    /// if the database is not encrypted. Default: no encryption.
    #[cfg(feature = "encryption")]
    pub fn encryption(mut self, provider: impl crate::encryption::KeyProvider) -> Self {
        self.settings.env = crate::encryption::with_keys(&self.settings.env, provider);
        self
    }
    /// How long to wait for a database that is open elsewhere. After that the error is
    /// [`Error::Locked`](crate::Error::Locked). Default: no wait.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.settings.opening.lock_timeout = timeout;
        self
    }
    /// Whether threads do the background work. Default yes. Without them writers that find a memtable full do
    /// it, as do `flush` and `compact`. This is meant for simulations and tests. Then commits with
    /// [`Durability::Buffered`] or [`Durability::None`] are not synced after a while. Until a `Sync` commit,
    /// [`Db::sync`](crate::Db::sync) or [`Db::close`](crate::Db::close) syncs them, a power loss may take all
    /// of them, and a kill the last 1 MiB of those committed with `None`.
    pub fn background(mut self, yes: bool) -> Self {
        self.settings.background = if yes { Background::Threads } else { Background::Writers };
        self
    }
    /// Leaves the background work to calls of [`Db::step`](crate::Db::step), for simulators.
    #[doc(hidden)]
    pub fn stepped(mut self) -> Self {
        self.settings.background = Background::Steps;
        self
    }
    /// Isolation of transactions for which [`Db::transaction`](crate::Db::transaction) sets none. Default
    /// [`Isolation::Serializable`].
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.settings.isolation = isolation;
        self
    }
    /// How long a transaction or guard waits for a lock, and an exclusive transaction for its turn, unless
    /// the call says otherwise. After that the error is [`Error::LockTimeout`](crate::Error::LockTimeout).
    /// Default 10 s.
    pub fn lock_patience(mut self, patience: Duration) -> Self {
        self.settings.lock_patience = patience;
        self
    }
    /// Which values are stored in blob files. Such a value is written once, while tables and compactions
    /// carry a pointer to it. Default [`Blobs::From(4096)`](Blobs::From). Existing values stay where they
    /// are. [`Keyspace::set_blobs`](crate::Keyspace::set_blobs) sets it for one keyspace.
    pub fn blobs(mut self, blobs: Blobs) -> Self {
        self.settings.blobs.rule = blobs;
        self
    }
    /// Sets sizes and rates that the engine otherwise derives: see [`Tuning`].
    ///
    /// ```no_run
    /// # fn main() -> esker::Result<()> {
    /// let builder = esker::Db::builder().memory(4 << 30);
    /// let db = builder.tuning(|t| t.memtable_bytes(256 << 20).write_rate(50 << 20)).open("data")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tuning(self, tune: impl FnOnce(Tuning) -> Tuning) -> Self {
        Builder { settings: tune(Tuning { settings: self.settings }).settings }
    }
    /// Keeps commits for [`Db::feed_after`](crate::Db::feed_after): the newest `bytes` of the log, with the
    /// blobs and adopted tables of these commits. Drops commits once `age` has passed after the flush of
    /// their memtable. Commits that are not flushed yet are always kept. Allow for several
    /// memtables, so that readers do not fall behind with each flush. The database stores this: a later
    /// opening that does not set it uses the last setting, and one with 0 bytes drops everything kept.
    /// Default: nothing is kept, and there is no feed.
    pub fn feed_retention(mut self, bytes: u64, age: Duration) -> Self {
        self.settings.feed.retention = Some(FeedLimits { bytes, age: age.as_secs() });
        self
    }
    /// Sets a function that decides about the entries of the keyspace with this name when a compaction passes
    /// them: each is kept, dropped, or gets another value. Drops and changes are made by an ordinary commit
    /// with its own number. So snapshots, transactions and [`len`](crate::Keyspace::len) stay exact, and a
    /// newer write of the key wins. An entry that an open snapshot reads is not shown.
    ///
    /// Compactions pass entries when there is something to compact. [`Db::compact`] passes all entries. Until
    /// then an entry is visible, and it may be shown any number of times: change it to a value that is kept
    /// unchanged. Of merged operands the function sees the result of the compaction. Where operands have to
    /// stay, as for a snapshot below them, it is not called. Values in blob files are read for this. The
    /// function runs in background threads, in several at the same time if several compactions run, and in
    /// the thread that calls [`Db::compact`]. If it panics, the entry stays, and the failure shows in
    /// [`Stats::background_error`](crate::Stats::background_error), or is the error of [`Db::compact`].
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// use esker::{Db, Decision};
    /// let decide = |_key: &[u8], value: &[u8]| match value {
    ///     b"over" => Decision::Drop,
    ///     _ => Decision::Keep,
    /// };
    /// let db = Db::builder().compaction_filter("sessions", decide).open_in_memory()?;
    /// let sessions = db.keyspace("sessions")?;
    /// sessions.put("ann", "over")?;
    /// sessions.put("bob", "open")?;
    /// db.compact()?;
    /// assert_eq!((sessions.get("ann")?, sessions.len()?), (None, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn compaction_filter(
        mut self,
        keyspace: &str,
        decide: impl Fn(&[u8], &[u8]) -> Decision + Send + Sync + 'static,
    ) -> Self {
        self.settings.functions.filters.insert(keyspace.to_owned(), Filter(Arc::new(decide)));
        self
    }

    /// Sets a callback for [events](Event): flushes, compactions, garbage collections of blob files, stalls,
    /// checkpoints, changes of [`Health`](crate::Health), the progress of a long opening, and
    /// [slow operations](Self::slow_after). Without one, events cost nothing.
    ///
    /// A thread of its own calls it, in the order of the events and without a lock, so the callback may use
    /// the database. The engine does not wait for it: while it blocks, up to 1024 events wait, and further
    /// ones are dropped and counted by [`Event::Missed`]. A panic in it is caught. Closing the database waits
    /// at most a second for the callback. Without threads ([`background`](Self::background)) it is called in
    /// the midst of the work, and must not use the database. A [`Db`] in the callback keeps the database open
    /// until [`Db::close`].
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// let (sender, events) = std::sync::mpsc::channel();
    /// let builder = esker::Db::builder().on_event(move |event| drop(sender.send(event.to_string())));
    /// let db = builder.open_in_memory()?;
    /// db.default_keyspace().put("a", "1")?;
    /// db.flush()?;
    /// db.close()?;
    /// let events: Vec<String> = events.iter().collect();
    /// assert!(events.iter().any(|event| event.starts_with("flush ended: 1 tables, ")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_event(mut self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.settings.functions.listener = Some(Listener(Arc::new(callback)));
        self
    }

    /// Reports lookups, scans and commits that take at least this long as [`Event::Slow`], with where their
    /// time went: waits for flushes and other commits, writes and syncs of the log, reads of tables and blob
    /// files. Has an effect only with [`on_event`](Self::on_event). Then each of these operations, and each
    /// step of an iterator, reads the clock. The time of [`Range::visit`](crate::Range::visit) includes that
    /// of its function. Cursors are not watched. Default: nothing is watched.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// use std::time::Duration;
    /// let builder = esker::Db::builder().slow_after(Duration::from_millis(20)).on_event(|event| {
    ///     if let esker::Event::Slow(slow) = event {
    ///         println!("{slow}"); // commit of 3 items, 25.1 ms; log synced 24.8 ms (1)
    ///     }
    /// });
    /// # builder.open_in_memory()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn slow_after(mut self, duration: Duration) -> Self {
        self.settings.functions.slow_after = Some(duration);
        self
    }

    /// For an existing copy, which must stay a copy of its original.
    pub(crate) fn for_copy(mut self) -> Self {
        self.settings.functions.filters.clear();
        self.create_if_missing(false).error_if_exists(false)
    }
    /// Makes more data than this count as exceeding the cache, with the run ratios and the index pages of a
    /// large database in small numbers: for simulators, whose databases are small.
    #[doc(hidden)]
    pub fn miniature(mut self, cache_bytes: u64) -> Self {
        self.settings.sizes.miniature = Some(cache_bytes);
        self
    }
    /// Sizes of the log's files and the manifest: for simulators.
    #[doc(hidden)]
    pub fn file_sizes(mut self, sizes: FileSizes) -> Self {
        self.settings.sizes.file_sizes = sizes;
        self
    }
    /// Size in bytes from which on a transaction or batch becomes tables. Default: a quarter of a memtable,
    /// at most 16 MiB. For simulators, whose memtables are so small that otherwise no commit would exceed a
    /// log segment.
    #[doc(hidden)]
    pub fn adoption_bytes(mut self, bytes: u64) -> Self {
        self.settings.sizes.adoption_bytes = Some(bytes);
        self
    }
    /// The number of the first commit, file, log segment and run of a new database: for simulators, whose
    /// databases do not live long enough for large numbers.
    #[doc(hidden)]
    pub fn first_number(mut self, number: u64) -> Self {
        self.settings.first_number = number;
        self
    }
    /// Registers a merge operator: a function of the key's value (`None`: there is none) and of operands,
    /// oldest first. It returns the new value, or an error text. [`MergeOperator`](crate::MergeOperator) has
    /// its rules, and [`Keyspace::set_merge_operator`](crate::Keyspace::set_merge_operator) lists the
    /// built-in ones.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// let builder = esker::Db::builder().merge_operator("first", |existing, operands| {
    ///     Ok(existing.unwrap_or(operands[0]).to_vec())
    /// });
    /// let db = builder.open_in_memory()?;
    /// let winners = db.keyspace("winners")?;
    /// winners.set_merge_operator("first")?;
    /// winners.merge("race", "ann")?;
    /// winners.merge("race", "bob")?;
    /// assert_eq!(winners.get("race")?.as_deref(), Some(&b"ann"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge_operator(
        self,
        name: impl Into<String>,
        merge: impl Fn(Option<&[u8]>, &[&[u8]]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Self {
        self.merge_operator_by(name, ByFunction(merge))
    }
    /// Registers a merge operator that can also combine and check operands.
    pub fn merge_operator_by(
        mut self,
        name: impl Into<String>,
        operator: impl MergeOperator + 'static,
    ) -> Self {
        self.settings.functions.operators.add(name, operator);
        self
    }
    /// Whether to open a database whose merge operators are not all registered, for tools. Default no.
    /// Reading a key that needs a missing operator then fails with
    /// [`Error::MergeOperatorMissing`](crate::Error::MergeOperatorMissing).
    pub fn allow_missing_merge_operators(mut self, yes: bool) -> Self {
        self.settings.functions.may_lack_operators = yes;
        self
    }
    /// Opens the database in a directory. A relative path is resolved once: the database stays where it is
    /// when the process changes its working directory, and its path and messages are absolute.
    ///
    /// A missing database is created, also in a directory with files of others. They stay as they are: the
    /// engine changes only files with the names that it gives, such as `CURRENT` and `000003.sst`. If it
    /// finds such files and no database of its own, opening fails.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) if it is open elsewhere;
    /// [`Error::NotFound`](crate::Error::NotFound);
    /// [`Error::UnfinishedRepair`](crate::Error::UnfinishedRepair); [`Error::Corrupt`](crate::Error::Corrupt)
    /// and [`Error::UnsupportedVersion`](crate::Error::UnsupportedVersion) with the file;
    /// [`Error::Invalid`](crate::Error::Invalid) for invalid options, an empty path, and a path that is not a
    /// directory; [`Error::MergeOperatorMissing`](crate::Error::MergeOperatorMissing);
    /// [`Error::Io`](crate::Error::Io) and [`Error::NoSpace`](crate::Error::NoSpace). After a crash, opening
    /// writes a manifest and a log segment. After a clean close it changes only the file `LOCK`, unless the
    /// options differ from the last time, a keyspace keeps history by age, or a flush or compaction has
    /// corrected the count of a keyspace. So a read-only disk is refused:
    /// [`open_read_only`](Self::open_read_only) reads it.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        let options = self.settings.derive()?;
        open::open(options, path.as_ref()).map(Db::new)
    }

    /// Opens the database in a directory to read it. Nothing in the directory is changed or created: this
    /// works on a read-only disk, and without the right to write. A log that a killed process left is
    /// replayed in memory, each time. Other processes may open the database the same way. While one has it
    /// open, no process can open it to write; [`open_follower`](Self::open_follower) does not have this
    /// effect. A directory that was copied without the file `LOCK` cannot be locked: keep writers away
    /// yourself.
    ///
    /// Writes, flushes, compactions, checkpoints and backups fail with
    /// [`Error::ReadOnly`](crate::Error::ReadOnly). There is no background work. Entries that have expired
    /// are absent, but [`len`](crate::Keyspace::len) counts them until a writer sweeps them.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), except that a missing database is always
    /// [`Error::NotFound`](crate::Error::NotFound).
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Db> {
        reading::open_read_only(self.settings, path.as_ref()).map(Db::new)
    }

    /// Opens the database in a directory to read it while another process writes it: see
    /// [`Follower`](crate::Follower).
    ///
    /// # Errors
    /// Those of [`open_read_only`](Self::open_read_only), but never
    /// [`Error::Locked`](crate::Error::Locked); [`Error::Behind`](crate::Error::Behind).
    pub fn open_follower(self, path: impl AsRef<Path>) -> Result<Follower> {
        Follower::open(self.settings, path.as_ref())
    }

    /// Opens a new database in memory: its files are buffers. [`Db::path`] is `memory`. Commits cost the same
    /// with any [`Durability`].
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_in_memory(mut self) -> Result<Db> {
        self.settings.env.fs = Arc::new(MemFs::new());
        self.open("memory")
    }

    /// Checks that [`encryption`](Self::encryption) fits an existing database, without its lock. For
    /// esker-shared. Not part of the API.
    ///
    /// # Errors
    /// [`Encryption`](crate::Error::Encryption); [`Io`](crate::Error::Io).
    #[doc(hidden)]
    pub fn check_keys(&self, dir: impl AsRef<Path>) -> Result<()> {
        encryption::unlock(&self.settings.env, dir.as_ref(), Unlock::Read).map(drop)
    }

    /// Like [`check_offline`](crate::check_offline), with these options.
    ///
    /// # Errors
    /// See [`check_offline`](crate::check_offline).
    pub fn check_offline(self, dir: impl AsRef<Path>) -> Result<CheckReport> {
        check::offline::check_offline(&self.settings.derive()?, dir.as_ref())
    }

    /// Like [`repair`](crate::repair), with these options for the new database.
    ///
    /// # Errors
    /// See [`repair`](crate::repair).
    pub fn repair(self, source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
        self.repair_with_progress(source, target, |_| {})
    }

    /// Same as [`Builder::repair`], but calls `progress` with the report once the new database is complete,
    /// checked, closed and durable. Then opening is enabled. If that fails, the target may remain; if it
    /// opens, `progress` has its report.
    ///
    /// # Errors
    /// See [`repair`](crate::repair).
    pub fn repair_with_progress(
        self,
        source: impl AsRef<Path>,
        target: impl AsRef<Path>,
        progress: impl FnOnce(&RepairReport),
    ) -> Result<RepairReport> {
        repair::repair(&self.settings, source.as_ref(), target.as_ref(), progress, |_| {})
    }
}

/// Checks a database without opening it: reads its files, changes nothing, and reports everything that is
/// wrong, however damaged it is.
///
/// # Errors
/// [`Error::Locked`](crate::Error::Locked) if it is open elsewhere ([`Db::check`](crate::Db::check) checks an
/// open database); [`Error::NotFound`](crate::Error::NotFound);
/// [`Error::UnsupportedVersion`](crate::Error::UnsupportedVersion) if the manifest or a log segment has a
/// newer format, because nothing is known of the rest then. A table with a newer format is reported like
/// damage.
pub fn check_offline(dir: impl AsRef<Path>) -> Result<CheckReport> {
    Builder::default().check_offline(dir)
}

/// Salvages what can be read of the damaged database in `source` into a new one in `target`. The target must
/// be missing or empty, except for a lock file that is not locked, and must not lie in the source. The source
/// is not changed. On Unix, a new target has the source's mode, and its files the mode that all files of the
/// source allow, unless [`Builder::mode`] says otherwise. The report lists exactly what was lost. If the
/// repair fails, what it made in the target is removed, except the directory itself. If that fails too, or if
/// the process is killed, opening the target fails with
/// [`Error::UnfinishedRepair`](crate::Error::UnfinishedRepair) until you remove it.
///
/// ```no_run
/// # fn main() -> esker::Result<()> {
/// let report = esker::repair("damaged", "repaired")?;
/// for loss in &report.losses {
///     println!("{loss}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Locked`](crate::Error::Locked), with the path of the lock, if the source or the target is open
/// elsewhere; [`Error::NotFound`](crate::Error::NotFound) if the source holds no part of a database;
/// [`Error::UnfinishedRepair`](crate::Error::UnfinishedRepair) if either was left by a killed repair;
/// [`Error::Invalid`](crate::Error::Invalid) if the target is not empty or lies in the source;
/// [`Error::UnsupportedVersion`](crate::Error::UnsupportedVersion) if a newer version wrote the source;
/// errors of writing the target.
pub fn repair(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
    Builder::default().repair(source, target)
}
