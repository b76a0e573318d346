//! The block cache: CLOCK eviction over the slots of all open tables.
//!
//! ```text
//!   hand --> [table 0: slot slot slot] [table 1: slot slot] [table 2: ...] --> round again
//!
//!   block read while the cache is full --> probation --second use--> left to the hand
//!                                             `--PROBATION_PART later--> evicted
//! ```
//!
//! block_cache.1. `used` is the sum of the sizes of all blocks in slots, plus those being inserted or
//!     removed. A block is added before it enters its slot, and subtracted afterwards by the thread that
//!     removed it. `used` therefore never falls below zero.
//!
//! - After an insertion `used` is at most the allowance of the budget, or another thread is
//!   evicting, or a full round of the clock found nothing to evict.
//! - Dropping the slots of a table subtracts their bytes.
//!
//! A block that is read once should not displace blocks that are used again. So a block that enters a full
//! cache is on probation: it is evicted before others, unless it is used once more. A block that was evicted
//! lately is not put on probation again, because the cache is only a little too small for it.
//!
//! A hit takes no lock and writes to no cache line shared with other readers of hot blocks. The clock hand
//! walks the tables' directories themselves: there is no separate list of frames, so an insertion needs no
//! lock either. Probation is a queue under the lock of the hand. A block that finds the lock taken is left to
//! the hand.
#![expect(unsafe_code, reason = "a directory that goes takes its blocks out at once")]

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::budget::{BudgetKind, MemoryBudget, Reservation};
use super::slot::{Moment, Pinned, Slot};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::fault::{self, Fault};
use crate::sync::{Mutex, MutexGuard, Pin};
use crate::types::activity::Activity;

/// Dropped directories are removed from the clock when its directories are fewer than this many times their
/// slots.
const DIRECTORIES_PER_DROPPED_SLOT: usize = 2;
/// Windows of walks take at most `1 / WINDOWS_PART` of the budget.
const WINDOWS_PART: u64 = 16;
/// Blocks on probation take at most `1 / PROBATION_PART` of the allowance, and are at most `PROBATION_MAX`.
const PROBATION_PART: u64 = 16;
const PROBATION_MAX: usize = 4096;
/// Evicted blocks are passed on to be freed once they have this many bytes, because each time copies a list.
const UNFREED_BYTES_MAX: u64 = 64 << 10;

/// An item that can be cached.
pub(crate) trait CacheItem: Send + Sync + 'static {
    /// What the budget counts the items as. `None`: as blocks, which take what all others leave.
    const KIND: Option<BudgetKind> = None;
    /// Bytes of memory that the item takes.
    fn size_bytes(&self) -> usize;
    /// Address of the bytes that a reader reads first.
    fn first_bytes(&self) -> *const u8;
}

/// A cache of the blocks of all open tables.
pub(crate) struct BlockCache<T: CacheItem> {
    budget: Arc<MemoryBudget>,
    /// Relaxed: it orders nothing. A thread that removes a block from its slot has seen it inserted, so it
    /// subtracts after the addition.
    used: AtomicU64,
    /// Counts of hits, misses and other reads.
    activity: Activity,
    /// Slots of directories dropped since the clock was last rid of them. Relaxed: it orders nothing.
    dropped_slots: AtomicU64,
    /// Bytes evicted so far. Relaxed: it orders nothing.
    evicted: AtomicU64,
    clock: Mutex<Clock<T>>,
}

/// The clock hand. Held by the evicting thread, and briefly when a table is opened.
struct Clock<T: CacheItem> {
    /// A dropped directory keeps its memory until it is removed from here.
    tables: Vec<Weak<[Slot<T>]>>,
    table: usize,
    slot: usize,
    /// Blocks on probation, oldest first, and the sum of their sizes.
    probation: VecDeque<OnProbation<T>>,
    probation_bytes: u64,
    /// Bytes evicted since evicted blocks were last passed on to be freed.
    unfreed_bytes: u64,
}

/// The slot of a block on probation. It may have got another block since, which is evicted early then.
struct OnProbation<T: CacheItem> {
    table: Weak<[Slot<T>]>,
    slot: usize,
    bytes: u64,
}

/// The directory of one table: a slot for each of its blocks.
pub(crate) struct CachedBlocks<T: CacheItem> {
    cache: Arc<BlockCache<T>>,
    slots: Arc<[Slot<T>]>,
}

impl<T: CacheItem> BlockCache<T> {
    /// Creates a cache that uses what the reservations of the budget leave.
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Arc<Self> {
        let clock = Clock {
            tables: Vec::new(),
            table: 0,
            slot: 0,
            probation: VecDeque::new(),
            probation_bytes: 0,
            unfreed_bytes: 0,
        };
        Arc::new(BlockCache {
            budget,
            used: AtomicU64::new(0),
            activity: Activity::default(),
            dropped_slots: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            clock: Mutex::new(clock),
        })
    }

