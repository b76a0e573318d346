//! What the lab asks of an engine: one trait to open it, three to use it.
//!
//! ```text
//! Engine --open(dir)--> Store --write(txn)--> Writer   put, remove
//!                             --reader()----> Reader   get, range, keys, len, at one snapshot
//! ```
//!
//! bench_engine.1. `Store::write` is one atomic transaction (or says by its [`Isolation`] that it is not);
//!     when it returns in mode `Sync`, the data is on the device.
//! bench_engine.2. A `Reader` is a snapshot: it sees each transaction whole or not at all, and none committed
//!     after it began.
//! bench_engine.3. Values are handed to a visitor, so an engine that can lend its bytes copies nothing, and
//!     every engine pays the same one virtual call.
//! bench_engine.4. Going back to mode `Sync` makes durable what was written without: no engine carries that
//!     debt into a later row.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::async_commits::AsyncCommits;
use crate::expiring::Expiring;
use crate::keyspaces::Keyspaces;
use crate::serving::Serving;
use crate::transactions::{OneWriter, TransactionKind, Transactions};

/// An engine, as the lab knows it before any database exists.
pub trait Engine: Sync {
    /// Name on the command line and in results.
    fn name(&self) -> &'static str;

    /// Version of the engine and of the crate that binds it.
    fn version(&self) -> String;

    /// Every option that differs from the engine's defaults, or that readers ask about, with its reason.
    fn options(&self) -> &'static [EngineOption];

    /// What its transactions guarantee: rows of different classes are not compared in silence.
    fn isolation(&self) -> Isolation;

    /// Why the engine cannot do this, or `None` when it can. Rows that need the feature carry the reason.
    fn cannot(&self, _feature: Feature) -> Option<&'static str> {
        None
    }

    /// The first of these modes that the engine has.
    fn first_of(&self, modes: &[Durability]) -> Option<Durability> {
        modes.iter().copied().find(|mode| self.cannot(mode.feature()).is_none())
    }

    /// What its commits of [`Durability::Async`] have done when they return; `None` for an engine that has no
    /// such mode.
    fn async_commits(&self) -> Option<AsyncCommits>;

    /// Why some of its commits sync although none is asked for, where that is the engine's nature: what the
    /// lab counts is then noted with this reason, and not taken for a mistake of the adapter.
    fn syncs_unasked(&self) -> Option<&'static str> {
        None
    }

    /// Why the engine has no part in this suite at all, or `None` when it has.
    fn cannot_run(&self, _suite: &str) -> Option<String> {
        None
    }

    /// Engines that test the lab itself are kept out of `list` and of the default run.
    fn hidden(&self) -> bool {
        false
    }

    /// Builds what the engine needs beside the lab's own program, where it is written in another language.
    /// That may take minutes.
    fn prepare(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Starts what was built, so that the first opening need not. Called once, before an engine is used for a
    /// suite.
    fn start(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Creates a database in the empty directory `dir`, or opens the one that is there.
    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>, Failure>;

    /// Creates a database with keyspaces 0 to `count` in the empty directory `dir`, or opens those of the
    /// database that is there. `None`: the engine has one order, or its authors do not mean its keyspaces for
    /// thousands; the lab prefixes keys then, as its users do.
    fn open_keyspaces(
        &self,
        _dir: &Path,
        _options: &OpenOptions,
        _count: u32,
    ) -> Result<Option<Box<dyn Keyspaces>>, Failure> {
        Ok(None)
    }

    /// The program, ready to be started, that serves a database of this engine to clients of the Redis
    /// protocol until one of them sends `SHUTDOWN`; none: there is no such program.
    fn serve(&self, _serving: Serving<'_>) -> Result<Option<Command>, Failure> {
        Ok(None)
    }

    /// How its transactions that read what they write keep out of each other's way: each kind that it has,
    /// the one that its authors put first before the others. None: its adapter has no such transactions.
    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[]
    }

    /// Creates a database for transactions of one of these kinds in the empty directory `dir`, or opens the
    /// one that is there. As it stands here, it is for engines with [`TransactionKind::OneWriter`] alone,
    /// whose [`Writer`] has [`Writer::get`].
    fn open_transactions(
        &self,
        dir: &Path,
        options: &OpenOptions,
        kind: TransactionKind,
    ) -> Result<Box<dyn Transactions>, Failure> {
        if kind == TransactionKind::OneWriter && self.transaction_kinds().contains(&kind) {
            return Ok(Box::new(OneWriter(self.open(dir, options)?)));
        }
        Err(Failure::Unsupported(format!("no transactions of the kind: {}", kind.name())))
    }

    /// Creates a database whose entries may expire in the empty directory `dir`, or opens the one that is
    /// there.
    fn open_expiring(&self, _dir: &Path, _options: &OpenOptions) -> Result<Box<dyn Expiring>, Failure> {
        Err(Failure::Unsupported("its entries do not expire".to_owned()))
    }
}

