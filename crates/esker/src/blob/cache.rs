//! Caches whole, verified values of blob files in memory.
//!
//! ```text
//!   write --if it fits-------------------------------> hash table of slots, by file and offset
//!   read --> cached? --no--> file --if it fits, or read recently--^  CLOCK eviction
//! ```
//!
//! A used slot is reachable from the slot of its hash without crossing an empty one (linear
//! probing).
//!
//! The cache uses a bounded part of the memory budget, so that scans over large values do not evict blocks.
//! While memory is free, every value is cached. Afterwards a value is cached when it is looked up again while
//! its first read is still remembered, so scans evict nothing. What a pointer refers to never changes, so
//! cached values never become stale.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::pointer::BlobPointer;
use crate::cache::{BudgetKind, MemoryBudget, Reservation};
use crate::types::Value;
use crate::types::prefetch::prefetch_line;

/// The cache uses at most `1 / MEMORY_PART` of the memory budget.
const MEMORY_PART: u64 = 4;
const SHARDS: usize = 16;
/// Number of recent reads remembered, over all shards.
const REMEMBERED: usize = 1 << 16;
/// A value uses at most `1 / VALUE_PART` of a shard.
const VALUE_PART: u64 = 8;
/// Longer values are cached only when read, so that a write does not wait for a copy.
const WRITTEN_BYTES_MAX: usize = 64 << 10;
/// Minimum number of slots of a shard that is not empty.
const SLOTS_MIN: usize = 64;

/// Distance in bytes from the reference counts of a shared copy to its bytes.
const COUNTS_BYTES: usize = 16;
/// Cache lines of a value that are prefetched. The processor prefetches the rest.
const PREFETCHED_LINES: usize = 16;

/// Returns the number of unused bytes of memory.
pub(crate) type FreeBytes = Box<dyn Fn() -> u64 + Send + Sync>;

/// A cache of blob values; see the module documentation.
pub(crate) struct BlobCache {
    shards: Vec<Mutex<Shard>>,
    /// Hashes of values read recently, indexed by their low bits. Relaxed: they are hints. Allocated by the
    /// first read that needs it, so that opening a database does not fill half a megabyte.
    seen: OnceLock<Vec<AtomicU64>>,
    shard_bytes_max: u64,
    free_bytes: FreeBytes,
}

/// File number and offset of a value.
type BlobKey = (u64, u64);

/// One shard of the cache.
struct Shard {
    /// Empty, or a power of two in length. At most half of the slots are used.
    slots: Vec<Option<Slot>>,
    used: usize,
    hand: usize,
    bytes: u64,
    memory: Reservation,
}

/// A value, on a cache line of its own.
#[repr(align(64))]
struct Slot {
    key: BlobKey,
    value: Value,
    was_read: bool,
}

const _: () = assert!(size_of::<Option<Slot>>() == 64);

impl std::fmt::Debug for BlobCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlobCache({} bytes a shard)", self.shard_bytes_max)
    }
}

/// Never returns 0.
fn hash((file, offset): BlobKey) -> u64 {
    let mixed = (file << 40 ^ offset).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29) | 1
}

fn key(pointer: &BlobPointer) -> BlobKey {
    (pointer.file.get(), pointer.offset)
}

impl BlobCache {
    /// Creates an empty cache.
    pub(crate) fn new(budget: &Arc<MemoryBudget>, free_bytes: FreeBytes) -> Arc<BlobCache> {
        let shard = || Shard {
            slots: Vec::new(),
            used: 0,
            hand: 0,
            bytes: 0,
            memory: budget.reserve(BudgetKind::Blob, 0),
        };
        Arc::new(BlobCache {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            seen: OnceLock::new(),
            shard_bytes_max: budget.capacity_bytes() / MEMORY_PART / SHARDS as u64,
            free_bytes,
        })
    }

    fn shard(&self, key: BlobKey) -> &Mutex<Shard> {
        &self.shards[(hash(key) >> 1) as usize % SHARDS]
    }

    /// Returns the value of a pointer if it is cached.
    pub(super) fn get(&self, pointer: &BlobPointer) -> Option<Value> {
        let key = key(pointer);
        let mut shard = self.shard(key).lock();
        let at = shard.find(key)?;
        let slot = shard.slots[at].as_mut()?;
        slot.was_read = true;
        Some(slot.value.clone())
    }