    /// The memory budget of the cache.
    pub(crate) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Activity counters of the readers of this cache and of its database.
    #[inline(always)]
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Bytes of cached blocks.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that can be inserted before eviction starts.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.budget.cached_bytes_max(T::KIND).saturating_sub(self.used_bytes())
    }

    /// Creates a directory for a table of `blocks` blocks.
    pub(crate) fn register(self: &Arc<Self>, blocks: usize) -> CachedBlocks<T> {
        let slots: Arc<[_]> = (0..blocks).map(|_| Slot::empty()).collect();
        let mut clock = self.clock.lock();
        // Removes dropped directories, rarely: there may be many tables. The clock hand also removes them
        // when it passes.
        let few = clock.tables.len() / DIRECTORIES_PER_DROPPED_SLOT;
        if self.dropped_slots.load(Ordering::Relaxed) > few as u64 {
            self.dropped_slots.store(0, Ordering::Relaxed);
            clock.tables.retain(|table| table.strong_count() > 0);
        }
        clock.tables.push(Arc::downgrade(&slots));
        CachedBlocks { cache: self.clone(), slots }
    }

    fn count_in(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(kind) = T::KIND {
            self.budget.count_in(kind, bytes);
        }
    }

    /// Subtracts `bytes` and returns the remaining bytes.
    fn count_out(&self, bytes: u64) -> u64 {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        // A directory may be dropped during a panic: a second panic would abort the process.
        assert!(
            before >= bytes || std::thread::panicking(),
            "block_cache.1: {bytes} bytes counted out of {before}"
        );
        if let Some(kind) = T::KIND {
            self.budget.count_out(kind, bytes);
        }
        before.wrapping_sub(bytes)
    }

    /// Evicts until the blocks fit into their allowance. Called after the budget has shrunk; an insertion
    /// calls it too.
    pub(crate) fn shrink(&self, pin: &impl Pin) {
        if self.used_bytes() <= self.budget.cached_bytes_max(T::KIND) {
            return;
        }
        // One thread evicts for all.
        let Some(clock) = self.clock.try_lock() else { return };
        self.shrink_locked(clock, pin);
    }

    fn shrink_locked(&self, mut clock: MutexGuard<'_, Clock<T>>, pin: &impl Pin) {
        let mut rounds = 0;
        self.end_probation(&mut clock, pin);
        while self.used_bytes() > self.budget.cached_bytes_max(T::KIND) {
            let Some(table) = clock.tables.get(clock.table).cloned() else {
                // The first round clears access bits and the second evicts. Readers may set some bits again
                // meanwhile.
                if rounds == 3 {
                    return;
                }
                rounds += 1;
                (clock.table, clock.slot) = (0, 0);
                continue;
            };
            match table.upgrade() {
                Some(slots) => self.sweep(&mut clock, &slots, pin),
                None => {
                    let gone = clock.table;
                    clock.tables.swap_remove(gone);
                    clock.slot = 0;
                }
            }
        }
        // An evicted index has slots of its own, and what they hold counts until it is freed.
        let is_due = T::KIND.is_some() || clock.unfreed_bytes >= UNFREED_BYTES_MAX;
        if is_due {
            clock.unfreed_bytes = 0;
        }
        // Outside the lock: freeing blocks may drop tables, which removes their files.
        drop(clock);
        if is_due {
            pin.flush();
        }
    }

    /// Moves the clock hand through one table until the blocks fit.
    fn sweep(&self, clock: &mut Clock<T>, slots: &[Slot<T>], pin: &impl Pin) {
        let target = self.budget.cached_bytes_max(T::KIND);
        while let Some(slot) = slots.get(clock.slot) {
            clock.slot += 1;
            let Some(bytes) = slot.tick(self.now(), pin, |block| block.size_bytes() as u64) else { continue };
            if self.count_evicted(clock, bytes) <= target {
                return;
            }
        }
        clock.table += 1;
        clock.slot = 0;
    }

    /// Ends the probation of the oldest blocks while those on probation exceed their part. Evicts unused ones
    /// while the blocks do not fit.
    fn end_probation(&self, clock: &mut Clock<T>, pin: &impl Pin) {
        let max = self.budget.cached_bytes_max(T::KIND);
        let is_full = |clock: &Clock<T>| {
            let len = clock.probation.len();
            len > 1 && clock.probation_bytes > max / PROBATION_PART || len > PROBATION_MAX
        };
        while is_full(clock)
            && let Some(oldest) = clock.probation.pop_front()
        {
            clock.probation_bytes -= oldest.bytes;
            if self.used_bytes() <= max {
                continue;
            }
            let Some(slots) = oldest.table.upgrade() else { continue };
            let slot = &slots[oldest.slot];
            if let Some(bytes) = slot.evict_unused(self.now(), pin, |block| block.size_bytes() as u64) {
                self.count_evicted(clock, bytes);
            }
        }
    }

    fn now(&self) -> Moment {
        Moment::after(self.evicted.load(Ordering::Relaxed))
    }

    /// Subtracts the bytes of an evicted block and returns the remaining bytes.
    fn count_evicted(&self, clock: &mut Clock<T>, bytes: u64) -> u64 {
        clock.unfreed_bytes += bytes;
        self.evicted.fetch_add(bytes, Ordering::Relaxed);
        self.count_out(bytes)
    }
}

