//! The options in force, for programs and people.

use std::time::Duration;

use super::options::Options;
use crate::blob::Blobs;
use crate::sstable::TableCompression;
use crate::txn::commit::{Durability, Isolation};

/// The options in force, given and derived: made by [`Db::info`](crate::Db::info).
/// [`Builder`](crate::Builder) and [`Tuning`](crate::Tuning) describe those of the same names.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Info {
    /// The memory budget in bytes.
    pub memory: u64,
    /// The durability of commits without one of their own.
    pub durability: Durability,
    /// The isolation of transactions without one of their own.
    pub isolation: Isolation,
    /// How long transactions wait for locks and the exclusive turn.
    pub lock_patience: Duration,
    /// How tables are compressed.
    pub compression: TableCompression,
    /// Size at which a memtable is flushed.
    pub memtable_bytes: usize,
    /// Bytes of one transaction's writes that stay in memory.
    pub transaction_memory: u64,
    /// The memory left when all memtables are full, but at least a quarter of the memory. Compactions compare
    /// the data with it. If memtables are large, the cache itself may have less.
    pub cache_bytes: u64,
    /// Size of a table's blocks.
    pub block_bytes: usize,
    /// Size at which compactions begin a new table.
    pub table_bytes: u64,
    /// Which values are stored in blob files.
    pub blobs: Blobs,
    /// Maximum disk space for each live byte.
    pub space_amplification_max: f64,
    /// Maximum bytes of memtables to replay after a kill.
    pub replay_bytes: u64,
    /// Delay after which a commit that does not wait for the disk is synced.
    pub sync_every: Duration,
    /// Size of the largest segment of the log.
    pub wal_segment_bytes: u64,
}

impl Info {
    pub(super) fn of(options: &Options) -> Self {
        Info {
            memory: options.memory(),
            durability: options.durability(),
            isolation: options.isolation(),
            lock_patience: options.lock_patience(),
            compression: options.compression(),
            memtable_bytes: options.memtable_bytes,
            transaction_memory: options.transaction_bytes(),
            cache_bytes: options.cache_bytes(),
            block_bytes: options.block_bytes(),
            table_bytes: options.table_bytes(),
            blobs: options.blobs(),
            space_amplification_max: options.amplification_percent_max() as f64 / 100.0,
            replay_bytes: options.replay_bytes(),
            sync_every: options.sync_every(),
            wal_segment_bytes: options.wal_segment_bytes(),
        }
    }

    /// Names and values, in the order of the fields, for people.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let blobs = match self.blobs {
            Blobs::Never => "never".to_owned(),
            Blobs::From(bytes) => bytes.to_string(),
        };
        vec![
            ("memory", self.memory.to_string()),
            ("durability", format!("{:?}", self.durability).to_lowercase()),
            ("isolation", format!("{:?}", self.isolation).to_lowercase()),
            ("lock_patience", format!("{:?}", self.lock_patience)),
            ("compression", format!("{:?}", self.compression).to_lowercase()),
            ("memtable_bytes", self.memtable_bytes.to_string()),
            ("transaction_memory", self.transaction_memory.to_string()),
            ("cache_bytes", self.cache_bytes.to_string()),
            ("block_bytes", self.block_bytes.to_string()),
            ("table_bytes", self.table_bytes.to_string()),
            ("blobs_from", blobs),
            ("space_amplification_max", format!("{:.2}", self.space_amplification_max)),
            ("replay_bytes", self.replay_bytes.to_string()),
            ("sync_every", format!("{:?}", self.sync_every)),
            ("wal_segment_bytes", self.wal_segment_bytes.to_string()),
        ]
    }
}
