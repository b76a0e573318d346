//! The memory budget: how much each part of the engine has reserved, and how much is left for cached blocks.
//!
//! ```text
//!   capacity - reserved (memtables, indexes, filters, ...) = block cache allowance, at least a floor
//!   capacity / 2 - roots - indexes                         = allowance of filters
//!   capacity / 2 - roots                                   = allowance of indexes
//!   capacity / 4                                           = allowance of the roots of indexes
//! ```
//!
//! `reserved` is the sum of the live reservations, and of the indexes and filters in their caches.
//!
//! - Reserving never fails, because its users cannot wait (a memtable that receives writes, for
//!   example). The block cache evicts instead. `reserved_bytes` tells users how much is already reserved.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The block cache keeps at least `1 / FLOOR_PART` of the capacity.
const FLOOR_PART: u64 = 16;
/// Indexes and filters take at most `1 / FINDING_PART` of the capacity.
const FINDING_PART: u64 = 2;

/// Roots take at most `1 / ROOT_PART` of the capacity.
const ROOT_PART: u64 = 4;

/// What reserved memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetKind {
    /// Memtables, mutable and immutable.
    Memtable,
    /// Range tombstones of open tables.
    Table,
    /// Cached roots of the indexes of large tables.
    Root,
    /// Cached indexes of open tables and pages of them, and their directories of blocks.
    Index,
    /// Cached filters of open tables.
    Filter,
    /// Uncommitted writes of large transactions.
    Transaction,
    /// Cached values of blob files.
    Blob,
    /// Events queued for watchers and listeners.
    Event,
    /// Windows of walks.
    Window,
}

const KINDS: usize = 9;

/// A shared memory budget. The counters only steer eviction and order nothing, so they are relaxed.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    capacity: AtomicU64,
    reserved: [AtomicU64; KINDS],
}

impl MemoryBudget {
    /// Creates a budget of `capacity_bytes`.
    pub(crate) fn new(capacity_bytes: u64) -> Arc<Self> {
        Arc::new(MemoryBudget { capacity: AtomicU64::new(capacity_bytes), reserved: Default::default() })
    }

    /// Total bytes of the budget.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Returns the smallest capacity that has space for roots of indexes, and for indexes and filters
    /// including these roots.
    pub(crate) fn capacity_for(root_bytes: u64, finding_bytes: u64) -> u64 {
        (ROOT_PART * root_bytes).max(FINDING_PART * finding_bytes)
    }

    /// Changes the total. The cache adapts at its next insertion, or when `BlockCache::shrink` is called.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
    }

    /// Bytes reserved for one kind.
    pub(crate) fn reserved_bytes(&self, kind: BudgetKind) -> u64 {
        self.reserved[kind as usize].load(Ordering::Relaxed)
    }

    /// Bytes that the block cache may hold: the unreserved part, but at least a 16th of the capacity.
    pub(crate) fn block_bytes_max(&self) -> u64 {
        let capacity = self.capacity_bytes();
        let reserved: u64 = self.reserved.iter().map(|r| r.load(Ordering::Relaxed)).sum();
        capacity.saturating_sub(reserved).max(capacity / FLOOR_PART)
    }

    /// Bytes that cached items of a kind may take. `None` stands for blocks. Indexes take what roots leave,
    /// and filters what both leave.
    pub(super) fn cached_bytes_max(&self, kind: Option<BudgetKind>) -> u64 {
        let (capacity, reserved) = (self.capacity_bytes(), |kind| self.reserved_bytes(kind));
        let for_indexes = (capacity / FINDING_PART).saturating_sub(reserved(BudgetKind::Root));
        match kind {
            None => self.block_bytes_max(),
            Some(BudgetKind::Root) => capacity / ROOT_PART,
            Some(BudgetKind::Filter) => for_indexes.saturating_sub(reserved(BudgetKind::Index)),
            Some(_) => for_indexes,
        }
    }

    /// Counts bytes as reserved, until `count_out`.
    pub(super) fn count_in(&self, kind: BudgetKind, bytes: u64) {
        self.reserved[kind as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Ends what `count_in` began.
    pub(super) fn count_out(&self, kind: BudgetKind, bytes: u64) {
        self.reserved[kind as usize].fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Reserves `bytes` until the reservation is dropped.
    pub(crate) fn reserve(self: &Arc<Self>, kind: BudgetKind, bytes: u64) -> Reservation {
        let mut reservation = Reservation { budget: self.clone(), kind, bytes: 0 };
        reservation.resize(bytes);
        reservation
    }
}

/// A reserved part of the budget.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<MemoryBudget>,
    kind: BudgetKind,
    bytes: u64,
}

impl Reservation {
    /// Bytes reserved.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the reserved bytes.
    pub(crate) fn resize(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            self.budget.count_in(self.kind, bytes - self.bytes);
        } else {
            self.budget.count_out(self.kind, self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_1_reservations_leave_the_rest_to_blocks() {
        let budget = MemoryBudget::new(1600);
        let mut memtable = budget.reserve(BudgetKind::Memtable, 500);
        let index = budget.reserve(BudgetKind::Table, 100);
        assert_eq!(budget.block_bytes_max(), 1000);
        memtable.resize(1550);
        assert_eq!((memtable.bytes(), budget.block_bytes_max()), (1550, 100));
        drop(index);
        memtable.resize(600);
        assert_eq!((budget.block_bytes_max(), budget.reserved_bytes(BudgetKind::Table)), (1000, 0));
        drop(memtable);
        budget.set_capacity(3200);
        assert_eq!(budget.block_bytes_max(), 3200);
    }
}
