//! `Builder`: the options of a database as its user gives them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_env::{Env, MemFs};

use super::Db;
use crate::compaction::filter::{Decision, Filter};
use crate::engine::base::options::{Background, FileSizes, Modes, Settings};
use crate::manifest::feed::FeedLimits;
use crate::read::operators::{ByFunction, MergeOperator};
use crate::rescue::check::{self, CheckReport};
use crate::rescue::repair::{self, RepairReport};
use crate::sstable::TableCompression;
use crate::txn::commit::{Durability, Isolation};
use crate::types::Result;

/// How to open a database. Everything has a default that suits most: give the memory it may use and be done.
///
/// An open database holds a file descriptor for each table that is read, but at most half of those that the process may have
/// (`ulimit -n`): beyond that it closes tables and opens them again as they are read. Its log, manifest and lock take up to some
/// 30 more, and each blob file that it has made takes one.
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
    /// The memory for cached blocks, indexes, filters and memtables, in bytes. Default 1 GiB. Blocks have what the others leave, but at
    /// least a 16th of it, even if all together are then more than this. Log buffers, compactions, open transactions and the allocator take memory
    /// beside it.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.settings.memory = bytes;
        self
    }
    /// When commits are acknowledged that do not say it themselves. Default [`Durability::Sync`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }
    /// How tables are compressed. Default [`TableCompression::Auto`]: where a probe shows that it pays.
    pub fn compression(mut self, compression: TableCompression) -> Self {
        self.settings.compression = compression;
        self
    }
    /// Whether to create a database where there is none. Default yes; otherwise [`Error::NotFound`](crate::Error::NotFound).
    pub fn create_if_missing(mut self, yes: bool) -> Self {
        self.settings.create_if_missing = yes;
        self
    }
    /// Whether to refuse a directory that holds a database, with [`Error::Invalid`](crate::Error::Invalid). Default no.
    pub fn error_if_exists(mut self, yes: bool) -> Self {
        self.settings.error_if_exists = yes;
        self
    }
    /// The permission bits of the directory if opening makes it, 0o700 for example; files that the database makes get the same without
    /// those to execute. They hold as they are, whatever the process's mask. Default: a new directory has what the mask allows,
    /// and files what their directory and the mask allow. On Unix; elsewhere this does nothing.
    pub fn mode(mut self, mode: u32) -> Self {
        self.settings.modes = Some(Modes { dir: mode & 0o777, files: mode & 0o666 });
        self
    }
    /// The file system, clock, randomness and threads to use, for tests in memory or with faults: see [`env`](crate::env).
    /// Default those of the operating system.
    pub fn env(mut self, env: Env) -> Self {
        self.settings.env = env;
        self
    }
    /// How long to wait for a database that somebody else has open. Default: not at all. [`Error::Locked`](crate::Error::Locked) after that.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.settings.lock_timeout = timeout;
        self
    }
    /// Whether threads do the background work. Default yes. Without them it is done by writers that find a memtable
    /// full, by `flush` and by `compact`: for simulations and tests. Then nothing syncs what was committed with
    /// [`Durability::Buffered`] or [`Durability::None`] after a while: until a `Sync` commit, [`Db::sync`](crate::Db::sync) or
    /// [`Db::close`](crate::Db::close) does it, a power loss may take all of it, and a killed process the last 1 MiB of
    /// what was committed with `None`.
    pub fn background(mut self, yes: bool) -> Self {
        self.settings.background = if yes { Background::Threads } else { Background::Writers };
        self
    }
    /// Leaves the background work to whoever calls [`Db::step`](crate::Db::step): for simulators.
    #[doc(hidden)]
    pub fn stepped(mut self) -> Self {
        self.settings.background = Background::Steps;
        self
    }
    /// Size of a memtable before it is flushed, in bytes, at most 16 GiB. Default an eighth of the memory, 64 MiB at the most. Three full
    /// ones may be in memory at a time, and take it from the cache: larger ones than a quarter of the memory leave it little.
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.settings.memtable_bytes = Some(bytes);
        self
    }
    /// Size of a table's blocks, in bytes. Default 8 KiB.
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.settings.block_bytes = bytes;
        self
    }
    /// What transactions are kept apart from, where [`Db::begin_with`](crate::Db::begin_with) does not say. Default [`Isolation::Serializable`].
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.settings.isolation = isolation;
        self
    }
    /// How many bytes of the writes of one large transaction or batch stay in memory, within the budget; what is more goes to tables that
    /// nobody sees before it is committed. Default a quarter of the memory.
    pub fn transaction_memory(mut self, bytes: u64) -> Self {
        self.settings.transaction_memory = Some(bytes);
        self
    }
    /// Size at which compactions begin a new table, in bytes, at most 1 TiB. Default 64 MiB.
    pub fn table_bytes(mut self, bytes: u64) -> Self {
        self.settings.table_bytes = bytes;
        self
    }
    /// The smallest value, in bytes, that is stored in a blob file: written once, while tables and merges carry a pointer to it. Default 4096; 0
    /// keeps all values in tables. Values that are there stay where they are.
    pub fn blobs_over(mut self, bytes: usize) -> Self {
        self.settings.blobs_over = (bytes > 0).then_some(bytes);
        self
    }
    /// How many bytes the database may take on the disk for each live byte, from 1.1 to 100; default 1.5. Blob files are collected when they take
    /// more, and runs of tables merged that may hide garbage. More is taken for a while by writes that compactions are behind, and for as long
    /// as snapshots see what was overwritten. [`Stats::space_amplification`](crate::Stats::space_amplification) tells what it is.
    pub fn space_amplification_max(mut self, ratio: f64) -> Self {
        self.settings.amplification_percent_max = (ratio * 100.0) as u64;
        self
    }
    /// Whether small commits that do not wait for the disk are stored in the operating system's memory of the log's file, which a call of it has made
    /// ready, and not written by a call each: a commit takes about a microsecond less (example `costs`). Default true; false for file systems that may shut down
    /// under a process that is to go on: in a rare case the system ends it by a signal then, where a call would have failed.
    pub fn map_log(mut self, yes: bool) -> Self {
        self.settings.map_log = yes;
        self
    }
    /// Holds writers to so many bytes of keys and values a second, together and evenly, at least 1 KiB. For latencies that stay the same: give less than
    /// merges keep up with ([`Stats`](crate::Stats) has the stalls). Default no rate.
    pub fn write_rate(mut self, bytes_per_second: u64) -> Self {
        self.settings.allowances.write_rate = Some(bytes_per_second);
        self
    }
    /// Holds merges to so many bytes a second of what they read, at least 1 MiB; flushes are not held up. Where merges fall behind,
    /// writers are slowed down to what they keep up with. Default no limit.
    pub fn merge_rate(mut self, bytes_per_second: u64) -> Self {
        self.settings.allowances.merge_rate = Some(bytes_per_second);
        self
    }
    /// Has merges use so many percent of one processor's time at the most, 1 to 100. Default 100.
    pub fn merge_percent(mut self, percent: u64) -> Self {
        self.settings.allowances.merge_percent = Some(percent);
        self
    }
    /// How much a process that is killed leaves for the next opening to replay, in bytes of memtables: a larger memtable is flushed a second after its
    /// first commit, whether somebody still writes or not. So a slow writer leaves about this much, a fast one what it wrote in a second or in
    /// filling a memtable. Default 4 MiB. A close leaves no more than that, than 256 KiB, and than 32 files of the log. Without threads
    /// ([`background`](Self::background)) only closes look at this.
    pub fn replay_bytes(mut self, bytes: u64) -> Self {
        self.settings.replay_bytes = bytes;
        self
    }
    /// Keeps commits for [`Db::feed`](crate::Db::feed): the newest `bytes` of the log, together with what those commits have in blob files and in tables
    /// of their own, and those for `age` after their memtable was flushed. What is older in one of the two goes. Commits that are not flushed yet stay in
    /// any case. Give it some memtables' worth of bytes, so that readers do not fall behind with each flush. It is stored: a later opening that does not
    /// say it goes on with what was said last, and one with 0 bytes gives up what was kept. Default: nothing is kept, and there is no feed.
    pub fn feed_retention(mut self, bytes: u64, age: Duration) -> Self {
        self.settings.feed_retention = Some(FeedLimits { bytes, age: age.as_secs() });
        self
    }
    /// Lets readers of the feed hold what [`feed_retention`](Self::feed_retention) would let go, while the log that is kept has no more than `bytes`. The
    /// database holds all of it until [`Db::hold_feed`](crate::Db::hold_feed) says from which commit on, so that an opening takes nothing from a reader that
    /// is away. It is not stored. Default 0: nothing is held.
    pub fn feed_hold(mut self, bytes: u64) -> Self {
        self.settings.feed_hold = bytes;
        self
    }
    /// What becomes of the entries of the keyspace of this name when a compaction passes them: each stays, goes, or gets another value. What goes or
    /// changes does so by a commit like any other, with a number of its own: snapshots, transactions and [`len`](crate::Keyspace::len) are as exact
    /// as ever, and a newer write of the key wins. An entry that an open snapshot reads is not shown.
    ///
    /// Compactions pass when there is something to merge. [`Db::compact`] has all entries pass. Until then an entry is there, and one may be shown any
    /// number of times: change it into what is kept as it is. Of merges it is shown what a compaction makes of them; where operands have to stay, as for a
    /// snapshot below them, it is not shown. Values in blob files are read for this. The function runs in background threads. If it
    /// panics, the entry stays as it is, and the failure shows in [`Stats::background_error`](crate::Stats::background_error), or is the error
    /// of [`Db::compact`].
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// use esker::{Db, Decision};
    /// let is_over = |_key: &[u8], value: &[u8]| if value == b"over" { Decision::Drop } else { Decision::Keep };
    /// let db = Db::builder().compaction_filter("sessions", is_over).open_in_memory()?;
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
        self.settings.filters.insert(keyspace.to_owned(), Filter(Arc::new(decide)));
        self
    }

    /// For a copy that is there, and is to stay what it is a copy of.
    pub(crate) fn for_copy(mut self) -> Self {
        self.settings.filters.clear();
        self.create_if_missing(false).error_if_exists(false)
    }
    /// Data of more bytes counts as beyond the cache, and the runs there have the ratios of a large database in small numbers:
    /// for simulators, whose databases are small.
    #[doc(hidden)]
    pub fn miniature(mut self, cache_bytes: u64) -> Self {
        self.settings.miniature = Some(cache_bytes);
        self
    }
    /// Sizes of the log's files and the manifest: for simulators.
    #[doc(hidden)]
    pub fn file_sizes(mut self, sizes: FileSizes) -> Self {
        self.settings.file_sizes = sizes;
        self
    }
    /// The size, in bytes, from which on a transaction or batch becomes tables. Default a quarter of a memtable, 16 MiB at the most: for simulators,
    /// whose memtables are so small that otherwise no commit would be larger than a segment of the log.
    #[doc(hidden)]
    pub fn adoption_bytes(mut self, bytes: u64) -> Self {
        self.settings.adoption_bytes = Some(bytes);
        self
    }
    /// The number of the first commit, file, log segment and run of a new database: for simulators, whose databases do not live to
    /// see large ones.
    #[doc(hidden)]
    pub fn first_number(mut self, number: u64) -> Self {
        self.settings.first_number = number;
        self
    }
    /// Registers a merge operator: a function of the value that a key has (none: it is not there) and of operands, oldest first, which gives the new
    /// value, or says what is wrong. See [`MergeOperator`](crate::MergeOperator) for what it has to keep to, and
    /// [`Keyspace::set_merge_operator`](crate::Keyspace::set_merge_operator) for those that are built in.
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
        self.settings.operators.add(name, operator);
        self
    }
    /// Whether to open a database that needs merge operators which are not registered: for tools. Default no. Reading a key whose value has to
    /// be made by one gives [`Error::MergeOperatorMissing`](crate::Error::MergeOperatorMissing) then.
    pub fn allow_missing_merge_operators(mut self, yes: bool) -> Self {
        self.settings.may_lack_operators = yes;
        self
    }
    /// Opens the database in a directory. A relative path is that of the moment: the database stays where it is when the process
    /// changes its working directory, and its path and messages are absolute.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) if it is open elsewhere, [`Error::NotFound`](crate::Error::NotFound), [`Error::UnfinishedRepair`](crate::Error::UnfinishedRepair), [`Error::Corrupt`](crate::Error::Corrupt) and
    /// [`Error::UnsupportedVersion`](crate::Error::UnsupportedVersion) with the file, [`Error::Invalid`](crate::Error::Invalid) for options that make no sense, an empty path, and one that is
    /// no directory, [`Error::MergeOperatorMissing`](crate::Error::MergeOperatorMissing). [`Error::Io`](crate::Error::Io) and
    /// [`Error::NoSpace`](crate::Error::NoSpace): after a crash, opening writes a manifest and a log segment. After a clean close
    /// it changes the file `LOCK` alone, unless the options are others than the last time, a keyspace keeps history by age, or a
    /// flush or compaction has corrected the count of a keyspace. So a read-only disk is refused.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        let options = self.settings.derive()?;
        crate::engine::life::open::open(options, path.as_ref()).map(Db::new)
    }

    /// Opens a new database in memory: its files are buffers. [`Db::path`] is `memory`. Commits of any [`Durability`] cost the same.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_in_memory(mut self) -> Result<Db> {
        self.settings.env.fs = Arc::new(MemFs::new());
        self.open("memory")
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
        self.repair_telling(source, target, |_| {})
    }

    /// Like [`Builder::repair`]; `tell` hears of the report once the new database is whole, checked, closed and durable. All that is left to
    /// do then is to make it one that can be opened. If that fails the target may nonetheless stay, because nothing can be changed
    /// there any more: if it opens it is that database, and `tell` has its report.
    ///
    /// # Errors
    /// See [`repair`](crate::repair).
    pub fn repair_telling(
        self,
        source: impl AsRef<Path>,
        target: impl AsRef<Path>,
        tell: impl FnOnce(&RepairReport),
    ) -> Result<RepairReport> {
        repair::repair(&self.settings, source.as_ref(), target.as_ref(), tell, |_| {})
    }
}

