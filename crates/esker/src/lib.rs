//! Esker: an embedded, ordered, transactional key-value storage engine.

pub mod recordio;
pub mod sstable;

mod cache;
mod compaction;
mod db;
mod encoding;
mod manifest;
mod memtable;
mod read;
mod sync;
mod txn;
mod types;
mod wal;

/// Entries for fuzzers: every decoder of bytes from disk, on any bytes. Not part of the API. See docs/fuzzing.md.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::db::fuzzing as db;
    pub use crate::encoding::fuzzing as encoding;
    pub use crate::manifest::fuzzing as manifest;
    pub use crate::recordio::fuzzing as recordio;
    pub use crate::sstable::fuzzing as sstable;
    pub use crate::txn::fuzzing as txn;
    pub use crate::wal::fuzzing as wal;
}

/// Deliberate faults, for tests of test harnesses. Not part of the API.
#[cfg(feature = "canaries")]
#[doc(hidden)]
pub use types::canary;

pub use db::{
    BackgroundStep, Builder, CheckReport, Cursor, Db, DumpItem, DumpOptions, DumpValue, FileSizes, Key, Keys,
    Keyspace, Loss, LostKeys, Range, RepairReport, RepairedKeyspace, Snapshot, Stats, Transaction,
    WriteBatch, check_offline, dump, repair,
};
pub use encoding::Compression;
pub use sstable::TableCompression;
pub use txn::commit::Durability;
pub use types::{Error, KeyspaceId, Result, SeqNo, SharedBytes, Value};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;