/// What a suite gives every engine alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Size of the engine's own cache; for an engine with one budget for everything, that budget.
    pub cache_bytes: u64,
    /// Size of the memtable or write buffer where the suite limits it; engines without one pass over it.
    pub write_buffer_bytes: Option<u64>,
    /// Size of the suite's values, of the largest where they differ: some engines lay large values out apart,
    /// but have to be told. 0 where the suite does not say.
    pub value_bytes: u64,
    /// Size of the suite's longest key where it is longer than 32 bytes; an engine whose pages depend on it
    /// has to be told. 0 elsewhere. The suites in Go do not pass it on: no engine there has such an option.
    pub key_bytes: u64,
    /// Transactions that write at once: an engine that gathers them has to be told how many it may wait for.
    /// The suites in Go have the same figure in `lab.OpenOptions`; nothing passes it to them.
    pub concurrent_writes: u64,
    /// What the store is about to be used for: whether the suite reads and writes at random in more data than
    /// memory holds until it closes it. An engine that maps its file may then be told to read nothing ahead.
    /// False for a store that is opened to be walked through, where that costs most of the speed. The suites
    /// in Go do not pass it on: no engine there has such an option.
    pub random_beyond_memory: bool,
    /// What the store is about to be used for: whether new keys come in ascending order, each behind all that
    /// are there, or nearly so where several write at once. An engine that splits its pages in the middle may
    /// then be told to leave the first of the two fuller. The suites in Go have the same in
    /// `lab.OpenOptions`; nothing passes it to them. No engine in Rust has such an option.
    pub ascending_keys: bool,
    /// Durability of the transactions that follow; [`Failure::Unsupported`] when the engine has no such mode.
    pub durability: Durability,
}

impl OpenOptions {
    /// This much cache, everything else the engine's own, sync commits.
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

/// One option of an adapter and why it is so.
#[derive(Clone, Copy, Debug)]
pub struct EngineOption {
    /// The option as the engine calls it.
    pub option: &'static str,
    /// What it is set to.
    pub value: &'static str,
    /// Why.
    pub reason: &'static str,
    /// Where the engine's authors advise it or do so themselves: a file, a page, a section. Empty for a
    /// default.
    pub pointer: &'static str,
}

/// The options of an adapter: option, value, reason and pointer of each, on one line.
#[macro_export]
macro_rules! engine_options {
    ($($option:expr, $value:expr, $reason:expr, $pointer:expr;)*) => {
        &[$($crate::EngineOption { option: $option, value: $value, reason: $reason, pointer: $pointer }),*]
    };
}

/// What some rows need and some engines lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// [`Durability::Sync`].
    SyncCommits,
    /// [`Durability::Async`].
    AsyncCommits,
    /// [`Durability::NoSync`].
    NoSyncCommits,
    /// A transaction of any size, as large as the disk allows.
    LargeTransactions,
    /// Values of 2 MB.
    LargeValues,
    /// [`Store::compact`].
    Compaction,
    /// A [`Reader`] does not see what is committed after it began.
    Snapshots,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::SyncCommits,
        Self::AsyncCommits,
        Self::NoSyncCommits,
        Self::LargeTransactions,
        Self::LargeValues,
        Self::Compaction,
        Self::Snapshots,
    ];

    /// For lists.
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

/// What the transactions of an engine guarantee, as the adapter uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each write stands for itself: several are not atomic.
    Operation,
    /// A batch of writes is atomic; reads within a transaction and conflicts are not covered.
    Batch,
    /// Reads are of one snapshot; conflicting writers are told or wait.
    Snapshot,
    /// Transactions are as if run one after the other.
    Serializable,
}

