//! Esker: an embedded, ordered, transactional key-value storage engine.
//!
//! A database is a directory, and holds keyspaces: named, ordered maps of byte strings. A read sees the state of one commit, transactions
//! span keyspaces, and nothing that was acknowledged as durable is lost to a crash. Inside it is a log-structured merge tree, laid out for
//! reading.
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
//! users.remove_range("b"..)?;
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
//! - [`WriteBatch`]: writes that are committed together; [`Transaction`]: the same with reads, under snapshot isolation.
//! - [`Snapshot`]: all keyspaces as of one commit; [`Range`], [`Keys`] and [`Cursor`] walk through one keyspace.
//! - [`History`]: keyspaces that keep older versions are read as they were, and tell what has changed since a commit.
//! - [`Reads`]: one trait for the reads of a keyspace, now, in a snapshot and in a transaction.
//! - [`Db::checkpoint`], [`backup`] and [`unload`]: copies of a database while it is open.
//! - [`check_offline`], [`repair`] and [`dump`]: for databases that cannot be opened; [`Db::check`]: for those that can.
//! - [`recordio`]: files of checksummed records, [`sstable`]: sorted tables; both of use without a database.
//!
//! # Durability
//! - [`Durability::Sync`], the default: a commit waits until it is on the disk.
//! - [`Durability::Buffered`]: until the operating system has it; a power loss may take the last 100 ms or so.
//! - [`Durability::None`]: for nothing; a kill may take the last ones, too. [`Db::sync`] and [`Db::close`] make all of them durable.
//!
//! # Threads
//! [`Db`], [`Keyspace`] and [`Snapshot`] are handles for any number of threads: clone them or share them. Iterators, cursors, batches and
//! transactions own what they read, and may move to other threads. All calls block, and writes also wait while flushing is behind: in async code
//! call them where blocking is allowed. An open database has three threads of its own.
//!
//! # Servers
//! A thread that must not wait, one of an event loop say, reads with [`Keyspace::get_if_cached`]: it answers from memory, or says that a file would have to be
//! read, and then another thread can. It commits with [`Keyspace::put_async`], [`Keyspace::remove_async`] and [`WriteBatch::commit_async`]: one thread of the database commits
//! for all, with one sync, and wakes each with the number of its commit. That is a future for any runtime ([`Committing`]).
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
//! let commits: Vec<_> = (0..100_u32).map(|n| map.put_async(n.to_be_bytes(), "value")).collect(); // waits for nothing
//! for commit in commits {
//!     let seqno = wait(commit)?; // `commit.await?` in async code
//!     assert!(seqno <= db.snapshot().seqno());
//! }
//! match map.get_if_cached(7_u32.to_be_bytes())? {
//!     Some(value) => assert_eq!(value.as_deref(), Some(&b"value"[..])),
//!     None => {} // `map.get` where blocking is allowed
//! }
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! # Errors
//! After [`Error::Conflict`] run the transaction again, as [`Db::transact`] does; after [`Error::NoSpace`] make room and commit again what
//! [`CommitError`] gives back; after [`Error::Poisoned`] open the database again (until then it is read only), and look whether the commit that failed is there: it may be. [`Error::Corrupt`] names the file and the place of damage: restore a backup, or save what can
//! be read with [`repair`]. The others say what to do in their messages.
//!
//! # Features
//! `zstd` (default): the codec of that name. Without it no C compiler is needed, and tables that are compressed with it cannot be read.
//! `bytes`: `Bytes::from` a [`Value`] or a [`Key`].
//! `tokio`: ranges and the change feed as streams, read on the runtime's threads for what blocks. Commits as futures need no feature, nor a certain runtime.
//!
//! # Limits
//! Keys have up to [`KEY_BYTES_MAX`] bytes, values up to [`VALUE_BYTES_MAX`]. Values may come from readers and be read in parts. Write skew is possible. One process has a database open at a time.

pub mod backup;
pub mod recordio;
pub mod replay;
pub mod sstable;

mod blob;
mod cache;
mod compaction;
mod db;
mod encoding;
mod engine;
mod feed;
mod manifest;
mod memtable;
mod read;
mod rescue;
mod sync;
mod txn;
#[cfg(feature = "typed")]
pub mod typed;
mod types;
pub mod unload;
mod wal;

/// Entries for fuzzers: every decoder of bytes from disk, on any bytes. Not part of the API. See docs/testing.md.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::backup::fuzzing as backup;
    pub use crate::blob::fuzzing as blob;
    pub use crate::encoding::fuzzing as encoding;
    pub use crate::engine::fuzzing as engine;
    pub use crate::manifest::fuzzing as manifest;
    pub use crate::recordio::fuzzing as recordio;
    pub use crate::sstable::fuzzing as sstable;
    pub use crate::txn::fuzzing as txn;
    pub use crate::unload::fuzzing as unload;
    pub use crate::wal::fuzzing as wal;
}

/// The world that a database lives in, for [`Builder::env`]: files, clock, randomness and threads, real or simulated. These are parts of the
/// crate `esker-env`.
pub mod env {
    #[cfg(any(unix, windows))]
    pub use esker_env::RealFs;
    pub use esker_env::{
        AppendWriter, Clock, Env, FaultAction, FaultFs, FaultRule, File, FileLock, Fs, FsRef, LockError,
        ManualClock, MemFs, OpKind, OpenOptions, Random, SeededRandom, SystemClock, SystemRandom,
        SystemThreads, ThreadHandle, Threads,
    };
}

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

pub use compaction::filter::Decision;
pub use db::{
    Builder, Change, Changed, Changes, CommitError, Committed, Cursor, Db, Feed, FeedChange, FeedCommit,
    FeedValue, Ingest, Key, Keys, Keyspace, Listener, NamedLock, Notice, Past, Range, Reads, RemovedRange,
    Savepoint, Sequence, Snapshot, Transaction, Ttl, Version, Versions, View, ViewMut, Watch, WriteBatch,
    check_offline, repair,
};
#[cfg(feature = "tokio")]
pub use db::{EntryStream, FeedStream};
pub use encoding::Compression;
pub use engine::background::BackgroundStep;
pub use engine::committer::Committing;
pub use engine::copies::checkpoint::Checkpoint;
pub use engine::health::{FailingWork, Health, Work};
pub use engine::history::History;
pub use engine::keyspace_options::{Counting, KeyspaceOptions};
pub use engine::keyspace_stats::KeyspaceStats;
pub use engine::locks::LockMode;
pub use engine::options::FileSizes;
pub use engine::stats::{OldestSnapshot, Stats};
pub use read::operators::MergeOperator;
pub use read::operators::set::{merge_set, merge_set_elements};
pub use read::value_reader::ValueReader;
pub use rescue::check::CheckReport;
pub use rescue::dump::{DumpItem, DumpOptions, DumpValue, dump};
pub use rescue::repair::{Loss, LostKeys, RepairReport, RepairedKeyspace};
pub use sstable::TableCompression;
pub use txn::commit::{Durability, Isolation};
pub use types::latency::Latency;
pub use types::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use types::{Contended, Error, KeyBounds, KeyspaceId, Result, SeqNo, SharedBytes, Value};
