//! The block cache: CLOCK eviction over the slots of all open tables.
//!
//! ```text
//!   hand --> [table 0: slot slot slot] [table 1: slot slot] [table 2: ...] --> round again
//! ```
//!
//! block_cache.1. `used` is the sum of the sizes of all blocks in slots, and of those that are on their way in or out: a block is counted before it
//!      is in its slot, and counted out by the thread that took it out, after that. So `used` never falls below zero.
//! block_cache.2. After an insertion `used` is at most the budget's allowance, or somebody else is evicting, or a full round of
//!      the clock found nothing to evict.
//! block_cache.3. A hit takes no lock and writes to no line that other readers of hot blocks write to.
//! block_cache.4. Dropping a table's slots gives its bytes back.
//!
//! The hand walks the directories themselves: no list of frames exists beside them, so an insertion needs no lock either.
#![expect(unsafe_code, reason = "a directory that goes takes its blocks out at once")]

use std::sync::{Arc, Weak};

use super::budget::MemoryBudget;
use super::slot::{Pinned, Slot};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::fault::{self, Fault};
use crate::sync::{Mutex, Pin};
use crate::types::activity::Activity;

/// What can be cached.
pub(crate) trait CacheItem: Send + Sync + 'static {
    /// Bytes of memory that it takes.
    fn size_bytes(&self) -> usize;
    /// Where the bytes are that a reader looks at first.
    fn first_bytes(&self) -> *const u8;
}

/// The cache.
pub(crate) struct BlockCache<T: CacheItem> {
    budget: Arc<MemoryBudget>,
    /// Relaxed: it orders nothing. Who takes a block out of its slot has seen it put in, and so counts it out after it was counted.
    used: AtomicU64,
    /// Hits and misses, among others (block_cache.3).
    activity: Activity,
    clock: Mutex<Clock<T>>,
}

/// Who is evicting holds this; whoever opens a table takes it for a moment.
struct Clock<T: CacheItem> {
    tables: Vec<Weak<Slots<T>>>,
    table: usize,
    slot: usize,
}

/// The directory of one table: a slot for each block.
pub(crate) struct CachedBlocks<T: CacheItem> {
    cache: Arc<BlockCache<T>>,
    slots: Arc<Slots<T>>,
}

struct Slots<T>(Box<[Slot<T>]>);

impl<T: CacheItem> BlockCache<T> {
    /// A cache that takes what the budget's reservations leave.
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Arc<Self> {
        let clock = Clock { tables: Vec::new(), table: 0, slot: 0 };
        let (used, activity) = (AtomicU64::new(0), Activity::default());
        Arc::new(BlockCache { budget, used, activity, clock: Mutex::new(clock) })
    }

    /// The budget that the cache lives on.
    pub(crate) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// What readers, and those of the database that it belongs to, do.
    #[inline(always)]
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Bytes of cached blocks.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that can be inserted before something has to go.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.budget.block_bytes_max().saturating_sub(self.used_bytes())
    }

    /// A directory for a table of so many blocks.
    pub(crate) fn register(self: &Arc<Self>, blocks: usize) -> CachedBlocks<T> {
        let slots = Arc::new(Slots((0..blocks).map(|_| Slot::empty()).collect()));
        let mut clock = self.clock.lock();
        // Tables that are gone leave here, or when the hand passes.
        clock.tables.retain(|table| table.strong_count() > 0);
        clock.tables.push(Arc::downgrade(&slots));
        CachedBlocks { cache: self.clone(), slots }
    }

    fn count_in(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns what is left.
    fn count_out(&self, bytes: u64) -> u64 {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        // A directory may go because of a panic: a second one would end the process.
        assert!(
            before >= bytes || std::thread::panicking(),
            "block_cache.1: {bytes} bytes counted out of {before}"
        );
        before.wrapping_sub(bytes)
    }

    /// Evicts until the blocks fit into their allowance again. To be called after the budget has shrunk; an insertion
    /// does it too.
    pub(crate) fn shrink(&self, pin: &impl Pin) {
        if self.used_bytes() <= self.budget.block_bytes_max() {
            return;
        }
        // One thread evicts for all (block_cache.2).
        let Some(mut clock) = self.clock.try_lock() else { return };
        let mut rounds = 0;
        while self.used_bytes() > self.budget.block_bytes_max() {
            let Some(table) = clock.tables.get(clock.table).cloned() else {
                // The first round clears access bits, the second one evicts; readers may set some again.
                if rounds == 3 {
                    return;
                }
                rounds += 1;
                (clock.table, clock.slot) = (0, 0);
                continue;
            };
            match table.upgrade() {
                Some(slots) => self.sweep(&mut clock, &slots.0, pin),
                None => {
                    let gone = clock.table;
                    clock.tables.swap_remove(gone);
                    clock.slot = 0;
                }
            }
        }
        // Not under the lock: what is freed may be tables, whose files go.
        drop(clock);
        pin.flush();
    }

    /// Moves the hand through one table, until the blocks fit.
    fn sweep(&self, clock: &mut Clock<T>, slots: &[Slot<T>], pin: &impl Pin) {
        let target = self.budget.block_bytes_max();
        while let Some(slot) = slots.get(clock.slot) {
            clock.slot += 1;
            let Some(bytes) = slot.tick(pin, |block| block.size_bytes() as u64) else { continue };
            if self.count_out(bytes) <= target {
                return;
            }
        }
        clock.table += 1;
        clock.slot = 0;
    }
}

impl<T: CacheItem> CachedBlocks<T> {
    /// The block, if it is in memory.
    #[inline(always)]
    pub(crate) fn load<'g>(&'g self, block: usize, pin: &'g impl Pin) -> Option<Pinned<'g, T>> {
        let found = self.slots.0[block].load(pin);
        if found.is_some() {
            self.cache.activity.hit();
        }
        found
    }

    /// The block, if it is in memory, without counting as a use.
    pub(crate) fn peek<'g>(&'g self, block: usize, pin: &'g impl Pin) -> Option<Pinned<'g, T>> {
        self.slots.0[block].peek(pin)
    }

    /// A reader reads a block from its file.
    pub(crate) fn note_miss(&self) {
        self.cache.activity.miss();
    }

    /// Bytes that can be inserted before something has to go.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.cache.room_bytes()
    }

    /// Offers a block that was just read. `hot`: it survives the next passing of the clock's hand.
    pub(crate) fn insert(&self, block: usize, item: &Arc<T>, hot: bool, pin: &impl Pin) {
        let bytes = item.size_bytes() as u64;
        // A block beyond the whole allowance would only drive everything else out.
        if bytes > self.cache.budget.block_bytes_max() {
            return;
        }
        let is_counted_late = fault::is_on(Fault::BlockCountedLate);
        // Counted first: the moment it is in the slot, another thread may evict it and subtract (block_cache.1).
        if !is_counted_late {
            self.cache.count_in(bytes);
        }
        let is_in = self.slots.0[block].insert(item.clone(), item.first_bytes(), hot);
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
        // The clock may hold the slots for a moment more, which keeps them valid, not filled: emptied here, each
        // block is counted out by whoever takes it out (block_cache.4).
        for slot in &self.slots.0 {
            // SAFETY: whoever has a `Pinned` borrows this, so there are none.
            let Some(block) = (unsafe { slot.take() }) else { continue };
            self.cache.count_out(block.size_bytes() as u64);
        }
    }
}

impl<T: CacheItem> std::fmt::Debug for BlockCache<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockCache({} of {} bytes)", self.used_bytes(), self.budget.block_bytes_max())
    }
}

#[cfg(test)]
mod tests;