    /// Prefetches the slot where the search for a value starts.
    pub(super) fn prefetch_slot(&self, pointer: &BlobPointer) {
        let shard = self.shard(key(pointer)).lock();
        if shard.used > 0 {
            prefetch_line((&raw const shard.slots[shard.home(key(pointer))]).cast());
        }
    }

    /// Returns whether the value of a pointer is cached, and prefetches its reference counts and first bytes.
    pub(super) fn prefetch(&self, pointer: &BlobPointer) -> bool {
        let shard = self.shard(key(pointer)).lock();
        let Some(slot) = shard.find(key(pointer)).and_then(|at| shard.slots[at].as_ref()) else {
            return false;
        };
        let begin = slot.value.as_ptr();
        prefetch_line(begin.wrapping_sub(COUNTS_BYTES));
        let lines = slot.value.len().div_ceil(64).min(PREFETCHED_LINES);
        (0..lines).for_each(|line| prefetch_line(begin.wrapping_add(64 * line)));
        true
    }

    /// Caches a value read from its file if that evicts nothing. Returns whether it was cached.
    fn keep_if_free(&self, pointer: &BlobPointer, value: &Value) -> bool {
        let has_room = self.has_room(key(pointer), value.len());
        if has_room {
            self.insert(key(pointer), value);
        }
        has_room
    }

    /// Called after a scan has read a value from its file.
    pub(super) fn was_passed(&self, pointer: &BlobPointer, value: &Value) {
        self.keep_if_free(pointer, value);
    }

