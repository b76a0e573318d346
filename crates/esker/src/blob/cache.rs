//! Values of blob files that are read again and again, whole and checked.
//!
//! ```text
//!   read --> in the cache? --no--> file --asked for lately?--> cache, in place of what was not read since the hand came by (CLOCK)
//! ```
//!
//! blob_cache.1. It takes a bounded part of the memory budget: walks over large values do not wash blocks out.
//! blob_cache.2. A value is kept when it is read again while its first read is still remembered: one walk over everything changes nothing.
//! blob_cache.3. What a pointer names never changes, so nothing is ever taken out for being old.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::pointer::BlobPointer;
use crate::cache::{BudgetKind, MemoryBudget, Reservation};
use crate::types::Value;

/// The cache takes at most a quarter of the memory.
const MEMORY_PART: u64 = 4;
const SHARDS: usize = 16;
/// Reads that are remembered, in all.
const REMEMBERED: usize = 1 << 16;
/// A value takes at most an eighth of a shard.
const VALUE_PART: u64 = 8;

/// See the module's text.
pub(crate) struct BlobCache {
    shards: Vec<Mutex<Shard>>,
    /// Hashes of places that were read, each in the slot of its low bits (blob_cache.2). Relaxed: hints.
    seen: Vec<AtomicU64>,
    shard_bytes_max: u64,
}

type Place = (u64, u64);

struct Shard {
    /// Where in the ring.
    places: HashMap<Place, usize>,
    ring: Vec<Slot>,
    hand: usize,
    bytes: u64,
    memory: Reservation,
}

struct Slot {
    place: Place,
    value: Value,
    was_read: bool,
}

impl std::fmt::Debug for BlobCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlobCache({} bytes a shard)", self.shard_bytes_max)
    }
}

impl BlobCache {
    /// Empty.
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> Arc<BlobCache> {
        let shard = || Shard {
            places: HashMap::new(),
            ring: Vec::new(),
            hand: 0,
            bytes: 0,
            memory: budget.reserve(BudgetKind::Blob, 0),
        };
        Arc::new(BlobCache {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            seen: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            shard_bytes_max: budget.capacity_bytes() / MEMORY_PART / SHARDS as u64,
        })
    }

    /// Never 0.
    fn hash(pointer: &BlobPointer) -> u64 {
        let mixed = (pointer.file.get() << 40 ^ pointer.offset).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 29) | 1
    }

    /// The value of a pointer, if it is here.
    pub(super) fn get(&self, pointer: &BlobPointer) -> Option<Value> {
        let mut shard = self.shards[(Self::hash(pointer) >> 1) as usize % SHARDS].lock();
        let at = *shard.places.get(&(pointer.file.get(), pointer.offset))?;
        let slot = &mut shard.ring[at];
        slot.was_read = true;
        Some(slot.value.clone())
    }

    /// A value was read from its file.
    pub(super) fn was_read(&self, pointer: &BlobPointer, value: &Value) {
        let hash = Self::hash(pointer);
        let seen = &self.seen[(hash >> 8) as usize % REMEMBERED];
        if seen.swap(hash, Ordering::Relaxed) != hash {
            return;
        }
        let bytes = value.len() as u64 + size_of::<Slot>() as u64;
        if bytes > self.shard_bytes_max / VALUE_PART {
            return;
        }
        self.shards[(hash >> 1) as usize % SHARDS].lock().insert(
            (pointer.file.get(), pointer.offset),
            value,
            bytes,
            self.shard_bytes_max,
        );
    }
}

impl Shard {
    fn insert(&mut self, place: Place, value: &Value, bytes: u64, bytes_max: u64) {
        if self.places.contains_key(&place) {
            return;
        }
        while self.bytes + bytes > bytes_max && !self.ring.is_empty() {
            self.drop_one();
        }
        self.places.insert(place, self.ring.len());
        self.ring.push(Slot { place, value: value.clone(), was_read: false });
        self.bytes += bytes;
        self.memory.resize(self.bytes);
    }

    /// Moves the hand to a value that was not read since it came by last, and drops that one.
    fn drop_one(&mut self) {
        loop {
            self.hand %= self.ring.len();
            let slot = &mut self.ring[self.hand];
            if !std::mem::take(&mut slot.was_read) {
                break;
            }
            self.hand += 1;
        }
        let gone = self.ring.swap_remove(self.hand);
        self.places.remove(&gone.place);
        if let Some(moved) = self.ring.get(self.hand) {
            self.places.insert(moved.place, self.hand);
        }
        self.bytes -= gone.value.len() as u64 + size_of::<Slot>() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileId;

    #[test]
    fn blob_cache_1_blob_cache_2_it_keeps_what_is_read_twice_and_often_and_to_its_part_of_the_memory() {
        let budget = MemoryBudget::new(64 << 20);
        let cache = BlobCache::new(&budget);
        let pointer = |n: u64| BlobPointer::new(FileId::new(n % 3), n * 5000, &[]);
        let value = |n: u64| Value::from(vec![n as u8; 5000]);
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
}
