//! Esker: an embedded, ordered, transactional key-value storage engine.
//!
//! A database is a directory that holds keyspaces: named, ordered maps of byte strings. A transaction spans
//! any number of keyspaces and is serializable by default. Commits that were acknowledged as durable survive
//! crashes and power loss. The structure is a log-structured merge tree, laid out for reading.
//!
//! ```
//! # fn main() -> esker::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path();
//! let db = esker::Db::open(path)?;
//! let users = db.keyspace("users")?;
//! users.put("ann", "1")?; // durable when it returns
//! assert_eq!(users.get("ann")?.as_deref(), Some(&b"1"[..]));
//!
//! // Reads a snapshot, and is run again after a conflict.
//! db.transact(|t| {
//!     let n = t.get(&users, "ann")?.map_or(0, |value| value.len());
//!     t.put(&users, "bob", n.to_string())
//! })?;
//!
//! let snapshot = db.snapshot();
//! users.delete_range("b"..)?;
//! for entry in users.range("a".."c").rev() {
//!     let (key, value) = entry?;
//!     println!("{key:?} = {value:?}");
//! }
//! assert_eq!((users.len()?, snapshot.len(&users)?), (1, 2));
//! # Ok(())
//! # }
//! ```
//!
//! - [`Db`]: an open database; [`Builder`] has its options. [`Keyspace`]: one of its maps.
//! - [`WriteBatch`]: writes that are committed together. [`Transaction`]: reads and writes that are committed
//!   together, under an [`Isolation`]. A [`Savepoint`] undoes a part of it. [`Transaction::lock`] makes other
//!   transactions that lock the key wait.
//! - [`Snapshot`]: all keyspaces as of one commit. [`Range`], [`Keys`] and [`Cursor`] walk through one
//!   keyspace.
//! - [`Reads`]: one trait for the reads of a keyspace, a snapshot and a transaction.
//! - [`Keyspace::merge`]: writes that are combined with the value by an operator. [`Keyspace::fetch_add`],
//!   [`Keyspace::update`] and [`Keyspace::compare_and_swap`] read and write one key; [`Sequence`] gives out
//!   numbers.
//! - [`Keyspace::put_with_ttl`]: entries that expire, and the rules of expiry.
//! - [`History`]: keyspaces that keep older versions and can be read as they were at a commit.
//! - [`Db::feed_after`]: every durable commit in order. [`Keyspace::watch`] and [`Db::listen`]: changes and
//!   notices as they happen.
//! - [`Keyspace::ingest`]: sorted pairs and finished tables, committed without log and memtable.
//! - [`Db::checkpoint`], [`backup`], [`unload`] and [`replay`]: copies of an open database.
//! - [`check_offline`], [`repair`] and [`dump`]: for databases that cannot be opened. [`Db::check`]: for open
//!   ones.
//! - [`Builder::on_event`]: what the engine does, as it happens. [`Db::stats`] and [`Stats::each`]: its
//!   figures.
//! - [`recordio`]: files of checksummed records; [`wal`]: logs of them; [`memtable`]: sorted maps in memory;
//!   [`sstable`]: sorted tables. They are used without a database: `examples/tiny_lsm.rs` is a store of them.
//! - `typed` (a feature): tables with typed keys and values.
//!
//! # Durability
//! - [`Durability::Sync`], the default: a commit waits until it is on the disk.
//! - [`Durability::Buffered`]: a commit waits until the operating system has it. A power loss can take the
//!   last 100 ms ([`Builder::sync_every`]).
//! - [`Durability::None`]: a commit does not wait. A kill of the process can take the last commits as well.
//!
//! [`Db::sync`] and [`Db::close`] make all earlier commits durable.
//!
//! # Threads
//! [`Db`], [`Keyspace`] and [`Snapshot`] are handles that any number of threads can clone or share.
//! Iterators, cursors, batches and transactions own what they read and may move to other threads. Calls
//! block, and writes also wait while flushes or compactions are behind: in async code, make them where
//! blocking is allowed. An open database has five threads: flush, compaction, log segments, the timed sync,
//! and sweeps of expired keys, and up to three more for compactions if the machine has more than two
//! processors ([`Tuning::compactions`]). Opening starts one of them, which starts the others with the first
//! commit or 20 ms later. The first asynchronous commit starts another. Large transactions, large values, and
//! a [`Keyspace::multi_get`] of keys that are not in memory start further threads for a short time. With
//! [`Builder::on_event`] a thread calls the callback. With [`Builder::background`] off there are no threads,
//! and callers do the work.
//!
//! # Servers
//! A thread that must not block, such as an event loop, reads with [`Keyspace::get_if_cached`]: it answers
//! from memory, or reports that it would have to read a file. [`memory_only`] does this for other reads, such
//! as ranges. Such a thread commits with [`Keyspace::put_async`], [`Keyspace::delete_async`] and
//! [`WriteBatch::commit_async`], which block only while 64 MiB of commits wait. One thread of the database
//! commits for all callers, with one sync, and wakes each with the number of its commit. A small commit that
//! waits neither for the disk nor for other work is made by its call. The result is a future for any runtime
//! ([`Committing`]).
//!
//! ```
//! # fn wait<T>(future: impl Future<Output = T>) -> T {
//! #     let mut future = std::pin::pin!(future);
//! #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! #     loop {
//! #         if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) { return done; }
//! #         std::thread::yield_now();
//! #     }
//! # }
//! # let db = esker::Db::in_memory()?;
//! let map = db.default_keyspace();
//! let commits: Vec<_> = (0..100_u32).map(|n| map.put_async(n.to_be_bytes(), "value")).collect();
//! for commit in commits {
//!     let seqno = wait(commit)?; // `commit.await?` in async code
//!     assert!(seqno <= db.snapshot().seqno());
//! }
//! match map.get_if_cached(7_u32.to_be_bytes())? {
//!     esker::Cached::Value(value) => assert_eq!(&*value, b"value"),
//!     esker::Cached::Absent => unreachable!("it was put"),
//!     esker::Cached::NotCached => {} // `map.get` where blocking is allowed
//! }
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! # Errors
//! - [`Error::Conflict`]: run the transaction again, as [`Db::transact`] does.
//! - [`Error::NoSpace`]: free space, then commit the writes that [`CommitError`] returns.
//! - [`Error::Poisoned`]: writes have stopped, reads still work. Open the database again. The failed commit
//!   may exist.
//! - [`Error::Corrupt`]: names the file and the offset of the damage. Restore a backup, or salvage with
//!   [`repair`].
//!
//! The messages of the other errors say what to do.
//!
//! # Features
//! | feature | |
//! |---|---|
//! | `zstd` (default) | The codec zstd, needed to read tables compressed with it. Needs a C compiler. |
//! | `typed` | Module `typed`: tables with typed keys in their order, and typed values. |
//! | `msgpack`, `json` | Values of typed tables as MessagePack, as JSON. |
//! | `tokio` | Streams of ranges, history, the change feed, watches. Async commits need no feature. |
//! | `bytes` | `Bytes::from` a [`Value`] or a [`Key`]. |
//! | `tracing` | `trace_event`: events of the engine for the crate `tracing`. |
//! | `encryption` | Module `encryption`: encryption at rest. Needs a C compiler. |
//!
//! `cargo doc -p esker --no-deps --all-features --open` shows them all.
//!
//! # Limits
//! Keys have up to [`KEY_BYTES_MAX`] bytes, values up to [`VALUE_BYTES_MAX`]. Values can come from readers
//! and be read in parts. [`Isolation::Snapshot`] permits write skew; the default does not. One process has a
//! database open at a time; with the crate `esker-shared` it serves others, which write through it.