    /// Called after a lookup has read a value from its file.
    pub(super) fn was_read(&self, pointer: &BlobPointer, value: &Value) {
        if self.keep_if_free(pointer, value) {
            return;
        }
        let hash = hash(key(pointer));
        let seen = self.seen.get_or_init(|| (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect());
        let seen = &seen[(hash >> 8) as usize % REMEMBERED];
        if seen.swap(hash, Ordering::Relaxed) == hash && self.may_hold(value.len()) {
            self.insert(key(pointer), value);
        }
    }

    /// Called after a value was written to its file.
    pub(crate) fn was_written(&self, pointer: &BlobPointer, value: &[u8]) {
        if value.len() <= WRITTEN_BYTES_MAX && self.has_room(key(pointer), value.len()) {
            self.insert(key(pointer), value);
        }
    }

    fn may_hold(&self, len: usize) -> bool {
        cost(len) <= self.shard_bytes_max / VALUE_PART
    }

    /// Returns whether a value fits without evicting others.
    fn has_room(&self, key: BlobKey, len: usize) -> bool {
        self.may_hold(len)
            && (self.free_bytes)() >= cost(len)
            && self.shard(key).lock().bytes + cost(len) <= self.shard_bytes_max
    }

    /// Caches a copy whose reference count is adjacent to its bytes, so that a reader has one cache miss.
    fn insert(&self, key: BlobKey, value: &[u8]) {
        let value = Value::copy_of(value);
        self.shard(key).lock().insert(key, value, self.shard_bytes_max);
    }
}

/// Bytes used by a value of `len` bytes, with its slot and an empty slot.
fn cost(len: usize) -> u64 {
    len as u64 + 2 * size_of::<Option<Slot>>() as u64
}

impl Shard {
    /// Returns the slot where the search for a value starts. The lowest hash bits select the shard.
    fn home(&self, key: BlobKey) -> usize {
        (hash(key) >> 20) as usize & (self.slots.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    fn find(&self, key: BlobKey) -> Option<usize> {
        if self.used == 0 {
            return None;
        }
        let mut at = self.home(key);
        while let Some(slot) = &self.slots[at] {
            if slot.key == key {
                return Some(at);
            }
            at = self.after(at);
        }
        None
    }

    fn insert(&mut self, key: BlobKey, value: Value, bytes_max: u64) {
        if self.find(key).is_some() {
            return;
        }
        while self.bytes + cost(value.len()) > bytes_max && self.used > 0 {
            self.drop_one();
        }
        if 2 * (self.used + 1) > self.slots.len() {
            self.grow();
        }
        self.bytes += cost(value.len());
        self.memory.resize(self.bytes);
        self.put(Slot { key, value, was_read: false });
    }

    fn put(&mut self, slot: Slot) {
        let mut at = self.home(slot.key);
        while self.slots[at].is_some() {
            at = self.after(at);
        }
        self.slots[at] = Some(slot);
        self.used += 1;
    }

    fn grow(&mut self) {
        let slots = (2 * self.slots.len()).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, (0..slots).map(|_| None).collect());
        (self.used, self.hand) = (0, 0);
        old.into_iter().flatten().for_each(|slot| self.put(slot));
    }

    /// Moves the clock hand to a value that was not read since the last pass, and evicts it.
    fn drop_one(&mut self) {
        // A value that was read stays for another round.
        let is_spared = |slot: &mut Slot| std::mem::take(&mut slot.was_read);
        while self.slots[self.hand].as_mut().is_none_or(is_spared) {
            self.hand = self.after(self.hand);
        }
        let gone = self.slots[self.hand].take().expect("the hand stands on it");
        self.used -= 1;
        self.bytes -= cost(gone.value.len());
        self.close(self.hand);
    }

    /// Refills a slot that became empty, so that all values stay reachable.
    fn close(&mut self, mut empty: usize) {
        let mut at = self.after(empty);
        while let Some(slot) = &self.slots[at] {
            let mask = self.slots.len() - 1;
            let from_home = |to: usize| to.wrapping_sub(self.home(slot.key)) & mask;
            if from_home(empty) <= from_home(at) {
                self.slots.swap(empty, at);
                empty = at;
            }
            at = self.after(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileId;

    fn pointer(n: u64) -> BlobPointer {
        BlobPointer::new(FileId::new(n % 3), n * 5000, &[])
    }

    fn value(n: u64) -> Value {
        Value::from(vec![n as u8; 5000])
    }

    #[test]
    fn blob_cache_1_blob_cache_2_it_keeps_what_is_read_twice_and_often_and_to_its_part_of_the_memory() {
        let budget = MemoryBudget::new(64 << 20);
        let cache = BlobCache::new(&budget, Box::new(|| 0));
        let (often, mut missed) = (7, 0);
        for n in 0..20_000 {
            // Read once, twice, and one of them all the time.
            for _ in 0..1 + n % 2 {
                assert!(cache.get(&pointer(n)).is_none());
                cache.was_read(&pointer(n), &value(n));
            }
            assert_eq!(cache.get(&pointer(n)).map(|v| v[0]), (n % 2 == 1).then_some(n as u8), "{n}");
            if n > often && cache.get(&pointer(often)).is_none() {
                (0..2).for_each(|_| cache.was_read(&pointer(often), &value(often)));
                missed += 1;
            }
        }
        // It is evicted once all other values have been read since the last pass.
        assert!(missed < 20, "{missed}");
        let held = budget.reserved_bytes(BudgetKind::Blob);
        assert!((12 << 20..=16 << 20).contains(&held), "{held}");
    }

    #[test]
    fn blob_cache_2_blob_cache_4_while_memory_is_free_it_keeps_what_comes_and_later_walks_displace_nothing() {
        let free = Arc::new(AtomicU64::new(u64::MAX));
        let budget = MemoryBudget::new(64 << 20);
        let of_budget = free.clone();
        let cache = BlobCache::new(&budget, Box::new(move || of_budget.load(Ordering::Relaxed)));
        for n in 0..10_000 {
            if n == 1000 {
                free.store(0, Ordering::Relaxed);
            }
            if n % 2 == 0 {
                cache.was_written(&pointer(n), &value(n));
            } else {
                cache.was_read(&pointer(n), &value(n));
            }
            assert_eq!(cache.prefetch(&pointer(n)), n < 1000, "{n}");
        }
        for n in 0..1000 {
            assert_eq!(cache.get(&pointer(n)).unwrap(), value(n), "{n}");
        }
        // The cache fills its part. Values read twice then replace others, and every remaining value is
        // found.
        free.store(u64::MAX, Ordering::Relaxed);
        (1000..9000).for_each(|n| cache.was_read(&pointer(n), &value(n)));
        free.store(0, Ordering::Relaxed);
        for n in 9000..12_000 {
            (0..2).for_each(|_| cache.was_read(&pointer(n), &value(n)));
            assert_eq!(cache.get(&pointer(n)).unwrap(), value(n), "{n}");
        }
        let held =
            (0..12_000).filter(|n| cache.get(&pointer(*n)).is_some_and(|found| found == value(*n))).count();
        let slots: usize = cache.shards.iter().map(|shard| shard.lock().slots.iter().flatten().count()).sum();
        assert!(held == slots && held > 2500, "{held} of {slots}");
    }
}
