//! Shares of the disk and of memory, for the current version of the tables.

use super::Upkeep;
use crate::compaction::plan::Limits;
use crate::engine::base::options::COMPACTION_TABLES;
use crate::engine::disk::page_cache::left;
use crate::engine::disk::reserve::{TABLE_BYTES_MIN, shares};

/// A base of at most this many flushes is compacted with every few new ones. For a larger base that costs
/// more than readers gain.
const CHEAP_BASE_FLUSHES: u64 = 16;

impl Upkeep {
    /// Recomputes the shares of the disk, after an opening or a change of the tables.
    pub(in crate::engine) fn account_reserve(&self) {
        let usual = self.options.limits(0).table_bytes;
        let shares = shares(
            self.free_bytes(),
            self.table_bytes() + self.blob_bytes(),
            self.options.memtable_bytes as u64,
            usual,
        );
        self.reserve.set(&shares);
        self.wal_pool.hold_back(shares.held_back);
        self.wal_pool.suit(self.table_bytes());
        // The reserve has space for the collection of one file.
        self.blobs.hold_back(shares.held_back, (shares.held_back / 2).max(TABLE_BYTES_MIN));
        self.pipeline.limit_memtables(shares.memtable_bytes as usize);
    }

    /// Returns the picker's limits while commits go on. A large base is not rewritten every few flushes, even
    /// if the cache can hold it.
    pub(crate) fn limits(&self) -> Limits {
        let limits = self.limits_when_idle();
        let run_bytes = self.memtable_age.run_bytes(limits.run_bytes);
        let is_cheap = self.table_bytes() <= CHEAP_BASE_FLUSHES * run_bytes;
        Limits { fits_cache: limits.fits_cache && is_cheap, run_bytes, ..limits }
    }

    /// Returns the picker's limits while the database is idle.
    pub(crate) fn limits_when_idle(&self) -> Limits {
        let limits = self.options.limits(self.table_bytes());
        let bytes_max = self.reserve.table_bytes();
        let tables_max = if self.has_little_space() { 2 } else { COMPACTION_TABLES };
        Limits {
            table_bytes: limits.table_bytes.min(bytes_max),
            partition_bytes: limits.partition_bytes.min(bytes_max),
            compaction_bytes_max: limits.compaction_bytes_max.min(bytes_max.saturating_mul(tables_max)),
            ..limits
        }
    }

    /// Updates how much page cache the system has left, after an opening or a change of the tables.
    pub(in crate::engine) fn account_page_cache(&self) {
        let (room, tables) = (self.env.fs.page_cache_room(), self.table_bytes());
        let left = |files| left(room, files, self.options.memory());
        self.page_cache.set(left(tables).is_some());
        self.blobs.set_page_cache_room(left(tables + self.blob_bytes()).unwrap_or(0));
    }
}