pub mod backup;
pub mod memtable;
pub mod recordio;
pub mod replay;
pub mod sstable;
pub mod wal;

mod blob;
mod cache;
mod compaction;
mod db;
mod encoding;
#[cfg(feature = "encryption")]
pub mod encryption;
#[cfg(not(feature = "encryption"))]
mod encryption;
mod engine;
mod feed;
mod manifest;
mod read;
mod rescue;
mod sync;
#[cfg(feature = "tracing")]
mod trace;
mod txn;
#[cfg(feature = "typed")]
pub mod typed;
mod types;
pub mod unload;

/// Decides which files belong to a database, without its lock. For the server, which moves databases.
/// Not part of the API.
#[doc(hidden)]
pub use crate::engine::life::copies::names::{is_of_database, refuse_in_database};

/// Entry points for fuzzers: every decoder of bytes from disk. Not part of the API. See docs/testing.md.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::backup::fuzzing as backup;
    pub use crate::blob::fuzzing as blob;
    pub use crate::encoding::fuzzing as encoding;
    #[cfg(feature = "encryption")]
    pub use crate::encryption::fuzzing as encryption;
    pub use crate::engine::life::fuzzing as engine;
    pub use crate::manifest::fuzzing as manifest;
    pub use crate::recordio::fuzzing as recordio;
    pub use crate::sstable::fuzzing as sstable;
    pub use crate::txn::fuzzing as txn;
    pub use crate::unload::fuzzing as unload;
    pub use crate::wal::fuzzing as wal;
}

