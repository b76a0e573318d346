//! Values of blob files in memory, whole and checked.
//!
//! ```text
//!   write --room?--------------------------------> table of slots, by place
//!   read --> in the cache? --no--> file --room, or asked for lately?--^  in place of what was not read since the hand came by (CLOCK)
//! ```
//!
//! blob_cache.1. It takes a bounded part of the memory budget: walks over large values do not wash blocks out.
//! blob_cache.2. While memory is free, values are kept as they come. Then one is kept when it is looked up again while its first read is still
//!      remembered: walks displace nothing.
//! blob_cache.3. What a pointer names never changes, so nothing is ever taken out for being old.
//! blob_cache.4. A slot that is in use has its place between the slot of its hash and the next empty one (linear probing).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::pointer::BlobPointer;
use crate::cache::{BudgetKind, MemoryBudget, Reservation};
use crate::types::Value;
use crate::types::prefetch::prefetch_line;

/// The cache takes at most a quarter of the memory.
const MEMORY_PART: u64 = 4;
const SHARDS: usize = 16;
/// Reads that are remembered, in all.
const REMEMBERED: usize = 1 << 16;
/// A value takes at most an eighth of a shard.
const VALUE_PART: u64 = 8;
/// Longer values are kept once they are read: writing them is not to wait for a copy.
const WRITTEN_BYTES_MAX: usize = 64 << 10;
/// Slots of a shard that holds something, at least.
const SLOTS_MIN: usize = 64;

/// The counts of a shared copy lie so many bytes before it.
const COUNTS_BYTES: usize = 16;
/// Lines of a value that are asked for before it is read; the processor's own prefetching goes on from there.
const PREFETCHED_LINES: usize = 3;

/// Bytes of memory that nobody uses.
pub(crate) type FreeBytes = Box<dyn Fn() -> u64 + Send + Sync>;

/// See the module's text.
pub(crate) struct BlobCache {
    shards: Vec<Mutex<Shard>>,
    /// Hashes of places that were read, each in the slot of its low bits (blob_cache.2). Relaxed: hints.
    seen: Vec<AtomicU64>,
    shard_bytes_max: u64,
    free_bytes: FreeBytes,
}

/// File and offset.
type Place = (u64, u64);

/// One part of the cache.
struct Shard {
    /// A power of two of them, or none; at most half are in use.
    slots: Vec<Option<Slot>>,
    used: usize,
    hand: usize,
    bytes: u64,
    memory: Reservation,
}

/// A value on a cache line.
#[repr(align(64))]
struct Slot {
    place: Place,
    value: Value,
    was_read: bool,
}

const _: () = assert!(size_of::<Option<Slot>>() == 64);

impl std::fmt::Debug for BlobCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlobCache({} bytes a shard)", self.shard_bytes_max)
    }
}

/// Never 0.
fn hash((file, offset): Place) -> u64 {
    let mixed = (file << 40 ^ offset).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29) | 1
}

fn place(pointer: &BlobPointer) -> Place {
    (pointer.file.get(), pointer.offset)
}