impl<T: CacheItem> CachedBlocks<T> {
    /// Returns the block if it is in memory.
    #[inline(always)]
    pub(crate) fn load<'g>(&'g self, block: usize, pin: &'g impl Pin) -> Option<Pinned<'g, T>> {
        let found = self.slots[block].load(pin);
        if found.is_some() {
            self.cache.activity.hit();
        }
        found
    }

    /// Returns the block if it is in memory. Counts a use for the clock, but no hit.
    #[inline(always)]
    pub(crate) fn touch<'g>(&'g self, block: usize, pin: &'g impl Pin) -> Option<Pinned<'g, T>> {
        self.slots[block].touch(pin)
    }

    /// Returns the block if it is in memory, without counting a use.
    pub(crate) fn peek<'g>(&'g self, block: usize, pin: &'g impl Pin) -> Option<Pinned<'g, T>> {
        self.slots[block].peek(pin)
    }

    /// Counts a read of a block from its file.
    pub(crate) fn note_miss(&self) {
        self.cache.activity.miss();
    }

    /// Bytes of all items in the cache.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.cache.used_bytes()
    }

    /// Bytes that can be inserted before eviction starts.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.cache.room_bytes()
    }

    /// Bytes that the cache may take.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.cache.budget.cached_bytes_max(T::KIND)
    }

    /// Bytes that a further window of a walk may take.
    pub(crate) fn window_bytes_max(&self) -> u64 {
        let budget = &self.cache.budget;
        (budget.capacity_bytes() / WINDOWS_PART).saturating_sub(budget.reserved_bytes(BudgetKind::Window))
    }

    /// Reserves memory for a window of a walk.
    pub(crate) fn reserve_window(&self, bytes: u64) -> Reservation {
        self.cache.budget.reserve(BudgetKind::Window, bytes)
    }

    /// Inserts a block that was just read, on probation if the cache is full. `is_passing` is true for a
    /// block of a long walk, which begins its probation again after each eviction.
    pub(crate) fn insert_passing(&self, block: usize, item: &Arc<T>, is_passing: bool, pin: &impl Pin) {
        let (cache, bytes) = (&*self.cache, item.size_bytes() as u64);
        let max = cache.budget.cached_bytes_max(T::KIND);
        let evicted = self.slots[block].evicted_at().filter(|_| !is_passing);
        let returns = evicted.is_some_and(|evicted| evicted.bytes_until(cache.now()) <= max);
        if returns || cache.used_bytes() + bytes <= max {
            return self.insert(block, item, !is_passing, pin);
        }
        if bytes > max {
            return;
        }
        // The others make space before the block is in its slot, where the hand could evict it at once.
        cache.count_in(bytes);
        if let Some(mut clock) = cache.clock.try_lock() {
            let table = Arc::downgrade(&self.slots);
            clock.probation.push_back(OnProbation { table, slot: block, bytes });
            clock.probation_bytes += bytes;
            cache.shrink_locked(clock, pin);
        }
        if !self.slots[block].insert(item.clone(), item.first_bytes(), false) {
            cache.count_out(bytes);
        }
    }

    /// Inserts a block that was just read. A `hot` block survives the next pass of the clock hand.
    pub(crate) fn insert(&self, block: usize, item: &Arc<T>, hot: bool, pin: &impl Pin) {
        let bytes = item.size_bytes() as u64;
        // A block larger than the whole allowance would only evict everything else.
        if bytes > self.cache.budget.cached_bytes_max(T::KIND) {
            return;
        }
        let is_counted_late = fault::is_on(Fault::BlockCountedLate);
        // Added first: once the block is in its slot, another thread may evict it and subtract
        // (block_cache.1).
        if !is_counted_late {
            self.cache.count_in(bytes);
        }
        let is_in = self.slots[block].insert(item.clone(), item.first_bytes(), hot);
        match (is_in, is_counted_late) {
            (true, true) => self.cache.count_in(bytes),
            (false, false) => _ = self.cache.count_out(bytes),
            _ => {}
        }
        self.cache.shrink(pin);
    }
}

impl<T: CacheItem> Drop for CachedBlocks<T> {
    fn drop(&mut self) {
        // A directory without slots takes memory as well.
        self.cache.dropped_slots.fetch_add(self.slots.len() as u64 + 1, Ordering::Relaxed);
        // The clock may keep the slots alive a little longer. They are emptied here, and the thread that
        // removes a block subtracts it.
        for slot in &*self.slots {
            // SAFETY: a `Pinned` borrows `self`, so none exists.
            let Some(block) = (unsafe { slot.take() }) else { continue };
            self.cache.count_out(block.size_bytes() as u64);
        }
    }
}

impl<T: CacheItem> std::fmt::Debug for BlockCache<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockCache({} of {} bytes)", self.used_bytes(), self.budget.cached_bytes_max(T::KIND))
    }
}

#[cfg(test)]
mod tests;