/// Files, clock, randomness and threads, real or simulated, for [`Builder::env`]. Parts of the crate
/// `esker-env`.
pub mod env {
    #[cfg(any(unix, windows))]
    pub use esker_env::RealFs;
    pub use esker_env::{
        AppendWriter, Clock, Entry, Env, FaultAction, FaultFs, FaultRule, File, FileLock, Fs, FsRef, JobFile,
        LockError, ManualClock, MemFs, OpKind, OpenOptions, Random, SeededRandom, SystemClock, SystemRandom,
        SystemThreads, ThreadHandle, Threads,
    };
}

/// The programs of docs/api.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/api.md")]
pub struct ApiPage;

/// For simulations. Not part of the API.
#[doc(hidden)]
pub use sync::settle_garbage;

/// Deliberate faults, for tests of test harnesses. Not part of the API.
#[cfg(feature = "canaries")]
#[doc(hidden)]
pub use types::canary;
/// Work between two steps of the engine, for simulations. Not part of the API.
#[cfg(feature = "canaries")]
#[doc(hidden)]
pub use types::interleave;

pub use blob::Blobs;
pub use compaction::filter::Decision;
pub use db::{
    Builder, Change, Changes, CommitError, Committed, CommittingAll, Cursor, Db, Feed, FeedChange,
    FeedCommit, FeedOperand, FeedValue, Follower, Ingest, Key, Keys, Keyspace, Listener, NamedLock, Notice,
    PartWrite, Past, Range, ReadCore, Reads, Savepoint, Sequence, Snapshot, Swap, Transaction,
    TransactionOptions, Ttl, Tuning, Update, Version, Versions, View, ViewMut, Watch, WriteBatch,
    WriteOptions, check_offline, repair,
};
#[cfg(feature = "tokio")]
pub use db::{EntryStream, EventStream, FeedStream};
pub use encoding::Compression;
pub use engine::base::event::{Event, StallCause};
pub use engine::base::file_sizes::FileSizes;
pub use engine::base::health::{FailingWork, Health, Work};
pub use engine::base::info::Info;
pub use engine::base::slow_operation::{Operation, SlowOperation, SlowPart};
pub use engine::base::stats::figures::{Figure, FigureKind, FigureValue};
pub use engine::base::stats::{CacheBytes, OldestSnapshot, Stats};
pub use engine::life::background::BackgroundStep;
pub use engine::life::copies::checkpoint::Checkpoint;
pub use engine::life::owner::LockOwner;
pub use engine::state::history::History;
pub use engine::state::keyspace_options::{Counting, KeyspaceOptions};
pub use engine::state::keyspace_stats::KeyspaceStats;
pub use engine::state::table_info::{TableInfo, TableKey, TableLevel};
pub use engine::writes::committer::Committing;
pub use engine::writes::locks::LockMode;
pub use read::operators::MergeOperator;
pub use read::operators::set::{merge_set, merge_set_elements};
pub use read::value_reader::ValueReader;
pub use rescue::check::CheckReport;
pub use rescue::destroy::destroy;
pub use rescue::dump::{DumpItem, DumpOptions, DumpValue, dump};
pub use rescue::repair::{Loss, LostKeys, RepairReport, RepairedKeyspace};
pub use sstable::TableCompression;
#[cfg(feature = "tracing")]
pub use trace::trace_event;
pub use txn::commit::{Durability, Isolation};
pub use types::latency::Latency;
pub use types::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use types::parts::Part;
pub use types::{
    Cached, Contended, EncryptionProblem, Error, ErrorKind, KeyBounds, KeyspaceId, Result, SeqNo,
    SharedBytes, Value, memory_only,
};