impl BlobCache {
    /// Empty.
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
            seen: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            shard_bytes_max: budget.capacity_bytes() / MEMORY_PART / SHARDS as u64,
            free_bytes,
        })
    }

    fn shard(&self, place: Place) -> &Mutex<Shard> {
        &self.shards[(hash(place) >> 1) as usize % SHARDS]
    }

    /// The value of a pointer, if it is here.
    pub(super) fn get(&self, pointer: &BlobPointer) -> Option<Value> {
        let place = place(pointer);
        let mut shard = self.shard(place).lock();
        let at = shard.find(place)?;
        let slot = shard.slots[at].as_mut()?;
        slot.was_read = true;
        Some(slot.value.clone())
    }

    /// Whether the value of a pointer is here. Somebody is about to read it: the processor is asked for its first bytes, and for its count.
    pub(super) fn prefetch(&self, pointer: &BlobPointer) -> bool {
        let shard = self.shard(place(pointer)).lock();
        let Some(slot) = shard.find(place(pointer)).and_then(|at| shard.slots[at].as_ref()) else {
            return false;
        };
        let begin = slot.value.as_ptr();
        prefetch_line(begin.wrapping_sub(COUNTS_BYTES));
        (0..PREFETCHED_LINES).for_each(|line| prefetch_line(begin.wrapping_add(64 * line)));
        true
    }

    /// Keeps a value that was read from its file, if that displaces nothing. Returns whether it did.
    fn keep_if_free(&self, pointer: &BlobPointer, value: &Value) -> bool {
        let has_room = self.has_room(place(pointer), value.len());
        if has_room {
            self.insert(place(pointer), value);
        }
        has_room
    }

    /// A walk has read a value from its file.
    pub(super) fn was_passed(&self, pointer: &BlobPointer, value: &Value) {
        self.keep_if_free(pointer, value);
    }

    /// A value was looked up, and read from its file.
    pub(super) fn was_read(&self, pointer: &BlobPointer, value: &Value) {
        if self.keep_if_free(pointer, value) {
            return;
        }
        let hash = hash(place(pointer));
        let seen = &self.seen[(hash >> 8) as usize % REMEMBERED];
        if seen.swap(hash, Ordering::Relaxed) == hash && self.may_hold(value.len()) {
            self.insert(place(pointer), value);
        }
    }

    /// A value was written to its file.
    pub(crate) fn was_written(&self, pointer: &BlobPointer, value: &[u8]) {
        if value.len() <= WRITTEN_BYTES_MAX && self.has_room(place(pointer), value.len()) {
            self.insert(place(pointer), value);
        }
    }

    fn may_hold(&self, len: usize) -> bool {
        cost(len) <= self.shard_bytes_max / VALUE_PART
    }

    /// Whether a value fits without displacing anything.
    fn has_room(&self, place: Place, len: usize) -> bool {
        self.may_hold(len)
            && (self.free_bytes)() >= cost(len)
            && self.shard(place).lock().bytes + cost(len) <= self.shard_bytes_max
    }

    /// Keeps a copy, whose count lies beside its bytes: a reader waits for memory once.
    fn insert(&self, place: Place, value: &[u8]) {
        let value = Value::copy_of(value);
        self.shard(place).lock().insert(place, value, self.shard_bytes_max);
    }
}

/// What a value of so many bytes takes, with its slot and the empty one that goes with it.
fn cost(len: usize) -> u64 {
    len as u64 + 2 * size_of::<Option<Slot>>() as u64
}

impl Shard {
    /// The slot where the search for a place begins. The lowest bits chose the shard.
    fn home(&self, place: Place) -> usize {
        (hash(place) >> 20) as usize & (self.slots.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    fn find(&self, place: Place) -> Option<usize> {
        if self.used == 0 {
            return None;
        }
        let mut at = self.home(place);
        while let Some(slot) = &self.slots[at] {
            if slot.place == place {
                return Some(at);
            }
            at = self.after(at);
        }
        None
    }

    fn insert(&mut self, place: Place, value: Value, bytes_max: u64) {
        if self.find(place).is_some() {
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
        self.put(Slot { place, value, was_read: false });
    }

    fn put(&mut self, slot: Slot) {
        let mut at = self.home(slot.place);
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

    /// Moves the hand to a value that was not read since it came by last, and drops that one.
    fn drop_one(&mut self) {
        // Whether it may stay where it is for another round.
        let is_spared = |slot: &mut Slot| std::mem::take(&mut slot.was_read);
        while self.slots[self.hand].as_mut().is_none_or(is_spared) {
            self.hand = self.after(self.hand);
        }
        let gone = self.slots[self.hand].take().expect("the hand stands on it");
        self.used -= 1;
        self.bytes -= cost(gone.value.len());
        self.close(self.hand);
    }

    /// Fills a slot that was emptied with one that is found through it, and so on (blob_cache.4).
    fn close(&mut self, mut empty: usize) {
        let mut at = self.after(empty);
        while let Some(slot) = &self.slots[at] {
            let mask = self.slots.len() - 1;
            let from_home = |to: usize| to.wrapping_sub(self.home(slot.place)) & mask;
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
            // Once, twice, and one of them all the time.
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
        // It was not there when all others had been read since the hand came by, too.
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
        // It fills its part, and what is read twice then takes the place of others; each that is left is found.
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
