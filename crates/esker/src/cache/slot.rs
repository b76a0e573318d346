//! A slot holds the pointer to a block while the block is in memory.
//!
//! ```text
//!   empty --insert--> block, accessed --clock passes--> block --clock passes--> empty
//!                         ^---------------hit-------------'
//! ```
//!
//! slot.1. A pointer in a slot came from `Arc::into_raw` and owns one reference count.
//! slot.2. One thread removes a pointer from a slot (by a swap). It releases the count only after every epoch
//!     pinned at that time has ended (`defer`), or when there can be no readers (`take`). A block loaded
//!     under a pin therefore stays alive until the unpin.
//!
//! The lowest bit of the pointer is the access bit of the clock, and not part of the address. After an
//! eviction, the second pointer says when that was.
//!
//! The access bit is written only when clear, so that readers of a hot block share its cache line without
//! writing to it. The second pointer is a hint to the bytes of the block. It is prefetched and never
//! dereferenced, so it may be stale. With it, the block and its bytes are fetched in parallel.
#![expect(unsafe_code, reason = "reference counts are held by atomic pointers")]

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::sync::Pin;
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::fault::{self, Fault};
use crate::types::prefetch::prefetch_line;

const ACCESSED: usize = 1;
/// Marks a second pointer that holds the moment of an eviction. No block has such an address.
const EVICTED: usize = 1 << (usize::BITS - 1);

/// Bytes prefetched: the heads of an 8 KiB block of medium-sized entries.
const PREFETCHED_BYTES: usize = 256;
const LINE_BYTES: usize = 64;
/// Bytes that a moment counts as one.
const UNIT_BYTES: u64 = 64;

/// A moment in the life of a cache, counted in evicted bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(usize);

impl Moment {
    /// Returns the moment at which these bytes have been evicted.
    pub(super) fn after(evicted_bytes: u64) -> Self {
        Moment((evicted_bytes / UNIT_BYTES) as usize & !EVICTED)
    }

    /// Returns about how many bytes were evicted since then.
    pub(super) fn bytes_until(self, now: Moment) -> u64 {
        (now.0.wrapping_sub(self.0) & !EVICTED) as u64 * UNIT_BYTES
    }
}

/// A slot for one block.
pub(super) struct Slot<T> {
    pointer: AtomicPtr<T>,
    hint: AtomicPtr<u8>,
    _owns: PhantomData<Arc<T>>,
}

/// A block protected by a pin.
pub(crate) struct Pinned<'g, T> {
    pointer: NonNull<T>,
    _pin: PhantomData<&'g T>,
}

impl<T> Clone for Pinned<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Pinned<'_, T> {}

impl<T> Deref for Pinned<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        self.get()
    }
}

impl<'g, T> Pinned<'g, T> {
    /// Returns a reference that lives as long as the pin.
    #[inline(always)]
    pub(crate) fn get(self) -> &'g T {
        // SAFETY: slot.2, the pin lasts for 'g.
        unsafe { self.pointer.as_ref() }
    }

    /// Returns a counted reference to the block, independent of the pin.
    #[inline(always)]
    pub(crate) fn to_arc(self) -> Arc<T> {
        // SAFETY: the pointer came from `Arc::into_raw` (slot.1) and the count is at least one (slot.2). The
        // count added here belongs to the new Arc.
        unsafe {
            Arc::increment_strong_count(self.pointer.as_ptr());
            Arc::from_raw(self.pointer.as_ptr())
        }
    }
}

/// Prefetches the first cache lines at an address, which need not be valid.
#[inline(always)]
fn prefetch(bytes: *const u8) {
    for at in (0..PREFETCHED_BYTES).step_by(LINE_BYTES) {
        prefetch_line(bytes.wrapping_add(at));
    }
}

fn untagged<T>(tagged: *mut T) -> *mut T {
    tagged.map_addr(|address| address & !ACCESSED)
}

