//! Disk reserve: space that commits of puts leave free, so that a full disk can still be emptied by removals.
//!
//! ```text
//!   free bytes, tables --shares--> held back --> wal/pool.rs: a put that needs a segment leaves this
//!                                                free; a removal may use it
//!                                  memtable --> txn/memtables.rs: sealed at this size: its flush fits
//!                                  table -----> picker, output: cut at this size: a compaction fits
//! ```
//!
//! reserve.1. A commit of puts fails if it needs a log segment and less than `held_back` would be left. So
//!     does a write of a large transaction or an ingest whose tables would leave less. The reserve is for
//!     removals, flushes, compactions and the manifest. The log may make spare files while such tables are
//!     written. They are part of the reserve: removals use them first, and flushes give them up.
//! reserve.2. A commit that only removes finds space in the log as long as the disk has any: a log file is
//!     made smaller if the disk lacks space for it. This holds also while flushes wait for space:
//!     [`SEALED_FOR_REMOVALS`] more memtables may be sealed then.
//! - On a disk that is small beside the usual sizes, all of them shrink with it. The reserve takes the log of
//!   a memtable, its flush, and the compaction of a table.
//! - Before a flush, or the removal of covered tables, fails for want of space, the log gives up its
//!   spare files.
//! - While little is free, a flush cuts its tables at all tables of the base. Each piece is then
//!   compacted with one table, and the disk need not hold all of them twice.
//!
//! Each new version and each new log segment queries the free space; a commit does not. If the system does
//! not know it, nothing is held back.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::base::options::Options;
use crate::engine::disk::Disk;
use crate::types::{Error, Result};

const MIB: u64 = 1 << 20;
/// The reserve is at most this fraction (1 / N) of the space that the database has and could get.
const HELD_BACK_PART: u64 = 8;
/// Minimum size of a full memtable, however small the disk is.
const MEMTABLE_BYTES_MIN: u64 = 64 << 10;
pub(in crate::engine) const TABLE_BYTES_MIN: u64 = 256 << 10;
/// Memtables that removals may seal while writers wait for flushes that find no space (reserve.2).
pub(crate) const SEALED_FOR_REMOVALS: usize = 2;

/// How a disk is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Shares {
    /// Bytes that puts leave free. Zero if the free space is unknown.
    pub(in crate::engine) held_back: u64,
    /// Size at which a memtable is full.
    pub(in crate::engine) memtable_bytes: u64,
    /// Size at which tables are cut.
    pub(in crate::engine) table_bytes: u64,
}

/// Shares a disk with `free` bytes beside `tables` bytes of tables. The sizes are those for a large disk.
pub(in crate::engine) fn shares(
    free: Option<u64>,
    tables: u64,
    memtable_bytes: u64,
    table_bytes: u64,
) -> Shares {
    let Some(free) = free else { return Shares { held_back: 0, memtable_bytes, table_bytes } };
    let wanted = 2 * memtable_bytes + table_bytes + MIB;
    let held_back = wanted.min(free.saturating_add(tables) / HELD_BACK_PART);
    Shares {
        held_back,
        memtable_bytes: memtable_bytes.min((held_back / 3).max(MEMTABLE_BYTES_MIN)),
        table_bytes: table_bytes.min((held_back / 2).max(TABLE_BYTES_MIN)),
    }
}

/// The shares as of the newest version. Relaxed: the sizes order no other access.
#[derive(Debug)]
pub(crate) struct DiskReserve {
    held_back: AtomicU64,
    table_bytes: AtomicU64,
}

impl DiskReserve {
    /// Before anything is known of the disk.
    pub(in crate::engine) fn new(options: &Options) -> Self {
        DiskReserve {
            held_back: AtomicU64::new(0),
            table_bytes: AtomicU64::new(options.limits(0).table_bytes),
        }
    }

    /// Records the shares of the newest version.
    pub(in crate::engine) fn set(&self, shares: &Shares) {
        self.held_back.store(shares.held_back, Ordering::Relaxed);
        self.table_bytes.store(shares.table_bytes, Ordering::Relaxed);
    }

    /// Size at which tables are cut.
    pub(in crate::engine) fn table_bytes(&self) -> u64 {
        self.table_bytes.load(Ordering::Relaxed)
    }
}

impl Disk {
    /// Fails if `bytes` more would leave less than the reserve free. Commits that put without the log ask
    /// this (reserve.1).
    pub(in crate::engine) fn check_reserve(&self, bytes: u64) -> Result<()> {
        let held_back = self.reserve.held_back.load(Ordering::Relaxed);
        if held_back > 0 && self.free_bytes().is_some_and(|free| free < held_back.saturating_add(bytes)) {
            return Err(self.no_space_but_reserve());
        }
        Ok(())
    }

    /// The error of a write that would use the reserve.
    pub(in crate::engine) fn no_space_but_reserve(&self) -> Error {
        Error::NoSpace { op: "write a large transaction in", path: self.dir.clone() }
    }

    /// Bytes that may be taken before only the reserve is left. `u64::MAX` if nothing is held back.
    pub(in crate::engine) fn spare_bytes(&self) -> u64 {
        match (self.reserve.held_back.load(Ordering::Relaxed), self.free_bytes()) {
            (0, _) | (_, None) => u64::MAX,
            (held_back, Some(free)) => free.saturating_sub(held_back),
        }
    }

    /// Whether at most twice the reserve is free.
    pub(in crate::engine) fn has_little_space(&self) -> bool {
        let held_back = self.reserve.held_back.load(Ordering::Relaxed);
        held_back > 0 && self.free_bytes().is_some_and(|free| free / 2 < held_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_shrink_with_the_disk() {
        // MiB free, of tables, usual memtable --> held back, memtable, table, in KiB.
        for (free, tables, memtable, expected) in [
            (1 << 20, 0, 64, [197_632, 65_536, 65_536]),
            (0, 100 << 10, 64, [197_632, 65_536, 65_536]),
            (60, 0, 2, [7_680, 2_048, 3_840]),
            (8, 52, 2, [7_680, 2_048, 3_840]),
            (300, 0, 64, [38_400, 12_800, 19_200]),
            (1, 0, 2, [128, 64, 256]),
            (0, 0, 2, [0, 64, 256]),
        ] {
            let Shares { held_back, memtable_bytes, table_bytes } =
                shares(Some(free * MIB), tables * MIB, memtable * MIB, 64 * MIB);
            let found = [held_back, memtable_bytes, table_bytes].map(|bytes| bytes >> 10);
            assert_eq!(found, expected, "{free} MiB free, {tables} MiB of tables");
        }
        let unknown = shares(None, 7, 2 * MIB, 64 * MIB);
        assert_eq!((unknown.held_back, unknown.table_bytes), (0, 64 * MIB));
    }
}