/// Checks a database without opening it: reads its files, changes nothing, and reports everything that is wrong, however
/// damaged it is.
///
/// # Errors
/// [`Error::Locked`](crate::Error::Locked) if it is open elsewhere ([`Db::check`](crate::Db::check) checks an open one), [`Error::NotFound`](crate::Error::NotFound),
/// [`Error::UnsupportedVersion`](crate::Error::UnsupportedVersion) if the manifest or a segment of the log is of a newer format: nothing is known of the rest then. A table
/// of a newer format is a problem in the report, as damage is.
pub fn check_offline(dir: impl AsRef<Path>) -> Result<CheckReport> {
    Builder::default().check_offline(dir)
}

/// Salvages what can be read of the damaged database in `source` into a new one in `target`, which must be missing or
/// empty (a lock file that nobody holds may be there), and not lie in the source. The source is not changed in any way. On Unix a target
/// that is made has the source's mode, and its files the mode that all files of the source allow, unless
/// [`Builder::mode`] says otherwise. The report tells exactly what was lost. If
/// this fails, what it has made in the target is removed, except a directory that was made for it. If that fails, too, or the
/// process is killed, the target is refused ([`Error::UnfinishedRepair`](crate::Error::UnfinishedRepair)) until somebody removes it.
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
/// [`Error::Locked`](crate::Error::Locked) if the source or the target is open elsewhere, with the path of its lock, [`Error::NotFound`](crate::Error::NotFound) if there is nothing
/// of a database in the source, [`Error::UnfinishedRepair`](crate::Error::UnfinishedRepair) if one of the two is what a repair has left that was killed,
/// [`Error::Invalid`](crate::Error::Invalid) if the target is not empty or lies in the source, [`Error::UnsupportedVersion`](crate::Error::UnsupportedVersion) if the source was
/// written by a newer version, and errors of writing the target.
pub fn repair(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
    Builder::default().repair(source, target)
}