impl<T: Send + Sync + 'static> Slot<T> {
    const ALIGNED: () = assert!(align_of::<T>() > ACCESSED, "the lowest bit of a pointer is free");

    pub(super) fn empty() -> Self {
        Slot {
            pointer: AtomicPtr::new(ptr::null_mut()),
            hint: AtomicPtr::new(ptr::null_mut()),
            _owns: PhantomData,
        }
    }

    /// Returns the block and sets its access bit. Prefetches its first bytes.
    #[inline(always)]
    pub(super) fn load<'g>(&self, pin: &'g impl Pin) -> Option<Pinned<'g, T>> {
        prefetch(self.hint.load(Ordering::Relaxed));
        self.touch(pin)
    }

    /// Like `load`, without the prefetch. Acquire pairs with the Release of `insert`, so the block is seen
    /// complete.
    #[inline(always)]
    pub(super) fn touch<'g>(&self, _pin: &'g impl Pin) -> Option<Pinned<'g, T>> {
        let tagged = self.pointer.load(Ordering::Acquire);
        let pointer = NonNull::new(untagged(tagged))?;
        if tagged.addr() & ACCESSED == 0 {
            let marked = tagged.map_addr(|address| address | ACCESSED);
            // A failure means that the clock or another reader changed the bit first, which is harmless.
            let _ = self.pointer.compare_exchange(tagged, marked, Ordering::Relaxed, Ordering::Relaxed);
        }
        Some(Pinned { pointer, _pin: PhantomData })
    }

    /// Returns the block without setting its access bit.
    pub(super) fn peek<'g>(&self, _pin: &'g impl Pin) -> Option<Pinned<'g, T>> {
        let pointer = NonNull::new(untagged(self.pointer.load(Ordering::Acquire)))?;
        Some(Pinned { pointer, _pin: PhantomData })
    }

    /// Returns when the block of this slot was evicted, if it was the last one. A block may be inserted
    /// meanwhile, so this is a hint.
    pub(super) fn evicted_at(&self) -> Option<Moment> {
        let address = self.hint.load(Ordering::Relaxed).addr();
        (address & EVICTED != 0).then_some(Moment(address & !EVICTED))
    }

    /// Inserts a block, whose bytes start at `hint`, into an empty slot. Returns false if the slot is in use.
    pub(super) fn insert(&self, block: Arc<T>, hint: *const u8, accessed: bool) -> bool {
        let () = Self::ALIGNED;
        self.hint.store(hint.cast_mut(), Ordering::Relaxed);
        let pointer = Arc::into_raw(block).cast_mut();
        let tagged = if accessed { pointer.map_addr(|address| address | ACCESSED) } else { pointer };
        let inserted = self
            .pointer
            .compare_exchange(
                ptr::null_mut(),
                tagged,
                fault::ordering(Fault::BlockNotReleased, Ordering::AcqRel),
                Ordering::Relaxed,
            )
            .is_ok();
        if !inserted {
            // SAFETY: the pointer came from `Arc::into_raw` above, and no slot holds it.
            drop(unsafe { Arc::from_raw(pointer) });
        }
        inserted
    }

    /// Handles a pass of the clock hand: clears the access bit, or evicts the block if the bit is clear.
    /// Returns the `size` of an evicted block.
    pub(super) fn tick(&self, now: Moment, pin: &impl Pin, size: impl FnOnce(&T) -> u64) -> Option<u64> {
        let tagged = self.pointer.load(Ordering::Acquire);
        if tagged.addr() & ACCESSED == 0 {
            return self.evict(tagged, now, pin, size);
        }
        // A failure means that another hand or the owner was first.
        let _ = self.pointer.compare_exchange(tagged, untagged(tagged), Ordering::AcqRel, Ordering::Relaxed);
        None
    }

    /// Evicts the block if its access bit is clear. Returns the `size` of an evicted block.
    pub(super) fn evict_unused(
        &self,
        now: Moment,
        pin: &impl Pin,
        size: impl FnOnce(&T) -> u64,
    ) -> Option<u64> {
        let tagged = self.pointer.load(Ordering::Acquire);
        (tagged.addr() & ACCESSED == 0).then(|| self.evict(tagged, now, pin, size))?
    }

    fn evict(
        &self,
        tagged: *mut T,
        now: Moment,
        pin: &impl Pin,
        size: impl FnOnce(&T) -> u64,
    ) -> Option<u64> {
        if tagged.is_null() {
            return None;
        }
        let hint = self.hint.load(Ordering::Relaxed);
        let empty = ptr::null_mut();
        self.pointer.compare_exchange(tagged, empty, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // A failure means that the next block is inserted already.
        let evicted = ptr::without_provenance_mut(now.0 | EVICTED);
        let _ = self.hint.compare_exchange(hint, evicted, Ordering::Relaxed, Ordering::Relaxed);
        // SAFETY: the exchange gave the pointer to this thread alone (slot.2), which still holds
        // the count.
        let bytes = size(unsafe { &*tagged });
        // SAFETY: slot.1 and slot.2: the count is released once, after all current pins. `T` is `Send`.
        unsafe { pin.defer(move || drop(Arc::from_raw(tagged.cast_const()))) };
        Some(bytes)
    }
}

impl<T> Slot<T> {
    /// Removes the block when the slot has no more readers.
    ///
    /// # Safety
    /// No [`Pinned`] of this slot exists or will be created. The clock hand may still pass.
    pub(super) unsafe fn take(&self) -> Option<Arc<T>> {
        let pointer = untagged(self.pointer.swap(ptr::null_mut(), Ordering::AcqRel));
        // SAFETY: slot.1, and the swap gave the pointer to this thread alone (slot.2). There are
        // no readers, and the clock hand reads a block only after removing it itself.
        NonNull::new(pointer).map(|pointer| unsafe { Arc::from_raw(pointer.as_ptr().cast_const()) })
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        // A load would suffice, except for a limit of loom: it does not model the counts by which a directory
        // moves between threads, and may return an old pointer. SAFETY: `&mut self` excludes readers. A
        // `Pinned` cannot outlive the owner of the slot: `CachedBlocks::load` ties it to a borrow of the
        // owner.
        drop(unsafe { self.take() });
    }
}
