//! Allocates memory that is never freed individually; the whole arena is freed at once.
//!
//! ```text
//!   Bump::alloc --> [chunk 8 KiB][16 KiB] ... [4 MiB][4 MiB]   + a chunk for each very large record
//! ```
//!
//! Chunks are pages obtained directly from the operating system, so that dropping a memtable returns its
//! memory instead of leaving it in the allocator.
//!
//! An allocation keeps its address until the arena is dropped.
//!
//! No two allocations overlap.
#![expect(unsafe_code, reason = "hands out raw memory")]

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::ptr::{self, NonNull};

use esker_env::PageBuf;

/// The first chunk is small, so that an empty memtable is made quickly and a tiny database uses little
/// memory.
const CHUNK_BYTES_MIN: usize = 8 << 10;
/// Allocations up to this size share chunks.
const SHARED_BYTES_MAX: usize = 16 << 10;
const CHUNK_BYTES_MAX: usize = 4 << 20;
const CHUNK_ALIGN: usize = PageBuf::ALIGN;

/// Owns the chunks.
#[derive(Default)]
pub(super) struct Arena {
    chunks: Mutex<Vec<PageBuf>>,
    /// A statistic. Relaxed: it protects no other data.
    used: AtomicUsize,
}

impl Arena {
    /// Bytes allocated so far.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn add_chunk(&self, size: usize) -> NonNull<u8> {
        let mut chunk = PageBuf::new(size);
        let base = chunk.as_non_null();
        self.chunks.lock().push(chunk);
        base
    }
}

/// The unused remainder of the newest chunk of an arena. Owned by the applier.
pub(super) struct Bump {
    next: *mut u8,
    left: usize,
    chunk_size: usize,
}

// SAFETY: the memory from `next` on is owned by this value until it is allocated, on any thread.
unsafe impl Send for Bump {}

impl Bump {
    pub(super) fn new() -> Self {
        Bump { next: ptr::null_mut(), left: 0, chunk_size: CHUNK_BYTES_MIN }
    }

    /// Returns uninitialized memory of this size and alignment (at most 64), valid until the arena is
    /// dropped.
    #[inline]
    pub(super) fn alloc(&mut self, arena: &Arena, size: usize, align: usize) -> NonNull<u8> {
        debug_assert!(align.is_power_of_two() && align <= CHUNK_ALIGN && size > 0);
        let padding = self.next.addr().wrapping_neg() & (align - 1);
        if size.saturating_add(padding) > self.left {
            return self.alloc_in_new_chunk(arena, size);
        }
        self.take(arena, padding, size)
    }

    #[cold]
    fn alloc_in_new_chunk(&mut self, arena: &Arena, size: usize) -> NonNull<u8> {
        // A large allocation gets a chunk of its own, so that at most a quarter of a chunk stays unused.
        if size > SHARED_BYTES_MAX.max(self.chunk_size / 4) {
            arena.used.fetch_add(size, Ordering::Relaxed);
            return arena.add_chunk(size);
        }
        while size > self.chunk_size / 4 {
            self.chunk_size *= 2;
        }
        self.next = arena.add_chunk(self.chunk_size).as_ptr();
        self.left = self.chunk_size;
        self.chunk_size = (self.chunk_size * 2).min(CHUNK_BYTES_MAX);
        self.take(arena, 0, size)
    }

    #[inline]
    fn take(&mut self, arena: &Arena, padding: usize, size: usize) -> NonNull<u8> {
        assert!(padding + size <= self.left);
        // SAFETY: `next` is followed by `left` bytes of the same chunk, and padding + size is not more.
        let (start, end) = unsafe { (self.next.add(padding), self.next.add(padding + size)) };
        self.next = end;
        self.left -= padding + size;
        // Only the applier changes the counter here, so a load and a store suffice; an atomic add costs more.
        arena.used.store(arena.used.load(Ordering::Relaxed) + padding + size, Ordering::Relaxed);
        NonNull::new(start).expect("a chunk is not at address zero")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arena_2_allocations_are_aligned_and_apart() {
        let arena = Arena::default();
        let mut bump = Bump::new();
        let mut rng = fastrand::Rng::with_seed(1);
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for n in 0..3000 {
            let size = if n % 500 == 0 { rng.usize(100_000..9_000_000) } else { rng.usize(1..3000) };
            let align = 1 << rng.u32(0..=6);
            let at = bump.alloc(&arena, size, align).as_ptr().addr();
            assert_eq!(at % align, 0);
            taken.push((at, size));
        }
        taken.sort_unstable();
        assert!(taken.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
        let asked: usize = taken.iter().map(|t| t.1).sum();
        assert!((asked..asked + 3000 * 64).contains(&arena.used()));
    }

    #[test]
    fn the_first_chunk_is_small() {
        let arena = Arena::default();
        Bump::new().alloc(&arena, 100, 8);
        assert_eq!(arena.chunks.lock()[0].len(), CHUNK_BYTES_MIN);
    }
}