impl Isolation {
    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operation => "single operations",
            Self::Batch => "atomic batches",
            Self::Snapshot => "snapshot isolation",
            Self::Serializable => "serializable",
        }
    }
}

/// How far a commit must have got before it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On the device.
    Sync,
    /// On its way: after a power cut the database is sound and lacks the newest commits only. Where the
    /// engine tells the two apart, the commit has been handed to the operating system, so that it outlives
    /// the process.
    Async,
    /// Anywhere: the engine's fastest mode that still leaves a sound database after a crash of the process.
    NoSync,
}

impl Durability {
    /// The feature that a row of this durability needs.
    pub fn feature(self) -> Feature {
        match self {
            Self::Sync => Feature::SyncCommits,
            Self::Async => Feature::AsyncCommits,
            Self::NoSync => Feature::NoSyncCommits,
        }
    }
}

/// The work of one transaction.
pub type Work<'a> = &'a mut dyn FnMut(&mut dyn Writer) -> Result<(), Failure>;

/// An open database with one ordered map in it.
pub trait Store: Send + Sync {
    /// Chooses the durability of the transactions that follow.
    /// [`Failure::Unsupported`] says that the engine has no such mode.
    fn set_durability(&mut self, durability: Durability) -> Result<(), Failure>;

    /// Runs `work` in one transaction and commits it (bench_engine.1). An error from `work` rolls back,
    /// except where the engine has single operations only ([`Isolation::Operation`]). Many threads may call
    /// it; on a conflict the adapter runs `work` again.
    fn write(&self, work: Work<'_>) -> Result<(), Failure>;

    /// Opens a snapshot (bench_engine.2).
    fn reader(&self) -> Result<Box<dyn Reader + '_>, Failure>;

    /// One read of the newest state, in the engine's cheapest way.
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        self.reader()?.get(key, visit)
    }

    /// One range read of the newest state, in the engine's cheapest way.
    fn range(&self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, Failure> {
        self.reader()?.range(from, limit, visit)
    }

    /// The engine's own best compaction, run to its end.
    fn compact(&mut self) -> Result<(), Failure>;

    /// Follows each `compact` before anything else, and is not timed: closes and opens the database where an
    /// engine removes only then the files that it replaced, or was opened otherwise for the compaction. Where
    /// closing or opening does a part of the work it belongs to `compact`.
    fn reopen(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Waits until the engine owes no more background work (flushes, merges) than it would leave when idle.
    /// Engines that do everything within their calls have nothing to wait for. One that does not come to rest
    /// before `deadline` is left to its work.
    fn drain(&self, _deadline: Instant) -> Result<(), Failure> {
        Ok(())
    }

    /// Syncs so far by the engine's own count, where it keeps one.
    fn sync_count(&self) -> Option<u64> {
        None
    }
}

/// The open transaction of a [`Store::write`].
pub trait Writer {
    /// Inserts or replaces.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure>;

    /// Removes `key`, which need not exist.
    fn remove(&mut self, key: &[u8]) -> Result<(), Failure>;

    /// Shows the value of `key`, as the transaction sees it, to `visit`; false when there is none. Suite
    /// `transactions` alone asks for it.
    fn get(&mut self, _key: &[u8], _visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        Err(Failure::Unsupported("its adapter writes without reading".to_owned()))
    }
}

/// A snapshot.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether an engine is empty")]
pub trait Reader {
    /// Shows the value of `key` to `visit`; false when there is none.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure>;

    /// Shows up to `limit` items from the first key >= `from`, in key order; returns how many there were.
    fn range(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8]))
    -> Result<u64, Failure>;

    /// The same for keys alone, for engines that can leave values unread.
    fn keys(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8])) -> Result<u64, Failure> {
        self.range(from, limit, &mut |key, _| visit(key))
    }

    /// The exact number of items.
    fn len(&mut self) -> Result<u64, Failure>;
}

/// Why a row has no value.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// The engine cannot do this by design: its row says so, and the run goes on.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The engine answered wrongly: the row fails, and the run goes on.
    #[error("wrong answer: {0}")]
    Wrong(String),
    /// The engine failed: what follows would measure a broken database, so the run of this engine ends.
    #[error("{0}")]
    Engine(String),
}

impl Failure {
    /// Wraps an engine's own error.
    pub fn engine(error: impl std::fmt::Display) -> Self {
        Self::Engine(error.to_string())
    }
}
